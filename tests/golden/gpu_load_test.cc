// SPDX-License-Identifier: MIT
//
// What loading does to a group of GPUs beside the weights: what is free falls, steps of other models
// go on, a no of the progress callback leaves nothing behind, and set-up takes few submissions.
#include <condition_variable>
#include <mutex>
#include <thread>

#include "backend/amdgpu/amdgpu_backend.h"
#include "golden/fixtures.h"
#include "golden/golden.h"
#include "sim/open.h"
#include "support/test.h"

using namespace mainarch;

namespace {

StatusOr<std::shared_ptr<backend::Backend>> OpenNode(const std::string& text) {
  ASSIGN_OR_RETURN(auto sys, sim::OpenSim(text));
  ASSIGN_OR_RETURN(auto gpus, amdgpu::Gpus::OpenOn(std::move(sys), "", false));
  return amdgpu::AmdGpuBackend::Create(std::move(gpus));
}

std::vector<uint64_t> FreeBytes(const backend::Backend& backend) {
  std::vector<uint64_t> out;
  for (const backend::DeviceInfo& info : backend.devices()) {
    out.push_back(info.free_bytes <= info.memory_bytes ? info.free_bytes : 0);
  }
  return out;
}

}  // namespace

TEST(what_is_free_falls_by_what_is_loaded) {
  const std::string directory = test::WriteFixture({"T2", "bf16", 1});
  auto backend = OpenNode("gfx950x2");
  CHECK_OK(backend);
  const std::vector<uint64_t> before = FreeBytes(**backend);
  {
    auto model = model::Model::Load(*backend, directory, {});
    CHECK_OK(model);
    const uint64_t each = (*model)->weights().weight_bytes() / 2;  // two GPUs, the same tiles
    const std::vector<uint64_t> loaded = FreeBytes(**backend);
    for (size_t i = 0; i < before.size(); ++i) CHECK_LE(loaded[i] + each, before[i]);
  }
  CHECK(FreeBytes(**backend) == before);
}

TEST(a_load_that_is_cancelled_leaves_nothing) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1});
  auto backend = OpenNode("gfx942x2");
  CHECK_OK(backend);
  const std::vector<uint64_t> before = FreeBytes(**backend);
  backend::LoadOptions options;
  options.progress = [](uint64_t done, uint64_t total) { return done > total; };
  auto model = model::Model::Load(*backend, directory, options);
  CHECK_EQ(static_cast<int>(CodeOf(model.status())), static_cast<int>(Code::kCancelled));
  CHECK(FreeBytes(**backend) == before);
}

// The callback of one load returns when a step of another model has been run. If steps wait for
// loads, it gives up.
TEST(steps_go_on_while_a_model_loads) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1});
  auto backend = OpenNode("gfx950x1");
  CHECK_OK(backend);
  auto first = model::Model::Load(*backend, directory, {});
  CHECK_OK(first);
  auto runner = test::Runner::Create(*first, backend::KvType::kBF16, 4);
  CHECK_OK(runner);

  std::mutex mutex;
  std::condition_variable changed;
  bool loading = false, ran = false, in_time = false;
  backend::LoadOptions options;
  options.progress = [&](uint64_t, uint64_t) {
    std::unique_lock<std::mutex> lock(mutex);
    loading = true;
    changed.notify_all();
    in_time = changed.wait_for(lock, std::chrono::seconds(60), [&] { return ran; });
    return true;
  };
  StatusOr<std::shared_ptr<const model::Model>> second = Error(Code::kInternal, "not loaded");
  std::thread loader([&] { second = model::Model::Load(*backend, directory, options); });
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return loading; });
  }
  const Status step = (*runner)->Extend({5, 17}, false);
  {
    std::lock_guard<std::mutex> lock(mutex);
    ran = true;
  }
  changed.notify_all();
  loader.join();
  CHECK_OK(step);
  CHECK_OK(second);
  CHECK(in_time);
}

// Cosines and sines of every position, and what is filled with zeros.
TEST(a_context_takes_few_submissions) {
  const std::string directory = test::WriteFixture({"T1", "bf16", 1}, 2048);
  auto backend = OpenNode("gfx950x1");
  CHECK_OK(backend);
  auto model = model::Model::Load(*backend, directory, {});
  CHECK_OK(model);
  const gpu::Timeline& timeline =
      static_cast<amdgpu::AmdGpuBackend&>(**backend).gpus().at(0).copy->timeline();
  const uint64_t before = timeline.issued();
  auto runner = test::Runner::Create(*model, backend::KvType::kBF16, 1);
  CHECK_OK(runner);
  CHECK_GE(timeline.issued(), before + 3);
  CHECK_LE(timeline.issued(), before + 3);
}
