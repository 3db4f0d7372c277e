// SPDX-License-Identifier: MIT
//
// The checkers proven by mutation: kernels pass unchanged, and removing any executed s_waitcnt or
// s_barrier that matters is noticed.
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "sim/isa/check/checker.h"
#include "support/test.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_isa/machine.h"

namespace mainarch::sim::isa::test {
namespace {

uint64_t P(const void* p) { return reinterpret_cast<uint64_t>(p); }

struct Subject {
  const char* file;
  std::function<bool(Machine&, Machine::Options)> run;
};

std::vector<Subject> Subjects() {
  return {
      {"integers",
       [](Machine& m, Machine::Options o) {
         auto *a = m.New<int64_t>(256), *b = m.New<int64_t>(256), *out = m.New<int64_t>(256 * 8);
         for (int i = 0; i < 256; ++i) a[i] = i * 12345, b[i] = i + 1;
         o.grid = o.workgroup = {256, 1, 1};
         return m.Run("integers", {P(a), P(b), P(out), 256}, o);
       }},
      {"floats",
       [](Machine& m, Machine::Options o) {
         auto *a = m.New<float>(128), *b = m.New<float>(128), *out = m.New<float>(128 * 12);
         auto* wide = m.New<double>(128 * 4);
         for (int i = 0; i < 128; ++i) a[i] = 1.0f + i, b[i] = 3.0f + i;
         o.grid = o.workgroup = {128, 1, 1};
         return m.Run("floats", {P(a), P(b), P(out), P(wide), 128}, o);
       }},
      {"reduce",
       [](Machine& m, Machine::Options o) {
         auto *in = m.New<float>(4096), *out = m.New<float>(8);
         auto* ints = m.New<uint32_t>(2048);
         o.grid = o.workgroup = {256, 1, 1};
         return m.Run("reduce", {P(in), P(out), P(ints), 4096}, o);
       }},
      {"matrix",
       [](Machine& m, Machine::Options o) {
         auto *a = m.New<uint16_t>(1024), *b = m.New<uint16_t>(1024);
         auto* out = m.New<float>(6 * 1024);
         auto* wide = m.New<double>(256);
         auto* ints = m.New<int32_t>(256);
         return m.Run("matrix", {P(a), P(b), P(out), P(wide), P(ints)}, o);
       }},
  };
}

struct Score {
  int tried = 0, flagged = 0;
};

// Replaces each executed instruction of opcode `op` of SOPP by s_nop in turn.
void Mutate(const Subject& subject, Isa isa, const std::string& path, uint32_t op, Score* score) {
  Machine probe(isa, BestLaneCode());
  Machine::Options options;
  Checker checker(CheckOptions::All());
  const auto watch = checker.Watch({});
  options.observer = watch.get();
  if (!probe.Load(path) || !subject.run(probe, options)) return;
  for (uint64_t offset : probe.Executed(op)) {
    Machine machine(isa, BestLaneCode());
    if (!machine.Load(path)) return;
    machine.Patch(offset, 0xbf800000);
    options.budget = 20'000'000;
    const bool ended = subject.run(machine, options);
    ++score->tried;
    if (!ended && machine.result.reason == StopReason::kCheck)
      ++score->flagged;
    else
      std::cout << "# missed: " << subject.file << " " << CpuName(isa) << " at +0x" << std::hex
                << offset << std::dec << "\n";
  }
}

TEST(unchanged_kernels_raise_nothing_and_mutated_ones_do) {
  if (!HaveTool("clang-22") || !HaveTool("ld.lld-22")) SKIP("clang-22 is not installed");
  Score waits, barriers;
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    for (const Subject& subject : Subjects()) {
      for (const char* level : {"-O1", "-O3"}) {
        std::string error;
        const std::string path = CompileKernels(isa, subject.file, level, &error);
        CHECK_NE(path, "");
        Machine machine(isa, BestLaneCode());
        CHECK(machine.Load(path));
        Machine::Options options;
        Checker checker(CheckOptions::All());
        const auto watch = checker.Watch({});
        options.observer = watch.get();
        if (!subject.run(machine, options)) {
          test_context.Fail(__FILE__, __LINE__,
                            std::string(subject.file) + level + ": " + machine.error());
          return;
        }
        Mutate(subject, isa, path, 12, &waits);
        Mutate(subject, isa, path, 10, &barriers);
      }
    }
  }
  std::cout << "# s_waitcnt removed: " << waits.flagged << " of " << waits.tried << " flagged\n"
            << "# s_barrier removed: " << barriers.flagged << " of " << barriers.tried
            << " flagged\n";
  CHECK_LT(100, waits.tried);
  CHECK_LE(waits.tried * 99, waits.flagged * 100);
  CHECK_LE(barriers.tried * 95, barriers.flagged * 100);
}

}  // namespace
}  // namespace mainarch::sim::isa::test
