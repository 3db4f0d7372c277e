// SPDX-License-Identifier: MIT
#include "unit/kernels/evidence.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace mainarch::kernels_test {

using sim::isa::Family;
using sim::isa::Piece;
using sim::isa::Range;
using sim::isa::Space;

namespace {

constexpr size_t kWindow = 20;  // no wait state rule reaches further
constexpr uint64_t kAfterNop = 5;
constexpr uint64_t kNear = 48;  // bytes between a label and a nop for a way that comes in there

bool IsFlag(const sim::isa::Op& op, const sim::isa::RowFacts& f) {
  return f.vmem && (f.atomic || ((f.load || f.store) && (op.inst.sc0 || op.inst.sc1)));
}
bool Overlap(const Piece& a, const Piece& b) {
  return a.space == b.space && a.space != Space::kScratch && a.address < b.address + b.size &&
         b.address < a.address + a.size;
}

}  // namespace

struct Evidence::Group : public sim::isa::Observed {
  std::vector<WaveTrack> waves;
  uint32_t id = 0;
  Touched before, now;   // the barrier: what each wave touched
  uint64_t barrier = 0;  // its site
  uint32_t flags_before = 0, flags_now = 0, stores_before = 0, stores_now = 0;  // waves
  bool idle = false;  // the last write-back had nothing to do
  // Waves that have stored to cached memory since the last write-back, before the last barrier and
  // after it.
  uint32_t dirty_before = 0, dirty_now = 0;
  std::set<uint64_t> invalidates;  // sites, from before the last barrier
};

void Evidence::Loaded(uint64_t base, uint64_t end, absl::Span<const uint8_t> object) {
  if (object.data() == object_.data()) bases_[end] = base;
}

void Evidence::Begin(sim::isa::Workgroup& group) {
  auto made = std::make_unique<Group>();
  made->waves.resize(group.waves.size());
  made->id = ++groups_;
  live_ += group.waves.size();
  group.observed = std::move(made);
}

void Evidence::Did(uint64_t site, const std::string& what) {
  std::string& did = sites_[site].did;
  if (did.empty()) did = what;
}

bool Evidence::Before(sim::isa::Wave& w, const sim::isa::Op& op) {
  const auto loaded = bases_.upper_bound(w.at);
  if (op.descriptor == nullptr || loaded == bases_.end() || w.at < loaded->second) return true;
  const uint64_t va = w.at - loaded->second;
  sites_[va];
  auto& g = static_cast<Group&>(*w.group->observed);
  WaveTrack& t = g.waves[w.index];
  const sim::isa::RowFacts& facts = table_.FactsOf(*op.inst.row);
  const sim::isa::Effects effects = table_.Of(op);
  Nops(t, va, w, op);
  Uses(t, effects);
  if (op.inst.row->family == Family::kSopp) {
    // What the kernels of one step did is ordered for those of the next.
    if (op.inst.name() == "s_endpgm" && --live_ == 0) owners_.clear(), released_.clear();
    if (op.inst.row->op == 12) Wait(t, va, op.inst.offset & 0xffff);
    if (op.inst.row->op == 10) {
      t.barrier = va;
      for (Outstanding& o : t.covered) o.crossed = true;
    }
    return true;
  }
  Fences(g, w.index, va, facts);
  if (!facts.vmem && !facts.ds && !facts.smem) return true;
  sim::isa::Accesses accesses;
  FindAccesses(w, op, facts, &accesses);
  Phases(g, w.index, op, facts, accesses);
  Issue(g, w.index, op, facts, effects, accesses);
  return true;
}

// A register that a wait covered is used: without that wait it would be too early.
void Evidence::Uses(WaveTrack& t, const sim::isa::Effects& e) {
  for (const Outstanding& o : t.covered) {
    for (const Range& r : o.results) {
      bool used = false;
      for (int i = 0; i < e.read_count; ++i) used |= e.reads[i].Overlaps(r);
      for (int i = 0; i < e.write_count; ++i) used |= e.writes[i].Overlaps(r);
      if (used) Did(o.site, "a register that it waited for is used");
    }
  }
}

void Evidence::Wait(WaveTrack& t, uint64_t va, int imm) {
  const auto vm = static_cast<uint64_t>((imm & 15) | (imm >> 10 & 0x30));
  const auto lgkm = static_cast<uint64_t>(imm >> 8 & 15);
  bool scalar = false;
  for (const Outstanding& o : t.queue) scalar |= o.scalar;
  for (const Outstanding& o : t.covered) scalar |= o.scalar;
  const auto over = [&](const Outstanding& o) {
    if (o.vm) return o.younger >= vm;
    if (lgkm == 15) return false;
    return lgkm == 0 || (!scalar && o.younger >= lgkm);
  };
  // What another wait covered and was not used yet: that other one can go.
  auto& covered = t.covered;
  covered.erase(std::remove_if(covered.begin(), covered.end(),
                               [&](const Outstanding& o) { return o.site != va && over(o); }),
                covered.end());
  bool any = false;
  for (auto o = t.queue.begin(); o != t.queue.end();) {
    if (!over(*o)) {
      ++o;
      continue;
    }
    any = true;
    o->site = va;
    covered.push_back(std::move(*o));
    o = t.queue.erase(o);
  }
  std::string& why = sites_[va].why;
  if (any) {
    why = "another wait comes before any use of what this one waits for";
  } else if (why.empty()) {
    why = "nothing that it waits for is outstanding";
  }
}

void Evidence::Issue(Group& g, uint32_t wave, const sim::isa::Op& op,
                     const sim::isa::RowFacts& facts, const sim::isa::Effects& effects,
                     const sim::isa::Accesses& accesses) {
  WaveTrack& t = g.waves[wave];
  Outstanding made;
  made.vm = facts.vmem, made.ds = facts.ds, made.scalar = facts.smem;
  made.store = facts.store || facts.atomic;
  for (auto* list : {&t.queue, &t.covered}) {
    for (Outstanding& o : *list) o.younger += o.vm == made.vm;
  }
  // Bytes that a wave still has under way, and another touches behind a barrier.
  for (size_t other = 0; other < g.waves.size(); ++other) {
    if (other == wave) continue;
    for (const Outstanding& o : g.waves[other].covered) {
      if (!o.crossed || o.idle) continue;
      for (const Piece& theirs : o.pieces) {
        for (const Piece& ours : accesses.pieces) {
          if ((theirs.write || ours.write) && Overlap(theirs, ours)) {
            Did(o.site, "another wave uses the bytes behind the next barrier");
          }
        }
      }
    }
  }
  made.flag = IsFlag(op, facts);
  made.idle = facts.inv || (facts.wbl2 && g.idle);
  if (made.flag && made.store) Released(g, t, "a flag is stored behind it");
  for (int i = 0; i < effects.write_count; ++i) made.results.push_back(effects.writes[i]);
  made.pieces = accesses.pieces;
  t.queue.push_back(std::move(made));
}

bool Evidence::MeetsOthers(uint32_t group, const sim::isa::Accesses& accesses, bool atomic) {
  bool meets = false;
  const auto other = [group](uint32_t id) { return id != 0 && id != group; };
  const auto add = [group](uint32_t* id) { *id = *id == 0 || *id == group ? group : kMany; };
  for (const Piece& piece : accesses.pieces) {
    if (piece.space != Space::kGlobal) continue;
    for (uint64_t at = piece.address & ~uint64_t{3}; at < piece.address + piece.size; at += 4) {
      Owners& o = owners_[at];
      const bool write = piece.write || atomic;
      meets |= other(o.writer) || (write && other(o.reader));
      if (write) add(&o.writer);
      const auto released = write ? released_.find(at) : released_.end();
      if (released != released_.end() && released->second.group != group) {
        Did(released->second.site, "what is loaded before it is overwritten by others");
      }
      if (!piece.write || atomic) add(&o.reader);
    }
  }
  return meets;
}

// What the waves touch on the two sides of a barrier.
void Evidence::Phases(Group& g, uint32_t wave, const sim::isa::Op& op,
                      const sim::isa::RowFacts& facts, const sim::isa::Accesses& accesses) {
  const uint32_t us = 1u << wave;
  const bool others = MeetsOthers(g.id, accesses, facts.atomic);
  if (facts.vmem && facts.store) g.stores_now |= us;
  if (facts.vmem && !IsFlag(op, facts) && Cached(accesses)) {
    if (facts.store) g.dirty_now |= us;
    const WaveTrack& t = g.waves[wave];
    if (facts.load && others) {
      if (t.invalidate != 0) Did(t.invalidate, "a load follows");
      if (!t.invalidated) {
        for (const uint64_t site : g.invalidates) Did(site, "a load of another wave follows");
      }
    }
  }
  if (IsFlag(op, facts)) {
    g.flags_now |= us;
    if (facts.store && (g.stores_before & ~us) != 0 && g.barrier != 0) {
      Did(g.barrier, "a flag is stored behind it for other waves' stores");
    }
  } else if (others && (g.flags_before & ~us) != 0 && g.barrier != 0) {
    Did(g.barrier, "another wave has loaded a flag before it");
  }
  for (const Piece& piece : accesses.pieces) {
    if (piece.space == Space::kScratch) continue;
    const bool write = piece.write || facts.atomic, read = !piece.write || facts.atomic;
    for (uint64_t b = 0; b < piece.size; ++b) {
      const uint64_t at = piece.address + b, key = at / 4 * 2 + (piece.space == Space::kLds);
      Bytes& now = g.now[key];
      if (write) now.writers[at % 4] |= us;
      if (read) now.readers[at % 4] |= us;
      const auto then = g.before.find(key);
      if (then == g.before.end() || g.barrier == 0) continue;
      const uint32_t theirs =
          then->second.writers[at % 4] | (write ? then->second.readers[at % 4] : 0);
      if ((theirs & ~us) != 0) Did(g.barrier, "waves on its two sides touch the same bytes");
    }
  }
}

void Evidence::Barrier(sim::isa::Workgroup& group) {
  auto& g = static_cast<Group&>(*group.observed);
  g.before = std::move(g.now);
  g.now.clear();
  g.flags_before = g.flags_now, g.stores_before = g.stores_now;
  g.flags_now = g.stores_now = 0;
  g.dirty_before |= std::exchange(g.dirty_now, 0);
  g.invalidates.clear();
  for (WaveTrack& t : g.waves) {
    if (t.barrier != 0) g.barrier = t.barrier;
    if (t.invalidate != 0) g.invalidates.insert(t.invalidate);
    t.invalidated = false;
  }
  if (g.barrier != 0) {
    sites_[g.barrier].why = "no bytes are touched by different waves on its two sides";
  }
}

bool Evidence::Cached(const sim::isa::Accesses& accesses) const {
  for (const Piece& piece : accesses.pieces) {
    if (piece.space != Space::kGlobal) continue;
    const auto found = cached_.upper_bound(piece.address);
    if (found == cached_.end() || piece.address < found->second.first || found->second.second) {
      return true;
    }
  }
  return false;
}

void Evidence::Fences(Group& g, uint32_t wave, uint64_t va, const sim::isa::RowFacts& facts) {
  WaveTrack& t = g.waves[wave];
  if (facts.wbl2) {
    sites_[va].why = "nothing was stored to cached memory since the last write-back";
    const uint32_t us = 1u << wave;
    g.idle = (g.dirty_before | (g.dirty_now & us)) == 0;
    if (!g.idle) Did(va, "stores are written back");
    g.dirty_before = 0;
    g.dirty_now &= ~us;
    Released(g, t, "a write-back follows");
  } else if (facts.inv) {
    sites_[va].why = "what is loaded until the next invalidate is uncached or nobody else's";
    t.invalidate = va;
    t.invalidated = true;
  }
}

// Stores that a wait covers must be out before a release; loads, if somebody overwrites them.
void Evidence::Released(const Group& g, const WaveTrack& t, const char* by) {
  for (const Outstanding& o : t.covered) {
    if (!o.vm || o.idle || o.flag) continue;
    if (o.pieces.empty() || o.store) {
      Did(o.site, by);
      continue;
    }
    for (const Piece& piece : o.pieces) {
      for (uint64_t at = piece.address & ~uint64_t{3}; at < piece.address + piece.size; at += 4) {
        if (piece.space == Space::kGlobal) released_.try_emplace(at, ReleasedLoad{o.site, g.id});
      }
    }
  }
}

// A nop is for a path that did not run if every way to it came in from elsewhere a moment before,
// or left a moment after.
void Evidence::Nops(WaveTrack& t, uint64_t va, const sim::isa::Wave& w, const sim::isa::Op& op) {
  if (t.nop_left != 0) {
    if (t.path.empty() || t.after.back() != w.at) {
      t.nop_left = 0;
    } else if (--t.nop_left == 0) {
      Did(t.nop, "the instructions on its two sides run one after the other");
    }
  }
  if (op.inst.name() == "s_nop") {
    bool joined = t.path.empty() || t.after.back() != w.at;
    for (size_t i = 1; i < t.path.size(); ++i) joined |= t.after[i - 1] != t.path[i];
    // Somebody else could have come in a moment ago.
    const auto label = labels_.lower_bound(va - kNear);
    joined |= label != labels_.end() && *label <= va;
    sites_[va].why = "for a path that joins here or leaves";
    if (!joined) t.nop = va, t.nop_left = kAfterNop;
  }
  t.path.push_back(w.at);
  t.after.push_back(op.after);
  if (t.path.size() > kWindow) {
    t.path.erase(t.path.begin());
    t.after.erase(t.after.begin());
  }
}

std::string Evidence::WhyNothing(uint64_t va) const {
  const auto site = sites_.find(va);
  return site == sites_.end() || !site->second.did.empty() ? "" : site->second.why;
}
std::string Evidence::WhatItDid(uint64_t va) const {
  const auto site = sites_.find(va);
  return site == sites_.end() ? "" : site->second.did;
}

}  // namespace mainarch::kernels_test
