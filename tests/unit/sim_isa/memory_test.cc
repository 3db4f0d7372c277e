// SPDX-License-Identifier: MIT
//
// Every memory instruction (DS, GLOBAL, FLAT, SCRATCH, MUBUF, MTBUF, SMEM) against a model of
// bytes: what an instruction does is read off its name here, independently of the interpreter's
// tables. Each lane has bytes of its own; after a run the whole memory and all result registers
// must agree, inactive lanes included.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <random>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "support/test.h"
#include "unit/sim_isa/llvm.h"
#include "unit/sim_isa/machine.h"

namespace mainarch::sim::isa::test {
namespace {

using Random = std::mt19937;
constexpr int kAddress = 0, kData = 32, kData2 = 48, kResult = 64;
constexpr uint32_t kOffset = 48, kSlot = 1024;  // of the instruction; bytes a lane has to itself

float F(uint32_t x) { return __builtin_bit_cast(float, x); }
uint32_t B(float x) { return __builtin_bit_cast(uint32_t, x); }
double D(uint64_t x) { return __builtin_bit_cast(double, x); }
uint64_t B(double x) { return __builtin_bit_cast(uint64_t, x); }
uint32_t AddHalf(uint32_t a, uint32_t b) {
  const auto h = [](uint32_t x) { return __builtin_bit_cast(_Float16, static_cast<uint16_t>(x)); };
  return __builtin_bit_cast(uint16_t, static_cast<_Float16>(h(a) + h(b)));
}
uint32_t AddBfloat(uint32_t a, uint32_t b) {
  // Nearest even by way of the two neighbours.
  const double exact = static_cast<double>(F(a << 16)) + F(b << 16);
  const uint32_t cut = B(static_cast<float>(exact)) & 0xffff0000;
  const double low = F(cut), high = F(cut + 0x10000);
  const double to_low = std::fabs(exact - low), to_high = std::fabs(high - exact);
  const bool up = to_high < to_low || (to_high == to_low && (cut >> 16 & 1));
  return (up ? cut + 0x10000 : cut) >> 16;
}

// What the tests below have run, for the last of them.
std::set<std::string>& Ran() {
  static std::set<std::string> names;
  return names;
}
void RanAll(const std::string& source) {
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(source, '\n')))
    Ran().insert(line.substr(0, line.find(' ')));
}

// New value of an atomic; `type` as the name ends: u32, i64, b32, f32, f16, bf16 ...
uint64_t Apply(const std::string& op, const std::string& type, uint64_t old, uint64_t x,
               uint64_t y) {
  const bool wide = absl::StrContains(type, "64");
  const uint64_t mask = wide ? ~0ull : 0xffffffffull;
  const auto sign = [wide](uint64_t v) {
    return wide ? static_cast<int64_t>(v) : static_cast<int64_t>(static_cast<int32_t>(v));
  };
  if (op == "pk_add") {
    const auto add = type == "f16" ? AddHalf : AddBfloat;
    return add(old & 0xffff, x & 0xffff) | add(old >> 16 & 0xffff, x >> 16 & 0xffff) << 16;
  }
  if (type == "f32" || type == "f64") {
    const double a = wide ? D(old) : F(static_cast<uint32_t>(old)),
                 b = wide ? D(x) : F(static_cast<uint32_t>(x));
    if (op == "cmpst") return a == b ? y : old;
    const double r =
        op == "add"
            ? (wide ? a + b : static_cast<float>(static_cast<float>(a) + static_cast<float>(b)))
        : op == "min" ? std::min(a, b)
                      : std::max(a, b);
    return wide ? B(r) : B(static_cast<float>(r));
  }
  const uint64_t o = old & mask, v = x & mask;
  if (op == "add") return (o + v) & mask;
  if (op == "sub") return (o - v) & mask;
  if (op == "rsub") return (v - o) & mask;
  if (op == "inc") return o >= v ? 0 : o + 1;
  if (op == "dec") return o == 0 || o > v ? v : o - 1;
  const bool is_signed = type[0] == 'i';
  if (op == "min") return is_signed ? (sign(o) < sign(v) ? o : v) : std::min(o, v);
  if (op == "max") return is_signed ? (sign(o) > sign(v) ? o : v) : std::max(o, v);
  if (op == "and") return o & v;
  if (op == "or") return o | v;
  if (op == "xor") return o ^ v;
  if (op == "swap" || op == "wrxchg") return v;
  if (op == "mskor") return (o & ~v) | (y & mask);
  if (op == "cmpst") return o == v ? y & mask : o;
  if (op == "wrap") return o >= v ? o - v : (o + y) & mask;
  return 0xbad;
}

// One access of a lane: bytes to read into registers or registers to write into bytes.
struct Meaning {
  enum Kind { kLoad, kStore, kAtomic, kToLds, kNothing } kind = kNothing;
  uint32_t bytes = 0;   // of one element
  int elements = 1;     // read2, write2, wrxchg2
  uint32_t stride = 0;  // between offset0's and offset1's unit
  bool is_signed = false, narrow = false, high = false, d16 = false, returns = false;
  std::string op, type;
  bool two_operands = false;  // data and data2, or a pair in one register tuple
};

Meaning LoadOrStore(absl::string_view name) {
  Meaning m;
  m.kind = absl::ConsumePrefix(&name, "load_") ? Meaning::kLoad : Meaning::kStore;
  if (m.kind == Meaning::kStore) absl::ConsumePrefix(&name, "store_");
  if (absl::ConsumePrefix(&name, "lds_")) m.kind = Meaning::kToLds;
  m.high = absl::ConsumeSuffix(&name, "_d16_hi");
  m.d16 = absl::ConsumeSuffix(&name, "_d16");
  if (absl::StartsWith(name, "dword")) {
    m.bytes = name == "dword" ? 4 : 4 * static_cast<uint32_t>(name.back() - '0');
    return m;
  }
  m.narrow = true;
  m.is_signed = name[0] == 's' && name != "short";
  m.bytes = absl::StrContains(name, "byte") ? 1 : 2;
  return m;
}

Meaning OfVector(absl::string_view name) {  // without global_, flat_, scratch_, buffer_
  if (!absl::ConsumePrefix(&name, "atomic_")) return LoadOrStore(name);
  Meaning m;
  m.kind = Meaning::kAtomic;
  const bool x2 = absl::ConsumeSuffix(&name, "_x2");
  m.type = x2 ? "u64" : "u32";
  for (const char* type : {"bf16", "f16", "f32", "f64"}) {
    if (absl::ConsumeSuffix(&name, absl::StrCat("_", type))) {
      m.type = type;
      break;
    }
  }
  m.op = std::string(name);
  if (name[0] == 's' && name.size() == 4 && name != "swap")
    m.type[0] = 'i', m.op = std::string(name.substr(1));
  if (name[0] == 'u' && name.size() == 4) m.op = std::string(name.substr(1));
  m.two_operands = m.op == "cmpswap";
  if (m.two_operands) m.op = "cmpst";
  m.bytes = absl::StrContains(m.type, "64") ? 8 : 4;
  return m;
}

Meaning OfDs(absl::string_view name) {  // without ds_
  Meaning m;
  const auto bits = [](absl::string_view t) {
    while (!t.empty() && !std::isdigit(t[0])) t.remove_prefix(1);
    return static_cast<uint32_t>(std::stoi(std::string(t)));
  };
  if (absl::StartsWith(name, "read") || absl::StartsWith(name, "write")) {
    m.kind = name[0] == 'r' ? Meaning::kLoad : Meaning::kStore;
    name.remove_prefix(m.kind == Meaning::kLoad ? 4 : 5);
    if (absl::ConsumePrefix(&name, "2")) m.elements = 2;
    m.stride = absl::ConsumePrefix(&name, "st64") ? 64 : 1;
    absl::ConsumePrefix(&name, "_");
    m.high = absl::ConsumeSuffix(&name, "_d16_hi");
    m.d16 = absl::ConsumeSuffix(&name, "_d16");
    m.is_signed = name[0] == 'i';
    m.bytes = bits(name) / 8;
    m.narrow = m.bytes < 4;
    return m;
  }
  m.kind = Meaning::kAtomic;
  const std::vector<std::string> parts = absl::StrSplit(name, '_');
  m.op = parts[0] == "pk" ? "pk_add" : parts[0];
  m.type = parts.back();
  m.returns = absl::StrContains(name, "_rtn");
  if (absl::StartsWith(m.op, "wrxchg2")) {
    m.stride = absl::StrContains(m.op, "st64") ? 64 : 1;
    m.elements = 2;
    m.op = "wrxchg";
  }
  m.two_operands = m.op == "mskor" || m.op == "cmpst" || m.op == "wrap";
  m.bytes = absl::StrContains(m.type, "64") ? 8 : 4;
  return m;
}

std::string Reg(int first, uint32_t dwords) {
  return dwords == 1 ? absl::StrCat("v", first)
                     : absl::StrCat("v[", first, ":", first + static_cast<int>(dwords) - 1, "]");
}
uint32_t WidthOf(const OpRow& row, char field) {
  for (const std::string& operand :
       std::vector<std::string>(absl::StrSplit(row.operands, ' ', absl::SkipEmpty()))) {
    if (operand[0] == field) return static_cast<uint32_t>(std::stoi(operand.substr(2)));
  }
  return 0;
}

struct Vector {
  const OpRow* row;
  Meaning meaning;
  std::string text;
  enum Space { kLds, kGlobal, kScratch } space;
  bool saddr = false;
};

// Ds rows whose meaning is no access of each lane's own bytes are tested by hand below.
const std::set<std::string> kByHand = {"ds_nop",
                                       "ds_swizzle_b32",
                                       "ds_permute_b32",
                                       "ds_bpermute_b32",
                                       "ds_append",
                                       "ds_consume",
                                       "ds_read_addtid_b32",
                                       "ds_write_addtid_b32",
                                       "ds_condxchg32_rtn_b64",
                                       "ds_read_b64_tr_b4",
                                       "ds_read_b64_tr_b8",
                                       "ds_read_b64_tr_b16",
                                       "ds_read_b96_tr_b6",
                                       "buffer_inv",
                                       "buffer_wbl2"};

std::vector<Vector> VectorsOf(const OpRow& row) {
  const std::string name = row.name;
  const uint32_t d = WidthOf(row, 'd'), data = WidthOf(row, 'D'), data2 = WidthOf(row, 'E');
  std::vector<Vector> out;
  const auto list = [](std::initializer_list<std::string> operands) {
    std::string text;
    for (const std::string& o : operands) {
      if (!o.empty()) absl::StrAppend(&text, text.empty() ? " " : ", ", o);
    }
    return text;
  };
  const std::string result = d ? Reg(kResult, d) : "", source = data ? Reg(kData, data) : "";
  const std::string offset = absl::StrCat(" offset:", kOffset);
  if (row.family == Family::kDs) {
    const Meaning m = OfDs(absl::string_view(name).substr(3));
    const std::string at = m.elements == 2 ? " offset0:1 offset1:0" : offset;
    out.push_back({&row, m,
                   name + list({result, "v0", source, data2 ? Reg(kData2, data2) : ""}) + at,
                   Vector::kLds});
    return out;
  }
  const size_t cut = name.find('_') + 1;
  Meaning m = OfVector(absl::string_view(name).substr(cut));
  const bool load = m.kind == Meaning::kLoad || m.kind == Meaning::kToLds;
  for (int variant = 0; variant < 2; ++variant) {
    m.returns = m.kind == Meaning::kAtomic && variant == 0;
    const std::string sc0 = m.returns ? " sc0" : "";
    std::string text;
    if (row.family == Family::kMubuf) {
      text = name + list({source.empty() ? Reg(kData, d) : source, "v0", "s[4:7]", "0"}) +
             " offen" + offset + sc0;
      out.push_back({&row, m, text, Vector::kGlobal});
      continue;
    }
    if (row.family == Family::kScratch) {
      if (m.kind == Meaning::kToLds) {
        text = name + list({"v0", "off"}) + offset;
      } else {
        text = name + (load ? list({result, "v0", "off"}) : list({"v0", source, "off"})) + offset;
      }
      out.push_back({&row, m, text, Vector::kScratch});
      return out;
    }
    const bool saddr = row.family == Family::kGlobal && variant == 1;
    const std::string address = saddr ? "v0" : "v[0:1]";
    const std::string base = row.family == Family::kFlat ? "" : saddr ? "s[2:3]" : "off";
    const std::string destination = m.kind == Meaning::kLoad ? result
                                    : m.returns              ? Reg(kResult, m.bytes / 4)
                                                             : "";
    if (m.kind == Meaning::kToLds)
      text = name + list({address, base}) + offset;
    else
      text = name + list({destination, address, load ? "" : source, base}) + offset + sc0;
    if (row.family == Family::kGlobal || variant == 0 || m.kind == Meaning::kAtomic) {
      out.push_back({&row, m, text, Vector::kGlobal, saddr});
    }
  }
  return out;
}

// The model and the check of one vector on a rig.
class Checker {
 public:
  Checker(Rig& rig, Random& random) : rig_(rig), random_(random) {}

  std::string Run(const Vector& v, const uint8_t* code, size_t size, uint64_t exec) {
    Prepare(v);
    rig_.wave().set_exec(exec);
    std::vector<uint8_t> lds = rig_.group().lds, memory = Memory(), scratch = rig_.group().scratch;
    std::vector<uint32_t> registers(rig_.wave().v, rig_.wave().v + 128 * kLanes);
    for (int lane = 0; lane < kLanes; ++lane) {
      if (exec >> lane & 1) Model(v, lane, &lds, &memory, &scratch, &registers);
    }
    if (!rig_.Step(code, size)) return absl::StrCat(v.text, ": ", rig_.wave().detail);
    if (rig_.group().lds != lds) return v.text + ": lds differs";
    if (Memory() != memory) return v.text + ": memory differs";
    if (rig_.group().scratch != scratch) return v.text + ": scratch differs";
    for (size_t i = 0; i < registers.size(); ++i) {
      if (rig_.wave().v[i] == registers[i]) continue;
      return absl::StrCat(v.text, ": v", i / kLanes, " lane ", i % kLanes, " is ",
                          absl::Hex(rig_.wave().v[i]), ", not ", absl::Hex(registers[i]));
    }
    return "";
  }

 private:
  std::vector<uint8_t> Memory() { return {rig_.memory(), rig_.memory() + kLanes * kSlot}; }

  uint32_t Number() {
    // Whole numbers as f32, f64's upper half and pairs of halves at once would be too much to ask:
    // moderate floats, which are also integers, halves and bfloats of no special kind.
    return B(static_cast<float>((static_cast<int>(random_() % 4001) - 2000) / 8.0f)) & 0xfffff000;
  }

  uint32_t Word() {
    static constexpr uint32_t kEdges[] = {0, 1, 0x7fffffff, 0x80000000, ~0u, 0xff, 0x8000, 0x7fff};
    return random_() % 4 == 0 ? kEdges[random_() % std::size(kEdges)] : random_();
  }

  void Prepare(const Vector& v) {
    const bool floats = absl::StrContains(v.meaning.type, "f");
    const auto fill = [&](uint8_t* p, size_t n) {
      for (size_t i = 0; i + 4 <= n; i += 4) {
        const uint32_t x = floats ? Number() : Word();
        std::memcpy(p + i, &x, 4);
      }
    };
    fill(rig_.group().lds.data(), rig_.group().lds.size());
    fill(rig_.memory(), kLanes * kSlot);
    fill(rig_.group().scratch.data(), rig_.group().scratch.size());
    for (int r = 0; r < 128; ++r) {
      for (int lane = 0; lane < kLanes; ++lane) rig_.V(r, lane) = floats ? Number() : Word();
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      // A permutation, so that neighbours' bytes are told apart.
      const uint32_t slot = static_cast<uint32_t>(lane * 37 % 64);
      const uint64_t global = reinterpret_cast<uint64_t>(rig_.memory()) + slot * kSlot;
      where_[lane] = v.space == Vector::kScratch ? 8u * (slot % 8) : slot * kSlot;
      const uint64_t address =
          v.space == Vector::kGlobal && v.row->family != Family::kMubuf && !v.saddr ? global
                                                                                    : where_[lane];
      rig_.V(kAddress, lane) = static_cast<uint32_t>(address);
      rig_.V(kAddress + 1, lane) = static_cast<uint32_t>(address >> 32);
    }
    // Half of the comparisons succeed.
    for (int lane = 0; lane < kLanes && v.meaning.op == "cmpst"; lane += 2) {
      uint8_t* const at = v.space == Vector::kLds ? rig_.group().lds.data() : rig_.memory();
      const int from =
          kData + (v.space == Vector::kLds ? 0 : static_cast<int>(v.meaning.bytes / 4));
      for (uint32_t k = 0; k < v.meaning.bytes / 4; ++k)
        std::memcpy(at + where_[lane] + kOffset + 4 * k, &rig_.V(from + static_cast<int>(k), lane),
                    4);
    }
    const uint64_t base = reinterpret_cast<uint64_t>(rig_.memory());
    rig_.wave().SetPair(2, base);
    rig_.S(4) = static_cast<uint32_t>(base);
    rig_.S(5) = static_cast<uint32_t>(base >> 32);
    rig_.S(6) = kLanes * kSlot;
    rig_.S(7) = 0;
    rig_.S(reg::kM0) = 512;
  }

  uint8_t* Bytes(const Vector& v, int lane, uint32_t offset, std::vector<uint8_t>* lds,
                 std::vector<uint8_t>* memory, std::vector<uint8_t>* scratch) {
    const size_t at = where_[lane] + offset;
    if (v.space == Vector::kLds) return lds->data() + at;
    if (v.space == Vector::kGlobal) return memory->data() + at;
    return scratch->data() + static_cast<size_t>(lane) * rig_.wave().scratch_bytes + at;
  }

  void Model(const Vector& v, int lane, std::vector<uint8_t>* lds, std::vector<uint8_t>* memory,
             std::vector<uint8_t>* scratch, std::vector<uint32_t>* registers) {
    const Meaning& m = v.meaning;
    const bool buffer = v.row->family == Family::kMubuf;
    const auto reg = [&](int r) -> uint32_t& {
      return (*registers)[static_cast<size_t>(r * kLanes + lane)];
    };
    const int result = buffer ? kData : kResult;
    // What was in the registers before: a buffer's result may overwrite its data.
    uint32_t data[8], data2[8];
    for (int k = 0; k < 8; ++k) data[k] = reg(kData + k), data2[k] = reg(kData2 + k);
    for (int e = 0; e < m.elements; ++e) {
      const uint32_t offset = m.elements == 2 ? m.bytes * m.stride * (e == 0 ? 1 : 0) : kOffset;
      uint8_t* p = Bytes(v, lane, offset, lds, memory, scratch);
      const uint32_t* from = e == 0 ? data : data2;
      const int first = result + e * static_cast<int>(m.bytes) / 4;
      if (m.kind == Meaning::kLoad && m.narrow) {
        uint32_t x = m.bytes == 1 ? p[0] : p[0] | p[1] << 8;
        if (m.is_signed)
          x = m.bytes == 1 ? static_cast<uint32_t>(static_cast<int8_t>(x))
                           : static_cast<uint32_t>(static_cast<int16_t>(x));
        uint32_t& r = reg(first);
        r = m.high ? (r & 0xffff) | x << 16 : m.d16 ? (r & 0xffff0000) | (x & 0xffff) : x;
      } else if (m.kind == Meaning::kLoad) {
        for (uint32_t k = 0; k < m.bytes / 4; ++k)
          std::memcpy(&reg(first + static_cast<int>(k)), p + 4 * k, 4);
      } else if (m.kind == Meaning::kStore) {
        uint8_t bytes[16];
        std::memcpy(bytes, from, sizeof bytes);
        std::memcpy(p, bytes + (m.high ? 2 : 0), m.bytes);
      } else if (m.kind == Meaning::kToLds) {
        uint8_t word[16] = {};
        std::memcpy(word, p, m.bytes);
        if (m.narrow && m.is_signed) {
          const int32_t x =
              m.bytes == 1 ? static_cast<int8_t>(p[0]) : static_cast<int16_t>(p[0] | p[1] << 8);
          std::memcpy(word, &x, 4);
        }
        const uint32_t slot = std::max(m.bytes, 4u);
        std::memcpy(lds->data() + 512 + kOffset + slot * static_cast<uint32_t>(lane), word, slot);
      } else {
        uint64_t old = 0, x = 0, y = 0;
        std::memcpy(&old, p, m.bytes);
        std::memcpy(&x, from, m.bytes);
        if (m.two_operands && v.row->family == Family::kDs) std::memcpy(&y, data2, m.bytes);
        // cmpswap: the new value, then the comparand.
        if (m.two_operands && v.row->family != Family::kDs) {
          y = x;
          x = 0;
          std::memcpy(&x, reinterpret_cast<const uint8_t*>(data) + m.bytes, m.bytes);
        }
        const uint64_t now = Apply(m.op, m.type, old, x, y);
        std::memcpy(p, &now, m.bytes);
        if (!m.returns) continue;
        for (uint32_t k = 0; k < m.bytes / 4; ++k)
          reg(first + static_cast<int>(k)) = static_cast<uint32_t>(old >> (32 * k));
      }
    }
  }

  Rig& rig_;
  Random& random_;
  uint32_t where_[kLanes] = {};
};

TEST(every_access_of_a_lanes_own_bytes) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    std::vector<Vector> vectors;
    std::string source, error;
    for (const OpRow& row : Rows()) {
      const Family f = row.family;
      const std::string name = row.name;
      const bool memory = f == Family::kDs || f == Family::kGlobal || f == Family::kFlat ||
                          f == Family::kScratch || f == Family::kMubuf;
      if (!memory || !(row.isas & static_cast<int>(isa)) || kByHand.count(name) ||
          absl::StrContains(name, "format"))
        continue;
      // MUBUF rows with the lds bit have the same name: their text is another test's.
      if (f == Family::kMubuf && WidthOf(row, 'D') == 0) continue;
      for (Vector& v : VectorsOf(row)) vectors.push_back(std::move(v));
    }
    for (const Vector& v : vectors) source += v.text + "\n";
    const std::vector<uint8_t> code = Assemble(isa, source, &error);
    CHECK_EQ(error, "");
    std::set<std::string> done;
    int wrong = 0;
    Random random(13);
    for (LaneCode lanes : {LaneCode::kPortable, BestLaneCode()}) {
      Rig rig(isa, lanes);
      Checker checker(rig, random);
      size_t at = 0;
      for (const Vector& v : vectors) {
        Inst inst;
        CHECK(Decode(isa, absl::MakeConstSpan(code).subspan(at), &inst));
        for (const uint64_t exec : {~0ull, 0x8421f00f5a5a1234ull}) {
          const std::string what = checker.Run(v, code.data() + at, inst.size, exec);
          if (what.empty()) continue;
          if (++wrong < 12) std::cout << "# " << CpuName(isa) << " " << what << "\n";
        }
        done.insert(v.row->name);
        Ran().insert(v.row->name);
        at += inst.size;
      }
    }
    std::cout << "# " << CpuName(isa) << ": " << done.size() << " memory mnemonics\n";
    CHECK_EQ(wrong, 0);
  }
}

// --- formatted buffer accesses -------------------------------------------------------------------

struct Format {
  const char* data;
  const char* number;
  int data_code, number_code;
  std::vector<int> bits;
};
const Format kFormats[] = {{"32_32_32_32", "FLOAT", 14, 7, {32, 32, 32, 32}},
                           {"8_8_8_8", "UNORM", 10, 0, {8, 8, 8, 8}},
                           {"16_16", "SINT", 5, 5, {16, 16}},
                           {"8_8_8_8", "SNORM", 10, 1, {8, 8, 8, 8}},
                           {"16_16_16_16", "FLOAT", 12, 7, {16, 16, 16, 16}},
                           {"32_32", "UINT", 11, 4, {32, 32}},
                           {"2_10_10_10", "UNORM", 9, 0, {10, 10, 10, 2}},
                           {"8", "USCALED", 1, 2, {8}},
                           {"10_11_11", "FLOAT", 6, 7, {11, 11, 10}}};

// Without a sign; five bits of exponent.
double SmallFloat(uint64_t raw, int bits) {
  const int mantissa = bits - 5, e = static_cast<int>(raw >> mantissa);
  const auto m = static_cast<double>(raw & ((1u << mantissa) - 1));
  return std::ldexp(e == 0 ? m * 2 : m + std::ldexp(1.0, mantissa), e - 15 - mantissa);
}


double Component(const Format& f, uint64_t raw, int bits) {
  const double top = std::ldexp(1.0, bits) - 1, half = std::ldexp(1.0, bits - 1);
  const double s = raw >= half ? static_cast<double>(raw) - 2 * half : static_cast<double>(raw);
  switch (f.number_code) {
    case 0:
      return static_cast<float>(static_cast<double>(raw) / top);
    case 1:
      return static_cast<float>(std::max(-1.0, s / (half - 1)));
    case 5:
      return s;
    case 7:
      if (bits < 16) return SmallFloat(raw, bits);
      return bits == 32
                 ? F(static_cast<uint32_t>(raw))
                 : static_cast<double>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(raw)));
    default:
      return static_cast<double>(raw);
  }
}

TEST(formatted_buffers) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  const char* const kSuffixes[] = {"x", "xy", "xyz", "xyzw"};
  std::set<std::string> done;
  std::string source, error;
  struct Step {
    const Format* format;
    bool typed, store, narrow, high;
    int count;
    std::string name;
  };
  std::vector<Step> steps;
  for (const Format& f : kFormats) {
    for (bool typed : {false, true}) {
      for (bool store : {false, true}) {
        for (int kind = 0; kind < 3; ++kind) {
          for (int count = 1; count <= (kind == 2 ? 1 : 4); ++count) {
            if (kind == 2 && typed) continue;
            // A store of fewer components than the format has writes zeroes: not asked here.
            if (store && count < static_cast<int>(f.bits.size())) continue;
            const bool narrow = kind > 0;
            if (narrow && (f.bits[0] == 32 || count > static_cast<int>(f.bits.size()))) continue;
            const std::string name =
                absl::StrCat(typed ? "tbuffer_" : "buffer_", store ? "store" : "load", "_format_",
                             kind == 0   ? ""
                             : kind == 1 ? "d16_"
                                         : "d16_hi_",
                             kSuffixes[count - 1]);
            steps.push_back({&f, typed, store, narrow, kind == 2, count, name});
            source += absl::StrCat(
                name, " ", Reg(kData, static_cast<uint32_t>(narrow ? (count + 1) / 2 : count)),
                ", v0, s[4:7], 0 ",
                typed ? absl::StrCat("format:[BUF_DATA_FORMAT_", f.data, ",BUF_NUM_FORMAT_",
                                     f.number, "] ")
                      : "",
                "offen\n");
            done.insert(name);
            Ran().insert(name);
          }
        }
      }
    }
  }
  const std::vector<uint8_t> code = Assemble(Isa::kGfx950, source, &error);
  CHECK_EQ(error, "");
  Rig rig(Isa::kGfx950);
  Random random(17);
  size_t at = 0;
  int wrong = 0;
  for (const Step& s : steps) {
    const uint64_t base = reinterpret_cast<uint64_t>(rig.memory());
    rig.S(4) = static_cast<uint32_t>(base);
    rig.S(5) = static_cast<uint32_t>(base >> 32);
    rig.S(6) = 4096;
    rig.S(7) = s.typed ? 0xfac
                       : 0xfac | static_cast<uint32_t>(s.format->number_code) << 12 |
                             static_cast<uint32_t>(s.format->data_code) << 15;
    uint32_t total = 0;
    for (const int bits : s.format->bits) total += static_cast<uint32_t>(bits);
    const bool integer = s.format->number_code == 4 || s.format->number_code == 5;
    for (int lane = 0; lane < kLanes; ++lane) {
      rig.V(kAddress, lane) = static_cast<uint32_t>(lane) * 16;
      for (int k = 0; k < 16; ++k)
        rig.memory()[lane * 16 + k] = static_cast<uint8_t>(random() & 0x7b);
    }
    // Registers hold what the memory says, read by the rule; a store must give those bytes back.
    std::vector<uint8_t> want(rig.memory(), rig.memory() + 1024);
    std::vector<uint32_t> expected(4 * kLanes);
    for (int lane = 0; lane < kLanes; ++lane) {
      uint32_t bit = 0;
      for (int k = 0; k < 4; ++k) {
        double x = k == 3 ? 1 : 0;
        if (k < static_cast<int>(s.format->bits.size())) {
          uint64_t raw = 0;
          for (int b = 0; b < s.format->bits[static_cast<size_t>(k)]; ++b, ++bit)
            raw |= uint64_t{want[static_cast<size_t>(lane) * 16 + bit / 8] >> (bit % 8) & 1u} << b;
          x = Component(*s.format, raw, s.format->bits[static_cast<size_t>(k)]);
        }
        uint32_t& r = expected[static_cast<size_t>(k * kLanes + lane)];
        r = integer ? static_cast<uint32_t>(static_cast<int64_t>(x)) : B(static_cast<float>(x));
        if (s.narrow)
          r = integer ? r & 0xffff : __builtin_bit_cast(uint16_t, static_cast<_Float16>(x));
      }
    }
    for (int r = 0; r < 4; ++r) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const auto e = [&](int k) { return expected[static_cast<size_t>(k * kLanes + lane)]; };
        uint32_t& v = rig.V(kData + r, lane);
        v = 0xdeadbeef;
        if (!s.store) continue;
        v = !s.narrow ? e(r) : s.high ? e(0) << 16 : r < 2 ? e(2 * r) | e(2 * r + 1) << 16 : 0;
      }
    }
    if (s.store) std::memset(rig.memory(), 0, 1024);
    rig.wave().set_exec(~0ull);
    CHECK(rig.Step(code.data() + at, 8));
    at += 8;
    std::string what;
    for (int lane = 0; lane < kLanes && what.empty(); ++lane) {
      for (uint32_t k = 0; s.store && k < total / 8; ++k) {
        const size_t i = static_cast<size_t>(lane) * 16 + k;
        // A half of fewer bits than the component loses some.
        const int slack = s.narrow && !integer && s.format->number_code != 7 ? 1 : 0;
        if (std::abs(int{rig.memory()[i]} - int{want[i]}) > slack &&
            !(slack && total == 32 && s.format->bits[0] == 10))
          what = absl::StrCat("byte ", i, " is ", int{rig.memory()[i]}, ", not ", int{want[i]});
      }
      for (int k = 0; !s.store && k < s.count; ++k) {
        const uint32_t got = rig.V(kData + (s.narrow ? k / 2 : k), lane),
                       e = expected[static_cast<size_t>(k * kLanes + lane)];
        const uint32_t part = !s.narrow ? got : s.high || k % 2 ? got >> 16 : got & 0xffff;
        if (part != e)
          what = absl::StrCat("component ", k, " is ", absl::Hex(part), ", not ", absl::Hex(e));
      }
    }
    if (what.empty()) continue;
    if (++wrong < 10)
      std::cout << "# " << s.name << " " << s.format->data << " " << s.format->number << ": "
                << what << "\n";
  }
  std::cout << "# " << done.size() << " formatted mnemonics\n";
  CHECK_EQ(wrong, 0);
}

// --- the rest ------------------------------------------------------------------------------------

TEST(scalar_loads) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  std::string source, error;
  const int kWidths[] = {1, 2, 4, 8, 16};
  for (const char* base : {"s_load_dword", "s_buffer_load_dword"}) {
    for (const int width : kWidths) {
      absl::StrAppend(&source, base, width == 1 ? "" : absl::StrCat("x", width), " ",
                      width == 1 ? std::string("s16") : absl::StrCat("s[16:", 15 + width, "]"),
                      ", ", base[2] == 'l' ? "s[2:3]" : "s[4:7]", ", 0x14\n");
    }
  }
  source +=
      "s_dcache_inv\ns_dcache_wb\ns_dcache_inv_vol\ns_dcache_wb_vol\ns_memtime "
      "s[16:17]\ns_memrealtime s[16:17]\n";
  RanAll(source);
  const std::vector<uint8_t> code = Assemble(Isa::kGfx942, source, &error);
  CHECK_EQ(error, "");
  Rig rig(Isa::kGfx942);
  for (uint32_t i = 0; i < 4096; ++i) rig.memory()[i] = static_cast<uint8_t>(i * 7);
  const uint64_t base = reinterpret_cast<uint64_t>(rig.memory());
  rig.wave().SetPair(2, base);
  rig.wave().SetPair(4, base);
  rig.S(6) = 48;  // bytes: dwords from 12 on read zero
  rig.S(7) = 0;
  for (size_t k = 0; k < 10; ++k) {
    for (int s = 16; s < 40; ++s) rig.S(s) = 0x55;
    CHECK(rig.Step(code.data() + 8 * k, 8));
    for (int i = 0; i < 24; ++i) {
      uint32_t want;
      std::memcpy(&want, rig.memory() + 0x14 + 4 * i, 4);
      if (k >= 5 && 0x14 + 4 * i >= 48) want = 0;
      CHECK_EQ(rig.S(16 + i), i < kWidths[k % 5] ? want : 0x55u);
    }
  }
  for (size_t k = 10; k < 14; ++k) CHECK(rig.Step(code.data() + 8 * k, 8));
  for (size_t k = 14; k < 16; ++k) {
    CHECK(rig.Step(code.data() + 8 * k, 8));
    const uint64_t first = rig.wave().Pair(16);
    CHECK(rig.Step(code.data() + 8 * k, 8));
    CHECK_LT(first, rig.wave().Pair(16));
  }
}

TEST(lds_between_lanes) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  std::string error;
  const std::string source =
      "ds_bpermute_b32 v64, v0, v32\nds_permute_b32 v64, v0, v32\n"
      "ds_swizzle_b32 v64, v32 offset:0x8039\nds_swizzle_b32 v64, v32 offset:0x1c1f\n"
      "ds_append v64 offset:16\nds_consume v64 offset:16\n"
      "ds_write_addtid_b32 v32 offset:64\nds_read_addtid_b32 v64 offset:64\n"
      "ds_condxchg32_rtn_b64 v[64:65], v0, v[32:33]\nds_nop\n"
      "buffer_inv sc1\nbuffer_wbl2 sc1\n";
  RanAll(source);
  const std::vector<uint8_t> code = Assemble(Isa::kGfx950, source, &error);
  CHECK_EQ(error, "");
  Rig rig(Isa::kGfx950);
  const uint64_t exec = 0xffff0000ffffff0f;
  const auto on = [exec](uint32_t lane) { return (exec >> lane & 1) != 0; };
  const auto reset = [&] {
    for (uint32_t l = 0; l < 64; ++l) {
      rig.V(0, static_cast<int>(l)) = (l * 13 % 64) * 4;
      rig.V(32, static_cast<int>(l)) = 1000 + l;
      rig.V(33, static_cast<int>(l)) = 0x80000000u + l;
      rig.V(64, static_cast<int>(l)) = 77;
    }
    rig.wave().set_exec(exec);
    rig.S(reg::kM0) = 128;
  };
  size_t at = 0;
  const auto step = [&] { return rig.Step(code.data() + 8 * at++, 8); };
  const auto get = [&](uint32_t lane) { return rig.V(64, static_cast<int>(lane)); };
  reset();
  CHECK(step());  // pull: an inactive source gives 0
  for (uint32_t l = 0; l < 64; ++l)
    CHECK_EQ(get(l), !on(l) ? 77 : on(l * 13 % 64) ? 1000 + l * 13 % 64 : 0);
  reset();
  CHECK(step());  // push
  for (uint32_t l = 0; l < 64; ++l) {
    if (on(l) && on(l * 13 % 64)) CHECK_EQ(get(l * 13 % 64), 1000 + l);
  }
  reset();
  CHECK(step());  // quad permute 1, 2, 3, 0
  for (uint32_t l = 0; l < 64; ++l) {
    const uint32_t from = (l & ~3u) | ((l + 1) & 3);
    CHECK_EQ(get(l), !on(l) ? 77 : on(from) ? 1000 + from : 0);
  }
  reset();
  CHECK(step());  // within 32: and 31, xor 7
  for (uint32_t l = 0; l < 64; ++l) CHECK_EQ(get(l), !on(l) ? 77 : on(l ^ 7) ? 1000 + (l ^ 7) : 0);
  reset();
  const auto count = static_cast<uint32_t>(__builtin_popcountll(exec));
  const uint32_t start = 5;
  std::memcpy(rig.group().lds.data() + 144, &start, 4);
  CHECK(step());
  for (uint32_t l = 0; l < 64; ++l) CHECK_EQ(get(l), on(l) ? 5u : 77u);
  reset();
  CHECK(step());
  for (uint32_t l = 0; l < 64; ++l) CHECK_EQ(get(l), on(l) ? 5u + count : 77u);
  uint32_t left;
  std::memcpy(&left, rig.group().lds.data() + 144, 4);
  CHECK_EQ(left, 5u);
  reset();
  CHECK(step());
  CHECK(step());
  for (uint32_t l = 0; l < 64; ++l) {
    uint32_t x;
    std::memcpy(&x, rig.group().lds.data() + 128 + 64 + 4 * l, 4);
    if (on(l)) CHECK_EQ(x, 1000 + l);
    CHECK_EQ(get(l), on(l) ? 1000 + l : 77);
  }
  reset();
  // Only a dword whose data has its top bit set is exchanged: here the upper one.
  for (uint32_t l = 0; l < 64; ++l) rig.V(0, static_cast<int>(l)) = 1024 + 8 * l;
  std::vector<uint8_t> before = rig.group().lds;
  CHECK(step());
  for (uint32_t l = 0; l < 64; ++l) {
    uint32_t now[2], then[2];
    std::memcpy(now, rig.group().lds.data() + 1024 + 8 * l, 8);
    std::memcpy(then, before.data() + 1024 + 8 * l, 8);
    CHECK_EQ(now[0], then[0]);
    CHECK_EQ(now[1], on(l) ? l : then[1]);
  }
  CHECK(step());
  CHECK(step());
  CHECK(step());
}

// Sixteen lanes read sixteen rows of the tile; lane j gets column j. As LLVM's documentation of the
// intrinsics has it; which rows a lane covers is assumed.
TEST(transposed_reads) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  std::string error;
  const std::string source =
      "ds_read_b64_tr_b16 v[64:65], v0\nds_read_b64_tr_b8 v[64:65], v0\n"
      "ds_read_b64_tr_b4 v[64:65], v0\nds_read_b96_tr_b6 v[64:66], v0\n";
  RanAll(source);
  const std::vector<uint8_t> code = Assemble(Isa::kGfx950, source, &error);
  CHECK_EQ(error, "");
  const int kBits[] = {16, 8, 4, 6}, kBytes[] = {8, 8, 8, 12};
  Rig rig(Isa::kGfx950);
  Random random(19);
  for (size_t n = 0; n < 4; ++n) {
    for (uint8_t& byte : rig.group().lds) byte = static_cast<uint8_t>(random());
    for (int l = 0; l < 64; ++l) rig.V(0, l) = static_cast<uint32_t>(l) * 16;
    rig.wave().set_exec(~0ull);
    CHECK(rig.Step(code.data() + 8 * n, 8));
    const int per_lane = kBytes[n] * 8 / kBits[n], lanes_a_row = 16 / per_lane;
    const auto bit_of = [&](const uint8_t* p, int bit) { return p[bit / 8] >> (bit % 8) & 1; };
    for (int l = 0; l < 64; ++l) {
      const int j = l % 16;
      for (int e = 0; e < per_lane; ++e) {
        const int from = l / 16 * 16 + e * lanes_a_row + j / per_lane;
        for (int b = 0; b < kBits[n]; ++b) {
          const int bit = e * kBits[n] + b;
          const int want = bit_of(rig.group().lds.data() + from * 16, j % per_lane * kBits[n] + b);
          CHECK_EQ(static_cast<int>(rig.V(64 + bit / 32, l) >> (bit % 32) & 1), want);
        }
      }
    }
  }
}

// Buffer loads with the lds bit: lane l's dwords lie at M0 + offset + l times the element's size.
TEST(buffer_loads_into_lds) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  struct Load {
    const char* name;
    uint32_t bytes;
    bool is_signed;
    bool only_950;
  };
  static constexpr Load kLoads[] = {
      {"buffer_load_ubyte", 1, false, false},   {"buffer_load_sbyte", 1, true, false},
      {"buffer_load_ushort", 2, false, false},  {"buffer_load_sshort", 2, true, false},
      {"buffer_load_dword", 4, false, false},   {"buffer_load_dwordx3", 12, false, true},
      {"buffer_load_dwordx4", 16, false, true}, {"buffer_load_format_x", 4, false, false},
  };
  constexpr uint64_t kExec = 0xff00ff5a12345679;
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    Rig rig(isa);
    Random random(23);
    for (const Load& load : kLoads) {
      if (load.only_950 && isa == Isa::kGfx942) continue;
      std::string error;
      const std::vector<uint8_t> code =
          Assemble(isa, absl::StrCat(load.name, " v0, s[4:7], 0 offen offset:48 lds\n"), &error);
      CHECK_EQ(error, "");
      const uint64_t base = reinterpret_cast<uint64_t>(rig.memory());
      rig.S(4) = static_cast<uint32_t>(base);
      rig.S(5) = static_cast<uint32_t>(base >> 32);
      rig.S(6) = 60 * 64;  // of the 64 slots the last are out of range: zeroes
      rig.S(7) = 0xfac | 4 << 12 | 4 << 15;  // one whole number of 32 bits
      rig.S(reg::kM0) = 1024;
      for (size_t i = 0; i < 8192; ++i) rig.memory()[i] = static_cast<uint8_t>(random());
      for (uint8_t& byte : rig.group().lds) byte = static_cast<uint8_t>(random());
      for (int l = 0; l < kLanes; ++l) rig.V(0, l) = static_cast<uint32_t>(l * 29 % 64) * 64;
      rig.wave().set_exec(kExec);
      std::vector<uint8_t> want = rig.group().lds;
      const uint32_t slot = std::max(load.bytes, 4u);
      for (uint32_t l = 0; l < 64; ++l) {
        if (!(kExec >> l & 1)) continue;
        const uint32_t from = l * 29 % 64 * 64 + 48;
        uint8_t element[16] = {};
        for (uint32_t k = 0; k < load.bytes; ++k)
          element[k] = from + load.bytes <= 60 * 64 ? rig.memory()[from + k] : 0;
        const bool minus = load.is_signed && element[load.bytes - 1] & 0x80;
        for (uint32_t k = load.bytes; k < slot; ++k) element[k] = minus ? 0xff : 0;
        std::memcpy(want.data() + 1024 + 48 + l * slot, element, slot);
      }
      CHECK(rig.Step(code.data(), code.size()));
      if (rig.group().lds != want) std::cout << "# " << CpuName(isa) << " " << load.name << "\n";
      CHECK(rig.group().lds == want);
    }
  }
}

// The last one: nothing of these families is without a vector.
TEST(nothing_is_left_out) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  std::set<std::string> left_out;
  for (Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    const InstructionSet set(isa, LaneCode::kPortable);
    for (const OpRow& row : Rows()) {
      const Family f = row.family;
      const bool memory = f == Family::kDs || f == Family::kGlobal || f == Family::kFlat ||
                          f == Family::kScratch || f == Family::kMubuf || f == Family::kMtbuf ||
                          f == Family::kSmem;
      if (!memory || !(row.isas & static_cast<int>(isa)) || set.Find(row) == nullptr) continue;
      if (Ran().count(row.name) == 0) left_out.insert(row.name);
    }
  }
  for (const std::string& name : left_out) std::cout << "# no vector: " << name << "\n";
  std::cout << "# " << Ran().size() << " memory mnemonics of both\n";
  CHECK(left_out.empty());
}

}  // namespace
}  // namespace mainarch::sim::isa::test
