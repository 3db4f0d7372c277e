// SPDX-License-Identifier: MIT
#include "backend/program.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "backend/ops_info.h"

namespace mainarch::backend {
namespace {

const Weight& WeightAt(const Program& program, WeightId id) {
  return program.weights[static_cast<size_t>(id)];
}

// Rows of one group of the first rank's share.
int64_t RankRows(const Weight& weight) {
  int64_t rows = 0;
  for (const WeightSlice& slice : weight.ranks[0]) rows += slice.row_end - slice.row_begin;
  return rows / weight.groups;
}

int64_t RankCols(const Weight& weight) {
  return weight.ranks[0][0].col_end - weight.ranks[0][0].col_begin;
}

// One rank's bytes of one group of a weight.
uint64_t GroupBytes(const Weight& weight) {
  const size_t per_group = weight.ranks[0].size() / static_cast<size_t>(weight.groups);
  uint64_t bytes = 0;
  for (size_t s = 0; s < per_group; ++s) {
    const WeightSlice& slice = weight.ranks[0][s];
    bytes += quant::StoredBytes(weight.sources[static_cast<size_t>(slice.source)].format,
                                slice.row_end - slice.row_begin, slice.col_end - slice.col_begin);
  }
  return bytes;
}

void AddWeightCost(const Program& program, const WeightUse& use, int64_t rows, Cost* cost) {
  const Weight& weight = WeightAt(program, use.id);
  const auto product = [&](int64_t groups, int64_t times) {
    cost->weight_bytes += GroupBytes(weight) * static_cast<uint64_t>(groups);
    cost->flops += 2 * static_cast<uint64_t>(RankRows(weight) * RankCols(weight) * times);
  };
  switch (use.kind) {
    case WeightUse::kLookup:
      cost->weight_bytes += static_cast<uint64_t>(
          quant::RowBytes(weight.sources[0].format, weight.sources[0].cols) * rows);
      return;
    case WeightUse::kVector:
      return;
    case WeightUse::kProduct:
      return product(1, rows);
    case WeightUse::kHeads:
      return product(weight.groups, rows * weight.groups);
    case WeightUse::kRouted: {
      const int64_t times = rows * program.experts_per_token;
      // The expert of all tokens is read once, however many rows there are.
      const int64_t shared = program.shared_expert ? 1 : 0;
      const int64_t chosen = std::min<int64_t>(program.experts - shared, times - shared * rows);
      return product(chosen + shared, times);
    }
  }
}

std::string BufferText(const Program& program, BufferId id) {
  const Buffer& buffer = program.buffers[static_cast<size_t>(id)];
  return absl::StrCat(buffer.label, "[", buffer.slots > 1 ? absl::StrCat(buffer.slots, ",") : "",
                      buffer.width, "]");
}

std::string WeightText(const Weight& weight) {
  return absl::StrCat(weight.label, "[", weight.groups > 1 ? absl::StrCat(weight.groups, ",") : "",
                      RankRows(weight), ",", RankCols(weight), "]:",
                      quant::NameOf(weight.sources[0].format));
}

// "in * W -> out": vectors are left out.
std::string OpText(const Program& program, const Op& op) {
  const OpUses uses = UsesOf(program, op);
  std::string text;
  const auto append = [&text](absl::string_view between, absl::string_view what) {
    if (!what.empty()) absl::StrAppend(&text, text.empty() ? "" : between, what);
  };
  for (BufferId id : uses.reads) append(" ", BufferText(program, id));
  append(" ", NoteOf(op));
  for (const WeightUse& use : uses.weights) {
    if (use.kind != WeightUse::kVector) append(" * ", WeightText(WeightAt(program, use.id)));
  }
  absl::StrAppend(&text, uses.adds ? " +>" : " ->");
  for (BufferId id : uses.writes) append(" ", BufferText(program, id));
  if (uses.writes.empty()) append(" ", OpName(op));
  return text;
}

// Every weight's slices lie inside their sources, and stacked slices agree in columns.
Status CheckWeight(const Program& program, const Weight& weight) {
  if (weight.ranks.size() != static_cast<size_t>(program.ranks) || weight.sources.empty()) {
    return Error(Code::kInternal, weight.label, ": shards for ", weight.ranks.size(), " of ",
                 program.ranks, " ranks");
  }
  const bool stacked = weight.layout != WeightLayout::kVector;
  for (const std::vector<WeightSlice>& slices : weight.ranks) {
    if (slices.empty() || slices.size() % static_cast<size_t>(weight.groups) != 0) {
      return Error(Code::kInternal, weight.label, ": ", slices.size(), " slices in ", weight.groups,
                   " groups");
    }
    for (const WeightSlice& slice : slices) {
      if (slice.source < 0 || static_cast<size_t>(slice.source) >= weight.sources.size()) {
        return Error(Code::kInternal, weight.label, ": no source ", slice.source);
      }
      const quant::Matrix& source = weight.sources[static_cast<size_t>(slice.source)];
      if (slice.row_begin < 0 || slice.row_begin > slice.row_end || slice.row_end > source.rows ||
          slice.col_begin < 0 || slice.col_begin > slice.col_end || slice.col_end > source.cols ||
          (stacked && slice.col_end - slice.col_begin != slices[0].col_end - slices[0].col_begin)) {
        return Error(Code::kInternal, weight.label, ": slice outside of its source");
      }
    }
  }
  if (!weight.splits.empty()) {
    const size_t parts = weight.splits.size() - 1;
    if (parts > kSplitParts || (parts & (parts - 1)) != 0 || parts < weight.ranks.size()) {
      return Error(Code::kInternal, weight.label, ": ", weight.splits.size(), " part boundaries");
    }
  }
  return OkStatus();
}

// A product's columns match the width of its input, its rows that of its output. Shards may be
// uneven; buffers are as wide as the widest.
Status CheckProduct(const Weight& weight, const WeightUse& use) {
  for (const std::vector<WeightSlice>& slices : weight.ranks) {
    int64_t rows = 0;
    for (const WeightSlice& slice : slices) rows += slice.row_end - slice.row_begin;
    rows /= weight.groups;
    const int64_t cols = slices[0].col_end - slices[0].col_begin;
    if (cols > use.in || rows > use.out) {
      return Error(Code::kInternal, weight.label, ": [", rows, ", ", cols, "] does not fit ",
                   use.in, " in and ", use.out, " out");
    }
  }
  return OkStatus();
}

Status CheckUse(const Program& program, const WeightUse& use) {
  if (use.id < 0 || static_cast<size_t>(use.id) >= program.weights.size()) {
    return Error(Code::kInternal, "no weight ", use.id);
  }
  const Weight& weight = WeightAt(program, use.id);
  switch (use.kind) {
    case WeightUse::kLookup:
      if (weight.layout == WeightLayout::kTable && weight.sources[0].cols == use.out) break;
      return Error(Code::kInternal, weight.label, " is not a table of rows of ", use.out);
    case WeightUse::kVector:
      for (int32_t rank = 0; rank < program.ranks; ++rank) {
        if (weight.layout == WeightLayout::kVector && VectorSize(weight, rank) == use.in) continue;
        return Error(Code::kInternal, weight.label, " is not a vector of ", use.in);
      }
      break;
    case WeightUse::kProduct:
    case WeightUse::kRouted:
    case WeightUse::kHeads:
      return CheckProduct(weight, use);
  }
  return OkStatus();
}

Status CheckUses(const Program& program, const OpUses& uses) {
  for (const std::vector<BufferId>* ids : {&uses.reads, &uses.writes}) {
    for (BufferId id : *ids) {
      if (id < 0 || static_cast<size_t>(id) >= program.buffers.size()) {
        return Error(Code::kInternal, "no buffer ", id);
      }
    }
  }
  for (const WeightUse& use : uses.weights) RETURN_IF_ERROR(CheckUse(program, use));
  return OkStatus();
}

}  // namespace

int64_t VectorSize(const Weight& weight, int32_t rank) {
  int64_t size = 0;
  for (const WeightSlice& slice : weight.ranks[static_cast<size_t>(rank)]) {
    size += slice.col_end - slice.col_begin;
  }
  return size;
}

void DecodeVector(const Weight& weight, int32_t rank, float* out) {
  for (const WeightSlice& slice : weight.ranks[static_cast<size_t>(rank)]) {
    const int64_t count = slice.col_end - slice.col_begin;
    quant::DecodeRow(weight.sources[static_cast<size_t>(slice.source)], slice.row_begin,
                     slice.col_begin, count, out);
    if (weight.offset != 0 || weight.factor != 1) {
      for (int64_t i = 0; i < count; ++i) out[i] = (out[i] + weight.offset) * weight.factor;
    }
    out += count;
  }
}

Cost CostOf(const Program& program, const Op& op, const Work& work) {
  Cost cost;
  const int64_t rows = work.rows * work.sequences;
  for (const WeightUse& use : UsesOf(program, op).weights) {
    AddWeightCost(program, use, rows, &cost);
  }
  AddOwnCost(program, op, work, &cost);
  return cost;
}

std::string Print(const Program& program) {
  std::string text;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const Cost cost = CostOf(program, op, Work());
    absl::StrAppend(&text, i, " ", OpName(op), ": ", OpText(program, op), "  ", cost.weight_bytes,
                    " bytes\n");
  }
  return text;
}

std::string KvTypesText(const Program& program, KvType of_context) {
  std::string text = absl::StrCat(static_cast<int>(of_context));
  for (const Cache& cache : program.caches) {
    const auto* paged = std::get_if<PagedCache>(&cache);
    if (paged == nullptr || !paged->type.has_value()) continue;
    absl::StrAppend(&text, ", ", static_cast<int>(*paged->type), " in ", paged->label);
  }
  return text;
}

Status Check(const Program& program) {
  for (const Weight& weight : program.weights) RETURN_IF_ERROR(CheckWeight(program, weight));
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    Status status = CheckUses(program, UsesOf(program, op));
    if (status.ok()) status = CheckOp(program, op);
    if (!status.ok()) return WithContext(status, absl::StrCat("op ", i, " ", OpName(op)));
  }
  return OkStatus();
}

}  // namespace mainarch::backend
