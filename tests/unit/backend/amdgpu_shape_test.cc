// SPDX-License-Identifier: MIT
//
// The sizes of a context, with no device.
#include "backend/amdgpu/long_context.h"
#include "backend/amdgpu/lower.h"
#include "kernels/latent_args.h"
#include "support/test.h"
#include "unit/backend/amdgpu_programs.h"

namespace mainarch::amdgpu {
namespace {

using kernels::KvFormat;

// A page of one layer, whatever the heads: 576 numbers a token, once.
TEST(pages_hold_latents_once) {
  Program p = Latents();
  std::get<backend::LatentOp>(p.ops[0]).turning = 64;
  std::get<backend::LatentOp>(p.ops[0]).latent = 512;
  Paged(p).key_dim = 576;
  Paged(p).value_dim = 512;
  backend::ContextOptions options;
  options.pages = {3};
  for (const auto& [type, bytes] : std::vector<std::pair<KvFormat, uint64_t>>{
           {KvFormat::kBF16, 16 * 576 * 2}, {KvFormat::kFp8, 16 * (576 + 8)}, {KvFormat::kF32, 16 * 576 * 4}}) {
    options.kv_type = type;
    CHECK_EQ(PoolShapesOf(p, options)[0].page_bytes, bytes);
  }
  // What turns is a whole step, too.
  std::get<backend::LatentOp>(p.ops[0]).turning = 16;
  options.kv_type = KvFormat::kBF16;
  CHECK_EQ(PoolShapesOf(p, options)[0].page_bytes, uint64_t{16 * (32 + 512) * 2});
}

// Splits of latents are longer where contexts are, so that there are no more than 512 of a row.
TEST(splits_of_latents) {
  using kernels::LatentSplitBlocks, kernels::LatentSplits;
  CHECK_EQ(LatentSplits(0), 1u);
  CHECK_EQ(LatentSplits(127), 1u);
  CHECK_EQ(LatentSplits(128), 2u);
  CHECK_EQ(LatentSplits(65535), 512u);
  CHECK_EQ(LatentSplits(65536), 257u);
  CHECK_EQ(LatentSplitBlocks(65536), 2u);
  CHECK_EQ(LatentSplits(131071), 512u);
  CHECK_EQ(LatentSplitBlocks(131072), 4u);
  for (uint32_t position = 1; position < 1u << 22; position += 97) {
    CHECK_LE(LatentSplits(position), kernels::kLatentMostSplits);
    if (position >= 65536) CHECK_GT(LatentSplits(position), 256u);
  }
  // DeepSeek's context: of 16 heads 17 MiB of parts a row, of 128 heads 132.
  Program p = Latents();
  std::get<backend::LatentOp>(p.ops[0]).latent = 512;
  Paged(p).key_dim = 528;
  Paged(p).value_dim = 512;
  p.max_position = 163840;
  backend::ContextOptions options;
  options.pages = {163840 / 16};
  options.max_rows = 512;
  for (const auto& [heads, rows] : std::vector<std::pair<int32_t, uint32_t>>{{16, 62}, {128, 7}}) {
    std::get<backend::AttentionOp>(p.ops[1]).heads = heads;
    CHECK_EQ(ShapeOf(p, options).attend_floats, static_cast<uint64_t>(heads) * 512 * 528);
    CHECK_EQ(ShapeOf(p, options).attend_rows, rows);
  }
}

// Narrowed heads lie by the parts of their product; sums of squares travel, too.
TEST(sizes_of_a_context_with_resized_heads) {
  Program p = Small();
  p.ranks = 2;
  p.buffers.push_back({"attention", backend::BufferType::kF32, 4 * 64, 1});
  p.buffers.push_back({"narrow", backend::BufferType::kF32, 4 * 24, 1});
  Attention(p).out = 4;
  p.weights.resize(1);
  p.weights[0].ranks.resize(2);
  p.weights[0].splits = {0, 24, 48, 72, 96, 120, 144, 168, 192};
  p.ops.push_back(backend::ResizeHeadsOp{4, 5, 64, 24});
  p.ops.push_back(backend::MatmulOp{5, 0, 0});
  backend::WideNormOp wide = {};
  wide.qkv = 2;
  wide.heads = 4;
  wide.kv_heads = wide.total_kv_heads = 1;
  p.ops.push_back(wide);
  backend::ContextOptions options;
  options.pages = {4};
  const Shape s = ShapeOf(p, options);
  CHECK_EQ(s.strides[5], 128u);  // 4 parts of 24, a step each
  CHECK(LiesSplit(p, 5));
  CHECK_EQ(s.all_reduces, 1u);
  CHECK_EQ(s.square_reduces, 1u);
  CHECK_EQ(s.square_width, 9u);
  p.weights[0].ranks.resize(1);
  p.ranks = 1;
  p.buffers[5].width = 192;
  CHECK_EQ(ShapeOf(p, options).strides[5], 256u);
  CHECK_EQ(ShapeOf(p, options).all_reduces, 0u);
}

TEST(sizes_of_a_context) {
  Program p = WithExperts(quant::Format::kBF16, quant::Format::kBF16);
  p.ops.push_back(backend::MatmulAddOp{});
  p.ops.push_back(backend::AllReduceAddOp{});
  p.ops.push_back(backend::MatmulOp{});
  backend::ContextOptions options;
  options.kv_type = backend::KvType::kFp8;
  options.max_rows = 20;
  options.max_logit_rows = 3;
  options.pages = {100};
  const Shape s = ShapeOf(p, options);
  CHECK(s.kv == KvFormat::kFp8);
  CHECK_EQ(s.hidden_stride, 1280u);
  CHECK_EQ(s.chunks, 3u);
  CHECK_EQ(s.max_splits, 13u);  // 100 pages are 1600 tokens
  CHECK_EQ(s.attend_rows, 20u);
  CHECK_EQ(s.router_stride, 256u);
  CHECK_EQ(s.logits_stride, 1008u);
  CHECK_EQ(s.all_reduces, 3u);
  CHECK_EQ(s.sum_rows, 16u);
  CHECK_EQ(s.sum_stride, 1280u);
  CHECK_EQ(s.share_stride, 0u);  // no LM head here
  CHECK_EQ(s.choice_slots, 3u);
  // 16 + 20 * 4 + 3 * (1 + 16 + 2 * 1001 + 192 + 32) = 6825, then 100 changes of two words
  CHECK_EQ(s.choices_end, 6832u);
  CHECK_EQ(s.table_words, 100u);
  CHECK_EQ(s.step_changes, 100u);
  CHECK_EQ(s.step_words, 7168u);
  CHECK_EQ(s.pools[0].page_bytes, 2u * (2 * 16 * 64 + 2 * 16 * 4));
  CHECK_EQ(s.strides.size(), 4u);
  CHECK_EQ(s.strides[0], 1280u);
  CHECK_EQ(s.strides[1], 6u);
  CHECK_EQ(s.strides[2], 6u);
  CHECK_EQ(s.strides[3], 128u);
}

// An InputOp takes a word a row of the step block, and one more, which fits; what every rank makes whole is no all-reduce.
TEST(sizes_of_a_context_that_reads_a_tap) {
  Program p = Small();
  p.ops.push_back(backend::MatmulAddOp{});
  p.ops.push_back(backend::AllReduceAddOp{});
  backend::ContextOptions options;
  options.max_rows = 64;
  options.pages = {4};
  CHECK(!ShapeOf(p, options).reads_tap);
  CHECK_EQ(ShapeOf(p, options).all_reduces, 2u);
  const uint32_t without = ShapeOf(p, options).choices_end;
  p.ops.push_back(backend::InputOp{0, 3});
  p.ranks = 2;
  p.taps = {1};
  CHECK(ShapeOf(p, options).reads_tap);
  CHECK_EQ(ShapeOf(p, options).all_reduces, 1u);
  CHECK_EQ(ShapeOf(p, options).choices_end, without + 64);
  CHECK(InputsOf(p)[3] && !InputsOf(p)[0]);
  CHECK(TapsOf(p)[1] && !TapsOf(p)[0]);
}

// Lists of slots: of each sequence where it is, of each row and cache two words.
TEST(sizes_of_a_context_with_states) {
  Program p = Small();
  backend::ContextOptions options;
  options.max_rows = 64;
  options.pages = {4};
  const uint32_t without = ShapeOf(p, options).choices_end;
  p.caches.insert(p.caches.begin(), backend::SlotCache{"state", 3, 1000});
  p.caches.push_back(backend::SlotCache{"carried", 1, 4640});
  Attention(p).cache = 1;
  options.pages = {0, 4};
  options.slots = {5, 0, 6};
  const Shape s = ShapeOf(p, options);
  CHECK_EQ(s.choices_end, without + 64 * (2 + 2 * 2));  // one more is what `without` was rounded by
  CHECK_EQ(s.positions, 64u);
  CHECK_EQ(s.pools.size(), 3u);
  CHECK_EQ(s.pools[0].list, backend::kNone);
  CHECK_EQ(s.pools[1].list, 0);
  CHECK_EQ(s.pools[1].pages, 4u);
  CHECK_EQ(s.slots.size(), 3u);
  CHECK_EQ(s.slots[0].list, 0);
  CHECK_EQ(s.slots[0].slots, 5u);
  CHECK_EQ(s.slots[0].layers, 3);
  CHECK_EQ(s.slots[0].slot_bytes, 1024u);
  CHECK_EQ(s.slots[1].list, backend::kNone);
  CHECK_EQ(s.slots[2].list, 1);
  CHECK_EQ(s.slots[2].slot_bytes, 4864u);
}

// Caches with windows have fewer pages than positions; each cache has tables of all of these.
TEST(sizes_of_a_context_with_windows) {
  Program p = Small();
  p.caches.push_back(p.caches[0]);
  Paged(p).window = 100;
  backend::ContextOptions options;
  options.max_rows = 4;
  options.max_sequences = 3;
  options.pages = {24, 50};
  Shape s = ShapeOf(p, options);
  CHECK_EQ(s.page_lists, 2u);
  CHECK_EQ(s.positions, 800u);
  CHECK_EQ(s.table_words, 50u);
  CHECK_EQ(s.step_changes, 300u);
  CHECK_EQ(s.pools[0].list, 0);
  CHECK_EQ(s.pools[1].list, 1);
  CHECK_EQ(s.pools[0].pages, 24u);
  // With windows alone any position may be reached.
  p.caches.pop_back();
  options.pages = {24};
  s = ShapeOf(p, options);
  CHECK_EQ(s.positions, static_cast<uint64_t>(p.max_position));
  CHECK_EQ(s.table_words, static_cast<uint32_t>(p.max_position) / 16);
}

// Of a position and a window: from the first split that holds a token seen.
TEST(splits_that_a_window_leaves) {
  for (const uint32_t window : {0u, 1u, 16u, 127u, 128u, 129u, 1000u}) {
    for (uint32_t position = 0; position < 3000; ++position) {
      const uint32_t first = window == 0 || position + 1 < window ? 0 : position + 1 - window;
      CHECK_EQ(kernels::FirstSeen(position, window), first);
      CHECK_EQ(kernels::FirstSplit(position, window), first / 128);
      const uint32_t seen = position / 128 - first / 128 + 1;
      CHECK_EQ(kernels::SplitsSeen(position, window), seen);
      CHECK(seen <= kernels::MostSplits(window));
    }
  }
}

// Of a position: blocks of 128 tokens, as many a split as leave 512 of them, the last with the position.
TEST(splits_of_long_contexts) {
  uint32_t before = 0;
  for (uint32_t position = 0; position < (1u << 21); position += position < 70'000 ? 1 : 997) {
    const uint32_t blocks = kernels::LongSplitBlocks(position), splits = kernels::LongSplits(position);
    CHECK(splits <= kernels::kLongSplits);
    CHECK(blocks >= before);
    if (position < 65'536) CHECK_EQ(splits, kernels::SplitsSeen(position, 0));
    if (position >= 65'536) CHECK(splits > kernels::kLongSplits / 2);
    CHECK((splits - 1) * blocks * 128 <= position && position < splits * blocks * 128);
    before = blocks;
  }
  backend::PagedCache cache;
  CHECK(!amdgpu::IsLong(cache, 512));
  CHECK(amdgpu::IsLong(cache, 513));
  CHECK_EQ(amdgpu::MostSplitsOf(cache, 513), 512u);
  CHECK_EQ(amdgpu::MostSplitsOf(cache, 7), 7u);
  cache.window = 300;
  CHECK(!amdgpu::IsLong(cache, 8192));
  CHECK_EQ(amdgpu::MostSplitsOf(cache, 8192), 4u);
}

// Ranks that hold the same KV head share it in long contexts, as far as one workgroup takes all their queries.
TEST(what_ranks_share) {
  Program p = Small();
  p.ranks = 4;
  p.max_position = 1 << 20;
  backend::ContextOptions options;
  options.max_rows = 64;
  options.pages = {1 << 16};
  backend::AttentionOp& op = Attention(p);
  backend::PagedCache& cache = Paged(p);
  op.heads = 4;
  cache.kv_heads = 1;
  const auto shape = [&] { return ShapeOf(p, options); };
  CHECK_EQ(shape().share.words.half, 0u);  // each rank has its own head
  const uint64_t alone = shape().exchange.bytes, floats = shape().attend_floats;
  cache.replicas = 4;
  CHECK_EQ(shape().share.per_step, 1u);
  CHECK_EQ(shape().share.at, alone);
  const auto dim = static_cast<uint64_t>(cache.key_dim);
  const kernels::ShareBytes words = kernels::ShareBytesOf(4, 4, dim);
  CHECK_EQ(shape().exchange.bytes, alone + 2 * words.half);
  CHECK_EQ(words.half, words.chains_at + uint64_t{16} * 4 * 18 * dim * 8);
  CHECK_EQ(shape().attend_floats, floats);
  CHECK(shape().attend_rows >= kernels::kShareRows);
  CHECK_EQ(shape().share.query_floats(), uint64_t{16} * 16 * dim);
  op.heads = 5;  // 20 queries to a head
  CHECK_EQ(shape().share.per_step, 0u);
  op.heads = 4;
  cache.window = 4096;
  CHECK_EQ(shape().share.per_step, 0u);
  cache.window = 0;
  options.pages = {4096};  // 65,536 tokens
  CHECK_EQ(shape().share.per_step, 0u);
  // Rows before the first that is shared are never, nor is anything without others.
  kernels::AttendShare share;
  share.from = 200;
  CHECK(!kernels::IsShared(share, 1000));
  share.log_ranks = 1;
  CHECK(!kernels::IsShared(share, 199));
  CHECK(kernels::IsShared(share, 200));
}

TEST(sizes_at_their_limits) {
  Program p = Small();
  backend::ContextOptions options;
  options.max_rows = 512;
  options.pages = {1};
  CHECK_EQ(ShapeOf(p, options).max_splits, 1u);
  CHECK_EQ(ShapeOf(p, options).attend_rows, 512u);
  options.pages = {8};  // 128 tokens fill one split
  CHECK_EQ(ShapeOf(p, options).max_splits, 1u);
  options.pages = {9};
  CHECK_EQ(ShapeOf(p, options).max_splits, 2u);
  options.pages = {1 << 20};  // max_position is what limits
  CHECK_EQ(ShapeOf(p, options).max_splits, 32u);
  // Parts of attention take 256 MiB at most, and one row at least.
  p.max_position = 1 << 20;
  CHECK_EQ(ShapeOf(p, options).max_splits, 8192u);
  CHECK_EQ(ShapeOf(p, options).attend_rows, (256u << 20) / (8 * kernels::kLongSplits * 80 * 4));
  Attention(p).heads = 128;
  Paged(p).key_dim = Paged(p).value_dim = 128;
  p.max_position = int64_t{1} << 26;
  options.pages = {1 << 22};
  CHECK_EQ(ShapeOf(p, options).attend_rows, (256u << 20) / (128 * kernels::kLongSplits * 144 * 4));
  // A window's splits are its own, however long the context.
  Paged(p).window = 1000;
  CHECK_EQ(ShapeOf(p, options).attend_floats, uint64_t{128} * 9 * 144);
  Paged(p).window = 0;
  p.hidden = 1024;
  CHECK_EQ(ShapeOf(p, options).chunks, 2u);
  CHECK_EQ(ShapeOf(p, options).hidden_stride, 1024u);
}

TEST(classes_of_rows) {
  const auto text = [](uint32_t max_rows) {
    std::string out;
    for (uint32_t rows : RowClasses(max_rows)) absl::StrAppend(&out, rows, " ");
    return out;
  };
  CHECK_EQ(text(1), "1 ");
  CHECK_EQ(text(2), "1 2 ");
  CHECK_EQ(text(4), "1 4 ");
  CHECK_EQ(text(8), "1 4 8 ");
  CHECK_EQ(text(12), "1 4 8 12 ");
  CHECK_EQ(text(512), "1 4 8 16 64 256 512 ");
}

}  // namespace
}  // namespace mainarch::amdgpu
