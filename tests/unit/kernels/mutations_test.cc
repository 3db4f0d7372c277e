// SPDX-License-Identifier: MIT
//
// The checkers' scores on the shipped kernels: every wait, wait state, fence, scope bit and barrier
// that a case executes is taken away, one at a time, and a checker must notice. Prints a table.
// A mutant that no checker notices is equivalent only if the unmutated kernel, watched by Evidence,
// shows that the instruction does nothing on any path that runs; otherwise it is missed, and listed
// with its place and what it did.
// One mutant of every fourth kernel by default, of a kernel of both ISAs on one of them: eight seeds have all kernels. N of each
// kernel with MAINARCH_MUTATIONS=N, all of them with MAINARCH_MUTATIONS=all;
// MAINARCH_MUTATIONS_SEED chooses the sample, MAINARCH_MUTATIONS_KERNEL=name keeps to one kernel,
// MAINARCH_MUTATIONS_KIND=text to what has the text in its name in the table,
// MAINARCH_MUTATIONS_LIST=1 prints every equivalent one with its reason.
#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "sim/isa/check/nops.h"
#include "sim/isa/decode.h"
#include "support/test.h"
#include "unit/kernels/coverage.h"
#include "unit/kernels/evidence.h"
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
  uint64_t va = 0;      // in the loaded object
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

// `labels`: where jumps go to.
std::vector<Mutant> MutantsOf(const std::string& isa, absl::Span<const uint8_t> elf,
                              std::set<uint64_t>* labels) {
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
          const bool aligns = inst.name() == "s_nop" &&
                              Decode(IsaOf(isa), elf.subspan(from + offset + inst.size, 16), &next) && next.size == 16;
          if (inst.row->family == Family::kSopp && absl::StrContains(inst.name(), "branch")) {
            labels->insert(symbol.st_value + offset + 4 +
                           static_cast<uint64_t>(int64_t{inst.offset} * 4));
          }
          Mutant base;
          base.kernel = names + symbol.st_name;
          base.offset = offset;
          base.at = from + offset;
          base.va = symbol.st_value + offset;
          const size_t before = out.size();
          Break(inst, aligns, base, &out);
          for (size_t i = before; i < out.size(); ++i) out[i].text = Print(IsaOf(isa), inst);
        }
        offset += inst.size;
      }
    }
  }
  return out;
}

struct Score {
  int tried = 0, flagged = 0, equivalent = 0;
};

// One object and its kernels' cases.
class Run {
 public:
  Run(const std::string& isa, absl::Span<const uint8_t> elf, const std::vector<Case>& all)
      : isa_(isa), shipped_(elf), elf_(elf.begin(), elf.end()), all_(all) {}

  // What the checkers say of the object with the mutant in it; empty when nothing.
  std::string Flag(const Mutant& mutant) {
    Bytes broken = elf_;
    std::memcpy(broken.data() + mutant.at, mutant.words.data(), mutant.words.size() * 4);
    const auto objects = [&](const std::string& isa,
                             const std::string& kernel) -> StatusOr<absl::Span<const uint8_t>> {
      ASSIGN_OR_RETURN(const isa::KernelRef found, isa::FindKernel(isa, kernel));
      ASSIGN_OR_RETURN(const isa::KernelRef ours, isa::FindKernel(isa, mutant.kernel));
      if (found.image == ours.image) return absl::Span<const uint8_t>(broken);
      return found.image->bytes;
    };
    for (Watched& watched : Cases(mutant.kernel)) {
      if (!SeenOf(&watched).Executed(mutant.va)) continue;
      ExecutorOptions options;
      options.limit = watched.Limit();
      const Status status =
          RunFresh(*watched.test, isa_, options, objects, nullptr, sim::isa::CheckOptions::All());
      if (absl::StrContains(status.message(), "checker: ") ||
          absl::StrContains(status.message(), "illegal instruction")) {
        return std::string(status.message());
      }
    }
    return "";
  }
  void Labels(std::set<uint64_t> labels) { labels_ = std::move(labels); }
  bool Executed(const Mutant& mutant) {
    std::vector<Watched>& cases = Cases(mutant.kernel);
    return std::any_of(cases.begin(), cases.end(),
                       [&](Watched& watched) { return SeenOf(&watched).Executed(mutant.va); });
  }
  // Why the mutant is equivalent; "" and what the instruction did when it is not.
  std::string WhyEquivalent(const Mutant& mutant, std::string* did) {
    std::string why;
    // A fence that has nothing to do needs no scope; a flag does.
    if (mutant.kind == Kind::kScope && !absl::StartsWith(mutant.text, "buffer_")) return why;
    for (Watched& watched : Cases(mutant.kernel)) {
      if (!SeenOf(&watched).Executed(mutant.va)) continue;
      Watch(&watched);
      const std::string here = watched.evidence->WhyNothing(mutant.va);
      if (here.empty()) {
        *did = watched.test->name + ": " + watched.evidence->WhatItDid(mutant.va);
        return "";
      }
      if (why.empty() || here.size() > why.size()) why = here;
    }
    return why;
  }

 private:
  // A case unmutated: what of the object it runs, and what it takes.
  struct Watched {
    const Case* test;
    std::unique_ptr<Coverage> seen;      // null before SeenOf
    uint64_t spent = 0;                  // wave-instructions
    std::unique_ptr<Evidence> evidence;  // null before Watch

    // Who has taken many times that waits for something that does not come.
    uint64_t Limit() const { return std::min<uint64_t>(3'000'000, 50'000 + 8 * spent); }
  };
  // Runs the case when it is asked for the first time: mostly the smallest of a kernel's tell all.
  const Coverage& SeenOf(Watched* watched) {
    if (watched->seen != nullptr) return *watched->seen;
    Coverage& seen = *(watched->seen = std::make_unique<Coverage>(shipped_));
    ExecutorOptions options;
    options.most = &watched->spent;
    options.loaded = [&](uint64_t base, uint64_t end, absl::Span<const uint8_t> object) {
      seen.Loaded(base, end, object);
    };
    (void)RunFresh(*watched->test, isa_, options, Shipped, nullptr, {}, &seen);
    return seen;
  }
  void Watch(Watched* watched) {
    if (watched->evidence != nullptr) return;
    Evidence& evidence = *(watched->evidence = std::make_unique<Evidence>(shipped_));
    evidence.Labels(labels_);
    ExecutorOptions options;
    options.mapped = [&](uint64_t begin, uint64_t end, bool cached) { evidence.Mapped(begin, end, cached); };
    options.loaded = [&](uint64_t base, uint64_t end, absl::Span<const uint8_t> object) {
      evidence.Loaded(base, end, object);
    };
    (void)RunFresh(*watched->test, isa_, options, Shipped, nullptr, {}, &evidence);
  }
  std::vector<Watched>& Cases(const std::string& kernel) {
    auto [found, fresh] = cases_.try_emplace(kernel);
    if (!fresh) return found->second;
    for (const Case& test : all_) {
      if (!IsFor(test, isa_)) continue;
      const bool uses = std::any_of(test.steps.begin(), test.steps.end(), [&](const auto& step) {
        return std::any_of(step.begin(), step.end(),
                           [&](const LaunchSpec& l) { return l.kernel == kernel && !l.aids; });
      });
      if (uses) found->second.push_back({&test, nullptr, 0, nullptr});
    }
    // Small ones first: most of what is broken shows there.
    const auto bytes = [](const Watched& watched) {
      size_t sum = 0;
      for (const Buffer& b : watched.test->buffers) sum += b.initial.size();
      return sum;
    };
    std::stable_sort(found->second.begin(), found->second.end(),
                     [&](const Watched& a, const Watched& b) { return bytes(a) < bytes(b); });
    return found->second;
  }

  const std::string isa_;
  const absl::Span<const uint8_t> shipped_;
  std::set<uint64_t> labels_;
  const Bytes elf_;
  const std::vector<Case>& all_;
  std::map<std::string, std::vector<Watched>> cases_;
};

// Kernels take turns: with one seed in eight it is one ISA's, with the next the other's.
bool IsInTurn(const std::string& isa, const std::string& kernel, uint64_t seed) {
  for (const char c : kernel) seed += static_cast<uint8_t>(c);
  return seed % 8 == (isa == "gfx942" ? 0 : 1);
}

TEST(what_is_taken_away_is_noticed) {
  const char* mode = std::getenv("MAINARCH_MUTATIONS");
  const bool all = mode != nullptr && std::string(mode) == "all";
  const int sample = mode == nullptr || all ? 1 : std::max(1, std::atoi(mode));
  const char* only = std::getenv("MAINARCH_MUTATIONS_KERNEL");
  const char* kind = std::getenv("MAINARCH_MUTATIONS_KIND");
  const char* text = std::getenv("MAINARCH_MUTATIONS_SEED");
  const uint64_t seed = text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
  const bool list = std::getenv("MAINARCH_MUTATIONS_LIST") != nullptr;
  const bool turns = mode == nullptr && only == nullptr;
  std::map<std::string, std::array<Score, static_cast<size_t>(Kind::kCount)>> scores;
  std::map<std::string, int> reasons;
  std::set<std::string> kernels;
  Random random(seed);
  const std::vector<Case>& cases = MadeCases();
  for (const isa::KernelImage& image : isa::KernelImages()) {
    const std::string isa(image.isa);
    Run run(isa, image.bytes, cases);
    std::map<std::string, int> left;  // of the sample, by kernel
    std::set<uint64_t> labels;
    std::vector<Mutant> mutants = MutantsOf(isa, image.bytes, &labels);
    run.Labels(std::move(labels));
    for (size_t i = mutants.size(); i > 1; --i)
      std::swap(mutants[i - 1], mutants[random.Next() % i]);
    for (const Mutant& mutant : mutants) {
      if (only != nullptr && mutant.kernel != only) continue;
      if (turns && !IsInTurn(isa, mutant.kernel, seed)) continue;
      if (kind != nullptr && !absl::StrContains(kKindNames[static_cast<int>(mutant.kind)], kind)) {
        continue;
      }
      if (!all && left.try_emplace(mutant.kernel, sample).first->second == 0) continue;
      if (!run.Executed(mutant)) continue;
      const std::string found = run.Flag(mutant);
      --left[mutant.kernel];
      kernels.insert(isa + mutant.kernel);
      Score& score = scores[isa][static_cast<size_t>(mutant.kind)];
      ++score.tried;
      score.flagged += !found.empty();
      if (!found.empty()) continue;
      std::string did;
      const std::string why = run.WhyEquivalent(mutant, &did);
      score.equivalent += !why.empty();
      if (!why.empty())
        ++reasons[absl::StrCat(kKindNames[static_cast<int>(mutant.kind)], ": ", why)];
      if (!why.empty() && !list) continue;
      std::cout << "# " << (why.empty() ? "missed" : "equivalent") << ": " << isa << " "
                << mutant.kernel << "+0x" << std::hex << mutant.offset << std::dec << " "
                << kKindNames[static_cast<int>(mutant.kind)] << ": " << mutant.text << ": "
                << (why.empty() ? did : why) << std::endl;
    }
  }
  std::cout << "# seed " << seed << ", " << kernels.size() << " kernels"
            << (all ? ", all mutants\n" : ", a sample of each\n");
  for (const auto& [why, count] : reasons)
    std::cout << "# " << count << " equivalent, " << why << "\n";
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
  // A sample has too few of one kind to tell 95 % of it: there the others are one.
  for (size_t k = 2; k < std::size(total) && !all; ++k) {
    total[1].tried += std::exchange(total[k].tried, 0);
    total[1].flagged += std::exchange(total[k].flagged, 0);
  }
  for (size_t k = 0; k < std::size(total); ++k) {
    const int bound = k == 0 ? 99 : 95;
    CHECK_LE(total[k].tried * bound, total[k].flagged * 100);
  }
}

}  // namespace
}  // namespace mainarch::kernels_test
