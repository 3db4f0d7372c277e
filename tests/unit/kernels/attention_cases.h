// SPDX-License-Identifier: MIT
//
// What the cases of attention share: caches as the documentation in decoder_args.h lays them out, pages in no
// order, and attention in doubles. Whatever a cache holds beyond a row's position is a NaN here.
#ifndef MAINARCH_TESTS_UNIT_KERNELS_ATTENTION_CASES_H_
#define MAINARCH_TESTS_UNIT_KERNELS_ATTENTION_CASES_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/near_args.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/fp8_e4m3.h"
#include "kernels/quant/kv_fp4.h"
#include "unit/kernels/decoder_cases.h"

namespace mainarch::kernels_test {

using namespace kernels;

inline constexpr KvFormat kFormats[] = {KvFormat::kBF16, KvFormat::kFp8, KvFormat::kF32, KvFormat::kFp4,
                                 KvFormat::kK8V4};
inline constexpr uint32_t kHeadDims[] = {32, 64, 96, 128, 192, 256};  // that there are kernels of
inline constexpr float kEpsilon = 1e-6f;

inline const char* NameOf(KvFormat format) {
  return format == KvFormat::kF32 ? "pair" : quant::kKvTypeNames[static_cast<uint32_t>(format)];
}
// What an element loses in the cache, relative: half a unit of its 8, 4 or 16 bits.
inline double LossOf(KvForm form) {
  return form == KvForm::kBF16 ? 0x1.02p-8 : form == KvForm::kFp8 ? 0x1.02p-4 : 0x1.1p-16;
}

// The cache as the documentation in decoder_args.h lays it out.
class Cache {
 public:
  Cache(KvFormat format, uint32_t key_dim, uint32_t value_dim, uint32_t kv_heads, uint32_t pages)
      : format_(format), key_dim_(key_dim), value_dim_(value_dim), kv_heads_(kv_heads) {
    bytes.assign(size_t{pages} * kv_heads * PageBytes(), 0xff);  // NaNs, all of it
  }

  // Element d of K or V of a token, as a double: with its multiplier.
  double Get(bool value, uint32_t page, uint32_t head, uint32_t token, uint32_t d) const {
    const uint8_t* side = Base(page, head) + Side(value);
    const size_t at = Index(value, token, d);
    const KvForm form = FormOf(value);
    if (form == KvForm::kFp4) {
      return double{quant::FloatFromE2m1(quant::Mxfp4Nibble(side, static_cast<int64_t>(at)))} *
             double{quant::FloatFromE5m3(BlockScale(value, page, head, token, d))};
    }
    if (form == KvForm::kFp8) {
      return static_cast<double>(quant::FloatFromFp8E4m3(side[at])) *
             ScaleOf(value, page, head, token);
    }
    double sum = 0;
    for (uint32_t plane = 0; plane < KvPlanes(form); ++plane) {
      uint16_t bits;
      std::memcpy(&bits, side + plane * KvPlaneBytes(form, DimOf(value)) + at * 2, 2);
      sum += quant::FloatFromBf16(bits);
    }
    return sum;
  }
  KvForm FormOf(bool value) const { return value ? ValueForm(format_) : KeyForm(format_); }
  float ScaleOf(bool value, uint32_t page, uint32_t head, uint32_t token) const {
    float scale;
    std::memcpy(&scale, Base(page, head) + Scales(value) + size_t{token} * 4, 4);
    return scale;
  }
  uint8_t BlockScale(bool value, uint32_t page, uint32_t head, uint32_t token, uint32_t d) const {
    return Base(page, head)[Scales(value) + ScaleAt(value, token, d / 32)];
  }
  // Something random that the format can hold.
  void Fill(Random& random, uint32_t page, uint32_t head, uint32_t token) {
    for (bool value : {false, true}) {
      const KvForm form = FormOf(value);
      uint8_t* side = Base(page, head) + Side(value);
      uint8_t* scales = Base(page, head) + Scales(value);
      const float scale = static_cast<float>(0.01 + 0.02 * random.Uniform());
      if (form == KvForm::kFp8) std::memcpy(scales + size_t{token} * 4, &scale, 4);
      for (uint32_t d = 0; d < DimOf(value); ++d) {
        const size_t at = Index(value, token, d);
        const float x = static_cast<float>(random.Normal());
        if (form == KvForm::kFp4) {
          // Scales from 2^-3 to 2^0, and now and then one so small that it has no exponent.
          if (d % 32 == 0) {
            const uint64_t code = random.Next() % 24;
            scales[ScaleAt(value, token, d / 32)] = static_cast<uint8_t>(code == 0 ? 5 : 96 + code);
          }
          SetNibble(side, at, static_cast<uint8_t>(random.Next() % 16));
          continue;
        }
        if (form == KvForm::kFp8) {
          const uint8_t code = quant::Fp8E4m3FromFloat(x / scale);
          side[at] = code == 0x80 ? 0 : code;  // no kernel appends a negative zero
          continue;
        }
        float left = x;
        for (uint32_t plane = 0; plane < KvPlanes(form); ++plane) {
          const uint16_t bits = quant::Bf16FromFloat(left);
          std::memcpy(side + plane * KvPlaneBytes(form, DimOf(value)) + at * 2, &bits, 2);
          left -= quant::FloatFromBf16(bits);
        }
      }
    }
  }
  // Puts back what `other` has for one token: what is left are the bytes of all others.
  void CopyToken(const Cache& other, bool value, uint32_t page, uint32_t head, uint32_t token) {
    const KvForm form = FormOf(value);
    uint8_t* to = Base(page, head) + Side(value);
    const uint8_t* from = other.Base(page, head) + Side(value);
    for (uint32_t d = 0; d < DimOf(value); ++d) {
      const size_t at = Index(value, token, d);
      if (form == KvForm::kFp4) SetNibble(to, at, quant::Mxfp4Nibble(from, static_cast<int64_t>(at)));
      const uint32_t size = quant::InfoOf(form).plane_bits / 8;
      for (uint32_t plane = 0; size > 0 && plane < KvPlanes(form); ++plane) {
        const size_t byte = plane * KvPlaneBytes(form, DimOf(value)) + at * size;
        std::memcpy(to + byte, from + byte, size);
      }
    }
    uint8_t* to_scales = Base(page, head) + Scales(value);
    const uint8_t* from_scales = other.Base(page, head) + Scales(value);
    if (form == KvForm::kFp8) std::memcpy(to_scales + token * 4, from_scales + token * 4, 4);
    for (uint32_t block = 0; form == KvForm::kFp4 && block < DimOf(value) / 32; ++block) {
      to_scales[ScaleAt(value, token, block)] = from_scales[ScaleAt(value, token, block)];
    }
  }

  size_t PageBytes() const { return KvPageBytes(format_, key_dim_, value_dim_); }  // of a head

  Bytes bytes;

 private:
  uint8_t* Base(uint32_t page, uint32_t head) {
    return &bytes[(size_t{page} * kv_heads_ + head) * PageBytes()];
  }
  const uint8_t* Base(uint32_t page, uint32_t head) const {
    return const_cast<Cache*>(this)->Base(page, head);
  }
  static void SetNibble(uint8_t* side, size_t at, uint8_t code) {
    const int shift = at % 2 * 4;
    side[at / 2] = static_cast<uint8_t>((side[at / 2] & (0xf0 >> shift)) | code << shift);
  }
  uint32_t DimOf(bool value) const { return value ? value_dim_ : key_dim_; }
  size_t Side(bool value) const { return value ? KvSideBytes(FormOf(false), key_dim_) : 0; }
  size_t Scales(bool value) const {
    return size_t{KvSideBytes(FormOf(false), key_dim_)} + KvSideBytes(FormOf(true), value_dim_) +
           (value ? KvScaleBytes(FormOf(false), key_dim_) : 0);
  }
  // Of four bits: K has a token's multipliers side by side, V a block's.
  size_t ScaleAt(bool value, uint32_t token, uint32_t block) const {
    return value ? size_t{block} * kPageTokens + token : size_t{token} * (key_dim_ / 32) + block;
  }
  size_t Index(bool value, uint32_t token, uint32_t d) const {
    if (value && FormOf(true) == KvForm::kFp4) return KvFp4ValueAt(value_dim_, token, d);
    if (value) return size_t{d} * kPageTokens + token;
    // Four lanes' parts of eight: elements 4 g .. 4 g + 3 and 16 + 4 g .. 16 + 4 g + 3.
    const size_t part = d % 16 / 4, element = d % 4 + (d % 32 < 16 ? 0 : 4);
    return (size_t{d / 32} * kPageTokens + token) * 32 + part * 8 + element;
  }
  KvFormat format_;
  uint32_t key_dim_, value_dim_, kv_heads_;
};

// Pages for every row, none shared, in no order; one page is nobody's.
inline uint32_t DealPages(Random& random, StepPlan* step) {
  uint32_t count = 1;
  for (const StepPlan::Row& row : step->rows) count += row.position / kPageTokens + 1;
  std::vector<uint32_t> order(count);
  for (uint32_t i = 0; i < count; ++i) order[i] = i;
  for (uint32_t i = 0; i + 1 < count; ++i)
    std::swap(order[i], order[i + random.Next() % (count - i)]);
  for (StepPlan::Row& row : step->rows) {
    const uint32_t own = row.position / kPageTokens + 1;
    row.pages.assign(order.end() - own, order.end());
    order.resize(order.size() - own);
  }
  return count;
}

// Tables of another cache come before, of pages that there are not: each row has one of so many words.
inline constexpr uint32_t kTablesAt = 3;
inline constexpr uint32_t kNoPage = 0xfffff;
inline void PutTablesBehind(StepPlan* step) {
  for (StepPlan::Row& row : step->rows) row.pages.insert(row.pages.begin(), kTablesAt, kNoPage);
}

struct HeadShape {
  KvFormat format;
  uint32_t head_dim, kv_heads, group;
  std::vector<uint32_t> positions;
  uint32_t own_value_dim = 0;  // 0: as head_dim

  uint32_t value_dim() const { return own_value_dim == 0 ? head_dim : own_value_dim; }
  // As kernels' names have them.
  std::string Dims() const {
    return own_value_dim == 0 ? absl::StrCat(head_dim) : absl::StrCat(head_dim, "_", own_value_dim);
  }
  Cache CacheOf(uint32_t pages) const { return Cache(format, head_dim, value_dim(), kv_heads, pages); }
  uint32_t heads() const { return kv_heads * group; }
  uint32_t count() const { return static_cast<uint32_t>(positions.size()); }
  std::string Text() const {
    std::string text =
        absl::StrCat(NameOf(format), "_", Dims(), " ", heads(), "/", kv_heads, " at");
    for (uint32_t position : positions) absl::StrAppend(&text, " ", position);
    return text;
  }
};

inline StepPlan StepOf(const HeadShape& s) {
  StepPlan step = StepPlan::Of(s.count());
  for (uint32_t i = 0; i < s.count(); ++i) step.rows[i].position = s.positions[i];
  return step;
}

// What there is of it beside scores and values.
struct AttendParts {
  bool gated = false;
  uint32_t window = 0;
  bool sinks = false;
  bool is_long = false;  // by the kernels of long contexts
  bool wide = false;     // merged as where heads are many
};
inline const char* MergeKernel(bool is_long, bool wide) {
  return wide ? "attend_long_merge_wide" : is_long ? "attend_long_merge" : "attend_merge";
}

struct AttendData {
  StepPlan step;
  Inputs qkv;
  Cache kv;
  uint32_t window;
  std::vector<float> sinks;  // [heads], or none
  // Of two caches (near_args.h) the near one, and its pages of every row; `kv` is the far one then.
  const Cache* near = nullptr;
  NearTokens near_tokens = {};
  std::vector<std::vector<uint32_t>> near_pages = {};
};

// One query head of a row against all tokens that it sees up to the row's position.
inline std::vector<Near> AttendHead(const HeadShape& s, const AttendData& data, uint32_t row,
                             uint32_t head) {
  const uint32_t hd = s.head_dim, kv_head = head / s.group;
  const double scale = 1 / std::sqrt(static_cast<double>(hd));
  const auto element = [&](bool value, uint32_t token, uint32_t d) {
    if (data.near != nullptr && (token < data.near_tokens.kept || token + data.near_tokens.window > s.positions[row])) {
      return data.near->Get(value, data.near_pages[row][token / kPageTokens], kv_head, token % kPageTokens, d);
    }
    return data.kv.Get(value, data.step.rows[row].pages[token / kPageTokens], kv_head,
                       token % kPageTokens, d);
  };
  std::vector<double> scores;
  double off = 0, largest = -1e300;  // of a score: two bf16 a query, fp32 sums, the exp
  const uint32_t first = FirstSeen(s.positions[row], data.window);
  for (uint32_t token = first; token <= s.positions[row]; ++token) {
    double score = 0, magnitude = 0;
    for (uint32_t d = 0; d < hd; ++d) {
      const double term = scale * data.qkv.at(row, head * hd + d) * element(false, token, d);
      score += term;
      magnitude += std::abs(term);
    }
    scores.push_back(score);
    largest = std::max(largest, score);
    off = std::max(off, magnitude * (0x1.1p-16 + hd * 0x1p-23) + std::abs(score) * 0x1p-22);
  }
  const bool sink = !data.sinks.empty();
  if (sink) largest = std::max(largest, double{data.sinks[head]});
  double total = sink ? std::exp(data.sinks[head] - largest) : 0;
  for (double& score : scores) total += score = std::exp(score - largest);
  std::vector<Near> out(s.value_dim());
  for (uint32_t d = 0; d < s.value_dim(); ++d) {
    double magnitude = 0;
    for (uint32_t i = 0; i < scores.size(); ++i) {
      const double term = scores[i] / total * element(true, first + i, d);
      out[d].value += term;
      magnitude += std::abs(term);
    }
    out[d].allowed = magnitude * (2 * off + 0x1p-15);
  }
  return out;
}

// What a launch of attention is told in the cases, whose buffers have these names.
struct AttendCall {
  uint32_t q_stride = 0, out_stride = 0, heads = 0, kv_heads = 0, head_dim = 0, max_splits = 0, row_count = 0;  // head_dim: of Q and K
  uint32_t window = 0;
  bool gated = false, sinks = false;

  void Fill(kernels::AttendArgs* args, const Addresses& at) const;
};

}  // namespace mainarch::kernels_test

#endif  // MAINARCH_TESTS_UNIT_KERNELS_ATTENTION_CASES_H_
