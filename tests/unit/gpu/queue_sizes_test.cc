// SPDX-License-Identifier: MIT
#include "gpu/queue_sizes.h"

#include "support/test.h"

namespace mainarch::gpu {
namespace {

kfd::NodeProperties Mi300x() {
  kfd::NodeProperties p;
  p.simd_count = 1216;
  p.simd_per_cu = 4;
  p.array_count = 32;
  p.simd_arrays_per_engine = 1;
  p.num_xcc = 8;
  p.lds_size_in_kb = 64;
  p.max_waves_per_simd = 8;
  p.max_slots_scratch_cu = 32;
  return p;
}

kfd::NodeProperties Mi355x() {
  kfd::NodeProperties p = Mi300x();
  p.simd_count = 1024;
  p.lds_size_in_kb = 160;
  return p;
}

TEST(save_area_by_the_formula) {
  const SaveAreaSizes a = ComputeSaveArea(Mi300x());
  CHECK_EQ(a.control_stack, 0x3000u);
  CHECK_EQ(a.save_restore, 23203840u);
  CHECK_EQ(a.debug, 48640u);
  CHECK_EQ(a.total, 186019840u);
  const SaveAreaSizes b = ComputeSaveArea(Mi355x());
  CHECK_EQ(b.control_stack, 0x3000u);
  CHECK_EQ(b.save_restore, 22687744u);
  CHECK_EQ(b.debug, 40960u);
  CHECK_EQ(b.total, 181829632u);
}

TEST(sysfs_wins_over_the_formula) {
  kfd::NodeProperties p = Mi300x();
  CHECK(!ChooseSaveArea(p).from_sysfs);
  p.cwsr_size = 23203840 + 8192;
  p.ctl_stack_size = 0x4000;
  const SaveAreaSizes sizes = ChooseSaveArea(p);
  CHECK(sizes.from_sysfs);
  CHECK_EQ(sizes.save_restore, 23212032u);
  CHECK_EQ(sizes.control_stack, 0x4000u);
  CHECK_EQ(sizes.total, (uint64_t{23212032} + 48640) * 8);
}

TEST(scratch_for_a_full_chip) {
  const ScratchSizes full = ComputeScratch(Mi300x(), 1024, UINT64_MAX);
  CHECK_EQ(full.total, uint64_t{304} * 32 * (64 << 10));  // 608 MiB
  CHECK_EQ(full.tmpring, (38u * 32) | 64u << 12);
  CHECK_EQ(full.bytes_per_lane, 1024u);
  const ScratchSizes small = ComputeScratch(Mi300x(), 0x44, 32 << 20);
  CHECK_EQ(small.bytes_per_lane, 80u);  // 68 * 64 rounded to 5 KiB
  CHECK_LE(small.total, uint64_t{32} << 20);
  CHECK_EQ((small.tmpring & 0xfff) % 4, 0u);
  CHECK_EQ(ComputeScratch(Mi300x(), 0, UINT64_MAX).total, 0u);
  CHECK_EQ(ComputeScratch(Mi300x(), 1u << 20, UINT64_MAX).total, 0u);  // beyond the field
  CHECK_EQ(ComputeScratch(Mi300x(), 1024, 0).total, 0u);
}

TEST(an_empty_node_divides_by_nothing) {
  const kfd::NodeProperties p;
  CHECK_EQ(ComputeUnits(p), 0u);
  ComputeSaveArea(p);
  CHECK_EQ(ComputeScratch(p, 64, UINT64_MAX).total, 0u);
}

}  // namespace
}  // namespace mainarch::gpu
