// SPDX-License-Identifier: MIT
#include "sim/isa/check/races.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace mainarch::sim::isa {
namespace {

uint64_t Key(uint32_t process, uint64_t va) { return va ^ uint64_t{process} << 52; }
uint64_t Key(uint32_t gpu, uint32_t process) { return uint64_t{process} << 32 | gpu; }

// How far a load, a store or an atomic reaches by its scope bits; kWave: an ordinary access.
Reach ReachOf(const Inst& inst, const RowFacts& facts) {
  // An atomic's sc0 asks for the old value.
  if (facts.atomic) return inst.sc1 ? Reach::kSystem : Reach::kAgent;
  if (inst.sc1) return inst.sc0 ? Reach::kSystem : Reach::kAgent;
  return inst.sc0 ? Reach::kGroup : Reach::kWave;
}

const char* ScopeName(Reach reach) {
  return reach == Reach::kSystem ? "system" : reach == Reach::kAgent ? "agent" : "workgroup";
}

constexpr size_t kMostNotes = 64;        // of one node
constexpr size_t kMostSameStores = 256;  // remembered for four bytes

// The bytes of `mask`, one bit each.
uint32_t BytesOf(uint8_t mask) {
  return ((mask & 1) ? 0xffu : 0) | ((mask & 2) ? 0xff00u : 0) | ((mask & 4) ? 0xff0000u : 0) |
         ((mask & 8) ? 0xff000000u : 0);
}

// What an ordinary store puts into the bytes of `mask` at `at`. False when it is none, or converts.
bool StoredAt(const Wave& w, const Op& op, const RowFacts& facts, const Piece& piece, uint64_t at,
              uint8_t mask, uint32_t* value) {
  const absl::string_view name = op.inst.name();
  if (w.v == nullptr || !facts.store || facts.smem || piece.element != 0 ||
      piece.size != facts.bytes || absl::StrContains(name, "format")) {
    return false;
  }
  const Operand* data = op.inst.Find('D');
  if (data == nullptr || data->code < reg::kVgpr) return false;
  const uint32_t high = absl::StrContains(name, "d16_hi") ? 2 : 0;  // the upper half is stored
  *value = 0;
  for (uint64_t b = 0; b < 4; ++b) {
    if ((mask >> b & 1) == 0) continue;
    const uint64_t byte = at + b - piece.address + high;
    const uint32_t word = w.v[(data->code - reg::kVgpr + byte / 4) * kLanes + piece.lane];
    *value |= (word >> (byte % 4 * 8) & 0xff) << (b * 8);
  }
  return true;
}

void Raise(uint32_t* to, uint32_t value) { *to = std::max(*to, value); }

}  // namespace

void RaceCheck::Known::Join(const Known& o) {
  Raise(&group, o.group);
  Raise(&reached, o.reached);
  Raise(&pushed_agent, o.pushed_agent);
  Raise(&pushed_system, o.pushed_system);
  Raise(&ordered, o.ordered);
  Raise(&seen_agent, o.seen_agent);
  Raise(&seen_system, o.seen_system);
  Raise(&seen_uncached, o.seen_uncached);
  Raise(&flag, o.flag);
}

const RaceCheck::Known* RaceCheck::Clock::Find(uint32_t wave) const {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), wave,
                                   [](const Entry& e, uint32_t w) { return e.first < w; });
  return at == entries_.end() || at->first != wave ? nullptr : &at->second;
}

RaceCheck::Known& RaceCheck::Clock::operator[](uint32_t wave) {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), wave,
                                   [](const Entry& e, uint32_t w) { return e.first < w; });
  if (at != entries_.end() && at->first == wave) return at->second;
  return entries_.insert(at, {wave, Known()})->second;
}

void RaceCheck::Clock::Cover(const Clock& other) {
  std::vector<Entry> all;
  all.reserve(entries_.size() + other.entries_.size());
  auto ours = begin();
  for (const Entry& entry : other.entries_) {
    while (ours != end() && ours->first < entry.first) all.push_back(*ours++);
    if (ours != end() && ours->first == entry.first) continue;
    all.push_back({entry.first, Known()});
  }
  all.insert(all.end(), ours, end());
  entries_ = std::move(all);
}

template <class Each>
void RaceCheck::Clock::Merge(const Clock& other, const Each& each) {
  size_t at = 0;
  for (const auto& [wave, theirs] : other.entries_) {
    while (at < entries_.size() && entries_[at].first < wave) ++at;
    // Mostly all of them are known: a list is made anew only where one is not, and those before it are then where they were.
    if (at == entries_.size() || entries_[at].first != wave) Cover(other);
    each(entries_[at].second, theirs);
  }
}

void RaceCheck::Clock::Join(const Clock& other) {
  Merge(other, [](Known& ours, const Known& theirs) { ours.Join(theirs); });
  host = std::max(host, other.host);
  host_seen = std::max(host_seen, other.host_seen);
}

uint32_t RaceCheck::StartLaunch(uint32_t gpu, uint32_t process, const GpuContext* context) {
  LaunchState launch;
  launch.gpu = gpu;
  launch.process = process;
  launch.context = context;
  launch.begun = ++tick_;
  const auto acquired = acquired_.find(Key(gpu, process));
  if (acquired != acquired_.end()) launch.acquire = acquired->second;
  launches_.push_back(launch);
  return static_cast<uint32_t>(launches_.size() - 1);
}

void RaceCheck::EndLaunch(uint32_t launch) {
  launches_[launch].ended = ++tick_;
  launches_[launch].context = nullptr;
}

void RaceCheck::Acquire(uint32_t gpu, uint32_t process, Scope scope) {
  acquired_[Key(gpu, process)] = scope;
}

void RaceCheck::Release(uint32_t gpu, uint32_t process, Scope scope) {
  ++tick_;
  for (LaunchState& launch : launches_) {
    if (launch.gpu != gpu || launch.process != process || launch.ended == 0) continue;
    if (scope <= launch.release) continue;
    launch.release = scope;
    launch.released = tick_;
  }
}

uint32_t RaceCheck::StartWave(uint32_t launch, uint64_t group) {
  WaveState wave;
  wave.launch = launch;
  wave.gpu = launches_[launch].gpu;
  wave.group = uint64_t{launch} << 40 | group;
  waves_.push_back(std::move(wave));
  return static_cast<uint32_t>(waves_.size() - 1);
}

RaceCheck::Cell& RaceCheck::CellOf(uint32_t process, uint64_t va) {
  const uint64_t key = Key(process, va >> 12);
  if (page_ == nullptr || page_key_ != key) {
    std::unique_ptr<Page>& page = pages_[key];
    if (page == nullptr) page = std::make_unique<Page>();
    page_ = page.get(), page_key_ = key;
  }
  return (*page_)[(va & 4095) / 4];
}

bool RaceCheck::Uncached(const LaunchState& launch, uint64_t va) {
  if (launch.context == nullptr) return false;
  if (va < window_va_ || va - window_va_ >= window_.size) {
    MemoryFault fault;
    if (!launch.context->Translate(va, sim::Access::kRead, &window_, &fault)) {
      window_ = Window();
      return false;
    }
    window_va_ = va;
  }
  return window_.mtype == Mtype::kUc || window_.mtype == Mtype::kCc;
}

Reach RaceCheck::Distance(const WaveState& a, const WaveState& b) const {
  if (a.group == b.group) return Reach::kGroup;
  return a.gpu == b.gpu ? Reach::kAgent : Reach::kSystem;
}

// Whether a recorded access happened before what `self` does now, with its data within reach.
bool RaceCheck::Ordered(const WaveState& self, const Record& record, bool record_is_read) const {
  const WaveState& other = waves_[record.wave];
  const Reach distance = Distance(self, other);
  const LaunchState &theirs = launches_[other.launch], &ours = launches_[self.launch];
  if (other.launch != self.launch && theirs.ended != 0 && theirs.ended < ours.begun) {
    // A finished kernel and a later packet: their fences decide.
    if (record_is_read) return true;
    const Scope level = std::min(theirs.release, ours.acquire);
    const bool in_time = theirs.released != 0 && theirs.released < ours.begun;
    if (in_time && level >= (distance == Reach::kSystem ? Scope::kSystem : Scope::kAgent)) {
      return true;
    }
  }
  if (other.launch != self.launch && theirs.ended != 0 && theirs.ended <= self.known.host) {
    if (record_is_read) return true;
    if (theirs.release == Scope::kSystem && theirs.released != 0 && theirs.released <= self.known.host_seen) return true;
  }
  const Known* const found = self.known.Find(record.wave);
  if (found == nullptr) return false;
  const Known& k = *found;
  if (distance == Reach::kGroup) return record.at <= k.group;
  if (record_is_read) return record.at <= k.ordered;
  // A flag's own store has been seen by whoever was told by it.
  if (record.atomic && record.reach >= distance && record.at <= k.flag) return true;
  if (record.uncached && record.at <= k.seen_uncached) return true;
  return record.at <= (distance == Reach::kAgent ? k.seen_agent : k.seen_system);
}

// Whichever of the two comes last, memory holds the same.
bool RaceCheck::SameStore(const Record& before, const Record& now) const {
  return before.valued && now.valued &&
         ((before.value ^ now.value) & BytesOf(before.mask & now.mask)) == 0;
}

void RaceCheck::NoteSameStore(const Record& before, const Record& now, uint64_t va) {
  if (noted_.size() >= kMostNotes || !noted_.insert({before.pc, now.pc}).second) return;
  notes_.push_back(absl::StrCat("checker: note: waves store one value to 0x", absl::Hex(va),
                                " in no order, at pc ..", absl::Hex(before.pc, absl::kZeroPad8),
                                " and ..", absl::Hex(now.pc, absl::kZeroPad8)));
}

std::string RaceCheck::Conflict(uint32_t id, const Record& before, const Record& now,
                                bool before_reads, uint64_t va) {
  if (before.wave == 0 || before.wave == id || (before.mask & now.mask) == 0) return "";
  const WaveState &self = waves_[id], &other = waves_[before.wave];
  const Reach distance = Distance(self, other);
  if (before.atomic && now.atomic) {
    const Reach least = std::min(before.reach, now.reach);
    if (least >= distance) return "";
    if (Ordered(self, before, before_reads)) return "";
    return absl::StrCat("race at 0x", absl::Hex(va), ": the flag is accessed at ", ScopeName(least),
                        " scope, the other access, at pc ..", absl::Hex(before.pc, absl::kZeroPad8),
                        ", needs ", ScopeName(distance));
  }
  if (Ordered(self, before, before_reads)) return "";
  if (!before_reads && SameStore(before, now)) return NoteSameStore(before, now, va), "";
  const bool same_kernel = self.launch == other.launch;
  return absl::StrCat("race at 0x", absl::Hex(va), " with the ", before_reads ? "load" : "store",
                      " at pc ..", absl::Hex(before.pc, absl::kZeroPad8), " of ",
                      distance == Reach::kGroup    ? "another wave of the workgroup"
                      : distance == Reach::kSystem ? "another gpu"
                      : same_kernel                ? "another workgroup"
                                                   : "another kernel",
                      ": no release and acquire at ", ScopeName(distance), " scope lie between");
}

std::string RaceCheck::Touch(uint32_t id, const Record& now, bool write, bool read, uint64_t va) {
  Cell& cell = CellOf(launches_[waves_[id].launch].process, va);
  std::string what = Conflict(id, cell.write, now, false, va);
  if (what.empty() && cell.more_writes) {
    for (const Record& r : *cell.more_writes) {
      if (what.empty()) what = Conflict(id, r, now, false, va);
    }
  }
  if (!what.empty()) return what;
  if (write) {
    what = Conflict(id, cell.read, now, true, va);
    if (cell.more_reads) {
      for (const Record& r : *cell.more_reads) {
        if (what.empty()) what = Conflict(id, r, now, true, va);
      }
    }
    if (!what.empty()) return what;
    // Bytes of others in the same four stay remembered, and so do stores that are in no order with
    // this one: a third may be in order with one of them only.
    const auto same = [&](const Record& r) {
      return r.wave != id && (r.mask & now.mask) != 0 && SameStore(r, now) &&
             !Ordered(waves_[id], r, false);
    };
    const auto keep = [&](const Record& r) {
      return r.wave != 0 && ((r.mask & ~now.mask) != 0 || same(r));
    };
    std::vector<Record> kept;
    if (keep(cell.write)) kept.push_back(cell.write);
    if (cell.more_writes) {
      std::copy_if(cell.more_writes->begin(), cell.more_writes->end(), std::back_inserter(kept),
                   keep);
    }
    for (Record& r : kept) {
      if (!same(r)) r.mask &= static_cast<uint8_t>(~now.mask);
    }
    if (kept.size() > kMostSameStores) kept.erase(kept.begin());
    cell.more_writes =
        kept.empty() ? nullptr : std::make_unique<std::vector<Record>>(std::move(kept));
    cell.write = now;
    if (now.mask == 15) {
      cell.read = Record();
      cell.more_reads = nullptr;
    }
  }
  if (!read) return "";
  // A later load stands for an earlier one of the same reach only: one that was no flag's may
  // conflict with a store that a flag's load may meet.
  const auto stands_for = [&](const Record& r) {
    return r.wave == id && r.mask == now.mask && r.reach == now.reach;
  };
  if (cell.read.wave == 0 || stands_for(cell.read)) {
    cell.read = now;
    return "";
  }
  if (!cell.more_reads) cell.more_reads = std::make_unique<std::vector<Record>>();
  for (Record& r : *cell.more_reads) {
    if (stands_for(r)) {
      r = now;
      return "";
    }
  }
  cell.more_reads->push_back(now);
  return "";
}

// What the instructions that have completed by now tell the wave.
void RaceCheck::Drain(WaveState* self, uint32_t) {
  while (!self->write_backs.empty() && self->write_backs.front().at <= self->drained) {
    const WriteBack& done = self->write_backs.front();
    for (const auto& [wave, reached] : done.reached) {
      Known& k = self->known[wave];
      Raise(&k.pushed_agent, reached);
      if (done.system) Raise(&k.pushed_system, reached);
    }
    self->write_backs.pop_front();
  }
  while (!self->loaded.empty() && self->loaded.front().at <= self->drained) {
    const Loaded& done = self->loaded.front();
    self->pending.Join(*done.message);
    self->known.host = std::max(self->known.host, done.message->host);
    self->known.Merge(*done.message, [&](Known& mine, const Known& k) {
      // Also what had happened before the flag's writer by what others told it.
      Raise(&mine.ordered, std::max(k.reached, k.ordered));
      if (done.same_group) Raise(&mine.group, k.group);
    });
    self->loaded.pop_front();
  }
}

void RaceCheck::Wait(WaveState* self, uint32_t id, int imm) {
  const uint32_t vm = static_cast<uint32_t>((imm & 15) | (imm >> 10 & 0x30));
  if (self->issued > vm) Raise(&self->drained, self->issued - vm);
  Drain(self, id);
}

void RaceCheck::WriteBackNow(WaveState* self, uint32_t id, const Inst& inst) {
  if (!inst.sc1) return;
  WriteBack back;
  back.at = self->issued;
  back.system = inst.sc0;
  back.reached.emplace_back(id, self->drained);
  for (const auto& [wave, k] : self->known) back.reached.emplace_back(wave, k.reached);
  self->write_backs.push_back(std::move(back));
}

void RaceCheck::Invalidate(WaveState* self, const Inst& inst) {
  if (!inst.sc1) return;
  if (inst.sc0) self->known.host_seen = std::max(self->known.host_seen, self->pending.host);
  self->known.Merge(self->pending, [&](Known& mine, const Known& k) {
    Raise(&mine.group, k.pushed_agent);
    Raise(&mine.seen_agent, k.pushed_agent);
    Raise(&mine.seen_uncached, k.reached);
    Raise(&mine.flag, k.flag);
    Raise(&mine.pushed_agent, k.pushed_agent);
    Raise(&mine.pushed_system, k.pushed_system);
    if (inst.sc0) Raise(&mine.seen_system, k.pushed_system);
  });
}

// What a flag that is stored now tells whoever reads it.
std::shared_ptr<const RaceCheck::Clock> RaceCheck::MessageOf(const WaveState& self,
                                                             uint32_t id) const {
  auto message = std::make_shared<Clock>(self.known);
  Known& own = (*message)[id];
  own.group = std::max(self.issued, 1u) - 1;  // all before the store itself
  own.flag = self.issued;
  Raise(&own.reached, self.drained);
  return message;
}

void RaceCheck::Publish(WaveState* self, uint32_t id, uint32_t process, uint64_t va, Reach reach,
                        bool join) {
  Flag& flag = flags_[Key(process, va)];
  std::shared_ptr<const Clock> message = MessageOf(*self, id);
  if (reach == Reach::kSystem) host_->Join(*message);
  if (join && flag.message != nullptr) {
    auto joined = std::make_shared<Clock>(*flag.message);
    joined->Join(*message);
    message = joined;
  }
  flag.message = message;
  flag.group = self->group;
  ++flag.storing;
}

uint32_t RaceCheck::ValueAt(const LaunchState& launch, uint64_t va) {
  Window window;
  MemoryFault fault;
  uint32_t value = 0;
  if (launch.context == nullptr) {
    return 0;
  }
  if (launch.context->Translate(va, sim::Access::kRead, &window, &fault) && window.size >= 4) {
    std::memcpy(&value, window.host, 4);
  }
  return value;
}

void RaceCheck::Observe(WaveState* self, const LaunchState& launch, uint64_t va, Reach reach) {
  const auto found = flags_.find(Key(launch.process, va));
  Loaded loaded;
  loaded.at = self->issued;
  const bool watched = found != flags_.end() &&
                       (found->second.storing != 0 || found->second.value == ValueAt(launch, va));
  if (!watched) {
    // Somebody whom we do not watch wrote it: the host, or a copy engine that the host told to.
    if (reach != Reach::kSystem) return;
    auto message = std::make_shared<Clock>(*host_);
    message->host = tick_;
    loaded.message = std::move(message);
  } else {
    loaded.message = found->second.message;
    loaded.same_group = found->second.group == self->group;
  }
  self->loaded.push_back(std::move(loaded));
}

// A scalar load is not in the queue of vmcnt: that it was waited for is what `waits` sees to.
void RaceCheck::HearAtOnce(WaveState* self, uint32_t id) {
  if (self->loaded.empty() || self->loaded.back().at != self->issued) return;
  Loaded last = std::move(self->loaded.back());
  self->loaded.pop_back();
  last.at = self->drained;
  self->loaded.push_front(std::move(last));
  Drain(self, id);
}

std::shared_ptr<const RaceCheck::Clock> RaceCheck::MessageAt(const LaunchState& launch,
                                                             uint64_t va) const {
  const auto found = flags_.find(Key(launch.process, va));
  return found == flags_.end() ? nullptr : found->second.message;
}

// GPUs run side by side, so a flag may have been stored between a load's issue and its turn: the
// load has seen the new value, and is told what came with it.
void RaceCheck::ObserveAgain(WaveState* self, const LaunchState& launch, Reach reach) {
  for (const auto& [va, message] : self->reading) {
    if (MessageAt(launch, va) != message) Observe(self, launch, va, reach);
  }
  self->reading.clear();
}

std::string RaceCheck::Issue(uint32_t id, const Wave& w, const Op& op, const RowFacts& facts,
                             const Accesses& accesses) {
  WaveState& self = waves_[id];
  const LaunchState& launch = launches_[self.launch];
  if (op.inst.row->family == Family::kSopp) {
    if (op.inst.row->op == 12) Wait(&self, id, op.inst.offset & 0xffff);
    return "";
  }
  if (facts.inv) {
    Invalidate(&self, op.inst);
    return "";
  }
  if (facts.vmem) ++self.issued;
  if (facts.wbl2) WriteBackNow(&self, id, op.inst);
  if (accesses.pieces.empty()) return "";
  Record now;
  now.wave = id;
  now.at = self.issued;
  now.pc = static_cast<uint32_t>(w.at);
  now.reach = ReachOf(op.inst, facts);
  // Scalar loads and stores with glc: flags by what production kernels do with them (README.md), no
  // flags by any document.
  if (facts.smem && !facts.atomic) now.reach = known_ && op.inst.sc0 ? Reach::kAgent : Reach::kWave;
  now.atomic = now.reach >= Reach::kGroup;
  for (const Piece& piece : accesses.pieces) {
    if (piece.space != Space::kGlobal) continue;
    now.uncached = Uncached(launch, piece.address);
    const bool reads = !piece.write || facts.atomic;
    // Flags first: what they say counts from this access on.
    if (now.atomic && reads) Observe(&self, launch, piece.address, now.reach);
    if (now.atomic && reads && facts.smem) HearAtOnce(&self, id);
    for (uint64_t at = piece.address & ~uint64_t{3}; at < piece.address + piece.size; at += 4) {
      now.mask = 0;
      for (uint64_t b = 0; b < 4; ++b) {
        const bool in = at + b >= piece.address && at + b < piece.address + piece.size;
        now.mask |= static_cast<uint8_t>(in << b);
      }
      now.valued =
          !now.atomic && piece.write && StoredAt(w, op, facts, piece, at, now.mask, &now.value);
      std::string what = Touch(id, now, piece.write, reads, at);
      if (!what.empty()) return what;
    }
    if (now.atomic && piece.write) {
      Publish(&self, id, launch.process, piece.address, now.reach, facts.atomic);
    }
    if (now.atomic && reads && !facts.smem) {
      self.reading.emplace_back(piece.address, MessageAt(launch, piece.address));
    }
  }
  return "";
}

void RaceCheck::Done(uint32_t id, const Op& op, const RowFacts& facts, const Accesses& accesses) {
  const LaunchState& launch = launches_[waves_[id].launch];
  if (!waves_[id].reading.empty()) ObserveAgain(&waves_[id], launch, ReachOf(op.inst, facts));
  if (!facts.store && !facts.atomic) return;
  const bool flags = ReachOf(op.inst, facts) >= Reach::kGroup;
  for (const Piece& piece : accesses.pieces) {
    if (piece.space != Space::kGlobal || !piece.write) continue;
    const auto found = flags_.find(Key(launch.process, piece.address));
    if (found == flags_.end()) continue;
    found->second.value = ValueAt(launch, piece.address);
    if (flags && found->second.storing != 0) --found->second.storing;
  }
}

void RaceCheck::Barrier(const std::vector<uint32_t>& waves) {
  Clock known, pending;
  for (uint32_t id : waves) {
    const WaveState& wave = waves_[id];
    known.Join(wave.known);
    pending.Join(wave.pending);
    Known& own = known[id];
    Raise(&own.group, wave.issued);
    Raise(&own.reached, wave.drained);
  }
  for (uint32_t id : waves) {
    waves_[id].known = known;
    waves_[id].pending = pending;
  }
}

}  // namespace mainarch::sim::isa
