// SPDX-License-Identifier: MIT
//
// The arithmetic of the CPU backend as a table of plain functions over plain structs, one table a
// target (AMX, AVX-512 with bf16, AVX-512, AVX2 with VNNI, AVX2; NEON with matrices of bytes, with bf16, with dot products, plain; portable), chosen once at run time. Plain, because the files that implement
// it are compiled with other -m flags than the rest (simd/simd.h says why).
//
// Same bits: every function's result for a row depends on that row's input alone, never on how many
// rows, which rows, or which worker came with it.
#ifndef MAINARCH_BACKEND_CPU_KERNELS_H_
#define MAINARCH_BACKEND_CPU_KERNELS_H_

#include <stddef.h>
#include <stdint.h>

#include "backend/activation.h"
#include "kernels/quant/kv_type.h"
#include "kernels/quant/weight_format.h"

namespace mainarch::cpu {

inline constexpr int kLanes = 16;         // rows of a panel, tokens of a KV page
inline constexpr int kAttentionSplit = 512;  // tokens; absolute positions, so any chunking agrees
inline constexpr int kMaxParts = 8;
inline constexpr int kMaxBlockRows = 8;   // activation rows that share one pass over a panel

using quant::PanelFormat;

// A packed matrix: 16 output rows a panel, lane = row. Columns come in steps:
//   bf16, f16  2 columns: [16 rows][2]          64 bytes
//   f32        2 columns: [2][16 rows]         128 bytes
//   fp8        4 columns: row r, column c at byte 16 (r / 4) + 2 (r % 4) + 8 (c / 2) + c % 2
//   mxfp4      8 columns: 16-bit word 2 r + e of 32, nibble s = column 2 s + e
//   int8, int8row   4 columns: [16 rows][4]
//   int4, iq4nl, int4min, int4order, q4_1, q4k, nvfp4   as mxfp4
//   q5_0, q5_1, q5k   16 columns: two steps as mxfp4 has them, then a byte for each word: the fifth bits of
//              its nibbles, those of the first step lowest
//   q6k        8 columns: as mxfp4, then a byte for each word: two more bits for each of its nibbles
// then, at scale_offset, what a row and group of columns share:
//   fp8 float [groups][16], mxfp4 e8m0 [groups][16], int8, int4, iq4nl, q5_0 fp16 [groups][16]
//   int4min    float [groups][2][16]: scale and addend; q4_1, q5_1 the same in fp16
//   int4order  uint16 [cols], the group of each, in whole 64 bytes; then as int4min, all groups of the matrix
//   q4k, q5k   of 256 columns fp16 [2][16], d and -dmin, then bytes [8 groups][2][16], their factors
//   nvfp4      float [16], then e4m3fn [groups][16]
//   int8row    float [groups][16]
//   q6k        of 256 columns fp16 [16], then bytes with a sign [16 groups][16]
// Rows and columns beyond the matrix are zero. Where there is an addend a, a group's sum is
// scale * sum_k q_k x_k + a * sum_k x_k: |err| as if each weight were |scale q| + |a|.
struct Panels {
  PanelFormat format;
  const uint8_t* data;      // panel p at data + p * stride
  size_t stride;            // bytes
  size_t scale_offset;      // bytes from a panel's start
  int64_t cols;             // padded to whole steps
  int32_t group_cols;       // columns that share a scale; 0: no scales
  int32_t group_offset;     // column 0 is the group_offset-th of its group (a shard inside a block),
                            // of q4k, q5k and q6k of its 256 columns
  int32_t first_col;        // column 0 is the first_col-th of 32 of the whole matrix
  int32_t parts;            // K parts summed apart, then added in a tree; a power of two
  int64_t bounds[kMaxParts + 1];  // columns of the parts, bounds[0] = 0, bounds[parts] = cols
};

// A row of x in 8 bits: of each run of columns x_k = factor * q_k, q_k from -127 to 127, to nearest, factor the
// largest |x_k| / 127; of a run that is not all finite NaN. A run ends where 32 columns of the whole matrix end, and
// where a part does, so that it does not depend on how many ranks share K; run i of part p, counted by 32 columns
// from the shard's first, has factor i + p. Laid out for panels of `cols` columns:
//   int8 [cols]              in order
//   int8 [cols], nibbles_at  of eight columns 0 4 1 5 2 6 3 7, as the words of nibbles want them
//   int32 [cols / 4 + 1], before_at   the sum of all q before column 4 i
//   float, factors_at
struct Int8Layout {
  size_t nibbles_at, before_at, factors_at, bytes;
};
inline constexpr int kInt8Run = 32;
inline constexpr Int8Layout Int8LayoutOf(int64_t cols) {
  const size_t padded = (static_cast<size_t>(cols) + 63) / 64 * 64;
  const size_t factors = 2 * padded + (padded / 4 + 1) * sizeof(int32_t);
  // Each part may begin within a run; so may the shard.
  const size_t bytes = factors + (padded / kInt8Run + kMaxParts + 1) * sizeof(float);
  return {padded, 2 * padded, factors, (bytes + 63) / 64 * 64};
}

// Bytes of the groups of a panel's columns (int4order).
inline constexpr size_t OrderBytes(int64_t cols) {
  return (static_cast<size_t>(cols) * 2 + 63) / 64 * 64;
}

inline constexpr int kExpertPanels = 4;  // that experts_down takes at a time, at most

enum class Epilogue : uint8_t {
  kStore,   // out = y
  kAdd,     // out += y
  kGateUp,  // panels 2i and 2i + 1: out panel i = the activation of y_2i and y_2i+1
};

struct MatmulArgs {
  Panels w;
  int64_t panel_begin, panel_end;  // even for kGateUp
  // Input rows; row i at x[i], padded with zeros to w.cols.
  const float* const* x;
  float* const* out;  // row i at out[i]; panel p writes [16 p, 16 p + 16), kGateUp half of that
  int64_t rows;
  Epilogue epilogue;
  // Of kGateUp; biases are null or hold 16 values an output panel.
  backend::Activation activation = backend::Activation::kSilu;
  const float* gate_bias = nullptr;
  const float* up_bias = nullptr;
  // For matmul_bf16: the rows rounded to bf16 (x is not looked at).
  const uint16_t* const* x16 = nullptr;
  // For matmul_int8: the rows as to_int8 makes them (x is not looked at).
  const uint8_t* const* x8 = nullptr;
  // Room of DecodedBytes(w.cols) for what is made of panels once for many rows, and for their sums; or null, which is slower.
  uint8_t* decoded = nullptr;
  // For matmul, if rows <= kMaxBlockRows, or null: the rows by columns (Kernels::by_columns made them),
  // which three rows and more are multiplied faster from.
  const float* columns = nullptr;
  // What will probably be read after the last of these panels, or null: it is fetched meanwhile.
  const uint8_t* after = nullptr;
  // Bytes ahead of what is read that are fetched; 0: as much as is read at a time, and of one row of bf16 nothing.
  // Processors differ in what of a stream they fetch by themselves.
  size_t near = 0;
  // For matmul_bf16, if rows <= kMaxBlockRows: room for as many rows of w.cols floats, or null, which may be slower.
  float* floats = nullptr;
  // Whether they hold these rows already; matmul_bf16 says so when it has filled them. Null: they do not.
  bool* floats_made = nullptr;
};
// Of Intel's (NearBytes): measured, one row of bf16 reads 1.3 to 1.4 times as fast.
inline constexpr size_t kNearBytes = 4096;
inline constexpr int kDecodedPanels = 4;
// Many rows go by blocks of so many rows, panels and columns at a time, and have room for them here: of matrix units
// (kernels/tiles_many.h) 64 KiB of sums four times; or (tiles_groups.h), of two panels, half of that and codes; of vectors
// (multiply_many.h, multiply_words.h) sums and decoded columns.
inline constexpr int kBlockRows = 256;
inline constexpr int kBlockPanels = 4;
inline constexpr int64_t kBlockCols = 256;
inline constexpr size_t kBlockBytes = size_t{6} << 16;
inline constexpr size_t DecodedBytes(int64_t cols) {
  const size_t panels = static_cast<size_t>(kDecodedPanels) * kLanes * 2 * static_cast<size_t>(cols);
  return panels < kBlockBytes ? kBlockBytes : panels;
}

// out[row] (+)= sum over the row's experts, ascending, of weight * (D_e · act). One range of panels.
struct ExpertsDownArgs {
  const Panels* experts;          // by expert id; only active ones are looked at
  int64_t panel_begin, panel_end;
  const int32_t* active;          // expert ids with rows, ascending
  int32_t active_count;
  const int32_t* offsets;         // [experts + 1] into entries
  const int32_t* entries;         // row * k + slot, by expert, ascending row
  int32_t k;
  const float* act;               // entry i at act + i * act_stride
  int64_t act_stride;
  const float* weights;           // row r's k weights at weights + r * weights_stride
  int64_t weights_stride;
  float* out;                     // row r at out + r * out_stride
  int64_t out_stride;
  int64_t rows;
  bool add;
  bool first, last;               // clear the scratch before, write the rows out after
  // [rows * parts * kExpertPanels * 16] fp32; at most kExpertPanels panels if !first or !last
  float* scratch;
  // For experts_down_bf16: act rounded to bf16, entry i at act16 + i * act_stride.
  const uint16_t* act16 = nullptr;
  // For experts_down_int8: entry i at act8 + i * act8_stride, bytes.
  const uint8_t* act8 = nullptr;
  int64_t act8_stride = 0;
  size_t near = 0;  // as in MatmulArgs
};

// Pages of one head that lie together, K of all before V of all, followed by those of the next head, and
// so on: long enough to stream each side, and short enough that a pool in huge pages is backed only as far
// as it is used.
inline constexpr size_t kKvChunkPages = 16;

using KvFormat = quant::KvType;
using KvForm = quant::KvForm;

// One chunk of one head: K of its pages, 16 tokens each, with lane = token in the panel layout of its form
// (fp8 like an fp8 panel); then V of its pages, [16][value_dim]; then the multipliers of each page, K's and
// V's (KeyAt, ValueAt, KvScaleAt).
struct KvLayout {
  KvFormat format;
  int32_t key_dim, value_dim;  // multiples of 16, of 32 where a side has 4 bits
};

inline constexpr int kMaxQueries = 16;  // that share one pass over K and V
// For kernels/tiles_attend.h: queries and weights in bf16, some tokens of V, sums.
inline constexpr size_t AttendRoomBytes(int32_t key_dim) {
  return size_t{kMaxQueries} * (static_cast<size_t>(key_dim) + kAttentionSplit + 32) * 2 + (size_t{12} << 10);
}

struct AttendArgs {
  KvLayout kv;
  const uint8_t* chunks;       // chunk c of this head at chunks + c * chunk_stride
  size_t chunk_stride;
  // Page p of the sequence is page_ids[p - first_page]; those before are behind every window.
  const uint32_t* page_ids;
  uint32_t first_page = 0;
  int64_t begin, end;          // tokens of this split, begin a multiple of kAttentionSplit
  int32_t queries;             // <= kMaxQueries
  const float* q[kMaxQueries];      // [key_dim], scaled
  int64_t first[kMaxQueries] = {};  // the first token that query i sees; behind: its window
  int64_t visible[kMaxQueries];     // the end of what it sees (its position + 1)
  float* out[kMaxQueries];          // [value_dim] unnormalised sum
  float* max_sum[kMaxQueries];      // {max, sum}; max is -inf when nothing is visible
  float* scratch;              // [kMaxQueries * kAttentionSplit]
  uint8_t* room = nullptr;     // of attend_bf16: AttendRoomBytes(key_dim), in whole cache lines
  // Fetch into the second level, a page before it is read (NearBytes); else into the first, a pass before.
  bool fetch_next_page = false;
};

struct KvWriteArgs {
  KvLayout kv;
  uint8_t* chunk;  // of this head
  int32_t page;    // of the chunk
  int32_t slot;    // token in the page
  const float* k;  // [key_dim]
  const float* v;  // [value_dim]
};

// Rows of one head of a gated delta net (backend::GatedDeltaOp), in turn.
struct DeltaArgs {
  int32_t key_dim, value_dim;  // multiples of 16
  int64_t rows;                // at least one
  const float* state_in;       // [value_dim / 16][key_dim][16]; null: zeros
  float* state_out;            // may be state_in
  const float* q;              // [rows, key_dim], as is k: normalised
  const float* k;
  const float* v;      // [rows, value_dim]
  const float* alpha;  // [rows], as are beta and qk, the product of q and k
  const float* beta;
  const float* qk;
  float* out;  // [rows, value_dim]
};

struct Kernels {
  const char* name;
  void (*matmul)(const MatmulArgs&);
  void (*experts_down)(const ExpertsDownArgs&);
  void (*attend)(const AttendArgs&);
  // Adds one split's part to a query's running state, in order of the splits. max_sum starts as
  // {-inf, 0}.
  void (*merge_split)(const float* part, const float* part_max_sum, int32_t value_dim, float* out,
                      float* max_sum);
  void (*scale)(float* x, float factor, int64_t n);  // x *= factor
  void (*kv_write)(const KvWriteArgs&);
  // Each `size` values times the orthonormal Hadamard matrix of that size, a power of two; n is a
  // multiple of it.
  void (*hadamard)(float* x, int32_t n, int32_t size);
  // out = x * rsqrt(mean(x^2) + eps) * w, n values.
  void (*rms_norm)(const float* x, const float* w, float eps, int64_t n, float* out);
  void (*gate)(float* x, const float* g, int64_t n);  // x *= sigmoid(g)
  // One head: norm unless w is null, then rotate the first 2 * half dims by cos/sin [half], then multiply by scale. out may be x.
  void (*norm_rope)(const float* x, const float* w, float eps, int32_t head_dim, const float* cos,
                    const float* sin, int32_t half, float scale, float* out);
  // x += tree sum of n parts (a power of two).
  void (*add_tree)(float* x, const float* const* parts, int32_t n, int64_t count);
  // Softmax over n logits in place.
  void (*softmax)(float* x, int64_t n);
  // Columns of up to kMaxBlockRows rows: column k of row m at out[k * kMaxBlockRows + m], zeros for
  // rows that are not there. n is a multiple of 16. Null where nobody wants it.
  void (*by_columns)(const float* const* x, int64_t rows, int64_t n, float* out);
  void (*delta)(const DeltaArgs&);
  // Channel i of out = silu of the sum over taps of w[tap * w_stride + i] * x[tap][i]; n channels, a
  // multiple of 16.
  void (*conv_silu)(const float* const* x, const float* w, int64_t w_stride, int32_t taps,
                    int64_t n, float* out);
  // x *= scale / sqrt(|x|^2 + eps), and products; n is a multiple of 16.
  void (*l2_norm)(float* x, float eps, float scale, int64_t n);
  float (*dot)(const float* x, const float* y, int64_t n);
  void (*silu_gate)(float* x, const float* g, int64_t n);  // x *= silu(g), n a multiple of 16
  void (*load_bf16)(const uint8_t* src, float* out, int64_t n);
  void (*load_f16)(const uint8_t* src, float* out, int64_t n);

  // With bf16 activations; null where the CPU has no such dot product. All formats but kF16 and kF32.
  //
  // Error against exact arithmetic on the fp32 activations, for K columns, y = sum_k w_k x_k:
  //   |err| <= (2^-8 + (K + 8) 2^-23) sum_k |w_k x_k| + K 2^-125 max_k(|w_k|, |x_k|, 1) s,
  // s the largest scale: 2^-8 from rounding x (8 significant bits, to nearest), 2^-24 relative for
  // each of the K additions and the scaling (Arm's BFDOT, which rounds to odd: 2^-23), and what is below
  // 2^-126 taken for zero.
  void (*matmul_bf16)(const MatmulArgs&);
  void (*experts_down_bf16)(const ExpertsDownArgs&);
  void (*to_bf16)(const float* x, uint16_t* out, int64_t n);  // to nearest even
  // With activations of 8 bits; of formats with HasInt8Dot, on every CPU. Error against exact arithmetic on the
  // fp32 activations, for K columns, run(k) the run of column k, |w| as Panels says of formats with addends:
  //   |err| <= sum_k |w_k| max_run(k)|x| (1 / 254 + 2^-21) + (K / 16 + 8) 2^-22 sum_k |w_k| max_run(k)|x|:
  // half a step of a run's factor; the factor, its product with a scale, and an addition a piece are rounded.
  void (*matmul_int8)(const MatmulArgs&);
  void (*experts_down_int8)(const ExpertsDownArgs&);
  // A row for panels shaped like w, padded with zeros to w.cols; `row` has Int8LayoutOf(w.cols).bytes, of which
  // nothing but what is described there is written.
  void (*to_int8)(const float* x, const Panels& w, uint8_t* row);
  // Attention that rounds queries and weights to bf16, where CPUs do that faster, with caches that it is faster with;
  // null: nowhere. Error against exact arithmetic, of out / max_sum[1], with e the largest error of a score,
  //   e <= (2^-8 + (key_dim + 8) 2^-23) sum_d |q_d k_d|:
  //   |err| <= (exp(2 e) (1 + 2^-8) - 1 + (kAttentionSplit + 8) 2^-22) times the weighted sum of |v|.
  void (*attend_bf16)(const AttendArgs&);
  // To be called before the functions with bf16 activations, once a process or more often: false, and
  // the system does not let this process use them. Null: it always does.
  bool (*may_round)();
};
inline constexpr bool HasBF16Dot(PanelFormat format) {
  return quant::InfoOf(format).bf16_dot;
}

inline constexpr bool HasInt8Dot(PanelFormat format) {
  return format != PanelFormat::kInt4Order && format != PanelFormat::kBF16 && format != PanelFormat::kF16 && format != PanelFormat::kF32 &&
         format != PanelFormat::kFp8;
}

// Bytes of K, or of V, of one page of one head of so many elements; and of its multipliers.
inline constexpr size_t KvSideBytes(KvForm form, int32_t dim) {
  return static_cast<size_t>(kLanes) * static_cast<size_t>(dim) * quant::InfoOf(form).bits / 8;
}
inline constexpr size_t KvScaleBytes(KvForm form, int32_t dim) {
  return static_cast<size_t>(kLanes) * quant::KvScaleBytes(form, static_cast<uint64_t>(dim));
}
inline constexpr KvForm KeyForm(const KvLayout& kv) { return quant::InfoOf(kv.format).k; }
inline constexpr KvForm ValueForm(const KvLayout& kv) { return quant::InfoOf(kv.format).v; }

// The pieces of a chunk of one head; each piece of a page follows that of the page before.
struct KvPieces {
  size_t k, v;              // bytes of K and of V of a page
  size_t k_scales, scales;  // bytes of a page's multipliers: K's come first, of all
};
inline constexpr KvPieces PiecesOf(const KvLayout& kv) {
  const size_t k_scales = KvScaleBytes(KeyForm(kv), kv.key_dim);
  return {KvSideBytes(KeyForm(kv), kv.key_dim), KvSideBytes(ValueForm(kv), kv.value_dim), k_scales,
          k_scales + KvScaleBytes(ValueForm(kv), kv.value_dim)};
}
// Bytes of one page of one head.
inline constexpr size_t KvPageBytes(const KvLayout& kv) {
  const KvPieces pieces = PiecesOf(kv);
  return pieces.k + pieces.v + pieces.scales;
}

// Where element d of a token lies in its page of one head, in elements. K in panels of 16 tokens:
// kF32 [d][16], kBF16 [d / 2][16][2], kFp8 64 bytes a four elements, kFp4 64 bytes a eight: two
// panels as kFp8 has them, the first in the low nibbles. V [16][d], of kFp4 in blocks of 32 of 16
// bytes, the first 16 in the low nibbles. Elements of kFp4 are counted as nibbles, low ones first.
inline constexpr int32_t KeyAt(KvForm form, int32_t slot, int32_t d) {
  if (form == KvForm::kF32) return d * kLanes + slot;
  if (form == KvForm::kBF16) return d / 2 * 2 * kLanes + slot * 2 + d % 2;
  const int32_t in_panel = 16 * (slot / 4) + 2 * (slot % 4) + 8 * (d % 4 / 2) + d % 2;
  if (form == KvForm::kFp8) return d / 4 * 4 * kLanes + in_panel;
  return d / 8 * 8 * kLanes + in_panel * 2 + d % 8 / 4;
}
inline constexpr int32_t ValueAt(KvForm form, int32_t slot, int32_t value_dim, int32_t d) {
  const int32_t row = slot * value_dim;
  return form == KvForm::kFp4 ? row + d / 32 * 32 + d % 16 * 2 + d % 32 / 16 : row + d;
}
// Where the multiplier of element d of a token lies among those of its side of a page, counted in
// multipliers: fp32 [16 tokens] of kFp8, bytes [d / 32][16 tokens] of kFp4.
inline constexpr int32_t KvScaleAt(KvForm form, int32_t slot, int32_t d) {
  return form == KvForm::kFp4 ? d / 32 * kLanes + slot : slot;
}

// Bytes of the bf16 values of the 128 non-negative e4m3fn codes, and the bf16 values of the codes of
// other formats, which are as many as there are (those of four bits twice).
struct Tables {
  uint8_t fp8_high[128];
  uint8_t fp8_low[128];
  uint16_t fp4[32];
  uint16_t int4[32];   // -8 to 7
  uint16_t uint4[32];  // 0 to 15
  uint16_t iq4nl[32];
  uint16_t uint5[32];  // 0 to 31
  uint16_t int5[32];   // -16 to 15
  uint16_t int6[64];   // -32 to 31
};

namespace amx { extern const Kernels kKernels; }
namespace avx512_bf16 { extern const Kernels kKernels; }
namespace avx512 { extern const Kernels kKernels; }
namespace avx2_vnni { extern const Kernels kKernels; }
namespace avx2 { extern const Kernels kKernels; }
namespace neon_i8mm { extern const Kernels kKernels; }
namespace neon_bf16 { extern const Kernels kKernels; }
namespace neon_dot { extern const Kernels kKernels; }
namespace neon { extern const Kernels kKernels; }
namespace portable { extern const Kernels kKernels; }

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_KERNELS_H_
