// SPDX-License-Identifier: MIT
//
// Page tables of a context's sequences, as every GPU holds them behind its step block: of each paged
// cache one row of words a table, word i the page of positions [16 i, 16 i + 16); of pages behind a
// window, but for those that are kept, something older. The host keeps what the GPUs will
// hold once they have run what was submitted, so that a step brings only what has changed: a list
// of a million tokens is 62,500 words, of which the next token changes one in sixteen times.
//
// Threads: one.
#ifndef MAINARCH_BACKEND_AMDGPU_PAGE_TABLES_H_
#define MAINARCH_BACKEND_AMDGPU_PAGE_TABLES_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/status.h"
#include "kernels/decoder_args.h"

namespace mainarch::amdgpu {

class PageTables {
 public:
  // One of Program::caches, whose pages are below `pages`.
  struct Pool {
    size_t cache;
    uint32_t pages;
  };
  // Of each of `pools` `tables` rows of `words`, zeros on both sides.
  static StatusOr<PageTables> Create(uint32_t tables, uint32_t words, std::vector<Pool> pools);

  // How many entries the step's lists change. Internal, and nothing has changed: a list that is
  // longer than a table, a page beyond the pool, a table that is none or named twice.
  StatusOr<uint64_t> Count(const backend::Step& step);
  // At most `room` of the changes that are left, into `out`, which is written and never read: it is
  // memory that no cache keeps. They count as made. Only after Count.
  uint32_t Take(const backend::Step& step, uint32_t room, kernels::PageChange* out);

  // Of a table of the first pool, in words from the start.
  uint32_t Offset(uint32_t table) const { return table * words_; }

 private:
  struct Free {
    void operator()(uint32_t* p) const { std::free(p); }
  };
  PageTables(uint32_t tables, uint32_t words, std::vector<Pool> pools)
      : pools_(std::move(pools)), words_(words), seen_(tables) {}
  bool AsHeld(size_t i, const backend::StepSequence& sequence) const;
  // Of one list, what Count says of all.
  StatusOr<uint64_t> CountList(size_t i, const backend::StepSequence& sequence) const;
  // Of pool i the word of a page of a sequence's, from the start of all tables.
  size_t FirstWord(size_t i, uint32_t table, uint32_t page) const {
    return (i * seen_.size() + table) * words_ + page;
  }

  std::vector<Pool> pools_;
  uint32_t words_;
  // [pools, tables, words]; pages of memory that nobody has written to cost nothing.
  std::unique_ptr<uint32_t[], Free> held_;
  std::vector<uint32_t> seen_;  // [table]: the call of Count that met it last
  uint32_t call_ = 0;
  uint64_t left_ = 0;  // changes that Count found, and Take has not made
};

}  // namespace mainarch::amdgpu

#endif  // MAINARCH_BACKEND_AMDGPU_PAGE_TABLES_H_
