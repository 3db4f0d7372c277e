// SPDX-License-Identifier: MIT
//
// The host's part of a decode step on the GPU path, kernels that do nothing: in steady state it
// allocates nothing and asks the driver for nothing but to sleep until the GPUs are done.
// MAINARCH_HOST_STEPS=N runs so many steps more, for bench/host-overhead to count instructions.
#include <dlfcn.h>
#include <pthread.h>

#include <cstdlib>
#include <new>

#include "golden/fixtures.h"
#include "golden/golden.h"
#include "kfd/uapi/kfd_ioctl.h"
#include "support/idle_gpus.h"
#include "support/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// A sanitizer has operators and locks of its own, which must stay.
#define MAINARCH_SKIP_WITHOUT_COUNTING SKIP("a sanitizer owns operator new")
#else
#define MAINARCH_SKIP_WITHOUT_COUNTING
namespace {
void* Allocate(size_t size) {
  mainarch::test::HotPath* path = mainarch::test::hot_path;
  if (path != nullptr && path->on) ++path->allocations;
  void* p = std::malloc(size == 0 ? 1 : size);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace
void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }

extern "C" __attribute__((visibility("default"))) int pthread_mutex_lock(pthread_mutex_t* mutex) {
  using Lock = int (*)(pthread_mutex_t*);
  static const Lock real = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  mainarch::test::HotPath* path = mainarch::test::hot_path;
  if (path != nullptr && path->on) ++path->locks;
  return real(mutex);
}
#endif

using namespace mainarch;

namespace {

constexpr int kWarm = 3, kSteps = 20;

struct Rig {
  std::shared_ptr<const model::Model> model;
  std::unique_ptr<backend::Context> context;
  std::vector<uint32_t> pages = {0, 1, 2};
  uint32_t position = 0;

  Status Open(const std::string& node) {
    const std::string directory = test::WriteFixture({"T2", "mxfp4", 1});
    ASSIGN_OR_RETURN(auto backend, test::OpenIdleGpus(node));
    ASSIGN_OR_RETURN(model, model::Model::Load(std::move(backend), directory, {}));
    backend::ContextOptions options;
    options.pages = {3};
    ASSIGN_OR_RETURN(context, model->weights().CreateContext(options));
    return OkStatus();
  }
  Status Step() {
    const backend::StepRow row = {5, position, 0};
    const backend::StepCache cache = {pages};
    const backend::StepSequence sequence = {absl::MakeConstSpan(&cache, 1)};
    const uint32_t logit_row = 0;
    backend::Step step;
    step.rows = absl::MakeConstSpan(&row, 1);
    step.sequences = absl::MakeConstSpan(&sequence, 1);
    step.logit_rows = absl::MakeConstSpan(&logit_row, 1);
    position = (position + 1) % 40;
    return context->Run(step);
  }
};

}  // namespace

TEST(a_steady_step_allocates_nothing_and_calls_nobody) {
  MAINARCH_SKIP_WITHOUT_COUNTING;
  if (std::getenv("MAINARCH_HOST_STEPS") != nullptr) SKIP("instructions are being counted");
  for (const char* node : {"gfx950", "gfx942x4"}) {
    Rig rig;
    CHECK_OK(rig.Open(node));
    for (int i = 0; i < kWarm; ++i) CHECK_OK(rig.Step());
    test::HotPath path;
    test::hot_path = &path;
    Status status;
    for (int i = 0; i < kSteps && status.ok(); ++i) {
      path.on = true;
      status = rig.Step();
      path.on = false;
    }
    test::hot_path = nullptr;
    CHECK_OK(status);
    std::printf("# %s: %d steps of %u packets a GPU, %llu allocations, %llu locks\n", node, kSteps,
                rig.context->counts().packets, static_cast<unsigned long long>(path.allocations),
                static_cast<unsigned long long>(path.locks));
    const std::string sleep = "ioctl " + std::to_string(kfd::uapi::kWaitEvents & 0xff);
    for (const auto& [call, times] : path.calls) {
      std::printf("# %s: %s, %llu times\n", node, call.c_str(),
                  static_cast<unsigned long long>(times));
      CHECK_EQ(call, sleep);
    }
    CHECK_EQ(path.allocations, 0u);
    // The group's own, which no other thread of the library ever takes: one a step.
    CHECK_LE(path.locks, static_cast<uint64_t>(kSteps));
  }
}

TEST(steps_for_a_counter_of_instructions) {
  const char* steps = std::getenv("MAINARCH_HOST_STEPS");
  if (steps == nullptr) SKIP("MAINARCH_HOST_STEPS is not set: bench/host-overhead sets it");
  Rig rig;
  CHECK_OK(rig.Open("gfx950"));
  const int count = std::atoi(steps);
  CHECK_GT(count, 0);
  for (int i = 0; i < count; ++i) CHECK_OK(rig.Step());
  std::printf("# %u packets a step\n", rig.context->counts().packets);
}
