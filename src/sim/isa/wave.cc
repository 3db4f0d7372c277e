// SPDX-License-Identifier: MIT
#include "sim/isa/wave.h"

#include "absl/strings/str_cat.h"

namespace mainarch::sim::isa {

uint64_t Wave::Special64(int code) const {
  switch (code) {
    case reg::kSharedBase:
      return kSharedAperture;
    case reg::kSharedLimit:
      return kSharedAperture + 0xffffffff;
    case reg::kPrivateBase:
      return kPrivateAperture;
    case reg::kPrivateLimit:
      return kPrivateAperture + 0xffffffff;
    case reg::kVccz:
      return vcc() == 0;
    case reg::kExecz:
      return exec() == 0;
    case reg::kScc:
      return scc;
    default:
      return 0;
  }
}

uint32_t Wave::Special(int code) const {
  // A 32-bit read of an aperture gives its high half: the low half is zero.
  const bool aperture = code >= reg::kSharedBase && code <= reg::kPrivateLimit;
  return static_cast<uint32_t>(aperture ? Special64(code) >> 32 : Special64(code));
}

uint8_t* Wave::Miss(uint64_t va, uint32_t size, bool write) {
  View view;
  if (!memory->Translate(va, write, false, &view, &fault)) {
    Stop(StopReason::kMemoryFault,
         absl::StrCat(write ? "store" : "load", " of ", size, " bytes at 0x", absl::Hex(va)));
    return nullptr;
  }
  if (!view.Holds(va, size)) return nullptr;
  views[next_view++ % 4] = view;
  return view.host + (va - view.begin);
}

uint8_t* Wave::PeekMiss(uint64_t va, uint32_t size, bool write) {
  View view;
  AccessFault ignored;
  if (!memory->Translate(va, write, false, &view, &ignored) || !view.Holds(va, size))
    return nullptr;
  views[next_view++ % 4] = view;
  return view.host + (va - view.begin);
}

bool Wave::Copy(uint64_t va, uint32_t size, uint8_t* bytes, bool write) {
  while (size > 0) {
    View view;
    if (!memory->Translate(va, write, false, &view, &fault)) {
      Stop(StopReason::kMemoryFault,
           absl::StrCat(write ? "store" : "load", " of ", size, " bytes at 0x", absl::Hex(va)));
      return false;
    }
    const uint64_t left = view.end - va;
    const uint32_t run = left < size ? static_cast<uint32_t>(left) : size;
    uint8_t* host = view.host + (va - view.begin);
    std::memcpy(write ? host : bytes, write ? bytes : host, run);
    va += run;
    bytes += run;
    size -= run;
  }
  return true;
}

}  // namespace mainarch::sim::isa
