// SPDX-License-Identifier: MIT
//
// How many pages and slots an engine's caches get: what was asked for, within what the devices have
// and what the caller allows. Asked before anything is reserved, so that a wild number is refused at
// once.
//
// Where there is too little, slots for rounds give way first: without them the host has a part in each step. Then snapshots: without
// them more is run again, without pages fewer tokens fit. Then pages of the caches without a window, if the caller left their number
// open. What is left at the least is one of these pages, the pages that windows touch, and the slots
// that sequences stand on and write to.
#ifndef MAINARCH_DECODE_KV_BUDGET_H_
#define MAINARCH_DECODE_KV_BUDGET_H_

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "model/sequence_caches.h"

namespace mainarch::decode {

struct PoolWish {
  model::CacheDemand demand;
  bool fixed_pages = false;  // the caller named demand.pages: that many or none
  uint32_t state_slots = 0;  // that the caller named, of each cache of states; 0: by demand
};

struct Budget {
  uint64_t bytes = UINT64_MAX;  // of which `beside` are not the caches'
  uint64_t beside = 0;
  bool by_caller = false;            // memory_bytes, not the device, is what limits
  std::vector<uint64_t> unit_bytes;  // of a page or slot of each cache; empty: not known
};

// `memory_bytes`: that the caller allows; 0: no limit but the room.
Budget BudgetOf(const backend::KvRoom& room, uint64_t memory_bytes);

// Units of each cache's pool. InvalidArgument: state_slots fewer than sequences need, or more units
// than there are ids for.
StatusOr<std::vector<uint32_t>> PoolSizes(const std::vector<model::CacheForm>& forms,
                                          const PoolWish& wish);

// Over all caches; stops at UINT64_MAX.
uint64_t PoolBytes(const std::vector<uint32_t>& sizes, const Budget& budget);

// The wish's demand with as many rounds, snapshots and, where they are not fixed, pages as fit.
// OutOfDeviceMemory says what the least takes and what there is.
StatusOr<model::CacheDemand> DemandWithin(const std::vector<model::CacheForm>& forms,
                                          const PoolWish& wish, const Budget& budget);

}  // namespace mainarch::decode

#endif  // MAINARCH_DECODE_KV_BUDGET_H_
