// SPDX-License-Identifier: MIT
//
// A kernel test as data: buffers, launches, and what must be in the buffers afterwards, computed in
// double on the host. RunCase works it on any Runner. The *_cases.cc files make the cases.
#ifndef MAINARCH_TESTS_UNIT_KERNELS_CASE_H_
#define MAINARCH_TESTS_UNIT_KERNELS_CASE_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/args.h"
#include "unit/kernels/runner.h"

namespace mainarch::kernels_test {

using Bytes = std::vector<uint8_t>;

template <class T>
Bytes ToBytes(const std::vector<T>& values) {
  Bytes out(values.size() * sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
  return out;
}
template <class T>
std::vector<T> FromBytes(absl::Span<const uint8_t> bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

// Device addresses by buffer name.
class Addresses {
 public:
  void Set(const std::string& name, uint64_t address) { at_[name] = address; }
  template <class T>
  kernels::Address<T> Of(const std::string& name, uint64_t byte_offset = 0) const {
    return {at_.at(name) + byte_offset};
  }

 private:
  std::map<std::string, uint64_t> at_;
};

struct Buffer {
  std::string name;
  Bytes initial;
  uint32_t device = 0;
  Home home = Home::kVram;
  // Contents that hold device addresses: made when every buffer has one, instead of `initial`.
  std::function<Bytes(const Addresses&)> late = nullptr;
};

struct LaunchSpec {
  std::string kernel;
  uint32_t workgroups = 1;
  uint32_t device = 0;
  std::function<Bytes(const Addresses&)> kernarg;
  bool aids = false;  // another launch, whose case it is; the kernel has cases of its own
};

// The kernarg segment of a kernel made by KERNEL.
template <class Args>
Bytes PackKernarg(const Args& args, uint32_t workgroups) {
  kernels::Kernarg<Args> kernarg = {args, workgroups, 0};
  Bytes out(sizeof(kernarg));
  std::memcpy(out.data(), &kernarg, sizeof(kernarg));
  return out;
}

// fill(args, addresses) sets the argument struct.
template <class Args, class FillArguments>
LaunchSpec MakeLaunch(const std::string& kernel, uint32_t workgroups, FillArguments fill,
                      uint32_t device = 0) {
  return {kernel, workgroups, device, [workgroups, fill](const Addresses& at) {
            Args args;
            fill(args, at);
            return PackKernarg(args, workgroups);
          }};
}

// Looks at one buffer after the run: what is wrong, or empty.
struct Expectation {
  std::string buffer;
  std::function<std::string(absl::Span<const uint8_t>)> check;
};

struct Case {
  std::string name;
  std::string bound;              // the error allowed and why, in words
  std::vector<std::string> isas;  // empty: every ISA
  std::vector<Buffer> buffers;
  std::vector<std::vector<LaunchSpec>> steps;  // each step's launches run together
  std::vector<Expectation> expectations;
};

// |got - want| <= absolute + relative * |want|, element by element.
struct Bound {
  double absolute = 0;
  double relative = 0;
};
Expectation NearFloat(const std::string& buffer, std::vector<double> want, Bound bound);
Expectation NearBf16(const std::string& buffer, std::vector<double> want, Bound bound);
// A bound of its own for every element.
Expectation WithinFloat(const std::string& buffer, std::vector<double> want,
                        std::vector<double> allowed);
Expectation Exactly(const std::string& buffer, Bytes want);
template <class T>
Expectation ExactlyValues(const std::string& buffer, const std::vector<T>& want) {
  return Exactly(buffer, ToBytes(want));
}

// Half a unit in the last place of bf16, relative; a hair more for a double rounding at a tie.
inline constexpr double kBf16Half = 0x1.01p-8;

// The object that holds a kernel. kNotFound if there is none.
using ObjectOf =
    std::function<StatusOr<absl::Span<const uint8_t>>(const std::string& isa, const std::string&)>;
// `contents`, if given, gets what every expected buffer held at the end.
Status RunCase(Runner& runner, const Case& test, const ObjectOf& object_of,
               std::map<std::string, Bytes>* contents = nullptr);

// Reproducible inputs (splitmix64): the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  double Uniform();  // [0, 1)
  double Normal();   // about; mean 0, variance 1, bounded by 6
  std::vector<uint16_t> Bf16(size_t count, double scale = 1);
  std::vector<float> Floats(size_t count, double scale = 1);
  std::vector<uint8_t> Raw(size_t count);

 private:
  uint64_t state_;
};
std::vector<double> FromBf16(const std::vector<uint16_t>& values);

// A buffer of activations in either element type, and its values.
struct Activations {
  Bytes bytes;
  std::vector<double> values;
};
template <class T>
Activations RandomActivations(Random& random, size_t count, double scale = 1) {
  if constexpr (sizeof(T) == 2) {
    const std::vector<uint16_t> raw = random.Bf16(count, scale);
    return {ToBytes(raw), FromBf16(raw)};
  } else {
    const std::vector<float> raw = random.Floats(count, scale);
    return {ToBytes(raw), {raw.begin(), raw.end()}};
  }
}

// Every case, by the op family.
std::vector<Case> MemoryCases();
std::vector<Case> RowCases();
std::vector<Case> MatrixCases();
std::vector<Case> ChooseCases();
std::vector<Case> LinkCases();
std::vector<Case> LitmusCases();
std::vector<Case> ResidentCases();
std::vector<Case> RoundCases();
std::vector<Case> ProbeCases();
std::vector<Case> DecoderStepCases();
std::vector<Case> DecoderRouteCases();
std::vector<Case> DecoderMatrixCases();
std::vector<Case> DecoderTallCases();
std::vector<Case> DecoderExpertCases();
std::vector<Case> DecoderAttentionCases();
std::vector<Case> DecoderHereCases();
std::vector<Case> DecoderAttendTallCases();
std::vector<Case> DecoderNearCases();
std::vector<Case> DecoderSharedCases();
std::vector<Case> DecoderLatentCases();
std::vector<Case> DecoderReduceCases();
std::vector<Case> DecoderRowCases();
std::vector<Case> DecoderHeadCases();
std::vector<Case> StateCases();
std::vector<Case> SampleCases();
std::vector<Case> FidelityCases();
std::vector<Case> AllCases();

}  // namespace mainarch::kernels_test

#endif  // MAINARCH_TESTS_UNIT_KERNELS_CASE_H_
