// SPDX-License-Identifier: MIT
//
// Source lines of an object compiled with -g: the same as llvm-symbolizer says, for every
// instruction; in a checker's report; and nothing bad happens to broken tables.
#include "sim/isa/lines.h"
#include "sim/profile.h"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <random>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/isa/check/checker.h"
#include "support/test.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_isa/machine.h"

namespace mainarch::sim::isa::test {
namespace {

bool HaveTools() { return HaveTool("clang-22") && HaveTool("llvm-symbolizer-22"); }

// "file:line" of every second dword of the text, as llvm-symbolizer has it; "" for unknown.
std::vector<std::string> Symbolize(const std::string& path, const std::vector<uint64_t>& at) {
  const std::string list = mainarch::test::ScratchDirectory() + "/addresses";
  std::ofstream out(list);
  for (const uint64_t a : at) out << "0x" << std::hex << a << "\n";
  out.close();
  std::string text;
  const std::string result = list + ".lines";
  if (!RunCommand(absl::StrCat("llvm-symbolizer-22 --no-inlines --functions=none --basenames -e ",
                               path, " < ", list, " > ", result),
                  &text)) {
    return {};
  }
  std::vector<std::string> lines;
  std::ifstream in(result);
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    line = line.substr(0, line.rfind(':'));  // the column
    const bool unknown = line[0] == '?' || absl::EndsWith(line, ":0");
    lines.push_back(unknown ? "" : line);
  }
  return lines;
}

TEST(every_instructions_line_is_the_symbolizers) {
  if (!HaveTools()) SKIP("clang-22 or llvm-symbolizer-22 is not installed");
  for (const char* flags : {"-O2 -g", "-O1 -gdwarf-4", "-O3 -gline-tables-only"}) {
    std::string error;
    const std::string path = CompileKernels(Isa::kGfx950, "reduce", flags, &error);
    CHECK_EQ(error, "");
    const std::vector<uint8_t> elf = ReadBytes(path);
    const LineTable table(elf);
    CHECK(!table.empty());
    uint64_t va = 0;
    const std::vector<uint8_t> text = TextSection(elf, &va);
    std::vector<uint64_t> at;
    for (uint64_t offset = 0; offset < text.size(); offset += 4) at.push_back(va + offset);
    const std::vector<std::string> want = Symbolize(path, at);
    CHECK_EQ(want.size(), at.size());
    size_t known = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      known += !want[i].empty();
      CHECK_EQ(table.Find(at[i]), want[i]);
    }
    std::cout << "# " << flags << ": " << known << " of " << at.size() << " addresses\n";
    CHECK_LT(100u, known);  // half of the text is padding
    CHECK_EQ(table.Find(va - 4), "");
    CHECK_EQ(table.Find(~uint64_t{0}), "");
  }
}

TEST(a_node_is_given_objects) {
  if (!HaveTools()) SKIP("clang-22 or llvm-symbolizer-22 is not installed");
  std::string error;
  const std::string path = CompileKernels(Isa::kGfx942, "reduce", "-O2 -g", &error);
  CHECK_EQ(error, "");
  auto config = ParseNode("gfx942,check=all");
  CHECK_OK(config);
  for (int i = 0; i < 2; ++i) CHECK_OK(AddLines(path, &*config));
  CHECK_EQ(config->lines.size(), 2u);
  CHECK(!config->lines[1]->empty());
  for (const char* none : {"", "/nowhere", "/dev/null"}) CHECK(!AddLines(none, &*config).ok());
  CHECK_EQ(config->lines.size(), 2u);
}

TEST(a_report_names_the_line) {
  if (!HaveTools()) SKIP("clang-22 or llvm-symbolizer-22 is not installed");
  std::string error;
  const std::string path = CompileKernels(Isa::kGfx942, "reduce", "-O2 -g", &error);
  CHECK_EQ(error, "");
  const auto table = std::make_shared<const LineTable>(ReadBytes(path));
  Machine machine(Isa::kGfx942, LaneCode::kPortable);
  CHECK(machine.Load(path));
  auto *in = machine.New<float>(4096), *out = machine.New<float>(8);
  auto* ints = machine.New<uint32_t>(2048);
  const auto run = [&](bool with_lines) {
    Checker checker(CheckOptions::All());
    const auto watch = checker.Watch({});
    Machine::Options options;
    options.grid = options.workgroup = {256, 1, 1};
    options.observer = watch.get();
    if (with_lines) options.lines = {table};
    return machine.Run("reduce",
                       {reinterpret_cast<uint64_t>(in), reinterpret_cast<uint64_t>(out),
                        reinterpret_cast<uint64_t>(ints), 4096},
                       options);
  };
  CHECK(run(true));
  // The first wait goes.
  const std::vector<uint64_t> waits = machine.Executed(12);
  CHECK(!waits.empty());
  machine.Patch(waits[0], 0xbf800000);
  Machine broken(Isa::kGfx942, LaneCode::kPortable);
  CHECK(broken.Load(path));
  broken.Patch(waits[0], 0xbf800000);
  in = broken.New<float>(4096), out = broken.New<float>(8), ints = broken.New<uint32_t>(2048);
  for (const bool with_lines : {true, false}) {
    Checker checker(CheckOptions::All());
    const auto watch = checker.Watch({});
    Machine::Options options;
    options.grid = options.workgroup = {256, 1, 1};
    options.observer = watch.get();
    if (with_lines) options.lines = {table};
    CHECK(!broken.Run("reduce",
                      {reinterpret_cast<uint64_t>(in), reinterpret_cast<uint64_t>(out),
                       reinterpret_cast<uint64_t>(ints), 4096},
                      options));
    CHECK_EQ(broken.error().find("reduce.cc:") != std::string::npos, with_lines);
    CHECK_NE(broken.error().find("s_waitcnt"), std::string::npos);
  }
}

TEST(broken_tables_do_no_harm) {
  if (!HaveTools()) SKIP("clang-22 or llvm-symbolizer-22 is not installed");
  std::string error;
  for (const char* flags : {"-O2 -g", "-O1 -gdwarf-4"}) {
    const std::string path = CompileKernels(Isa::kGfx950, "reduce", flags, &error);
    CHECK_EQ(error, "");
    const std::vector<uint8_t> elf = ReadBytes(path);
    std::mt19937 random(5);
    for (int round = 0; round < 600; ++round) {
      std::vector<uint8_t> bad = elf;
      if (round % 3 == 0) bad.resize(random() % bad.size());
      // Debug sections lie in the second half; the header and the section table are hit too.
      for (int k = 0; k < 8 && !bad.empty(); ++k) {
        const size_t half = bad.size() / 2;
        const size_t at = k == 0 ? random() % std::min<size_t>(64, bad.size())
                                 : half + random() % (bad.size() - half);
        bad[at] = static_cast<uint8_t>(random());
      }
      const LineTable table(bad);
      for (uint64_t va = 0; va < 0x4000; va += 252) (void)table.Find(va);
    }
  }
}

}  // namespace
}  // namespace mainarch::sim::isa::test
