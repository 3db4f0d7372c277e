// SPDX-License-Identifier: MIT
//
// Every architecture against transformers: one model a family whose weights follow from its
// tensors' names (families.py), on every CPU target, on 1, 2 and 4 ranks where heads allow, in
// chunks, and by the fp64 decoder. By hand, with MAINARCH_FAMILIES=DIR, all checkpoints that
// `families.py --random` put there; with MAINARCH_FAMILY=NAME one model of data/ alone.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>

#include "absl/strings/match.h"
#include "base/fd.h"
#include "file/directory_writer.h"
#include "file/json.h"
#include "file/safetensors_layout.h"
#include "golden/fixtures.h"
#include "golden/golden.h"
#include "model/arch/arch.h"
#include "model/synthetic_values.h"
#include "reference/decoder.h"
#include "support/checkpoint_files.h"
#include "support/gpus.h"
#include "support/test.h"

namespace mainarch {
namespace {

using simdjson::dom::element;
using test::Golden;
using test::Runner;
using test::WorstRelative;

constexpr double kBound = 2e-4;  // of a row's largest |logit|
constexpr double kGpuBound = 1e-4;
constexpr double kAnyGpuBound = 1e-3;  // of models by hand, up to 7 layers deep, with scales of any kind

// u * scale + offset: families.py's value_of, from the tensor's name and shape.
void FillTensor(const std::string& name, const std::vector<int64_t>& shape, float norm_offset,
                std::vector<float>* values) {
  constexpr float kHeadGain = 8, kRouterGain = 4;
  float offset = 0, scale = model::LinearScale(shape.back());
  if (absl::EndsWith(name, "bias")) {
    scale = 0.5f;
  } else if (absl::EndsWith(name, "sinks")) {
    scale = 2;
  } else if (absl::EndsWith(name, "A_log")) {
    offset = -2;
    scale = 1;
  } else if (absl::EndsWith(name, "linear_attn.norm.weight")) {
    offset = 1;
    scale = 0.25f;
  } else if (shape.size() == 1) {
    offset = norm_offset;
    scale = 0.25f;
  } else if (absl::EndsWith(name, "embed_tokens.weight")) {
    scale = 1;
  } else if (absl::EndsWith(name, "lm_head.weight")) {
    scale *= kHeadGain;
  } else if (absl::EndsWith(name, ".gate.weight") || absl::EndsWith(name, ".router.weight") ||
             absl::EndsWith(name, "shared_expert_gate.weight")) {
    scale *= kRouterGain;
  }
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  values->resize(static_cast<size_t>(count));
  model::FillValues(model::SyntheticKey(name, 0), 0, count, offset, scale, values->data());
}

// Codes of MXFP4, or scales from 2^-6 to 2^-3: families.py's block_bytes.
std::vector<uint8_t> BlockBytes(const std::string& name, uint64_t count) {
  const uint64_t key = model::SyntheticKey(name, 0);
  const bool scales = absl::EndsWith(name, "_scales");
  std::vector<uint8_t> out;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t bits = model::SplitMix64(key + i);
    out.push_back(static_cast<uint8_t>(scales ? 121 + (bits >> 62) : bits >> 56));
  }
  return out;
}

Status WriteCase(const element& one, const std::string& directory) {
  ASSIGN_OR_RETURN(auto writer, file::DirectoryWriter::Create(directory));
  const auto norm_offset = static_cast<float>(one["norm_offset"].get_double().value_unsafe());
  std::vector<file::StoredTensor> tensors;
  simdjson::dom::array list, sizes;
  if (one["tensors"].get(list) != simdjson::SUCCESS) {
    return Error(Code::kInternal, "no list of tensors");
  }
  for (const element tensor : list) {
    file::StoredTensor stored;
    stored.name = std::string(tensor.at(0).get_string().value_unsafe());
    stored.dtype = tensor.at(2).error() == simdjson::SUCCESS ? DType::kU8 : DType::kBF16;
    stored.bytes = BytesOf(stored.dtype);
    if (tensor.at(1).get(sizes) != simdjson::SUCCESS) {
      return Error(Code::kInternal, "a tensor without a shape");
    }
    for (const element size : sizes) {
      stored.shape.push_back(size.get_int64().value_unsafe());
      stored.bytes *= static_cast<uint64_t>(stored.shape.back());
    }
    tensors.push_back(std::move(stored));
  }
  std::vector<file::StoredTensor*> pointers;
  uint64_t bytes = 0;
  for (file::StoredTensor& tensor : tensors) {
    pointers.push_back(&tensor);
    bytes += tensor.bytes;
  }
  const std::string header = file::LayOut(pointers);
  ASSIGN_OR_RETURN(const size_t at, writer->Add("model.safetensors", header.size() + bytes));
  RETURN_IF_ERROR(
      writer->Write(at, 0, {reinterpret_cast<const uint8_t*>(header.data()), header.size()}));
  std::vector<float> values;
  model::Panel panel;
  for (const file::StoredTensor& tensor : tensors) {
    if (tensor.dtype == DType::kU8) {
      RETURN_IF_ERROR(writer->Write(at, tensor.offset, BlockBytes(tensor.name, tensor.bytes)));
      continue;
    }
    FillTensor(tensor.name, tensor.shape, norm_offset, &values);
    model::EncodePanel(quant::Format::kBF16, values.data(), 1, static_cast<int64_t>(values.size()),
                       &panel);
    RETURN_IF_ERROR(writer->Write(at, tensor.offset, panel.data));
  }
  RETURN_IF_ERROR(writer->AddText("config.json", simdjson::minify(one["config"].value_unsafe())));
  return writer->Commit();
}

struct Case {
  std::string name;       // for messages
  std::string prefix;     // of its tensors in the golden
  std::string directory;  // of the checkpoint
};

constexpr size_t kCases = 43;

Case CaseOf(const element& one) {
  Case out;
  out.name = std::string(one["name"].get_string().value_unsafe());
  out.prefix = out.name + ".";
  out.directory = test::ScratchDirectory() + "/" + out.name;
  return out;
}

// The worst error of a row's logits at the golden's positions, relative to its largest.
double WorstAt(const Golden& golden, const Case& one,
               const std::vector<std::vector<float>>& logits) {
  const std::vector<int32_t> positions = golden.Ints(one.prefix + "positions");
  const std::vector<float> want = golden.Floats(one.prefix + "logits");
  double worst = positions.empty() ? INFINITY : 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    const double error = WorstRelative(logits[static_cast<size_t>(positions[i])],
                                       test::RowOf(want, positions.size(), i));
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

void CheckGreedy(test::Context& test_context, Runner* runner, const Golden& golden,
                 const Case& one) {
  const std::vector<uint32_t> prompt = golden.Tokens(one.prefix + "prompt");
  const std::vector<uint32_t> ids = golden.Tokens(one.prefix + "greedy.ids");
  const std::vector<float> margins = golden.Floats(one.prefix + "greedy.margins");
  CHECK(!ids.empty() && margins.size() == ids.size());
  runner->Truncate(0);
  CHECK_OK(runner->Extend(prompt, false));
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::vector<float> logits = runner->Logits(0);
    double largest = 0;
    for (float logit : logits) largest = std::max(largest, std::fabs(double{logit}));
    // Where the golden's own margin is within the bound, either choice is right.
    if (margins[i] > 2 * kBound * largest) CHECK_EQ(test::ArgMax(logits), ids[i]);
    CHECK_OK(runner->Extend({ids[i]}, false));
  }
}

// The fp64 decoder, which knows nothing of Programs.
double WorstOfReference(test::Context& test_context, const model::Model& model,
                        const Golden& golden, const Case& one) {
  auto decoder =
      reference::Decoder::Create(model.shared_checkpoint(), model.config(), quant::KvType::kF32);
  if (!decoder.ok()) {
    test_context.Fail(__FILE__, __LINE__, std::string(decoder.status().message()));
    return INFINITY;
  }
  std::vector<std::vector<float>> logits;
  for (const uint32_t token : golden.Tokens(one.prefix + "prompt")) {
    if (!(*decoder)->Extend({token}).ok()) return INFINITY;
    logits.emplace_back((*decoder)->logits().begin(), (*decoder)->logits().end());
  }
  return WorstAt(golden, one, logits);
}

bool Divides(const model::ModelConfig& config, int32_t ranks) {
  const int32_t small = std::min(config.kv_heads, ranks);
  return (config.delta.key_heads == 0 || config.delta.key_heads % ranks == 0) &&
         config.heads % ranks == 0 && std::max(config.kv_heads, ranks) % small == 0;
}

void CheckCase(test::Context& test_context, const Golden& golden, const Case& one,
               const std::vector<test::Setting>& settings) {
  const std::vector<uint32_t> prompt = golden.Tokens(one.prefix + "prompt");
  CHECK(!prompt.empty());
  std::map<std::string, std::vector<std::vector<float>>> by_target;  // of one rank
  double worst = 0, reference = 0;
  std::string ranks_run;
  for (const test::Setting& setting : settings) {
    const auto model = test::LoadOn(one.directory, setting);
    const size_t colon = setting.device.find(':');
    const int32_t ranks = colon == std::string::npos ? 1 : std::atoi(&setting.device[colon + 1]);
    if (!model.ok()) {
      if (CodeOf(model.status()) == Code::kUnsupported) {
        std::printf("# %s on %s: %s\n", one.name.c_str(), setting.Name().c_str(),
                    std::string(model.status().message()).c_str());
        // Only for heads that do not divide, and then with the numbers that do.
        auto whole = test::LoadOn(one.directory, {"cpu", "", 1, true});
        CHECK_OK(whole);
        CHECK(!Divides((*whole)->config(), ranks));
        CHECK_REFUSED(model, Code::kUnsupported, "do not divide over",
                      "numbers of ranks that do: 1");
        continue;
      }
      CHECK_OK(model);
    }
    if (ranks > 1) ranks_run += " " + std::to_string(ranks);
    auto runner =
        Runner::Create(*model, backend::KvType::kF32, static_cast<uint32_t>(prompt.size()));
    CHECK_OK(runner);
    for (const std::vector<size_t>& pieces :
         std::vector<std::vector<size_t>>{{prompt.size()}, {1}, {17, 2, 7}}) {
      (*runner)->Truncate(0);
      const auto logits = test::AllLogits(runner->get(), prompt, pieces);
      CHECK_OK(logits);
      const double error = WorstAt(golden, one, *logits);
      worst = std::max(worst, error);
      CHECK_LE(error, kBound);
      // One target's bits are the same in any chunks and on any number of ranks.
      auto& first = by_target[setting.target];
      if (first.empty()) first = *logits;
      for (size_t i = 0; i < first.size(); ++i) CHECK(test::Same(first[i], (*logits)[i]));
    }
    CheckGreedy(test_context, runner->get(), golden, one);
    if (reference == 0) {
      reference = WorstOfReference(test_context, **model, golden, one);
      CHECK_LE(reference, kBound);
    }
  }
  std::printf("# %-16s worst %.1e, fp64 %.1e, ranks 1%s\n", one.name.c_str(), worst, reference,
              ranks_run.c_str());
}

// What it holds, on GPUs of virtual nodes (with MAINARCH_TEST_FULL on up to eight); KV is two bf16 there.
void CheckOnGpus(test::Context& test_context, const Golden& golden, const Case& one) {
  const std::vector<uint32_t> prompt = golden.Tokens(one.prefix + "prompt");
  const std::vector<uint32_t> ids = golden.Tokens(one.prefix + "greedy.ids");
  const std::vector<float> margins = golden.Floats(one.prefix + "greedy.margins");
  std::vector<std::string> devices = {"sim:gfx942", "sim:gfx950", "sim:gfx942x2", "sim:gfx950x2"};
  if (std::getenv("MAINARCH_TEST_FULL") != nullptr) {
    devices.insert(devices.end(), {"sim:gfx942x4", "sim:gfx950x4", "sim:gfx942x8", "sim:gfx950x8"});
  }
  std::map<std::string, std::vector<std::vector<float>>> by_chip;
  for (const std::string& device : devices) {
    auto model = test::LoadOn(one.directory, {device, "", 0, false});
    const bool many = device.ends_with("x4") || device.ends_with("x8") || one.prefix.empty();
    if (many && absl::StrContains(model.status().message(), "do not divide")) {
      std::printf("# %s: %s\n", device.c_str(), std::string(model.status().message()).c_str());
      continue;
    }
    CHECK_OK(model);
    auto runner =
        Runner::Create(*model, backend::KvType::kF32, static_cast<uint32_t>(prompt.size()));
    CHECK_OK(runner);
    double worst = 0;
    for (const std::vector<size_t>& pieces :
         std::vector<std::vector<size_t>>{{prompt.size()}, {3, 20, 1}}) {
      const auto logits = test::AllLogits(runner->get(), prompt, pieces);
      CHECK_OK(logits);
      worst = std::max(worst, WorstAt(golden, one, *logits));
      // One chip's bits are the same in any chunks and on any number of GPUs.
      auto& first = by_chip[device.substr(0, device.find('x', 9))];
      if (first.empty()) first = *logits;
      for (size_t i = 0; i < first.size(); ++i) CHECK(test::Same(first[i], (*logits)[i]));
    }
    CHECK_LE(worst, one.prefix.empty() ? kAnyGpuBound : kGpuBound);
    std::printf("# %s on %s: worst %.1e\n", one.name.c_str(), device.c_str(), worst);
    (*runner)->Truncate(static_cast<uint32_t>(prompt.size()) - 1);
    uint32_t token = prompt.back();
    for (size_t i = 0; i < 4; ++i) {
      const auto chosen = (*runner)->Choose(token);
      CHECK_OK(chosen);
      CHECK(chosen->has_value());
      if (margins[i] > 0.05f) CHECK_EQ(**chosen, ids[i]);
      token = ids[i];
    }
  }
}

// Each case of data/, written as a checkpoint; which one it was that failed.
void ForEachCase(test::Context& test_context,
                 const std::function<void(const Golden&, const element&, const Case&)>& check) {
  const auto golden = Golden::Open("families");
  CHECK_OK(golden);
  const std::string path = test::SourcePath("tests/golden/data/families.json");
  const auto text = ReadWholeFile(path, 1 << 22);
  CHECK_OK(text);
  const auto index = file::JsonDocument::Parse(*text, path, {1 << 22});
  CHECK_OK(index);
  simdjson::dom::array cases;
  CHECK(index->root().get(cases) == simdjson::SUCCESS);
  CHECK_EQ(cases.size(), kCases);
  const char* const only = std::getenv("MAINARCH_FAMILY");  // one of them
  for (const element one : cases) {
    const Case each = CaseOf(one);
    if (only != nullptr && each.name != only) continue;
    CHECK_OK(WriteCase(one, each.directory));
    check(*golden, one, each);
    if (test_context.failed()) {
      test_context.Fail(__FILE__, __LINE__, each.name);
      return;
    }
  }
}

// Each checkpoint of the directory that MAINARCH_FAMILIES names; false: it names none.
bool ForEachByHand(test::Context& test_context, const std::function<void(const Golden&, const Case&)>& check) {
  const char* const by_hand = std::getenv("MAINARCH_FAMILIES");
  if (by_hand == nullptr) return false;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(by_hand)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string directory = std::string(by_hand) + "/" + name;
    const auto golden = Golden::OpenFile(directory + "/golden.safetensors");
    if (golden.ok()) check(*golden, {name, "", directory});
    if (!golden.ok() || test_context.failed()) {
      test_context.Fail(__FILE__, __LINE__, name);
      break;
    }
  }
  return true;
}

// Those of data/, or, with MAINARCH_FAMILIES, those of that directory alone.
TEST(every_family_matches_transformers) {
  const auto by_hand = [&](const Golden& golden, const Case& each) {
    CheckCase(test_context, golden, each, {{"cpu", "", 2, false}, {"cpu:2", "", 2, false}, {"cpu:8", "", 2, false}});
  };
  if (ForEachByHand(test_context, by_hand)) return;
  ForEachCase(test_context, [&](const Golden& golden, const element&, const Case& each) {
    CheckCase(test_context, golden, each, test::AllSettings());
  });
}

// Of the last token, by the fp64 decoder.
std::vector<float> LogitsOfReference(test::Context& test_context, const model::Model& model,
                                     const model::ModelConfig& config,
                                     const std::vector<uint32_t>& prompt) {
  auto decoder =
      reference::Decoder::Create(model.shared_checkpoint(), config, quant::KvType::kF32);
  if (!decoder.ok() || !(*decoder)->Extend(prompt).ok()) {
    test_context.Fail(__FILE__, __LINE__, "the fp64 decoder");
    return {};
  }
  return {(*decoder)->logits().begin(), (*decoder)->logits().end()};
}

// The same by a device, of the model's checkpoint as `config` says.
StatusOr<std::vector<float>> RunConfig(const std::string& device, const model::Model& model,
                                       const model::ModelConfig& config,
                                       const std::vector<uint32_t>& prompt) {
  backend::BackendOptions device_options;
  device_options.device = device;
  ASSIGN_OR_RETURN(const auto backend, backend::CreateBackend(device_options));
  ASSIGN_OR_RETURN(auto programs,
                   model::BuildPrograms(*model::FindArch(config.model_type), config,
                                        model.shared_checkpoint(), backend->ranks()));
  ASSIGN_OR_RETURN(const auto loaded, backend->Load(std::move(programs), backend::LoadOptions()));
  backend::ContextOptions options;
  options.kv_type = backend::KvType::kF32;
  options.max_rows = static_cast<uint32_t>(prompt.size());
  options.max_logit_rows = 1;
  std::vector<uint32_t> pages((prompt.size() + backend::kPageTokens - 1) / backend::kPageTokens);
  std::iota(pages.rbegin(), pages.rend(), 0);
  options.pages = {static_cast<uint32_t>(pages.size())};
  ASSIGN_OR_RETURN(const auto context, loaded->CreateContext(options));
  std::vector<backend::StepRow> rows;
  for (uint32_t i = 0; i < prompt.size(); ++i) rows.push_back({prompt[i], i, 0});
  backend::StepCache cache;
  cache.pages = pages;
  const backend::StepSequence sequence = {absl::MakeConstSpan(&cache, 1)};
  const uint32_t last = options.max_rows - 1;
  const backend::Choice choice;
  backend::Step step;
  step.rows = rows;
  step.sequences = absl::MakeConstSpan(&sequence, 1);
  step.logit_rows = absl::MakeConstSpan(&last, 1);
  step.choices = absl::MakeConstSpan(&choice, 1);
  RETURN_IF_ERROR(context->RunPrefix(step, loaded->program().ops.size()));
  const absl::Span<float> logits = context->Logits(0);
  return std::vector<float>(logits.begin(), logits.end());
}
std::vector<float> LogitsOfConfig(test::Context& test_context, const std::string& device,
                                  const model::Model& model, const model::ModelConfig& config,
                                  const std::vector<uint32_t>& prompt) {
  const auto logits = RunConfig(device, model, config, prompt);
  if (logits.ok()) return *logits;
  test_context.Fail(__FILE__, __LINE__, std::string(logits.status().message()));
  return {};
}

// On both chips, on one GPU and on two. Of random geometries those that the kernels do not take are refused by name.
TEST(every_family_matches_transformers_on_gpus) {
  NEEDS_GPUS();
  const auto by_hand = [&](const Golden& golden, const Case& each) {
    const auto model = test::LoadOn(each.directory, {"sim:gfx950", "", 0, false});
    if (model.ok()) return CheckOnGpus(test_context, golden, each);
    CHECK_EQ(static_cast<int>(CodeOf(model.status())), static_cast<int>(Code::kUnsupported));
    std::printf("# %s: %s\n", each.name.c_str(), std::string(model.status().message()).c_str());
  };
  if (ForEachByHand(test_context, by_hand)) return;
  ForEachCase(test_context, [&](const Golden& golden, const element&, const Case& each) {
    CheckOnGpus(test_context, golden, each);
  });
}

// Layers that turn by three tables: a GPU's logits against the fp64 decoder's of the same config. The
// Program is a Llama's, built from a config that no file says.
TEST(layers_turn_by_their_own_rope_on_gpus) {
  NEEDS_GPUS();
  if (std::getenv("MAINARCH_FAMILIES") != nullptr) return;
  ForEachCase(test_context, [&](const Golden& golden, const element&, const Case& each) {
    if (each.name != "llama_gpu") return;
    const std::vector<uint32_t> prompt = golden.Tokens(each.prefix + "prompt");
    auto whole = test::LoadOn(each.directory, {"cpu", "", 1, true});
    CHECK_OK(whole);
    model::ModelConfig config = (*whole)->config();
    config.more_ropes = {config.rope, config.rope};
    config.more_ropes[0].theta = 300;
    config.more_ropes[1].rotary_dim = config.head_dim / 2;
    config.layer_attention.resize(static_cast<size_t>(config.layers));
    CHECK_EQ(config.layers, 3);
    for (int32_t layer = 0; layer < config.layers; ++layer) {
      config.layer_attention[static_cast<size_t>(layer)].rope = 2 - layer;
    }
    const auto want = LogitsOfReference(test_context, **whole, config, prompt);
    for (const char* device : {"sim:gfx942", "sim:gfx950x2"}) {
      const auto got = LogitsOfConfig(test_context, device, **whole, config, prompt);
      CHECK_EQ(got.size(), want.size());
      CHECK_LE(WorstRelative(got, want), kGpuBound);
    }
  });
}

// Latents of a context of two splits (with MAINARCH_TEST_FULL three, on more GPUs): logits against the fp64 decoder's, whose cache is exact, and
// the same bits from any chunks, on any number of GPUs and in any batch, for each type of the cache.
TEST(latents_of_several_splits_on_gpus) {
  NEEDS_GPUS();
  if (std::getenv("MAINARCH_FAMILIES") != nullptr) return;
  const std::pair<backend::KvType, double> types[] = {
      {backend::KvType::kF32, kGpuBound}, {backend::KvType::kBF16, 2e-2}, {backend::KvType::kFp8, 0.2}};
  ForEachCase(test_context, [&](const Golden& golden, const element&, const Case& each) {
    if (each.name != "deepseek_v3_gpu") return;
    const bool full = std::getenv("MAINARCH_TEST_FULL") != nullptr;
    std::vector<uint32_t> prompt;
    for (int i = 0; i < (full ? 7 : 4); ++i) {
      for (const uint32_t token : golden.Tokens(each.prefix + "prompt")) prompt.push_back(token);
    }
    auto whole = test::LoadOn(each.directory, {"cpu", "", 1, true});
    CHECK_OK(whole);
    const auto want = LogitsOfReference(test_context, **whole, (*whole)->config(), prompt);
    std::map<std::string, std::vector<std::vector<float>>> first;  // of a chip and type
    std::vector<std::string> devices = {"sim:gfx942", "sim:gfx950", "sim:gfx950x2"};
    if (full) devices.insert(devices.end(), {"sim:gfx942x4", "sim:gfx950x8"});
    for (const std::string& device : devices) {
      auto model = test::LoadOn(each.directory, {device, "", 0, false});
      CHECK_OK(model);
      for (const auto& [type, bound] : types) {
        auto runner = Runner::Create(*model, type, static_cast<uint32_t>(prompt.size()));
        CHECK_OK(runner);
        const size_t all = device.size() > 10 ? 93 : prompt.size();  // at once, on one GPU
        const auto logits = test::AllLogits(runner->get(), prompt, {all, 40, 1, 120});
        CHECK_OK(logits);
        CHECK_LE(WorstRelative(logits->back(), want), bound);
        std::printf("# KV type %d on %s: %.1e\n", static_cast<int>(type), device.c_str(),
                    WorstRelative(logits->back(), want));
        auto& same = first[device.substr(0, 10) + std::to_string(static_cast<int>(type))];
        if (same.empty()) same = *logits;
        for (size_t i = 0; i < same.size(); ++i) CHECK(test::Same(same[i], (*logits)[i]));
      }
      if (full || device == "sim:gfx950") CHECK_OK(test::RunBatchMix(*model, {140, 2, 32}));
    }
  });
}

}  // namespace
}  // namespace mainarch
