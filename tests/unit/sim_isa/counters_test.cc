// SPDX-License-Identifier: MIT
//
// The counters of a dispatch against a kernel counted by hand.
#include "sim/isa/counters.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "sim/isa/grid.h"
#include "support/test.h"

namespace mainarch::sim::isa {
namespace {

// s[0:1] is the kernarg address, which is all the memory there is; v0 the lane.
constexpr uint32_t kCode[] = {
    0xc0060100, 0x00000000,  // s_load_dwordx2 s[4:5], s[0:1], 0x0
    0x24020082,              // v_lshlrev_b32 v1, 2, v0
    0x24100086,              // v_lshlrev_b32 v8, 6, v0
    0x24120083,              // v_lshlrev_b32 v9, 3, v0
    0xbf8cc07f,              // s_waitcnt lgkmcnt(0)
    0xdc508000, 0x02000001,  // global_load_dword v2, v1, s[0:1]
    0xdc5c8000, 0x04000008,  // global_load_dwordx4 v[4:7], v8, s[0:1]
    0xbf8c0f70,              // s_waitcnt vmcnt(0)
    0x7e064102,              // v_exp_f32 v3, v2
    0xdc748000, 0x00000209,  // global_store_dwordx2 v9, v[2:3], s[0:1]
    0xd81a0000, 0x00000201,  // ds_write_b32 v1, v2
    0xbf8cc07f,              // s_waitcnt lgkmcnt(0)
    0xbf8a0000,              // s_barrier
    0xd8ec0000, 0x0a000009,  // ds_read_b64 v[10:11], v9
    0xd87e0000, 0x0c000201,  // ds_bpermute_b32 v12, v1, v2
    0xbf8cc07f,              // s_waitcnt lgkmcnt(0)
    0xbefe01ff, 0x000000ff,  // s_mov_b64 exec, 0xff
    0xdc488000, 0x0d000001,  // global_load_ushort v13, v1, s[0:1]
    0xdd088000, 0x00000001,  // global_atomic_add v1, v0, s[0:1]
    0x681c1b0d,              // v_add_u32 v14, v13, v13
    0xd3e10010, 0x02020d04,  // v_mfma_f32_16x16x16_bf16 v[16:19], v[4:5], v[6:7], 0
    0xbf8c0f70,              // s_waitcnt vmcnt(0)
    0xe0a48000, 0x00000000,  // buffer_inv sc1
    0xbf060404,              // s_cmp_eq_u32 s4, s4
    0xbf850001,              // s_cbranch_scc1 over the next
    0xbf800000,              // s_nop 0
    0xbf810000,              // s_endpgm
};

struct Memory4K {
  static constexpr size_t kBytes = 8192;
  std::unique_ptr<uint8_t, void (*)(void*)> bytes = {
      static_cast<uint8_t*>(std::aligned_alloc(4096, kBytes)), std::free};
};

struct Counted {
  Counts counts;
  std::vector<FootprintPage> footprint;
  uint64_t memory = 0;  // address
};

StatusOr<Counted> CountKernel(uint32_t workgroups) {
  Memory4K memory;
  std::memset(memory.bytes.get(), 0, Memory4K::kBytes);
  uint8_t* code = memory.bytes.get() + Memory4K::kBytes - 1024;
  std::memcpy(code, kCode, sizeof kCode);
  const InstructionSet set(Isa::kGfx950, BestLaneCode());
  Program program(&set);
  FlatMemory flat(reinterpret_cast<uint64_t>(memory.bytes.get()), memory.bytes.get(),
                  Memory4K::kBytes);
  Counters counters(nullptr, /*footprint=*/true);
  KernelLaunch launch;
  launch.entry = reinterpret_cast<uint64_t>(code);
  launch.grid = {workgroups * 64, 1, 1};
  launch.workgroup = {64, 1, 1};
  launch.kernarg = reinterpret_cast<uint64_t>(memory.bytes.get());
  launch.properties = 8;  // kernarg in s[0:1]
  launch.rsrc1 = 0x00af0000 | 7;
  launch.rsrc2 = 2 << 1;
  launch.rsrc3 = 63;
  launch.lds_bytes = 1024;
  launch.observer = &counters;
  ASSIGN_OR_RETURN(const std::unique_ptr<Grid> grid,
                   Grid::Create(&program, launch, ChipLimits(), {&flat}));
  const Grid::Result result = grid->Run(1 << 20);
  if (result.state != Grid::State::kDone) return Error(Code::kInternal, result.detail);
  const Counts counts = counters.Get();
  if (counts.instructions() != grid->instructions()) {
    return Error(Code::kInternal, "counted ", counts.instructions(), " of ", grid->instructions());
  }
  return Counted{counts, counters.GetFootprint(), launch.kernarg};
}

TEST(a_kernel_counted_by_hand) {
  for (const uint32_t n : {1u, 3u}) {
    const auto counted = CountKernel(n);
    CHECK_OK(counted);
    const Counts& c = counted->counts;
    CHECK_EQ(c.workgroups, n);
    CHECK_EQ(c.waves, n);
    CHECK_EQ(c.of(InstClass::kValu), 4 * n);
    CHECK_EQ(c.of(InstClass::kTrans), n);
    CHECK_EQ(c.of(InstClass::kMfma), n);
    CHECK_EQ(c.of(InstClass::kSalu), 2 * n);
    CHECK_EQ(c.of(InstClass::kSmem), n);
    CHECK_EQ(c.of(InstClass::kLoad), 3 * n);
    CHECK_EQ(c.of(InstClass::kStore), n);
    CHECK_EQ(c.of(InstClass::kAtomic), n);
    CHECK_EQ(c.of(InstClass::kFence), n);
    CHECK_EQ(c.of(InstClass::kLds), 2 * n);
    CHECK_EQ(c.of(InstClass::kLane), n);
    CHECK_EQ(c.of(InstClass::kBranch), n);
    CHECK_EQ(c.of(InstClass::kWait), 5 * n);
    CHECK_EQ(c.of(InstClass::kBarrier), n);
    CHECK_EQ(c.of(InstClass::kOther), n);
    CHECK_EQ(c.lane_operations, (3 * 64 + 64 + 8) * n);
    CHECK_EQ(c.scalar_bytes, 8 * n);
    CHECK_EQ(c.lds_write_bytes, 256 * n);
    CHECK_EQ(c.lds_read_bytes, 512 * n);
    // 64 dwords in a row; 64 pieces of 16 bytes, 64 apart; 8 of two bytes, 4 apart.
    CHECK_EQ(c.loads.instructions, 3 * n);
    CHECK_EQ(c.loads.bytes, (256 + 1024 + 16) * n);
    CHECK_EQ(c.loads.lines64, (4 + 64 + 1) * n);
    CHECK_EQ(c.loads.full64, 4 * n);
    CHECK_EQ(c.loads.lines128, (2 + 32 + 1) * n);
    CHECK_EQ(c.loads.full128, 2 * n);
    CHECK((c.loads.lanes_by_size == std::array<uint64_t, 6>{0, 8 * n, 64 * n, 0, 0, 64 * n}));
    CHECK_EQ(c.stores.bytes, 512 * n);
    CHECK_EQ(c.stores.lines64, 8 * n);
    CHECK_EQ(c.stores.full64, 8 * n);
    CHECK_EQ(c.stores.full128, 4 * n);
    CHECK_EQ(c.atomics.bytes, 32 * n);
    CHECK_EQ(c.atomics.lines64, n);
    CHECK_EQ(c.atomics.full64, 0u);
    CHECK_EQ(c.dma_bytes + c.scratch_bytes, 0u);
  }
}

// All accesses lie in the first 4 KiB. Loads touch every line, stores and atomics the first 512
// bytes; whole blocks of 64 are those of the dword load and of the store.
TEST(a_footprint_by_hand) {
  for (const uint32_t n : {1u, 3u}) {
    const auto counted = CountKernel(n);
    CHECK_OK(counted);
    const Counts& c = counted->counts;
    CHECK_EQ(c.loads.distinct, (256 + 64 * 16 + 8 * 2) * n);
    CHECK_EQ(c.stores.distinct, 512 * n);
    CHECK_EQ(c.atomics.distinct, 32 * n);
    CHECK_EQ(counted->footprint.size(), 1u);
    const FootprintPage& page = counted->footprint[0];
    CHECK_EQ(page.address, counted->memory);
    CHECK_EQ(page.read, 0xffffffffu);
    CHECK_EQ(page.written, 0xfu);
    CHECK_EQ(page.whole, 0xffu);
    CHECK_EQ(page.bytes_written, (512 + 32) * n);
  }
}

TEST(counts_add_up) {
  const auto one = CountKernel(1), three = CountKernel(3);
  CHECK_OK(one);
  CHECK_OK(three);
  Counts sum;
  for (int i = 0; i < 3; ++i) sum.Add(one->counts);
  CHECK_EQ(sum.instructions(), three->counts.instructions());
  CHECK_EQ(sum.loads.lines128, three->counts.loads.lines128);
  CHECK_EQ(sum.waves, three->counts.waves);
}

TEST(every_class_has_a_name) {
  for (int i = 0; i < static_cast<int>(InstClass::kCount); ++i) {
    CHECK(!NameOf(static_cast<InstClass>(i)).empty());
  }
}

}  // namespace
}  // namespace mainarch::sim::isa
