// SPDX-License-Identifier: MIT
//
// How a wave's next instruction is taken: what it waits for, which unit is busy with it for how long,
// and when the wave may issue again. The instruction itself runs at that moment, by the interpreter.
#include <algorithm>
#include <cstring>
#include <utility>

#include "sim/time/gpu.h"

namespace mainarch::sim::timing {
namespace {

constexpr Clocks kQuantum = 256;  // that a compute unit may run ahead of the others
// Work that the address path and the LDS take in before they keep waves from issuing more.
constexpr Clocks kVmemQueue = 64, kLdsQueue = 32;

// A result of a matrix instruction is waited for, or not.
Clocks LateFor(const Late& late, const OpTime& t) {
  Clocks until = 0;
  for (int i = 0; i < t.read_count; ++i) {
    if (late.registers.Overlaps(t.reads[static_cast<size_t>(i)])) until = late.ready;
  }
  for (int i = 0; i < t.write_count; ++i) {
    const Span16& w = t.writes[static_cast<size_t>(i)];
    if (!late.registers.Overlaps(w)) continue;
    const bool chained = t.unit == Unit::kMfma && w.Same(t.accumulator);
    if (!chained) until = std::max(until, late.ready);
  }
  if (late.registers.Overlaps(t.accumulator)) {
    const bool same = late.registers.Same(t.accumulator) && late.passes == t.passes;
    until = std::max(until, same ? late.chained : late.ready);
  }
  return until;
}

}  // namespace

SharedCaches& Gpu::SharedOf(const ComputeUnit& unit) {
  return shared_[(&unit - units_.data()) / 2];
}

Gpu::Spot Gpu::SpotOf(const isa::Wave& w, uint64_t va) {
  const isa::View* found = nullptr;
  for (const isa::View& view : w.views) {
    if (view.Holds(va, 1)) found = &view;
  }
  isa::View view;
  isa::AccessFault ignored;
  if (found == nullptr && w.memory->Translate(va, false, false, &view, &ignored)) found = &view;
  if (found == nullptr) return {};
  Spot& spot = spots_[(found->begin >> 12 ^ found->begin >> 21) % spots_.size()];
  if (spot.begin != found->begin || spot.end != found->end) {
    spot = {found->begin, found->end, clock_.frames_.ShiftOf(*found), {}};
  }
  spot.where = found->where;
  return spot;
}

// The wave does more than look and sleep.
void Gpu::Busy(WaveSlot* slot) {
  if (!slot->idle) return;
  slot->idle = false;
  --slot->group->job->idle_waves_;
}

bool Gpu::IsSync(const OpTime& t) {
  switch (t.unit) {
    case Unit::kAtomic:
    case Unit::kWbl2:
      return true;
    case Unit::kLoad:
    case Unit::kStore:
      return t.sc1;
    default:
      return false;
  }
}

// Runs one unit's waves in the order of time until another unit is too far behind.
uint64_t Gpu::RunUnit(size_t number) {
  ComputeUnit& unit = units_[number];
  const uint64_t first = queue_.first_key(), second = queue_.second_key();
  const Clocks begins = static_cast<Clocks>(first >> 5);
  now_ = std::max(now_, begins);
  const Clocks others = second == ComputeUnit::kEmpty ? kNever : static_cast<Clocks>(second >> 5);
  const Clocks until = std::max(begins, std::min(others, begins) + kQuantum);
  uint64_t ran = 0;
  for (;;) {
    const uint64_t key = unit.Earliest();
    const auto at = static_cast<Clocks>(key >> 5);
    if (key == ComputeUnit::kEmpty || at > until) break;
    const int slot = static_cast<int>(key & 31);
    const isa::Op& op = *unit.slots[static_cast<size_t>(slot)].op;
    if (at > others && IsSync(ops_->Of(op))) break;
    ran += Issue(&unit, slot, at);
  }
  queue_.Set(number, unit.Earliest());
  return ran;
}

// Runs the instruction and lets the wave issue again at `next`.
uint64_t Gpu::StepAndGoOn(ComputeUnit* unit, int slot_number, Clocks at, Clocks next) {
  WaveSlot& slot = unit->slots[static_cast<size_t>(slot_number)];
  isa::Wave& w = *slot.wave;
  isa::Grid& grid = slot.group->job->grid_;
  uint64_t ran = 0;
  slot.op = grid.Step(w, *slot.op, &slot.chunk, &ran);
  if (ran > 1) next += static_cast<Clocks>(ran - 1) * issue_;
  if (__builtin_expect(slot.op != nullptr, 1)) {
    unit->Set(slot_number, next);
    return ran;
  }
  if (w.state == isa::WaveState::kDone) {
    EndWave(unit, slot_number, at);
  } else {
    unit->key[static_cast<size_t>(slot_number)] = ComputeUnit::kEmpty;
    Stop(slot.group->job, w);
  }
  return std::max<uint64_t>(ran, 1);
}

// Instructions that the cache of two compute units does not hold come from the L2 or beyond; a few
// lines are fetched ahead of where a wave stands.
Clocks Gpu::FetchCode(ComputeUnit* unit, WaveSlot* slot, Clocks at) {
  slot->fetched = slot->op->at >> 6;
  Tags& code = SharedOf(*unit).code;
  const Spot spot = SpotOf(*slot->wave, slot->op->at);
  const uint64_t line = spot.Line(slot->op->at, 6);
  Clocks ready = at;
  const auto ahead = static_cast<uint64_t>(params_.fetch_ahead);
  for (uint64_t i = 0; i <= ahead; ++i) {
    uint32_t place = code.Find(line + i);
    if (place == Tags::kNone) {
      bool ignored;
      uint64_t none;
      const Clocks vector = static_cast<Clocks>(params_.l2_latency - params_.fetch_l2);
      const Done done = memory_.Read(unit->xcc, (line + i) >> 1, at, spot.where, false, false);
      place = code.Put(line + i, &ignored, &none);
      code.set_arrives(place, std::max(at, done.at - vector));
    }
    if (i == 0) ready = std::max(ready, code.arrives(place));
  }
  if (ready > at) slot->group->job->Spend(Limit::kIssue, ready - at);
  return ready;
}

Clocks Gpu::Depend(WaveSlot* slot, const OpTime& t, Clocks at) {
  Clocks until = at;
  for (const Late& late : slot->late) {
    if (late.ready > at) until = std::max(until, LateFor(late, t));
  }
  if (until > at) slot->group->job->Spend(Limit::kMatrix, until - at);
  return until;
}

Clocks Gpu::IssueVector(ComputeUnit* unit, WaveSlot* slot, const OpTime& t, Clocks at) {
  Simd& simd = unit->simd[static_cast<size_t>(slot->simd)];
  const Clocks start = std::max(at, simd.valu);
  simd.valu = start + t.occupancy;
  const Clocks next = start + std::max<Clocks>(t.occupancy, issue_);
  slot->group->job->Spend(Limit::kIssue, next - at);
  return next;
}

Clocks Gpu::IssueMatrix(ComputeUnit* unit, WaveSlot* slot, const OpTime& t, Clocks at) {
  Simd& simd = unit->simd[static_cast<size_t>(slot->simd)];
  const Clocks start = std::max({at, simd.valu, simd.mfma});
  simd.valu = start + t.occupancy;
  simd.mfma = start + t.passes;
  if (t.write_count > 0) {
    Late& late = slot->late[slot->late_next++ % slot->late.size()];
    late = {t.writes[0], start + t.passes, start + t.result, t.passes};
    slot->late_until = std::max(slot->late_until, late.ready);
  }
  Job& job = *slot->group->job;
  if (start > at) job.Spend(Limit::kMatrix, start - at);
  job.Spend(Limit::kIssue, issue_);
  return start + issue_;
}

// As many lines are under way as the unit has room to note: when the next may go.
Clocks Gpu::Room(ComputeUnit* unit, Clocks at) {
  return std::max(at, unit->misses[unit->next_miss]);
}

void Gpu::Takes(ComputeUnit* unit, Clocks at, Clocks goes, Done* done) {
  unit->misses[unit->next_miss] = done->at;
  if (++unit->next_miss == unit->misses.size()) unit->next_miss = 0;
  if (goes == at) return;
  done->queued += goes - at;
  unit->address = std::max(unit->address, goes);
}

// The lines of an access through the vector L1, `cost` clocks of address path from `starts` on.
Done Gpu::Lines(ComputeUnit* unit, const OpTime& t, const isa::Wave& w, const Spot& first, Clocks starts,
                Clocks cost, Job* job) {
  Done all;
  const Shape& shape = shape_;
  const isa::Where where = first.where;
  Spot spot = first;
  const bool past = t.sc1 || where.place != isa::Where::kLocal ||
                    where.mtype == static_cast<uint8_t>(Page::kUc);
  const bool whole = shape.bytes >= static_cast<uint32_t>(shape.lines) << kLineBits;
  for (int i = 0; i < shape.lines; ++i) {
    const uint64_t va = shape.line[i] << kLineBits;
    if (!spot.Holds(va)) spot = SpotOf(w, va);
    const uint64_t line = spot.Line(va, kLineBits);
    const Clocks at = starts + cost * i / shape.lines;
    Done done;
    if (t.unit == Unit::kStore || t.unit == Unit::kAtomic) {
      const uint32_t place = unit->l1.Find(line);
      if (place != Tags::kNone) unit->l1.Drop(place);
      const Clocks goes = Room(unit, at);
      done = t.unit == Unit::kStore ? memory_.Write(unit->xcc, line, goes, where, t.sc1, whole)
                                    : memory_.Atomic(unit->xcc, line, goes, where, t.sc1);
      Takes(unit, at, goes, &done);
      all.Later(done);
      continue;
    }
    const uint32_t place = past ? Tags::kNone : unit->l1.Find(line);
    if (place != Tags::kNone) {
      unit->l1.Touch(place);
      done.at = at + l1_latency_;
      const Clocks arrives = unit->l1.arrives(place);
      if (arrives > done.at) done.at = arrives;
      job->own_.l1_hit += 128;
      all.Later(done);
      continue;
    }
    const Clocks goes = Room(unit, at);
    done = memory_.Read(unit->xcc, line, goes, where, t.sc1, t.nt);
    Takes(unit, at, goes, &done);
    job->flight_.Add(goes, done.at, 128);
    if (!past) {
      bool ignored;
      uint64_t none;
      const uint32_t put = unit->l1.Put(line, &ignored, &none);
      unit->l1.set_arrives(put, done.at);
    }
    all.Later(done);
  }
  return all;
}

// The operation is counted until it is done; a full counter keeps the wave.
void Gpu::PushVm(WaveSlot* slot, const OpTime&, Done done, Clocks* at) {
  if (slot->vm.count > 0) {
    // They come back in order.
    const Pending& before = slot->vm.newest();
    if (before.at > done.at) done = {before.at, before.queued, before.why};
  }
  if (slot->vm.count == 63) {
    const Pending oldest = slot->vm.PopTo(62);
    if (oldest.at > *at) {
      slot->group->job->WaitedAt(slot->op->at, oldest, oldest.at - *at);
      *at = oldest.at;
    }
  }
  slot->vm.Push({done.at, static_cast<int32_t>(std::min<Clocks>(done.queued, INT32_MAX)), done.why});
  Job& job = *slot->group->job;
  job.drained_ = std::max(job.drained_, done.at);
}

Clocks Gpu::IssueVmem(ComputeUnit* unit, WaveSlot* slot, const OpTime& t, Clocks at) {
  const isa::Wave& w = *slot->wave;
  Simd& simd = unit->simd[static_cast<size_t>(slot->simd)];
  Job& job = *slot->group->job;
  ShapeOf(w, *slot->op, t, &shape_);
  const Clocks issues = std::max({at, simd.vmem, unit->address - kVmemQueue});
  simd.vmem = issues + issue_;
  job.Spend(Limit::kIssue, issue_);
  if (issues > at) job.Spend(Limit::kL1, issues - at);
  Clocks next = issues + issue_;
  Done done;
  if (shape_.space == Shape::kLds) {
    const Clocks start = std::max(issues, unit->lds);
    unit->lds = start + 64 * t.bytes / lds_bytes_ + 1;
    done.at = unit->lds + lds_latency_;
  } else if (shape_.space == Shape::kNothing) {
    done.at = issues + l1_latency_ / 2;
  } else {
    const bool store = t.unit == Unit::kStore;
    const double path = store ? params_.store_bytes : params_.l1_bytes;
    const double clocks = std::max({static_cast<double>(shape_.lanes) / params_.l1_lanes,
                                    shape_.lines * params_.l1_lookup, shape_.bytes / path});
    const auto cost = std::max<Clocks>(1, static_cast<Clocks>(clocks + 0.5));
    const Clocks starts = std::max(issues, unit->address);
    unit->address = starts + cost;
    job.own_.asked += shape_.bytes;
    const Spot spot = SpotOf(w, shape_.line[0] << kLineBits);
    const bool peer = spot.where.place == isa::Where::kPeer;
    if (peer && !store) clock_.LandAll(&job);  // what it stored before
    done = Lines(unit, t, w, spot, starts, cost, &job);
    if (peer && store && job.grid_.launch().observer == nullptr) {
      lands_ = done.at - static_cast<Clocks>(params_.clocks(params_.xgmi_store_ns) / 2);
      lands_peer_ = spot.where.peer;
    }
    done.queued += starts - issues;
    if (starts - issues > done.queued / 2) done.why = Limit::kL1;
  }
  if (t.flat) {
    if (slot->lgkm.count == 15) slot->lgkm.PopTo(14);
    slot->lgkm.Push({done.at, 0, done.why});
  }
  PushVm(slot, t, done, &next);
  return next;
}

Clocks Gpu::IssueFence(ComputeUnit* unit, WaveSlot* slot, const OpTime& t, Clocks at) {
  Done done;
  if (t.unit == Unit::kInv) {
    // Scopes beyond the workgroup.
    if (t.sc1) {
      unit->l1.Clear();
      done.at = at + static_cast<Clocks>(params_.clocks(params_.inv_ns));
    } else {
      done.at = at + issue_;
    }
  } else {
    // What the wave stored before has to be there first.
    Clocks from = at;
    if (slot->vm.count > 0) from = std::max(from, slot->vm.newest().at);
    const Clocks written = t.sc1 ? memory_.WriteBack(unit->xcc, from) : from;
    done.at = written + static_cast<Clocks>(params_.clocks(params_.wbl2_ns));
    done.queued = written - at;
    done.why = Limit::kFabric;
  }
  slot->group->job->Spend(Limit::kIssue, issue_);
  Clocks next = at + issue_;
  PushVm(slot, t, done, &next);
  return next;
}

Clocks Gpu::IssueLds(ComputeUnit* unit, WaveSlot* slot, const OpTime& t, Clocks at) {
  Simd& simd = unit->simd[static_cast<size_t>(slot->simd)];
  Job& job = *slot->group->job;
  const LdsUse use = LdsUseOf(*slot->wave, *slot->op, t);
  const Clocks issues = std::max({at, simd.lds, unit->lds - kLdsQueue});
  simd.lds = issues + issue_;
  const Clocks starts = std::max(issues, unit->lds);
  unit->lds = starts + use.clocks;
  job.own_.lds += use.bytes;
  // Two clocks of a dword a lane are in the latency.
  Pending p;
  p.at = starts + lds_latency_ + std::max(use.clocks - 2, 0);
  if (t.load && t.store && t.returns) p.at += static_cast<Clocks>(params_.lds_atomic);
  p.why = Limit::kLds;
  p.queued = static_cast<int32_t>(p.at - issues);
  job.Spend(Limit::kIssue, issue_);
  if (issues > at) job.Spend(Limit::kLds, issues - at);
  Clocks next = issues + issue_;
  if (slot->lgkm.count == 15) {
    const Pending oldest = slot->lgkm.PopTo(14);
    if (oldest.at > next) {
      job.WaitedAt(slot->op->at, oldest, oldest.at - next);
      next = oldest.at;
    }
  }
  slot->lgkm.Push(p);
  return next;
}

Clocks Gpu::IssueSmem(ComputeUnit* unit, WaveSlot* slot, const OpTime& t, Clocks at) {
  SharedCaches& shared = SharedOf(*unit);
  Job& job = *slot->group->job;
  if (t.unit == Unit::kSmemInv) {
    shared.scalar.Clear();
    return at + issue_;
  }
  const Clocks starts = std::max(at, shared.scalar_free);
  Pending p;
  p.at = starts + smem_hit_;
  const uint64_t from = ScalarAddress(*slot->wave, *slot->op);
  const Spot spot = SpotOf(*slot->wave, from);
  const uint64_t last = spot.Line(from + 4u * std::max<uint32_t>(t.dwords, 1) - 1, 6);
  int lines = 0;
  for (uint64_t line = spot.Line(from, 6); line <= last; ++line, ++lines) {
    uint32_t place = shared.scalar.Find(line);
    if (place == Tags::kNone) {
      const Done done = memory_.Read(unit->xcc, line >> 1, starts, spot.where, false, false);
      bool ignored;
      uint64_t none;
      place = shared.scalar.Put(line, &ignored, &none);
      shared.scalar.set_arrives(place, done.at);
      if (done.at > p.at) {
        p.queued = static_cast<int32_t>(std::min<Clocks>(done.queued, INT32_MAX));
        p.why = done.why;
      }
    } else {
      shared.scalar.Touch(place);
    }
    p.at = std::max(p.at, shared.scalar.arrives(place));
  }
  shared.scalar_free = starts + lines;
  job.own_.scalar += 4u * t.dwords;
  job.Spend(Limit::kIssue, issue_);
  if (slot->lgkm.count == 15) slot->lgkm.PopTo(14);
  slot->lgkm.Push(p);
  return at + issue_;
}

Clocks Gpu::IssueWait(WaveSlot* slot, const OpTime& t, Clocks at) {
  Pending last;
  if (t.vm_wait != OpTime::kNoWait) last = slot->vm.PopTo(t.vm_wait);
  if (t.lgkm_wait != OpTime::kNoWait) {
    // Scalar loads come back in any order: counted as if in theirs.
    const Pending other = slot->lgkm.PopTo(t.lgkm_wait);
    if (other.at > last.at) last = other;
  }
  Job& job = *slot->group->job;
  job.Spend(Limit::kIssue, issue_);
  if (last.at <= at) return at + issue_;
  // The wait's own turn passes meanwhile.
  job.WaitedAt(slot->op->at, last, last.at - at);
  return std::max(last.at, at + issue_);
}

uint64_t Gpu::Issue(ComputeUnit* unit, int slot_number, Clocks at) {
  WaveSlot& slot = unit->slots[static_cast<size_t>(slot_number)];
  const isa::Op& op = *slot.op;
  const OpTime& t = ops_->Of(op);
  Job& job = *slot.group->job;
  if (op.at >> 6 != slot.fetched) at = FetchCode(unit, &slot, at);
  if (__builtin_expect(slot.late_until > at, 0)) at = Depend(&slot, t, at);
  Clocks next = at + issue_;
  switch (t.unit) {
    case Unit::kValu:
      next = IssueVector(unit, &slot, t, at);
      break;
    case Unit::kMfma:
      next = IssueMatrix(unit, &slot, t, at);
      Busy(&slot);
      break;
    case Unit::kSalu: {
      Simd& simd = unit->simd[static_cast<size_t>(slot.simd)];
      const Clocks start = std::max(at, simd.salu);
      simd.salu = start + issue_;
      next = start + std::max(issue_, static_cast<Clocks>(params_.salu));
      job.Spend(Limit::kIssue, next - at);
      break;
    }
    case Unit::kSmem:
    case Unit::kSmemInv:
      next = IssueSmem(unit, &slot, t, at);
      break;
    case Unit::kLds:
    case Unit::kLane:
      Busy(&slot);
      next = IssueLds(unit, &slot, t, at);
      break;
    case Unit::kStore:
    case Unit::kAtomic:
      Busy(&slot);
      [[fallthrough]];
    case Unit::kLoad:
      next = IssueVmem(unit, &slot, t, at);
      break;
    case Unit::kInv:
    case Unit::kWbl2:
      next = IssueFence(unit, &slot, t, at);
      break;
    case Unit::kWait:
      next = IssueWait(&slot, t, at);
      break;
    case Unit::kNop:
      next = at + t.wait;
      job.Spend(Limit::kIssue, t.wait);
      break;
    case Unit::kSleep:
      next = at + t.wait;
      job.Spend(Limit::kSleep, t.wait);
      if (!slot.idle) {
        slot.idle = true;
        ++job.idle_waves_;
      }
      break;
    case Unit::kBranch: {
      const uint64_t ran = StepAndGoOn(unit, slot_number, at, at);
      if (slot.op == nullptr) return ran;
      const bool taken = slot.wave->pc != op.after;
      next = at + static_cast<Clocks>(taken ? params_.branch_taken : params_.branch_not_taken);
      job.Spend(Limit::kIssue, next - at);
      unit->Set(slot_number, next);
      return ran;
    }
    case Unit::kBarrier: {
      const uint64_t ran = StepAndGoOn(unit, slot_number, at, next);
      if (slot.wave->state != isa::WaveState::kBarrier) return ran;
      unit->key[static_cast<size_t>(slot_number)] = ComputeUnit::kEmpty;
      slot.at_barrier = at;
      PassBarrier(unit, slot.group, at);
      return ran;
    }
    case Unit::kClock: {
      // The clock of the model, in place of the host's.
      const int code = op.d.code;
      const bool real = op.inst.name() == "s_memrealtime";
      const Clocks starts = std::max(at, SharedOf(*unit).scalar_free);
      const uint64_t ran = StepAndGoOn(unit, slot_number, at, next);
      if (slot.op == nullptr) return ran;
      slot.wave->SetPair(code, real ? static_cast<uint64_t>(static_cast<double>(starts) * 100 / params_.clock_mhz)
                                    : static_cast<uint64_t>(starts));
      if (slot.lgkm.count == 15) slot.lgkm.PopTo(14);
      slot.lgkm.Push({starts + smem_hit_, 0, Limit::kLatency});
      return ran;
    }
    default:
      job.Spend(Limit::kIssue, issue_);
      break;
  }
  if (__builtin_expect(lands_ != kNever, 0)) return StepLater(unit, slot_number, at, next);
  return StepAndGoOn(unit, slot_number, std::max(at, next - issue_), next);
}

// A store whose bytes are seen when they get there: it runs, and what it wrote is taken back until
// then.
uint64_t Gpu::StepLater(ComputeUnit* unit, int slot_number, Clocks at, Clocks next) {
  WaveSlot& slot = unit->slots[static_cast<size_t>(slot_number)];
  isa::Wave& w = *slot.wave;
  const uint32_t bytes = ops_->Of(*slot.op).bytes;
  Landing landing = {slot.group->job, {}, {}};
  const Clocks lands = std::exchange(lands_, kNever);
  std::vector<std::pair<uint8_t*, uint32_t>> hosts;
  std::vector<uint8_t> before;
  for (uint64_t m = shape_.mask; m != 0; m &= m - 1) {
    const uint64_t va = shape_.at[__builtin_ctzll(m)];
    uint8_t* host = w.Peek(va, bytes, true);
    if (host == nullptr) return StepAndGoOn(unit, slot_number, at, next);  // it faults, or is rare
    landing.pieces.emplace_back(va, bytes);
    hosts.emplace_back(host, bytes);
    before.insert(before.end(), host, host + bytes);
  }
  const uint64_t ran = StepAndGoOn(unit, slot_number, at, next);
  size_t from = 0;
  for (const auto& [host, size] : hosts) {
    landing.data.insert(landing.data.end(), host, host + size);
    from += size;
  }
  for (auto it = hosts.rbegin(); it != hosts.rend(); ++it) {
    from -= it->second;
    std::memcpy(it->first, before.data() + from, it->second);
  }
  clock_.GpuAt(lands_peer_, this)->Deliver(lands, std::move(landing));
  return ran;
}

void Gpu::Land(Clocks until, const Job* job) {
  for (auto it = landings_.begin(); it != landings_.end() && it->first <= until;) {
    Landing& landing = it->second;
    if (job != nullptr && landing.job != job) {
      ++it;
      continue;
    }
    const uint8_t* data = landing.data.data();
    for (const auto& [va, size] : landing.pieces) {
      isa::View view;
      isa::AccessFault ignored;
      if (landing.job->grid_.memory()->Translate(va, true, false, &view, &ignored) && view.Holds(va, size)) {
        std::memcpy(view.host + (va - view.begin), data, size);
        memory_.Written((va + clock_.frames_.ShiftOf(view)) >> kLineBits);
      }
      data += size;
    }
    it = landings_.erase(it);
  }
}

void Gpu::Forget(const Job* job) {
  std::erase_if(landings_, [job](const auto& one) { return one.second.job == job; });
}

}  // namespace mainarch::sim::timing
