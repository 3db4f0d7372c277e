// SPDX-License-Identifier: MIT
//
// share_queries, attend_long_* and attend_shared_merge: attention that ranks which hold the same KV head share.
#include <cstdlib>

#include "unit/kernels/attention_cases.h"

namespace mainarch::kernels_test {
namespace {

std::string On(const char* what, uint32_t rank) { return absl::StrCat(what, rank); }

// The cache as rank `rank` needs it: of rows that are shared its own splits alone, and NaNs in all others.
Cache CacheOfRank(const HeadShape& s, const AttendData& data, uint32_t pages, const AttendShare& share, uint32_t rank) {
  Cache out = s.CacheOf(pages);
  for (uint32_t row = 0; row < s.count(); ++row) {
    const uint32_t position = s.positions[row], tokens = LongSplitBlocks(position) * kSplitTokens;
    for (uint32_t page = 0; page <= position / kPageTokens; ++page) {
      const bool others = IsShared(share, position) && (page * kPageTokens / tokens) % (1u << share.log_ranks) != rank;
      if (others) continue;
      const size_t bytes = out.PageBytes(), at = data.step.rows[row].pages[page] * bytes;
      std::copy_n(data.kv.bytes.begin() + static_cast<ptrdiff_t>(at), bytes,
                  out.bytes.begin() + static_cast<ptrdiff_t>(at));
    }
  }
  return out;
}

// A case's numbers. `s` has one KV head; its group is that of all ranks.
struct Sharing {
  HeadShape s;
  AttendData data;
  uint32_t pages = 0;
  AttendShare share;
  bool gated = false;
  ShareBytes words;

  uint32_t ranks() const { return 1u << share.log_ranks; }
  uint32_t own() const { return s.group / ranks(); }  // heads of a rank
  uint32_t columns() const { return own() * s.head_dim; }  // of queries
  uint32_t q_stride() const { return RoundUp(columns(), kPadColumns); }
  uint32_t out_stride() const { return RoundUp(own() * s.value_dim(), kPadColumns); }
  // A rank's queries.
  Inputs QueriesOf(uint32_t rank) const {
    Inputs out = {s.count(), columns(), q_stride(), {}};
    out.values.resize(size_t{out.rows} * out.stride);
    for (uint32_t row = 0; row < s.count(); ++row) {
      const auto from = data.qkv.values.begin() + size_t{row} * data.qkv.stride + rank * columns();
      std::copy_n(from, columns(), out.values.begin() + size_t{row} * out.stride);
    }
    return out;
  }
  std::vector<float> SinksOf(uint32_t rank) const {
    if (data.sinks.empty()) return {0};
    return {data.sinks.begin() + rank * own(), data.sinks.begin() + (rank + 1) * own()};
  }
  Wanted WantedOf(uint32_t rank, const Inputs& gate) const {
    Wanted want(s.count(), out_stride());
    for (uint32_t row = 0; row < s.count(); ++row) {
      for (uint32_t head = 0; head < own(); ++head) {
        const std::vector<Near> near = AttendHead(s, data, row, rank * own() + head);
        for (uint32_t d = 0; d < s.value_dim(); ++d) {
          const uint32_t at = head * s.value_dim() + d;
          const double by = gated ? 1 / (1 + std::exp(-gate.at(row, at))) : 1;
          const double off = gated ? std::abs(near[d].value) * 0x1p-20 : 0;
          want.Set(row, at, near[d].value * by, (near[d].allowed + off) * by);
        }
      }
    }
    return want;
  }
  // Of a launch on a rank.
  AttendShare ShareOf(uint32_t rank, const Addresses& at) const {
    AttendShare out = share;
    for (uint32_t r = 0; r < ranks(); ++r) out.exchange[r] = at.Of<uint8_t>(On("exchange", r));
    out.queries = at.Of<float>(On("queries", rank));
    out.half = words.half;
    out.chains_at = words.chains_at;
    out.rank = rank;
    out.sequence = 1;
    out.per_step = 3;
    return out;
  }
};

Sharing MakeSharing(const HeadShape& s, uint32_t log_ranks, uint32_t from, bool gated, bool sinks) {
  Random random(s.head_dim + s.count() * 3 + s.group + log_ranks);
  AttendData data = {StepOf(s), RandomInputs(random, s.count(), s.heads() * s.head_dim),
                     s.CacheOf(0), 0, {}};
  for (uint32_t head = 0; sinks && head < s.heads(); ++head) {
    data.sinks.push_back(static_cast<float>(3 * random.Normal()));
  }
  const uint32_t pages = DealPages(random, &data.step);
  data.kv = s.CacheOf(pages);
  for (uint32_t row = 0; row < s.count(); ++row) {
    for (uint32_t token = 0; token <= s.positions[row]; ++token) {
      data.kv.Fill(random, data.step.rows[row].pages[token / kPageTokens], 0, token % kPageTokens);
    }
  }
  AttendShare share;
  share.log_ranks = log_ranks;
  share.from = from;
  return {s, std::move(data), pages, share, gated,
          ShareBytesOf(1u << log_ranks, s.group >> log_ranks, s.head_dim)};
}

std::vector<Buffer> BuffersOf(const Sharing& c, uint32_t rank, const Inputs& gate) {
  StepPlan step = c.data.step;
  PutTablesBehind(&step);
  const size_t heads = size_t{c.s.count()} * c.s.heads(), hd = c.s.head_dim, vd = c.s.value_dim();
  return {{On("step", rank), step.Block(), rank},
          {On("qkv", rank), ToBytes(c.QueriesOf(rank).values), rank},
          {On("kv", rank), CacheOfRank(c.s, c.data, c.pages, c.share, rank).bytes, rank},
          {On("gate", rank), ToBytes(gate.values), rank},
          {On("sinks", rank), ToBytes(c.SinksOf(rank)), rank},
          {On("parts", rank), Bytes(heads / c.ranks() * kLongSplits * AttendPartFloats(static_cast<uint32_t>(vd)) * 4, 0xff), rank},
          {On("queries", rank), Bytes(heads * hd * 4, 0xff), rank},
          {On("exchange", rank), Bytes(2 * c.words.half, 0xff), rank}};
}

LaunchSpec QueriesLaunch(const Sharing& c, uint32_t rank) {
  return MakeLaunch<ShareQueriesArgs>(
      "share_queries", 1 + rank % 2,
      [=](ShareQueriesArgs& args, const Addresses& at) {
        args.step = at.Of<const uint32_t>(On("step", rank));
        args.qkv = at.Of<const float>(On("qkv", rank));
        args.share = c.ShareOf(rank, at);
        args.stride = c.q_stride();
        args.columns = c.columns();
      },
      rank);
}

LaunchSpec AttendLaunch(const Sharing& c, uint32_t rank) {
  return MakeLaunch<AttendLongArgs>(
      absl::StrCat("attend_long_", NameOf(c.s.format), "_", c.s.Dims()), 5 + rank,
      [=](AttendLongArgs& args, const Addresses& at) {
        AttendArgs& a = args.attend;
        a.step = at.Of<const uint32_t>(On("step", rank));
        a.qkv = at.Of<const float>(On("qkv", rank));
        a.kv = at.Of<const uint8_t>(On("kv", rank));
        a.out = at.Of<float>(On("out", rank));
        a.parts = at.Of<float>(On("parts", rank));
        if (c.gated) a.gate = at.Of<const float>(On("gate", rank));
        if (!c.data.sinks.empty()) a.sinks = at.Of<const float>(On("sinks", rank));
        a.q_stride = c.q_stride();
        a.gate_stride = a.out_stride = c.out_stride();
        a.heads = c.own();
        a.kv_heads = a.page_heads = 1;
        a.group = c.own();
        a.max_splits = kLongSplits;
        a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.s.head_dim)));
        a.row_count = c.s.count();
        a.tables_at = kTablesAt;
        args.share = c.ShareOf(rank, at);
      },
      rank);
}

LaunchSpec MergeLaunch(const Sharing& c, uint32_t rank) {
  return MakeLaunch<AttendSharedMergeArgs>(
      "attend_shared_merge", 3 + rank % 2,
      [=](AttendSharedMergeArgs& args, const Addresses& at) {
        AttendMergeArgs& m = args.merge;
        m.step = at.Of<const uint32_t>(On("step", rank));
        m.parts = at.Of<const float>(On("parts", rank));
        m.out = at.Of<float>(On("out", rank));
        if (c.gated) m.gate = at.Of<const float>(On("gate", rank));
        if (!c.data.sinks.empty()) m.sinks = at.Of<const float>(On("sinks", rank));
        m.gate_stride = m.out_stride = c.out_stride();
        m.heads = c.own();
        m.max_splits = kLongSplits;
        m.head_dim = c.s.value_dim();
        m.row_count = c.s.count();
        args.share = c.ShareOf(rank, at);
      },
      rank);
}

// As many ranks as hold a head share rows from position `from` on, each a device; what they exchange lies where
// NaNs of other epochs are.
Case SharedCase(const HeadShape& s, uint32_t log_ranks, uint32_t from, bool gated = false, bool sinks = false) {
  const Sharing c = MakeSharing(s, log_ranks, from, gated, sinks);
  Random random(s.head_dim);
  Case out;
  out.name = absl::StrCat("share_queries, attend_long_", s.Text(), ", attend_shared_merge, ", c.ranks(), " ranks from ",
                          from, gated ? ", gated" : "", sinks ? ", sinks" : "");
  out.bound = "as attend_long";
  out.steps.resize(3);
  for (uint32_t rank = 0; rank < c.ranks(); ++rank) {
    const Inputs gate = RandomInputs(random, s.count(), c.own() * s.value_dim(), 3);
    for (Buffer& buffer : BuffersOf(c, rank, gate)) out.buffers.push_back(std::move(buffer));
    const Wanted want = c.WantedOf(rank, gate);
    out.buffers.push_back(want.ToFill(On("out", rank), rank));
    out.steps[0].push_back(QueriesLaunch(c, rank));
    out.steps[1].push_back(AttendLaunch(c, rank));
    out.steps[2].push_back(MergeLaunch(c, rank));
    out.expectations.push_back(want.CheckSplit(On("out", rank)));
  }
  return out;
}

}  // namespace

// Rows that are shared and rows that are not, of fewer splits than ranks and of more than there are chains.
std::vector<Case> DecoderSharedCases() {
  std::vector<Case> cases;
  cases.push_back(SharedCase({KvFormat::kFp4, 128, 1, 16, {300, 127, 128, 20, 1000}}, 1, 128));
  cases.push_back(SharedCase({KvFormat::kBF16, 32, 1, 8, {5, 2500, 400, 255}}, 2, 256, true, true));
  cases.push_back(SharedCase({KvFormat::kFp8, 64, 1, 8, {2200, 150}}, 3, 128));
  cases.push_back(SharedCase({KvFormat::kK8V4, 32, 1, 2, {640, 129}}, 1, 200));
  cases.push_back(SharedCase({KvFormat::kFp4, 96, 1, 8, {700, 129}}, 2, 128));
  cases.push_back(SharedCase({KvFormat::kF32, 256, 1, 4, {530}}, 1, 128, false, true));
  cases.push_back(SharedCase({KvFormat::kFp8, 192, 1, 8, {700, 129}, 128}, 2, 128, true, false));
  // So many tokens in doubles take seconds; `mainarch attn-decode` is run on as many by the command's test.
  if (std::getenv("MAINARCH_TEST_FULL") == nullptr) return cases;
  constexpr uint32_t kLong = kSplitTokens * kLongSplits;  // the first position whose splits are longer
  cases.push_back(SharedCase({KvFormat::kFp4, 32, 1, 4, {kLong + 130}}, 1, 65'536));
  cases.push_back(SharedCase({KvFormat::kBF16, 64, 1, 8, {kLong - 1}}, 2, 128));
  return cases;
}

}  // namespace mainarch::kernels_test
