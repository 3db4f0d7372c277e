// SPDX-License-Identifier: MIT
//
// The argument structs of every kernel, read by host and device. Plain data, little-endian, no
// pointers: a device address travels as Address<T>. A kernel's kernarg segment is Kernarg<Args>.
// Sizes are asserted because host and device compilers must agree on them to the byte.
//
// Shapes are row-major; [rows, n] means n is contiguous. Where a field must be a multiple of
// something, the op says so and the host checks it before the launch: kernels do not check.
#ifndef MAINARCH_KERNELS_ARGS_H_
#define MAINARCH_KERNELS_ARGS_H_

#include <stdint.h>

namespace mainarch::kernels {

inline constexpr uint32_t kThreads =
    256;                               // of every workgroup, so that one kernel can run every op
inline constexpr uint32_t kWaves = 4;  // of a workgroup

// A device virtual address of a T.
template <class T>
struct Address {
  uint64_t address = 0;
};

template <class Args>
struct Kernarg {
  Args args;
  uint32_t workers = 0;  // workgroups in the grid
  uint32_t reserved = 0;
};

// ---- memory ----

// Sums the words of `source` (mod 2^32): worker w writes its part to sums[w].
struct StreamReadArgs {
  Address<const uint32_t> source;  // 16-byte aligned
  Address<uint32_t> sums;          // [workers]
  uint64_t bytes = 0;              // a multiple of 16
};
static_assert(sizeof(StreamReadArgs) == 24);

struct FillArgs {
  Address<uint8_t> destination;  // 16-byte aligned
  uint64_t bytes = 0;            // any
  uint32_t pattern[4] = {};      // repeated from the start
};
static_assert(sizeof(FillArgs) == 32);

struct CopyArgs {
  Address<uint8_t> destination;   // 16-byte aligned, not overlapping source
  Address<const uint8_t> source;  // 16-byte aligned
  uint64_t bytes = 0;             // any
};
static_assert(sizeof(CopyArgs) == 24);

// ---- rows ----

// Activations are bf16 (as uint16_t) or fp32; X, W and Out name the element types.
enum RmsNormFlags : uint32_t {
  kRmsNormOnePlus = 1,      // multiply by (1 + w), the hybrid family
  kRmsNormRoundTwice = 2,   // round to bf16 before multiplying by w, as HF does for Qwen3
  kRmsNormAddResidual = 4,  // x := x + residual first, rounded to X, written back to `residual`
};
// out = x * rsqrt(mean(x^2) + epsilon) * w, one rounding to Out unless kRmsNormRoundTwice.
template <class X, class W, class Out>
struct RmsNormArgsOf {
  Address<const X> x;   // [rows, n]
  Address<const W> w;   // [n]
  Address<X> residual;  // [rows, n], with kRmsNormAddResidual
  Address<Out> out;     // [rows, n]
  uint32_t rows = 0;
  uint32_t n = 0;  // a multiple of 8, at most 16384
  float epsilon = 0;
  uint32_t flags = 0;
};
using RmsNormArgs = RmsNormArgsOf<uint16_t, uint16_t, uint16_t>;
static_assert(sizeof(RmsNormArgsOf<float, float, uint16_t>) == 48);

// NeoX pairing in the first `rotary` of each head's `head_dim` elements, in place:
// y_i = x_i cos_i - x_{i+R/2} sin_i, y_{i+R/2} = x_{i+R/2} cos_i + x_i sin_i, in fp32, one
// rounding.
template <class X>
struct RopeArgsOf {
  Address<X> x;                       // [rows, heads, head_dim]
  Address<const uint32_t> positions;  // [rows]
  Address<const float> cosine;        // [positions, rotary / 2]
  Address<const float> sine;          // [positions, rotary / 2]
  uint32_t rows = 0;
  uint32_t heads = 0;
  uint32_t head_dim = 0;  // a multiple of 8
  uint32_t rotary = 0;    // a multiple of 16
};
using RopeArgs = RopeArgsOf<uint16_t>;
static_assert(sizeof(RopeArgsOf<float>) == 48);

// out = silu(gate) * up, in fp32, one rounding.
template <class X, class Out>
struct SwigluArgsOf {
  Address<const X> gate;  // [rows, stride], n used
  Address<const X> up;    // [rows, stride], n used
  Address<Out> out;       // [rows, n]
  uint32_t rows = 0;
  uint32_t n = 0;       // a multiple of 8
  uint32_t stride = 0;  // of gate and up, in elements; a multiple of 8
  uint32_t reserved = 0;
};
using SwigluArgs = SwigluArgsOf<uint16_t, uint16_t>;
static_assert(sizeof(SwigluArgsOf<float, uint16_t>) == 40);

// out = softmax(scale * x) over n.
struct SoftmaxArgs {
  Address<const float> x;  // [rows, n]
  Address<float> out;      // [rows, n]
  uint32_t rows = 0;
  uint32_t n = 0;
  float scale = 1;
  uint32_t reserved = 0;
};
static_assert(sizeof(SoftmaxArgs) == 32);

// ---- matrices: out[m, o] = sum over k of x[m, k] * w[o, k] ----

template <class X>
struct Bf16MatrixArgsOf {
  Address<const X> x;         // [rows, k], bf16 or fp32
  Address<const uint16_t> w;  // bf16 [outputs, k]
  Address<float> out;         // [rows, outputs]
  uint32_t rows = 0;
  uint32_t outputs = 0;  // a multiple of 16 for the MFMA form
  uint32_t k = 0;        // a multiple of 8 (VALU) or 128 (MFMA)
  uint32_t reserved = 0;
};
using Bf16MatrixArgs = Bf16MatrixArgsOf<uint16_t>;
static_assert(sizeof(Bf16MatrixArgsOf<float>) == 40);

// Weights in MXFP4: two codes a byte, the lower nibble first; one E8M0 scale for 32 codes along k.
template <class X>
struct Mxfp4MatrixArgsOf {
  Address<const X> x;             // [rows, k], bf16 or fp32
  Address<const uint8_t> codes;   // [outputs, k / 2]
  Address<const uint8_t> scales;  // [outputs, k / 32]
  Address<float> out;             // [rows, outputs]
  uint32_t rows = 0;
  uint32_t outputs = 0;  // a multiple of 16 for the MFMA form
  uint32_t k = 0;        // a multiple of 32 (VALU) or 512 (MFMA)
  uint32_t reserved = 0;
};
using Mxfp4MatrixArgs = Mxfp4MatrixArgsOf<uint16_t>;
static_assert(sizeof(Mxfp4MatrixArgsOf<float>) == 48);

// Both sides in MXFP4 through the scaled MFMA (gfx950).
struct Mxfp4ScaledMatrixArgs {
  Address<const uint8_t> x_codes;   // [rows, k / 2]
  Address<const uint8_t> x_scales;  // [rows, k / 32]
  Address<const uint8_t> codes;     // [outputs, k / 2]
  Address<const uint8_t> scales;    // [outputs, k / 32]
  Address<float> out;               // [rows, outputs]
  uint32_t rows = 0;
  uint32_t outputs = 0;  // a multiple of 16
  uint32_t k = 0;        // a multiple of 512
  uint32_t reserved = 0;
};
static_assert(sizeof(Mxfp4ScaledMatrixArgs) == 56);

// bf16 to MXFP4 with the "even" scale rule of Quark.
struct QuantizeMxfp4Args {
  Address<const uint16_t> x;  // bf16 [blocks, 32]
  Address<uint8_t> codes;     // [blocks, 16]
  Address<uint8_t> scales;    // [blocks]
  uint32_t blocks = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(QuantizeMxfp4Args) == 32);

// ---- choosing ----

inline constexpr uint32_t kRouterMaxExperts = 512;
inline constexpr uint32_t kRouterMaxTop = 16;
// The `top` largest logits (ties: lowest expert), listed in rising order of expert, with their
// softmax weights over all experts, or over the chosen ones if `renormalise`.
struct RouterArgs {
  Address<const float> logits;  // [rows, experts]
  Address<uint32_t> ids;        // [rows, top]
  Address<float> weights;       // [rows, top]
  uint32_t rows = 0;
  uint32_t experts = 0;  // at most kRouterMaxExperts
  uint32_t top = 0;      // at most kRouterMaxTop and at most experts
  uint32_t renormalise = 0;
};
static_assert(sizeof(RouterArgs) == 40);

// A score and its index: kernels/common/wave.h Scored, as memory.
struct ScoredWords {
  float score = 0;
  uint32_t index = 0;
};
static_assert(sizeof(ScoredWords) == 8);

// Argmax, or with `temperature` > 0 a sample: argmax of logit / temperature + Gumbel noise, which
// draws from the softmax. Noise is a function of (seed, position, stream, vocabulary index) alone.
// Part s of a row covers indices [s * n / parts, (s + 1) * n / parts), worked by one workgroup;
// PickMerge makes the row's answer. Ties go to the lowest index; NaN never wins.
struct PickArgs {
  Address<const float> logits;        // [rows, n]
  Address<const uint64_t> positions;  // [rows], for sampling
  Address<ScoredWords> parts;         // [rows, part_count]
  uint64_t seed = 0;
  uint32_t rows = 0;
  uint32_t n = 0;
  uint32_t part_count = 0;
  uint32_t stream = 0;
  float temperature = 0;     // 0: argmax
  uint32_t first_index = 0;  // the vocabulary index of column 0 (a shard of the head)
};
static_assert(sizeof(PickArgs) == 56);

struct PickMergeArgs {
  Address<const ScoredWords> parts;  // [rows, part_count]
  Address<uint32_t> ids;             // [rows]
  uint32_t rows = 0;
  uint32_t part_count = 0;
};
static_assert(sizeof(PickMergeArgs) == 24);

// ---- between workgroups and GPUs ----

// Two of these, on two GPUs, bounce a counter. Round r: the server writes 2r + 1 to the client, who
// checks the payload and answers 2r + 2. Payload word i of epoch e is e * 65536 + i.
struct PingPongArgs {
  Address<uint32_t> my_flag;     // in my memory, written by the peer
  Address<uint32_t> my_payload;  // in my memory, written by the peer: [payload_words]
  Address<uint32_t> peer_flag;
  Address<uint32_t> peer_payload;
  Address<uint32_t> mismatches;  // [1], mine
  uint32_t rounds = 0;
  uint32_t payload_words = 0;  // at most 65536
  uint32_t is_server = 0;
  uint32_t first_epoch = 0;  // counts from here: a test starts just below the wrap
};
static_assert(sizeof(PingPongArgs) == 56);

// ---- LDS staging and the vocabulary probes ----

// Copies through LDS with LDS-DMA, 256 lanes at a time: exercises the path, tuned for nothing.
using LdsDmaCopyArgs = CopyArgs;  // bytes: a multiple of 4096

// One wave runs the primitives of the vocabulary on `in` and writes what they give to `out`;
// ops/probe.h (and gfx950/probe_mx.h) say which words are which.
struct ProbeArgs {
  Address<const uint32_t> in;
  Address<uint32_t> out;
};
static_assert(sizeof(ProbeArgs) == 16);

// Two workgroups race over `rounds` rounds; ops/fidelity.h says over what. `cells` is zeroed and
// holds 64 words a round; `out` gets a word for each role and round.
struct LitmusArgs {
  Address<uint32_t> cells;
  Address<uint32_t> out;
  uint32_t rounds = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(LitmusArgs) == 24);

}  // namespace mainarch::kernels

#endif  // MAINARCH_KERNELS_ARGS_H_
