// SPDX-License-Identifier: MIT
//
// The checkers' scores on the shipped kernels: every wait, wait state, fence, scope bit and barrier
// that a case executes is taken away, one at a time, and a checker must notice. Prints a table.
// Every eighth mutant by default, all of them with MAINARCH_MUTATIONS=all; MAINARCH_MUTATIONS_SEED
// chooses which eighth, MAINARCH_MUTATIONS_KERNEL=name keeps to one kernel. What is missed is
// listed with its place.
#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>

#include "absl/strings/match.h"
#include "sim/isa/check/nops.h"
#include "sim/isa/decode.h"
#include "support/test.h"
#include "unit/kernels/run_fresh.h"

namespace mainarch::kernels_test {
namespace {

using sim::isa::Family;
using sim::isa::Inst;

enum class Kind { kWait, kNop, kFence, kScope, kBarrier, kCount };
constexpr const char* kKindNames[] = {"s_waitcnt", "s_nop", "fence", "scope bits", "s_barrier"};

struct Mutant {
  std::string kernel;
  uint64_t offset = 0;  // from the kernel's first instruction
  uint64_t at = 0;      // in the file
  Kind kind = Kind::kWait;
  std::vector<uint32_t> words;
  std::string text;
};

sim::isa::Isa IsaOf(const std::string& isa) {
  return isa == "gfx942" ? sim::isa::Isa::kGfx942 : sim::isa::Isa::kGfx950;
}

constexpr uint32_t kNop0 = 0xbf800000, kNothing = kNop0 | sim::isa::kNoStates;

// The ways to break one instruction.
// `aligns`: a nop in front of an instruction of 16 bytes, which the compiler puts on 8 bytes.
void Break(const Inst& inst, bool aligns, Mutant base, std::vector<Mutant>* out) {
  const absl::string_view n = inst.name();
  const auto add = [&](Kind kind, std::vector<uint32_t> words) {
    base.kind = kind;
    base.words = std::move(words);
    out->push_back(base);
  };
  if (n == "s_waitcnt") add(Kind::kWait, {kNothing});
  if (n == "s_barrier") add(Kind::kBarrier, {kNothing});
  if (n == "s_nop" && !aligns) {
    add(Kind::kNop,
        {inst.offset & 15 ? kNop0 | ((static_cast<uint32_t>(inst.offset) & 15) - 1) : kNothing});
  }
  if (n == "buffer_wbl2" || n == "buffer_inv") {
    add(Kind::kFence, {kNothing, kNothing});
    if (inst.sc0 && inst.sc1) {
      add(Kind::kScope, {inst.words[0] & ~(1u << 14), inst.words[1]});  // agent instead of system
    }
  }
  if (inst.row->family == Family::kGlobal &&
      (inst.sc1 || (inst.sc0 && !absl::StrContains(n, "atomic")))) {
    const uint32_t sc0 = 1 << 16, sc1 = 1 << 25;
    const bool atomic = absl::StrContains(n, "atomic");
    add(Kind::kScope, {inst.words[0] & ~(atomic ? sc1 : sc0 | sc1), inst.words[1]});
    if (!atomic && inst.sc0 && inst.sc1) add(Kind::kScope, {inst.words[0] & ~sc0, inst.words[1]});
  }
}

std::vector<Mutant> MutantsOf(const std::string& isa, absl::Span<const uint8_t> elf) {
  std::vector<Mutant> out;
  Elf64_Ehdr header;
  std::memcpy(&header, elf.data(), sizeof header);
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), elf.data() + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  for (const Elf64_Shdr& s : sections) {
    if (s.sh_type != SHT_DYNSYM) continue;
    const char* names = reinterpret_cast<const char*>(elf.data() + sections[s.sh_link].sh_offset);
    for (uint64_t at = 0; at < s.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, elf.data() + s.sh_offset + at, sizeof symbol);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
      const Elf64_Shdr& text = sections[symbol.st_shndx];
      const uint64_t from = symbol.st_value - text.sh_addr + text.sh_offset;
      for (uint64_t offset = 0; offset < symbol.st_size;) {
        Inst inst, next;
        if (Decode(IsaOf(isa), elf.subspan(from + offset, 16), &inst)) {
          const bool aligns =
              Decode(IsaOf(isa), elf.subspan(from + offset + inst.size, 16), &next) &&
              next.size == 16;
          Mutant base;
          base.kernel = names + symbol.st_name;
          base.offset = offset;
          base.at = from + offset;
          base.text = Print(IsaOf(isa), inst);
          Break(inst, aligns, base, &out);
        }
        offset += inst.size;
      }
    }
  }
  return out;
}

// Mutants that change nothing on any path that a case executes, so that no checker may flag them:
// at most so many of a kind, an ISA and a kernel, and why.
struct Equivalent {
  const char* kernel;
  Kind kind;
  int count;
  const char* why;
};
constexpr Equivalent kEquivalents[] = {
    {"resident", Kind::kBarrier, 5,
     "the command is polled, read and relayed by one wave; after the grid barrier the next "
     "command's "
     "barriers follow at once; an op's last barrier"},
    {"resident", Kind::kFence, 2,
     "after the grid barrier the next command's acquire follows at once, and the release before "
     "'done' finds everything written back by the grid barrier's"},
    {"resident", Kind::kScope, 2, "the same release; on gfx942 the mailbox is uncached"},
    {"resident", Kind::kWait, 6, "waits in front of a release when the wave has waited already"},
    {"ping_pong", Kind::kWait, 3, "the same"},
    {"ping_pong", Kind::kBarrier, 1, "an op leaves LDS with a barrier; here nothing follows"},
    {"stream_read", Kind::kBarrier, 1, "the same"},
    {"rmsnorm_f32_bf16", Kind::kBarrier, 1, "the same"},
    {"bf16_mfma_f32", Kind::kBarrier, 1, "the same"},
    {"mxfp4_mfma_f32", Kind::kBarrier, 1, "the same"},
    {"mxfp4_scaled", Kind::kWait, 1, "vmcnt(1) right in front of vmcnt(0)"},
    {"pick", Kind::kWait, 1, "for loads of a path that joins here"},
    {"rmsnorm_f32_bf16", Kind::kWait, 2, "for loads of a path that joins here"},
    {"ping_pong", Kind::kNop, 1, "for a path that joins here"},
    {"resident", Kind::kNop, 2, "for a path that joins here"},
    {"rmsnorm_f32_bf16", Kind::kNop, 1, "for a path that joins here"},
};

struct Score {
  int tried = 0, flagged = 0, equivalent = 0;
};

using Excused = std::map<std::string, int>;
bool IsEquivalent(const std::string& isa, const Mutant& mutant, Excused* excused) {
  for (const Equivalent& e : kEquivalents) {
    if (mutant.kernel != e.kernel || mutant.kind != e.kind) continue;
    const std::string key =
        absl::StrCat(isa, " ", e.kernel, " ", kKindNames[static_cast<int>(e.kind)]);
    return ++(*excused)[key] <= e.count;
  }
  return false;
}

class Run {
 public:
  Run(const std::string& isa, absl::Span<const uint8_t> elf)
      : isa_(isa), elf_(elf.begin(), elf.end()) {}

  // What the checkers say of the object with `words` at `at`; empty when nothing.
  std::string Flag(const Mutant& mutant, const std::vector<uint32_t>& words) {
    Bytes broken = elf_;
    std::memcpy(broken.data() + mutant.at, words.data(), words.size() * 4);
    const auto objects = [&](const std::string& isa,
                             const std::string& kernel) -> StatusOr<absl::Span<const uint8_t>> {
      ASSIGN_OR_RETURN(const isa::KernelRef found, isa::FindKernel(isa, kernel));
      ASSIGN_OR_RETURN(const isa::KernelRef ours, isa::FindKernel(isa, mutant.kernel));
      if (found.image == ours.image) return absl::Span<const uint8_t>(broken);
      return found.image->bytes;
    };
    ExecutorOptions options;
    options.limit = 3'000'000;
    for (const Case* test : Cases(mutant.kernel)) {
      const Status status =
          RunFresh(*test, isa_, options, objects, nullptr, sim::isa::CheckOptions::All());
      if (absl::StrContains(status.message(), "checker: ") ||
          absl::StrContains(status.message(), "illegal instruction")) {
        return std::string(status.message());
      }
    }
    return "";
  }
  // Whether any case runs the instruction: an illegal one in its place stops it.
  bool Executed(const Mutant& mutant) { return !Flag(mutant, {0xffffffff}).empty(); }

 private:
  const std::vector<const Case*>& Cases(const std::string& kernel) {
    if (all_.empty()) all_ = AllCases();
    auto [found, fresh] = cases_.try_emplace(kernel);
    if (!fresh) return found->second;
    for (const Case& test : all_) {
      if (!IsFor(test, isa_)) continue;
      for (const auto& step : test.steps) {
        const bool uses = std::any_of(step.begin(), step.end(),
                                      [&](const LaunchSpec& l) { return l.kernel == kernel; });
        if (uses && (found->second.empty() || found->second.back() != &test)) {
          found->second.push_back(&test);
        }
      }
    }
    return found->second;
  }

  const std::string isa_;
  const Bytes elf_;
  std::vector<Case> all_;
  std::map<std::string, std::vector<const Case*>> cases_;
};

TEST(what_is_taken_away_is_noticed) {
  const char* mode = std::getenv("MAINARCH_MUTATIONS");
  const bool all = mode != nullptr && std::string(mode) == "all";
  const char* only = std::getenv("MAINARCH_MUTATIONS_KERNEL");
  const char* text = std::getenv("MAINARCH_MUTATIONS_SEED");
  const uint64_t seed = text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
  std::map<std::string, std::array<Score, static_cast<size_t>(Kind::kCount)>> scores;
  Excused excused;
  Random random(seed);
  for (const isa::KernelImage& image : isa::KernelImages()) {
    const std::string isa(image.isa);
    Run run(isa, image.bytes);
    for (const Mutant& mutant : MutantsOf(isa, image.bytes)) {
      if (!all && random.Next() % 8 != 0) continue;
      if (only != nullptr && mutant.kernel != only) continue;
      // Scored when asked for: which of its mutants are equivalent is not listed yet.
      const bool chooses = mutant.kernel.compare(0, 7, "choose_") == 0;
      const bool unlisted = (image.name == "decoder" && !chooses) ||
                            mutant.kernel.compare(0, 9, "fidelity_") == 0;
      if (unlisted && !all && only == nullptr) continue;
      const std::string found = run.Flag(mutant, mutant.words);
      if (found.empty() && !run.Executed(mutant)) continue;
      Score& score = scores[isa][static_cast<size_t>(mutant.kind)];
      ++score.tried;
      score.flagged += !found.empty();
      if (!found.empty()) continue;
      if (IsEquivalent(isa, mutant, &excused)) {
        ++score.equivalent;
        continue;
      }
      std::cout << "# missed: " << isa << " " << mutant.kernel << "+0x" << std::hex << mutant.offset
                << std::dec << " " << kKindNames[static_cast<int>(mutant.kind)] << ": "
                << mutant.text << "\n";
    }
  }
  std::cout << "# seed " << seed << (all ? ", all mutants\n" : ", an eighth of the mutants\n");
  Score total[static_cast<size_t>(Kind::kCount)];
  for (const auto& [isa, row] : scores) {
    for (size_t k = 0; k < row.size(); ++k) {
      std::cout << "# " << isa << " " << kKindNames[k] << ": " << row[k].flagged << " of "
                << row[k].tried - row[k].equivalent << " flagged, " << row[k].equivalent
                << " equivalent\n";
      total[k].tried += row[k].tried - row[k].equivalent;
      total[k].flagged += row[k].flagged;
    }
  }
  for (size_t k = 0; k < std::size(total); ++k) {
    const int bound = k == 0 ? 99 : 95;
    CHECK_LE(total[k].tried * bound, total[k].flagged * 100);
  }
}

}  // namespace
}  // namespace mainarch::kernels_test
