// SPDX-License-Identifier: MIT
//
// Matrix instructions at the edges of their formats: NaNs, infinities, denormals, zeroes of both
// signs, the largest values, and scales from one end of E8M0 to the other, against sums in double
// (f64: long double). What the manual says is checked: a NaN of A, B, C or a scale, zero times
// infinity, and infinities of both signs give a NaN; any other infinity is the result; denormals of
// small formats and of the sum are values like others, f32 ones of A and B unless MODE flushes
// them. What it does not say is not: which NaN comes out, the sign of a zero, how the sum is
// rounded on its way (a bound is), and what a sum is whose parts overflow with both signs.
#include <cmath>
#include <cstring>
#include <iostream>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "support/test.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_isa/matrix_vectors.h"

namespace mainarch::sim::isa::test {
namespace {

using Wide = long double;

struct Run {
  Instruction in;
  int cbsz = 0, blgp = 0;
  bool scaled = false, exact = false, flush = false;
  Small a = {}, b = {};
};

// Codes worth a look: specials rarely, or every sum would be one.
class Edges {
 public:
  Edges(const Run& run, std::mt19937& random) : run_(run), random_(random) {}

  uint64_t Code(const Small& f) {
    if (run_.in.type == Type::kDouble) return Double();
    const uint32_t mantissa = (1u << f.mantissa_bits) - 1, sign = Bits(1) << (f.bits - 1);
    const uint32_t top = (1u << f.exponent_bits) - 1;
    if (Bits(32) % (3 * static_cast<uint32_t>(run_.in.k)) == 0) return Special(f, sign);
    if (Bits(32) % (2 * static_cast<uint32_t>(run_.in.k)) == 0) return sign | Largest(f);
    switch (Bits(3)) {
      case 0:
        return f.kind == Small::kFnuz ? 0 : sign;  // a zero
      case 1:
        return sign | 1;  // the least denormal
      case 2:
        return sign | mantissa;  // the largest one
      case 3:
        return sign | 1u << f.mantissa_bits;  // the least normal one
      case 4:
        return sign | static_cast<uint32_t>(f.bias) << f.mantissa_bits;  // 1
      default: {
        // Within 2^12 of 1, so that neither products nor sums overflow.
        const int e = f.bias + static_cast<int>(Bits(5)) % 25 - 12;
        const uint32_t exponent = static_cast<uint32_t>(
            std::min(std::max(e, 0), static_cast<int>(top) - (f.kind == Small::kFinite ? 0 : 1)));
        return sign | exponent << f.mantissa_bits | (Bits(32) & mantissa);
      }
    }
  }
  uint64_t Accumulator() {
    if (run_.in.type == Type::kDouble) return Double();
    const uint32_t kind = Bits(5);
    if (kind == 0) return Special(kF32, Bits(1) << 31);
    if (kind == 1) return Bits(1) << 31 | 0x7f7fffff;
    if (kind < 8) return Bits(32) & 0x807fffff;  // denormals and zeroes
    return Bits(1) << 31 | (107 + Bits(5)) << 23 | (Bits(32) & 0x7fffff);
  }
  uint32_t Scale() {
    switch (Bits(32) % 12) {
      case 0:
        return 0;
      case 1:
        return 254;
      case 2:
        return Bits(3) == 0 ? 255 : 127;  // NaN
      default:
        return Bits(32) % 255;
    }
  }

 private:
  uint32_t Bits(int count) { return static_cast<uint32_t>(random_()) & (~0u >> (32 - count)); }
  uint32_t Largest(const Small& f) const {
    const uint32_t all = (1u << (f.bits - 1)) - 1;
    if (f.kind == Small::kOcpFp8) return all - 1;
    if (f.kind == Small::kIeee) return all - (1u << f.mantissa_bits);
    return all;
  }
  uint32_t Special(const Small& f, uint32_t sign) {
    const uint32_t top = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
    if (f.kind == Small::kFnuz) return 1u << (f.bits - 1);
    if (f.kind == Small::kOcpFp8) return sign | top | ((1u << f.mantissa_bits) - 1);
    if (f.kind == Small::kFinite) return sign | Largest(f);
    const bool nan = Bits(2) == 0;  // quiet or signalling
    return sign | top | (nan ? 1u << (Bits(1) != 0 ? f.mantissa_bits - 1 : 0) : 0);
  }
  uint64_t Double() {
    const uint64_t sign = uint64_t{Bits(1)} << 63;
    const uint64_t low = uint64_t{Bits(32)} << 20 | Bits(20);
    switch (Bits(32) % 24) {
      case 0:
        return sign | uint64_t{0x7ff} << 52;
      case 1:
        return sign | uint64_t{0x7ff} << 52 | 1;
      case 2:
        return sign | 0x7fefffffffffffff;
      case 3:
      case 4:
      case 5:
        return sign | low;  // denormal
      case 6:
      case 7:
        return sign;
      default:
        return sign | (uint64_t{1013} + Bits(4)) << 52 | low;
    }
  }

  const Run& run_;
  std::mt19937& random_;
};

// What a sum must be.
struct Expected {
  enum { kValue, kNan, kInfinite, kOpen } kind = kValue;
  Wide value = 0, allowed = 0;
};
class Sum {
 public:
  // `limit`: what rounds to an infinity.
  Sum(Wide start, Wide limit) : limit_(limit) { Add(start); }
  void Add(Wide term) {
    if (std::isnan(term)) nan_ = true;
    if (std::isinf(term)) (term > 0 ? plus_ : minus_) = true;
    if (!std::isfinite(term)) return;
    sum_ += term;
    (term > 0 ? positive_ : negative_) += std::fabs(term);
    largest_ = std::max(largest_, std::fabs(term));
  }
  // `parts`: how many roundings there may be, each of `unit` of the largest term or of `least`.
  Expected Get(int parts, Wide unit, Wide least) const {
    Expected out;
    if (nan_ || (plus_ && minus_)) return {Expected::kNan, 0, 0};
    const bool high = positive_ >= limit_ / 2, low = negative_ >= limit_ / 2;
    // An infinity that arithmetic makes on the way may meet one of the other sign.
    if ((high && (low || minus_)) || (low && (high || plus_))) return {Expected::kOpen, 0, 0};
    if (plus_ || minus_) return {Expected::kInfinite, plus_ ? INFINITY : -INFINITY, 0};
    out.value = sum_;
    out.allowed = parts * ((positive_ + negative_) * unit + least);
    // Near the limit either side is right, and so is one that was beyond it on the way.
    if (std::max(positive_, negative_) + out.allowed < limit_) return out;
    if (std::fabs(sum_) - out.allowed < limit_) return {Expected::kOpen, 0, 0};
    return {Expected::kInfinite, sum_ > 0 ? INFINITY : -INFINITY, 0};
  }

 private:
  Wide limit_, sum_ = 0, positive_ = 0, negative_ = 0, largest_ = 0;
  bool nan_ = false, plus_ = false, minus_ = false;
};

struct Counts {
  int values = 0, nans = 0, infinities = 0, open = 0, denormals = 0;
};

class Trial {
 public:
  Trial(Rig& rig, const Run& run, std::mt19937& random)
      : rig_(rig), run_(run), edges_(run, random) {}

  std::string Check(const uint8_t* code, size_t size, Counts* counts) {
    const Instruction& in = run_.in;
    for (int i = 0; i < kLanes; ++i) {
      for (int r = 0; r < 202; ++r) rig_.V(r, i) = 0;
    }
    rig_.group().exact_matrix = run_.exact;
    const uint32_t mode = rig_.wave().mode;
    if (run_.flush) rig_.wave().mode &= ~0x30u;
    Fill();
    const bool ran = rig_.Step(code, size);
    rig_.wave().mode = mode;
    if (!ran) return absl::StrCat(in.row->name, ": ", rig_.wave().detail);
    for (int block = 0; block < in.blocks; ++block) {
      for (int i = 0; i < in.m; ++i) {
        for (int j = 0; j < in.m; ++j) {
          const Expected want = Want(block, i, j);
          const Result p = ResultPlace(in.m, IsDouble(), block, i, j);
          const Wide got = Number(kRegister[0], p);
          if (Right(want, got, counts)) continue;
          return absl::StrCat(in.row->name, run_.exact ? " exact" : " fast", " cbsz ", run_.cbsz,
                              " blgp ", run_.blgp, run_.scaled ? " scaled" : "",
                              run_.flush ? " flush" : "", " block ", block, " (", i, ", ", j,
                              "): ", static_cast<double>(got), ", not ",
                              want.kind == Expected::kNan ? NAN : static_cast<double>(want.value),
                              " within ", static_cast<double>(want.allowed));
        }
      }
    }
    return "";
  }

 private:
  bool IsDouble() const { return run_.in.type == Type::kDouble; }
  size_t At(int block, int i, int k) const {
    return static_cast<size_t>((block * 32 + i) * run_.in.k + k);
  }
  Wide Of(const Small& f, uint64_t code) const {
    if (IsDouble()) return static_cast<Wide>(__builtin_bit_cast(double, code));
    if (f.bits == 32) {
      uint32_t bits = static_cast<uint32_t>(code);
      // xf32 reads the upper 19 bits.
      const bool cut = absl::StrContains(run_.in.row->name, "xf32");
      if (cut && (bits & 0x7fffffff) <= 0x7f800000) bits &= 0xffffe000;
      const float x = __builtin_bit_cast(float, bits);
      if (run_.flush && std::fabs(x) < 0x1p-126f) return 0;
      return x;
    }
    return Value(f, static_cast<uint32_t>(code));
  }
  Wide Number(int first, Result p) const {
    if (IsDouble()) {
      return static_cast<Wide>(
          __builtin_bit_cast(double, rig_.V(first + 2 * p.reg, p.lane) |
                                         uint64_t{rig_.V(first + 2 * p.reg + 1, p.lane)} << 32));
    }
    return __builtin_bit_cast(float, rig_.V(first + p.reg, p.lane));
  }

  void Fill() {
    const Instruction& in = run_.in;
    const int stored = in.sparse ? in.k / 2 : in.k;
    a_.resize(static_cast<size_t>(in.blocks * 32 * in.k)), b_ = a_;
    which_.assign(a_.size(), 0);
    for (int block = 0; block < in.blocks; ++block) {
      for (int i = 0; i < in.m; ++i) {
        for (int k = 0; k < stored; ++k) {
          const uint64_t code = edges_.Code(run_.a);
          const int bits = IsDouble() ? 64 : run_.a.bits;
          const Place p = SourcePlace(in.m, stored, in.blocks, block, i, k, in.mx && bits == 8);
          PutElement(rig_, kRegister[1], p, bits, code);
          a_[At(block, i, k)] = Of(run_.a, code);
          if (!in.sparse) continue;
          which_[At(block, i, k)] = (i + k) & 3;
          PutElement(rig_, kRegister[3], p, 2, static_cast<uint64_t>((i + k) & 3));
        }
        for (int k = 0; k < in.k; ++k) {
          const uint64_t code = edges_.Code(run_.b);
          const int bits = IsDouble() ? 64 : run_.b.bits;
          const Place p = SourcePlace(in.m, in.k, in.blocks, block, i, k, in.mx && bits == 8);
          PutElement(rig_, kRegister[2], p, bits, code);
          b_[At(block, i, k)] = Of(run_.b, code);
        }
      }
    }
    FillAccumulator();
    for (int lane = 0; run_.scaled && lane < kLanes; ++lane) {
      rig_.V(200, lane) = edges_.Scale() << 8;
      rig_.V(201, lane) = edges_.Scale() << 16;
    }
  }
  void FillAccumulator() {
    const Instruction& in = run_.in;
    const int first = in.sparse ? kRegister[0] : kRegister[3];
    c_.resize(static_cast<size_t>(in.blocks * 32 * 32));
    for (int block = 0; block < in.blocks; ++block) {
      for (int i = 0; i < in.m; ++i) {
        for (int j = 0; j < in.m; ++j) {
          const Result p = ResultPlace(in.m, IsDouble(), block, i, j);
          PutElement(rig_, first, {p.lane, p.reg}, IsDouble() ? 64 : 32, edges_.Accumulator());
          c_[static_cast<size_t>((block * 32 + i) * 32 + j)] = Number(first, p);
        }
      }
    }
  }
  static int Exponent(const Small& f, Wide x) {
    if (x == 0 || !std::isfinite(x)) return -126;
    return std::max(std::ilogb(x), 1 - f.bias);
  }
  // NaN for the code 255.
  Wide Scale(int reg, int shift, int i, int k) const {
    if (!run_.scaled) return 1;
    const uint32_t byte = rig_.V(reg, i + run_.in.m * (k / 32)) >> shift & 255;
    return byte == 255 ? NAN : std::ldexp(static_cast<Wide>(1), static_cast<int>(byte) - 127);
  }
  Expected Want(int block, int i, int j) const {
    const Instruction& in = run_.in;
    const Wide limit = IsDouble() ? std::ldexp(static_cast<Wide>(1), 1024) : 0x1p128L;
    const Wide start = c_[static_cast<size_t>((block * 32 + i) * 32 + j)];
    Sum sum(start, limit);
    int top = Exponent(kF32, start);
    const int stored = in.sparse ? in.k / 2 : in.k;
    for (int k = 0; k < stored; ++k) {
      const int from = in.sparse ? k / 2 * 4 + which_[At(block, i, k)] : k;
      // NaN scales stay NaN, and finite ones are exact in the wide type.
      const Wide a = a_[At(block, i, k)], b = b_[At(block, j, from)];
      const Wide scale = Scale(200, 8, i, k) * Scale(201, 16, j, k);
      sum.Add(a * b * scale);
      top = std::max(top, Exponent(run_.a, a) + Exponent(run_.b, b) + Exponent(kF32, scale));
    }
    if (IsDouble()) return sum.Get(stored + 1, 0x1p-52L, std::ldexp(static_cast<Wide>(1), -1074));
    // The published model aligns to the largest exponent, that of a zero being -126, and cuts.
    Wide least = 0x1p-149L;
    if (run_.exact) least += std::ldexp(static_cast<Wide>(1), top - 21);
    return sum.Get(stored + 1, 0x1p-23L, least);
  }
  bool Right(const Expected& want, Wide got, Counts* counts) const {
    switch (want.kind) {
      case Expected::kOpen:
        ++counts->open;
        return true;
      case Expected::kNan:
        ++counts->nans;
        return std::isnan(got);
      case Expected::kInfinite:
        ++counts->infinities;
        return got == want.value;
      default:
        break;
    }
    ++counts->values;
    counts->denormals += want.value != 0 && std::fabs(want.value) < 0x1p-126L;
    return std::fabs(got - want.value) <= want.allowed;
  }

  Rig& rig_;
  const Run& run_;
  Edges edges_;
  std::vector<Wide> a_, b_, c_;
  std::vector<int> which_;
};

std::vector<Run> RunsOf(const Instruction& in) {
  std::vector<Run> out;
  Run plain;
  plain.in = in;
  if (in.mx) {
    for (int f = 0; f < 5; ++f) {
      for (bool scaled : {false, true}) {
        plain.cbsz = f, plain.blgp = (f + 2) % 5, plain.scaled = scaled;
        plain.a = MxFormat(plain.cbsz), plain.b = MxFormat(plain.blgp);
        out.push_back(plain);
      }
    }
  } else {
    if (in.a != nullptr) plain.a = *in.a, plain.b = *in.b;
    out.push_back(plain);
  }
  const bool f32 = in.a == &kF32 && !absl::StrContains(in.row->name, "xf32");
  if (f32) {
    out.push_back(plain);
    out.back().flush = true;
  }
  // f32 and f64 are an FMA a product in both modes.
  const size_t fast = out.size();
  for (size_t i = 0; i < fast && !f32 && in.type == Type::kFloat; ++i) {
    out.push_back(out[i]);
    out.back().exact = true;
  }
  return out;
}

TEST(matrix_instructions_at_the_edges) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    std::vector<Run> runs;
    std::set<std::string> names;
    std::string source, error;
    for (const Instruction& in : MatrixInstructions(isa)) {
      if (in.type == Type::kInt) continue;  // their whole range is in matrix_test.cc
      names.insert(in.row->name);
      for (const Run& run : RunsOf(in)) {
        runs.push_back(run);
        source += Text(in, run.cbsz, run.blgp, run.scaled);
      }
    }
    const std::vector<uint8_t> code = Assemble(isa, source, &error);
    CHECK_EQ(error, "");
    int wrong = 0;
    Counts counts;
    for (LaneCode lanes : LaneCodes()) {
      Rig rig(isa, lanes);
      std::mt19937 random(12);
      size_t at = 0;
      for (const Run& run : runs) {
        Inst inst;
        CHECK(Decode(isa, absl::MakeConstSpan(code).subspan(at), &inst));
        for (int turn = 0; turn < 4; ++turn) {
          Trial trial(rig, run, random);
          const std::string what = trial.Check(code.data() + at, inst.size, &counts);
          if (!what.empty() && ++wrong < 12)
            std::cout << "# " << CpuName(isa) << " " << what << "\n";
        }
        at += inst.size;
      }
    }
    std::cout << "# " << CpuName(isa) << ": " << names.size() << " matrix mnemonics at the edges, "
              << counts.values << " sums (" << counts.denormals << " denormal), " << counts.nans
              << " NaNs, " << counts.infinities << " infinities, " << counts.open << " open\n";
    CHECK_EQ(wrong, 0);
    // Each kind often enough to mean something.
    CHECK_GT(counts.values, 20000);
    CHECK_GT(counts.denormals, 100);
    CHECK_GT(counts.nans, 5000);
    CHECK_GT(counts.infinities, 2000);
    CHECK_GT(counts.values + counts.nans + counts.infinities, 9 * counts.open);
  }
}

}  // namespace
}  // namespace mainarch::sim::isa::test
