// SPDX-License-Identifier: MIT
//
// What ops.cc says of each operator, for whoever asks of any.
#ifndef MAINARCH_BACKEND_OPS_INFO_H_
#define MAINARCH_BACKEND_OPS_INFO_H_

#include <string>
#include <vector>

#include "backend/program.h"
#include "base/status.h"

namespace mainarch::backend {

struct WeightUse {
  enum Kind : uint8_t {
    kLookup,   // rows by index, of `out` columns
    kVector,   // `in` values
    kProduct,  // by which rows of at most `in` values become rows of at most `out`
    kRouted,   // the same, each row by its own experts
    kHeads,    // the same, each of a row's heads by its own group
  };
  WeightId id;
  Kind kind;
  int64_t in = 0;
  int64_t out = 0;
};

struct OpUses {
  std::vector<BufferId> reads;
  std::vector<WeightUse> weights;
  std::vector<BufferId> writes;
  bool adds = false;  // to what it writes
};

OpUses UsesOf(const Program& program, const Op& op);
// Of the text of an op, what its buffers and weights do not say.
std::string NoteOf(const Op& op);
// What an op demands beyond the shapes of its weights, once its ids are known to be in range.
Status CheckOp(const Program& program, const Op& op);
// What an op costs beyond its weights.
void AddOwnCost(const Program& program, const Op& op, const Work& work, Cost* cost);

}  // namespace mainarch::backend

#endif  // MAINARCH_BACKEND_OPS_INFO_H_
