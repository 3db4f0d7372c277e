// SPDX-License-Identifier: MIT
#include "cli/probe.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/json_writer.h"
#include "file/json.h"
#include "gpu/loader.h"
#include "gpu/process.h"
#include "gpu/queue.h"
#include "isa/kernel_images.h"
#include "kernels/args.h"

namespace mainarch::cli {
namespace {

constexpr uint64_t kDeadlineMs = 120'000;
constexpr size_t kShownDifferences = 4;
// Of a litmus kernel: a chip is asked until it has had its chances.
constexpr uint32_t kChipRounds = 4096, kChipPolls = 1u << 22;

// Words that would be NaNs of fp32 become one.
Words WithOneNan(Words words) {
  for (uint32_t& word : words) {
    if ((word & 0x7fffffff) > 0x7f800000) word = 0x7fc00000;
  }
  return words;
}

std::string Fingerprint(const Words& words) {
  return absl::StrFormat("%016x", XXH64(words.data(), words.size() * 4, 0));
}

// A GPU with one queue, for kernels that read one buffer and write another.
class Bench {
 public:
  ~Bench() {
    queue_.reset();
    process_.reset();
  }

  Status Open(kfd::Sys& sys, uint32_t index) {
    ASSIGN_OR_RETURN(process_, gpu::Process::Open(sys, {}));
    ASSIGN_OR_RETURN(device_, process_->OpenDevice(index));
    ASSIGN_OR_RETURN(queue_, gpu::Queue::Create(*device_, {}));
    return OkStatus();
  }
  gpu::Device& device() { return *device_; }

  StatusOr<Words> Run(const ProbeCase& probe) {
    const gpu::Deadline deadline = gpu::Deadline::In(kDeadlineMs);
    ASSIGN_OR_RETURN(const isa::KernelRef ref, isa::FindKernel(device_->chip().name, probe.kernel));
    ASSIGN_OR_RETURN(const gpu::CodeObject object,
                     gpu::CodeObject::Parse(ref.image->name, ref.image->bytes));
    ASSIGN_OR_RETURN(const auto code, gpu::LoadedCode::Load(*queue_, object, {}, deadline));
    ASSIGN_OR_RETURN(const gpu::Kernel* kernel, code->Find(probe.kernel));
    ASSIGN_OR_RETURN(const gpu::Buffer in, Shared(probe.in.size() * 4));
    ASSIGN_OR_RETURN(const gpu::Buffer out, Shared(probe.out_words * 4));
    ASSIGN_OR_RETURN(const gpu::Buffer kernarg, Shared(4096));
    std::memcpy(in.host(), probe.in.data(), probe.in.size() * 4);
    FillArguments(probe, in.va(), out.va(), kernarg.host());
    gpu::Dispatch dispatch;
    dispatch.kernel_object = kernel->object;
    dispatch.kernarg = kernarg.va();
    dispatch.workgroup.x = ref.kernel->threads;
    dispatch.grid.x = ref.kernel->threads * probe.workgroups;
    dispatch.group_bytes = kernel->group_bytes;
    dispatch.private_bytes = kernel->private_bytes;
    ASSIGN_OR_RETURN(const uint64_t point,
                     queue_->SubmitSignalled(gpu::MakeDispatch(dispatch, {}), "probe", deadline));
    queue_->Ring();
    RETURN_IF_ERROR(queue_->Wait(point, deadline));
    Words words(probe.out_words);
    std::memcpy(words.data(), out.host(), words.size() * 4);
    return words;
  }

 private:
  StatusOr<gpu::Buffer> Shared(size_t bytes) {
    gpu::BufferOptions options;
    options.place = gpu::Place::kSystem;
    options.caching = gpu::Caching::kUncached;
    options.label = "probe";
    return gpu::Buffer::Allocate(*device_, bytes, options);
  }
  static void FillArguments(const ProbeCase& probe, uint64_t in, uint64_t out, uint8_t* kernarg) {
    if (probe.rounds != 0) {
      kernels::Kernarg<kernels::LitmusArgs> args;
      args.args.cells.address = in;
      args.args.out.address = out;
      args.args.rounds = probe.rounds;
      args.workers = probe.workgroups;
      std::memcpy(kernarg, &args, sizeof args);
      return;
    }
    kernels::Kernarg<kernels::ProbeArgs> args;
    args.args.in.address = in;
    args.args.out.address = out;
    args.workers = probe.workgroups;
    std::memcpy(kernarg, &args, sizeof args);
  }

  std::unique_ptr<gpu::Process> process_;
  gpu::Device* device_ = nullptr;
  std::unique_ptr<gpu::Queue> queue_;
};

std::string Hex(const Words& words) {
  std::string text;
  text.reserve(words.size() * 8);
  for (const uint32_t word : words) absl::StrAppendFormat(&text, "%08x", word);
  return text;
}

Status ParseHex(absl::string_view text, Words* words) {
  if (text.size() % 8 != 0) return Error(Code::kBadModel, text.size(), " digits of words");
  for (size_t at = 0; at < text.size(); at += 8) {
    uint32_t word = 0;
    for (const char c : text.substr(at, 8)) {
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
      if (digit < 0) return Error(Code::kBadModel, "words hold a character that is no digit");
      word = word << 4 | static_cast<uint32_t>(digit);
    }
    words->push_back(word);
  }
  return OkStatus();
}

template <class Answer>
const Answer* Find(const std::vector<Answer>& answers, absl::string_view name) {
  for (const Answer& answer : answers) {
    if (answer.name == name) return &answer;
  }
  return nullptr;
}

const char* Verdict(const LitmusAnswer& answer) {
  if (!answer.asked) return "-";
  if (answer.needed) return answer.holds ? "holds" : "BREAKS US";
  return answer.holds ? "not seen to fail" : "fails";
}

std::string LitmusText(const std::vector<LitmusAnswer>& litmus) {
  std::string text = "\nWhat the decoder rests on, and the same without what it does for it\n\n";
  absl::StrAppendFormat(&text, "%-22s %-8s %-17s %s\n", "litmus", "needed", "verdict", "seen");
  for (const LitmusAnswer& a : litmus) {
    absl::StrAppendFormat(&text, "%-22s %-8s %-17s %s\n", a.name, a.needed ? "yes" : "no", Verdict(a), a.answer);
  }
  for (const LitmusAnswer& a : litmus) {
    absl::StrAppend(&text, "\n", a.name, ": ", a.question, "\n");
    if (!a.otherwise.empty()) absl::StrAppend(&text, "  if not: ", a.otherwise, "\n");
  }
  return text;
}

void WriteLitmus(const std::vector<LitmusAnswer>& litmus, JsonWriter* out) {
  out->Key("litmus").BeginArray();
  for (const LitmusAnswer& a : litmus) {
    out->BeginObject().Field("name", a.name).Field("question", a.question).Field("needed", a.needed);
    out->Field("asked", a.asked).Field("holds", a.holds).Field("answer", a.answer);
    if (!a.otherwise.empty()) out->Field("otherwise", a.otherwise);
    out->EndObject();
  }
  out->EndArray();
}

void CompareLitmus(const ProbeReport& ours, const ProbeReport& theirs, int* differences, std::string* text) {
  for (const LitmusAnswer& answer : ours.litmus) {
    const LitmusAnswer* other = Find(theirs.litmus, answer.name);
    if (other == nullptr || !answer.needed || !other->needed || answer.holds == other->holds) continue;
    ++*differences;
    absl::StrAppend(text, answer.name, ": ", Verdict(answer), " here (", answer.answer, "), ", Verdict(*other),
                    " there (", other->answer, ")\n");
  }
}

std::string WordDifferences(const Words& ours, const Words& theirs) {
  if (ours.size() != theirs.size() || ours.empty()) return "";
  size_t count = 0;
  std::string shown;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i] == theirs[i]) continue;
    if (++count > kShownDifferences) continue;
    absl::StrAppendFormat(&shown, "    row %u lane %u: %08x here, %08x there\n", i / 64, i % 64,
                          ours[i], theirs[i]);
  }
  return absl::StrCat("    ", count, " of ", ours.size(), " words differ\n", shown);
}

}  // namespace

StatusOr<ProbeReport> RunProbe(kfd::Sys& sys, uint32_t index, absl::string_view device) {
  Bench bench;
  RETURN_IF_ERROR(bench.Open(sys, index));
  const isa::ChipFacts& chip = bench.device().chip();
  if (!chip.is_target) {
    return Error(Code::kUnsupported, "there are no probe kernels for ", chip.name);
  }
  ProbeReport report;
  report.virtual_node = absl::StartsWith(device, "sim:");
  report.device = report.virtual_node ? std::string(device) : bench.device().name();
  report.isa = chip.name;
  for (const ProbeCase& probe : ProbeCases(chip)) {
    ProbeAnswer answer;
    ASSIGN_OR_RETURN(answer.words, bench.Run(probe));
    answer.name = probe.name;
    answer.question = probe.question;
    answer.statistical = probe.statistical;
    answer.summary = probe.summary(answer.words);
    answer.fingerprint = Fingerprint(probe.nans_alike ? WithOneNan(answer.words) : answer.words);
    report.answers.push_back(std::move(answer));
  }
  LitmusOptions litmus;
  litmus.index = index;
  if (!report.virtual_node) litmus.rounds = kChipRounds, litmus.polls = kChipPolls;
  ASSIGN_OR_RETURN(report.litmus, RunLitmus(sys, litmus));
  return report;
}

int ProbeReport::Broken() const {
  return static_cast<int>(std::count_if(litmus.begin(), litmus.end(),
                                        [](const LitmusAnswer& a) { return a.needed && !a.holds; }));
}

std::string ProbeText(const ProbeReport& report) {
  std::string text = absl::StrCat(
      report.device, " (", report.isa, ")",
      report.virtual_node ? ": a virtual node; these are assumptions, not silicon" : "", "\n\n");
  for (const ProbeAnswer& answer : report.answers) {
    absl::StrAppendFormat(&text, "%-22s %s\n  %s\n  %s\n", answer.name,
                          answer.statistical ? "(varies)" : answer.fingerprint, answer.question,
                          answer.summary);
  }
  return absl::StrCat(text, LitmusText(report.litmus));
}

std::string ProbeJson(const ProbeReport& report, bool words) {
  JsonWriter out;
  out.BeginObject()
      .Field("mainarch_probe", 1)
      .Field("device", report.device)
      .Field("isa", report.isa)
      .Field("virtual", report.virtual_node)
      .Key("answers")
      .BeginArray();
  for (const ProbeAnswer& answer : report.answers) {
    out.BeginObject()
        .Field("name", answer.name)
        .Field("question", answer.question)
        .Field("fingerprint", answer.fingerprint)
        .Field("statistical", answer.statistical)
        .Field("summary", answer.summary);
    if (words) out.Field("words", Hex(answer.words));
    out.EndObject();
  }
  out.EndArray();
  WriteLitmus(report.litmus, &out);
  out.EndObject();
  return absl::StrCat(out.text(), "\n");
}

StatusOr<ProbeReport> ParseProbeJson(absl::string_view text, absl::string_view file) {
  ASSIGN_OR_RETURN(const file::JsonDocument document,
                   file::JsonDocument::Parse(text, file, {size_t{16} << 20, 8}));
  const auto bad = [&file](absl::string_view what) {
    return Error(Code::kBadModel, file, ": ", what, "; expected what mainarch probe --json wrote");
  };
  ASSIGN_OR_RETURN(const auto root, document.RootObject());
  uint64_t schema = 0;
  if (root["mainarch_probe"].get(schema) != simdjson::SUCCESS || schema != 1) {
    return bad("no field mainarch_probe of 1");
  }
  const auto string = [](const simdjson::dom::object& from, const char* key, std::string* value) {
    std::string_view view;
    if (from[key].get(view) != simdjson::SUCCESS) return false;
    *value = std::string(view);
    return true;
  };
  ProbeReport report;
  simdjson::dom::array answers;
  if (!string(root, "device", &report.device) || !string(root, "isa", &report.isa) ||
      root["answers"].get(answers) != simdjson::SUCCESS) {
    return bad("device, isa or answers are missing");
  }
  if (root["virtual"].get(report.virtual_node) != simdjson::SUCCESS) report.virtual_node = false;
  for (const simdjson::dom::element element : answers) {
    simdjson::dom::object object;
    ProbeAnswer answer;
    if (element.get(object) != simdjson::SUCCESS || !string(object, "name", &answer.name) ||
        !string(object, "fingerprint", &answer.fingerprint) ||
        !string(object, "summary", &answer.summary)) {
      return bad("an answer without name, fingerprint or summary");
    }
    if (object["statistical"].get(answer.statistical) != simdjson::SUCCESS) {
      answer.statistical = false;
    }
    std::string words;
    if (string(object, "words", &words)) RETURN_IF_ERROR(ParseHex(words, &answer.words));
    report.answers.push_back(std::move(answer));
  }
  simdjson::dom::array litmus;
  if (root["litmus"].get(litmus) != simdjson::SUCCESS) return report;  // of a time before there were such
  for (const simdjson::dom::element element : litmus) {
    simdjson::dom::object object;
    LitmusAnswer answer;
    if (element.get(object) != simdjson::SUCCESS || !string(object, "name", &answer.name) ||
        !string(object, "answer", &answer.answer) || object["needed"].get(answer.needed) != simdjson::SUCCESS ||
        object["asked"].get(answer.asked) != simdjson::SUCCESS ||
        object["holds"].get(answer.holds) != simdjson::SUCCESS) {
      return bad("a litmus answer without name, answer, needed, asked or holds");
    }
    report.litmus.push_back(std::move(answer));
  }
  return report;
}

std::string CompareProbes(const ProbeReport& ours, const ProbeReport& theirs, int* differences) {
  *differences = 0;
  std::string text;
  if (ours.isa != theirs.isa) {
    ++*differences;
    absl::StrAppend(&text, "isa: ", ours.isa, " here, ", theirs.isa, " there\n");
  }
  for (const ProbeAnswer& answer : ours.answers) {
    const ProbeAnswer* other = Find(theirs.answers, answer.name);
    if (other == nullptr) {
      ++*differences;
      absl::StrAppend(&text, answer.name, ": not in the other file\n");
      continue;
    }
    const bool same = answer.statistical ? answer.summary == other->summary
                                         : answer.fingerprint == other->fingerprint;
    if (same) continue;
    ++*differences;
    absl::StrAppend(&text, answer.name, ": differs\n  here:  ", answer.summary,
                    "\n  there: ", other->summary, "\n",
                    WordDifferences(answer.words, other->words));
  }
  for (const ProbeAnswer& answer : theirs.answers) {
    if (Find(ours.answers, answer.name) != nullptr) continue;
    ++*differences;
    absl::StrAppend(&text, answer.name, ": in the other file only\n");
  }
  CompareLitmus(ours, theirs, differences, &text);
  return text;
}

}  // namespace mainarch::cli
