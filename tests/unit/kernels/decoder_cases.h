// SPDX-License-Identifier: MIT
//
// What the cases of the decoder's kernels share: a step block, weights in tiles with their values,
// and expectations in which what must stay untouched is part of the answer.
#ifndef MAINARCH_TESTS_UNIT_KERNELS_DECODER_CASES_H_
#define MAINARCH_TESTS_UNIT_KERNELS_DECODER_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "backend/activation.h"
#include "kernels/decoder_args.h"
#include "unit/kernels/case.h"

namespace mainarch::kernels_test {

// A float that nothing computes: what buffers hold before a kernel runs.
inline constexpr uint8_t kUntouchedByte = 0xee;
double Untouched();

uint32_t RoundUp(uint32_t n, uint32_t unit);

// One step as the host would write it.
struct StepPlan {
  struct Row {
    uint32_t token = 0;
    uint32_t position = 0;
    std::vector<uint32_t> pages;
    uint32_t from = kernels::kHere;
    bool follows = false;  // in the sequence of the row before, whose pages are its own
  };
  std::vector<Row> rows;
  std::vector<uint32_t> logit_rows;
  std::vector<uint32_t> inputs;  // of each row, or empty
  uint32_t first_input = 0;
  // Of each cache of slots; a row for each of the step's.
  struct States {
    std::vector<uint32_t> in, out;
  };
  std::vector<States> states;
  std::vector<std::pair<uint32_t, uint32_t>> sequences;  // first row, rows
  uint32_t index = 0;

  static StepPlan Of(uint32_t rows);
  Bytes Block() const;
  uint32_t count() const { return static_cast<uint32_t>(rows.size()); }
};

// Rows of fp32 with a stride, and for each element what is wanted and how far off it may be.
// Everything not set must be as before.
class Wanted {
 public:
  Wanted(size_t rows, size_t stride)
      : stride_(stride), values_(rows * stride, Untouched()), allowed_(rows * stride, 0) {}
  void Set(size_t row, size_t column, double value, double allowed) {
    values_[row * stride_ + column] = value;
    allowed_[row * stride_ + column] = allowed;
  }
  Buffer ToFill(const std::string& name, uint32_t device = 0) const {
    return {name, Bytes(values_.size() * 4, kUntouchedByte), device};
  }
  Expectation Check(const std::string& name) const { return WithinFloat(name, values_, allowed_); }
  // The same of split rows, which round to 2^-17.
  Expectation CheckSplit(const std::string& name) const;

 private:
  size_t stride_;
  std::vector<double> values_, allowed_;
};

// Activations [rows, stride] with zeros beyond `width`.
struct Inputs {
  uint32_t rows = 0, width = 0, stride = 0;
  std::vector<float> values;
  double at(size_t row, size_t column) const { return values[row * stride + column]; }
};
Inputs RandomInputs(Random& random, uint32_t rows, uint32_t width, double scale = 1);
// `x` as split rows; `norm`, one a column or none, multiplies it first.
Bytes SplitRows(const Inputs& x, const std::vector<float>& norm = {});
// As many shares of x as workgroups share k, a power of two: their sum in fp32 is x, exactly.
Bytes SumsOf(const Inputs& x, uint32_t count);
// The sums of squares of its chunks, [rows, chunks].
std::vector<float> SquaresOf(const Inputs& x);

// As many words (ToldWords) as a launch with another tag has left, of numbers that nobody may take.
Bytes StaleWords(size_t count, uint32_t tag);
inline size_t ToldWordCount(uint32_t splits, uint32_t stride) {
  return size_t{splits} * kernels::kToldRows * kernels::ToldStride(stride);
}

// The second buffer has to be the first, to the bit, and to be written at all.
std::vector<Expectation> Same(const std::string& first, const std::string& second, bool written);

// A number and a bound on the error that a kernel may make in it.
struct Near {
  double value = 0, allowed = 0;
};
Near SiluTimes(const Near& gate, const Near& up);
// Of any activation.
Near Activated(backend::Activation activation, const Near& gate, const Near& up);

}  // namespace mainarch::kernels_test

#endif  // MAINARCH_TESTS_UNIT_KERNELS_DECODER_CASES_H_
