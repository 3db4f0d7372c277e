// SPDX-License-Identifier: MIT
//
// Memory instructions that are more than an access of each lane's own bytes, each against its own
// model: formatted buffers, scalar loads, LDS between lanes, transposed reads, loads to LDS. The
// last test asks that this file and memory_test.cc have run every memory instruction there is.
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

TEST(scalar_stores) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  std::string source, error;
  const int kWidths[] = {1, 2, 4};
  for (const char* base : {"s_store_dword", "s_buffer_store_dword"}) {
    for (const int width : kWidths) {
      absl::StrAppend(&source, base, width == 1 ? "" : absl::StrCat("x", width), " ",
                      width == 1 ? std::string("s16") : absl::StrCat("s[16:", 15 + width, "]"), ", ",
                      base[2] == 's' ? "s[2:3]" : "s[4:7]", ", 0x14 glc\n");
    }
  }
  source += "s_store_dword s16, s[2:3], s8 glc\n";
  RanAll(source);
  const std::vector<uint8_t> code = Assemble(Isa::kGfx950, source, &error);
  CHECK_EQ(error, "");
  Rig rig(Isa::kGfx950);
  const uint64_t base = reinterpret_cast<uint64_t>(rig.memory());
  rig.wave().SetPair(2, base);
  rig.wave().SetPair(4, base);
  rig.S(6) = 28;  // bytes: of four dwords at 20 two are inside
  rig.S(7) = 0;
  rig.S(8) = 40;
  for (int i = 0; i < 4; ++i) rig.S(16 + i) = 0x11111111u * static_cast<uint32_t>(i + 1);
  for (size_t k = 0; k < 7; ++k) {
    std::memset(rig.memory(), 0, 64);
    CHECK(rig.Step(code.data() + 8 * k, 8));
    const int width = k == 6 ? 1 : k < 3 ? kWidths[k] : std::min(kWidths[k - 3], 2);
    const int at = k == 6 ? 10 : 5;
    for (int i = 0; i < 16; ++i) {
      uint32_t is;
      std::memcpy(&is, rig.memory() + 4 * i, 4);
      CHECK_EQ(is, i >= at && i < at + width ? rig.S(16 + i - at) : 0u);
    }
  }
}

// A stride is the distance of indices; only a swizzled buffer ends an access at its element's end.
TEST(wide_accesses_through_a_narrow_stride) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  std::string error;
  const std::string source =
      "buffer_store_dwordx4 v[4:7], v0, s[4:7], 0 idxen\nbuffer_load_dwordx4 v[8:11], v0, s[4:7], 0 idxen\n";
  RanAll(source);
  const std::vector<uint8_t> code = Assemble(Isa::kGfx950, source, &error);
  CHECK_EQ(error, "");
  for (const bool swizzled : {false, true}) {
    Rig rig(Isa::kGfx950);
    std::memset(rig.memory(), 0, 4096);
    const uint64_t base = reinterpret_cast<uint64_t>(rig.memory());
    rig.wave().SetPair(4, base);
    rig.S(5) |= 4u << 16 | (swizzled ? 1u << 31 : 0);
    rig.S(6) = 240;  // indices: the last lanes' are outside
    rig.S(7) = 0;
    for (int lane = 0; lane < 64; ++lane) {
      rig.V(0, lane) = static_cast<uint32_t>(4 * lane);
      for (int i = 0; i < 4; ++i) rig.V(4 + i, lane) = static_cast<uint32_t>(1000 + 4 * lane + i);
      for (int i = 0; i < 4; ++i) rig.V(8 + i, lane) = 7;
    }
    CHECK(rig.Step(code.data(), 8));
    CHECK(rig.Step(code.data() + 8, 8));
    for (int lane = 0; lane < 64; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const bool inside = !swizzled && lane < 60;
        const uint32_t want = inside ? static_cast<uint32_t>(1000 + 4 * lane + i) : 0;
        uint32_t is;
        std::memcpy(&is, rig.memory() + 16 * lane + 4 * i, 4);
        CHECK_EQ(is, want);
        CHECK_EQ(rig.V(8 + i, lane), want);
      }
    }
  }
}

TEST(scalar_atomics) {
  if (!HaveTool("llvm-mc-22")) SKIP("llvm-mc-22 is not installed");
  const struct {
    const char* name;
    uint64_t old, data, now;  // of 32 bits; of 64 both halves of each
  } cases[] = {{"swap", 7, 9, 9},          {"add", 7, 9, 16},         {"sub", 9, 7, 2},
               {"smin", 5, 0xffffffff, 0xffffffff}, {"umin", 5, 0xffffffff, 5}, {"smax", 5, 0xffffffff, 5},
               {"umax", 5, 0xffffffff, 0xffffffff}, {"and", 6, 3, 2},  {"or", 6, 3, 7},
               {"xor", 6, 3, 5},           {"inc", 6, 6, 0},          {"dec", 0, 6, 6}};
  Rig rig(Isa::kGfx942);
  const uint64_t base = reinterpret_cast<uint64_t>(rig.memory());
  const auto check = [&](const std::string& line, uint64_t old, uint64_t data, uint64_t compare, uint64_t now,
                         size_t bytes) {
    std::string error;
    RanAll(line + "\n");
    const std::vector<uint8_t> code = Assemble(Isa::kGfx942, line + "\n", &error);
    uint64_t is = 0;
    std::memset(rig.memory(), 0xee, 32);
    std::memcpy(rig.memory() + 16, &old, bytes);
    rig.wave().SetPair(2, base);
    rig.wave().SetPair(4, base);
    rig.S(6) = 64, rig.S(7) = 0;
    rig.wave().SetPair(16, data);
    rig.wave().SetPair(bytes == 8 ? 18 : 17, compare);
    if (!error.empty() || !rig.Step(code.data(), 8)) return absl::StrCat(line, ": ", error);
    std::memcpy(&is, rig.memory() + 16, bytes);
    const uint64_t mask = bytes == 8 ? ~uint64_t{0} : 0xffffffff;
    if (is != (now & mask)) return absl::StrCat(line, ": ", is);
    const bool glc = line.find("glc") != std::string::npos;
    const uint64_t kept = bytes == 8 ? rig.wave().Pair(16) : rig.S(16);
    if (kept != ((glc ? old : data) & mask)) return absl::StrCat(line, ": register ", kept);
    for (size_t i = 0; i < 32; ++i) {
      if ((i < 16 || i >= 16 + bytes) && rig.memory()[i] != 0xee) return absl::StrCat(line, ": byte ", i);
    }
    return std::string();
  };
  for (const char* resource : {"s_atomic_", "s_buffer_atomic_"}) {
    const std::string from = resource[2] == 'a' ? ", s[2:3], 0x10" : ", s[4:7], 0x10";
    for (const char* glc : {"", " glc"}) {
      for (const auto& each : cases) {
        CHECK_EQ(check(absl::StrCat(resource, each.name, " s16", from, glc), each.old, each.data, 0, each.now, 4), "");
        // The upper half alone, with the same signs.
        const int shift = absl::string_view(each.name) == "inc" || absl::string_view(each.name) == "dec" ? 0 : 32;
        CHECK_EQ(check(absl::StrCat(resource, each.name, "_x2 s[16:17]", from, glc), each.old << shift,
                       each.data << shift, 0, each.now << shift, 8),
                 "");
      }
      CHECK_EQ(check(absl::StrCat(resource, "cmpswap s[16:17]", from, glc), 5, 9, 5, 9, 4), "");
      CHECK_EQ(check(absl::StrCat(resource, "cmpswap s[16:17]", from, glc), 5, 9, 6, 5, 4), "");
      CHECK_EQ(check(absl::StrCat(resource, "cmpswap_x2 s[16:19]", from, glc), 5, 9, 5, 9, 8), "");
    }
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
      rig.S(6) = 60 * 64;                    // of the 64 slots the last are out of range: zeroes
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
      if (absl::StartsWith(row.name, "ds_gws_")) continue;  // no memory's: kernels_test
      if (Ran().count(row.name) == 0) left_out.insert(row.name);
    }
  }
  for (const std::string& name : left_out) std::cout << "# no vector: " << name << "\n";
  std::cout << "# " << Ran().size() << " memory mnemonics of both\n";
  CHECK(left_out.empty());
}

}  // namespace
}  // namespace mainarch::sim::isa::test
