// SPDX-License-Identifier: MIT
//
// What a KV cache makes of a head's K and V, in fp64 and by brute force: written down again here, so that
// a mistake of the kernels does not hide.
#ifndef MAINARCH_REFERENCE_KV_ROUNDING_H_
#define MAINARCH_REFERENCE_KV_ROUNDING_H_

#include "absl/types/span.h"
#include "kernels/quant/kv_type.h"

namespace mainarch::reference {

// The head times the orthonormal Hadamard matrix of quant::HadamardSize, part by part.
void TurnHead(absl::Span<double> head);

// The head as it is held. Of four bits each block takes the scale with the least squared error of all.
void RoundHead(quant::KvForm form, absl::Span<double> head);

// How far an element of `exact`, one head, may be from what is held of it: half a step of the form's, and
// what fp32 arithmetic may have done, a thousandth of the head's largest. With four bits an element may be
// clipped: only a bound is claimed here, and CheckBlocks has the rest.
double Allowance(quant::KvForm form, absl::Span<const double> exact, size_t index);

// Of four bits: no block is further from `exact` than with the best scale, but for arithmetic. Returns the
// first block that is, or -1.
int WorstBlock(quant::KvForm form, absl::Span<const double> exact, absl::Span<const double> held);

}  // namespace mainarch::reference

#endif  // MAINARCH_REFERENCE_KV_ROUNDING_H_
