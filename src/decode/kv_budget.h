// SPDX-License-Identifier: MIT
//
// How many KV pages an engine gets: what was asked for, within what the devices have and what the
// caller allows. Asked before anything is reserved, so that a wild number is refused at once.
#ifndef MAINARCH_DECODE_KV_BUDGET_H_
#define MAINARCH_DECODE_KV_BUDGET_H_

#include <cstdint>

#include "backend/backend.h"
#include "base/status.h"

namespace mainarch::decode {

struct KvWish {
  uint64_t pages = 0;
  bool fixed = false;         // the caller named the number: that many or none
  uint64_t memory_bytes = 0;  // that the caller allows, activations included; 0: no limit
};

// At most `wish.pages`, at least 1. OutOfDeviceMemory says what it would take and what there is.
StatusOr<uint64_t> PagesWithin(const KvWish& wish, const backend::KvRoom& room);

// A context that was made with wish.pages takes `made_bytes`, more than the caller allows: how many
// pages to try next, fewer. OutOfDeviceMemory when there is no such number.
StatusOr<uint64_t> FewerPages(const KvWish& wish, const backend::KvRoom& room, uint64_t made_bytes);

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_KV_BUDGET_H_
