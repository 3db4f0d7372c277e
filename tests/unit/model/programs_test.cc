// SPDX-License-Identifier: MIT
//
// A target and a draft head, built by one architecture over one checkpoint and loaded as one model:
// the head is a layer behind x = embedding + W · the target's last hidden state, and shares its
// embedding and LM head. The target against fp64, the head bit for bit against one Program that is
// both, and on GPUs against the CPU's; a model cut in two at a tap against fp64. What a reader takes
// while its source has steps in flight, and which sources are refused.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "backend/backend.h"
#include "golden/golden.h"
#include "model/arch/arch.h"
#include "model/synthetic.h"
#include "reference/decoder.h"
#include "support/checkpoint_files.h"
#include "support/gpus.h"
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

constexpr model::Arch kWithHead = {"qwen3", "", model::ExpertKeys::kNone, nullptr,
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
constexpr model::Arch kShallow = {"qwen3", "", model::ExpertKeys::kNone, nullptr,
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
constexpr model::Arch kOne = {"qwen3", "", model::ExpertKeys::kNone, nullptr, [](model::Builder& b) {
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
  auto programs = model::BuildPrograms(arch, config, std::move(checkpoint), ranks,
                                       model::Part::kModelAndDrafts);
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

std::vector<uint32_t> All(uint32_t rows) {
  std::vector<uint32_t> out(rows);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

// One step of `rows` tokens from `position` on, with all their logits; `inputs`: of each row, the
// row of the source's.
class OneStep {
 public:
  OneStep(absl::Span<const uint32_t> tokens, uint32_t position, uint32_t rows,
          std::vector<uint32_t> inputs = {})
      : inputs_(std::move(inputs)), all_(All(rows)) {
    cache_.pages = absl::MakeConstSpan(pages_).first((position + rows + 15) / 16);
    sequence_ = {absl::MakeConstSpan(&cache_, 1), 0};
    for (uint32_t i = 0; i < rows; ++i) rows_.push_back({tokens[position + i], position + i, 0});
  }
  OneStep(const OneStep&) = delete;
  OneStep& operator=(const OneStep&) = delete;

  backend::Step step() const {
    backend::Step step;
    step.rows = rows_;
    step.sequences = absl::MakeConstSpan(&sequence_, 1);
    step.logit_rows = all_;
    step.inputs = inputs_;
    return step;
  }

 private:
  const std::vector<uint32_t> pages_ = {2, 0, 3};
  const std::vector<uint32_t> inputs_, all_;
  backend::StepCache cache_;
  backend::StepSequence sequence_;
  std::vector<backend::StepRow> rows_;
};

using Rows = std::vector<std::vector<float>>;

StatusOr<Rows> RunStep(backend::Context& context, absl::Span<const uint32_t> tokens,
                       uint32_t position, uint32_t rows, std::vector<uint32_t> inputs = {}) {
  RETURN_IF_ERROR(context.Run(OneStep(tokens, position, rows, std::move(inputs)).step()));
  Rows logits;
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
      const auto target_logits = RunStep(**target, tokens, position, rows);
      const auto got = RunStep(**head, tokens, position, rows, All(rows));
      const auto want = RunStep(**one, tokens, position, rows);
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
  NEEDS_GPUS();
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
      const auto logits = RunStep(**context, tokens, 0, 5);
      CHECK_OK(logits);
      for (uint32_t i = 0; i < 5; ++i) {
        CHECK_OK(decoder->Extend({tokens[i]}));
        CHECK_LE(WorstOf((*logits)[i], decoder->logits()), 1e-4);
      }
    }
  }
}

// A target and its head step by step, whose steps take the tap's rows backwards now and then.
StatusOr<std::pair<Rows, Rows>> Play(const std::string& device,
                                     std::shared_ptr<const file::Checkpoint> checkpoint,
                                     absl::Span<const uint32_t> tokens) {
  const auto backend = Open(device);
  if (backend == nullptr) return Error(Code::kInternal, "no ", device);
  ASSIGN_OR_RETURN(const auto model,
                   backend->Load(Build(kWithHead, std::move(checkpoint), backend->ranks()), {}));
  ASSIGN_OR_RETURN(const auto target, MakeContext(*model, 0, nullptr));
  ASSIGN_OR_RETURN(const auto head, MakeContext(*model, 1, target.get()));
  std::pair<Rows, Rows> out;
  uint32_t position = 0;
  for (const uint32_t rows : {5u, 1u, 3u}) {
    ASSIGN_OR_RETURN(const Rows of_target, RunStep(*target, tokens, position, rows));
    std::vector<uint32_t> inputs = All(rows);
    if (rows == 3) std::reverse(inputs.begin(), inputs.end());
    ASSIGN_OR_RETURN(const Rows of_head, RunStep(*head, tokens, position, rows, inputs));
    out.first.insert(out.first.end(), of_target.begin(), of_target.end());
    out.second.insert(out.second.end(), of_head.begin(), of_head.end());
    position += rows;
  }
  return out;
}

std::vector<double> Doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

TEST(a_head_on_gpus_reads_its_targets_tap) {
  NEEDS_GPUS();
  const auto checkpoint = Checkpoint();
  CHECK(checkpoint != nullptr);
  const std::vector<uint32_t> tokens = test::Prompt(kTokens, kVocab);
  const auto cpu = Play("cpu", checkpoint, tokens);
  CHECK_OK(cpu);
  for (const char* chip : {"sim:gfx950", "sim:gfx942"}) {
    const auto one = Play(chip, checkpoint, tokens);
    const auto two = Play(absl::StrCat(chip, "x2"), checkpoint, tokens);
    CHECK_OK(one);
    CHECK_OK(two);
    CHECK_EQ(one->first.size(), 9u);
    for (size_t i = 0; i < one->first.size(); ++i) {
      CHECK_LE(WorstOf(one->first[i], Doubles(cpu->first[i])), 1e-4);
      CHECK_LE(WorstOf(one->second[i], Doubles(cpu->second[i])), 1e-4);
      CHECK(test::Same(one->first[i], two->first[i]));
      CHECK(test::Same(one->second[i], two->second[i]));
    }
  }
}

// The head's layer alone, whose x is the tap: with the target, the model of all layers. `elsewhere`:
// that x is not Program::x.
Programs CutInTwo(std::shared_ptr<const file::Checkpoint> checkpoint, int32_t ranks,
                  bool elsewhere) {
  Programs built = Build(kWithHead, std::move(checkpoint), ranks);
  if (built.size() != 2) return {};
  auto rest = std::make_shared<backend::Program>(*built[1]);
  backend::InputOp input = std::get<backend::InputOp>(rest->ops[1]);  // embed, input, matmul_add
  rest->ops.erase(rest->ops.begin(), rest->ops.begin() + 3);
  rest->layer_ends.clear();
  if (!elsewhere) input.x = rest->x;
  for (backend::Op& op : rest->ops) {
    std::visit(
        [&](auto& o) {
          if constexpr (requires { o.x; }) o.x = input.x;
        },
        op);
  }
  rest->ops.insert(rest->ops.begin(), input);
  return {built[0], rest};
}

TEST(a_model_cut_in_two_at_a_tap_is_the_model) {
  const auto checkpoint = Checkpoint();
  CHECK(checkpoint != nullptr);
  const std::vector<uint32_t> tokens = test::Prompt(kTokens, kVocab);
  for (const char* device : {"cpu:2", "sim:gfx950", "sim:gfx942x2"}) {
    if (!test::IsHere(device)) continue;
    const auto backend = Open(device);
    CHECK(backend != nullptr);
    const auto whole = backend->Load(Build(kShallow, checkpoint, backend->ranks())[0], {});
    CHECK_OK(whole);
    // The CPU's norms are of Program::x, whatever an op names.
    const bool on_cpu = absl::string_view(device).substr(0, 3) == "cpu";
    for (const bool elsewhere : {false, true}) {
      if (elsewhere && on_cpu) continue;
      const auto cut = backend->Load(CutInTwo(checkpoint, backend->ranks(), elsewhere), {});
      CHECK_OK(cut);
      const auto all = MakeContext(**whole, 0, nullptr);
      const auto first = MakeContext(**cut, 0, nullptr);
      CHECK_OK(all);
      CHECK_OK(first);
      const auto rest = MakeContext(**cut, 1, first->get());
      CHECK_OK(rest);
      const auto decoder = DecoderOf(checkpoint, kLayers);
      CHECK(decoder != nullptr);
      uint32_t position = 0;
      for (const uint32_t rows : {3u, 1u}) {
        const auto want = RunStep(**all, tokens, position, rows);
        CHECK_OK(want);
        CHECK_OK(RunStep(**first, tokens, position, rows));
        const auto got = RunStep(**rest, tokens, position, rows, All(rows));
        CHECK_OK(got);
        for (uint32_t i = 0; i < rows; ++i) {
          CHECK_OK(decoder->Extend({tokens[position + i]}));
          CHECK_LE(WorstOf((*got)[i], decoder->logits()), 1e-4);
          CHECK(test::Same((*got)[i], (*want)[i]));
        }
        position += rows;
      }
    }
  }
}

// A tap lies twice: a reader gets the step polled last while another one is in flight behind it.
TEST(a_tap_is_of_the_step_polled_last) {
  NEEDS_GPUS();
  const auto checkpoint = Checkpoint();
  CHECK(checkpoint != nullptr);
  const std::vector<uint32_t> tokens = test::Prompt(kTokens, kVocab);
  const auto backend = Open("sim:gfx950x2");
  CHECK(backend != nullptr);
  const auto model = backend->Load(Build(kWithHead, checkpoint, 2), {});
  CHECK_OK(model);
  const auto target = MakeContext(**model, 0, nullptr);
  const auto head = MakeContext(**model, 1, target->get());
  CHECK_OK(target);
  CHECK_OK(head);
  CHECK_REFUSED(RunStep(**head, tokens, 0, 1, {0}), Code::kInternal,
                "row 0 of the source's last step is asked for, which had 0");
  std::vector<Rows> want;
  const uint32_t position[] = {0, 5, 6}, rows[] = {5, 1, 1};
  for (int i = 0; i < 3; ++i) {
    CHECK_OK(RunStep(**target, tokens, position[i], rows[i]));
    const auto logits = RunStep(**head, tokens, position[i], rows[i], All(rows[i]));
    CHECK_OK(logits);
    want.push_back(*logits);
  }
  const backend::Program& program = *(*model)->programs()[0];
  CHECK((*target)->ReadBuffer(1, program.taps[0], 1) == (*target)->ReadBuffer(1, program.x, 1));
  // The same again, the target ahead of the head.
  const auto submit = [&](int i) {
    return (*target)->Submit(OneStep(tokens, position[i], rows[i]).step());
  };
  const auto same = [&](int i) {
    const auto got = RunStep(**head, tokens, position[i], rows[i], All(rows[i]));
    if (!got.ok()) return false;
    for (uint32_t row = 0; row < rows[i]; ++row) {
      if (!test::Same((*got)[row], want[static_cast<size_t>(i)][row])) return false;
    }
    return true;
  };
  CHECK_OK(submit(0));
  CHECK_OK((*target)->Poll(-1));
  CHECK_OK(submit(1));
  CHECK(same(0));
  CHECK_OK(submit(2));
  CHECK_REFUSED(RunStep(**head, tokens, 5, 1, {0}), Code::kInternal, "in flight writes over");
  CHECK_OK((*target)->Poll(-1));
  CHECK(same(1));
  CHECK_OK((*target)->Poll(-1));
  CHECK(same(2));
  CHECK_REFUSED(RunStep(**head, tokens, 7, 1, {1}), Code::kInternal,
                "row 1 of the source's last step is asked for, which had 1");
  CHECK_REFUSED(RunStep(**head, tokens, 7, 1), Code::kInternal, "0 inputs of 1 rows");
}

TEST(a_wrong_source_is_refused) {
  NEEDS_GPUS();
  const auto checkpoint = Checkpoint();
  CHECK(checkpoint != nullptr);
  const auto cpu = Open("cpu"), gpu = Open("sim:gfx950");
  CHECK(cpu != nullptr && gpu != nullptr);
  const Programs programs = Build(kWithHead, checkpoint, 1);
  const auto on_cpu = cpu->Load(programs, {});
  const auto on_gpu = gpu->Load(programs, {});
  CHECK_OK(on_cpu);
  CHECK_OK(on_gpu);
  const auto cpu_target = MakeContext(**on_cpu, 0, nullptr);
  const auto gpu_target = MakeContext(**on_gpu, 0, nullptr);
  CHECK_OK(cpu_target);
  CHECK_OK(gpu_target);
  constexpr char kNotOfThis[] = "the source of a context is no context of the same model";
  CHECK_REFUSED(MakeContext(**on_gpu, 1, cpu_target->get()), Code::kInternal, kNotOfThis);
  CHECK_REFUSED(MakeContext(**on_cpu, 1, gpu_target->get()), Code::kInternal, kNotOfThis);
  const auto again = gpu->Load(programs, {});
  CHECK_OK(again);
  CHECK_REFUSED(MakeContext(**again, 1, gpu_target->get()), Code::kInternal, kNotOfThis);
  CHECK_REFUSED(MakeContext(**on_gpu, 1, nullptr), Code::kInternal, "of a source that has 0");
  const auto head = MakeContext(**on_gpu, 1, gpu_target->get());
  CHECK_OK(head);
  CHECK_REFUSED(MakeContext(**on_gpu, 1, head->get()), Code::kInternal, "of a source that has 0");
}

}  // namespace
}  // namespace mainarch
