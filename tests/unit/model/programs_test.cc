// SPDX-License-Identifier: MIT
//
// A target and a draft head, built by one architecture over one checkpoint and loaded as one model:
// the head is a layer behind x = embedding + W · the target's last hidden state, and shares its
// embedding and LM head. The target against fp64, the head bit for bit against one Program that is
// both; two Programs over one set of weights on GPUs too, where taps are refused by name.
#include <cmath>
#include <numeric>

#include "backend/backend.h"
#include "golden/golden.h"
#include "model/arch/arch.h"
#include "model/synthetic.h"
#include "reference/decoder.h"
#include "support/checkpoint_files.h"
#include "support/test.h"

namespace mainarch {
namespace {

using Programs = std::vector<std::shared_ptr<const backend::Program>>;

constexpr int32_t kLayers = 3;  // the last is the head's
constexpr uint32_t kTokens = 40, kVocab = 160;

model::ModelConfig Config() {
  model::ModelConfig c;
  c.model_type = "qwen3";
  c.hidden = 128;
  c.layers = kLayers;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 32;
  c.intermediate = 128;
  c.vocab = kVocab;
  c.max_position = 512;
  c.rope.theta = 1e4;
  c.rope.rotary_dim = 32;
  c.sparse_layer.assign(kLayers, false);
  return c;
}

void Layers(model::Builder& builder, int32_t first, int32_t last) {
  for (int32_t layer = first; layer < last; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    builder.Attention(prefix);
    builder.DenseFfn(prefix);
    builder.EndLayer();
  }
}
void Begin(model::Builder& builder) {
  builder.Embed("model.embed_tokens");
  Layers(builder, 0, kLayers - 1);
}
void End(model::Builder& builder) { builder.Logits("model.norm.weight", "lm_head"); }
void Head(model::Builder& builder) {
  builder.Embed("model.embed_tokens");
  builder.AddTapped(0, "model.layers.2.self_attn.o_proj");  // any matrix of that shape
  Layers(builder, kLayers - 1, kLayers);
}

constexpr model::Arch kWithHead = {"qwen3", "", false, nullptr,
                                   [](model::Builder& b) {
                                     Begin(b);
                                     b.Tap();
                                     End(b);
                                   },
                                   [](model::Builder& b) {
                                     Head(b);
                                     End(b);
                                   }};
// Two Programs without a tap: the whole model, and its first layers alone.
constexpr model::Arch kShallow = {"qwen3", "", false, nullptr,
                                  [](model::Builder& b) {
                                    Begin(b);
                                    Layers(b, kLayers - 1, kLayers);
                                    End(b);
                                  },
                                  [](model::Builder& b) {
                                    Begin(b);
                                    End(b);
                                  }};
// Target and head as one Program, but for its input, which is its own tap.
constexpr model::Arch kOne = {"qwen3", "", false, nullptr, [](model::Builder& b) {
                                Begin(b);
                                b.Tap();
                                Head(b);
                                End(b);
                              }};

std::shared_ptr<const file::Checkpoint> Checkpoint() {
  const std::string directory = test::ScratchDirectory() + "/model";
  if (!model::WriteSyntheticCheckpoint(Config(), directory, {}).ok()) return nullptr;
  auto checkpoint = file::Checkpoint::Open(directory);
  return checkpoint.ok() ? *checkpoint : nullptr;
}

Programs Build(const model::Arch& arch, std::shared_ptr<const file::Checkpoint> checkpoint,
               int32_t ranks) {
  static const model::ModelConfig config = Config();
  auto programs = model::BuildPrograms(arch, config, std::move(checkpoint), ranks);
  return programs.ok() ? *programs : Programs();
}

Programs OneOf(std::shared_ptr<const file::Checkpoint> checkpoint, int32_t ranks) {
  Programs built = Build(kOne, std::move(checkpoint), ranks);
  if (built.size() != 1) return {};
  auto program = std::make_shared<backend::Program>(*built[0]);
  for (size_t i = 0; i < program->ops.size(); ++i) {
    if (!std::holds_alternative<backend::InputOp>(program->ops[i])) continue;
    std::get<backend::MatmulAddOp>(program->ops[i + 1]).in = program->taps[0];
    program->ops.erase(program->ops.begin() + static_cast<ptrdiff_t>(i));
    // Its layers' ends are not what is looked at here.
    program->layer_ends.clear();
  }
  return {program};
}

std::shared_ptr<backend::Backend> Open(const std::string& device) {
  backend::BackendOptions options;
  options.device = device;
  options.threads = 2;
  auto backend = backend::CreateBackend(options);
  return backend.ok() ? *backend : nullptr;
}

StatusOr<std::unique_ptr<backend::Context>> MakeContext(const backend::LoadedModel& model,
                                                        size_t program,
                                                        const backend::Context* source) {
  backend::ContextOptions options;
  options.kv_type = quant::KvType::kF32;
  options.max_rows = options.max_logit_rows = 16;
  options.pages = {4};
  options.program = program;
  options.source = source;
  return model.CreateContext(options);
}

// One step of `rows` tokens from `position` on; all their logits.
StatusOr<std::vector<std::vector<float>>> RunStep(backend::Context& context,
                                                  absl::Span<const uint32_t> tokens,
                                                  uint32_t position, uint32_t rows, bool taps) {
  const std::vector<uint32_t> pages = {2, 0, 3};
  backend::StepCache cache;
  cache.pages = absl::MakeConstSpan(pages).first((position + rows + 15) / 16);
  const backend::StepSequence sequence = {absl::MakeConstSpan(&cache, 1), 0};
  std::vector<uint32_t> all(rows);
  std::iota(all.begin(), all.end(), 0);
  std::vector<backend::StepRow> step_rows;
  for (uint32_t i = 0; i < rows; ++i) step_rows.push_back({tokens[position + i], position + i, 0});
  backend::Step step;
  step.rows = step_rows;
  step.sequences = absl::MakeConstSpan(&sequence, 1);
  step.logit_rows = all;
  if (taps) step.inputs = all;
  RETURN_IF_ERROR(context.Run(step));
  std::vector<std::vector<float>> logits;
  for (uint32_t i = 0; i < rows; ++i) {
    const absl::Span<float> row = context.Logits(i);
    logits.emplace_back(row.begin(), row.end());
  }
  return logits;
}

double WorstOf(absl::Span<const float> got, absl::Span<const double> want) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::fabs(double{got[i]} - want[i]);
    if (!(error <= worst)) worst = error;  // a NaN stays
    largest = std::max(largest, std::fabs(want[i]));
  }
  return worst / largest;
}

std::unique_ptr<reference::Decoder> DecoderOf(std::shared_ptr<const file::Checkpoint> checkpoint,
                                              int32_t layers) {
  model::ModelConfig config = Config();
  config.layers = layers;
  auto decoder = reference::Decoder::Create(std::move(checkpoint), config, quant::KvType::kF32);
  return decoder.ok() ? std::move(*decoder) : nullptr;
}

TEST(a_head_of_an_architecture_reads_its_targets_tap) {
  const auto checkpoint = Checkpoint();
  CHECK(checkpoint != nullptr);
  const std::vector<uint32_t> tokens = test::Prompt(kTokens, kVocab);
  std::vector<std::vector<float>> first;
  for (const char* device : {"cpu", "cpu:2", "cpu:4"}) {
    const auto backend = Open(device);
    const Programs programs = Build(kWithHead, checkpoint, backend->ranks());
    CHECK_EQ(programs.size(), 2u);
    const auto model = backend->Load(programs, {});
    const auto alone = backend->Load(OneOf(checkpoint, backend->ranks()), {});
    CHECK_OK(model);
    CHECK_OK(alone);
    CHECK_EQ((*model)->programs().size(), 2u);
    // Embedding, final norm and LM head are placed once.
    CHECK_EQ((*model)->weight_bytes(), (*alone)->weight_bytes());
    auto target = MakeContext(**model, 0, nullptr);
    CHECK_OK(target);
    CHECK(!MakeContext(**model, 1, nullptr).ok());
    auto head = MakeContext(**model, 1, target->get());
    auto one = MakeContext(**alone, 0, nullptr);
    CHECK_OK(head);
    CHECK_OK(one);
    const auto decoder = DecoderOf(checkpoint, kLayers - 1);
    CHECK(decoder != nullptr);
    uint32_t position = 0;
    size_t at = 0;
    for (const uint32_t rows : {9u, 1u, 1u, 13u, 1u, 15u}) {
      const auto target_logits = RunStep(**target, tokens, position, rows, false);
      const auto got = RunStep(**head, tokens, position, rows, true);
      const auto want = RunStep(**one, tokens, position, rows, false);
      CHECK_OK(target_logits);
      CHECK_OK(got);
      CHECK_OK(want);
      for (uint32_t i = 0; i < rows; ++i, ++at) {
        CHECK_OK(decoder->Extend({tokens[at]}));
        CHECK_LE(WorstOf((*target_logits)[i], decoder->logits()), 2e-5);
        CHECK(test::Same((*got)[i], (*want)[i]));
        CHECK(!test::Same((*got)[i], (*target_logits)[i]));
        if (first.size() <= at) first.push_back((*got)[i]);
        CHECK(test::Same((*got)[i], first[at]));
      }
      position += rows;
    }
  }
}

TEST(gpus_run_two_programs_over_one_set_of_weights) {
  const auto checkpoint = Checkpoint();
  CHECK(checkpoint != nullptr);
  const std::vector<uint32_t> tokens = test::Prompt(kTokens, kVocab);
  for (const char* device : {"sim:gfx950", "sim:gfx942x2"}) {
    const auto backend = Open(device);
    CHECK(backend != nullptr);
    const Programs programs = Build(kShallow, checkpoint, backend->ranks());
    CHECK_EQ(programs.size(), 2u);
    const auto whole = backend->Load(programs[0], {});
    const auto both = backend->Load(programs, {});
    CHECK_OK(whole);
    CHECK_OK(both);
    // The second has no weight that the first has not.
    CHECK_EQ((*both)->weight_bytes(), (*whole)->weight_bytes());
    CHECK_EQ((*both)->programs().size(), 2u);
    CHECK(!MakeContext(**both, 2, nullptr).ok());
    for (const size_t program : {size_t{0}, size_t{1}}) {
      auto context = MakeContext(**both, program, nullptr);
      CHECK_OK(context);
      const auto decoder = DecoderOf(checkpoint, program == 0 ? kLayers : kLayers - 1);
      CHECK(decoder != nullptr);
      const auto logits = RunStep(**context, tokens, 0, 5, false);
      CHECK_OK(logits);
      for (uint32_t i = 0; i < 5; ++i) {
        CHECK_OK(decoder->Extend({tokens[i]}));
        CHECK_LE(WorstOf((*logits)[i], decoder->logits()), 1e-4);
      }
    }
    CHECK_REFUSED(backend->Load(Build(kWithHead, checkpoint, backend->ranks()), {}),
                  Code::kUnsupported, "op tap");
  }
}

}  // namespace
}  // namespace mainarch
