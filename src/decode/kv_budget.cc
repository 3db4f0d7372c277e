// SPDX-License-Identifier: MIT
#include "decode/kv_budget.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace mainarch::decode {
namespace {

// Ids of pages and slots have 32 bits, of which the last is for those that are none.
constexpr uint64_t kMaxUnits = uint64_t{1} << 31;

std::vector<uint64_t> UnitsOf(const std::vector<model::CacheForm>& forms, const PoolWish& wish) {
  const bool some_whole =
      std::any_of(forms.begin(), forms.end(), [](const auto& form) { return form.whole(); });
  std::vector<uint64_t> units;
  for (const model::CacheForm& form : forms) {
    const bool named = form.slots && wish.state_slots > 0;
    units.push_back(named ? wish.state_slots : model::PoolSize(form, some_whole, wish.demand));
  }
  return units;
}

template <class Unit>
uint64_t BytesOf(const std::vector<Unit>& units, const Budget& budget) {
  uint64_t bytes = 0;
  for (size_t c = 0; c < units.size() && c < budget.unit_bytes.size(); ++c) {
    uint64_t of_cache = 0;
    if (__builtin_mul_overflow(uint64_t{units[c]}, budget.unit_bytes[c], &of_cache) ||
        __builtin_add_overflow(bytes, of_cache, &bytes)) {
      return UINT64_MAX;
    }
  }
  return bytes;
}

// The largest n in [first, last] that is good, of which all smaller ones are; `first` is.
template <class Good>
uint64_t Largest(uint64_t first, uint64_t last, const Good& good) {
  while (first < last) {
    const uint64_t middle = first + (last - first + 1) / 2;
    if (good(middle)) {
      first = middle;
    } else {
      last = middle - 1;
    }
  }
  return first;
}

Status TooLittle(const std::vector<model::CacheForm>& forms, const PoolWish& least,
                 const Budget& budget) {
  std::string what = absl::StrCat("kv_tokens ", least.demand.pages * backend::kPageTokens);
  const bool others =
      std::any_of(forms.begin(), forms.end(), [](const auto& form) { return !form.whole(); });
  if (others) {
    absl::StrAppend(&what, " with the states and windows of ", least.demand.sequences,
                    " sequences (max_sequences)");
    if (least.state_slots > 0) absl::StrAppend(&what, " in ", least.state_slots, " state_slots");
  }
  absl::StrAppend(&what, " takes ", BytesOf(UnitsOf(forms, least), budget), " bytes");
  if (budget.beside > 0) absl::StrAppend(&what, " and activations ", budget.beside);
  return Error(Code::kOutOfDeviceMemory, what, ": more than the ", budget.bytes,
               budget.by_caller ? " of memory_bytes" : " of the device");
}

}  // namespace

Budget BudgetOf(const backend::KvRoom& room, uint64_t memory_bytes) {
  Budget budget;
  if (!room.unit_bytes.empty()) budget.bytes = room.bytes;
  budget.by_caller = memory_bytes > 0 && memory_bytes < budget.bytes;
  if (budget.by_caller) budget.bytes = memory_bytes;
  budget.unit_bytes = room.unit_bytes;
  return budget;
}

StatusOr<std::vector<uint32_t>> PoolSizes(const std::vector<model::CacheForm>& forms,
                                          const PoolWish& wish) {
  PoolWish least = wish;
  least.demand.snapshots = least.demand.rounds = least.state_slots = 0;
  const std::vector<uint64_t> needed = UnitsOf(forms, least), units = UnitsOf(forms, wish);
  std::vector<uint32_t> sizes;
  for (size_t c = 0; c < forms.size(); ++c) {
    if (forms[c].slots && (units[c] < needed[c] || units[c] > kMaxUnits)) {
      return Error(Code::kInvalidArgument, "state_slots ", units[c], " is not from ", needed[c],
                   " to ", kMaxUnits);
    }
    if (units[c] > kMaxUnits) {
      return Error(Code::kInvalidArgument, "cache ", c, ": ", wish.demand.sequences,
                   " sequences (max_sequences) with ", wish.demand.snapshots,
                   " snapshots need ", units[c], " pages: more than ", kMaxUnits);
    }
    sizes.push_back(static_cast<uint32_t>(units[c]));
  }
  return sizes;
}

uint64_t PoolBytes(const std::vector<uint32_t>& sizes, const Budget& budget) {
  return BytesOf(sizes, budget);
}

StatusOr<model::CacheDemand> DemandWithin(const std::vector<model::CacheForm>& forms,
                                          const PoolWish& wish, const Budget& budget) {
  PoolWish tried = wish;
  const auto fits = [&] {
    return budget.beside <= budget.bytes &&
           BytesOf(UnitsOf(forms, tried), budget) <= budget.bytes - budget.beside;
  };
  const auto fits_pages = [&](uint64_t pages) {
    tried.demand.pages = pages;
    return fits();
  };
  const auto fits_snapshots = [&](uint64_t snapshots) {
    tried.demand.snapshots = static_cast<uint32_t>(snapshots);
    return fits();
  };
  const auto fits_rounds = [&](uint64_t rounds) {
    tried.demand.rounds = static_cast<uint32_t>(rounds);
    return fits();
  };
  if (fits()) return wish.demand;
  if (fits_rounds(0)) {
    tried.demand.rounds = static_cast<uint32_t>(Largest(0, wish.demand.rounds, fits_rounds));
    return tried.demand;
  }
  if (fits_snapshots(0)) {
    tried.demand.snapshots =
        static_cast<uint32_t>(Largest(0, wish.demand.snapshots, fits_snapshots));
    return tried.demand;
  }
  if (wish.fixed_pages || !fits_pages(1)) return TooLittle(forms, tried, budget);
  tried.demand.pages = Largest(1, wish.demand.pages, fits_pages);
  // Those that cost nothing: state_slots are as many anyway, a window has no more pages than all.
  tried.demand.snapshots =
      static_cast<uint32_t>(Largest(0, wish.demand.snapshots, fits_snapshots));
  return tried.demand;
}

}  // namespace mainarch::decode
