// SPDX-License-Identifier: MIT
#include "sim/isa/executor.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "isa/chip.h"

namespace mainarch::sim::isa {
namespace {

Where PlaceOf(const GpuContext& context, const Window& window) {
  Where where;
  where.mtype = static_cast<uint8_t>(window.mtype);
  if (window.system_memory) {
    where.place = Where::kHost;
  } else if (window.home_gpu != context.gpu_index()) {
    where.place = Where::kPeer;
    where.peer = static_cast<uint16_t>(window.home_gpu);
  }
  return where;
}

class PageMemory : public Memory {
 public:
  PageMemory(GpuContext* context, std::shared_ptr<Gws> gws)
      : context_(*context), gws_(std::move(gws)) {}

  bool Translate(uint64_t va, bool write, bool execute, View* view, AccessFault* fault) override {
    const Access access = execute ? Access::kExecute : write ? Access::kWrite : Access::kRead;
    Window window;
    MemoryFault why;
    if (!context_.Translate(va, access, &window, &why)) {
      *fault = {why.va, write, execute, why.not_present, why.read_only, why.no_execute};
      return false;
    }
    // All of the mapping: views are kept, and the clock tells pieces of memory apart by where they begin.
    *view = {va - window.before, va + window.size, window.host - window.before, window.writable, window.executable,
             PlaceOf(context_, window)};
    return true;
  }
  uint64_t Clock() override { return context_.Clock(); }
  void Interrupt(uint32_t m0) override { context_.Interrupt(m0); }
  Gws* gws() override { return gws_.get(); }

 private:
  GpuContext& context_;
  const std::shared_ptr<Gws> gws_;
};

class IsaLaunch : public Launch {
 public:
  IsaLaunch(GpuContext* context, std::shared_ptr<InstructionSet> set,
            std::shared_ptr<Program> program, const std::shared_ptr<Gws>& gws, int threads)
      : context_(*context), set_(std::move(set)), program_(std::move(program)) {
    for (int i = 0; i < threads; ++i) {
      memories_.push_back(std::make_unique<PageMemory>(context, gws));
    }
  }

  // Counts of the dispatch go to `log` when it has ended.
  Observer* CountInto(const ExecutorOptions& options, const DispatchCounts& who, Observer* next) {
    log_ = options.counts;
    who_ = who;
    counters_ = std::make_unique<Counters>(next, options.footprint);
    return counters_.get();
  }

  Observer* CheckWith(Checker* checker, uint64_t seed) {
    checker_ = checker;
    watch_ = checker->Watch({context_.gpu_index(), context_.process_id(), &context_, seed});
    return watch_.get();
  }

  Status Create(const KernelLaunch& launch, const ChipLimits& limits) {
    std::vector<Memory*> pointers;
    for (const auto& memory : memories_) pointers.push_back(memory.get());
    ASSIGN_OR_RETURN(grid_, Grid::Create(program_.get(), launch, limits, std::move(pointers)));
    epoch_ = context_.epoch();
    return OkStatus();
  }

  Progress Run(uint64_t budget) override {
    if (context_.epoch() != epoch_) {
      grid_->DropTranslations();
      epoch_ = context_.epoch();
    }
    const Grid::Result result = grid_->Run(budget);
    Progress progress;
    progress.notes = program_->TakeNotes();
    if (checker_ != nullptr) {
      for (std::string& note : checker_->TakeNotes()) progress.notes.push_back(std::move(note));
    }
    progress.detail = result.detail;
    switch (result.state) {
      case Grid::State::kRunning:
        progress.state = Progress::State::kRunning;
        break;
      case Grid::State::kWaiting:
        progress.state = Progress::State::kWaiting;
        break;
      case Grid::State::kDone:
        if (watch_ != nullptr) watch_->End();
        progress.state = Progress::State::kDone;
        Publish();
        break;
      case Grid::State::kStopped:
        Stopped(result, &progress);
        break;
    }
    return progress;
  }

  bool Times(uint64_t* start, uint64_t* end) const override { return grid_->Times(start, end); }
  uint64_t waves() const override { return grid_->waves(); }

 private:
  void Publish() {
    if (log_ == nullptr) return;
    who_.counts = counters_->Get();
    who_.footprint = counters_->GetFootprint();
    for (FootprintPage& page : who_.footprint) page.place = PlaceOf(page.address);
    log_->Add(std::move(who_));
    log_ = nullptr;
  }

  FootprintPage::Place PlaceOf(uint64_t address) const {
    Window window;
    MemoryFault ignored;
    // What has been used is mapped, at least to be read.
    if (!context_.Translate(address, Access::kRead, &window, &ignored) || window.system_memory) {
      return FootprintPage::Place::kSystem;
    }
    return window.home_gpu == context_.gpu_index() ? FootprintPage::Place::kLocal
                                                   : FootprintPage::Place::kPeer;
  }

  static void Stopped(const Grid::Result& result, Progress* progress) {
    progress->state = Progress::State::kException;
    switch (result.reason) {
      case StopReason::kMemoryFault:
        progress->state = Progress::State::kFault;
        progress->fault = {result.fault.va, result.fault.not_present, result.fault.read_only,
                           result.fault.no_execute};
        break;
      case StopReason::kTrap:
        progress->exception = WaveException::kTrap;
        break;
      case StopReason::kAperture:
        progress->exception = WaveException::kApertureViolation;
        break;
      case StopReason::kUnaligned:
        progress->exception = WaveException::kMemoryViolation;
        break;
      default:
        progress->exception = WaveException::kIllegalInstruction;
        break;
    }
  }

  GpuContext& context_;
  std::shared_ptr<InstructionSet> set_;
  std::shared_ptr<Program> program_;
  std::vector<std::unique_ptr<PageMemory>> memories_;
  Checker* checker_ = nullptr;          // null when nothing is checked
  std::unique_ptr<LaunchWatch> watch_;  // null when nothing is checked
  std::shared_ptr<CountLog> log_;
  DispatchCounts who_;
  std::unique_ptr<Counters> counters_;  // outlives the grid
  std::unique_ptr<Grid> grid_;
  uint64_t epoch_ = 0;
};

}  // namespace

IsaExecutor::IsaExecutor(const ExecutorOptions& options)
    : options_(options),
      checker_(options.check.any() ? std::make_unique<Checker>(options.check) : nullptr) {}

StatusOr<IsaExecutor::Code> IsaExecutor::CodeOf(const GpuContext& context) {
  const uint32_t version = context.facts().gfx_target_version;
  const ::mainarch::isa::ChipFacts* const chip = ::mainarch::isa::ChipByVersion(version);
  if (chip == nullptr || !chip->is_target) {
    return Error(::mainarch::Code::kUnsupported,
                 "the interpreter runs gfx942 and gfx950, not target version ", version);
  }
  if (!Runs(options_.lanes)) {
    return Error(::mainarch::Code::kUnsupported,
                 "this build's virtual node does not run on this CPU (cpu_targets of meson_options.txt)");
  }
  const Isa isa = chip == &::mainarch::isa::kGfx950 ? Isa::kGfx950 : Isa::kGfx942;
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<InstructionSet>& set = sets_[isa];
  if (set == nullptr) set = std::make_shared<InstructionSet>(isa, options_.lanes, options_.matrix);
  Code& code = code_[{context.gpu_index(), context.process_id()}];
  if (code.program == nullptr) code = {set, std::make_shared<Program>(set.get(), options_.run_errata)};
  return code;
}

void IsaExecutor::Acquire(GpuContext& context, Scope scope) {
  if (checker_ != nullptr) checker_->Acquire(context, scope);
}
void IsaExecutor::Release(GpuContext& context, Scope scope) {
  if (checker_ != nullptr) checker_->Release(context, scope);
}

void IsaExecutor::Copied(GpuContext& context, uint32_t queue, uint32_t from, uint32_t to,
                         uint64_t bytes) {
  if (options_.pace != nullptr) options_.pace->Copied(context.gpu_index(), queue, from, to, bytes);
}

void IsaExecutor::InvalidateInstructions(GpuContext& context) { DropCode(context); }

void IsaExecutor::DropCode(const GpuContext& context) {
  std::lock_guard<std::mutex> lock(mutex_);
  code_.erase({context.gpu_index(), context.process_id()});
}

void IsaExecutor::Forget(const GpuContext& context) {
  DropCode(context);
  std::lock_guard<std::mutex> lock(mutex_);
  gws_.erase({context.gpu_index(), context.process_id()});
}

std::shared_ptr<Gws> IsaExecutor::GwsOf(const GpuContext& context) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<Gws>& gws = gws_[{context.gpu_index(), context.process_id()}];
  if (gws == nullptr) gws = std::make_shared<Gws>();
  return gws;
}

LaunchTicket IsaExecutor::TicketOf(const Dispatch& dispatch) {
  LaunchTicket ticket;
  ticket.gpu = dispatch.context->gpu_index();
  ticket.process = dispatch.context->process_id();
  ticket.queue = dispatch.queue_id;
  ticket.acquire = static_cast<uint8_t>(dispatch.acquire);
  ticket.release = static_cast<uint8_t>(dispatch.release);
  ticket.barrier = dispatch.barrier;
  return ticket;
}

StatusOr<std::unique_ptr<Launch>> IsaExecutor::Start(const Dispatch& dispatch) {
  ASSIGN_OR_RETURN(const Code code, CodeOf(*dispatch.context));
  KernelLaunch launch;
  RETURN_IF_ERROR(ReadDescriptor(dispatch.descriptor.data(), &launch));
  launch.entry = dispatch.entry_va;
  launch.grid = dispatch.grid;
  launch.workgroup = dispatch.workgroup;
  launch.kernarg = dispatch.kernarg_va;
  launch.packet = dispatch.packet_va;
  launch.queue = dispatch.queue_va;
  launch.dispatch_id = dispatch.dispatch_id;
  launch.has_user_data = dispatch.has_user_data;
  launch.user_data = dispatch.user_data;
  launch.lds_bytes = dispatch.group_segment_bytes;
  launch.private_bytes = dispatch.private_segment_bytes;
  launch.first_xcc = dispatch.first_xcc;
  launch.seed = dispatch.seed;
  launch.exact_matrix = options_.exact_matrix;
  launch.slice = options_.slice;
  launch.descriptor = dispatch.kernel_object_va;
  const GpuFacts& facts = dispatch.context->facts();
  const ChipLimits limits = {facts.num_xcc,        facts.cus_per_xcc, facts.simds_per_cu,
                             facts.waves_per_simd, facts.lds_bytes,   facts.lds_granule};
  // Checkers look at one wave at a time, and the cache mode stands in its way to memory.
  const bool one = checker_ != nullptr || options_.pace != nullptr;
  const int threads = one ? 1 : options_.threads;
  auto run = std::make_unique<IsaLaunch>(dispatch.context, code.set, code.program,
                                         dispatch.gws ? GwsOf(*dispatch.context) : nullptr, threads);
  launch.observer = options_.observer;
  launch.pace = options_.pace.get();
  launch.ticket = TicketOf(dispatch);
  launch.lines = options_.lines;
  if (checker_ != nullptr) launch.observer = run->CheckWith(checker_.get(), launch.seed);
  if (options_.counts != nullptr) {
    DispatchCounts who;
    who.gpu = dispatch.context->gpu_index();
    who.process = dispatch.context->process_id();
    who.queue = dispatch.queue_id;
    who.dispatch_id = dispatch.dispatch_id;
    who.kernel_object = dispatch.kernel_object_va;
    launch.observer = run->CountInto(options_, who, launch.observer);
  }
  RETURN_IF_ERROR(run->Create(launch, limits));
  return run;
}

}  // namespace mainarch::sim::isa
