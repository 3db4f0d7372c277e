// SPDX-License-Identifier: MIT
//
// The keys of config.json that more than one architecture has, each with its range and its errors.
// An architecture (arch/*.cc) calls what it has, in the order in which its errors shall come, and
// reads by text() what it alone has. Every value ends up in config().
#ifndef MAINARCH_MODEL_CONFIG_READER_H_
#define MAINARCH_MODEL_CONFIG_READER_H_

#include <initializer_list>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "file/json_fields.h"
#include "model/config.h"

namespace mainarch::model {

// What transformers takes for keys that a config.json of a class may lack. 0: the key is wanted.
struct Defaults {
  int64_t max_position = 0;
  float rms_eps = 1e-6f;
  int32_t kv_heads = 0;  // where the key is missing; null means num_attention_heads
  int32_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  double theta = 1e4;
  bool tied = false;
  bool partial_rotary = false;  // partial_rotary_factor has a meaning
  double partial_rotary_factor = 1;
  absl::string_view eps_key = "";  // where there is no rms_norm_eps
};

class ConfigReader {
 public:
  // The outer object, and the one that describes the text model (text_config; the same when flat).
  ConfigReader(const file::JsonFields& outer, const file::JsonFields& text, ModelConfig& config)
      : outer_(outer), text_(text), config_(config) {}

  const file::JsonFields& outer() const { return outer_; }
  const file::JsonFields& text() const { return text_; }
  ModelConfig& config() { return config_; }

  // Activation, quantisation, widths, layers, vocabulary, positions, eps, heads and whether the
  // head is the embedding: what every architecture begins with.
  Status Common(const Defaults& defaults);

  // Boolean features that must be off, and numbers that must be absent or null.
  Status RefuseIfTrue(std::initializer_list<absl::string_view> keys) const;
  Status RefuseIfThere(std::initializer_list<absl::string_view> keys) const;
  Status Activation(absl::string_view key = "hidden_act");
  Status QuantMethod() const;  // one whose tensors linear.h knows
  // One key for the products of Q, K, V and O.
  Status AttentionBias();
  bool HasKey(absl::string_view key) const;  // there at all, be it null
  StatusOr<bool> Flag(absl::string_view key, bool by_default) const;
  StatusOr<double> Factor(absl::string_view key, double by_default) const;  // 1e-6 to 1e6
  // sliding_window: null or 0 is none, missing is `by_default`.
  StatusOr<int32_t> Window(int32_t by_default) const;
  // The window in the layers that layer_types calls sliding_attention, or, where there are no
  // layer_types, in those of `by_default`.
  Status LayerWindows(int32_t window, const std::vector<bool>& by_default);
  // A list of zeros and ones, one a layer; empty: there is no such key.
  StatusOr<std::vector<bool>> LayerFlags(absl::string_view key) const;
  // Which layers have experts, after RoutedExperts: a list of "dense" and "sparse", or one of zeros and ones.
  Status SparseLayers(absl::string_view types, absl::string_view flags);
  // As Qwen2 and Qwen3 have it: use_sliding_window, and by default from max_window_layers on.
  Status QwenWindows();
  // The geometry of gated delta nets, and which layers have one: those that layer_types calls
  // linear_attention, or all but every full_attention_interval-th.
  Status Delta();
  // The geometry of latent attention; heads are known. After it Rope turns what turns of a head.
  Status Latent();
  // What Qwen's hybrids have in common: delta nets, attention with a gate, norms of 1 + w.
  Status Hybrid();
  // The expert for all tokens and its gate, where there are experts.
  Status SharedExpert(int32_t width_by_default);
  // The window in every layer, whatever layer_types says.
  void WindowInAll(int32_t window);
  Status NoExperts();  // every layer dense
  Status Experts();    // which layers are sparse, and the dense width where any is not
  // num_local_experts in all layers, of width intermediate_size.
  Status LocalExperts();
  // What a class has where its keys are missing.
  struct Routed {
    int32_t dense = 1;
    int32_t shared = 1;
    int32_t groups = 1, chosen_groups = 1;
    double scale = 1;
  };
  // n_routed_experts in all but the first first_k_dense_replace layers, with groups and a scale.
  Status RoutedExperts(const Routed& by_default);
  Status Rope();  // rope_scaling or rope_parameters, else flat keys
  // Of layers with a window and of those without: rope_parameters has an object for each, or flat
  // keys speak of the latter and `local_key` (may be empty) of the former. Windows come before.
  Status RopeByWindow(absl::string_view local_key, double local_theta);

 private:
  Status Geometry();
  Status Heads();
  Status TiedEmbeddings();
  Status Routing();
  Status DenseWidth();
  Status DeltaLayers();
  Status ReadRope(const std::optional<file::JsonFields>& scaling, double theta, RopeConfig* rope);
  Status RopeType(const file::JsonFields& scaling, RopeConfig* rope);
  Status ScalingFactor(const file::JsonFields& scaling, bool required, RopeConfig* rope);
  Status OriginalPositions(const file::JsonFields& scaling, RopeConfig* rope);
  Status Yarn(const file::JsonFields& scaling, RopeConfig* rope);
  Status Llama3(const file::JsonFields& scaling, RopeConfig* rope);
  Status LongRope(const file::JsonFields& scaling, RopeConfig* rope);

  const file::JsonFields& outer_;
  const file::JsonFields& text_;
  ModelConfig& config_;
  Defaults defaults_;
};

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_CONFIG_READER_H_
