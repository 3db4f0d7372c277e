// SPDX-License-Identifier: MIT
//
// Machine code out of anything: every word is decoded and printed for both ISAs, the first 64 bytes
// are a kernel descriptor that may or may not set up a wave, and the rest is executed for a while
// in a small memory. Nothing may crash, hang or touch host memory that is not the device's.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "fuzz.h"
#include "sim/isa/grid.h"

namespace {

using namespace mainarch::sim::isa;

constexpr size_t kMemory = 1 << 16, kCode = 1 << 12;
constexpr uint64_t kBudget = 3000;

void DecodeAll(Isa isa, absl::Span<const uint8_t> bytes) {
  for (size_t at = 0; at + 4 <= bytes.size();) {
    Inst inst;
    if (Decode(isa, bytes.subspan(at), &inst)) (void)Print(isa, inst);
    at += inst.size >= 4 ? inst.size : 4;
  }
}

void Execute(Isa isa, absl::Span<const uint8_t> bytes) {
  static const InstructionSet sets[] = {InstructionSet(Isa::kGfx942, LaneCode::kPortable),
                                        InstructionSet(Isa::kGfx950, BestLaneCode())};
  std::vector<uint8_t> storage(kMemory + 4096);
  uint8_t* memory = storage.data() + 4096 - reinterpret_cast<uintptr_t>(storage.data()) % 4096;
  const uint64_t base = reinterpret_cast<uint64_t>(memory);
  KernelLaunch launch;
  if (!ReadDescriptor(bytes.data(), &launch).ok()) return;
  bytes.remove_prefix(64);
  std::memcpy(memory, bytes.data(), std::min(bytes.size(), kCode));
  launch.entry = base;
  launch.kernarg = base + kCode;
  launch.packet = base + kCode + 1024;
  launch.queue = base + kCode + 2048;
  launch.workgroup = {64u + launch.rsrc3 % 65, 1, 1};
  launch.grid = {launch.workgroup[0] * 2 - 3, 1, 1};
  launch.lds_bytes = 1024;
  launch.private_bytes = 128;
  FlatMemory flat(base, memory, kMemory);
  Program program(&sets[isa == Isa::kGfx950]);
  auto grid = Grid::Create(&program, launch, ChipLimits(), {&flat});
  if (grid.ok()) (*grid)->Run(kBudget);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Span<const uint8_t> bytes(data, size);
  for (const Isa isa : {Isa::kGfx942, Isa::kGfx950}) {
    DecodeAll(isa, bytes);
    if (size >= 68) Execute(isa, bytes);
  }
  return 0;
}
