// SPDX-License-Identifier: MIT
#include "reference/decoder.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "golden/fixtures.h"
#include "golden/golden.h"
#include "model/config.h"
#include "support/test.h"

using namespace mainarch;

namespace {

StatusOr<std::unique_ptr<reference::Decoder>> DecoderOf(const std::string& directory,
                                                        quant::KvType rounding) {
  ASSIGN_OR_RETURN(auto checkpoint, file::Checkpoint::Open(directory));
  ASSIGN_OR_RETURN(const model::ModelConfig config,
                   model::ParseConfig(checkpoint->config_json(),
                                      checkpoint->generation_config_json(), directory));
  return reference::Decoder::Create(std::move(checkpoint), config, rounding);
}

}  // namespace

TEST(reference_matches_transformers) {
  for (const test::FixtureCase& fixture : test::AllFixtureCases()) {
    auto golden = test::Golden::Open(fixture.Name());
    CHECK_OK(golden);
    const std::string directory = test::WriteFixture(fixture);
    CHECK(!directory.empty());
    auto decoder = DecoderOf(directory, quant::KvType::kF32);
    CHECK_OK(decoder);
    const std::vector<uint32_t> prompt = golden->Tokens("prompt");
    const std::vector<int32_t> positions = golden->Ints("prefill.positions");
    const std::vector<float> want = golden->Floats("prefill.logits");
    const size_t vocab = want.size() / positions.size();
    double max_logit = 0;
    for (float logit : want) max_logit = std::max(max_logit, std::fabs(double{logit}));
    size_t compared = 0;
    for (size_t at = 0; at < prompt.size(); ++at) {
      CHECK_OK((*decoder)->Extend({prompt[at]}));
      for (size_t i = 0; i < positions.size(); ++i) {
        if (static_cast<size_t>(positions[i]) != at) continue;
        ++compared;
        for (size_t j = 0; j < vocab; ++j) {
          // The golden is fp32: its own error is a few times 1e-6.
          CHECK_LE(std::fabs((*decoder)->logits()[j] - double{want[i * vocab + j]}),
                   1e-5 * max_logit);
        }
      }
    }
    CHECK_EQ(compared, positions.size());
  }
}

TEST(truncate_goes_back_exactly) {
  const std::string directory = test::WriteFixture({"T2", "bf16", 3});
  for (auto rounding :
       {quant::KvType::kF32, quant::KvType::kBF16, quant::KvType::kFp8, quant::KvType::kFp4,
        quant::KvType::kK8V4}) {
    auto decoder = DecoderOf(directory, rounding);
    CHECK_OK(decoder);
    CHECK_OK((*decoder)->Extend({5, 6, 7, 8}));
    const std::vector<double> want((*decoder)->logits().begin(), (*decoder)->logits().end());
    CHECK_OK((*decoder)->Extend({9, 10}));
    (*decoder)->Truncate(3);
    CHECK_OK((*decoder)->Extend({8}));
    CHECK(want == std::vector<double>((*decoder)->logits().begin(), (*decoder)->logits().end()));
  }
}

// A cache that holds what another reference has rounded, each head twice.
struct Cache {
  const reference::Decoder* from = nullptr;
  size_t head_dim = 0;
  float factor = 1;  // on the largest of V of position 2 in layer 1,
  bool both = true;  // in both copies

  Status Read(size_t layer, size_t position, std::vector<float>* k, std::vector<float>* v) const {
    const auto stored = from->stored(layer, position);
    for (size_t at = 0; at < stored.first.size(); at += head_dim) {
      for (int copy = 0; copy < 2; ++copy) {
        const auto head = [&](absl::Span<const double> x) { return x.subspan(at, head_dim); };
        k->insert(k->end(), head(stored.first).begin(), head(stored.first).end());
        v->insert(v->end(), head(stored.second).begin(), head(stored.second).end());
        const auto largest =
            std::max_element(v->end() - static_cast<ptrdiff_t>(head_dim), v->end());
        if (layer == 1 && position == 2 && (both || copy == 0)) *largest *= factor;
      }
    }
    return OkStatus();
  }
};

TEST(follows_a_cache_and_names_what_is_wrong_in_it) {
  const std::string directory = test::WriteFixture({"T2", "bf16", 3});
  const std::vector<uint32_t> tokens = {5, 6, 7};
  for (auto rounding :
       {quant::KvType::kF32, quant::KvType::kBF16, quant::KvType::kFp8, quant::KvType::kFp4,
        quant::KvType::kK8V4}) {
    auto own = DecoderOf(directory, rounding);
    auto other = DecoderOf(directory, rounding);
    CHECK_OK(own);
    CHECK_OK(other);
    CHECK_OK((*own)->Extend(tokens));
    Cache cache;
    cache.from = own->get();
    cache.head_dim = (*own)->head_dim();
    (*other)->Follow([&](size_t layer, size_t position, std::vector<float>* k,
                         std::vector<float>* v) { return cache.Read(layer, position, k, v); });
    CHECK_OK((*other)->Extend(tokens));
    for (size_t i = 0; i < (*own)->logits().size(); ++i) {
      CHECK_LE(std::fabs((*own)->logits()[i] - (*other)->logits()[i]), 1e-5);
    }
    (*other)->Truncate(2);
    // More than half a step of e4m3; more than a block of e2m1 may be off by.
    cache.factor = quant::InfoOf(rounding).v == quant::KvForm::kFp4 ? 1.5f : 1.15f;
    Status status = (*other)->Extend({7});
    CHECK(!status.ok());
    CHECK(absl::StrContains(status.message(), "V of position 2 in layer 1, head "));
    CHECK(absl::StrContains(status.message(), "by the reference"));
    (*other)->Truncate(2);
    cache.factor = 1.0001f;  // less than any rounding, but in one copy alone
    cache.both = false;
    status = (*other)->Extend({7});
    CHECK(!status.ok());
    CHECK(absl::StrContains(status.message(), "in another's"));
  }
}

TEST(token_outside_the_vocabulary_is_refused) {
  auto decoder = DecoderOf(test::WriteFixture({"T1", "bf16", 1}), quant::KvType::kF32);
  CHECK_OK(decoder);
  CHECK(!(*decoder)->Extend({512}).ok());
  CHECK_EQ((*decoder)->position(), 0u);
}
