// SPDX-License-Identifier: MIT
//
// Which instructions of an object have run.
#ifndef MAINARCH_TESTS_UNIT_KERNELS_COVERAGE_H_
#define MAINARCH_TESTS_UNIT_KERNELS_COVERAGE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/types/span.h"
#include "sim/isa/wave.h"
#include "sim/isa/observer.h"

namespace mainarch::kernels_test {

class Coverage : public sim::isa::Observer {
 public:
  // An object lies at `base` on some device; only instructions of `object` are looked at.
  explicit Coverage(absl::Span<const uint8_t> object) : object_(object) {}
  void Loaded(uint64_t base, uint64_t end, absl::Span<const uint8_t> object) {
    if (object.data() != object_.data()) return;
    bases_[end] = base;
    ran_.resize(std::max<size_t>(ran_.size(), (end - base) / 4 + 1));
  }
  void Begin(sim::isa::Workgroup&) override {}
  bool Before(sim::isa::Wave& w, const sim::isa::Op&) override {
    const auto loaded = bases_.upper_bound(w.at);
    if (loaded != bases_.end() && w.at >= loaded->second) ran_[(w.at - loaded->second) / 4] = true;
    return true;
  }
  void After(sim::isa::Wave&, const sim::isa::Op&) override {}
  void Barrier(sim::isa::Workgroup&) override {}

  // By address in the object.
  bool Executed(uint64_t va) const { return va / 4 < ran_.size() && ran_[va / 4]; }

 private:
  const absl::Span<const uint8_t> object_;
  std::map<uint64_t, uint64_t> bases_;  // by end
  std::vector<bool> ran_;               // by words of the object
};

}  // namespace mainarch::kernels_test

#endif  // MAINARCH_TESTS_UNIT_KERNELS_COVERAGE_H_
