// SPDX-License-Identifier: MIT
//
// The tokens that survive sampling filters against those of numpy (vLLM's order, ours) and of
// transformers' processors, whose order differs in the nucleus only.
#include <cmath>
#include <random>

#include "decode/sampler.h"
#include "golden/golden.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::decode;

namespace {

constexpr size_t kWidth = 512;

struct Cases {
  std::vector<float> logits, params, top;
  std::vector<int32_t> vocab, prompt, output, rows;
  file::SafetensorsFile file;

  absl::Span<const uint8_t> Bytes(const std::string& name) const {
    for (const file::TensorView& tensor : file.tensors()) {
      if (tensor.name == name) return tensor.bytes;
    }
    return {};
  }
  std::vector<uint32_t> Kept(const std::string& order, size_t i) const {
    const auto bits = Bytes(order + ".kept").subspan(i * kWidth / 8, kWidth / 8);
    std::vector<uint32_t> ids;
    for (uint32_t id = 0; id < kWidth; ++id) {
      if (bits[id / 8] >> (id % 8) & 1) ids.push_back(id);
    }
    return ids;
  }
};

StatusOr<Cases> Load() {
  ASSIGN_OR_RETURN(const test::Golden golden, test::Golden::Open("sampler"));
  ASSIGN_OR_RETURN(auto file, file::SafetensorsFile::Open(
                                  test::SourcePath("tests/golden/data/sampler.safetensors")));
  Cases cases{golden.Floats("logits"),
              golden.Floats("params"),
              golden.Floats("vllm.top_probability"),
              golden.Ints("vocab"),
              golden.Ints("prompt_tokens"),
              golden.Ints("output_tokens"),
              golden.Ints("case"),
              std::move(file)};
  return cases;
}

SequenceOptions OptionsOf(const float* p) {
  SequenceOptions o;
  o.temperature = p[0];
  o.top_k = static_cast<uint32_t>(p[1]);
  o.top_p = p[2];
  o.min_p = p[3];
  o.repetition_penalty = p[4];
  o.presence_penalty = p[5];
  o.frequency_penalty = p[6];
  return o;
}

// One case ready to sample.
struct Prepared {
  explicit Prepared(const Cases& cases, size_t i)
      : row(static_cast<size_t>(cases.rows[2 * i])),
        vocab(static_cast<uint32_t>(cases.vocab[row])),
        options(OptionsOf(&cases.params[static_cast<size_t>(cases.rows[2 * i + 1]) * 7])),
        logits(cases.logits.begin() + static_cast<ptrdiff_t>(row * kWidth),
               cases.logits.begin() + static_cast<ptrdiff_t>(row * kWidth + vocab)),
        sampler(vocab) {
    counts.Enable(vocab, 100);
    for (size_t t = 0; t < 8; ++t) {
      counts.Add(static_cast<uint32_t>(cases.prompt[row * 8 + t]), false);
    }
    for (size_t t = 0; t < 12; ++t) {
      counts.Add(static_cast<uint32_t>(cases.output[row * 12 + t]), true);
    }
    request.options = &options;
    request.counts = &counts;
  }
  size_t row;
  uint32_t vocab;
  SequenceOptions options;
  std::vector<float> logits;
  Sampler sampler;
  TokenCounts counts;
  SampleRequest request;
};

}  // namespace

TEST(kept_sets_equal_the_vllm_order) {
  const auto cases = Load();
  CHECK_OK(cases);
  const size_t count = cases->rows.size() / 2;
  CHECK_EQ(count, 960u);
  size_t compared = 0;
  for (size_t i = 0; i < count; ++i) {
    if (cases->Bytes("vllm.valid")[i] == 0) continue;
    Prepared p(*cases, i);
    const auto kept = p.sampler.Kept(absl::MakeSpan(p.logits), p.request);
    CHECK_OK(kept);
    const std::vector<uint32_t> got(kept->begin(), kept->end());
    if (got != cases->Kept("vllm", i)) {
      test_context.Fail(__FILE__, __LINE__,
                        absl::StrCat("row ", p.row, ", params ", cases->rows[2 * i + 1], ": kept ",
                                     got.size(), " against ", cases->Kept("vllm", i).size()));
    }
    ++compared;
  }
  CHECK_GT(compared, 900u);
}

// Without a nucleus, or with the nucleus as the only filter, the two orders agree.
TEST(kept_sets_equal_transformers_where_the_order_does_not_matter) {
  const auto cases = Load();
  CHECK_OK(cases);
  size_t compared = 0;
  for (size_t i = 0; i < cases->rows.size() / 2; ++i) {
    if (cases->Bytes("hf.valid")[i] == 0) continue;
    Prepared p(*cases, i);
    if (p.options.top_p < 1 && p.options.min_p > 0 && p.options.temperature > 0) continue;
    const auto kept = p.sampler.Kept(absl::MakeSpan(p.logits), p.request);
    CHECK_OK(kept);
    CHECK(std::vector<uint32_t>(kept->begin(), kept->end()) == cases->Kept("hf", i));
    ++compared;
  }
  CHECK_GT(compared, 500u);
}

// Draws stay inside the set, and the best token comes as often as numpy says.
TEST(draws_follow_the_golden_probability) {
  const auto cases = Load();
  CHECK_OK(cases);
  size_t tested = 0;
  for (size_t i = 0; i < cases->rows.size() / 2; i += 7) {
    if (cases->Bytes("vllm.valid")[i] == 0) continue;
    Prepared p(*cases, i);
    const std::vector<uint32_t> kept = cases->Kept("vllm", i);
    // Several tokens can be equally best; then the count is of the lowest.
    const int draws = 4000;
    std::vector<int> hits(p.vocab, 0);
    p.options.seed = 1000 + i;
    for (int d = 0; d < draws; ++d) {
      p.request.position = static_cast<uint64_t>(d);
      const auto token = p.sampler.Sample(absl::MakeSpan(p.logits), p.request);
      CHECK_OK(token);
      ++hits[*token];
    }
    int inside = 0;
    for (const uint32_t id : kept) inside += hits[id];
    CHECK_EQ(inside, draws);
    const double probability = cases->top[i];
    if (probability < 0.02) continue;
    // Every one of equally best tokens has this probability, so some token must come close to it.
    const double deviation = std::sqrt(draws * probability * (1 - probability));
    double nearest = draws;
    for (const uint32_t id : kept) {
      nearest = std::min(nearest, std::fabs(hits[id] - draws * probability));
    }
    CHECK_LE(nearest, 4.5 * deviation + 1);
    ++tested;
  }
  CHECK_GT(tested, 60u);
}
