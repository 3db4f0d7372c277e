// SPDX-License-Identifier: MIT
//
// SOP1, SOP2, SOPC and SOPK: scalar arithmetic, logic and comparison.
#include <cstdint>

#include "sim/isa/descriptors.h"

namespace mainarch::sim::isa {
namespace {

using u32 = uint32_t;
using i32 = int32_t;
using u64 = uint64_t;
using i64 = int64_t;

template <class T>
T Read(const Wave& w, const Ref& r) {
  if constexpr (sizeof(T) == 8)
    return static_cast<T>(w.ReadScalar64(r));
  else
    return static_cast<T>(w.ReadScalar(r));
}
template <class T>
void Write(Wave& w, const Ref& r, T value) {
  if constexpr (sizeof(T) == 8)
    w.SetPair(r.code, static_cast<u64>(value));
  else
    w.s[r.code] = static_cast<u32>(value);
}

// The result and whether SCC is to be set; SCC unchanged when there is no flag.
template <class T>
struct Flagged {
  T value;
  bool scc;
};

template <class F>
struct Sig;
template <class R, class A>
struct Sig<R (*)(A)> {
  using Result = R;
  using First = A;
  using Second = A;
  static constexpr int kCount = 1;
};
template <class R, class A, class B>
struct Sig<R (*)(A, B)> {
  using Result = R;
  using First = A;
  using Second = B;
  static constexpr int kCount = 2;
};

template <class T>
constexpr Type TypeFor() {
  return sizeof(T) == 8 ? Type::kB64 : Type::kB32;
}

// Pure functions of one or two sources; a Flagged result sets SCC.
template <auto F>
void Go(Wave& w, const Op& op) {
  using S = Sig<decltype(F)>;
  typename S::Result r;
  const auto a = Read<typename S::First>(w, op.a);
  if constexpr (S::kCount == 1)
    r = F(a);
  else
    r = F(a, Read<typename S::Second>(w, op.b));
  if constexpr (requires { r.scc; }) {
    Write(w, op.d, r.value);
    w.scc = r.scc;
  } else {
    Write(w, op.d, r);
  }
}
template <auto F>
constexpr Descriptor S(const char* name) {
  using G = Sig<decltype(F)>;
  constexpr bool kFlag = requires(typename G::Result r) { r.scc; };
  return {name,
          &Go<F>,
          {TypeFor<typename G::First>(), TypeFor<typename G::Second>(), Type::kNone, Type::kB32},
          Origin::kManual,
          static_cast<uint16_t>(kFlag ? kWritesScc : 0)};
}
constexpr Descriptor R(const char* name, Run run, Type type, uint16_t implicit = 0,
                       Origin origin = Origin::kManual) {
  return {name, run, {type, type, Type::kNone, type}, origin, implicit};
}

template <class T>
Flagged<T> NonZero(T x) {
  return {x, x != 0};
}

// --- SOP2 ----------------------------------------------------------------------------------------
Flagged<u32> AddU(u32 a, u32 b) { return {a + b, a + b < a}; }
Flagged<u32> SubU(u32 a, u32 b) { return {a - b, a < b}; }
Flagged<u32> AddI(u32 a, u32 b) { return {a + b, ((a ^ ~b) & (a ^ (a + b))) >> 31 != 0}; }
Flagged<u32> SubI(u32 a, u32 b) { return {a - b, ((a ^ b) & (a ^ (a - b))) >> 31 != 0}; }
Flagged<i32> MinI(i32 a, i32 b) { return {a < b ? a : b, a < b}; }
Flagged<u32> MinU(u32 a, u32 b) { return {a < b ? a : b, a < b}; }
// The manual: SCC = S0 >= S1 for the maxima.
Flagged<i32> MaxI(i32 a, i32 b) { return {a >= b ? a : b, a >= b}; }
Flagged<u32> MaxU(u32 a, u32 b) { return {a >= b ? a : b, a >= b}; }
template <class T>
Flagged<T> And(T a, T b) {
  return NonZero<T>(a & b);
}
template <class T>
Flagged<T> Or(T a, T b) {
  return NonZero<T>(a | b);
}
template <class T>
Flagged<T> Xor(T a, T b) {
  return NonZero<T>(a ^ b);
}
template <class T>
Flagged<T> AndN2(T a, T b) {
  return NonZero<T>(a & ~b);
}
template <class T>
Flagged<T> OrN2(T a, T b) {
  return NonZero<T>(a | ~b);
}
template <class T>
Flagged<T> Nand(T a, T b) {
  return NonZero<T>(~(a & b));
}
template <class T>
Flagged<T> Nor(T a, T b) {
  return NonZero<T>(~(a | b));
}
template <class T>
Flagged<T> Xnor(T a, T b) {
  return NonZero<T>(~(a ^ b));
}
template <class T>
Flagged<T> Lshl(T a, u32 b) {
  return NonZero<T>(a << (b & (sizeof(T) * 8 - 1)));
}
template <class T>
Flagged<T> Lshr(T a, u32 b) {
  return NonZero<T>(a >> (b & (sizeof(T) * 8 - 1)));
}
u32 Bfm32(u32 a, u32 b) { return ((1u << (a & 31)) - 1) << (b & 31); }
u64 Bfm64(u32 a, u32 b) { return ((u64{1} << (a & 63)) - 1) << (b & 63); }
u32 MulLo(u32 a, u32 b) { return a * b; }
u32 MulHiU(u32 a, u32 b) { return static_cast<u32>(u64{a} * b >> 32); }
u32 MulHiI(i32 a, i32 b) { return static_cast<u32>(i64{a} * b >> 32); }
// Offset in bits 5:0 (4:0 for 32 bits), width in 22:16.
template <class T>
Flagged<T> Bfe(T a, u32 b) {
  constexpr int kBits = sizeof(T) * 8;
  const int offset = static_cast<int>(b & (kBits - 1)), width = static_cast<int>(b >> 16 & 127);
  if (width == 0) return {0, false};
  const T shifted = a >> offset;
  if (width >= kBits) return NonZero<T>(shifted);
  using U = std::make_unsigned_t<T>;
  const U field = static_cast<U>(shifted) & ((U{1} << width) - 1);
  if constexpr (std::is_signed_v<T>) {
    const U sign = U{1} << (width - 1);
    return NonZero<T>(static_cast<T>((field ^ sign) - sign));
  }
  return NonZero<T>(static_cast<T>(field));
}
Flagged<u32> AbsDiff(i32 a, i32 b) {
  const i64 d = i64{a} - b;
  return NonZero<u32>(static_cast<u32>(d < 0 ? -d : d));
}
template <int kShift>
Flagged<u32> LshlAdd(u32 a, u32 b) {
  const u64 x = (u64{a} << kShift) + b;
  return {static_cast<u32>(x), x >> 32 != 0};
}
u32 PackLl(u32 a, u32 b) { return (a & 0xffff) | b << 16; }
u32 PackLh(u32 a, u32 b) { return (a & 0xffff) | (b & 0xffff0000); }
u32 PackHh(u32 a, u32 b) { return a >> 16 | (b & 0xffff0000); }

void AddC(Wave& w, const Op& op) {
  const u64 sum = u64{w.ReadScalar(op.a)} + w.ReadScalar(op.b) + w.scc;
  w.s[op.d.code] = static_cast<u32>(sum);
  w.scc = sum >> 32;
}
void SubB(Wave& w, const Op& op) {
  const u64 difference = u64{w.ReadScalar(op.a)} - w.ReadScalar(op.b) - w.scc;
  w.s[op.d.code] = static_cast<u32>(difference);
  w.scc = difference >> 32 & 1;
}
template <class T>
void Select(Wave& w, const Op& op) {
  Write<T>(w, op.d, w.scc ? Read<T>(w, op.a) : Read<T>(w, op.b));
}

// --- SOP1 ----------------------------------------------------------------------------------------
template <class T>
T Mov(T a) {
  return a;
}
template <class T>
void CMov(Wave& w, const Op& op) {
  if (w.scc) Write<T>(w, op.d, Read<T>(w, op.a));
}
template <class T>
Flagged<T> Not(T a) {
  return NonZero<T>(~a);
}
template <class T>
Flagged<T> Wqm(T a) {
  T r = 0;
  for (unsigned i = 0; i < sizeof(T) * 8; i += 4) {
    if (a >> i & 15) r |= T{15} << i;
  }
  return NonZero(r);
}
template <class T>
Flagged<T> QuadMask(T a) {
  T r = 0;
  for (unsigned i = 0; i < sizeof(T) * 8; i += 4) {
    if (a >> i & 15) r |= T{1} << (i / 4);
  }
  return NonZero(r);
}
template <class T>
T Brev(T a) {
  T r = 0;
  for (unsigned i = 0; i < sizeof(T) * 8; ++i) r |= (a >> i & 1) << (sizeof(T) * 8 - 1 - i);
  return r;
}
template <class T>
Flagged<u32> Bcnt0(T a) {
  return NonZero<u32>(static_cast<u32>(sizeof(T) * 8 - __builtin_popcountll(a)));
}
template <class T>
Flagged<u32> Bcnt1(T a) {
  return NonZero<u32>(static_cast<u32>(__builtin_popcountll(a)));
}
template <class T>
u32 Ff1(T a) {
  return a == 0 ? ~0u : static_cast<u32>(__builtin_ctzll(a));
}
template <class T>
u32 Ff0(T a) {
  return Ff1<T>(static_cast<T>(~a));
}
template <class T>
u32 Flbit(T a) {
  return a == 0 ? ~0u
                : static_cast<u32>(__builtin_clzll(a) - (64 - static_cast<int>(sizeof(T)) * 8));
}
u32 FlbitI32(i32 a) { return Flbit<u32>(static_cast<u32>(a ^ (a >> 31))); }
u32 FlbitI64(i64 a) { return Flbit<u64>(static_cast<u64>(a ^ (a >> 63))); }
u32 Sext8(u32 a) { return static_cast<u32>(static_cast<int8_t>(a)); }
u32 Sext16(u32 a) { return static_cast<u32>(static_cast<int16_t>(a)); }
Flagged<u32> Abs(u32 a) { return NonZero<u32>(static_cast<i32>(a) < 0 ? 0u - a : a); }
u64 BitReplicate(u32 a) {
  u64 r = 0;
  for (int i = 0; i < 32; ++i) r |= u64{a >> i & 1} * 3 << (2 * i);
  return r;
}
template <class T, bool kOne>
void BitSet(Wave& w, const Op& op) {
  Ref self = op.d;
  self.kind = Ref::kScalar;
  const T old = Read<T>(w, self), bit = T{1} << (w.ReadScalar(op.a) & (sizeof(T) * 8 - 1));
  Write<T>(w, op.d, kOne ? old | bit : old & ~bit);
}
u64 XAnd(u64 s, u64 e) { return s & e; }
u64 XOr(u64 s, u64 e) { return s | e; }
u64 XXor(u64 s, u64 e) { return s ^ e; }
u64 XAndN2(u64 s, u64 e) { return s & ~e; }
u64 XOrN2(u64 s, u64 e) { return s | ~e; }
u64 XNand(u64 s, u64 e) { return ~(s & e); }
u64 XNor(u64 s, u64 e) { return ~(s | e); }
u64 XXnor(u64 s, u64 e) { return ~(s ^ e); }
u64 XAndN1(u64 s, u64 e) { return ~s & e; }
u64 XOrN1(u64 s, u64 e) { return ~s | e; }
// D = EXEC; EXEC = S0 op EXEC. The wrexec forms put the new EXEC in D.
template <u64 (*F)(u64, u64), bool kWrexec>
void SaveExec(Wave& w, const Op& op) {
  const u64 old = w.exec(), now = F(w.ReadScalar64(op.a), old);
  w.SetPair(op.d.code, kWrexec ? now : old);
  w.set_exec(now);
  w.scc = now != 0;
}
template <class T, bool kSource>
void MovRel(Wave& w, const Op& op) {
  const u32 shift = w.s[reg::kM0];
  Ref from = op.a, to = op.d;
  (kSource ? from : to).code = static_cast<uint16_t>((kSource ? from : to).code + shift);
  if ((kSource ? from : to).code + sizeof(T) / 4 > 102) {
    w.Stop(StopReason::kIllegal, "s_movrel outside the scalar registers");
    return;
  }
  Write<T>(w, to, Read<T>(w, from));
}

// --- SOPC, SOPK ----------------------------------------------------------------------------------
template <class T, class F>
void CompareWith(Wave& w, const Op& op, F f) {
  w.scc = f(Read<T>(w, op.a), Read<T>(w, op.b));
}
#define COMPARE(name, T, expression)                            \
  void name(Wave& w, const Op& op) {                            \
    CompareWith<T>(w, op, [](T a, T b) { return expression; }); \
  }
COMPARE(EqI, i32, a == b)
COMPARE(LgI, i32, a != b)
COMPARE(GtI, i32, a > b)
COMPARE(GeI, i32, a >= b)
COMPARE(LtI, i32, a < b)
COMPARE(LeI, i32, a <= b)
COMPARE(GtU, u32, a > b)
COMPARE(GeU, u32, a >= b)
COMPARE(LtU, u32, a < b)
COMPARE(LeU, u32, a <= b)
COMPARE(Eq64, u64, a == b)
COMPARE(Lg64, u64, a != b)
#undef COMPARE
template <class T, bool kOne>
void BitCmp(Wave& w, const Op& op) {
  const T a = Read<T>(w, op.a);
  w.scc = (a >> (w.ReadScalar(op.b) & (sizeof(T) * 8 - 1)) & 1) == (kOne ? 1 : 0);
}
// SOPK compares its destination field with the immediate.
template <class F>
void CompareK(Wave& w, const Op& op, F f) {
  w.scc = f(w.s[op.d.code], op.inst.offset);
}
#define COMPAREK(name, expression)                                         \
  void name(Wave& w, const Op& op) {                                       \
    CompareK(w, op, []([[maybe_unused]] u32 x, [[maybe_unused]] i32 imm) { \
      [[maybe_unused]] const i32 s = static_cast<i32>(x);                  \
      [[maybe_unused]] const u32 u = static_cast<uint16_t>(imm);           \
      return expression;                                                   \
    });                                                                    \
  }
COMPAREK(KEqI, s == imm)
COMPAREK(KLgI, s != imm)
COMPAREK(KGtI, s > imm)
COMPAREK(KGeI, s >= imm)
COMPAREK(KLtI, s < imm)
COMPAREK(KLeI, s <= imm)
COMPAREK(KEqU, x == u)
COMPAREK(KLgU, x != u)
COMPAREK(KGtU, x > u)
COMPAREK(KGeU, x >= u)
COMPAREK(KLtU, x < u)
COMPAREK(KLeU, x <= u)
#undef COMPAREK
void MovK(Wave& w, const Op& op) { w.s[op.d.code] = static_cast<u32>(op.inst.offset); }
void CMovK(Wave& w, const Op& op) {
  if (w.scc) w.s[op.d.code] = static_cast<u32>(op.inst.offset);
}
void AddK(Wave& w, const Op& op) {
  const Flagged<u32> r = AddI(w.s[op.d.code], static_cast<u32>(op.inst.offset));
  w.s[op.d.code] = r.value;
  w.scc = r.scc;
}
void MulK(Wave& w, const Op& op) { w.s[op.d.code] *= static_cast<u32>(op.inst.offset); }

constexpr uint16_t kExecFlags = kReadsExec | kWritesExec | kWritesScc;
constexpr Descriptor X(const char* name, Run run) { return R(name, run, Type::kB64, kExecFlags); }

constexpr Descriptor kTable[] = {
    S<AddU>("s_add_u32"),
    S<SubU>("s_sub_u32"),
    S<AddI>("s_add_i32"),
    S<SubI>("s_sub_i32"),
    R("s_addc_u32", &AddC, Type::kB32, kReadsScc | kWritesScc),
    R("s_subb_u32", &SubB, Type::kB32, kReadsScc | kWritesScc),
    S<MinI>("s_min_i32"),
    S<MinU>("s_min_u32"),
    S<MaxI>("s_max_i32"),
    S<MaxU>("s_max_u32"),
    R("s_cselect_b32", &Select<u32>, Type::kB32, kReadsScc),
    R("s_cselect_b64", &Select<u64>, Type::kB64, kReadsScc),
    S<And<u32>>("s_and_b32"),
    S<And<u64>>("s_and_b64"),
    S<Or<u32>>("s_or_b32"),
    S<Or<u64>>("s_or_b64"),
    S<Xor<u32>>("s_xor_b32"),
    S<Xor<u64>>("s_xor_b64"),
    S<AndN2<u32>>("s_andn2_b32"),
    S<AndN2<u64>>("s_andn2_b64"),
    S<OrN2<u32>>("s_orn2_b32"),
    S<OrN2<u64>>("s_orn2_b64"),
    S<Nand<u32>>("s_nand_b32"),
    S<Nand<u64>>("s_nand_b64"),
    S<Nor<u32>>("s_nor_b32"),
    S<Nor<u64>>("s_nor_b64"),
    S<Xnor<u32>>("s_xnor_b32"),
    S<Xnor<u64>>("s_xnor_b64"),
    S<Lshl<u32>>("s_lshl_b32"),
    S<Lshl<u64>>("s_lshl_b64"),
    S<Lshr<u32>>("s_lshr_b32"),
    S<Lshr<u64>>("s_lshr_b64"),
    S<Lshr<i32>>("s_ashr_i32"),
    S<Lshr<i64>>("s_ashr_i64"),
    S<Bfm32>("s_bfm_b32"),
    S<Bfm64>("s_bfm_b64"),
    S<MulLo>("s_mul_i32"),
    S<Bfe<u32>>("s_bfe_u32"),
    S<Bfe<i32>>("s_bfe_i32"),
    S<Bfe<u64>>("s_bfe_u64"),
    S<Bfe<i64>>("s_bfe_i64"),
    S<AbsDiff>("s_absdiff_i32"),
    S<MulHiU>("s_mul_hi_u32"),
    S<MulHiI>("s_mul_hi_i32"),
    S<LshlAdd<1>>("s_lshl1_add_u32"),
    S<LshlAdd<2>>("s_lshl2_add_u32"),
    S<LshlAdd<3>>("s_lshl3_add_u32"),
    S<LshlAdd<4>>("s_lshl4_add_u32"),
    S<PackLl>("s_pack_ll_b32_b16"),
    S<PackLh>("s_pack_lh_b32_b16"),
    S<PackHh>("s_pack_hh_b32_b16"),
    S<Mov<u32>>("s_mov_b32"),
    S<Mov<u64>>("s_mov_b64"),
    R("s_cmov_b32", &CMov<u32>, Type::kB32, kReadsScc | kReadsDst),
    R("s_cmov_b64", &CMov<u64>, Type::kB64, kReadsScc | kReadsDst),
    S<Not<u32>>("s_not_b32"),
    S<Not<u64>>("s_not_b64"),
    S<Wqm<u32>>("s_wqm_b32"),
    S<Wqm<u64>>("s_wqm_b64"),
    S<Brev<u32>>("s_brev_b32"),
    S<Brev<u64>>("s_brev_b64"),
    S<Bcnt0<u32>>("s_bcnt0_i32_b32"),
    S<Bcnt0<u64>>("s_bcnt0_i32_b64"),
    S<Bcnt1<u32>>("s_bcnt1_i32_b32"),
    S<Bcnt1<u64>>("s_bcnt1_i32_b64"),
    S<Ff0<u32>>("s_ff0_i32_b32"),
    S<Ff0<u64>>("s_ff0_i32_b64"),
    S<Ff1<u32>>("s_ff1_i32_b32"),
    S<Ff1<u64>>("s_ff1_i32_b64"),
    S<Flbit<u32>>("s_flbit_i32_b32"),
    S<Flbit<u64>>("s_flbit_i32_b64"),
    S<FlbitI32>("s_flbit_i32"),
    S<FlbitI64>("s_flbit_i32_i64"),
    S<Sext8>("s_sext_i32_i8"),
    S<Sext16>("s_sext_i32_i16"),
    R("s_bitset0_b32", &BitSet<u32, false>, Type::kB32, kReadsDst),
    R("s_bitset0_b64", &BitSet<u64, false>, Type::kB32, kReadsDst),
    R("s_bitset1_b32", &BitSet<u32, true>, Type::kB32, kReadsDst),
    R("s_bitset1_b64", &BitSet<u64, true>, Type::kB32, kReadsDst),
    X("s_and_saveexec_b64", &SaveExec<XAnd, false>),
    X("s_or_saveexec_b64", &SaveExec<XOr, false>),
    X("s_xor_saveexec_b64", &SaveExec<XXor, false>),
    X("s_andn2_saveexec_b64", &SaveExec<XAndN2, false>),
    X("s_orn2_saveexec_b64", &SaveExec<XOrN2, false>),
    X("s_nand_saveexec_b64", &SaveExec<XNand, false>),
    X("s_nor_saveexec_b64", &SaveExec<XNor, false>),
    X("s_xnor_saveexec_b64", &SaveExec<XXnor, false>),
    X("s_andn1_saveexec_b64", &SaveExec<XAndN1, false>),
    X("s_orn1_saveexec_b64", &SaveExec<XOrN1, false>),
    X("s_andn1_wrexec_b64", &SaveExec<XAndN1, true>),
    X("s_andn2_wrexec_b64", &SaveExec<XAndN2, true>),
    S<QuadMask<u32>>("s_quadmask_b32"),
    S<QuadMask<u64>>("s_quadmask_b64"),
    R("s_movrels_b32", &MovRel<u32, true>, Type::kB32, kReadsM0),
    R("s_movrels_b64", &MovRel<u64, true>, Type::kB64, kReadsM0),
    R("s_movreld_b32", &MovRel<u32, false>, Type::kB32, kReadsM0),
    R("s_movreld_b64", &MovRel<u64, false>, Type::kB64, kReadsM0),
    S<Abs>("s_abs_i32"),
    S<BitReplicate>("s_bitreplicate_b64_b32"),
    R("s_cmp_eq_i32", &EqI, Type::kB32, kWritesScc),
    R("s_cmp_lg_i32", &LgI, Type::kB32, kWritesScc),
    R("s_cmp_gt_i32", &GtI, Type::kB32, kWritesScc),
    R("s_cmp_ge_i32", &GeI, Type::kB32, kWritesScc),
    R("s_cmp_lt_i32", &LtI, Type::kB32, kWritesScc),
    R("s_cmp_le_i32", &LeI, Type::kB32, kWritesScc),
    R("s_cmp_eq_u32", &EqI, Type::kB32, kWritesScc),
    R("s_cmp_lg_u32", &LgI, Type::kB32, kWritesScc),
    R("s_cmp_gt_u32", &GtU, Type::kB32, kWritesScc),
    R("s_cmp_ge_u32", &GeU, Type::kB32, kWritesScc),
    R("s_cmp_lt_u32", &LtU, Type::kB32, kWritesScc),
    R("s_cmp_le_u32", &LeU, Type::kB32, kWritesScc),
    R("s_cmp_eq_u64", &Eq64, Type::kB64, kWritesScc),
    R("s_cmp_lg_u64", &Lg64, Type::kB64, kWritesScc),
    R("s_bitcmp0_b32", &BitCmp<u32, false>, Type::kB32, kWritesScc),
    R("s_bitcmp1_b32", &BitCmp<u32, true>, Type::kB32, kWritesScc),
    R("s_bitcmp0_b64", &BitCmp<u64, false>, Type::kB64, kWritesScc),
    R("s_bitcmp1_b64", &BitCmp<u64, true>, Type::kB64, kWritesScc),
    R("s_movk_i32", &MovK, Type::kB32),
    R("s_cmovk_i32", &CMovK, Type::kB32, kReadsScc | kReadsDst),
    R("s_cmpk_eq_i32", &KEqI, Type::kB32, kWritesScc | kReadsDst),
    R("s_cmpk_lg_i32", &KLgI, Type::kB32, kWritesScc | kReadsDst),
    R("s_cmpk_gt_i32", &KGtI, Type::kB32, kWritesScc | kReadsDst),
    R("s_cmpk_ge_i32", &KGeI, Type::kB32, kWritesScc | kReadsDst),
    R("s_cmpk_lt_i32", &KLtI, Type::kB32, kWritesScc | kReadsDst),
    R("s_cmpk_le_i32", &KLeI, Type::kB32, kWritesScc | kReadsDst),
    R("s_cmpk_eq_u32", &KEqU, Type::kB32, kWritesScc | kReadsDst),
    R("s_cmpk_lg_u32", &KLgU, Type::kB32, kWritesScc | kReadsDst),
    R("s_cmpk_gt_u32", &KGtU, Type::kB32, kWritesScc | kReadsDst),
    R("s_cmpk_ge_u32", &KGeU, Type::kB32, kWritesScc | kReadsDst),
    R("s_cmpk_lt_u32", &KLtU, Type::kB32, kWritesScc | kReadsDst),
    R("s_cmpk_le_u32", &KLeU, Type::kB32, kWritesScc | kReadsDst),
    R("s_addk_i32", &AddK, Type::kB32, kWritesScc | kReadsDst),
    R("s_mulk_i32", &MulK, Type::kB32, kReadsDst),
};

}  // namespace

void AddScalar(DescriptorMap* map) { AddAll(kTable, map); }

}  // namespace mainarch::sim::isa
