// SPDX-License-Identifier: MIT
//
// Where the pages of a split lie, and what attention's passes fetch of them while they work (attention.cc, whose
// pairs of forms F are).
#ifndef MAINARCH_BACKEND_CPU_KERNELS_ATTENTION_FETCH_H_
#define MAINARCH_BACKEND_CPU_KERNELS_ATTENTION_FETCH_H_

#include "backend/cpu/kernels/functions.h"
#include "backend/cpu/simd/simd.h"

namespace mainarch::cpu::MAINARCH_TARGET {
namespace {

// Bits of one element.
template <class F>
constexpr int kBits = F::kBytes / (2 * F::kCols);

struct Page {
  const uint8_t* k;
  const uint8_t* v;
  const uint8_t* k_scale;  // KvScaleAt
  const uint8_t* v_scale;
};

template <class F>
inline Page PageAt(const AttendArgs& a, int64_t token) {
  constexpr size_t kKeyBits = kBits<typename F::Key>, kValueBits = kBits<typename F::Value>;
  const size_t key_dim = static_cast<size_t>(a.kv.key_dim);
  const size_t value_dim = static_cast<size_t>(a.kv.value_dim);
  const size_t k_side = key_dim * 2 * kKeyBits, v_side = value_dim * 2 * kValueBits;
  const size_t id = a.page_ids[token / 16 - a.first_page];
  const size_t page = id % kKvChunkPages;
  const uint8_t* k = a.chunks + id / kKvChunkPages * a.chunk_stride;
  const uint8_t* v = k + kKvChunkPages * k_side;
  const size_t k_scales = KvScaleBytes(F::Key::kForm, a.kv.key_dim);
  const uint8_t* scales = v + kKvChunkPages * v_side +
                          page * (k_scales + KvScaleBytes(F::Value::kForm, a.kv.value_dim));
  return {k + page * k_side, v + page * v_side, scales, scales + k_scales};
}

// (Inlined early, or else gcc takes the calls for ones without effects.)
template <int kBytes>
inline __attribute__((always_inline)) void PrefetchFirst(const uint8_t* p) {
  for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(p + i);
}
// A line into the second level.
inline __attribute__((always_inline)) void PrefetchSecond(const uint8_t* p) { __builtin_prefetch(p, 0, /*locality=*/2); }

// What a pass over K or V fetches meanwhile: what the next pass reads, or what it reads itself a page later.
enum class Fetch : uint8_t { kNothing, kNextPass, kNextPage };

// Fetches V of NT pages bit by bit, one page after the other: the memory likes that better than NT at a
// time. As much of it a step as of K, in the end, where heads are as large.
template <class F, int NT>
class FetchValues {
 public:
  FetchValues(const AttendArgs& a, const Page (&page)[NT], Fetch fetch)
      : page_(page), side_(a.kv.key_dim * 2 * kBits<typename F::Value>), wanted_(fetch == Fetch::kNextPass) {}
  inline __attribute__((always_inline)) void Step() {
    if (!wanted_) return;
    PrefetchFirst<kStep>(page_[at_page_].v + at_);
    at_ += kStep;
    if (at_ == side_) {  // a multiple: key_dim is one of 16, of 32 with 4 bits
      at_ = 0;
      ++at_page_;
    }
  }

 private:
  static constexpr int kStep =
      NT * F::Key::kBytes * kBits<typename F::Value> / kBits<typename F::Key>;
  const Page (&page_)[NT];
  const int32_t side_;
  const bool wanted_;
  int32_t at_ = 0, at_page_ = 0;
};

// What a pass sees of a split: tokens [begin, end) of pages that are there; and whether all of the next split is.
struct Extent {
  int64_t begin, end;
  bool next;
};

// Fetches K of the NT pages behind those at hand, column by column as these are read; behind the last one V of the
// first ones.
template <class F, int NT>
class FetchKeys {
 public:
  FetchKeys(const AttendArgs& a, int64_t token, const Extent& in, Fetch fetch) : wanted_(fetch == Fetch::kNextPage) {
    if (!wanted_) return;
    for (int t = 0; t < NT; ++t) {
      const int64_t to = token + 16 * (NT + t), value = in.begin + to - in.end;
      page_[t] = to < in.end ? PageAt<F>(a, to).k : PageAt<F>(a, value < in.end ? value : in.begin).v;
    }
  }
  inline __attribute__((always_inline)) void Step(int32_t d) {
    if (!wanted_) return;
    MAINARCH_UNROLL for (int t = 0; t < NT; ++t) {
      for (int i = 0; i < F::Key::kBytes; i += 64) PrefetchSecond(page_[t] + d / F::Key::kCols * F::Key::kBytes + i);
    }
  }

 private:
  const bool wanted_;
  const uint8_t* page_[NT];
};

// Fetches while V is read, a row at a time: kNextPass, K of the next split; kNextPage, V of a page further on, at the end
// K of the next split's first ones.
template <class F, class W>
class FetchRows {
 public:
  FetchRows(const AttendArgs& a, int64_t token, const Extent& in, Fetch fetch) : fetch_(fetch) {
    constexpr int64_t kBehind = 16 * (kBits<W> < 16 ? 16 / kBits<W> : 1);  // 4 KiB of heads of 128
    const int64_t to = token + kBehind;
    if (fetch == Fetch::kNextPage && to < in.end) {
      row_ = int64_t{a.kv.value_dim} * kBits<W> / 8;
      page_ = PageAt<F>(a, to).v;
    } else if (fetch != Fetch::kNothing && in.next) {
      row_ = int64_t{a.kv.key_dim} * kBits<typename F::Key> / 8;
      page_ = PageAt<F>(a, fetch == Fetch::kNextPass ? token + kAttentionSplit : to).k;
    }
  }
  inline __attribute__((always_inline)) void Step(int t) {
    const uint8_t* const row = page_ + t * row_;
    if (fetch_ == Fetch::kNextPage) {
      for (int64_t i = 0; i < row_; i += 64) PrefetchSecond(row + i);
    } else {
      for (int64_t i = 0; i < row_; i += 64) __builtin_prefetch(row + i);
    }
  }

 private:
  const Fetch fetch_;
  int64_t row_ = 0;  // bytes of one; 0: nothing is fetched
  const uint8_t* page_ = nullptr;
};

}  // namespace
}  // namespace mainarch::cpu::MAINARCH_TARGET

#endif  // MAINARCH_BACKEND_CPU_KERNELS_ATTENTION_FETCH_H_
