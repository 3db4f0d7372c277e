// SPDX-License-Identifier: MIT
//
// How fast the virtual GPU's interpreter is, in wave-instructions of 64 lanes a second of host
// time. These are speeds of a simulator and say nothing about any GPU.
#include <benchmark/benchmark.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "isa_decode.h"
#include "isa_rig.h"
#include "sim/time/clock.h"

namespace mainarch::bench {
namespace {

using kernels::Address;
using sim::isa::Isa;
using sim::isa::LaneCode;

// What runs, made in a rig of its own.
using Make = std::function<StatusOr<std::vector<Prepared>>(IsaRig&)>;

void Measure(benchmark::State& state, Isa isa, LaneCode lanes, int threads, const Make& make,
             bool timed = false) {
  if (!sim::isa::Runs(lanes)) {
    state.SkipWithError("not on this CPU");
    return;
  }
  sim::timing::Clock clock;
  IsaRig rig(isa, lanes);
  if (timed) rig.SetPace(&clock);
  const auto prepared = make(rig);
  if (!prepared.ok()) {
    state.SkipWithError(std::string(prepared.status().message()).c_str());
    return;
  }
  uint64_t instructions = 0;
  for (auto _ : state) {
    for (const Prepared& one : *prepared) {
      const Status status = rig.Run(one, threads, &instructions);
      if (!status.ok()) {
        state.SkipWithError(std::string(status.message()).c_str());
        return;
      }
    }
    clock.Take();
  }
  const auto count = static_cast<double>(instructions);
  state.counters["inst/s"] = benchmark::Counter(count, benchmark::Counter::kIsRate);
  state.counters["s/inst"] =
      benchmark::Counter(count, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["inst"] = count / static_cast<double>(state.iterations());
}

StatusOr<std::vector<Prepared>> One(StatusOr<Prepared> prepared) {
  if (!prepared.ok()) return prepared.status();
  return std::vector<Prepared>{*prepared};
}

Make Bf16(const char* kernel, uint32_t outputs, uint32_t k, uint32_t rows) {
  return [=](IsaRig& rig) {
    kernels::Bf16MatrixArgs args;
    args.x = At<const uint16_t>(rig.RandomBf16(size_t{rows} * k));
    args.w = At<const uint16_t>(rig.RandomBf16(size_t{outputs} * k));
    args.out = At(rig.New<float>(size_t{rows} * outputs));
    args.rows = rows, args.outputs = outputs, args.k = k;
    return One(rig.Prepare(kernel, args, 64));
  };
}

Make Mxfp4(const char* kernel, uint32_t outputs, uint32_t k, uint32_t rows) {
  return [=](IsaRig& rig) {
    kernels::Mxfp4MatrixArgs args;
    args.x = At<const uint16_t>(rig.RandomBf16(size_t{rows} * k));
    args.codes = At<const uint8_t>(rig.RandomBytes(size_t{outputs} * k / 2));
    auto* scales = rig.New<uint8_t>(size_t{outputs} * k / 32);
    std::fill(scales, scales + size_t{outputs} * k / 32, 120);
    args.scales = At<const uint8_t>(scales);
    args.out = At(rig.New<float>(size_t{rows} * outputs));
    args.rows = rows, args.outputs = outputs, args.k = k;
    return One(rig.Prepare(kernel, args, 64));
  };
}

Make Softmax(uint32_t rows, uint32_t n) {
  return [=](IsaRig& rig) {
    kernels::SoftmaxArgs args;
    args.x = At<const float>(rig.New<float>(size_t{rows} * n));
    args.out = At(rig.New<float>(size_t{rows} * n));
    args.rows = rows, args.n = n, args.scale = 1;
    return One(rig.Prepare("softmax", args, rows));
  };
}

// Eight waves that each run one instruction 100 x 100 times, on registers that hold 1.0 (v64: a
// different LDS address for each lane).
Make Repeat(const std::vector<uint32_t>& words, bool exact = false) {
  return [=](IsaRig& rig) -> StatusOr<std::vector<Prepared>> {
    constexpr uint32_t kTimes = 100;
    std::vector<uint32_t> code;
    for (uint32_t v = 1; v < 64; ++v) code.push_back(0x7e0002f2 | v << 17);  // v_mov_b32 v, 1.0
    code.push_back(0x24800084);           // v_lshlrev_b32 v64, 4, v0
    code.push_back(0xb0280000 | kTimes);  // s_movk_i32 s40, kTimes
    const auto start = code.size();
    for (uint32_t i = 0; i < kTimes; ++i) code.insert(code.end(), words.begin(), words.end());
    code.push_back(0x80a88128);  // s_sub_u32 s40, s40, 1
    code.push_back(0xbf078028);  // s_cmp_lg_u32 s40, 0
    const auto back = static_cast<uint16_t>(start - code.size() - 1);
    code.push_back(0xbf850000 | back);  // s_cbranch_scc1 start
    code.push_back(0xbf810000);         // s_endpgm
    Prepared prepared = rig.PrepareCode(code, 8);
    prepared.launch.exact_matrix = exact;
    return std::vector<Prepared>{prepared};
  };
}

const char* NameOf(LaneCode lanes) {
  switch (lanes) {
    case LaneCode::kAvx512:
      return "/avx512";
    case LaneCode::kAvx2:
      return "/avx2";
    case LaneCode::kPortable:
      break;
  }
  return "/portable";
}

void Register(const std::string& name, const Make& make, bool gfx942 = true) {
  for (const Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    if (isa == Isa::kGfx942 && !gfx942) continue;
    for (const LaneCode lanes : {LaneCode::kAvx512, LaneCode::kAvx2, LaneCode::kPortable}) {
      for (const int threads : {1, 2}) {
        if (threads == 2 && lanes == LaneCode::kPortable) continue;
        const std::string full = name + (isa == Isa::kGfx942 ? "/gfx942" : "/gfx950") +
                                 NameOf(lanes) +
                                 "/cores:" + std::to_string(threads);
        benchmark::RegisterBenchmark(
            full.c_str(),
            [=](benchmark::State& state) { Measure(state, isa, lanes, threads, make); })
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
    // Under the timing model.
    benchmark::RegisterBenchmark((name + (isa == Isa::kGfx942 ? "/gfx942/timed" : "/gfx950/timed")).c_str(),
                                 [=](benchmark::State& state) {
                                   Measure(state, isa, sim::isa::BestLaneCode(), 1, make, true);
                                 })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

void RegisterAll() {
  Register("bf16_gemv_1x2048x2048", Bf16("bf16_gemv", 2048, 2048, 1));
  Register("mxfp4_gemv_1x2048x2048", Mxfp4("mxfp4_gemv", 2048, 2048, 1));
  Register("bf16_mfma_16x1024x1024", Bf16("bf16_mfma", 1024, 1024, 16));
  Register("mxfp4_mfma_16x1024x1024", Mxfp4("mxfp4_mfma", 1024, 1024, 16));
  Register("softmax_16x4096", Softmax(16, 4096));
  Register("attend_bf16_128_over_2048", Attention);
  Register("tiny_moe_step", TinyMoeStep);
  // v_mfma_f32_16x16x16_bf16 v[0:3], v[8:9], v[12:13], v[0:3]
  Register("mfma_f32_16x16x16_bf16", Repeat({0xd3e10000, 0x04021908}));
  // v_mfma_f32_16x16x32_bf16 v[0:3], v[8:11], v[12:15], v[0:3]
  Register("mfma_f32_16x16x32_bf16", Repeat({0xd3b50000, 0x04021908}), false);
  // v_mfma_f32_32x32x16_bf16 v[16:31], v[8:11], v[12:15], v[16:31]
  Register("mfma_f32_32x32x16_bf16", Repeat({0xd3b70010, 0x04421908}), false);
  for (const bool exact : {false, true}) {
    const std::string mode = exact ? "_exact" : "";
    // v_mfma_f32_16x16x32_f16 v[0:3], v[8:11], v[12:15], v[0:3]
    Register("mfma_f32_16x16x32_f16" + mode, Repeat({0xd3d40000, 0x04021908}, exact), false);
    // v_mfma_f32_16x16x32_fp8_fp8 v[0:3], v[8:9], v[12:13], v[0:3]
    Register("mfma_f32_16x16x32_fp8" + mode, Repeat({0xd3f30000, 0x04021908}, exact), false);
    // v_mfma_f32_4x4x4_16b_f16 v[0:3], v[8:9], v[12:13], v[0:3]
    Register("mfma_f32_4x4x4_16b_f16" + mode, Repeat({0xd3ca0000, 0x04021908}, exact), false);
    // v_smfmac_f32_16x16x64_bf16 v[0:3], v[8:11], v[12:19], v20
    Register("smfmac_f32_16x16x64_bf16" + mode, Repeat({0xd3b90000, 0x04521908}, exact), false);
    // v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[8:13], v[16:21], v[0:3], v32, v33 cbsz:2 blgp:2
    Register("mfma_scale_16x16x128_fp6" + mode,
             Repeat({0xd3ac0000, 0x00024320, 0xd3ad0a00, 0x44022108}, exact), false);
  }
  // v_mfma_i32_16x16x64_i8 v[0:3], v[8:11], v[12:15], v[0:3]
  Register("mfma_i32_16x16x64_i8", Repeat({0xd3b60000, 0x04021908}), false);
  // v_mfma_f32_16x16x4_f32 v[0:3], v8, v12, v[0:3]
  Register("mfma_f32_16x16x4_f32", Repeat({0xd3c50000, 0x04021908}), false);
  // v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[12:13], v[0:7]
  Register("mfma_f64_16x16x4_f64", Repeat({0xd3ee0000, 0x04021908}), false);
  // v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[8:11], v[12:15], v[0:3], v32, v33 cbsz:4 blgp:4
  Register("mfma_scale_16x16x128_fp4", Repeat({0xd3ac0000, 0x00024320, 0xd3ad0c00, 0x84021908}),
           false);
  // v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[8:15], v[16:23], v[0:3], v32, v33
  Register("mfma_scale_16x16x128_fp8", Repeat({0xd3ac0000, 0x00024320, 0xd3ad0800, 0x04022108}),
           false);
  // s_nop 0
  Register("one/s_nop", Repeat({0xbf800000}), false);
  // s_add_u32 s4, s5, s6
  Register("one/s_add_u32", Repeat({0x80040605}), false);
  // v_lshlrev_b32_e32 v4, 16, v5
  Register("one/v_lshlrev_b32", Repeat({0x24080a90}), false);
  // v_add_u32_e32 v4, s5, v5
  Register("one/v_add_u32", Repeat({0x68080a05}), false);
  // v_add_f32_e32 v4, v5, v6
  Register("one/v_add_f32", Repeat({0x02080d05}), false);
  // v_fmac_f32_e32 v4, v5, v6
  Register("one/v_fmac_f32", Repeat({0x76080d05}), false);
  // v_max_f32_e32 v4, v5, v6
  Register("one/v_max_f32", Repeat({0x16080d05}), false);
  // v_exp_f32_e32 v4, v5
  Register("one/v_exp_f32", Repeat({0x7e084105}), false);
  // v_pk_fma_f32 v[8:9], v[10:11], v[12:13], v[8:9]
  Register("one/v_pk_fma_f32", Repeat({0xd3b04008, 0x1c22190a}), false);
  // v_add_f32_dpp v8, v9, v10 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1
  Register("one/v_add_f32_dpp", Repeat({0x021014fa, 0xff091109}), false);
  // v_lshl_add_u64 v[10:11], v[10:11], 0, s[20:21]
  Register("one/v_lshl_add_u64", Repeat({0xd208000a, 0x0051010a}), false);
  // v_cmp_gt_u32_e32 vcc, s14, v1
  Register("one/v_cmp_gt_u32", Repeat({0x7d98020e}), false);
  // v_cndmask_b32_e32 v4, v5, v6, vcc
  Register("one/v_cndmask_b32", Repeat({0x00080d05}), false);
  // ds_read_b128 v[4:7], v64
  Register("one/ds_read_b128", Repeat({0xd9fe0000, 0x04000040}), false);
}

}  // namespace
}  // namespace mainarch::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  mainarch::bench::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
