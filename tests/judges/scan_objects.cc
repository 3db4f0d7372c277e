// SPDX-License-Identifier: MIT
//
// Code objects that others compiled, looked at without running them: does each load, is each of its
// instructions known and carried out, and which rules of wait states does it break, in program
// order, in each of the two settings. Takes paths on standard input; prints one line an object:
// the path, "loads" or "refused", instructions, unknown ones, those that are not carried out, and
// rule:setting=count for each broken rule.
//
// Jumps are not followed: behind one that is always taken, nothing is remembered. So what is found
// is found on a path that can run, where the fall-through can.
#include <array>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "gpu/code_object.h"
#include "sim/isa/check/nops.h"
#include "sim/isa/program.h"

namespace mainarch::sim::isa {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;

struct Scan {
  uint64_t instructions = 0, unknown = 0, absent = 0;
  std::string first_unknown;
  std::array<std::array<uint64_t, 2>, static_cast<size_t>(Hazard::kCount)> broken = {};
};

class Scanner {
 public:
  explicit Scanner(Isa isa) : isa_(isa), set_(isa, LaneCode::kPortable) {}

  void Code(absl::Span<const uint8_t> code, Scan* scan) const {
    NopCheck checks[2] = {NopCheck(false), NopCheck(true)};
    for (size_t at = 0; at + 4 <= code.size();) {
      Op op;
      if (!Decode(isa_, code.subspan(at), &op.inst)) {
        ++scan->unknown;
        if (scan->first_unknown.empty()) scan->first_unknown = absl::StrCat("0x", absl::Hex(at));
        for (NopCheck& check : checks) check.Forget();
        at += 4;
        continue;
      }
      ++scan->instructions;
      op.descriptor = set_.Find(*op.inst.row);
      if (op.descriptor == nullptr) {
        ++scan->absent;
      } else {
        Check(checks, at, op, scan);
      }
      if (Leaves(op.inst)) {
        for (NopCheck& check : checks) check.Forget();
      }
      at += op.inst.size;
    }
  }

 private:
  void Check(NopCheck (&checks)[2], size_t at, const Op& op, Scan* scan) const {
    const Effects effects = table_.Of(op);
    for (size_t known = 0; known < 2; ++known) {
      HazardFinding finding;
      if (!checks[known].Issue(isa_, at, op, effects, &finding)) continue;
      ++scan->broken[static_cast<size_t>(finding.rule->hazard)][known];
    }
  }
  static bool Leaves(const Inst& inst) {
    const absl::string_view name = inst.name();
    return name == "s_branch" || name == "s_endpgm" || name == "s_setpc_b64" ||
           name == "s_swappc_b64";
  }

  const Isa isa_;
  const InstructionSet set_;
  const EffectsTable table_;
};

// The executable segments of a 64-bit ELF file that gpu::CodeObject has let through, or not.
std::vector<absl::Span<const uint8_t>> Executable(absl::Span<const uint8_t> elf) {
  std::vector<absl::Span<const uint8_t>> result;
  const auto word = [&](size_t at, size_t size) {
    uint64_t value = 0;
    if (at + size <= elf.size()) std::memcpy(&value, elf.data() + at, size);
    return value;
  };
  const size_t headers = word(0x20, 8), size = word(0x36, 2), count = word(0x38, 2);
  for (size_t i = 0; i < count; ++i) {
    const size_t at = headers + i * size;
    const uint64_t offset = word(at + 8, 8), bytes = word(at + 0x20, 8);
    if (word(at, 4) != 1 || (word(at + 4, 4) & 1) == 0) continue;
    if (offset <= elf.size() && bytes <= elf.size() - offset)
      result.push_back(elf.subspan(offset, bytes));
  }
  return result;
}

int Main() {
  const Scanner scanners[] = {Scanner(Isa::kGfx942), Scanner(Isa::kGfx950)};
  std::string path;
  while (std::getline(std::cin, path)) {
    const StatusOr<std::string> read = ReadWholeFile(path, kMostBytes);
    if (!read.ok()) {
      std::printf("%s unreadable: %s\n", path.c_str(),
                  std::string(read.status().message()).c_str());
      continue;
    }
    const auto bytes =
        absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(read->data()), read->size());
    const StatusOr<gpu::CodeObject> object = gpu::CodeObject::Parse(path, bytes);
    // EF_AMDGPU_MACH of the ELF header's flags: 0x4c gfx942, 0x4f gfx950.
    const bool newer = bytes.size() > 0x30 && bytes[0x30] == 0x4f;
    Scan scan;
    for (const auto& code : Executable(bytes)) scanners[newer].Code(code, &scan);
    std::string line = absl::StrCat(path, object.ok() ? " loads " : " refused ", scan.instructions,
                                    " ", scan.unknown, " ", scan.absent);
    for (const HazardRule& rule : HazardRules()) {
      for (size_t known = 0; known < 2; ++known) {
        const uint64_t count = scan.broken[static_cast<size_t>(rule.hazard)][known];
        if (count != 0)
          absl::StrAppend(&line, " ", rule.name, known ? ":known=" : ":strict=", count);
      }
    }
    if (!object.ok()) absl::StrAppend(&line, " # ", object.status().message());
    if (!scan.first_unknown.empty()) absl::StrAppend(&line, " # unknown at ", scan.first_unknown);
    std::printf("%s\n", line.c_str());
  }
  return 0;
}

}  // namespace
}  // namespace mainarch::sim::isa

int main() { return mainarch::sim::isa::Main(); }
