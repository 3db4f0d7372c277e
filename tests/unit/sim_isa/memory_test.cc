// SPDX-License-Identifier: MIT
//
// Memory instructions whose lanes each access bytes of their own (DS, GLOBAL, FLAT, SCRATCH, MUBUF)
// against a model of bytes: what an instruction does is read off its name here, independently of
// the interpreter's tables. After a run the whole memory and all result registers must agree,
// inactive lanes included. The others: memory_forms_test.cc.
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
#include "unit/sim_isa/memory_vectors.h"

namespace mainarch::sim::isa::test {
namespace {

constexpr uint32_t kOffset = 48, kSlot = 1024;  // of the instruction; bytes a lane has to itself

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

// Ds rows whose meaning is no access of each lane's own bytes are tested in memory_forms_test.cc.
const std::set<std::string> kByHand = {"ds_gws_init",  // these in kernels_test
                                       "ds_gws_sema_v",
                                       "ds_gws_sema_br",
                                       "ds_gws_sema_p",
                                       "ds_gws_sema_release_all",
                                       "ds_gws_barrier",
                                       "ds_nop",
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
    for (LaneCode lanes : LaneCodes()) {
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

}  // namespace
}  // namespace mainarch::sim::isa::test
