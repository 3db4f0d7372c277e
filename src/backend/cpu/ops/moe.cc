// SPDX-License-Identifier: MIT
//
// Mixture of experts: router, top-k, and the routed experts, without sorting or permuting rows. A
// token's experts are kept in ascending id, which is the order they are added in.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/phase.h"

namespace mainarch::cpu {
namespace {

constexpr uint32_t kItemsPerWorker = 4;

// What a step's ops of one layer after the other share.
class Routing : public Shared {
 public:
  explicit Routing(Workspace* ws)
      : ws_(*ws), stride_((ws->program.experts + kLanes - 1) / kLanes * kLanes) {
    offsets.resize(static_cast<size_t>(ws->program.experts) + 1);
    entries.resize(ws->options.max_rows * static_cast<size_t>(ws->program.experts_per_token));
    active.resize(static_cast<size_t>(ws->program.experts));
  }

  void Carve(Carver* carve) override {
    logits_.resize(static_cast<size_t>(ws_.ranks));
    scratch_.resize(static_cast<size_t>(ws_.workers));
    const int64_t rows = ws_.options.max_rows;
    for (float*& logits : logits_) logits = carve->Take<float>(rows * stride_);
    choices_.resize(static_cast<size_t>(ws_.workers));
    for (float*& choices : choices_) choices = carve->Take<float>(2 * stride_);
    for (float*& scratch : scratch_) {
      scratch = carve->Take<float>(rows * kMaxParts * kExpertPanels * kLanes);
    }
  }
  float* Logits(int32_t rank, int64_t row) const {
    return logits_[static_cast<size_t>(rank)] + row * stride_;
  }
  float* scratch(int worker) const { return scratch_[static_cast<size_t>(worker)]; }
  float* choices(int worker) const { return choices_[static_cast<size_t>(worker)]; }

  void List(backend::BufferId ids);

  // Rows by expert (the same on every rank).
  std::vector<int32_t> offsets;  // [experts + 1]
  std::vector<int32_t> entries;  // [max_rows * k]: row * k + slot
  std::vector<int32_t> active;
  int32_t active_count = 0;

 private:
  const Workspace& ws_;
  const int64_t stride_;
  std::vector<float*> logits_;   // [rank]: [max_rows, experts]
  std::vector<float*> scratch_;  // [worker]: ExpertsDownArgs::scratch
  std::vector<float*> choices_;  // [worker]: of one row, [experts], then [groups]
};

// Which rows go to which expert, from rank 0's ids (every rank's are the same).
void Routing::List(backend::BufferId ids_of) {
  const int32_t k = ws_.program.experts_per_token, experts = ws_.program.experts;
  std::fill(offsets.begin(), offsets.end(), 0);
  for (int64_t row = 0; row < ws_.rows(); ++row) {
    const int32_t* ids = ws_.IdRow(0, ids_of, row);
    for (int32_t slot = 0; slot < k; ++slot) ++offsets[static_cast<size_t>(ids[slot]) + 1];
  }
  active_count = 0;
  for (int32_t e = 0; e < experts; ++e) {
    const size_t at = static_cast<size_t>(e);
    if (offsets[at + 1] > 0) active[static_cast<size_t>(active_count++)] = e;
    offsets[at + 1] += offsets[at];
  }
  // Fill each expert's list from its start; the starts move up and are moved back after.
  for (int64_t row = 0; row < ws_.rows(); ++row) {
    const int32_t* ids = ws_.IdRow(0, ids_of, row);
    for (int32_t slot = 0; slot < k; ++slot) {
      int32_t& at = offsets[static_cast<size_t>(ids[slot])];
      entries[static_cast<size_t>(at++)] = static_cast<int32_t>(row * k + slot);
    }
  }
  for (size_t e = static_cast<size_t>(experts); e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
}

Routing* RoutingOf(Workspace* ws) { return ws->Share<Routing>("routing"); }

// The k largest of n values into ids, ascending; ties go to the lowest id.
void TopK(const float* p, int32_t n, int32_t k, int32_t* ids) {
  int32_t count = 0;  // ids[0 .. count) by falling value, first id first among equals
  for (int32_t id = 0; id < n; ++id) {
    if (count == k && !(p[id] > p[ids[k - 1]])) continue;
    int32_t at = count < k ? count++ : k - 1;
    for (; at > 0 && p[id] > p[ids[at - 1]]; --at) ids[at] = ids[at - 1];
    ids[at] = id;
  }
  std::sort(ids, ids + k);
}

class RouterNorm : public Phase {
 public:
  RouterNorm(const backend::RouterOp& op, Workspace* ws) : Phase(ws), op_(op) {}

  uint32_t Open() override { return RowItems(); }

  void Run(uint32_t item, int) override {
    const int32_t rank = RankOf(item);
    const int64_t row = RowOf(item);
    ws_.kernels.rms_norm(ws_.Row(rank, op_.x, row), ws_.Vector(rank, op_.norm),
                         ws_.program.rms_eps, ws_.program.hidden, ws_.Row(rank, op_.h, row));
  }

 private:
  const backend::RouterOp op_;
};

// One item: some panels of one row's router logits. Many rows are items enough; few rows are cut so
// that every worker has one, into even numbers of panels.
class RouterMultiply : public Phase {
 public:
  RouterMultiply(const backend::RouterOp& op, Workspace* ws)
      : Phase(ws),
        op_(op),
        routing_(*RoutingOf(ws)),
        panels_(ws->weight(0, op.w).plans[0].panels) {}

  uint32_t Open() override {
    const int64_t rows = ws_.rows() * ws_.ranks, wanted = (ws_.workers + rows - 1) / rows;
    item_panels_ = ((panels_ + wanted - 1) / wanted + 1) / 2 * 2;
    chunks_ = (panels_ + item_panels_ - 1) / item_panels_;
    return static_cast<uint32_t>(rows * chunks_);
  }

  void Run(uint32_t item, int worker) override {
    const int32_t rank = static_cast<int32_t>(item / (ws_.rows() * chunks_));
    const int64_t row = item / chunks_ % ws_.rows();
    const int64_t begin = item % chunks_ * item_panels_;
    Worker* scratch = ws_.worker(worker);
    scratch->x[0] = ws_.Row(rank, op_.h, row);
    scratch->out[0] = routing_.Logits(rank, row);
    ws_.RunPanels(rank, op_.w, 0, begin, std::min(panels_, begin + item_panels_), 1, After(),
                  /*rounded=*/false, nullptr, scratch);
  }

 private:
  const backend::RouterOp op_;
  const Routing& routing_;
  const int64_t panels_;
  int64_t item_panels_ = 0, chunks_ = 0;  // of a row, in this step
};

class RouterTopK : public Phase {
 public:
  RouterTopK(const backend::RouterOp& op, Workspace* ws)
      : Phase(ws), op_(op), routing_(*RoutingOf(ws)) {}

  uint32_t Open() override { return RowItems(); }

  void Run(uint32_t item, int worker) override {
    const int32_t shared = ws_.program.shared_expert ? 1 : 0;
    const int32_t rank = RankOf(item), k = ws_.program.experts_per_token - shared;
    const int32_t experts = ws_.program.experts - shared;
    const int64_t row = RowOf(item);
    float* p = routing_.Logits(rank, row);
    if (shared != 0) {
      ws_.IdRow(rank, op_.ids, row)[k] = experts;
      ws_.Row(rank, op_.weights, row)[k] = 1 / (1 + std::exp(-p[experts]));
    }
    if (const float* bias = ws_.Vector(rank, op_.bias)) {
      for (int32_t e = 0; e < experts; ++e) p[e] += bias[e];
    }
    if (op_.sigmoid) {
      for (int32_t e = 0; e < experts; ++e) p[e] = 1 / (1 + std::exp(-p[e]));
    } else {
      ws_.kernels.softmax(p, experts);
    }
    int32_t* ids = ws_.IdRow(rank, op_.ids, row);
    float* weights = ws_.Row(rank, op_.weights, row);
    TopK(Choices(rank, p, routing_.choices(worker)), experts, k, ids);
    float sum = 0;
    for (int32_t i = 0; i < k; ++i) sum += weights[i] = p[ids[i]];
    if (op_.renormalise) {
      for (int32_t i = 0; i < k; ++i) weights[i] /= sum;
    }
    if (op_.scale == 1) return;
    for (int32_t i = 0; i < k; ++i) weights[i] *= op_.scale;
  }

 private:
  // What the choice goes by: p itself, or in `out` what is corrected, without the groups that lose.
  const float* Choices(int32_t rank, const float* p, float* out) {
    if (op_.correction == backend::kNone && op_.groups == 1) return p;
    const int32_t experts = ws_.program.experts - (ws_.program.shared_expert ? 1 : 0);
    const float* correction = ws_.Vector(rank, op_.correction);
    for (int32_t e = 0; e < experts; ++e)
      out[e] = correction == nullptr ? p[e] : p[e] + correction[e];
    if (op_.chosen_groups == op_.groups) return out;
    const int32_t size = experts / op_.groups;
    float* scores = out + experts;  // [groups]
    for (int32_t g = 0; g < op_.groups; ++g) {
      int32_t best[2];
      TopK(out + g * size, size, 2, best);
      scores[g] = out[g * size + best[0]] + out[g * size + best[1]];
    }
    // The groups stay that fewer than chosen_groups others beat; of equals the lowest.
    for (int32_t g = 0; g < op_.groups; ++g) {
      int32_t better = 0;
      for (int32_t other = 0; other < op_.groups; ++other) {
        better += scores[other] > scores[g] || (scores[other] == scores[g] && other < g);
      }
      if (better < op_.chosen_groups) continue;
      std::fill(out + g * size, out + (g + 1) * size, -std::numeric_limits<float>::infinity());
    }
    return out;
  }

  const backend::RouterOp op_;
  const Routing& routing_;
};

// One item: a chunk of one expert's panels, for all rows that it works for.
class ExpertsGateUp : public Phase {
 public:
  ExpertsGateUp(const backend::ExpertsGateUpOp& op, Workspace* ws)
      : Phase(ws), op_(op), routing_(*RoutingOf(ws)), bf16_(ws->UsesBF16(op.w)) {
    // A narrow expert may leave nothing to some of the ranks.
    most_pairs_ = std::max<int64_t>(1, ws->MostPanels(op.w) / 2);
  }

  uint32_t Open() override {
    routing_.List(op_.ids);
    const int64_t wanted = int64_t{kItemsPerWorker} * ws_.workers;
    const int64_t have = std::max<int64_t>(1, int64_t{routing_.active_count} * ws_.ranks);
    chunks_ = static_cast<uint32_t>(std::clamp<int64_t>(wanted / have + 1, 1, most_pairs_));
    return static_cast<uint32_t>(ws_.ranks * routing_.active_count) * chunks_;
  }

  void Run(uint32_t item, int worker) override {
    const uint32_t active = static_cast<uint32_t>(routing_.active_count);
    const int32_t rank = static_cast<int32_t>(item / (active * chunks_));
    const uint32_t at = item % (active * chunks_) / chunks_;
    const size_t expert = static_cast<size_t>(routing_.active[at]);
    const int64_t chunk = item % chunks_;
    const int64_t pairs = ws_.weight(rank, op_.w).plans[expert].panels / 2;
    const int64_t begin = pairs * chunk / chunks_ * 2;
    const int64_t end = pairs * (chunk + 1) / chunks_ * 2;
    Worker* scratch = ws_.worker(worker);
    const int64_t rows = FillRows(rank, expert, scratch);
    // The next item is the next chunk of this expert or the first of the next one.
    const uint8_t* after = ws_.PanelAt(rank, op_.w, expert, end);
    if (after == nullptr && at + 1 < active) {
      after = ws_.PanelAt(rank, op_.w, static_cast<size_t>(routing_.active[at + 1]), 0);
    }
    // The experts' biases lie one behind the other.
    After then = {Epilogue::kGateUp, op_.activation};
    if (op_.gate_bias != backend::kNone) {
      const backend::Weight& bias = ws_.program.weights[static_cast<size_t>(op_.gate_bias)];
      const int64_t width = backend::VectorSize(bias, rank) / ws_.program.experts;
      then.gate_bias = ws_.Vector(rank, op_.gate_bias) + static_cast<int64_t>(expert) * width;
      then.up_bias = ws_.Vector(rank, op_.up_bias) + static_cast<int64_t>(expert) * width;
    }
    scratch->floats_made = false;  // they are of another expert
    ws_.RunPanels(rank, op_.w, expert, begin, end, rows, then, /*rounded=*/true, after, scratch);
    scratch->floats_made = false;
  }

 private:
  int64_t FillRows(int32_t rank, size_t expert, Worker* scratch) {
    const int32_t k = ws_.program.experts_per_token;
    const int64_t width = ws_.SlotStride(op_.h);
    if (bf16_ && scratch->x16_tag != Tag(rank)) {
      ws_.kernels.to_bf16(ws_.Row(rank, op_.h, 0), scratch->x16, ws_.rows() * width);
      scratch->x16_tag = Tag(rank);
    }
    const Panels* const int8 = ws_.UsesInt8(rank, op_.w);
    const int64_t stride8 = int8 == nullptr ? 0 : Int8Stride(*int8);
    if (int8 != nullptr && scratch->x8_tag != Tag(rank)) {
      for (int64_t row = 0; row < ws_.rows(); ++row) {
        ws_.kernels.to_int8(ws_.Row(rank, op_.h, row), *int8, scratch->x8 + row * stride8);
      }
      scratch->x8_tag = Tag(rank);
    }
    int64_t rows = 0;
    for (int32_t i = routing_.offsets[expert]; i < routing_.offsets[expert + 1]; ++i, ++rows) {
      const int32_t entry = routing_.entries[static_cast<size_t>(i)];
      scratch->x[rows] = ws_.Row(rank, op_.h, entry / k);
      scratch->rows16[rows] = scratch->x16 + entry / k * width;
      scratch->rows8[rows] = scratch->x8 + entry / k * stride8;
      scratch->out[rows] = ws_.Row(rank, op_.act, entry / k) + entry % k * ws_.SlotStride(op_.act);
    }
    return rows;
  }

  const backend::ExpertsGateUpOp op_;
  Routing& routing_;
  const bool bf16_;
  int64_t most_pairs_ = 1;
  uint32_t chunks_ = 1;  // of an expert, in this step
};

// One item: kExpertPanels panels of the output, all active experts.
class ExpertsDown : public Phase {
 public:
  ExpertsDown(const backend::ExpertsDownOp& op, Workspace* ws)
      : Phase(ws), op_(op), routing_(*RoutingOf(ws)), bf16_(ws->UsesBF16(op.w)) {
    rank_items_ = static_cast<uint32_t>(
        (ws->weight(0, op.w).plans[0].panels + kExpertPanels - 1) / kExpertPanels);
  }

  uint32_t Open() override { return static_cast<uint32_t>(ws_.ranks) * rank_items_; }

  void Run(uint32_t item, int worker) override {
    const int32_t rank = static_cast<int32_t>(item / rank_items_);
    const RankWeight& weight = ws_.weight(rank, op_.w);
    ExpertsDownArgs args = ArgsOf(rank, item % rank_items_, worker);
    Worker* scratch = ws_.worker(worker);
    if (bf16_ && scratch->x16_tag != Tag(rank)) {
      ws_.kernels.to_bf16(args.act, scratch->x16, ws_.rows() * args.k * args.act_stride);
      scratch->x16_tag = Tag(rank);
    }
    const Panels* const int8 = ws_.UsesInt8(rank, op_.w);
    if (int8 != nullptr) args.act8_stride = Int8Stride(*int8);
    if (int8 != nullptr && scratch->x8_tag != Tag(rank)) {
      for (int64_t entry = 0; entry < ws_.rows() * args.k; ++entry) {
        ws_.kernels.to_int8(args.act + entry * args.act_stride, *int8,
                            scratch->x8 + entry * args.act8_stride);
      }
      scratch->x8_tag = Tag(rank);
    }
    const auto run = int8 != nullptr ? ws_.kernels.experts_down_int8
                     : bf16_         ? ws_.kernels.experts_down_bf16
                                     : ws_.kernels.experts_down;
    if (weight.ready.load(std::memory_order_acquire)) {
      run(args);
      return;
    }
    for (int32_t i = 0; i < routing_.active_count; ++i) {
      const size_t expert = static_cast<size_t>(routing_.active[static_cast<size_t>(i)]);
      for (int64_t p = args.panel_begin; p < args.panel_end; ++p) {
        PackPanel(weight.plans[expert], p,
                  scratch->panels +
                      static_cast<size_t>(p - args.panel_begin) * weight.panels[expert].stride);
      }
      Panels one = weight.panels[expert];
      one.data = scratch->panels - static_cast<size_t>(args.panel_begin) * one.stride;
      args.experts = &one - expert;
      args.active = routing_.active.data() + i;
      args.active_count = 1;
      args.first = i == 0;
      args.last = i + 1 == routing_.active_count;
      run(args);
    }
  }

 private:
  ExpertsDownArgs ArgsOf(int32_t rank, uint32_t part, int worker) const {
    const RankWeight& weight = ws_.weight(rank, op_.w);
    ExpertsDownArgs args;
    args.experts = weight.panels.data();
    args.panel_begin = int64_t{part} * kExpertPanels;
    args.panel_end = std::min<int64_t>(args.panel_begin + kExpertPanels, weight.plans[0].panels);
    args.active = routing_.active.data();
    args.active_count = routing_.active_count;
    args.offsets = routing_.offsets.data();
    args.entries = routing_.entries.data();
    args.k = ws_.program.experts_per_token;
    args.act = ws_.Row(rank, op_.act, 0);
    args.act_stride = ws_.SlotStride(op_.act);
    args.weights = ws_.Row(rank, op_.weights, 0);
    args.weights_stride = ws_.SlotStride(op_.weights);
    args.out = ws_.Row(rank, op_.out, 0);
    args.out_stride = ws_.SlotStride(op_.out);
    args.rows = ws_.rows();
    args.add = op_.add;
    args.first = args.last = true;
    args.scratch = routing_.scratch(worker);
    args.act16 = ws_.worker(worker)->x16;
    args.act8 = ws_.worker(worker)->x8;
    args.near = ws_.near_bytes;
    return args;
  }

  const backend::ExpertsDownOp op_;
  const Routing& routing_;
  const bool bf16_;
  uint32_t rank_items_ = 0;
};

// One item: a row of a rank.
class ExpertsBias : public Phase {
 public:
  ExpertsBias(const backend::ExpertsBiasOp& op, Workspace* ws)
      : Phase(ws), op_(op), width_(ws->program.buffers[static_cast<size_t>(op.x)].width) {}

  uint32_t Open() override { return RowItems(); }

  void Run(uint32_t item, int) override {
    const int32_t rank = RankOf(item);
    const int64_t row = RowOf(item);
    float* x = ws_.Row(rank, op_.x, row);
    const int32_t* ids = ws_.IdRow(rank, op_.ids, row);
    const float* weights = ws_.Row(rank, op_.weights, row);
    const float* bias = ws_.Vector(rank, op_.bias);
    const int32_t k = ws_.program.experts_per_token;
    for (int64_t i = 0; i < width_; ++i) {
      float sum = 0;
      for (int32_t slot = 0; slot < k; ++slot) sum += weights[slot] * bias[ids[slot] * width_ + i];
      x[i] += sum;
    }
  }

 private:
  const backend::ExpertsBiasOp op_;
  const int64_t width_;
};

// One item: a row of a rank.
class RowGate : public Phase {
 public:
  RowGate(const backend::RowGateOp& op, Workspace* ws) : Phase(ws), op_(op) {}

  uint32_t Open() override { return RowItems(); }

  void Run(uint32_t item, int) override {
    const int32_t rank = RankOf(item);
    const int64_t row = RowOf(item);
    const float gate = *ws_.Row(rank, op_.gate, row);
    ws_.kernels.scale(ws_.Row(rank, op_.act, row), 1 / (1 + std::exp(-gate)),
                      ws_.SlotStride(op_.act));
  }

 private:
  const backend::RowGateOp op_;
};

}  // namespace

void AddPhases(const backend::RouterOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<RouterNorm>(op, ws);
  phases->Add<RouterMultiply>(op, ws);
  phases->Add<RouterTopK>(op, ws);
}
void AddPhases(const backend::ExpertsGateUpOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<ExpertsGateUp>(op, ws);
}
void AddPhases(const backend::ExpertsDownOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<ExpertsDown>(op, ws);
}

void AddPhases(const backend::ExpertsBiasOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<ExpertsBias>(op, ws);
}
void AddPhases(const backend::RowGateOp& op, Workspace* ws, PhaseList* phases) {
  phases->Add<RowGate>(op, ws);
}

}  // namespace mainarch::cpu
