// SPDX-License-Identifier: MIT
//
// VALU instructions that move data between lanes, or between lanes and scalars.
#include <utility>

#include "sim/isa/descriptors.h"

namespace mainarch::sim::isa {
namespace {

void ReadFirstLane(Wave& w, const Op& op) {
  const uint64_t exec = w.exec();
  const int lane = exec == 0 ? 0 : __builtin_ctzll(exec);
  w.s[op.d.code] = w.v[op.a.offset + lane];
}
void ReadLane(Wave& w, const Op& op) {
  w.s[op.d.code] = w.v[op.a.offset + (w.ReadScalar(op.b) & 63)];
}
void WriteLane(Wave& w, const Op& op) {
  w.v[op.d.offset + (w.ReadScalar(op.b) & 63)] = w.ReadScalar(op.a);
}
void Swap(Wave& w, const Op& op) {
  for (int i = 0; i < kLanes; ++i) {
    if (w.exec() >> i & 1) std::swap(w.v[op.d.offset + i], w.v[op.a.offset + i]);
  }
}
// Odd rows of the destination against even rows of the source. Each written lane honours EXEC.
template <int kRow>
void PermlaneSwap(Wave& w, const Op& op) {
  uint32_t d[kLanes], s[kLanes];
  std::memcpy(d, w.v + op.d.offset, sizeof d);
  std::memcpy(s, w.v + op.a.offset, sizeof s);
  const uint64_t exec = w.exec();
  for (int i = 0; i < kLanes; ++i) {
    if (!(i & kRow)) continue;
    const int even = i - kRow;
    if (exec >> i & 1) w.v[op.d.offset + i] = s[even];
    if (exec >> even & 1) w.v[op.a.offset + even] = d[i];
  }
}

void Nop(Wave&, const Op&) {}

constexpr Descriptor C(const char* name, Run run, uint16_t implicit, Type a = Type::kB32) {
  return {name, run, {a, Type::kB32, Type::kNone, Type::kB32}, Origin::kManual, implicit};
}
constexpr Descriptor kTable[] = {
    {"v_nop", &Nop, {Type::kNone, Type::kNone, Type::kNone, Type::kNone}, Origin::kManual, 0},
    C("v_readfirstlane_b32", &ReadFirstLane, kReadsExec),
    C("v_readlane_b32", &ReadLane, 0),
    C("v_writelane_b32", &WriteLane, kReadsDst),
    C("v_swap_b32", &Swap, kReadsExec | kReadsDst),
    C("v_permlane16_swap_b32", &PermlaneSwap<16>, kReadsExec | kReadsDst),
    C("v_permlane32_swap_b32", &PermlaneSwap<32>, kReadsExec | kReadsDst),
};

}  // namespace

void AddCross(DescriptorMap* map) { AddAll(kTable, map); }

DescriptorMap AllDescriptors(LaneCode code) {
  DescriptorMap map;
  AddScalar(&map);
  AddFlow(&map);
  AddSmem(&map);
  AddValuInt(code, &map);
  AddValuFloat(code, &map);
  AddValuCvt(code, &map);
  AddVopc(code, &map);
  AddVop3p(code, &map);
  AddMfma(code, &map);
  AddSmfmac(code, &map);
  AddValuRare(&map);
  AddBufferFormat(&map);
  AddCross(&map);
  AddDs(&map);
  AddGws(&map);
  AddVmem(&map);
  return map;
}

}  // namespace mainarch::sim::isa
