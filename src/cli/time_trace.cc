// SPDX-License-Identifier: MIT
//
// Timelines in Chrome's trace event format, which Perfetto opens.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "cli/timed_node.h"

namespace mainarch::cli {
namespace {

using sim::timing::LaunchReport;

// Processes of the trace: a GPU's queues and engines, its compute units.
constexpr uint32_t kUnits = 1000;  // + GPU
// Threads: copy engines behind queues; a compute unit by XCC and number.
constexpr uint32_t kEngines = 1000;
constexpr uint32_t kResidentOps = 2000;
constexpr uint32_t kUnitsPerXcc = 100;

class Trace {
 public:
  Trace() { out_.BeginObject().Field("displayTimeUnit", "ns").Key("traceEvents").BeginArray(); }

  void Launch(const LaunchReport& r, const std::string& name) {
    Process(r.gpu, absl::StrCat("GPU ", r.gpu, " (modelled)"));
    Thread(r.gpu, r.queue, absl::StrCat("queue ", r.queue));
    Begin(name, "X", r.gpu, r.queue, r.start_us).Field("dur", r.us());
    out_.Key("args").BeginObject().Field("kernel", r.kernel).Field("packet", r.dispatch_id);
    out_.Field("workgroups", r.workgroups).Field("first_wave_us", r.first_wave_us - r.start_us);
    out_.Field("last_wave_us", r.last_wave_us - r.start_us).Field("limited_by", sim::timing::NameOf(r.limit()));
    out_.Field("hbm_read", r.bytes.hbm_read).Field("mean_in_flight", r.mean_in_flight).EndObject().EndObject();
    Waits(r);
    for (size_t i = 0; i < r.in_flight.size(); ++i) {
      InFlight(r.gpu, r.first_wave_us + static_cast<double>(i) * r.in_flight_step_us, r.in_flight[i]);
    }
    if (!r.in_flight.empty()) InFlight(r.gpu, r.last_wave_us, 0);
    for (const sim::timing::GroupSpan& span : r.spans) Group(r, name, span);
  }

  void Copy(const sim::timing::CopyReport& copy) {
    Process(copy.gpu, absl::StrCat("GPU ", copy.gpu, " (modelled)"));
    Thread(copy.gpu, kEngines + copy.queue, absl::StrCat("copy queue ", copy.queue));
    Begin("copy", "X", copy.gpu, kEngines + copy.queue, copy.start_us).Field("dur", copy.end_us - copy.start_us);
    out_.Key("args").BeginObject().Field("bytes", copy.bytes).EndObject().EndObject();
  }

  // What the first workgroup of a GPU did, and when it waited for the others to be where it was.
  void Resident(uint32_t gpu, absl::Span<const backend::OpTimes> times, absl::Span<const std::string> names) {
    Process(gpu, absl::StrCat("GPU ", gpu, " (modelled)"));
    Thread(gpu, kResidentOps, "resident kernel, workgroup 0");
    for (size_t i = 0; i < names.size() && i + 1 < times.size(); ++i) {
      const backend::OpTimes& next = times[i + 1];
      Begin(names[i], "X", gpu, kResidentOps, times[i].began_us).Field("dur", next.ready_us - times[i].began_us);
      out_.EndObject();
      Begin(absl::StrCat("waits for all of ", names[i]), "X", gpu, kResidentOps, next.ready_us)
          .Field("dur", next.began_us - next.ready_us);
      out_.EndObject();
    }
  }

  std::string Take() {
    out_.EndArray().EndObject();
    return absl::StrCat(out_.text(), "\n");
  }

 private:
  JsonWriter& Begin(const std::string& name, const char* phase, uint32_t process, uint32_t thread, double us) {
    return out_.BeginObject().Field("name", name).Field("ph", phase).Field("pid", process).Field("tid", thread).Field(
        "ts", us);
  }
  void Meta(const char* what, uint32_t process, uint32_t thread, const std::string& name) {
    Begin(what, "M", process, thread, 0).Key("args").BeginObject().Field("name", name).EndObject();
    out_.EndObject();
  }
  void Process(uint32_t process, const std::string& name) {
    if (named_.insert({process, ~0u}).second) Meta("process_name", process, 0, name);
  }
  void Thread(uint32_t process, uint32_t thread, const std::string& name) {
    if (named_.insert({process, thread}).second) Meta("thread_name", process, thread, name);
  }
  void InFlight(uint32_t gpu, double us, double bytes) {
    Begin("bytes in flight", "C", gpu, 0, us).Key("args").BeginObject().Field("bytes", bytes).EndObject();
    out_.EndObject();
  }
  // Where waves waited, one mark a launch.
  void Waits(const LaunchReport& r) {
    if (r.waits.empty()) return;
    Begin("waits", "i", r.gpu, r.queue, r.last_wave_us).Field("s", "t").Key("args").BeginObject();
    for (const sim::timing::WaitAt& wait : r.waits) {
      out_.Field(absl::StrCat("+0x", absl::Hex(wait.pc - r.entry)),
                 absl::StrCat(wait.wave_us, " us of waves, ", wait.times, " times, ", sim::timing::NameOf(wait.most)));
    }
    out_.EndObject().EndObject();
  }
  void Group(const LaunchReport& r, const std::string& name, const sim::timing::GroupSpan& span) {
    const uint32_t process = kUnits + r.gpu, unit = span.xcc * kUnitsPerXcc + span.cu;
    Process(process, absl::StrCat("GPU ", r.gpu, " compute units (modelled)"));
    Thread(process, unit, absl::StrCat("XCC ", span.xcc, " CU ", span.cu));
    // Workgroups of one unit overlap: asynchronous events may.
    const std::string id = absl::StrCat(r.dispatch_id, ".", span.index);
    for (const bool end : {false, true}) {
      Begin(name, end ? "e" : "b", process, unit, end ? span.end_us : span.start_us);
      out_.Field("cat", "workgroup").Field("id", id).Key("args").BeginObject().Field("workgroup", span.index);
      out_.EndObject().EndObject();
    }
  }

  JsonWriter out_;
  std::set<std::pair<uint32_t, uint32_t>> named_;
};

}  // namespace

Status WriteTrace(const std::string& path, absl::Span<const LaunchReport> launches,
                  absl::Span<const std::string> names, absl::Span<const sim::timing::CopyReport> copies,
                  const ResidentTrace& resident) {
  Trace trace;
  for (size_t i = 0; i < launches.size(); ++i) {
    trace.Launch(launches[i], names.empty() ? launches[i].kernel : names[i]);
  }
  for (const sim::timing::CopyReport& copy : copies) trace.Copy(copy);
  for (size_t gpu = 0; gpu < resident.gpus.size(); ++gpu) {
    trace.Resident(static_cast<uint32_t>(gpu), resident.gpus[gpu], resident.names);
  }
  const std::string text = trace.Take();
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd.valid()) return ErrnoError(Code::kIo, errno, "create ", path);
  for (size_t at = 0; at < text.size();) {
    const ssize_t part = write(fd.get(), text.data() + at, text.size() - at);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return ErrnoError(Code::kIo, errno, "write ", path);
    at += static_cast<size_t>(part);
  }
  return OkStatus();
}

}  // namespace mainarch::cli
