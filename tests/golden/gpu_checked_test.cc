// SPDX-License-Identifier: MIT
//
// Whole steps on the GPU path with every checker of the virtual node looking on (sim/isa/check) and
// with memory that holds NaNs until something is written there. A finding stops the kernel, and so
// the step, with a status that says which rule, which kernel and which instruction. What is
// computed stays what it is without the checkers, to the bit.
#include <cstdlib>
#include <cstring>

#include "absl/strings/match.h"
#include "backend/amdgpu/gpus.h"
#include "golden/fixtures.h"
#include "golden/golden.h"
#include "kernels/decoder_args.h"
#include "support/test.h"

using namespace mainarch;
using test::Runner;

namespace {

// The logits of a prompt's last token and of `steps` tokens after it.
StatusOr<std::vector<std::vector<float>>> Steps(const std::string& directory,
                                                const std::string& device, backend::KvType kv,
                                                const std::vector<uint32_t>& prompt, int steps) {
  ASSIGN_OR_RETURN(auto model, test::LoadOn(directory, {device, "", 0, false}));
  ASSIGN_OR_RETURN(auto runner, Runner::Create(model, kv, static_cast<uint32_t>(prompt.size())));
  RETURN_IF_ERROR(runner->Extend(prompt, false));
  std::vector<std::vector<float>> out = {runner->Logits(0)};
  for (int i = 0; i < steps; ++i) {
    RETURN_IF_ERROR(runner->Extend({test::ArgMax(out.back())}, false));
    out.push_back(runner->Logits(0));
  }
  return out;
}

constexpr backend::KvType kKv[] = {backend::KvType::kBF16, backend::KvType::kFp8,
                                   backend::KvType::kF32, backend::KvType::kFp4,
                                   backend::KvType::kK8V4};

void CheckOn(test::Context& test_context, const test::FixtureCase& fixture, const std::string& plain,
             backend::KvType kv, size_t prompt, int steps) {
  const std::string directory = test::WriteFixture(fixture);
  CHECK(!directory.empty());
  const std::string checked = plain + ",poison=1,check=all";
  std::printf("# %s on %s, KV %d\n", fixture.Name().c_str(), checked.c_str(), static_cast<int>(kv));
  std::fflush(stdout);
  const std::vector<uint32_t> tokens = test::Prompt(prompt, 512);
  auto want = Steps(directory, plain, kv, tokens, steps);
  CHECK_OK(want);
  auto got = Steps(directory, checked, kv, tokens, steps);
  CHECK_OK(got);
  for (size_t i = 0; i < want->size(); ++i) CHECK(test::Same((*got)[i], (*want)[i]));
}

}  // namespace

// That the setting reaches the machine: two kernels write the same words, and nothing orders them.
TEST(a_finding_ends_the_step_and_names_itself) {
  for (const bool checked : {false, true}) {
    auto gpus = amdgpu::Gpus::Open(checked ? "sim:gfx950,check=races" : "sim:gfx950");
    CHECK_OK(gpus);
    amdgpu::Gpu& gpu = (*gpus)->at(0);
    const gpu::Deadline deadline = gpu::Deadline::In(60'000);
    gpu::BufferOptions options;
    options.label = "arguments and step";
    options.place = gpu::Place::kSystem;
    auto buffer = gpu::Buffer::Allocate(*gpu.device, 4096, options);
    CHECK_OK(buffer);
    kernels::Kernarg<kernels::StepBeginArgs> kernarg;
    kernarg.workers = 1;
    kernarg.args.from.address = buffer->va() + 1024;
    kernarg.args.to.address = buffer->va() + 2048;
    kernarg.args.block_words = 64;
    kernels::StepHeader header;
    header.words = sizeof(header) / 4;
    std::memset(buffer->host(), 0, buffer->size());
    std::memcpy(buffer->host(), &kernarg, sizeof(kernarg));
    // Of even and of odd steps.
    for (const uint32_t at : {0u, kernarg.args.block_words * 4}) {
      std::memcpy(buffer->host() + 1024 + at, &header, sizeof(header));
    }
    const auto kernel = gpu.code->Find("step_begin");
    CHECK_OK(kernel);
    gpu::Dispatch dispatch;
    dispatch.kernel_object = (*kernel)->object;
    dispatch.kernarg = buffer->va();
    dispatch.workgroup.x = dispatch.grid.x = kernels::kThreads;
    dispatch.group_bytes = (*kernel)->group_bytes;
    gpu::AqlOrder order;
    order.barrier = false;
    order.acquire = order.release = gpu::Scope::kNone;
    const gpu::AqlPacket packet = gpu::MakeDispatch(dispatch, order);
    CHECK_OK(gpu.queue->Submit(packet, "first", deadline));
    CHECK_OK(gpu.queue->Submit(packet, "second", deadline));
    const auto point = gpu.queue->SubmitSignalled(packet, "last", deadline);
    CHECK_OK(point);
    gpu.queue->Ring();
    const Status status = (*gpus)->Explain(gpu.queue->Wait(*point, deadline));
    if (!checked) {
      CHECK_OK(status);
      continue;
    }
    std::printf("# %s\n", std::string(status.message()).c_str());
    CHECK_EQ(static_cast<int>(CodeOf(status)), static_cast<int>(Code::kDeviceLost));
    CHECK(absl::StrContains(status.message(), "checker: "));
    CHECK(absl::StrContains(status.message(), "gpu 0"));
  }
}

// Every fixture, with chips, numbers of GPUs and KV types taking turns; MAINARCH_GPU_MATRIX=1: each
// with each, longer. MAINARCH_TEST_DEVICE ("sim:gfx950x2") picks one.
TEST(no_checker_finds_anything) {
  std::vector<std::string> nodes = {"gfx950", "gfx942x2", "gfx950x4", "gfx942", "gfx950x2", "gfx942x4"};
  const bool matrix = std::getenv("MAINARCH_GPU_MATRIX") != nullptr;
  if (matrix) nodes.insert(nodes.end(), {"gfx950x8", "gfx942x8"});
  for (std::string& node : nodes) node = "sim:" + node;
  if (const char* only = std::getenv("MAINARCH_TEST_DEVICE")) nodes = {only};
  size_t turn = 0;
  for (const test::FixtureCase& fixture : test::AllFixtureCases()) {
    if (matrix) {
      for (const std::string& node : nodes) {
        for (const backend::KvType kv : kKv) CheckOn(test_context, fixture, node, kv, 37, 3);
      }
      continue;
    }
    CheckOn(test_context, fixture, nodes[turn % nodes.size()], kKv[turn % std::size(kKv)], 1, 1);
    ++turn;
  }
}
