// SPDX-License-Identifier: MIT
//
// What the interpreter needs of device memory: translation of an address to host memory, in runs.
// The virtual node implements it over its page tables (executor.cc); unit tests use FlatMemory.
// Not thread-safe objects: one a host thread that interprets. The bytes themselves are shared.
#ifndef MAINARCH_SIM_ISA_MEMORY_H_
#define MAINARCH_SIM_ISA_MEMORY_H_

#include <cstdint>

namespace mainarch::sim::isa {

struct Gws;

// Where memory lies, seen from the GPU, and how its pages are cached: for who models caches or time.
struct Where {
  enum Place : uint8_t { kLocal, kPeer, kHost };
  Place place = kLocal;
  uint8_t mtype = 0;  // as sim::Mtype
  uint16_t peer = 0;  // index of the peer GPU
};

// [begin, end) of device addresses that lie in one piece of host memory.
struct View {
  uint64_t begin = 0, end = 0;
  uint8_t* host = nullptr;  // of begin
  bool writable = false;
  bool executable = false;
  Where where;

  // Whether [va, va + size) lies inside; never true of an empty view.
  bool Holds(uint64_t va, uint64_t size) const {
    return va >= begin && va < end && size <= end - va;
  }
};

struct AccessFault {
  uint64_t va = 0;
  bool write = false, execute = false;
  bool not_present = false, read_only = false, no_execute = false;
};

class Memory {
 public:
  virtual ~Memory() = default;
  // Fills *view with a run that contains `va`; false and *fault filled when there is none.
  virtual bool Translate(uint64_t va, bool write, bool execute, View* view, AccessFault* fault) = 0;
  virtual uint64_t Clock() = 0;        // 100 MHz counter
  virtual void Interrupt(uint32_t) {}  // s_sendmsg(MSG_INTERRUPT)
  virtual Gws* gws() { return nullptr; }  // what ds_gws_* works on; null: the queue has none
};

// One block of host memory at a fixed device address.
class FlatMemory : public Memory {
 public:
  FlatMemory(uint64_t base, uint8_t* host, uint64_t size)
      : view_{base, base + size, host, true, true, {}} {}
  bool Translate(uint64_t va, bool write, bool execute, View* view, AccessFault* fault) override {
    if (va < view_.begin || va >= view_.end) {
      *fault = {va, write, execute, true, false, false};
      return false;
    }
    *view = view_;
    return true;
  }
  uint64_t Clock() override { return ++clock_; }

 private:
  const View view_;
  uint64_t clock_ = 0;
};

}  // namespace mainarch::sim::isa

#endif  // MAINARCH_SIM_ISA_MEMORY_H_
