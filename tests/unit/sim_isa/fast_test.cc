// SPDX-License-Identifier: MIT
//
// Everything in the interpreter that is there for speed gives the bits of what it stands for:
// AVX2 and AVX-512 lanes those of portable ones, whole-wave memory accesses those of one lane at a time.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/isa/bulk.h"
#include "support/test.h"
#include "unit/sim_isa/machine.h"

namespace mainarch::sim::isa::test {
namespace {

struct Line {
  const char* text;
  std::vector<uint32_t> words;
};

// On gfx950; sources v4..v9, s6..s7.
const Line kLanes64[] = {
    {"v_add_f32_e32 v4, v5, v6", {0x02080d05}},
    {"v_sub_f32_e32 v4, v5, v6", {0x04080d05}},
    {"v_mul_f32_e32 v4, v5, v6", {0x0a080d05}},
    {"v_fma_f32 v4, v5, v6, v7", {0xd1cb0004, 0x041e0d05}},
    {"v_fma_f32 v4, -v5, |v6|, -|v7|", {0xd1cb0604, 0xa41e0d05}},
    {"v_fmac_f32_e32 v4, v5, v6", {0x76080d05}},
    {"v_max_f32_e32 v4, v5, v6", {0x16080d05}},
    {"v_min_f32_e32 v4, v5, v6", {0x14080d05}},
    {"v_max_f32_e64 v4, -v5, |v6|", {0xd10b0204, 0x20020d05}},
    {"v_max3_f32 v4, v5, v6, v7", {0xd1d30004, 0x041e0d05}},
    {"v_min3_f32 v4, v5, v6, v7", {0xd1d00004, 0x041e0d05}},
    {"v_subrev_f32_e32 v4, v5, v6", {0x06080d05}},
    {"v_med3_f32 v4, v5, v6, v7", {0xd1d60004, 0x041e0d05}},
    {"v_rcp_f32_e32 v4, v5", {0x7e084505}},
    {"v_cndmask_b32_e32 v4, v5, v6, vcc", {0x00080d05}},
    {"v_cndmask_b32_e64 v4, v5, v6, s[6:7]", {0xd1000004, 0x001a0d05}},
    {"v_cndmask_b32_e64 v4, -v5, |v6|, s[6:7]", {0xd1000204, 0x201a0d05}},
    {"v_add_co_u32_e32 v4, vcc, v5, v6", {0x32080d05}},
    {"v_sub_co_u32_e32 v4, vcc, v5, v6", {0x34080d05}},
    {"v_subrev_co_u32_e32 v4, vcc, v5, v6", {0x36080d05}},
    {"v_addc_co_u32_e32 v4, vcc, v5, v6, vcc", {0x38080d05}},
    {"v_subb_co_u32_e32 v4, vcc, v5, v6, vcc", {0x3a080d05}},
    {"v_subbrev_co_u32_e32 v4, vcc, v5, v6, vcc", {0x3c080d05}},
    {"v_cmp_lt_f32_e64 s[6:7], v5, v6", {0xd0410006, 0x00020d05}},
    {"v_cmp_gt_u32_e32 vcc, v5, v6", {0x7d980d05}},
    {"v_perm_b32 v4, v5, v6, v7", {0xd1ed0004, 0x041e0d05}},
    {"v_perm_b32 v4, v5, v6, s6", {0xd1ed0004, 0x001a0d05}},
    {"v_exp_f32_e32 v4, v5", {0x7e084105}},
    {"v_exp_f32_e64 v4, -v5", {0xd1600004, 0x20000105}},
    {"v_pk_fma_f32 v[4:5], v[6:7], v[8:9], v[4:5]", {0xd3b04004, 0x1c121106}},
    {"v_pk_fma_f32 v[4:5], v[6:7], v[8:9], v[4:5] op_sel_hi:[1,0,1]", {0xd3b04004, 0x0c121106}},
    {"v_pk_add_f32 v[4:5], v[6:7], v[8:9] op_sel:[1,0]", {0xd3b24804, 0x18021106}},
    {"v_pk_add_f32 v[4:5], v[6:7], v[8:9] neg_lo:[1,0]", {0xd3b24004, 0x38021106}},
    {"v_pk_fma_f32 v[4:5], v[6:7], v[8:9], v[4:5] neg_lo:[0,1,1] neg_hi:[1,0,0]",
     {0xd3b04104, 0xdc121106}},
    {"v_or_b32_sdwa v4, v5, v6 src1_sel:WORD_1", {0x28080cf9, 0x05060605}},
    {"v_add_u32_sdwa v4, sext(v5), v6 src0_sel:BYTE_2 src1_sel:BYTE_1", {0x68080cf9, 0x010a0605}},
    {"v_lshl_add_u64 v[4:5], v[6:7], 3, v[8:9]", {0xd2080004, 0x04210706}},
    {"v_lshl_add_u64 v[4:5], v[6:7], 0, s[6:7]", {0xd2080004, 0x00190106}},
    {"v_add_f32_dpp v4, v5, v6 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1",
     {0x02080cfa, 0xff091105}},
    {"v_add_f32_dpp v4, v4, v4 row_shr:8 row_mask:0xf bank_mask:0xf", {0x020808fa, 0xff011804}},
    {"v_mov_b32_dpp v4, v5 row_bcast:15 row_mask:0xa bank_mask:0xf", {0x7e0802fa, 0xaf014205}},
    {"v_mov_b32_dpp v4, v5 row_bcast:31 row_mask:0xc bank_mask:0xf", {0x7e0802fa, 0xcf014305}},
    {"v_mov_b32_dpp v4, v5 quad_perm:[3,1,2,0] row_mask:0xf bank_mask:0x5",
     {0x7e0802fa, 0xf5002705}},
    {"v_mov_b32_dpp v4, v5 wave_shl:1 row_mask:0xf bank_mask:0xf", {0x7e0802fa, 0xff013005}},
    {"v_mov_b32_dpp v4, v5 row_mirror row_mask:0xf bank_mask:0xf bound_ctrl:1",
     {0x7e0802fa, 0xff094005}},
    {"v_mov_b32_dpp v4, v5 row_ror:5 row_mask:0xf bank_mask:0xf", {0x7e0802fa, 0xff012505}},
    {"v_max_u32_dpp v4, v5, v6 row_half_mirror row_mask:0xf bank_mask:0xf",
     {0x1e080cfa, 0xff014105}},
    {"v_mfma_f32_16x16x16_bf16 v[4:7], v[4:5], v[6:7], v[4:7]", {0xd3e10004, 0x04120d04}},
    {"v_mfma_f32_16x16x32_bf16 v[4:7], v[4:7], v[6:9], v[4:7]", {0xd3b50004, 0x04120d04}},
    {"v_mfma_f32_16x16x32_f16 v[4:7], v[4:7], v[6:9], v[4:7]", {0xd3d40004, 0x04120d04}},
    {"v_mfma_f32_16x16x32_bf16 v[4:7], v[4:7], v[6:9], 1.0", {0xd3b50004, 0x03ca0d04}},
    {"v_cvt_scalef32_pk_f32_fp4 v[4:5], v6, v7 op_sel:[1,0,0]", {0xd23f0804, 0x00020f06}},
    {"v_cvt_scalef32_pk_bf16_fp4 v4, v6, v7", {0xd2510004, 0x00020f06}},
    {"v_cvt_scalef32_pk_f32_fp8 v[4:5], v6, v7 op_sel:[1,0,0]", {0xd2390804, 0x00020f06}},
    {"v_cvt_scalef32_pk_f16_fp8 v4, v6, v7", {0xd2480004, 0x00020f06}},
    {"v_cvt_scalef32_f32_bf8 v4, v6, v7", {0xd23c0004, 0x00020f06}},
    {"v_cvt_scalef32_f16_fp8 v4, v6, v7", {0xd24a0004, 0x00020f06}},
    {"v_cvt_scalef32_pk_f16_fp4 v4, v6, v7", {0xd2500004, 0x00020f06}},
};

// v[4:5] addresses, v6 an offset from s[4:5] or in the buffer of s[8:11], v7 an LDS address, v8..v11 data, v20..v23 results.
const Line kMemory[] = {
    {"global_load_dword v20, v[4:5], off", {0xdc508000, 0x147f0004}},
    {"global_load_dwordx2 v[20:21], v[4:5], off offset:8", {0xdc548008, 0x147f0004}},
    {"global_load_dwordx3 v[20:22], v[4:5], off", {0xdc588000, 0x147f0004}},
    {"global_load_dwordx4 v[20:23], v[4:5], off offset:-16", {0xdc5c9ff0, 0x147f0004}},
    {"global_load_dword v20, v6, s[4:5] offset:4", {0xdc508004, 0x14040006}},
    {"global_load_dwordx2 v[20:21], v6, s[4:5]", {0xdc548000, 0x14040006}},
    {"global_load_dwordx4 v[20:23], v6, s[4:5]", {0xdc5c8000, 0x14040006}},
    {"global_load_ubyte v20, v6, s[4:5]", {0xdc408000, 0x14040006}},
    {"global_load_sbyte v20, v6, s[4:5]", {0xdc448000, 0x14040006}},
    {"global_load_ushort v20, v6, s[4:5]", {0xdc488000, 0x14040006}},
    {"global_load_sshort v20, v6, s[4:5]", {0xdc4c8000, 0x14040006}},
    {"global_store_dword v6, v8, s[4:5]", {0xdc708000, 0x00040806}},
    {"global_store_dwordx2 v6, v[8:9], s[4:5]", {0xdc748000, 0x00040806}},
    {"global_store_dwordx3 v6, v[8:10], s[4:5]", {0xdc788000, 0x00040806}},
    {"global_store_dwordx4 v6, v[8:11], s[4:5]", {0xdc7c8000, 0x00040806}},
    {"global_store_dwordx4 v[4:5], v[8:11], off", {0xdc7c8000, 0x007f0804}},
    {"global_store_byte v6, v8, s[4:5]", {0xdc608000, 0x00040806}},
    {"global_store_short v6, v8, s[4:5]", {0xdc688000, 0x00040806}},
    {"buffer_load_dword v20, v6, s[8:11], 0 offen", {0xe0501000, 0x80021406}},
    {"buffer_load_dwordx2 v[20:21], v6, s[8:11], s12 offen offset:8", {0xe0541008, 0x0c021406}},
    {"buffer_load_dwordx3 v[20:22], v6, s[8:11], 0 offen", {0xe0581000, 0x80021406}},
    {"buffer_load_dwordx4 v[20:23], v6, s[8:11], s12 offen offset:64", {0xe05c1040, 0x0c021406}},
    {"buffer_load_dword v20, off, s[8:11], s12 offset:4", {0xe0500004, 0x0c021400}},
    {"buffer_load_ubyte v20, v6, s[8:11], 0 offen", {0xe0401000, 0x80021406}},
    {"buffer_load_sshort v20, v6, s[8:11], 0 offen", {0xe04c1000, 0x80021406}},
    {"buffer_load_dword v20, v6, s[8:11], 0 idxen", {0xe0502000, 0x80021406}},
    {"buffer_store_dword v8, v6, s[8:11], 0 offen", {0xe0701000, 0x80020806}},
    {"buffer_store_dwordx2 v[8:9], v6, s[8:11], s12 offen", {0xe0741000, 0x0c020806}},
    {"buffer_store_dwordx4 v[8:11], v6, s[8:11], 0 offen offset:16", {0xe07c1010, 0x80020806}},
    {"buffer_store_short v8, v6, s[8:11], 0 offen", {0xe0681000, 0x80020806}},
    {"buffer_store_byte v8, off, s[8:11], s12", {0xe0600000, 0x0c020800}},
    {"buffer_load_dword v6, s[8:11], 0 offen lds", {0xe0511000, 0x80020006}},
    {"buffer_load_dwordx4 v6, s[8:11], s12 offen offset:16 lds", {0xe05d1010, 0x0c020006}},
    {"buffer_load_dwordx3 v6, s[8:11], 0 offen lds", {0xe0591000, 0x80020006}},
    {"global_load_lds_dwordx4 v6, s[4:5]", {0xddf48000, 0x00040006}},
    {"global_load_lds_dword v[4:5], off", {0xdca88000, 0x007f0004}},
    {"ds_read_b32 v20, v7", {0xd86c0000, 0x14000007}},
    {"ds_read_b64 v[20:21], v7 offset:8", {0xd8ec0008, 0x14000007}},
    {"ds_read_b96 v[20:22], v7", {0xd9fc0000, 0x14000007}},
    {"ds_read_b128 v[20:23], v7", {0xd9fe0000, 0x14000007}},
    {"ds_read2_b32 v[20:21], v7 offset0:1 offset1:5", {0xd86e0501, 0x14000007}},
    {"ds_read2st64_b32 v[20:21], v7 offset0:1 offset1:2", {0xd8700201, 0x14000007}},
    {"ds_read2_b64 v[20:23], v7 offset0:3 offset1:1", {0xd8ee0103, 0x14000007}},
    {"ds_write_b32 v7, v8", {0xd81a0000, 0x00000807}},
    {"ds_write_b64 v7, v[8:9] offset:16", {0xd89a0010, 0x00000807}},
    {"ds_write_b96 v7, v[8:10]", {0xd9bc0000, 0x00000807}},
    {"ds_write_b128 v7, v[8:11]", {0xd9be0000, 0x00000807}},
    {"ds_write2_b32 v7, v8, v9 offset0:1 offset1:200", {0xd81cc801, 0x00090807}},
    {"ds_write2_b64 v7, v[8:9], v[10:11] offset0:1 offset1:200", {0xd89cc801, 0x000a0807}},
    {"ds_bpermute_b32 v20, v6, v8", {0xd87e0000, 0x14000806}},
};

bool Step(Rig& rig, const Line& line) {
  return rig.Step(reinterpret_cast<const uint8_t*>(line.words.data()), 4 * line.words.size());
}

uint64_t RandomExec(std::mt19937_64& random) {
  switch (random() % 5) {
    case 0:
    case 1:
      return ~uint64_t{0};
    case 2:
      return (uint64_t{1} << (1 + random() % 63)) - 1;
    case 3:
      return uint64_t{1} << (random() % 64);
    default:
      return random();
  }
}

uint32_t RandomWord(std::mt19937_64& random) {
  static constexpr uint32_t kEdges[] = {0,          0x80000000, 0x3f800000, 0xbf800000, 0x7f800000,
                                        0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0x00000001,
                                        0x807fffff, 0x00800000, 0x7f7fffff, 0x4f000000, 0xffffffff};
  switch (random() % 4) {
    case 0:
      return kEdges[random() % std::size(kEdges)];
    case 1:  // an ordinary number
      return static_cast<uint32_t>(random() & 0x81ffffff) | 0x3e000000;
    default:
      return static_cast<uint32_t>(random());
  }
}

void CheckLanes(mainarch::test::Context& test_context, LaneCode code) {
  std::mt19937_64 random(3);
  for (const Line& line : kLanes64) {
    Rig plain(Isa::kGfx950, LaneCode::kPortable), fast(Isa::kGfx950, code);
    for (int round = 0; round < 200; ++round) {
      const uint64_t exec = RandomExec(random);
      for (Rig* rig : {&plain, &fast}) rig->wave().set_exec(exec);
      // Some rounds without NaN: the paths that assume there is none.
      const bool ordinary = round % 3 == 0;
      for (int r = 4; r < 10; ++r) {
        for (int lane = 0; lane < kLanes; ++lane) {
          uint32_t x = RandomWord(random);
          if (ordinary && (x & 0x7f800000) == 0x7f800000) x &= 0xbfffffff;
          plain.V(r, lane) = fast.V(r, lane) = x;
        }
      }
      for (const int s : {6, 7, int{reg::kVcc}, reg::kVcc + 1}) {
        const auto x = static_cast<uint32_t>(random());
        plain.S(s) = fast.S(s) = ordinary && s < 8 ? x & 0x07070707 : x;
      }
      CHECK(Step(plain, line));
      CHECK(Step(fast, line));
      CHECK_EQ(absl::StrCat(line.text, " vcc ", plain.wave().vcc(), " s[6:7] ", plain.wave().Pair(6)),
               absl::StrCat(line.text, " vcc ", fast.wave().vcc(), " s[6:7] ", fast.wave().Pair(6)));
      for (int r = 4; r < 10; ++r) {
        for (int lane = 0; lane < kLanes; ++lane) {
          if (plain.V(r, lane) == fast.V(r, lane)) continue;
          // Which of several NaN operands gives its payload is the host's compiler's choice.
          const auto is_nan = [](uint32_t x) { return (x & 0x7fffffff) > 0x7f800000; };
          if (is_nan(plain.V(r, lane)) && is_nan(fast.V(r, lane))) continue;
          CHECK_EQ(absl::StrCat(line.text, " v", r, " lane ", lane, ": ", plain.V(r, lane)),
                   absl::StrCat(line.text, " v", r, " lane ", lane, ": ", fast.V(r, lane)));
        }
      }
    }
  }
}

TEST(avx2_lanes_have_the_bits_of_portable_ones) {
  if (!Runs(LaneCode::kAvx2)) SKIP("this CPU has no AVX2");
  CheckLanes(test_context, LaneCode::kAvx2);
}
TEST(avx512_lanes_have_the_bits_of_portable_ones) {
  if (!Runs(LaneCode::kAvx512)) SKIP("this CPU has no AVX-512");
  CheckLanes(test_context, LaneCode::kAvx512);
}

// Addresses of the lanes: what kernels do, and what they should not.
void FillOffsets(std::mt19937_64& random, uint32_t limit, uint32_t* offsets) {
  const uint32_t start = static_cast<uint32_t>(random() % (limit / 4)) & ~3u;
  const auto pattern = random() % 6;
  static constexpr uint32_t kSteps[] = {4, 8, 16, 12, 64};
  const uint32_t step = kSteps[random() % std::size(kSteps)];
  for (uint32_t i = 0; i < kLanes; ++i) {
    switch (pattern) {
      case 0:
      case 1:
      case 2:
        offsets[i] = start + step * i;
        break;
      case 3:
        offsets[i] = start;
        break;
      case 4:
        offsets[i] = start + step * (63 - i);
        break;
      default:
        offsets[i] = static_cast<uint32_t>(random() % limit) & ~3u;
        break;
    }
  }
}

struct Outcome {
  std::vector<uint32_t> registers;
  std::vector<uint8_t> memory, lds;
  bool operator==(const Outcome&) const = default;
};

void CheckBulk(mainarch::test::Context& test_context, LaneCode code) {
  constexpr uint32_t kBytes = 32768;
  std::mt19937_64 random(4);
  std::vector<uint64_t> noise(kBytes / 8);
  for (uint64_t& x : noise) x = random();
  for (const Line& line : kMemory) {
    Rig rigs[2] = {Rig(Isa::kGfx950, code), Rig(Isa::kGfx950, code)};
    rigs[1].wave().bulk = BulkCodeOf(code);
    for (int round = 0; round < 120; ++round) {
      const uint64_t exec = RandomExec(random);
      uint32_t offsets[kLanes], lds_offsets[kLanes];
      FillOffsets(random, kBytes / 2, offsets);
      FillOffsets(random, kBytes / 2, lds_offsets);
      const uint64_t seed = random();
      Outcome outcomes[2];
      for (int k = 0; k < 2; ++k) {
        Rig& rig = rigs[k];
        rig.wave().set_exec(exec);
        std::mt19937_64 same(seed);
        std::memcpy(rig.memory(), noise.data(), kBytes);
        std::memcpy(rig.group().lds.data(), noise.data(), kBytes);
        const uint64_t base = reinterpret_cast<uint64_t>(rig.memory()) + 64;
        std::memcpy(&rig.S(4), &base, 8);
        // A buffer that some lanes may reach beyond, its scalar offset, and where LDS takes what is loaded to it.
        std::memcpy(&rig.S(8), &base, 8);
        rig.S(9) &= 0xffff;
        rig.S(10) = round % 3 == 0 ? 2 * kBytes : static_cast<uint32_t>(same() % kBytes);
        rig.S(11) = 0x00020000;
        rig.S(12) = static_cast<uint32_t>(same() % 256) & ~3u;
        rig.S(reg::kM0) = static_cast<uint32_t>(same() % (kBytes / 2)) & ~3u;
        for (int lane = 0; lane < kLanes; ++lane) {
          const uint64_t address = base + offsets[lane];
          rig.V(4, lane) = static_cast<uint32_t>(address);
          rig.V(5, lane) = static_cast<uint32_t>(address >> 32);
          rig.V(6, lane) = offsets[lane];
          rig.V(7, lane) = lds_offsets[lane];
          for (int r : {8, 9, 10, 11, 20, 21, 22, 23}) {
            rig.V(r, lane) = static_cast<uint32_t>(same());
          }
        }
        CHECK(Step(rig, line));
        for (int r = 8; r < 24; ++r) {
          for (int lane = 0; lane < kLanes; ++lane) {
            outcomes[k].registers.push_back(rig.V(r, lane));
          }
        }
        outcomes[k].memory.assign(rig.memory(), rig.memory() + 2 * kBytes);
        outcomes[k].lds = rig.group().lds;
      }
      if (!(outcomes[0] == outcomes[1])) {
        test_context.Fail(__FILE__, __LINE__, absl::StrCat(line.text, ", round ", round));
        return;
      }
    }
  }
}

TEST(whole_wave_accesses_do_what_each_lane_would_portable) {
  CheckBulk(test_context, LaneCode::kPortable);
}
TEST(whole_wave_accesses_do_what_each_lane_would_avx2) {
  if (!Runs(LaneCode::kAvx2)) SKIP("this CPU has no AVX2");
  CheckBulk(test_context, LaneCode::kAvx2);
}
TEST(whole_wave_accesses_do_what_each_lane_would_avx512) {
  if (!Runs(LaneCode::kAvx512)) SKIP("this CPU has no AVX-512");
  CheckBulk(test_context, LaneCode::kAvx512);
}

// What lies outside stays the lanes' own business: the same stop, with or without bulk code.
TEST(faults_are_those_of_the_lanes) {
  for (const bool bulk : {false, true}) {
    Rig rig(Isa::kGfx950, BestLaneCode());
    if (bulk) rig.wave().bulk = BulkCodeOf(BestLaneCode());
    for (int lane = 0; lane < kLanes; ++lane) {
      rig.V(4, lane) = 64, rig.V(5, lane) = 0, rig.V(7, lane) = 65536 - 4 * 60 + 4 * lane;
    }
    CHECK(!Step(rig, kMemory[0]));
    CHECK(rig.wave().stop == StopReason::kMemoryFault);
    CHECK_EQ(rig.wave().fault.va, 64u);
    const Line read = {"ds_read_b32 v20, v7", {0xd86c0000, 0x14000007}};
    CHECK(!Step(rig, read));
    CHECK(rig.wave().stop == StopReason::kAperture);
  }
}

}  // namespace
}  // namespace mainarch::sim::isa::test
