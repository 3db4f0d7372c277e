// SPDX-License-Identifier: MIT
#include "cli/bench_probe.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "backend/cpu/threads.h"
#include "base/clock.h"
#include "base/fd.h"
#include "cli/bench_kernels.h"
#include "cli/interrupt.h"

namespace mainarch::cli {
namespace {

constexpr double kNearNs = 100;  // same cache 26-50 ns, other cache 166-220 ns on Zen 4
constexpr int kPasses = 2;       // the better one counts
constexpr uint64_t kQuickBytes = uint64_t{256} << 20;  // at least
constexpr uint64_t kDefaultBytes = uint64_t{1} << 30;  // at least, where there are

double PerSecond(double amount, int64_t ns) { return amount / (static_cast<double>(ns) * 1e-9); }

// Of a worker. Odd: streams of one slice that are a power of two apart meet in the same banks of
// the memory, and read half of what it can.
constexpr uint32_t kSlices = 19;

// Reads memory once, in slices that any worker takes.
class ReadJob : public Team::Job {
 public:
  ReadJob(const Mapping& memory, size_t bytes, int streams, int workers)
      : memory_(memory),
        bytes_(bytes),
        read_(ReaderOf(streams)),
        items_(static_cast<uint32_t>(workers) * 16) {}
  uint32_t Open(uint32_t phase) override { return phase == 0 ? items_ : kEnd; }
  void Run(uint32_t, uint32_t item, int) override {
    // Slices in whole KB: readers take blocks of 1 KB.
    const size_t blocks = bytes_ / 1024;
    const size_t begin = blocks * item / items_, end = blocks * (item + 1) / items_;
    sink_.fetch_xor(read_(memory_.data() + begin * 1024, (end - begin) * 1024),
                    std::memory_order_relaxed);
  }

 private:
  const Mapping& memory_;
  const size_t bytes_;
  const ReadFunction read_;
  const uint32_t items_;
  std::atomic<uint64_t> sink_{0};  // so that nothing is optimised away
};

class FlopsJob : public Team::Job {
 public:
  FlopsJob(FlopsFunction run, uint64_t iterations, int workers)
      : run_(run), iterations_(iterations), items_(static_cast<uint32_t>(workers) * 32) {}
  uint32_t Open(uint32_t phase) override { return phase == 0 ? items_ : kEnd; }
  void Run(uint32_t, uint32_t, int) override {
    flops_.fetch_add(run_(iterations_), std::memory_order_relaxed);
  }
  double flops() const { return static_cast<double>(flops_.load()); }

 private:
  const FlopsFunction run_;
  const uint64_t iterations_;
  const uint32_t items_;
  std::atomic<uint64_t> flops_{0};
};

double Flops(Team* team, FlopsFunction run) {
  if (run == nullptr) return 0;
  double best = 0;
  for (int pass = 0; pass < kPasses + 1; ++pass) {
    FlopsJob job(run, 100'000, team->workers());
    const int64_t start = NowNs();
    team->Execute(&job);
    best = std::max(best, PerSecond(job.flops(), NowNs() - start));
  }
  return best;
}

// Two threads that wait on a line of their own each. All waits end at `deadline`: threads that have
// to share one processor would else take milliseconds a turn.
class Handoff {
 public:
  ~Handoff() {
    there_.value.store(kStop, std::memory_order_release);
    partner_.join();
  }

  // Nanoseconds one way, the best of a few rounds; infinite if not one of them ended in time.
  double Measure() {
    constexpr uint32_t kTurns = 500;
    constexpr int kRounds = 20;
    double best = INFINITY;
    for (int round = 0; round < kRounds; ++round) {
      const int64_t start = NowNs();
      for (uint32_t turn = 0; turn < kTurns; ++turn) {
        if (!Turn()) return best;
      }
      best = std::min(best, static_cast<double>(NowNs() - start) / (2.0 * kTurns));
    }
    return best;
  }

 private:
  struct alignas(64) Box {
    std::atomic<uint32_t> value{0};
  };
  static constexpr uint32_t kStop = UINT32_MAX;

  bool Turn() {
    there_.value.store(++turn_, std::memory_order_release);
    uint32_t spins = 0;
    while (back_.value.load(std::memory_order_acquire) != turn_) {
      Pause();
      if (++spins % 1024 == 0 && NowNs() > deadline_) return false;
    }
    return true;
  }

  void Answer() {
    uint32_t last = 0;
    while (last != kStop) {
      const uint32_t now = there_.value.load(std::memory_order_acquire);
      if (now == last) {
        Pause();
        continue;
      }
      last = now;
      back_.value.store(now, std::memory_order_release);
    }
  }

  const int64_t deadline_ = NowNs() + 50'000'000;
  Box there_, back_;
  uint32_t turn_ = 0;
  std::thread partner_{[this] { Answer(); }};  // last: it uses the others
};

}  // namespace

const char* NameOf(Regime regime) {
  switch (regime) {
    case Regime::kAlone:
      return "alone";
    case Regime::kNear:
      return "near";
    case Regime::kFar:
      return "far";
    case Regime::kBusy:
      return "busy";
  }
  return "?";
}

namespace {

// Of /proc/meminfo; 0 if it does not say.
uint64_t AvailableBytes(absl::string_view meminfo) {
  for (absl::string_view line : absl::StrSplit(meminfo, '\n')) {
    uint64_t kb;
    if (absl::ConsumePrefix(&line, "MemAvailable:") && absl::ConsumeSuffix(&line, " kB") &&
        absl::SimpleAtoi(line, &kb) && kb <= UINT64_MAX / 1024) {
      return kb * 1024;
    }
  }
  return 0;
}

}  // namespace

namespace {

uint64_t CacheBytes() {
  static const uint64_t bytes =
      cpu::CacheBytesOf([](const std::string& path) { return ReadWholeFile(path, size_t{1} << 16); });
  return bytes;
}

// A stream through so many is not answered by caches: they have lost a byte by the time it comes again.
uint64_t QuickBytes() { return std::max(kQuickBytes, 2 * CacheBytes()); }

}  // namespace

uint64_t DefaultProbeBytes() {
  // What the page cache would give back counts too: a checkpoint that has just been read fills it,
  // and a probe that shrank for it would measure the processor's cache.
  const auto meminfo = ReadWholeFile("/proc/meminfo", size_t{1} << 16);
  uint64_t bytes = meminfo.ok() ? AvailableBytes(*meminfo) : 0;
  if (bytes == 0) {
    bytes = static_cast<uint64_t>(sysconf(_SC_AVPHYS_PAGES)) *
            static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }
  const uint64_t wanted = std::max(kDefaultBytes, 4 * CacheBytes());
  return std::clamp<uint64_t>(bytes / 8, uint64_t{64} << 20, wanted) >> 20 << 20;
}

StatusOr<std::unique_ptr<Probes>> Probes::Create(int threads, uint64_t bytes) {
  std::unique_ptr<Probes> probes(new Probes());
  ASSIGN_OR_RETURN(probes->one_, Team::Create(1));
  ASSIGN_OR_RETURN(probes->all_, Team::Create(threads));
  ASSIGN_OR_RETURN(probes->huge_, Mapping::Anonymous(bytes, /*huge_pages=*/true));
  ASSIGN_OR_RETURN(probes->small_, Mapping::Anonymous(bytes / 2, /*huge_pages=*/false));
  // Even where the system would give huge pages unasked; a kernel without them says EINVAL.
  if (madvise(probes->small_.data(), probes->small_.size(), MADV_NOHUGEPAGE) != 0 &&
      errno != EINVAL) {
    return ErrnoError(Code::kInternal, errno, "madvise of the probe's memory");
  }
  std::memset(probes->huge_.data(), 1, probes->huge_.size());
  std::memset(probes->small_.data(), 1, probes->small_.size());
  return probes;
}

double Probes::Bandwidth(Team* team, const Mapping& memory, size_t bytes) {
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    // Which number of streams is best depends on where they begin: some places halve the rate.
    for (const int streams : {1, 2, 4}) {
      if (Interrupted()) return best;
      ReadJob job(memory, bytes, streams, team->workers());
      const int64_t start = NowNs();
      team->Execute(&job);
      best = std::max(best, PerSecond(static_cast<double>(bytes), NowNs() - start));
    }
  }
  return best;
}

void Probes::Place(ReadProbe* probe) {
  if (threads() == 1) return;
  probe->handoff_ns = Handoff().Measure();
  probe->regime = probe->handoff_ns < kNearNs ? Regime::kNear : Regime::kFar;
  if (std::isinf(probe->handoff_ns)) probe->regime = Regime::kBusy;
}

ReadProbe Probes::Read() {
  ReadProbe probe;
  probe.one = Bandwidth(one_.get(), huge_, huge_.size());
  probe.one_small = Bandwidth(one_.get(), small_, small_.size());
  probe.all = threads() == 1 ? probe.one : Bandwidth(all_.get(), huge_, huge_.size());
  probe.all_small = threads() == 1 ? probe.one_small : Bandwidth(all_.get(), small_, small_.size());
  Place(&probe);
  return probe;
}

ReadProbe Probes::Quick() {
  ReadProbe probe;
  probe.all = Bandwidth(all_.get(), huge_, std::min<size_t>(huge_.size(), QuickBytes()));
  Place(&probe);
  return probe;
}

double Probes::Whole() { return Bandwidth(all_.get(), huge_, huge_.size()); }

PeakProbe Probes::Peak() {
  PeakProbe peak;
  peak.fp32_fma = Flops(all_.get(), Fp32Function());
  peak.bf16_dot = Flops(all_.get(), Bf16Function());
  return peak;
}

}  // namespace mainarch::cli
