// SPDX-License-Identifier: MIT
#include "sim/isa/counters.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "sim/isa/wave.h"

namespace mainarch::sim::isa {
namespace {

InstClass FlowClass(absl::string_view n) {
  using absl::StartsWith;
  if (n == "s_barrier") return InstClass::kBarrier;
  if (StartsWith(n, "s_branch") || StartsWith(n, "s_cbranch") || StartsWith(n, "s_setpc") ||
      StartsWith(n, "s_swappc") || StartsWith(n, "s_call") || StartsWith(n, "s_getpc")) {
    return InstClass::kBranch;
  }
  if (StartsWith(n, "s_waitcnt") || n == "s_nop" || n == "s_sleep") return InstClass::kWait;
  return InstClass::kOther;
}

InstClass ClassOf(const Inst& inst, const RowFacts& f) {
  if (f.mfma) return InstClass::kMfma;
  if (f.trans) return InstClass::kTrans;
  if (f.valu) return InstClass::kValu;
  if (f.smem) return InstClass::kSmem;
  if (f.ds) return f.lds_memory ? InstClass::kLds : InstClass::kLane;
  if (f.vmem) {
    if (f.inv || f.wbl2) return InstClass::kFence;
    return f.atomic ? InstClass::kAtomic : f.store ? InstClass::kStore : InstClass::kLoad;
  }
  const InstClass flow = FlowClass(inst.name());
  const bool sopp = inst.row->family == Family::kSopp;
  return sopp || flow != InstClass::kOther ? flow : InstClass::kSalu;
}

constexpr uint64_t kFootprintPage = 32 * kFootprintLine;

size_t SizeIndex(uint32_t bytes) {
  switch (bytes) {
    case 1:
      return 0;
    case 2:
      return 1;
    case 4:
      return 2;
    case 8:
      return 3;
    case 12:
      return 4;
    default:
      return 5;
  }
}

}  // namespace

absl::string_view NameOf(InstClass c) {
  static constexpr absl::string_view kNames[] = {"valu", "trans",  "mfma",   "salu",    "smem",
                                                 "load", "store",  "atomic", "fence",   "lds",
                                                 "lane", "branch", "wait",   "barrier", "other"};
  static_assert(std::size(kNames) == static_cast<size_t>(InstClass::kCount));
  return kNames[static_cast<size_t>(c)];
}

void Traffic::Add(const Traffic& o) {
  instructions += o.instructions;
  bytes += o.bytes;
  lines64 += o.lines64;
  full64 += o.full64;
  lines128 += o.lines128;
  full128 += o.full128;
  distinct += o.distinct;
  for (size_t i = 0; i < lanes_by_size.size(); ++i) lanes_by_size[i] += o.lanes_by_size[i];
}

uint64_t Counts::instructions() const {
  uint64_t sum = 0;
  for (uint64_t n : by_class) sum += n;
  return sum;
}

void Counts::Add(const Counts& o) {
  waves += o.waves;
  workgroups += o.workgroups;
  for (size_t i = 0; i < by_class.size(); ++i) by_class[i] += o.by_class[i];
  lane_operations += o.lane_operations;
  loads.Add(o.loads);
  stores.Add(o.stores);
  atomics.Add(o.atomics);
  dma_bytes += o.dma_bytes;
  scalar_bytes += o.scalar_bytes;
  lds_read_bytes += o.lds_read_bytes;
  lds_write_bytes += o.lds_write_bytes;
  scratch_bytes += o.scratch_bytes;
}

void CountLog::Add(DispatchCounts counts) {
  std::lock_guard<std::mutex> lock(mutex_);
  entries_.push_back(std::move(counts));
}

std::vector<DispatchCounts> CountLog::Take() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(entries_, {});
}

void Counters::Begin(Workgroup& group) {
  if (next_ != nullptr) next_->Begin(group);
  std::lock_guard<std::mutex> lock(mutex_);
  ++counts_.workgroups;
  counts_.waves += group.waves.size();
}

bool Counters::Before(Wave& w, const Op& op) {
  if (next_ != nullptr && !next_->Before(w, op)) return false;
  if (op.descriptor == nullptr) return true;  // it is about to stop the wave
  std::lock_guard<std::mutex> lock(mutex_);
  const RowFacts& facts = table_.FactsOf(*op.inst.row);
  const InstClass c = ClassOf(op.inst, facts);
  ++counts_.by_class[static_cast<size_t>(c)];
  if (c == InstClass::kValu || c == InstClass::kTrans) {
    counts_.lane_operations += static_cast<uint64_t>(__builtin_popcountll(w.exec()));
  }
  if (facts.smem || facts.vmem || (facts.ds && facts.lds_memory)) Memory(w, op, facts);
  return true;
}

void Counters::After(Wave& w, const Op& op) {
  if (next_ != nullptr) next_->After(w, op);
}

void Counters::Barrier(Workgroup& group) {
  if (next_ != nullptr) next_->Barrier(group);
}

Counts Counters::Get() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counts_;
}

std::vector<FootprintPage> Counters::GetFootprint() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<FootprintPage> out;
  for (const auto& [address, page] : pages_) out.push_back(page);
  std::sort(out.begin(), out.end(),
            [](const FootprintPage& a, const FootprintPage& b) { return a.address < b.address; });
  return out;
}

void Counters::AddToFootprint() {
  for (const Piece& p : accesses_.pieces) {
    if (p.space != Space::kGlobal) continue;
    const uint64_t last = p.address + p.size - 1;
    for (uint64_t line = p.address / kFootprintLine; line <= last / kFootprintLine; ++line) {
      FootprintPage& page = pages_[line / 32 * kFootprintPage];
      page.address = line / 32 * kFootprintPage;
      const uint32_t bit = uint32_t{1} << line % 32;
      if (!p.write || accesses_.atomic) page.read |= bit;
      if (p.write || accesses_.atomic) page.written |= bit;
    }
    if (p.write || accesses_.atomic)
      pages_[p.address / kFootprintPage * kFootprintPage].bytes_written += p.size;
  }
}

void Counters::Memory(const Wave& w, const Op& op, const RowFacts& facts) {
  FindAccesses(w, op, facts, &accesses_);
  if (with_footprint_) AddToFootprint();
  if (facts.smem) {
    for (const Piece& p : accesses_.pieces) counts_.scalar_bytes += p.size;
    return;
  }
  Traffic t;
  for (const Piece& p : accesses_.pieces) {
    if (p.space == Space::kScratch) {
      counts_.scratch_bytes += p.size;
    } else if (p.space == Space::kLds) {
      if (accesses_.dma) continue;
      if (facts.load || facts.atomic) counts_.lds_read_bytes += p.size;
      if (facts.store || facts.atomic) counts_.lds_write_bytes += p.size;
    } else {
      t.bytes += p.size;
      ++t.lanes_by_size[SizeIndex(p.size)];
    }
  }
  if (!facts.vmem || facts.inv || facts.wbl2) return;
  t.instructions = t.bytes != 0;
  uint64_t ignored = 0;
  Lines(64, &t.lines64, &t.full64, &t.distinct);
  Lines(128, &t.lines128, &t.full128, &ignored);
  if (accesses_.dma) counts_.dma_bytes += t.bytes;
  (facts.atomic ? counts_.atomics : facts.store ? counts_.stores : counts_.loads).Add(t);
}

void Counters::Lines(uint64_t size, uint64_t* touched, uint64_t* full, uint64_t* distinct) {
  // Bytes as intervals, in order; then line by line.
  std::vector<std::pair<uint64_t, uint64_t>> runs;
  for (const Piece& p : accesses_.pieces) {
    if (p.space == Space::kGlobal) runs.emplace_back(p.address, p.address + p.size);
  }
  std::sort(runs.begin(), runs.end());
  uint64_t line = ~uint64_t{0}, covered = 0, end = 0;  // of the line being looked at
  const auto close = [&] {
    if (line == ~uint64_t{0}) return;
    ++*touched;
    *full += covered == size;
    *distinct += covered;
    if (with_footprint_ && size == 64 && covered == size) {
      pages_[line / 64 * kFootprintPage].whole |= uint64_t{1} << line % 64;
    }
  };
  for (auto [from, to] : runs) {
    from = std::max(from, end);  // bytes seen before count once
    while (from < to) {
      if (from / size != line) {
        close();
        line = from / size;
        covered = 0;
      }
      const uint64_t stop = std::min(to, (line + 1) * size);
      covered += stop - from;
      from = stop;
    }
    end = std::max(end, to);
  }
  close();
}

}  // namespace mainarch::sim::isa
