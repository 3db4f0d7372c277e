// SPDX-License-Identifier: MIT
#include "backend/program.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace mainarch::backend {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

int64_t RankRows(const Program& program, WeightId id) {
  const Weight& weight = program.weights[static_cast<size_t>(id)];
  int64_t rows = 0;
  for (const WeightSlice& slice : weight.ranks[0]) rows += slice.row_end - slice.row_begin;
  return rows / weight.groups;
}

int64_t RankCols(const Program& program, WeightId id) {
  const WeightSlice& slice = program.weights[static_cast<size_t>(id)].ranks[0][0];
  return slice.col_end - slice.col_begin;
}

// One rank's bytes of `groups` groups of a weight.
uint64_t WeightBytes(const Program& program, WeightId id, int64_t groups) {
  const Weight& weight = program.weights[static_cast<size_t>(id)];
  const size_t per_group = weight.ranks[0].size() / static_cast<size_t>(weight.groups);
  uint64_t bytes = 0;
  for (size_t s = 0; s < per_group; ++s) {
    const WeightSlice& slice = weight.ranks[0][s];
    bytes += quant::StoredBytes(weight.sources[static_cast<size_t>(slice.source)].format,
                                slice.row_end - slice.row_begin, slice.col_end - slice.col_begin);
  }
  return bytes * static_cast<uint64_t>(groups);
}

uint64_t Flops(const Program& program, WeightId id, int64_t rows) {
  return 2 * static_cast<uint64_t>(RankRows(program, id) * RankCols(program, id) * rows);
}

int64_t DistinctExperts(const Program& program, int64_t rows) {
  return std::min<int64_t>(program.experts, rows * program.experts_per_token);
}

struct Names {
  const Program& program;
  std::string B(BufferId id) const {
    const Buffer& buffer = program.buffers[static_cast<size_t>(id)];
    return absl::StrCat(buffer.label, "[", buffer.slots > 1 ? absl::StrCat(buffer.slots, ",") : "",
                        buffer.width, "]");
  }
  std::string W(WeightId id) const {
    const Weight& weight = program.weights[static_cast<size_t>(id)];
    return absl::StrCat(weight.label, "[", weight.groups > 1 ? absl::StrCat(weight.groups, ",") : "",
                        RankRows(program, id), ",", RankCols(program, id), "]:",
                        quant::NameOf(weight.sources[0].format));
  }
};

std::string OpText(const Program& program, const Op& op) {
  const Names n{program};
  return std::visit(
      Overloaded{
          [&](const EmbedOp& o) { return absl::StrCat(n.W(o.table), " -> ", n.B(o.x)); },
          [&](const NormMatmulOp& o) {
            return absl::StrCat(n.B(o.x), " * ", n.W(o.w), " -> ", n.B(o.out));
          },
          [&](const AttentionOp& o) {
            return absl::StrCat(n.B(o.qkv), " kv layer ", o.kv_layer, " -> ", n.B(o.out));
          },
          [&](const MatmulAddOp& o) {
            return absl::StrCat(n.B(o.in), " * ", n.W(o.w), " +> ", n.B(o.x));
          },
          [&](const MatmulOp& o) {
            return absl::StrCat(n.B(o.in), " * ", n.W(o.w), " -> ", n.B(o.partial));
          },
          [&](const AllReduceAddOp& o) { return absl::StrCat(n.B(o.partial), " +> ", n.B(o.x)); },
          [&](const NormGateUpOp& o) {
            return absl::StrCat(n.B(o.x), " * ", n.W(o.w), " -> ", n.B(o.act));
          },
          [&](const RouterOp& o) {
            return absl::StrCat(n.B(o.x), " * ", n.W(o.w), " -> ", n.B(o.h), " ", n.B(o.ids), " ",
                                n.B(o.weights));
          },
          [&](const ExpertsGateUpOp& o) {
            return absl::StrCat(n.B(o.h), " * ", n.W(o.w), " -> ", n.B(o.act));
          },
          [&](const ExpertsDownOp& o) {
            return absl::StrCat(n.B(o.act), " * ", n.W(o.w), o.add ? " +> " : " -> ", n.B(o.out));
          },
          [&](const LogitsOp& o) { return absl::StrCat(n.B(o.x), " * ", n.W(o.w), " -> logits"); },
      },
      op);
}

// Every weight's slices lie inside their sources, and stacked slices agree in columns.
Status CheckWeight(const Program& program, const Weight& weight) {
  if (weight.ranks.size() != static_cast<size_t>(program.ranks) || weight.sources.empty()) {
    return Error(Code::kInternal, weight.label, ": shards for ", weight.ranks.size(), " of ",
                 program.ranks, " ranks");
  }
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
          slice.col_begin != slices[0].col_begin || slice.col_end != slices[0].col_end) {
        return Error(Code::kInternal, weight.label, ": slice outside of its source");
      }
    }
  }
  if (!weight.splits.empty() && weight.splits.size() != kSplitParts + 1) {
    return Error(Code::kInternal, weight.label, ": ", weight.splits.size(), " part boundaries");
  }
  return OkStatus();
}

// A product's columns match the width of its input, its rows that of its output.
class ShapeChecker {
 public:
  explicit ShapeChecker(const Program& program) : program_(program) {}

  Status Product(WeightId w, int64_t in, int64_t out, int64_t out_per_row = 1) const {
    if (w < 0 || static_cast<size_t>(w) >= program_.weights.size()) {
      return Error(Code::kInternal, "no weight ", w);
    }
    const Weight& weight = program_.weights[static_cast<size_t>(w)];
    for (const std::vector<WeightSlice>& slices : weight.ranks) {
      int64_t rows = 0;
      for (const WeightSlice& slice : slices) rows += slice.row_end - slice.row_begin;
      rows /= weight.groups;
      // Shards may be uneven; buffers are as wide as the widest.
      const int64_t cols = slices[0].col_end - slices[0].col_begin;
      if (cols > in || rows > out * out_per_row) {
        return Error(Code::kInternal, weight.label, ": [", rows, ", ", cols, "] does not fit ", in,
                     " in and ", out, " out");
      }
    }
    return OkStatus();
  }
  int64_t Width(BufferId id) const {
    if (id < 0 || static_cast<size_t>(id) >= program_.buffers.size()) return 0;
    return program_.buffers[static_cast<size_t>(id)].width;
  }

  Status operator()(const EmbedOp& o) const {
    const Weight& table = program_.weights[static_cast<size_t>(o.table)];
    if (table.layout == WeightLayout::kTable && table.sources[0].cols == Width(o.x)) {
      return OkStatus();
    }
    return Error(Code::kInternal, "embedding is not a table of x's width");
  }
  Status operator()(const NormMatmulOp& o) const { return Product(o.w, Width(o.x), Width(o.out)); }
  Status operator()(const NormGateUpOp& o) const {
    return Product(o.w, Width(o.x), Width(o.act), 2);
  }
  Status operator()(const MatmulAddOp& o) const { return Product(o.w, Width(o.in), Width(o.x)); }
  Status operator()(const MatmulOp& o) const { return Product(o.w, Width(o.in), Width(o.partial)); }
  Status operator()(const AttentionOp& o) const {
    const int64_t qkv = int64_t{program_.heads + 2 * program_.kv_heads} * program_.head_dim;
    if (Width(o.qkv) == qkv && Width(o.out) == int64_t{program_.heads} * program_.head_dim &&
        o.kv_layer >= 0 && o.kv_layer < program_.kv_layers) {
      return OkStatus();
    }
    return Error(Code::kInternal, "attention buffers do not match the heads");
  }
  Status operator()(const AllReduceAddOp& o) const {
    if (Width(o.partial) == Width(o.x) && program_.ranks > 1) return OkStatus();
    return Error(Code::kInternal, "all-reduce of unequal buffers");
  }
  Status operator()(const RouterOp& o) const {
    RETURN_IF_ERROR(Product(o.w, Width(o.x), program_.experts));
    if (Width(o.h) == Width(o.x) && Width(o.ids) == program_.experts_per_token &&
        Width(o.weights) == program_.experts_per_token) {
      return OkStatus();
    }
    return Error(Code::kInternal, "router buffers do not match the experts");
  }
  Status operator()(const ExpertsGateUpOp& o) const {
    return Product(o.w, Width(o.h), Width(o.act), 2);
  }
  Status operator()(const ExpertsDownOp& o) const { return Product(o.w, Width(o.act), Width(o.out)); }
  Status operator()(const LogitsOp& o) const { return Product(o.w, Width(o.x), program_.vocab); }

 private:
  const Program& program_;
};

}  // namespace

absl::string_view OpName(const Op& op) {
  constexpr absl::string_view kNames[] = {
      "embed",      "norm_matmul",   "attention",       "matmul_add",   "matmul", "all_reduce_add",
      "norm_gate_up", "router",      "experts_gate_up", "experts_down", "logits"};
  static_assert(std::size(kNames) == std::variant_size_v<Op>);
  return kNames[op.index()];
}

Cost CostOf(const Program& program, const Op& op, int64_t rows, int64_t context) {
  Cost cost;
  auto product = [&](WeightId id) {
    cost.weight_bytes += WeightBytes(program, id, 1);
    cost.flops += Flops(program, id, rows);
  };
  auto experts = [&](WeightId id) {
    cost.weight_bytes += WeightBytes(program, id, DistinctExperts(program, rows));
    cost.flops += Flops(program, id, rows * program.experts_per_token);
  };
  std::visit(Overloaded{
                 [&](const EmbedOp& o) {
                   const quant::Matrix& table =
                       program.weights[static_cast<size_t>(o.table)].sources[0];
                   cost.weight_bytes +=
                       static_cast<uint64_t>(quant::RowBytes(table.format, table.cols) * rows);
                 },
                 [&](const NormMatmulOp& o) { product(o.w); },
                 [&](const AttentionOp&) {
                   const uint64_t token = 2 * 2 * static_cast<uint64_t>(program.kv_heads) *
                                          static_cast<uint64_t>(program.head_dim);
                   cost.kv_bytes += token * static_cast<uint64_t>(context + rows);
                   cost.flops += 4 * static_cast<uint64_t>(program.heads) *
                                 static_cast<uint64_t>(program.head_dim) *
                                 static_cast<uint64_t>(rows) * static_cast<uint64_t>(context);
                 },
                 [&](const MatmulAddOp& o) { product(o.w); },
                 [&](const MatmulOp& o) { product(o.w); },
                 [&](const AllReduceAddOp&) { cost.all_reduces = 1; },
                 [&](const NormGateUpOp& o) { product(o.w); },
                 [&](const RouterOp& o) { product(o.w); },
                 [&](const ExpertsGateUpOp& o) { experts(o.w); },
                 [&](const ExpertsDownOp& o) { experts(o.w); },
                 [&](const LogitsOp& o) { product(o.w); },
             },
             op);
  return cost;
}

std::string Print(const Program& program) {
  std::string text;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const Cost cost = CostOf(program, op, 1, 0);
    absl::StrAppend(&text, i, " ", OpName(op), ": ", OpText(program, op), "  ", cost.weight_bytes,
                    " bytes\n");
  }
  return text;
}

Status Check(const Program& program) {
  for (const Weight& weight : program.weights) RETURN_IF_ERROR(CheckWeight(program, weight));
  const ShapeChecker checker(program);
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const Status status = std::visit(checker, program.ops[i]);
    if (!status.ok()) {
      return WithContext(status, absl::StrCat("op ", i, " ", OpName(program.ops[i])));
    }
  }
  return OkStatus();
}

}  // namespace mainarch::backend
