// SPDX-License-Identifier: MIT
//
// Matrix instructions in whole blocks (AVX2, AVX-512) against the plain loops of the portable lane
// code, bit for bit: every instruction, fast and exact mode, whatever bits its sources hold, with
// broadcasts between blocks and lanes, and with results that lie over their own sources. What the
// portable code computes matrix_test.cc and matrix_edges_test.cc compare with their own sums.
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "support/test.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_isa/machine.h"
#include "unit/sim_isa/matrix_vectors.h"

namespace mainarch::sim::isa::test {
namespace {

constexpr int kRegisters = 202;

// A register's bits: any, or numbers of a few sizes, or what is special in one of the formats.
uint32_t DrawWord(std::mt19937& random, int kind) {
  static constexpr uint32_t kSpecial[] = {
      0,          0x80000000, 0x3f800000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001,
      0x00000001, 0x807fffff, 0x7f7fffff, 0x7c007c00, 0xfc007c01, 0x03ff8001, 0x7f807f80,
      0xff80ff81, 0x807f007f, 0x7f7fffff, 0x7c7dfcff, 0x80808080, 0x7bfb7b7b, 0x01018181};
  switch (kind) {
    case 0:  // each byte near 1 in fp8, each half in f16 and bf16, each dword in f32
      return 0x3c3c3c3c ^ (random() & 0x83838383);
    case 1:
      return random() % 3 == 0 ? kSpecial[random() % std::size(kSpecial)] : random();
    case 2:  // mostly small: sums cancel
      return random() % 2 == 0 ? 0 : random() & 0xbfbfbfbf;
    default:
      return random();
  }
}

bool IsNan(uint32_t x) { return (x & 0x7fffffff) > 0x7f800000; }

struct Subject {
  std::string text;
  bool is_double, has_exact;
};

// Runs `words` on the same registers with both; what differs, or nothing.
std::string Compare(Rig& plain, Rig& fast, const Subject& subject,
                    const std::vector<uint32_t>& words, std::mt19937& random, bool exact,
                    int* ran) {
  const int kind = static_cast<int>(random() % 4);
  for (int r = 0; r < kRegisters; ++r) {
    for (int lane = 0; lane < kLanes; ++lane) {
      uint32_t x = DrawWord(random, kind);
      if (r >= 200 && random() % 4 != 0) x = 0x7f7f7f7f ^ (x & 0x07070707);  // scales near 1
      plain.V(r, lane) = fast.V(r, lane) = x;
    }
  }
  for (Rig* rig : {&plain, &fast}) {
    rig->group().exact_matrix = exact;
    rig->wave().mode = kind % 2 == 0 ? 0xf0 : 0;
    rig->wave().set_exec(0x5);
  }
  const auto* bytes = reinterpret_cast<const uint8_t*>(words.data());
  const bool went = plain.Step(bytes, 4 * words.size());
  if (went != fast.Step(bytes, 4 * words.size())) {
    return absl::StrCat(subject.text, ": only one ran");
  }
  if (!went) return "";
  ++*ran;
  for (int r = 0; r < kRegisters; ++r) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint32_t x = plain.V(r, lane), y = fast.V(r, lane);
      // Of several NaN operands the host's compiler chooses the one whose payload stays; the exact
      // mode makes its own.
      const bool payload = exact && subject.has_exact;
      if (x == y || (!payload && IsNan(x) && IsNan(y))) continue;
      if (subject.is_double) {
        const int high = r | 1;
        if (IsNan(plain.V(high, lane)) && IsNan(fast.V(high, lane))) continue;
      }
      return absl::StrCat(subject.text, exact ? " exact" : " fast", " kind ", kind, " words ",
                          absl::Hex(words[0]), " ", absl::Hex(words[1]), ": v", r, " lane ", lane,
                          ": ", absl::Hex(y), ", not ", absl::Hex(x));
    }
  }
  return "";
}

// CBSZ, ABID and BLGP of a plain instruction, drawn: broadcasts, or negation for f64.
void DrawFields(std::mt19937& random, std::vector<uint32_t>* words) {
  (*words)[0] = ((*words)[0] & ~(0x7fu << 8)) | (random() & 0x7f) << 8;
  (*words)[1] = ((*words)[1] & ~(7u << 29)) | (random() & 7) << 29;
}
// The result over C, over part of C, or over A.
void DrawOverlap(std::mt19937& random, std::vector<uint32_t>* words) {
  static constexpr uint32_t kPlaces[] = {64, 68, 0, 2, 32, 130};
  (*words)[0] = ((*words)[0] & ~255u) | kPlaces[random() % std::size(kPlaces)];
}

TEST(blocks_have_the_bits_of_plain_loops) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  for (const LaneCode lanes : {LaneCode::kAvx2, LaneCode::kAvx512}) {
    if (!Runs(lanes)) {
      std::cout << "# " << (lanes == LaneCode::kAvx2 ? "AVX2" : "AVX-512") << ": not on this CPU\n";
      continue;
    }
    for (const Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
      std::vector<Subject> subjects;
      std::string source, error;
      for (const Instruction& in : MatrixInstructions(isa)) {
        for (int f = 0; f < (in.mx ? 5 : 1); ++f) {
          for (const int g : {f, 4 - f}) {
            for (const bool scaled : {false, true}) {
              if (!in.mx && (scaled || g != f)) continue;
              const std::string text = Text(in, f, in.mx ? g : 0, scaled);
              const bool exact = in.mx || (in.type == Type::kFloat && in.a != &kF32);
              subjects.push_back({text.substr(0, text.find('\n')), in.type == Type::kDouble, exact});
              source += text;
            }
          }
        }
      }
      const std::vector<uint8_t> code = Assemble(isa, source, &error);
      CHECK_EQ(error, "");
      Rig plain(isa, LaneCode::kPortable), fast(isa, lanes);
      std::mt19937 random(13);
      size_t at = 0;
      int wrong = 0, ran = 0;
      for (const Subject& subject : subjects) {
        Inst inst;
        CHECK(Decode(isa, absl::MakeConstSpan(code).subspan(at), &inst));
        std::vector<uint32_t> words(inst.size / 4);
        std::memcpy(words.data(), code.data() + at, inst.size);
        at += inst.size;
        const bool mx = words.size() > 2 || subject.text.find("f8f6f4") != std::string::npos;
        for (int turn = 0; turn < 12; ++turn) {
          std::vector<uint32_t> drawn = words;
          if (turn % 3 == 1 && !mx) DrawFields(random, &drawn);
          if (turn % 3 == 2 && !mx) DrawOverlap(random, &drawn);
          const std::string what = Compare(plain, fast, subject, drawn, random, turn >= 6, &ran);
          if (!what.empty() && ++wrong < 12) {
            std::cout << "# " << CpuName(isa) << " " << what << "\n";
          }
        }
      }
      std::cout << "# " << CpuName(isa) << ": " << subjects.size() << " forms, " << ran
                << " compared\n";
      CHECK_EQ(wrong, 0);
      CHECK_GT(ran, static_cast<int>(8 * subjects.size()));
    }
  }
}

}  // namespace
}  // namespace mainarch::sim::isa::test
