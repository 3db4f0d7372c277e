// SPDX-License-Identifier: MIT
#ifndef MAINARCH_MODEL_ROPE_H_
#define MAINARCH_MODEL_ROPE_H_

#include "backend/program.h"
#include "model/config.h"

namespace mainarch::model {

// Inverse frequencies theta^(-2i/R), with YaRN's ramp (models.md §1.5) or Llama 3's when they are
// configured.
backend::Rope MakeRope(const RopeConfig& config);

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_ROPE_H_
