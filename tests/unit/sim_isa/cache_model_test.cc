// SPDX-License-Identifier: MIT
//
// The adversary's caches, told access by access: what each page type (MTYPE) lets a load see, and
// that a store of many bytes is torn between its blocks of 64 bytes and never inside one.
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "sim/isa/check/caches.h"
#include "support/test.h"
#include "unit/sim_isa/flat_context.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_isa/machine.h"

namespace mainarch::sim::isa::test {
namespace {

constexpr uint64_t kData = 0x10000, kBytes = 4096;

// One buffer, mapped by a GPU with a page type; it lives in GPU 0's memory.
class Context : public FlatContext {
 public:
  Context(uint8_t* memory, uint32_t gpu, Mtype mtype)
      : FlatContext(memory, kData, kData + kBytes, gpu, mtype) {}
};

// Compute units of three kinds: of one XCD, of another, of another GPU; each maps the page so.
struct Caches {
  explicit Caches(Mtype own, Mtype far)
      : memory(kBytes), near_gpu(memory.data(), 0, own), far_gpu(memory.data(), 1, far) {}

  uint8_t Load(const CacheModel::Place& place, Reach reach = Reach::kWave) {
    CacheModel::Bytes line;
    model.Load(place, kData, reach, false, &line);
    return line[0];
  }
  void Store(const CacheModel::Place& place, uint8_t value, Reach reach = Reach::kWave) {
    CacheModel::Bytes line = {value};
    model.Store(place, kData, reach, line, {true});
  }

  std::vector<uint8_t> memory;
  Context near_gpu, far_gpu;
  CacheModel model;
  const CacheModel::Place here = {&near_gpu, 0, 0}, there = {&near_gpu, 1, 0},
                          away = {&far_gpu, 0, 0};
};

TEST(own_memory_is_cached_until_it_is_written_back_and_invalidated) {
  Caches c(Mtype::kRw, Mtype::kNc);
  CHECK_EQ(c.Load(c.there), 0);
  c.Store(c.here, 1);
  CHECK_EQ(c.Load(c.here), 1);
  CHECK_EQ(c.memory[0], 0);
  c.model.Invalidate(c.there, Reach::kAgent);
  CHECK_EQ(c.Load(c.there), 0);  // it lies in the other XCD's L2
  c.model.WriteBack(c.here, false);
  CHECK_EQ(c.memory[0], 0);      // for the agent, not for the system
  CHECK_EQ(c.Load(c.there), 0);  // the compute unit's own line is old
  CHECK_EQ(c.Load(c.there, Reach::kAgent), 1);
  c.model.Invalidate(c.there, Reach::kAgent);
  CHECK_EQ(c.Load(c.there), 1);
  CHECK_EQ(c.Load(c.away, Reach::kSystem), 0);
  c.model.WriteBack(c.here, true);
  CHECK_EQ(c.memory[0], 1);
  CHECK_EQ(c.Load(c.away, Reach::kSystem), 1);
}

TEST(other_gpus_memory_stays_old_until_the_systems_invalidate) {
  Caches c(Mtype::kRw, Mtype::kNc);
  CHECK_EQ(c.Load(c.away), 0);
  c.Store(c.here, 1, Reach::kSystem);
  CHECK_EQ(c.memory[0], 1);
  CHECK_EQ(c.Load(c.away), 0);
  c.model.Invalidate(c.away, Reach::kAgent);
  CHECK_EQ(c.Load(c.away), 0);  // nobody probes the line in its L2
  c.model.Invalidate(c.away, Reach::kSystem);
  CHECK_EQ(c.Load(c.away), 1);
  // What it stores itself stays in its L2 until it is pushed to the system.
  c.Store(c.away, 2);
  c.model.WriteBack(c.away, false);
  CHECK_EQ(c.memory[0], 1);
  c.model.WriteBack(c.away, true);
  CHECK_EQ(c.memory[0], 2);
  // The owner's L2 has been probed; the compute unit's own line has not.
  c.model.Invalidate(c.here, Reach::kAgent);
  CHECK_EQ(c.Load(c.here), 2);
}

TEST(memory_that_is_not_cached_needs_neither) {
  for (Mtype mtype : {Mtype::kUc, Mtype::kCc}) {
    Caches c(mtype, mtype);
    CHECK_EQ(c.Load(c.there), 0);
    CHECK_EQ(c.Load(c.away), 0);
    c.Store(c.here, 1);
    CHECK_EQ(c.memory[0], 1);
    CHECK_EQ(c.Load(c.there), 1);
    CHECK_EQ(c.Load(c.away), 1);
  }
}

// What a packet's fences do, for all compute units of the GPU at once.
TEST(packets_fences_push_and_drop_everything) {
  Caches c(Mtype::kRw, Mtype::kNc);
  CHECK_EQ(c.Load(c.there), 0);
  CHECK_EQ(c.Load(c.away), 0);
  c.Store(c.here, 1);
  c.model.Release(c.near_gpu, Scope::kAgent);
  CHECK_EQ(c.memory[0], 0);
  c.model.Release(c.near_gpu, Scope::kSystem);
  CHECK_EQ(c.memory[0], 1);
  CHECK_EQ(c.Load(c.there), 0);
  c.model.Acquire(c.near_gpu, Scope::kAgent);
  CHECK_EQ(c.Load(c.there), 1);
  CHECK_EQ(c.Load(c.away), 0);
  c.model.Acquire(c.far_gpu, Scope::kSystem);
  CHECK_EQ(c.Load(c.away), 1);
}

// A wave's store of 16 bytes a lane: 1024 bytes, 16 blocks.
TEST(a_store_is_torn_between_blocks_of_64_bytes_and_not_inside) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  std::string error;
  std::vector<uint8_t> code =
      Assemble(Isa::kGfx950,
               "global_store_dwordx4 v[0:1], v[4:7], off\ns_nop 0\ns_waitcnt vmcnt(0)\n", &error);
  CHECK_EQ(error, "");
  code.resize(4096);
  std::vector<uint8_t> aligned(8192);
  const uint64_t base = (reinterpret_cast<uint64_t>(aligned.data()) + 255) & ~uint64_t{255};
  std::memcpy(reinterpret_cast<void*>(base), code.data(), 64);
  InstructionSet set(Isa::kGfx950, LaneCode::kPortable);
  Program program(&set);
  EffectsTable effects;
  FlatMemory code_memory(base, reinterpret_cast<uint8_t*>(base), 4096);
  std::set<int> seen;  // how many blocks were new at a time
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    std::vector<uint8_t> memory(kBytes);
    Context context(memory.data(), 0, Mtype::kUc);
    FlatMemory data(kData, memory.data(), kBytes);
    CacheModel model;
    std::mutex mutex;
    CachedLaunch launch(&model, &mutex, &context, seed);
    Workgroup group;
    group.waves.resize(1);
    Wave& w = group.waves[0];
    w.group = &group;
    w.memory = &code_memory;
    launch.Begin(group);
    const auto op_at = [&](uint64_t at) {
      w.at = w.pc = at;
      w.memory = &code_memory;
      const Op* op = program.DecodeAt(w, program.ChunkOf(at));
      w.memory = &data;
      return op;
    };
    const Op *store = op_at(base), *nop = op_at(base + 8), *wait = op_at(base + 12);
    CHECK(store != nullptr && nop != nullptr && wait != nullptr);
    Accesses accesses;
    for (uint8_t lane = 0; lane < kLanes; ++lane) {
      Piece piece;
      piece.address = kData + 16 * uint64_t{lane};
      piece.size = 16;
      piece.lane = lane;
      piece.write = true;
      accesses.pieces.push_back(piece);
    }
    const RowFacts& facts = effects.FactsOf(*store->inst.row);
    launch.Before(w, *store, facts, accesses);
    for (uint64_t at = kData; at < kData + 1024; at += kLineBytes) {
      View view;
      AccessFault fault;
      CHECK(w.memory->Translate(at, true, false, &view, &fault));
      std::memset(view.host + (at - view.begin), 0xab, kLineBytes);
    }
    launch.After(w, *store, facts, accesses);
    const auto blocks = [&] {
      int count = 0;
      for (size_t at = 0; at < 1024; at += 64) {
        const bool fresh = memory[at] == 0xab;
        for (size_t i = 0; i < 64; ++i) {
          if ((memory[at + i] == 0xab) != fresh) return -1;  // torn inside
        }
        count += fresh;
      }
      return count;
    };
    CHECK_EQ(blocks(), 0);
    for (int turn = 0; turn < 40; ++turn) {
      launch.Before(w, *nop, effects.FactsOf(*nop->inst.row), Accesses());
      CHECK_GE(blocks(), 0);
      seen.insert(blocks());
    }
    launch.Before(w, *wait, effects.FactsOf(*wait->inst.row), Accesses());
    CHECK_EQ(blocks(), 16);
  }
  CHECK_GT(seen.size(), 4u);  // some and not all, many times
}

}  // namespace
}  // namespace mainarch::sim::isa::test
