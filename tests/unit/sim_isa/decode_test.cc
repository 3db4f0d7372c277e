// SPDX-License-Identifier: MIT
//
// The decoder against LLVM's disassembler: mnemonic, length and operands of random valid encodings
// of every row of the table, for both ISAs.
#include "sim/isa/decode.h"

#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "support/test.h"
#include "unit/sim_isa/llvm.h"

namespace mainarch::sim::isa::test {
namespace {

struct Fixed {
  uint64_t value, mask;
};

// The encoding bits of each family, from the ISA manual's microcode formats.
Fixed FixedBits(Family family, uint64_t op) {
  const auto f = [](uint64_t value, int low, int width) {
    return Fixed{value << low, ((uint64_t{1} << width) - 1) << low};
  };
  const auto join = [](std::initializer_list<Fixed> list) {
    Fixed all = {0, 0};
    for (const Fixed& x : list) all = {all.value | x.value, all.mask | x.mask};
    return all;
  };
  switch (family) {
    case Family::kSop2:
      return join({f(2, 30, 2), f(op, 23, 7)});
    case Family::kSopk:
      return join({f(0xb, 28, 4), f(op, 23, 5)});
    case Family::kSop1:
      return join({f(0x17d, 23, 9), f(op, 8, 8)});
    case Family::kSopc:
      return join({f(0x17e, 23, 9), f(op, 16, 7)});
    case Family::kSopp:
      return join({f(0x17f, 23, 9), f(op, 16, 7)});
    case Family::kVop2:
      return join({f(0, 31, 1), f(op, 25, 6)});
    case Family::kVop1:
      return join({f(0x3f, 25, 7), f(op, 9, 8)});
    case Family::kVopc:
      return join({f(0x3e, 25, 7), f(op, 17, 8)});
    case Family::kVop3:
      return join({f(0x34, 26, 6), f(op, 16, 10)});
    case Family::kVop3p:
      return join({f(0x1a7, 23, 9), f(op, 16, 7)});
    case Family::kSmem:
      return join({f(0x30, 26, 6), f(op, 18, 8)});
    case Family::kDs:
      return join({f(0x36, 26, 6), f(op, 17, 8)});
    case Family::kMubuf:
      return join({f(0x38, 26, 6), f(op, 18, 7)});
    case Family::kMtbuf:
      return join({f(0x3a, 26, 6), f(op, 15, 4)});
    case Family::kFlat:
      return join({f(0x37, 26, 6), f(op, 18, 7), f(0, 14, 2)});
    case Family::kScratch:
      return join({f(0x37, 26, 6), f(op, 18, 7), f(1, 14, 2)});
    default:
      return join({f(0x37, 26, 6), f(op, 18, 7), f(2, 14, 2)});
  }
}

using Random = std::mt19937_64;

// Random words of the row; often not valid, so the caller asks the decoder.
void RandomWords(const OpRow& row, Random& random, uint32_t words[4]) {
  const Fixed fixed = FixedBits(row.family, row.op);
  uint64_t w = random();
  w = (w & ~fixed.mask & ~MasksOf(row).refused) | fixed.value;
  const uint64_t r = random();
  const bool vop32 =
      row.family == Family::kVop1 || row.family == Family::kVop2 || row.family == Family::kVopc;
  const bool scalar =
      row.family == Family::kSop1 || row.family == Family::kSop2 || row.family == Family::kSopc;
  if ((scalar || vop32) && r % 8 == 2) w |= 0xff;  // a literal
  if (vop32 && r % 8 == 2) w &= ~0x100ull;
  if (vop32 && r % 8 < 2) w = (w & ~0x1ffull) | (r % 2 ? 249 : 250);
  if (row.family == Family::kVop3p && r % 4) w |= uint64_t{1} << 40 | uint64_t{1} << 49;
  if (row.family == Family::kVop3 && r % 4 == 0) w |= uint64_t{1} << 40 | uint64_t{1} << 49;
  if (row.family >= Family::kFlat) {
    if (row.family == Family::kFlat)
      w &= ~(0x7full << 48 | 1u << 12);
    else if (r % 3 == 0)
      w |= 0x7full << 48;
    if (r % 5 < 3) w &= ~(0xffull << 56 | 1u << 16);
  }
  if (row.family == Family::kSopp && r % 2) w &= ~0xffffull;
  words[0] = static_cast<uint32_t>(w);
  words[1] = static_cast<uint32_t>(w >> 32);
  if (vop32) {
    words[1] = static_cast<uint32_t>(random());
    if (r % 2) {
      words[1] &= 0x77ffffff;  // src1 select below 7 more often
      if (row.family == Family::kVop1) words[1] &= 0x00ffffff;
      words[1] &= ~MasksOf(row).sdwa_refused & ~0x40400000u;
    } else {
      words[1] &= ~MasksOf(row).dpp_refused & ~0x00060000u;
    }
  }
  if (!vop32 || r % 8 >= 2) {
    // Literals that an inline constant could carry, and their neighbours.
    static constexpr uint32_t kEdges[] = {
        0,          1,          64,         65,         0xffffffff, 0xfffffff0,
        0xffffffef, 0xffff,     0x3f800000, 0x3e22f983, 0xc0800000, 0x3c00,
        0xc400,     0x3118,     0x13c00,    0x3f000001, 0xfff0,     0x12340040,
        0x3ff00000, 0x40100000, 0x3f80,     0x3e22};
    if (r >> 40 & 3 && words[1] != 0 && (words[0] & (vop32 ? 0x1ff : 0xff)) == 255 &&
        (vop32 || scalar)) {
      words[1] = kEdges[(r >> 42) % std::size(kEdges)];
    }
  }
  words[2] = static_cast<uint32_t>(random());
  words[3] = static_cast<uint32_t>(random());
}

void RandomScaledMfma(Random& random, uint32_t words[4]) {
  const uint64_t r = random();
  words[0] = 0xd3ac0000 | (r & 0x7800);
  words[1] = (256 | (r >> 16 & 255)) | (256 | (r >> 24 & 255)) << 9 | (r >> 32 & 3) << 27;
  const uint64_t q = random();
  words[2] = 0xd3ad0000 + (q & 0x10000) + (1 << 11) + (q & 0x87ff);
  words[3] = static_cast<uint32_t>(q >> 32) | 256 | 256 << 9;
}

struct Corpus {
  std::vector<uint8_t> code;
  std::vector<uint64_t> instructions;  // where each starts
  size_t rows_reached = 0, rows = 0;
};

void Append(Isa isa, const uint32_t words[4], Corpus* corpus, bool* accepted) {
  Inst inst;
  const auto* bytes = reinterpret_cast<const uint8_t*>(words);
  *accepted = Decode(isa, {bytes, 16}, &inst);
  if (!*accepted) return;
  corpus->instructions.push_back(corpus->code.size());
  corpus->code.insert(corpus->code.end(), bytes, bytes + inst.size);
}

Corpus MakeCorpus(Isa isa, int per_row) {
  Corpus corpus;
  Random random(static_cast<int>(isa));
  for (const OpRow& row : Rows()) {
    if (!(row.isas & static_cast<int>(isa))) continue;
    ++corpus.rows;
    int made = 0;
    for (int tries = 0; tries < per_row * 100 && made < per_row; ++tries) {
      uint32_t words[4];
      RandomWords(row, random, words);
      bool accepted;
      Append(isa, words, &corpus, &accepted);
      made += accepted;
    }
    if (made > 0)
      ++corpus.rows_reached;
    else
      std::cout << "# no valid encoding found: " << row.name << "\n";
  }
  for (int i = 0; isa == Isa::kGfx950 && i < 100 * per_row; ++i) {
    uint32_t words[4];
    RandomScaledMfma(random, words);
    bool accepted;
    Append(isa, words, &corpus, &accepted);
  }
  return corpus;
}

Inst At(Isa isa, const Corpus& corpus, uint64_t at) {
  Inst inst;
  Decode(isa, absl::MakeConstSpan(corpus.code).subspan(at), &inst);
  return inst;
}

void Compare(mainarch::test::Context& test_context, Isa isa, int per_row) {
  if (!HaveTool("llvm-objdump-22")) SKIP("llvm-objdump-22 is not installed");
  const Corpus corpus = MakeCorpus(isa, per_row);
  CHECK_EQ(corpus.rows_reached, corpus.rows);
  const Listing listing = Disassemble(isa, corpus.code);
  CHECK_EQ(listing.error, "");
  size_t wrong = 0;
  std::string last;
  for (uint64_t at : corpus.instructions) {
    const Inst inst = At(isa, corpus, at);
    const auto found = listing.text.find(at);
    const std::string theirs =
        found == listing.text.end() ? "(no instruction here)" : found->second;
    const std::string ours = Print(isa, inst);
    if (theirs == ours) continue;
    ++wrong;
    if (wrong < 200 && last != inst.row->name) {
      std::cout << "# " << std::hex << inst.words[0] << " " << inst.words[1] << std::dec << ": "
                << ours << " | llvm: " << theirs << "\n";
      last = inst.row->name;
    }
  }
  std::cout << "# " << CpuName(isa) << ": " << corpus.instructions.size() << " instructions of "
            << corpus.rows << " rows, " << wrong << " mismatches\n";
  CHECK_EQ(wrong, 0u);
}

TEST(decode_agrees_with_llvm_on_gfx942) { Compare(test_context, Isa::kGfx942, 360); }
TEST(decode_agrees_with_llvm_on_gfx950) { Compare(test_context, Isa::kGfx950, 360); }

// 32 codes of four bits are four registers, and may be the last ones; as e4m3 they would be eight.
TEST(a_matrix_of_four_bits_may_lie_in_the_last_registers) {
  // v_mfma_scale_f32_16x16x128_f8f6f4 v[222:225], v[250:253], a[24:31], v[194:197], v121, v127, as LLVM 22 made it.
  for (const auto& [word, valid] : {std::pair{0xd3ad0cdeu, true}, std::pair{0xd3ad08deu, false}}) {
    const uint32_t words[4] = {0xd3ac0000, 0x0002ff79, word, 0x170a31fa};
    std::vector<uint8_t> bytes(sizeof words);
    std::memcpy(bytes.data(), words, sizeof words);
    Inst inst;
    CHECK_EQ(Decode(Isa::kGfx950, bytes, &inst), valid);
    if (valid) CHECK_EQ(inst.operands[1].width, 4);
  }
}

// Cutting a valid instruction short is refused, never read past its end.
TEST(decode_refuses_truncated_words) {
  const Corpus corpus = MakeCorpus(Isa::kGfx950, 2);
  for (uint64_t at : corpus.instructions) {
    const Inst inst = At(Isa::kGfx950, corpus, at);
    for (size_t n = 0; n < inst.size; ++n) {
      std::vector<uint8_t> cut(corpus.code.begin() + at, corpus.code.begin() + at + n);
      Inst ignored;
      CHECK(!Decode(Isa::kGfx950, cut, &ignored));
    }
  }
}

}  // namespace
}  // namespace mainarch::sim::isa::test
