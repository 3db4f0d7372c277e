// SPDX-License-Identifier: MIT
#include "unit/kernels/grid_executor.h"

#include "sim/isa/grid.h"

namespace mainarch::kernels_test {
namespace {

using sim::isa::Grid;

// Device memory as one context sees it.
class ContextMemory : public sim::isa::Memory {
 public:
  explicit ContextMemory(sim::GpuContext* context) : context_(*context) {}
  bool Translate(uint64_t va, bool write, bool execute, sim::isa::View* view,
                 sim::isa::AccessFault* fault) override {
    const sim::Access access = execute ? sim::Access::kExecute
                               : write ? sim::Access::kWrite
                                       : sim::Access::kRead;
    sim::Window window;
    sim::MemoryFault why;
    if (!context_.Translate(va, access, &window, &why)) {
      *fault = {va, write, execute, why.not_present, why.read_only, why.no_execute};
      return false;
    }
    *view = {va, va + window.size, window.host, window.writable, window.executable};
    return true;
  }
  uint64_t Clock() override { return context_.Clock(); }

 private:
  sim::GpuContext& context_;
};

class GridLaunch : public sim::Launch {
 public:
  static StatusOr<std::unique_ptr<GridLaunch>> Create(const sim::isa::InstructionSet* set,
                                                      const sim::Dispatch& dispatch) {
    sim::isa::KernelLaunch launch;
    RETURN_IF_ERROR(ReadDescriptor(dispatch.descriptor.data(), &launch));
    launch.entry = dispatch.entry_va;
    launch.grid = dispatch.grid;
    launch.workgroup = dispatch.workgroup;
    launch.kernarg = dispatch.kernarg_va;
    launch.lds_bytes = dispatch.group_segment_bytes;
    launch.private_bytes = dispatch.private_segment_bytes;
    launch.seed = dispatch.seed;
    const sim::GpuFacts& facts = dispatch.context->facts();
    const sim::isa::ChipLimits limits = {facts.num_xcc,      facts.cus_per_xcc,
                                         facts.simds_per_cu, facts.waves_per_simd,
                                         facts.lds_bytes,    facts.lds_granule};
    auto out = std::unique_ptr<GridLaunch>(new GridLaunch(set, dispatch.context));
    ASSIGN_OR_RETURN(out->grid_, Grid::Create(&out->program_, launch, limits, {&out->memory_}));
    return out;
  }

  sim::Progress Run(uint64_t budget) override {
    const Grid::Result result = grid_->Run(budget);
    sim::Progress out;
    out.detail = result.detail;
    switch (result.state) {
      case Grid::State::kRunning:
        out.state = sim::Progress::State::kRunning;
        break;
      case Grid::State::kWaiting:
        out.state = sim::Progress::State::kWaiting;
        break;
      case Grid::State::kDone:
        out.state = sim::Progress::State::kDone;
        break;
      case Grid::State::kStopped:
        out.state = result.reason == sim::isa::StopReason::kMemoryFault
                        ? sim::Progress::State::kFault
                        : sim::Progress::State::kException;
        out.fault.va = result.fault.va;
        out.exception = sim::WaveException::kIllegalInstruction;
        break;
    }
    return out;
  }

 private:
  GridLaunch(const sim::isa::InstructionSet* set, sim::GpuContext* context)
      : program_(set), memory_(context) {}

  sim::isa::Program program_;
  ContextMemory memory_;
  std::unique_ptr<Grid> grid_;
};

class GridExecutor : public sim::Executor {
 public:
  explicit GridExecutor(sim::isa::Isa isa) : set_(isa, sim::isa::BestLaneCode()) {}
  StatusOr<std::unique_ptr<sim::Launch>> Start(const sim::Dispatch& dispatch) override {
    return GridLaunch::Create(&set_, dispatch);
  }

 private:
  sim::isa::InstructionSet set_;
};

}  // namespace

StatusOr<std::unique_ptr<sim::Executor>> MakeExecutor(const std::string& isa) {
  if (isa != "gfx942" && isa != "gfx950") return Error(Code::kUnsupported, "isa '", isa, "'");
  return std::make_unique<GridExecutor>(isa == "gfx942" ? sim::isa::Isa::kGfx942
                                                        : sim::isa::Isa::kGfx950);
}

}  // namespace mainarch::kernels_test
