// SPDX-License-Identifier: MIT
#include "sim/isa/check/caches.h"

#include <algorithm>
#include <cstring>

namespace mainarch::sim::isa {
namespace {

Reach ReachOf(const Inst& inst) {
  if (inst.sc1) return inst.sc0 ? Reach::kSystem : Reach::kAgent;
  return inst.sc0 ? Reach::kGroup : Reach::kWave;
}

bool Bypasses(const Window& window) {
  return window.mtype == Mtype::kUc || window.mtype == Mtype::kCc;
}

}  // namespace

CacheModel::Gpu& CacheModel::GpuOf(const GpuContext& context) {
  Gpu& gpu = gpus_[{context.gpu_index(), context.process_id()}];
  gpu.context = &context;
  return gpu;
}

uint64_t CacheModel::Memory(const GpuContext& context, uint64_t line, Bytes* out, Window* window) {
  MemoryFault fault;
  if (!context.Translate(line, sim::Access::kRead, window, &fault)) return 0;
  const uint64_t size = std::min(kLineBytes, window->size);
  std::memcpy(out->data(), window->host, size);
  return size;
}

void CacheModel::WriteMemory(const GpuContext& context, uint64_t line, const Line& from) {
  Window window;
  MemoryFault fault;
  if (!context.Translate(line, sim::Access::kWrite, &window, &fault)) return;
  for (uint64_t i = 0; i < std::min(kLineBytes, window.size); ++i) {
    if (from.dirty[i]) window.host[i] = from.data[i];
  }
}

uint64_t CacheModel::AgentView(Gpu& gpu, uint64_t line, Bytes* out, Window* window) {
  const uint64_t size = Memory(*gpu.context, line, out, window);
  const auto found = gpu.agent.find(line);
  if (found != gpu.agent.end()) {
    for (uint64_t i = 0; i < size; ++i) {
      if (found->second.dirty[i]) (*out)[i] = found->second.data[i];
    }
  }
  return size;
}

CacheModel::Line& CacheModel::Filled(Gpu& gpu, Cache* cache, uint64_t line) {
  const auto [found, fresh] = cache->try_emplace(line);
  Line& l = found->second;
  if (fresh) {
    Window window;
    AgentView(gpu, line, &l.data, &window);
    l.mtype = window.mtype;
    l.far = window.system_memory || window.home_gpu != gpu.context->gpu_index();
  }
  return l;
}

void CacheModel::Probe(uint64_t line, Gpu* only, const Cache* except) {
  for (auto& [key, gpu] : gpus_) {
    if (only != nullptr && only != &gpu) continue;
    for (auto& [xcd, cache] : gpu.l2) {
      if (&cache == except) continue;
      const auto found = cache.find(line);
      if (found == cache.end() || found->second.mtype == Mtype::kNc) continue;
      Bytes fresh;
      Window window;
      const uint64_t size = AgentView(gpu, line, &fresh, &window);
      for (uint64_t i = 0; i < size; ++i) {
        if (!found->second.dirty[i]) found->second.data[i] = fresh[i];
      }
    }
  }
}

// Dirty bytes of an L2's or the agent's line go one level down.
void CacheModel::Down(Gpu& gpu, uint64_t line, Line* from, bool system) {
  if (!from->any_dirty) return;
  if (system) {
    WriteMemory(*gpu.context, line, *from);
    const auto agent = gpu.agent.find(line);
    if (agent != gpu.agent.end() && &agent->second != from) {
      for (uint64_t i = 0; i < kLineBytes; ++i) {
        if (from->dirty[i]) agent->second.dirty[i] = false;
      }
    }
  } else {
    Line& agent = gpu.agent[line];
    for (uint64_t i = 0; i < kLineBytes; ++i) {
      if (!from->dirty[i]) continue;
      agent.data[i] = from->data[i];
      agent.dirty[i] = agent.any_dirty = true;
    }
  }
  from->dirty.fill(false);
  from->any_dirty = false;
  Probe(line, system ? nullptr : &gpu, nullptr);
}

void CacheModel::DropClean(Gpu& gpu, Cache* cache, bool far_only, CacheModel* model) {
  std::vector<uint64_t> gone;
  for (auto& [line, l] : *cache) {
    if (far_only && !(l.mtype == Mtype::kNc && l.far)) continue;
    if (!l.any_dirty) {
      gone.push_back(line);
      continue;
    }
    Bytes fresh;
    Window window;
    const uint64_t size = model->AgentView(gpu, line, &fresh, &window);
    for (uint64_t i = 0; i < size; ++i) {
      if (!l.dirty[i]) l.data[i] = fresh[i];
    }
  }
  for (uint64_t line : gone) cache->erase(line);
}

void CacheModel::Acquire(const GpuContext& context, Scope scope) {
  if (scope == Scope::kNone) return;
  Gpu& gpu = GpuOf(context);
  gpu.l1.clear();
  gpu.scalar.clear();
  for (auto& [xcd, cache] : gpu.l2) DropClean(gpu, &cache, false, this);
}

void CacheModel::Release(const GpuContext& context, Scope scope) {
  if (scope == Scope::kNone) return;
  Gpu& gpu = GpuOf(context);
  for (auto& [xcd, cache] : gpu.l2) {
    for (auto& [line, l] : cache) Down(gpu, line, &l, scope == Scope::kSystem);
  }
  if (scope != Scope::kSystem) return;
  for (auto& [line, l] : gpu.agent) Down(gpu, line, &l, true);
  gpu.agent.clear();
}

uint64_t CacheModel::Load(const Place& place, uint64_t line, Reach reach, bool scalar, Bytes* out) {
  Gpu& gpu = GpuOf(*place.context);
  Window window;
  const uint64_t size = AgentView(gpu, line, out, &window);
  if (size == 0 || Bypasses(window)) return size;
  Cache& l2 = gpu.l2[place.xcd];
  if (reach >= Reach::kAgent) {
    // Past the caches; but what this XCD has written itself lies on the way.
    const auto found = l2.find(line);
    if (found == l2.end()) return size;
    for (uint64_t i = 0; i < size; ++i) {
      if (found->second.dirty[i]) {
        (*out)[i] = found->second.data[i];
      } else {
        found->second.data[i] = (*out)[i];
      }
    }
    return size;
  }
  Cache& near = scalar ? gpu.scalar[{place.xcd, place.cu / 2}] : gpu.l1[{place.xcd, place.cu}];
  const auto hit = near.find(line);
  if (hit != near.end()) {
    *out = hit->second.data;
    return size;
  }
  *out = Filled(gpu, &l2, line).data;
  near[line].data = *out;
  return size;
}

void CacheModel::Store(const Place& place, uint64_t line, Reach reach, const Bytes& bytes,
                       const std::array<bool, kLineBytes>& mask) {
  Gpu& gpu = GpuOf(*place.context);
  Bytes ignored;
  Window window;
  if (Memory(*place.context, line, &ignored, &window) == 0) return;
  const auto put = [&](Line* l, bool dirty) {
    for (uint64_t i = 0; i < kLineBytes; ++i) {
      if (!mask[i]) continue;
      l->data[i] = bytes[i];
      l->dirty[i] = dirty;
      l->any_dirty |= dirty;
    }
  };
  Cache& l1 = gpu.l1[{place.xcd, place.cu}];
  if (const auto hit = l1.find(line); hit != l1.end()) put(&hit->second, false);
  Cache& l2 = gpu.l2[place.xcd];
  if (reach < Reach::kAgent && !Bypasses(window)) {
    put(&Filled(gpu, &l2, line), true);
    return;
  }
  if (const auto hit = l2.find(line); hit != l2.end()) put(&hit->second, false);
  Line through;
  put(&through, true);
  Down(gpu, line, &through, reach == Reach::kSystem || Bypasses(window));
}

void CacheModel::BeginAtomic(const Place& place, uint64_t line) {
  Gpu& gpu = GpuOf(*place.context);
  Cache& l2 = gpu.l2[place.xcd];
  if (const auto agent = gpu.agent.find(line); agent != gpu.agent.end()) {
    Down(gpu, line, &agent->second, true);
  }
  if (const auto hit = l2.find(line); hit != l2.end()) {
    Down(gpu, line, &hit->second, true);
    l2.erase(line);
  }
  gpu.l1[{place.xcd, place.cu}].erase(line);
}

void CacheModel::EndAtomic(const Place&, uint64_t line) { Probe(line, nullptr, nullptr); }

void CacheModel::WriteBack(const Place& place, bool system) {
  Gpu& gpu = GpuOf(*place.context);
  for (auto& [line, l] : gpu.l2[place.xcd]) Down(gpu, line, &l, system);
  if (!system) return;
  for (auto& [line, l] : gpu.agent) Down(gpu, line, &l, true);
  gpu.agent.clear();
}

void CacheModel::Invalidate(const Place& place, Reach reach) {
  Gpu& gpu = GpuOf(*place.context);
  gpu.l1[{place.xcd, place.cu}].clear();
  // Own memory is kept coherent by probes; other memory only the system's invalidate drops.
  if (reach == Reach::kSystem) DropClean(gpu, &gpu.l2[place.xcd], true, this);
}

void CacheModel::InvalidateScalar(const Place& place) {
  GpuOf(*place.context).scalar[{place.xcd, place.cu / 2}].clear();
}

CacheModel::Place CachedLaunch::PlaceOf(const Wave& w) const {
  return {context_, w.xcc_id, (w.hw_id >> 8 & 15) | (w.hw_id >> 13 & 7) << 4};
}

uint64_t CachedLaunch::Random() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_;
}

void CachedLaunch::Begin(Workgroup& group) {
  groups_[&group].waves.assign(group.waves.size(), {});
  // The fast paths keep pieces of memory of their own.
  for (Wave& w : group.waves) w.bulk = nullptr;
}

void CachedLaunch::Commit(const Wave& w, WaveStores* stores, size_t index) {
  const PendingStore store = stores->pending[index];
  stores->pending.erase(stores->pending.begin() + static_cast<ptrdiff_t>(index));
  model_.Store(PlaceOf(w), store.line, store.reach, store.bytes, store.mask);
}

void CachedLaunch::CommitUpTo(const Wave& w, WaveStores* stores, uint32_t at) {
  while (!stores->pending.empty() && stores->pending.front().at <= at) Commit(w, stores, 0);
}

// Loads of the same compute unit come behind its stores to the same bytes.
void CachedLaunch::CommitOverlapping(const Wave& w, Group* group, uint64_t begin, uint64_t end) {
  for (WaveStores& stores : group->waves) {
    for (size_t i = 0; i < stores.pending.size();) {
      const uint64_t line = stores.pending[i].line;
      if (line < end && begin < line + kLineBytes) {
        Commit(w, &stores, i);
      } else {
        ++i;
      }
    }
  }
}

void CachedLaunch::Before(Wave& w, const Op& op, const RowFacts& facts, const Accesses& accesses) {
  std::lock_guard<std::mutex> lock(mutex_);
  Group& group = groups_[w.group];
  WaveStores& stores = group.waves[w.index];
  // Now and then a block becomes visible by itself, whichever.
  if (!stores.pending.empty() && Random() % 8 == 0) {
    const size_t pick = Random() % stores.pending.size();
    const uint64_t line = stores.pending[pick].line;
    for (size_t i = 0; i < stores.pending.size(); ++i) {
      if (stores.pending[i].line != line) continue;
      Commit(w, &stores, i);  // the oldest of its line
      break;
    }
  }
  if (op.inst.row->family == Family::kSopp) {
    const int imm = op.inst.offset & 0xffff;
    const uint32_t vm = static_cast<uint32_t>((imm & 15) | (imm >> 10 & 0x30));
    if (op.inst.row->op == 12 && stores.issued > vm) CommitUpTo(w, &stores, stores.issued - vm);
    if (op.inst.row->op == 1) CommitUpTo(w, &stores, stores.issued);
    return;
  }
  if (facts.vmem && !facts.inv) ++stores.issued;
  if (facts.wbl2 && op.inst.sc1) model_.WriteBack(PlaceOf(w), op.inst.sc0);
  if (facts.inv) model_.Invalidate(PlaceOf(w), ReachOf(op.inst));
  if (facts.scalar_inv) model_.InvalidateScalar(PlaceOf(w));
  if (accesses.pieces.empty() || !(facts.load || facts.store || facts.atomic) || facts.ds) return;
  for (const Piece& piece : accesses.pieces) {
    if (piece.space != Space::kGlobal) continue;
    if (!piece.write || facts.atomic) {
      CommitOverlapping(w, &group, piece.address, piece.address + piece.size);
    }
    if (facts.atomic) model_.BeginAtomic(PlaceOf(w), piece.address & ~(kLineBytes - 1));
  }
  for (View& view : w.views) view = View();
  if (facts.atomic) return;
  real_ = w.memory;
  wave_ = &w;
  // A scalar store goes through the scalar cache.
  reach_ = !facts.smem ? ReachOf(op.inst) : facts.store ? Reach::kAgent : Reach::kWave;
  scalar_ = facts.smem;
  lines_.clear();
  w.memory = this;
}

bool CachedLaunch::Translate(uint64_t va, bool write, bool execute, View* view,
                             AccessFault* fault) {
  View real;
  if (!real_->Translate(va, write, execute, &real, fault)) return false;
  const uint64_t line = va & ~(kLineBytes - 1);
  auto& bytes = lines_[line];
  const uint64_t end = std::min(line + kLineBytes, real.end);
  if (bytes == nullptr) {
    std::lock_guard<std::mutex> lock(mutex_);
    bytes = std::make_unique<CacheModel::Bytes>();
    model_.Load(PlaceOf(*wave_), line, write ? Reach::kSystem : reach_, scalar_, bytes.get());
  }
  *view = {line, end, bytes->data(), real.writable, false};
  return true;
}

void CachedLaunch::After(Wave& w, const Op&, const RowFacts& facts, const Accesses& accesses) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (facts.atomic && (facts.vmem || facts.smem)) {
    for (const Piece& piece : accesses.pieces) {
      if (piece.space == Space::kGlobal) {
        model_.EndAtomic(PlaceOf(w), piece.address & ~(kLineBytes - 1));
      }
    }
    for (View& view : w.views) view = View();
    return;
  }
  if (w.memory != this) return;
  w.memory = real_;
  for (View& view : w.views) view = View();
  if (!facts.store) return;
  // One block of 64 bytes becomes visible as a whole.
  std::map<uint64_t, PendingStore> blocks;
  WaveStores& stores = groups_[w.group].waves[w.index];
  for (const Piece& piece : accesses.pieces) {
    if (piece.space != Space::kGlobal) continue;
    for (uint64_t at = piece.address; at < piece.address + piece.size; ++at) {
      const uint64_t line = at & ~(kLineBytes - 1);
      const auto from = lines_.find(line);
      if (from == lines_.end()) continue;
      PendingStore& block = blocks[at & ~uint64_t{63}];
      block.line = line;
      block.reach = reach_;
      block.at = stores.issued;
      block.bytes[at - line] = (*from->second)[at - line];
      block.mask[at - line] = true;
    }
  }
  for (const auto& [at, block] : blocks) stores.pending.push_back(block);
}

}  // namespace mainarch::sim::isa
