// SPDX-License-Identifier: MIT
//
// Sixteen rows of a checkpoint to lanes: the inner loop of packing, fast enough that a panel can be
// packed each time it is used.
#ifndef MAINARCH_BACKEND_CPU_TRANSPOSE_H_
#define MAINARCH_BACKEND_CPU_TRANSPOSE_H_

#include <cstdint>

namespace mainarch::cpu {

// What becomes of the sixteen 32-bit words of one step once they lie side by side.
enum class WordOrder : uint8_t {
  kPlain,  // f32: a column; bf16, f16: two columns
  kFp8,    // four columns: within each four words, bytes [r][c] to 2 r + 8 (c / 2) + c % 2
  kMxfp4,  // eight columns: within each word, even nibbles to the low half, odd ones to the high
};

// Word i of rows[lane], in the order asked for, to word lane of out + 64 i, for i below `words`. A
// row that is null is zeros. Rows need no alignment.
void TransposeWords(const uint8_t* const* rows, int64_t words, WordOrder order, uint8_t* out);

// As compiled for every CPU; tests hold the dispatched one against it.
void PortableTransposeWords(const uint8_t* const* rows, int64_t words, WordOrder order,
                            uint8_t* out);

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_TRANSPOSE_H_
