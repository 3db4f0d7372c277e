// SPDX-License-Identifier: MIT
//
// mainarch gpu-allreduce-bench: the all-reduce of a group by size. On a virtual node it prints what
// each size costs in packets, rounds and bytes, beside the least there is; on real ranks the time
// as well, median of many.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "cli/coll/ranks.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/json_writer.h"
#include "cli/options.h"
#include "cli/output.h"

namespace mainarch::cli {
namespace {

constexpr size_t kLeast = 8, kMost = 16 << 20;  // bytes
constexpr uint32_t kTimeoutMs = 120'000;

struct Settings {
  std::string device = "gpu", algorithm = "auto";
  int64_t least = kLeast, most = kMost, repeats = 0;
  bool json = false;
};

struct Row {
  size_t bytes = 0;
  coll::Counts counts;
  double median_seconds = NAN;  // of the call; NAN on a virtual node
  bool right = false;
};

coll::Algorithm AlgorithmOf(const std::string& name) {
  for (auto a : {coll::Algorithm::kOneShot, coll::Algorithm::kTwoShot, coll::Algorithm::kEngines}) {
    if (name == coll::NameOf(a)) return a;
  }
  return coll::Algorithm::kAuto;
}

// Whole numbers small enough that every sum is exact: any order of adding would do, any lost or
// doubled piece shows.
float Value(int32_t rank, size_t i) {
  return static_cast<float>((i * 7 + static_cast<size_t>(rank) * 1000003) % 65521);
}

bool Right(coll::Ranks& ranks, size_t count) {
  for (int32_t r = 0; r < ranks.ranks(); ++r) {
    const absl::Span<const float> data = ranks.data(r);
    for (size_t i = 0; i < count; ++i) {
      float want = 0;
      for (int32_t from = 0; from < ranks.ranks(); ++from) want += Value(from, i);
      if (data[i] != want) return false;
    }
  }
  return true;
}

void Fill(coll::Ranks& ranks, size_t count) {
  for (int32_t r = 0; r < ranks.ranks(); ++r) {
    for (size_t i = 0; i < count; ++i) ranks.data(r)[i] = Value(r, i);
  }
}

StatusOr<Row> Measure(const Settings& s, coll::Ranks& ranks, size_t bytes, bool is_virtual) {
  Row row;
  row.bytes = bytes;
  const size_t count = bytes / sizeof(float);
  Fill(ranks, count);
  ASSIGN_OR_RETURN(row.counts, ranks.AllReduce(count, AlgorithmOf(s.algorithm)));
  row.right = Right(ranks, count);
  if (is_virtual) return row;
  const int64_t repeats =
      s.repeats > 0 ? s.repeats
                    : std::clamp<int64_t>((64 << 20) / static_cast<int64_t>(bytes), 20, 2000);
  std::vector<int64_t> times;
  for (int64_t i = 0; i < repeats; ++i) {
    if (Interrupted()) return Error(Code::kCancelled, "interrupted");
    const int64_t start = NowNs();
    RETURN_IF_ERROR(ranks.AllReduce(count, AlgorithmOf(s.algorithm)).status());
    times.push_back(NowNs() - start);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<long>(times.size() / 2), times.end());
  row.median_seconds = static_cast<double>(times[times.size() / 2]) * 1e-9;
  return row;
}

void PrintRows(const Settings& s, const coll::Ranks& ranks, const std::vector<Row>& rows,
               bool is_virtual) {
  std::printf("all-reduce of fp32 over %d ranks of %s, one host thread\n\n", ranks.ranks(),
              s.device.c_str());
  std::vector<std::string> headings = {"bytes",  "<algorithm", "packets",           "copies",
                                       "rounds", "host waits", "link bytes a rank", "of the least",
                                       "<sum"};
  if (!is_virtual) headings.push_back("median");
  Table table(std::move(headings));
  for (const Row& row : rows) {
    const uint64_t least = coll::LeastLinkBytes(row.bytes, ranks.ranks());
    std::vector<std::string> cells = {
        absl::StrCat(row.bytes),
        std::string(coll::NameOf(row.counts.algorithm)),
        absl::StrCat(row.counts.packets),
        absl::StrCat(row.counts.copies),
        absl::StrCat(row.counts.rounds),
        absl::StrCat(row.counts.handoffs),
        absl::StrCat(row.counts.link_bytes),
        least == 0
            ? "-"
            : absl::StrCat(
                  Fixed(static_cast<double>(row.counts.link_bytes) / static_cast<double>(least), 2),
                  "x"),
        row.right ? "right" : "WRONG"};
    if (!is_virtual) cells.push_back(Seconds(row.median_seconds));
    table.Row(std::move(cells));
  }
  table.Print();
  if (is_virtual) {
    std::printf("\nA virtual node: its times say nothing about hardware and are not shown.\n");
  }
}

void PrintJson(const Settings& s, const coll::Ranks& ranks, const std::vector<Row>& rows) {
  JsonWriter out;
  out.BeginObject().Field("device", s.device).Field("ranks", ranks.ranks());
  out.Key("sizes").BeginArray();
  for (const Row& row : rows) {
    out.BeginObject().Field("bytes", row.bytes);
    out.Field("algorithm", std::string(coll::NameOf(row.counts.algorithm)));
    out.Field("packets", row.counts.packets).Field("copies", row.counts.copies);
    out.Field("rounds", row.counts.rounds).Field("host_waits", row.counts.handoffs);
    out.Field("link_bytes", row.counts.link_bytes);
    out.Field("least_link_bytes", coll::LeastLinkBytes(row.bytes, ranks.ranks()));
    if (!std::isnan(row.median_seconds)) out.Field("median_seconds", row.median_seconds);
    out.Field("right", row.right).EndObject();
  }
  out.EndArray().Field("interrupted", Interrupted()).EndObject().Print();
}

StatusOr<int> Bench(const Settings& s) {
  ASSIGN_OR_RETURN(auto ranks,
                   coll::OpenRanks(s.device, static_cast<size_t>(s.most) / 4, kTimeoutMs));
  const bool is_virtual = absl::StartsWith(s.device, "sim:");
  std::vector<Row> rows;
  bool right = true;
  for (size_t bytes = static_cast<size_t>(s.least); bytes <= static_cast<size_t>(s.most);
       bytes *= 2) {
    const StatusOr<Row> row = Measure(s, *ranks, bytes, is_virtual);
    if (Interrupted()) break;
    RETURN_IF_ERROR(row.status());
    right = right && row->right;
    rows.push_back(*row);
  }
  s.json ? PrintJson(s, *ranks, rows) : PrintRows(s, *ranks, rows, is_virtual);
  if (Interrupted()) return FailInterrupted("gpu-allreduce-bench");
  return right ? kExitOk : kExitFailure;
}

}  // namespace

int RunAllReduceBench(Arguments arguments) {
  Settings s;
  Options options(
      "gpu-allreduce-bench", "[options]",
      "Adds up vectors of 8 bytes to 16 MiB over the ranks of a group, checks every sum, and "
      "prints what each size took: packets, engine copies, fabric rounds, waits of the host, "
      "and bytes over the links beside the least that any algorithm can do with.",
      "mainarch gpu-allreduce-bench --device sim:gfx950x8 --most 65536\n"
      "mainarch gpu-allreduce-bench --device gpu:0-7 --json\n"
      "mainarch gpu-allreduce-bench --device cpu:2");
  options.Text("device", "DEVICE", &s.device, "gpu, gpu:LIST, sim:NODE or cpu:N");
  options.Choice("algorithm", {"auto", "one-shot", "two-shot", "engines"}, &s.algorithm,
                 "auto chooses by size");
  options.Integer("least", &s.least, 4, kMost, "bytes of the smallest vector; then doubling");
  options.Integer("most", &s.most, 4, kMost, "bytes of the largest");
  options.Integer("repeats", &s.repeats, 0, 1 << 20, "calls a median is taken of; 0: by size");
  options.Flag("json", &s.json, "one JSON object");
  if (const auto code = options.Parse(arguments)) return *code;
  if (s.least > s.most) return options.Usage("--least is larger than --most");
  const StatusOr<int> code = Bench(s);
  return code.ok() ? *code : Fail("gpu-allreduce-bench", code.status());
}

}  // namespace mainarch::cli
