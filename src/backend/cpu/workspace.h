// SPDX-License-Identifier: MIT
//
// What the ops of one context work on: buffers, caches, what each worker has for itself, the step in
// progress; and products with weights, which most ops are made of. Sized at creation.
#ifndef MAINARCH_BACKEND_CPU_WORKSPACE_H_
#define MAINARCH_BACKEND_CPU_WORKSPACE_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/caches.h"
#include "backend/cpu/carver.h"
#include "backend/cpu/cpu_backend.h"
#include "base/fd.h"

namespace mainarch::cpu {

// What a worker needs for itself.
struct Worker {
  float* norm = nullptr;        // [kMaxBlockRows, hidden_stride]
  uint64_t norm_tag = 0;        // which phase and rank `norm` holds
  uint16_t* x16 = nullptr;      // a phase's input rows as bf16
  uint64_t x16_tag = 0;         // which phase and rank
  uint8_t* x8 = nullptr;        // a phase's input rows in 8 bits
  uint64_t x8_tag = 0;          // which phase and rank
  float* columns = nullptr;     // a phase's input rows by columns (MatmulArgs::columns)
  uint64_t columns_tag = 0;     // which phase and rank
  bool floats_made = false;     // `columns` holds the rows of x16 (MatmulArgs::floats_made)
  uint8_t* decoded = nullptr;   // MatmulArgs::decoded
  uint8_t* panels = nullptr;    // [kMaxItemPanels * largest stride], weights in place
  const float** x = nullptr;    // [max_rows]
  float** out = nullptr;        // [max_rows]
  const uint16_t** rows16 = nullptr;  // [max_rows]
  const uint8_t** rows8 = nullptr;    // [max_rows]
};

// What becomes of a product's rows.
struct After {
  Epilogue epilogue = Epilogue::kStore;
  backend::Activation activation = backend::Activation::kSilu;  // of kGateUp
  const float* gate_bias = nullptr;                             // of its first panel
  const float* up_bias = nullptr;
};

// Bytes from row to row of those in 8 bits.
inline int64_t Int8Stride(const Panels& panels) {
  return static_cast<int64_t>(Int8LayoutOf(panels.cols).bytes);
}

class Workspace;

// What several ops share: memory, and what is worked out once a step.
class Shared {
 public:
  virtual ~Shared() = default;
  virtual void Carve(Carver* carve) = 0;  // called twice (carver.h)
  virtual void BeginStep(const backend::Step& step) { (void)step; }
};

class Workspace {
 public:
  Workspace(std::shared_ptr<const CpuModel> model, const backend::ContextOptions& options,
            const Workspace* source);

  // The one T of that key, made of (this, args) by the first op that asks; before Allocate.
  template <class T, class... Args>
  T* Share(const std::string& key, Args&&... args) {
    std::unique_ptr<Shared>& shared = shared_[key];
    if (shared == nullptr) shared = std::make_unique<T>(this, std::forward<Args>(args)...);
    return static_cast<T*>(shared.get());
  }
  Status Allocate();
  void BeginStep(const backend::Step& step);
  void EndStep() { step_ = nullptr; }

  const std::shared_ptr<const CpuModel> model;
  const backend::Program& program;
  const Kernels& kernels;
  const size_t near_bytes;  // NearBytes of this machine
  const backend::ContextOptions options;
  const bool bf16;  // activations are rounded to bf16 for products with weights
  const bool int8;  // to 8 bits, with weights that have such a product
  const int32_t ranks;
  const int32_t workers;
  const int64_t hidden_stride;
  const int64_t logit_stride;
  Caches caches;

  // What InputOps read: the source context's, or null.
  const Workspace* const source;

  const backend::Step& step() const { return *step_; }
  int64_t rows() const { return rows_; }  // of the step, and after it of the last

  // Buffers.
  float* Row(int32_t rank, backend::BufferId buffer, int64_t row) const {
    const size_t b = static_cast<size_t>(buffer);
    return buffers_[static_cast<size_t>(rank)][b] + row * row_stride_[b];
  }
  int32_t* IdRow(int32_t rank, backend::BufferId buffer, int64_t row) const {
    return reinterpret_cast<int32_t*>(Row(rank, buffer, row));
  }
  int64_t SlotStride(backend::BufferId buffer) const {
    return slot_stride_[static_cast<size_t>(buffer)];
  }
  float* NormOf(int32_t rank, int64_t row) const {  // of all rows, when they are many
    return norm_[static_cast<size_t>(rank)] + row * hidden_stride;
  }
  uint16_t* Rounded(int32_t rank) const { return rounded_[static_cast<size_t>(rank)]; }
  uint8_t* Rounded8(int32_t rank) const { return rounded8_[static_cast<size_t>(rank)]; }
  float* logits(int64_t i) const { return logits_ + i * logit_stride; }
  Worker* worker(int index) { return &workers_[static_cast<size_t>(index)]; }
  const RankWeight& weight(int32_t rank, backend::WeightId id) const {
    return model->weight(options.program, rank, id);
  }
  // A vector weight, or null for kNone.
  const float* Vector(int32_t rank, backend::WeightId id) const {
    return id == backend::kNone ? nullptr : weight(rank, id).vector;
  }
  uint64_t memory_bytes() const { return memory_.size() + caches.bytes(); }

  // products.cc
  uint64_t TagOf(uint32_t phase, int32_t rank) const;
  // Whether some of its panels take rows rounded to bf16; and in 8 bits, the first of those, or null.
  bool UsesBF16(backend::WeightId w) const;
  const Panels* UsesInt8(int32_t rank, backend::WeightId w) const;
  int64_t MostPanels(backend::WeightId w) const;
  // Panels of an item; pairs: those of gate and up, which stay together.
  uint32_t ItemPanels(int64_t panels, bool pairs) const;
  const float* NormRow(int32_t rank, uint64_t tag, backend::WeightId norm, const uint32_t* rows,
                       int64_t count, int64_t row, Worker* scratch) const;
  const float* ColumnsOf(int64_t rows, int64_t width, uint64_t tag, Worker* scratch) const;
  const uint8_t* PanelAt(int32_t rank, backend::WeightId w, size_t group, int64_t panel) const;
  void RunPanels(int32_t rank, backend::WeightId w, size_t group, int64_t begin, int64_t end,
                 int64_t rows, const After& then, bool rounded, const uint8_t* next,
                 Worker* scratch, const float* columns = nullptr) const;

 private:
  void RunGroup(const RankWeight& own, size_t group, int64_t begin, int64_t end, int64_t rows,
                const After& then, bool rounded, const uint8_t* next, Worker* scratch,
                const float* columns) const;
  bool RunsInt8(const Panels& panels) const { return int8 && HasInt8Dot(panels.format); }
  int64_t MostBytes8() const;
  void Carve(Carver* carve, size_t panel_bytes, int64_t widest, int64_t longest);

  Mapping memory_;                            // everything but caches
  std::vector<std::vector<float*>> buffers_;  // [rank][buffer]
  std::vector<int64_t> slot_stride_;          // [buffer], elements
  std::vector<int64_t> row_stride_;           // [buffer], elements
  std::vector<float*> norm_;                  // [rank]: [max_rows, hidden_stride]
  std::vector<uint16_t*> rounded_;            // [rank]: [max_rows, width of the input]
  std::vector<uint8_t*> rounded8_;            // [rank]: [max_rows] rows in 8 bits
  float* logits_ = nullptr;                   // [max_logit_rows, logit_stride]
  std::vector<Worker> workers_;
  std::vector<const float*> worker_x_;
  std::vector<float*> worker_out_;
  std::vector<const uint16_t*> worker_rows16_;
  std::vector<const uint8_t*> worker_rows8_;
  std::map<std::string, std::unique_ptr<Shared>> shared_;

  const backend::Step* step_ = nullptr;
  uint64_t step_number_ = 0;
  int64_t rows_ = 0;
};

}  // namespace mainarch::cpu

#endif  // MAINARCH_BACKEND_CPU_WORKSPACE_H_
