// SPDX-License-Identifier: MIT
//
// Per-thread functions in the HIP language (hip/work_*.hip), compiled by clang for both ISAs at
// every optimisation level and for the host; the words they give must be the same bits. All levels,
// ISAs and lane codes run with MAINARCH_TEST_FULL=1, otherwise a cross-section of them.
#include <dlfcn.h>

#include <cstdlib>
#include <iostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "support/test.h"
#include "unit/sim_isa/hip_machine.h"
#include "unit/sim_isa/llvm.h"

namespace mainarch::sim::isa::test {
namespace {

constexpr const char* kLevels[] = {"-O0",
                                   "-O1",
                                   "-O2",
                                   "-O3",
                                   "-Os",
                                   "-O2 -mllvm -global-isel=1 -mllvm -global-isel-abort=2",
                                   "-O3 -mcode-object-version=5",
                                   "-O2 -munsafe-fp-atomics -fPIC"};
constexpr int kThreads = 256 * 3 - 40;

// Words with all kinds of magnitudes, and corner values.
uint64_t Draw(std::mt19937_64& random) {
  static constexpr uint64_t kEdges[] = {0,
                                        1,
                                        ~0ull,
                                        0x8000000000000000,
                                        0x7fffffffffffffff,
                                        0x80000000,
                                        0x7fffffff,
                                        0xffffffff,
                                        0x100000000,
                                        0x3ff0000000000000,
                                        0x7ff0000000000000,
                                        0x3f8000003f800000,
                                        0x7f800000ff800000,
                                        0x0000000100000001,
                                        0x8000800080008000,
                                        0x7fff7fff7fff7fff,
                                        0x7fc000007fc00000};
  const uint64_t kind = random(), x = random();
  if (kind % 6 == 0) return kEdges[x % std::size(kEdges)];
  return kind % 3 == 0 ? x >> (kind >> 8 & 63) : x;
}

// What LLVM 22's GlobalISel compiles wrong, seen in its assembly: `unaligned` has v_bfe_u32 of
// width 32, which the field's five bits cannot say (the manual's result is 0), and `bytecode` keeps
// a variable that differs between lanes in an SGPR written under s_cbranch_execz.
bool Miscompiled(const std::string& level, const std::string& kernel) {
  return level.find("global-isel") != std::string::npos &&
         (kernel == "unaligned" || kernel == "bytecode");
}

struct Host {
  void* library = nullptr;
  ~Host() {
    if (library != nullptr) dlclose(library);
  }
};

std::string Compare(HipMachine& machine, const std::string& kernel, void* library) {
  using Function = void (*)(const uint64_t*, uint64_t*, int);
  const auto function = reinterpret_cast<Function>(dlsym(library, kernel.c_str()));
  const auto* words = static_cast<const int*>(dlsym(library, (kernel + "_words").c_str()));
  if (function == nullptr || words == nullptr) return kernel + ": not on the host";
  const size_t in_words = static_cast<size_t>(words[0]), out_words = static_cast<size_t>(words[1]);
  // One word more: some kernels read unaligned.
  auto* in = machine.New<uint64_t>(in_words * kThreads + 4);
  auto* out = machine.New<uint64_t>(out_words * kThreads);
  std::mt19937_64 random(std::hash<std::string>()(kernel));
  for (size_t i = 0; i < in_words * kThreads + 4; ++i) in[i] = Draw(random);
  std::vector<uint64_t> want(out_words * kThreads);
  function(in, want.data(), kThreads);
  HipMachine::Options options;
  options.blocks = {3, 1, 1};
  options.threads = {256, 1, 1};
  options.stack = 4096;
  if (!machine.Launch(kernel, HipMachine::Arguments().Add(in).Add(out).Add(int{kThreads}), options))
    return machine.error();
  for (size_t i = 0; i < want.size(); ++i) {
    if (out[i] == want[i]) continue;
    std::string inputs;
    for (size_t k = 0; k < in_words; ++k)
      absl::StrAppend(&inputs, " ", absl::Hex(in[i / out_words * in_words + k]));
    return absl::StrCat(kernel, " thread ", i / out_words, " word ", i % out_words, ": ",
                        absl::Hex(out[i]), ", the host has ", absl::Hex(want[i]), ", input",
                        inputs);
  }
  return "";
}

void RunFile(mainarch::test::Context& test_context, const std::string& file) {
  if (!HaveTool("clang-22") || !HaveTool("ld.lld-22")) SKIP("clang-22 is not installed");
  std::string error;
  const std::string host_path = CompileForHost(file, &error);
  CHECK_EQ(error, "");
  Host host;
  host.library = dlopen(host_path.c_str(), RTLD_NOW | RTLD_LOCAL);
  CHECK(host.library != nullptr);
  const bool full = std::getenv("MAINARCH_TEST_FULL") != nullptr;
  int runs = 0;
  uint64_t instructions = 0;
  std::string failures;
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    for (size_t level = 0; level < std::size(kLevels); ++level) {
      // A cross-section: each level on one ISA.
      if (!full && (level + (isa == Isa::kGfx950)) % 2 != 0) continue;
      const std::string path = CompileHip(isa, file, kLevels[level], &error);
      if (path.empty()) {
        absl::StrAppend(&failures, "\n  ", CpuName(isa), " ", kLevels[level], ": ", error);
        continue;
      }
      for (LaneCode code : {LaneCode::kPortable, BestLaneCode()}) {
        if (!full && code == LaneCode::kPortable && level % 3 != 0) continue;
        HipMachine machine(isa, code, 64 << 20);
        if (!machine.Load(path)) {
          absl::StrAppend(&failures, "\n  ", machine.error());
          continue;
        }
        // Under the checkers one level by default, all of them in the whole run.
        if (full || level == 3) machine.CheckLaunches();
        for (const gpu::CodeKernel& kernel : machine.object().kernels()) {
          if (Miscompiled(kLevels[level], kernel.name)) continue;
          const std::string what = Compare(machine, kernel.name, host.library);
          ++runs;
          instructions += machine.instructions();
          if (!what.empty()) {
            absl::StrAppend(&failures, "\n  ", CpuName(isa), " ", kLevels[level],
                            code == LaneCode::kPortable ? " portable: " : " vector: ", what);
          }
        }
      }
    }
  }
  std::cout << "# " << file << ": " << runs << " kernel runs, " << instructions
            << " wave-instructions\n";
  CHECK_EQ(failures, "");
}

TEST(integers) { RunFile(test_context, "work_int"); }
TEST(floating_point) { RunFile(test_context, "work_float"); }
TEST(control_flow_and_calls) { RunFile(test_context, "work_control"); }
TEST(data_and_layout) { RunFile(test_context, "work_data"); }

}  // namespace
}  // namespace mainarch::sim::isa::test
