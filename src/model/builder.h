// SPDX-License-Identifier: MIT
//
// Builds a Program: finds weights in the checkpoint, cuts them into rank shards, appends ops. An
// architecture (arch/*.cc) says what is computed in terms of the blocks below; how a block is sharded
// (models.md §3) is known here and nowhere else.
//
// Errors are kept: the first one is returned by Finish, and everything after it is a no-op.
#ifndef MAINARCH_MODEL_BUILDER_H_
#define MAINARCH_MODEL_BUILDER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/program.h"
#include "base/status.h"
#include "file/checkpoint.h"
#include "model/config.h"
#include "model/experts.h"

namespace mainarch::model {

class Builder {
 public:
  Builder(const ModelConfig& config, std::shared_ptr<const file::Checkpoint> checkpoint,
          int32_t ranks);

  const ModelConfig& config() const { return config_; }

  // x = embedding of the step's tokens.
  void Embed(const std::string& table);
  // x += attention(norm(x)); tensors under `prefix` ("model.layers.3."). What it has is what the
  // config says of attention and of this layer; layers of one window share a cache, whose next layer
  // it takes.
  void Attention(const std::string& prefix);
  // x += latent attention(norm(x)).
  void LatentAttention(const std::string& prefix);
  // x += the gated delta net of norm(x).
  void Delta(const std::string& prefix);
  // x += down(activation(gate(h), up(h))), h = norm(x).
  void DenseFfn(const std::string& prefix);
  // x += mixture of experts of h, and the expert for all tokens.
  void MoeFfn(const std::string& prefix);
  // Keeps x for Programs that read it (AddTapped); the first call makes tap 0.
  void Tap();
  // x += w * the rows that tap `tap` of the source kept; `name` is a matrix [hidden, hidden].
  void AddTapped(int32_t tap, const std::string& name);
  // Keeps norm(x), what the vocabulary's head sees, for Programs that read it.
  void TapNormed(const std::string& norm);
  // Marks the end of a layer.
  void EndLayer();
  // Logits of norm(x).
  void Logits(const std::string& norm, const std::string& head);

  // All of Llama and its kin: embedding, layers of attention and feed-forward (experts in those that
  // config.sparse_layer names), logits.
  void Decoder();
  // The second Program of checkpoints that have one layer to draft with (models.md §2.7): x is made of
  // the embedding of a token and of the row that the first Program tapped for the token before it, or,
  // further on, of its own row for that.
  void DraftHead();
  // From here on Decoder taps what DraftHead reads.
  void set_drafted() { drafted_ = true; }
  // Decoder ends in norm(x) itself, without the head, whose tensor need not be there (Program::vectors).
  void set_vectors() { program_->vectors = true; }

  StatusOr<std::shared_ptr<const backend::Program>> Finish();

 private:
  using ColumnRange = std::pair<int64_t, int64_t>;
  using Range = std::function<ColumnRange(int32_t rank)>;

  backend::BufferId AddBuffer(const std::string& label, int64_t width, int32_t slots = 1,
                              backend::BufferType type = backend::BufferType::kF32);
  backend::WeightId AddWeight(backend::Weight weight);
  // The matrix `name`, or an empty one after an error.
  quant::Matrix Linear(const std::string& name, int64_t rows, int64_t cols);
  // The vector `name`, or an empty one after an error.
  quant::Matrix VectorOf(const std::string& name, int64_t size);
  // The same on every rank.
  backend::WeightId Vector(const std::string& name, int64_t size);
  // Of a norm: what is stored may lack one.
  backend::WeightId Norm(const std::string& name, int64_t size);
  backend::WeightId Replicated(const std::string& name, int64_t rows, int64_t cols,
                               backend::WeightLayout layout);
  // Columns cut at `splits`; the product is a sum over ranks.
  backend::WeightId ColumnShards(const std::string& label, std::vector<quant::Matrix> sources,
                                 const std::vector<int64_t>& splits, int32_t groups);
  // Gates and ups, rows cut at `splits` (the columns of the down projection that follows).
  backend::WeightId GateUpShards(const std::string& label, const std::vector<MatrixPart>& gates,
                                 const std::vector<MatrixPart>& ups, int64_t cols,
                                 const std::vector<int64_t>& splits);
  // Columns [begin, end) of each row of `bias` (from `at` on), cut at `splits`.
  backend::WeightId BiasShards(const std::string& label, const quant::Matrix& bias, int64_t at,
                               const std::vector<int64_t>& splits);
  // The first norm's weight, or kNone where the layer has none before.
  backend::WeightId NormBefore(const std::string& prefix, const std::string& name);
  // act = the activation of gate and up of h, of a feed-forward of `width` under `mlp`.
  void GateUp(const std::string& mlp, int64_t width, const std::vector<int64_t>& splits,
              backend::WeightId norm, backend::BufferId act);
  void Down(const std::string& mlp, int64_t width, const std::vector<int64_t>& splits,
            backend::BufferId act, const std::string& norm_after);
  // Whether the expert for all tokens is one of the others in the layers that are to come.
  void DecideShared(const std::vector<std::string>& layers);
  backend::WeightId RouterProduct(const std::string& prefix);
  void SharedGateUp(const std::string& prefix, backend::WeightId norm);
  void Router(const std::string& prefix, backend::WeightId norm);
  void Experts(const std::string& prefix);
  // Of q_proj, k_proj and v_proj of a layer of so many key heads, or of their biases (`bias`): rows of this rank's
  // queries, then of its key head(s), then value head(s).
  std::vector<std::vector<backend::WeightSlice>> QkvSlices(int32_t kv_heads, bool bias) const;
  // Rows of q_proj that make the gate of this rank's heads.
  std::vector<std::vector<backend::WeightSlice>> GateSlices(bool bias) const;
  int32_t CacheOf(int32_t window, int32_t kv_heads);  // of all ranks
  // Q, K and V of a layer of so many key heads on a rank, in their own width and as attention has them: two buffers where
  // that is wider.
  struct QkvBuffers {
    int32_t kv_heads;
    backend::BufferId own, stored;
  };
  QkvBuffers QkvOf(const backend::PagedCache& cache, int32_t heads);
  // Of delta nets.
  bool DeltaHeadsDivide(int32_t ranks) const;
  ColumnRange KeyHeads(int32_t rank) const;
  backend::WeightId DeltaProduct(const std::string& self);
  backend::WeightId DeltaGates(const std::string& self);
  backend::WeightId DeltaConvolution(const std::string& self);
  int32_t DeltaCache(const backend::GatedDeltaOp& op);
  void JoinTapped(const std::string& prefix);
  // Memory that lives as long as the Program.
  uint8_t* Keep(size_t bytes);
  // Latent attention's parts (builder_latent.cc).
  int32_t LatentCache();
  void LatentQueries(const std::string& self, backend::WeightId norm);
  backend::WeightId LatentHeads(const std::string& label, std::vector<quant::Matrix> sources,
                                std::vector<backend::WeightSlice> heads);
  backend::WeightId LatentKeys(const std::string& self, const quant::Matrix& kv_b);
  backend::WeightId LatentValues(const std::string& self, const quant::Matrix& kv_b);
  // Both, head by head as GGUF has them.
  backend::WeightId LatentApart(const std::string& self, const char* name, int64_t rows, int64_t cols);
  // The matrix whose product leaves norm(x) as it is: what gives logits gives vectors, on any backend.
  quant::Matrix Identity();
  // Logits by `head`, whose rows ranks share; the norm's weight times `factor`.
  void LogitProduct(const std::string& norm, float factor, const std::string& label, quant::Matrix head);
  void AddHeads(backend::AttentionOp* attention, const std::string& prefix, int32_t kv_heads);
  void AddGate(backend::AttentionOp* attention, const std::string& self, backend::WeightId norm,
               const quant::Matrix& q_proj, const quant::Matrix& q_bias);
  void AddHeadNorms(backend::AttentionOp* attention, const std::string& self, int32_t kv_heads);
  void WidenHeads(backend::AttentionOp* attention, const QkvBuffers& buffers);
  backend::BufferId NarrowHeads();
  // The slices of each rank's query heads, or key heads, of a vector of all.
  std::vector<std::vector<backend::WeightSlice>> HeadSlices(int64_t heads, int64_t each) const;
  // A vector of which each rank has its own part.
  backend::WeightId VectorShards(const std::string& label, std::vector<quant::Matrix> sources,
                                 std::vector<std::vector<backend::WeightSlice>> ranks);
  // x += in * w: one op on one rank, a partial product and an all-reduce on more. With `bias`, a
  // norm behind or a scale of what is added (each may be missing), these apply to the whole sum.
  void AddProduct(backend::BufferId in, backend::WeightId w, const std::string& bias,
                  const std::string& norm_after);
  ColumnRange RankPart(const std::vector<int64_t>& splits, int32_t rank) const;
  int64_t WidestPart(const std::vector<int64_t>& splits) const;
  void Fail(Status status);
  void CheckHeads();
  bool HeadsDivide(int32_t ranks) const;

  const ModelConfig& config_;
  std::shared_ptr<const file::Checkpoint> checkpoint_;
  const int32_t ranks_;
  const std::string model_;  // what stands before the tensors' names: "model."
  bool drafted_ = false;
  Status status_;
  std::shared_ptr<backend::Program> program_;
  std::vector<QkvBuffers> qkvs_;
  // Shared by all layers; -1 until first used.
  backend::BufferId narrow_attention_ = -1;  // where heads are stored wider
  backend::BufferId qkv_ = -1, attention_ = -1, gate_ = -1, act_ = -1, partial_ = -1, sum_ = -1;
  backend::BufferId delta_in_ = -1, delta_gates_ = -1, delta_out_ = -1, normed_ = -1;
  backend::BufferId latent_q_ = -1, latent_q_a_ = -1, latent_q_normed_ = -1, latent_kv_ = -1, latent_out_ = -1;
  backend::BufferId shared_act_ = -1, shared_gate_ = -1;
  backend::BufferId moe_h_ = -1, moe_ids_ = -1, moe_weights_ = -1, moe_act_ = -1;
};

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_BUILDER_H_
