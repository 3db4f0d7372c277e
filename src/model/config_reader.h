// SPDX-License-Identifier: MIT
//
// The keys of config.json that more than one architecture has, each with its range and its errors.
// An architecture (arch/*.cc) calls what it has, in the order in which its errors shall come, and
// reads by text() what it alone has. Every value ends up in config().
#ifndef MAINARCH_MODEL_CONFIG_READER_H_
#define MAINARCH_MODEL_CONFIG_READER_H_

#include <initializer_list>

#include "absl/strings/string_view.h"
#include "base/status.h"
#include "file/json_fields.h"
#include "model/config.h"

namespace mainarch::model {

class ConfigReader {
 public:
  // The outer object, and the one that describes the text model (text_config; the same when flat).
  ConfigReader(const file::JsonFields& outer, const file::JsonFields& text, ModelConfig& config)
      : outer_(outer), text_(text), config_(config) {}

  const file::JsonFields& outer() const { return outer_; }
  const file::JsonFields& text() const { return text_; }
  ModelConfig& config() { return config_; }

  // Boolean features that must be off.
  Status RefuseIfTrue(std::initializer_list<absl::string_view> keys) const;
  Status Activation(absl::string_view wanted) const;  // hidden_act
  Status QuantMethod() const;                         // one whose tensors linear.h knows
  Status Geometry();                                  // widths, layers, vocabulary, positions, eps
  Status Heads();                                     // after Geometry
  Status LayerTypes() const;                          // full attention everywhere
  // One key for the products of Q, K, V and O.
  Status AttentionBias();
  Status TiedEmbeddings();
  Status NoExperts();  // every layer dense
  Status Experts();    // which layers are sparse, and the dense width where any is not
  Status Rope();       // after Heads

 private:
  Status Routing();
  Status DenseWidth();
  Status RopeType(const file::JsonFields& scaling);
  Status Factor(const file::JsonFields& scaling);
  Status Yarn(const file::JsonFields& scaling);
  Status Llama3(const file::JsonFields& scaling);

  const file::JsonFields& outer_;
  const file::JsonFields& text_;
  ModelConfig& config_;
};

}  // namespace mainarch::model

#endif  // MAINARCH_MODEL_CONFIG_READER_H_
