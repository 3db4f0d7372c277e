// SPDX-License-Identifier: MIT
//
// The generator of synthetic checkpoints against its numpy twin: dtype, shape and hash of every
// tensor of every fixture in every variant that data/checkpoints.json lists.
#include <xxhash.h>

#include <set>

#include "base/fd.h"
#include "file/checkpoint.h"
#include "file/json.h"
#include "model/config.h"
#include "model/synthetic.h"
#include "support/test.h"

namespace mainarch::model {
namespace {

using file::JsonDocument;
using file::View;
using simdjson::dom::element;

StatusOr<JsonDocument> ReadJson(const std::string& name) {
  const std::string path = test::SourcePath("tests/golden/data/" + name);
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, 1 << 22));
  return JsonDocument::Parse(text, path, {1 << 22});
}

std::string Hash(absl::Span<const uint8_t> bytes) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(XXH64(bytes.data(), bytes.size(), 0)));
  return text;
}

// An error that names the tensor that differs.
Status Compare(const file::Checkpoint& checkpoint, simdjson::dom::object expected) {
  if (checkpoint.tensors().size() != expected.size()) {
    return Error(Code::kInternal, checkpoint.tensors().size(), " tensors, not ", expected.size());
  }
  for (const auto& member : expected) {
    const file::TensorView* tensor = checkpoint.Find(View(member.key));
    if (tensor == nullptr) return Error(Code::kNotFound, View(member.key));
    const std::string_view dtype = member.value.at(0).get_string().value_unsafe();
    const std::string_view hash = member.value.at(2).get_string().value_unsafe();
    std::vector<int64_t> shape;
    const simdjson::dom::array sizes = member.value.at(1).get_array().value_unsafe();
    for (const element size : sizes) shape.push_back(size.get_int64().value_unsafe());
    if (NameOf(tensor->dtype) != View(dtype) || tensor->shape != shape) {
      return Error(Code::kInternal, tensor->name, ": another dtype or shape");
    }
    if (Hash(tensor->bytes) != hash) {
      return Error(Code::kInternal, tensor->name, ": hash ", Hash(tensor->bytes), ", not ",
                   View(hash));
    }
  }
  return OkStatus();
}

Status Check(element entry, element configs) {
  const std::string_view fixture = entry["fixture"].get_string().value_unsafe();
  const std::string_view variant = entry["variant"].get_string().value_unsafe();
  ASSIGN_OR_RETURN(const ModelConfig config, ParseConfig(simdjson::minify(configs.at_key(fixture)),
                                                         "", std::string(fixture)));
  SyntheticOptions options;
  ASSIGN_OR_RETURN(options.format, SyntheticFormatFromName(View(variant)));
  options.seed = entry["seed"].get_uint64().value_unsafe();
  options.shards = variant == "mxfp4" ? 3 : 1;
  const std::string directory = test::ScratchDirectory();
  RETURN_IF_ERROR(WriteSyntheticCheckpoint(config, directory, options));
  ASSIGN_OR_RETURN(const auto checkpoint, file::Checkpoint::Open(directory));
  return WithContext(Compare(*checkpoint, entry["tensors"].get_object().value_unsafe()),
                     absl::StrCat(View(fixture), " ", View(variant), " seed ", options.seed));
}

TEST(every_tensor_has_the_bytes_of_the_numpy_twin) {
  const auto hashes = ReadJson("checkpoints.json");
  CHECK_OK(hashes);
  const auto manifest = ReadJson("manifest.json");
  CHECK_OK(manifest);
  const element configs = manifest->root()["configs"].value_unsafe();
  std::set<std::string> variants;
  size_t count = 0;
  const simdjson::dom::array entries = hashes->root().get_array().value_unsafe();
  for (const element entry : entries) {
    CHECK_OK(Check(entry, configs));
    variants.emplace(entry["variant"].get_string().value_unsafe());
    ++count;
  }
  CHECK_EQ(variants.size(), 7u);  // all formats
  CHECK_GE(count, 15u);
}

}  // namespace
}  // namespace mainarch::model
