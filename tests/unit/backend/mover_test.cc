// SPDX-License-Identifier: MIT
//
// Weights that are moved into panels behind the steps: no bit depends on how far they have got.
#include "backend/cpu/mover.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

#include "backend/cpu/cpu_backend.h"
#include "base/clock.h"
#include "model/model.h"
#include "model/synthetic.h"
#include "support/test.h"

using namespace mainarch;

namespace {

constexpr uint32_t kTokens = 24;

// Lets the moving thread past so many weights.
class Turnstile {
 public:
  ~Turnstile() { Allow(1 << 30); }
  Status Pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return passed_ < allowed_; });
    ++passed_;
    return OkStatus();
  }
  void Allow(int more) {
    std::lock_guard<std::mutex> lock(mutex_);
    allowed_ += more;
    changed_.notify_all();
  }
  // Until the thread stands before weight `n`, so that n of them have moved.
  void AwaitArrival(int n) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > n; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int allowed_ = 0, passed_ = 0, waiting_ = 0;
};

model::ModelConfig Geometry(bool sparse) {
  model::ModelConfig c;
  c.model_type = sparse ? "qwen3_moe" : "qwen3";
  c.hidden = 128;
  c.layers = 2;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 32;
  c.intermediate = 256;
  c.vocab = 300;
  c.max_position = 512;
  c.rope.theta = 1e6;
  c.rope.rotary_dim = 32;
  c.tied_embeddings = true;
  c.sparse_layer.assign(2, sparse);
  if (sparse) {
    c.experts = 8;
    c.experts_per_token = 2;
    c.moe_intermediate = 64;
    c.norm_topk_prob = true;
  }
  return c;
}

std::string Checkpoint(bool sparse, model::SyntheticFormat format) {
  const std::string directory = test::ScratchDirectory();
  model::SyntheticOptions options;
  options.format = format;
  if (!model::WriteSyntheticCheckpoint(Geometry(sparse), directory, options).ok()) return "";
  return directory;
}

StatusOr<std::shared_ptr<const model::Model>> Load(const std::string& directory, int threads,
                                                   const backend::LoadOptions& options) {
  ASSIGN_OR_RETURN(auto backend, cpu::CpuBackend::Create(1, static_cast<uint32_t>(threads), ""));
  return model::Model::Load(std::move(backend), directory, options);
}

// Logits after a prompt in one step, and after one more token in another.
StatusOr<std::vector<float>> TwoSteps(const model::Model& model) {
  backend::ContextOptions options;
  options.max_rows = kTokens;
  options.pages = {4};
  ASSIGN_OR_RETURN(auto context, model.weights().CreateContext(options));
  const std::vector<uint32_t> pages = {0, 1, 2, 3};
  const backend::StepCache cache = {pages};
  const std::vector<backend::StepSequence> sequences = {{absl::MakeConstSpan(&cache, 1)}};
  std::vector<backend::StepRow> rows;
  for (uint32_t i = 0; i < kTokens; ++i) rows.push_back({i * 37 % 300, i, 0});
  const std::vector<uint32_t> last = {kTokens - 1}, first = {0};
  RETURN_IF_ERROR(context->Run({rows, sequences, last}));
  std::vector<float> logits(context->Logits(0).begin(), context->Logits(0).end());
  const std::vector<backend::StepRow> next = {{5, kTokens, 0}};
  RETURN_IF_ERROR(context->Run({next, sequences, first}));
  logits.insert(logits.end(), context->Logits(0).begin(), context->Logits(0).end());
  return logits;
}

bool Same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST(no_bit_depends_on_how_many_weights_have_moved) {
  using F = model::SyntheticFormat;
  for (const auto& [sparse, format] : std::vector<std::pair<bool, F>>{
           {false, F::kBF16}, {false, F::kFp8Block}, {true, F::kMxfp4}, {true, F::kF32}}) {
    const std::string directory = Checkpoint(sparse, format);
    CHECK(!directory.empty());
    auto eager = Load(directory, 2, {});
    CHECK_OK(eager);
    auto want = TwoSteps(**eager);
    CHECK_OK(want);

    auto gate = std::make_shared<Turnstile>();
    backend::LoadOptions options;
    options.behind = true;
    options.before_move = [gate](uint64_t) { return gate->Pass(); };
    auto model = Load(directory, 2, options);
    CHECK_OK(model);
    uint64_t before = 0;
    for (int moved = 0;; ++moved) {
      const backend::Placement placement = (*model)->weights().placement();
      CHECK_OK(placement.status);
      auto got = TwoSteps(**model);
      CHECK_OK(got);
      CHECK(Same(*got, *want));
      gate->Allow(1);
      if (placement.done + 1 > placement.total) break;
      // The last one leaves without coming back to the gate.
      while ((*model)->weights().placement().done == placement.done) std::this_thread::yield();
      CHECK((*model)->weights().placement().done > before);
      before = (*model)->weights().placement().done;
    }
    (*model)->weights().WaitPlaced();
    CHECK_EQ((*model)->weights().placement().done, (*model)->weights().placement().total);
  }
}

TEST(steps_run_while_weights_move) {
  const std::string directory = Checkpoint(true, model::SyntheticFormat::kBF16);
  CHECK(!directory.empty());
  auto eager = Load(directory, 1, {});
  CHECK_OK(eager);
  auto want = TwoSteps(**eager);
  CHECK_OK(want);
  backend::LoadOptions options;
  options.behind = true;
  for (int round = 0; round < 10; ++round) {
    auto model = Load(directory, 2, options);
    CHECK_OK(model);
    for (int step = 0; step < 3; ++step) {
      auto got = TwoSteps(**model);
      CHECK_OK(got);
      CHECK(Same(*got, *want));
    }
    if (round % 2 == 0) (*model)->weights().WaitPlaced();
  }
}

// Somebody waits for the first step: moving begins behind it, or, while there is none, after a while.
TEST(the_first_step_goes_before_the_moving) {
  const std::string directory = Checkpoint(false, model::SyntheticFormat::kBF16);
  CHECK(!directory.empty());
  for (const bool step : {false, true}) {
    auto gate = std::make_shared<Turnstile>();
    gate->Allow(1 << 20);
    backend::LoadOptions options;
    options.behind = true;
    options.before_move = [gate](uint64_t) { return gate->Pass(); };
    const int64_t start = NowNs();
    auto model = Load(directory, 1, options);
    CHECK_OK(model);
    if (step) CHECK_OK(TwoSteps(**model));
    gate->AwaitArrival(0);
    if (!step) CHECK(NowNs() - start >= 150'000'000);
    (*model)->weights().WaitPlaced();
    CHECK_EQ((*model)->weights().placement().done, (*model)->weights().placement().total);
  }
}

TEST(a_weight_that_cannot_move_stays_and_the_reason_is_kept) {
  const std::string directory = Checkpoint(false, model::SyntheticFormat::kBF16);
  CHECK(!directory.empty());
  auto eager = Load(directory, 1, {});
  CHECK_OK(eager);
  auto want = TwoSteps(**eager);
  CHECK_OK(want);
  int weights = 0;
  backend::LoadOptions options;
  options.behind = true;
  options.before_move = [&weights](uint64_t done) {
    if (++weights == 4) return Error(Code::kOutOfHostMemory, "none left after ", done);
    return OkStatus();
  };
  auto model = Load(directory, 1, options);
  CHECK_OK(model);
  (*model)->weights().WaitPlaced();
  const backend::Placement placement = (*model)->weights().placement();
  CHECK_EQ(weights, 4);
  CHECK(CodeOf(placement.status) == Code::kOutOfHostMemory);
  CHECK(placement.done > 0);
  CHECK(placement.done < placement.total);
  auto got = TwoSteps(**model);
  CHECK_OK(got);
  CHECK(Same(*got, *want));
}

// Sleeps until thread `id` sleeps itself: twice in a row, so that a lock in passing is not taken for it.
void AwaitSleep(pid_t id) {
  const std::string path = "/proc/self/task/" + std::to_string(id) + "/stat";
  for (int asleep = 0; asleep < 2;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::string text;
    std::getline(std::ifstream(path), text);
    const size_t state = text.rfind(") ");  // behind the name, which may hold anything
    asleep = state != std::string::npos && text[state + 2] == 'S' ? asleep + 1 : 0;
  }
}

// Closing a model does not wait for the rest of its weights.
TEST(closing_a_model_stops_the_moving) {
  const std::string directory = Checkpoint(false, model::SyntheticFormat::kBF16);
  CHECK(!directory.empty());
  std::atomic<int> weights{0};
  std::atomic<bool> closing{false};
  backend::LoadOptions options;
  options.behind = true;
  options.before_move = [&](uint64_t) {
    ++weights;
    while (!closing) std::this_thread::yield();
    return OkStatus();
  };
  auto model = Load(directory, 1, options);
  CHECK_OK(model);
  // The weight in hand is done when the model is being closed, however long that takes to begin: whoever
  // closes it has said so, and sleeps until the mover has ended.
  std::atomic<bool> begun{false};
  const pid_t self = gettid();
  std::thread closer([&] {
    while (!begun) std::this_thread::yield();
    AwaitSleep(self);
    closing = true;
  });
  begun = true;
  model->reset();
  closer.join();
  CHECK(weights <= 1);
}

TEST(in_place_moves_nothing) {
  const std::string directory = Checkpoint(false, model::SyntheticFormat::kBF16);
  CHECK(!directory.empty());
  backend::LoadOptions options;
  options.in_place = true;
  auto model = Load(directory, 1, options);
  CHECK_OK(model);
  CHECK_EQ((*model)->weights().placement().total, 0u);
  CHECK((*model)->weights().weight_bytes() < 64u << 10);
}
