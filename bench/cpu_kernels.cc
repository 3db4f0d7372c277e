// SPDX-License-Identifier: MIT
//
// The CPU backend's kernels by themselves, each beside a plain read of the same memory by the same
// threads at that moment: `of_read` is the share of that bandwidth, `of_dot` (prefill) of the rate
// of bf16 dot products (or fp32 multiply-adds) measured at the start. Weights are 256 MB of random
// bytes in huge pages, K = 1024 as in Qwen3-0.6B; KV of heads of 128. Run it on a quiet machine:
//
//   cpu_kernels --benchmark_filter='gemv/mxfp4'
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backend/cpu/dispatch.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/team.h"
#include "cli/bench_kernels.h"

namespace {

using namespace mainarch;
using cpu::PanelFormat;

constexpr size_t kBytes = size_t{256} << 20;
constexpr int64_t kCols = 1024;
constexpr int64_t kItemPanels = 8;
constexpr int64_t kFewRows = 8;  // more are a prefill, on panels that stay in the cache

// The kernels of one run: every worker takes items.
class Items : public Team::Job {
 public:
  Items(uint32_t items, std::function<void(uint32_t, int)> run)
      : items_(items), run_(std::move(run)) {}
  uint32_t Open(uint32_t phase) override { return phase == 0 ? items_ : kEnd; }
  void Run(uint32_t, uint32_t item, int worker) override { run_(item, worker); }

 private:
  const uint32_t items_;
  const std::function<void(uint32_t, int)> run_;
};

struct Machine {
  std::unique_ptr<Team> team[3];  // by threads
  Mapping memory;
  double dot[3] = {}, fma[3] = {};
};

double Seconds(Team* team, Team::Job* job) {
  const int64_t start = NowNs();
  team->Execute(job);
  return static_cast<double>(NowNs() - start) * 1e-9;
}

Machine* TheMachine() {
  static Machine* machine = [] {
    auto* m = new Machine();
    for (int threads : {1, 2}) m->team[threads] = std::move(*Team::Create(threads));
    m->memory = std::move(*Mapping::Anonymous(kBytes, /*huge_pages=*/true));
    std::mt19937_64 rng(1);
    auto* words = reinterpret_cast<uint64_t*>(m->memory.data());
    // Bits that make ordinary numbers of every format: no bf16 or fp8 NaN, few denormals, and bf16 of half to two, whose
    // products with what is small are none either.
    for (size_t i = 0; i < kBytes / 8; ++i) words[i] = (rng() & 0x80b780b780b780b7) | 0x3f003f003f003f00;
    for (int threads : {1, 2}) {
      for (auto [function, best] : {std::pair{cli::Bf16Function(), &m->dot[threads]},
                                    std::pair{cli::Fp32Function(), &m->fma[threads]}}) {
        if (function == nullptr) continue;
        for (int pass = 0; pass < 3; ++pass) {
          std::atomic<uint64_t> flops{0};
          Items job(32, [&, f = function](uint32_t, int) { flops += f(20'000); });
          const double seconds = Seconds(m->team[threads].get(), &job);
          *best = std::max(*best, static_cast<double>(flops) / seconds);
        }
      }
    }
    return m;
  }();
  return machine;
}

double ReadRate(Team* team) {
  const Machine& m = *TheMachine();
  double best = 0;
  for (int streams : {1, 2, 4}) {
    const cli::ReadFunction read = cli::ReaderOf(streams);
    std::atomic<uint64_t> sink{0};
    constexpr uint32_t kItems = 64;
    Items job(kItems, [&](uint32_t item, int) {
      sink ^= read(m.memory.data() + item * (kBytes / kItems), kBytes / kItems);
    });
    best = std::max(best, static_cast<double>(kBytes) / Seconds(team, &job));
  }
  return best;
}

cpu::Panels Layout(PanelFormat format) {
  cpu::Panels w = {};
  w.format = format;
  w.data = TheMachine()->memory.data();
  const quant::PanelInfo& step = quant::InfoOf(format);
  w.cols = kCols;
  w.scale_offset = static_cast<size_t>(kCols / step.step_cols * step.step_bytes);
  size_t scales = 0;
  if (format == PanelFormat::kFp8) {
    w.group_cols = 128;
    scales = kCols / 128 * 64;
  } else if (format == PanelFormat::kMxfp4) {
    w.group_cols = 32;
    scales = kCols / 32 * 16;
  }
  w.stride = w.scale_offset + scales;
  w.parts = 1;
  w.bounds[1] = kCols;
  return w;
}

// The shortest time of a job, in seconds, and the team's best read rate before and after.
std::pair<double, double> Best(benchmark::State& state, Team* team, Items* job) {
  double seconds = 1e9, read = ReadRate(team);
  for (auto _ : state) {
    const double now = Seconds(team, job);
    seconds = std::min(seconds, now);
    state.SetIterationTime(now);
  }
  return {seconds, std::max(read, ReadRate(team))};
}

// rows of fp32 activations, products of all panels in items of eight.
void Matmul(benchmark::State& state, PanelFormat format, bool fast, int64_t rows, int threads,
            size_t bytes) {
  Machine& m = *TheMachine();
  Team* team = m.team[threads].get();
  const cpu::Kernels& kernels = *cpu::UsableKernels().front();
  const cpu::Panels w = Layout(format);
  const int64_t panels = static_cast<int64_t>(bytes / w.stride) / kItemPanels * kItemPanels;
  // Every worker writes an item's results over those of its last one: they stay in its cache, as
  // they do in a step.
  constexpr int64_t kItemWidth = kItemPanels * cpu::kLanes;
  std::vector<float> x(static_cast<size_t>(rows * kCols)),
      y(static_cast<size_t>(threads * rows * kItemWidth));
  std::mt19937 rng(2);
  for (float& value : x) value = std::normal_distribution<float>()(rng);
  std::vector<const float*> in;
  std::vector<float*> out(static_cast<size_t>(threads * rows));
  for (int64_t r = 0; r < rows; ++r) in.push_back(x.data() + r * kCols);
  std::vector<uint16_t> x16(x.size());
  std::vector<const uint16_t*> in16;
  std::vector<uint8_t> decoded(static_cast<size_t>(threads) * cpu::DecodedBytes(kCols));
  if (fast) kernels.to_bf16(x.data(), x16.data(), rows * kCols);
  for (int64_t r = 0; r < rows; ++r) in16.push_back(x16.data() + r * kCols);
  std::vector<float> columns(cpu::kMaxBlockRows * kCols);
  if (rows <= cpu::kMaxBlockRows && kernels.by_columns != nullptr) {
    kernels.by_columns(in.data(), rows, kCols, columns.data());
  } else {
    columns.clear();
  }
  Items job(static_cast<uint32_t>(panels / kItemPanels), [&](uint32_t item, int worker) {
    const int64_t begin = item * kItemPanels;
    float** own = out.data() + worker * rows;
    for (int64_t r = 0; r < rows; ++r) own[r] = y.data() + (worker * rows + r) * kItemWidth;
    cpu::Panels here = w;
    here.data += static_cast<size_t>(begin) * w.stride;
    cpu::MatmulArgs args = {here, 0, kItemPanels, in.data(), own, rows, cpu::Epilogue::kStore};
    args.x16 = in16.data();
    if (begin + kItemPanels < panels) args.after = here.data + kItemPanels * w.stride;
    args.columns = columns.empty() ? nullptr : columns.data();
    args.decoded = decoded.data() + static_cast<size_t>(worker) * cpu::DecodedBytes(kCols);
    (fast ? kernels.matmul_bf16 : kernels.matmul)(args);
  });
  const auto [seconds, read] = Best(state, team, &job);
  const double moved = static_cast<double>(panels) * static_cast<double>(w.stride);
  const double flops = 2.0 * static_cast<double>(rows * panels * 16 * kCols);
  state.counters["GB/s"] = moved / seconds * 1e-9;
  state.counters["of_read"] = moved / seconds / read;
  state.counters["GFLOP/s"] = flops / seconds * 1e-9;
  state.counters["of_dot"] =
      flops / seconds / (m.dot[threads] > 0 ? m.dot[threads] : m.fma[threads]);
}

// Attention of one row over contexts that fill the memory, as the backend lays KV out: eight heads,
// their pages in chunks, a unit of work a split of one head.
// rounds: Kernels::attend_bf16.
void Attend(benchmark::State& state, cpu::KvFormat format, int32_t queries, int threads, bool rounds) {
  constexpr int32_t kHeadDim = 128;
  constexpr uint32_t kHeads = 8;
  Machine& m = *TheMachine();
  Team* team = m.team[threads].get();
  const cpu::Kernels& kernels = *cpu::UsableKernels().front();
  const size_t page = cpu::KvPageBytes({format, kHeadDim, kHeadDim});
  const size_t chunk = kHeads * cpu::kKvChunkPages * page;
  constexpr uint32_t kSplitPages = cpu::kAttentionSplit / cpu::kLanes;
  const uint32_t pages =
      static_cast<uint32_t>(kBytes / chunk * cpu::kKvChunkPages / kSplitPages * kSplitPages);
  const uint32_t splits = pages / kSplitPages;
  std::vector<uint32_t> ids(pages);
  for (uint32_t i = 0; i < pages; ++i) ids[i] = i;
  struct Scratch {
    std::vector<float> scores, out;
    std::vector<uint8_t> room;
    float max_sum[cpu::kMaxQueries][2];
  };
  std::vector<Scratch> scratch(static_cast<size_t>(threads));
  for (Scratch& s : scratch) {
    s.scores.resize(cpu::kMaxQueries * cpu::kAttentionSplit);
    s.out.resize(cpu::kMaxQueries * kHeadDim);
    s.room.resize(cpu::AttendRoomBytes(kHeadDim) + 64);
  }
  std::vector<float> q(cpu::kMaxQueries * kHeadDim, 1e-3f);
  Items job(splits * kHeads, [&](uint32_t item, int worker) {
    Scratch& s = scratch[static_cast<size_t>(worker)];
    cpu::AttendArgs args = {};
    args.kv = {format, kHeadDim, kHeadDim};
    args.chunks = m.memory.data() + item / splits * cpu::kKvChunkPages * page;
    args.chunk_stride = chunk;
    args.page_ids = ids.data();
    args.begin = item % splits * cpu::kAttentionSplit;
    args.end = args.begin + cpu::kAttentionSplit;
    args.queries = queries;
    args.scratch = s.scores.data();
    for (int32_t i = 0; i < queries; ++i) {
      args.q[i] = q.data() + i * kHeadDim;
      args.visible[i] = int64_t{pages} * cpu::kLanes;
      args.out[i] = s.out.data() + i * kHeadDim;
      args.max_sum[i] = s.max_sum[i];
    }
    args.room = reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(s.room.data()) + 63) & ~uintptr_t{63});
    args.fetch_next_page = cpu::NearBytes(cpu::CpuVendor()) > 0;
    (rounds ? kernels.attend_bf16 : kernels.attend)(args);
  });
  const auto [seconds, read] = Best(state, team, &job);
  const double moved = static_cast<double>(pages * kHeads) * static_cast<double>(page);
  state.counters["GB/s"] = moved / seconds * 1e-9;
  state.counters["of_read"] = moved / seconds / read;
}

bool Rounds() {
  const cpu::Kernels& kernels = *cpu::UsableKernels().front();
  return kernels.may_round == nullptr || kernels.may_round();
}

void RegisterAttend() {
  for (auto [name, format] :
       {std::pair{"bf16", cpu::KvFormat::kBF16}, std::pair{"fp8", cpu::KvFormat::kFp8},
        std::pair{"f32", cpu::KvFormat::kF32}, std::pair{"fp4", cpu::KvFormat::kFp4},
        std::pair{"k8v4", cpu::KvFormat::kK8V4}}) {
    for (bool rounds : {false, true}) {
      // The kernel attends other caches as ever.
      if (rounds && (format != cpu::KvFormat::kBF16 || !Rounds() || cpu::UsableKernels().front()->attend_bf16 == nullptr)) continue;
      for (int32_t queries : {1, 2, 4, 8, 16}) {
        for (int threads : {1, 2}) {
          const std::string full =
              absl::StrCat("attend/", name, rounds ? "/rounds" : "", "/queries:", queries, "/threads:", threads);
          benchmark::RegisterBenchmark(full.c_str(), Attend, format, queries, threads, rounds)
              ->UseManualTime()
              ->MinTime(0.05)
              ->Unit(benchmark::kMillisecond);
        }
      }
    }
  }
}

void Register() {
  const std::pair<const char*, PanelFormat> formats[] = {
      {"bf16", PanelFormat::kBF16}, {"fp8", PanelFormat::kFp8}, {"mxfp4", PanelFormat::kMxfp4}};
  for (auto [name, format] : formats) {
    for (bool fast : {false, true}) {
      const cpu::Kernels& kernels = *cpu::UsableKernels().front();
      if (fast && (kernels.matmul_bf16 == nullptr || !Rounds())) continue;
      for (int64_t rows : {1, 2, 4, 8, 256}) {
        for (int threads : {1, 2}) {
          const std::string full =
              absl::StrCat(rows > kFewRows ? "gemm/" : "gemv/", name, "/", fast ? "bf16" : "fp32",
                           "/rows:", rows, "/threads:", threads);
          const size_t bytes = rows > kFewRows ? kBytes / 64 : kBytes;
          benchmark::RegisterBenchmark(full.c_str(), Matmul, format, fast, rows, threads, bytes)
              ->UseManualTime()
              ->MinTime(0.05)
              ->Unit(benchmark::kMillisecond);
        }
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  Register();
  RegisterAttend();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
