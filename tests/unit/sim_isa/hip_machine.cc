// SPDX-License-Identifier: MIT
#include "unit/sim_isa/hip_machine.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "gpu/hidden_arguments.h"
#include "sim/isa/check/checker.h"
#include "support/test.h"
#include "unit/sim_isa/llvm.h"

namespace mainarch::sim::isa::test {

std::string CompileHip(Isa isa, const std::string& file, const std::string& flags,
                       std::string* error) {
  const std::string out = mainarch::test::ScratchDirectory() + "/k.co";
  const std::string command = absl::StrCat(
      "clang-22 -x hip --cuda-device-only --offload-arch=", CpuName(isa),
      " -nogpuinc -nogpulib --no-gpu-bundle-output -std=c++20 -ffp-contract=off ", flags, " -o ",
      out, " ", mainarch::test::SourcePath("tests/unit/sim_isa/hip/" + file + ".hip"));
  return RunCommand(command, error) ? out : "";
}

std::string CompileForHost(const std::string& file, std::string* error) {
  const std::string out = mainarch::test::ScratchDirectory() + "/host.so";
  const std::string command = absl::StrCat(
      "clang++-22 -x c++ -std=c++20 -O1 -mfma -mf16c -ffp-contract=off -fPIC -shared -w -o ", out,
      " ", mainarch::test::SourcePath("tests/unit/sim_isa/hip/" + file + ".hip"), " -lm");
  return RunCommand(command, error) ? out : "";
}

HipMachine::HipMachine(Isa isa, LaneCode code, size_t bytes)
    : set_(isa, code),
      program_(&set_),
      arena_(static_cast<uint8_t*>(std::aligned_alloc(4096, bytes)), std::free),
      size_(bytes) {}

void* HipMachine::Allocate(size_t bytes) {
  used_ = (used_ + 4095) / 4096 * 4096;
  if (bytes > size_ - used_) std::abort();  // a test that wants more says so to the constructor
  void* p = arena_.get() + used_;
  used_ += bytes;
  std::memset(p, 0, bytes);
  return p;
}

bool HipMachine::Load(const std::string& path) {
  auto object = gpu::CodeObject::Parse(path, ReadBytes(path));
  if (!object.ok()) {
    error_ = std::string(object.status().message());
    return false;
  }
  object_ = std::make_unique<gpu::CodeObject>(std::move(*object));
  auto* image = static_cast<uint8_t*>(Allocate(object_->image_size()));
  base_ = reinterpret_cast<uint64_t>(image);
  const std::vector<uint8_t> bytes = object_->Relocate(base_);
  std::memcpy(image, bytes.data(), bytes.size());
  return true;
}

bool HipMachine::Launch(const std::string& name, const Arguments& arguments,
                        const Options& options) {
  const auto kernels = object_->kernels();
  const auto kernel = std::find_if(kernels.begin(), kernels.end(),
                                   [&](const gpu::CodeKernel& k) { return k.name == name; });
  if (kernel == kernels.end()) {
    error_ = "no kernel " + name;
    return false;
  }
  KernelLaunch launch;
  const Status status =
      ReadDescriptor(reinterpret_cast<const uint8_t*>(&kernel->descriptor), &launch);
  if (!status.ok()) {
    error_ = std::string(status.message());
    return false;
  }
  const uint64_t descriptor = base_ + kernel->descriptor_vaddr;
  launch.entry =
      descriptor + static_cast<uint64_t>(kernel->descriptor.kernel_code_entry_byte_offset);
  launch.workgroup = options.threads;
  for (size_t i = 0; i < 3; ++i) {
    launch.grid[i] = options.blocks[i] * options.threads[i] - options.cut[i];
  }
  launch.lds_bytes = kernel->descriptor.group_segment_fixed_size + options.dynamic_lds;
  launch.private_bytes = kernel->descriptor.private_segment_fixed_size + options.stack;
  launch.seed = options.seed;
  const size_t used = used_;  // what a launch allocates is its own
  // 64 bytes of AQL packet, for kernels that ask for the dispatch pointer.
  auto* packet = New<uint8_t>(64);
  const uint16_t workgroup[3] = {static_cast<uint16_t>(launch.workgroup[0]),
                                 static_cast<uint16_t>(launch.workgroup[1]),
                                 static_cast<uint16_t>(launch.workgroup[2])};
  std::memcpy(packet + 4, workgroup, sizeof workgroup);
  std::memcpy(packet + 12, launch.grid.data(), 12);
  launch.packet = reinterpret_cast<uint64_t>(packet);
  launch.queue = reinterpret_cast<uint64_t>(New<uint8_t>(256));
  auto* kernarg = New<uint8_t>(kernel->kernarg_bytes + 64);
  if (arguments.bytes().size() > kernel->kernarg_bytes) {
    error_ = absl::StrCat(name, ": ", arguments.bytes().size(), " bytes of arguments, kernarg has ",
                          kernel->kernarg_bytes);
    return false;
  }
  std::copy(arguments.bytes().begin(), arguments.bytes().end(), kernarg);
  gpu::HiddenValues hidden;
  hidden.grid = launch.grid;
  hidden.workgroup = launch.workgroup;
  hidden.dynamic_lds_bytes = options.dynamic_lds;
  hidden.queue = launch.queue;
  const Status filled = gpu::FillHiddenArguments(
      *kernel, hidden, absl::MakeSpan(kernarg, size_t{kernel->kernarg_bytes}));
  if (!filled.ok()) {
    error_ = std::string(filled.message());
    return false;
  }
  launch.kernarg = reinterpret_cast<uint64_t>(kernarg);
  std::vector<std::unique_ptr<FlatMemory>> memories;
  std::vector<Memory*> pointers;
  for (int i = 0; i < options.host_threads; ++i) {
    memories.push_back(std::make_unique<FlatMemory>(reinterpret_cast<uint64_t>(arena_.get()),
                                                    arena_.get(), size_));
    pointers.push_back(memories.back().get());
  }
  Checker checker(CheckOptions::All());
  const std::unique_ptr<LaunchWatch> watch = checked_ ? checker.Watch({}) : nullptr;
  launch.observer = watch.get();
  auto grid = Grid::Create(&program_, launch, ChipLimits(), pointers);
  if (!grid.ok()) {
    error_ = std::string(grid.status().message());
    return false;
  }
  for (int waits = 0; waits < 100; ++waits) {
    result = (*grid)->Run(1ull << 40);
    if (result.state != Grid::State::kWaiting) break;
  }
  instructions_ = (*grid)->instructions();
  used_ = used;
  if (result.state == Grid::State::kDone) return true;
  error_ = name + ": " + (result.detail.empty() ? "did not end" : result.detail);
  return false;
}

}  // namespace mainarch::sim::isa::test
