// SPDX-License-Identifier: MIT
#include "unit/kernels/executor_runner.h"

#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "isa/chip.h"
#include "sim/poison.h"

namespace mainarch::kernels_test {

struct ExecutorRunner::Mapping {
  uint64_t begin = 0, end = 0;
  std::unique_ptr<uint8_t, void (*)(void*)> host = {nullptr, std::free};
  uint32_t device = 0;
  Home home = Home::kVram;
  bool executable = false;
};

struct ExecutorRunner::Loaded {
  uint32_t device = 0;
  uint64_t base = 0;
  std::map<std::string, uint64_t> symbols;  // address within the object
};

class ExecutorRunner::Context : public sim::GpuContext {
 public:
  Context(ExecutorRunner* runner, uint32_t index) : runner_(runner), index_(index) {
    const isa::ChipFacts& chip = runner->isa_ == "gfx942" ? isa::kGfx942 : isa::kGfx950;
    facts_.gfx_target_version = chip.gfx_target_version;
    facts_.num_xcc = 2;
    facts_.cus_per_xcc = 4;
    facts_.lds_bytes = chip.lds_bytes;
    facts_.lds_granule = chip.lds_granule;
    facts_.system_memory_nc = chip.system_memory_is_cached;
  }
  const sim::GpuFacts& facts() const override { return facts_; }
  uint32_t gpu_index() const override { return index_; }
  uint32_t process_id() const override { return 1; }
  bool Translate(uint64_t va, sim::Access access, sim::Window* window,
                 sim::MemoryFault* fault) const override {
    const Mapping* m = runner_->Find(va);
    *fault = {va, m == nullptr, false, false};
    if (m == nullptr) return false;
    if (access == sim::Access::kExecute && !m->executable) {
      fault->no_execute = true;
      return false;
    }
    *window = {m->host.get() + (va - m->begin), m->end - va,     va - m->begin,
               MtypeOf(*m),                     true,            m->executable,
               m->home == Home::kHost,          m->device};
    return true;
  }
  uint64_t epoch() const override { return runner_->epoch_; }
  uint64_t Clock() const override { return ++runner_->clock_; }
  void Interrupt(uint32_t) override {}
  uint64_t trap_handler_va() const override { return 0; }
  uint64_t trap_memory_va() const override { return 0; }

 private:
  sim::Mtype MtypeOf(const Mapping& m) const {
    if (m.home == Home::kUncached) return sim::Mtype::kUc;
    if (m.home == Home::kHost) return facts_.system_memory_nc ? sim::Mtype::kNc : sim::Mtype::kUc;
    return m.device == index_ ? sim::Mtype::kRw : sim::Mtype::kNc;
  }

  ExecutorRunner* runner_;
  uint32_t index_;
  sim::GpuFacts facts_;
};

StatusOr<std::unique_ptr<ExecutorRunner>> ExecutorRunner::Create(
    std::unique_ptr<sim::Executor> executor, const std::string& isa,
    const ExecutorOptions& options) {
  auto runner = std::unique_ptr<ExecutorRunner>(new ExecutorRunner);
  runner->isa_ = isa;
  runner->options_ = options;
  runner->executor_ = std::move(executor);
  for (uint32_t i = 0; i < options.devices; ++i) {
    runner->contexts_.push_back(std::make_unique<Context>(runner.get(), i));
  }
  return runner;
}

ExecutorRunner::~ExecutorRunner() {
  for (const auto& context : contexts_) executor_->Forget(*context);
}

StatusOr<uint64_t> ExecutorRunner::Map(uint32_t device, Home home, size_t bytes, bool executable) {
  if (device >= contexts_.size()) {
    return Error(Code::kInvalidArgument, "device ", device, " of ", contexts_.size());
  }
  Mapping m;
  m.begin = next_;
  m.end = next_ + bytes;
  m.host.reset(static_cast<uint8_t*>(std::calloc(std::max<size_t>(bytes, 1), 1)));
  sim::Poison(m.begin, m.host.get(), bytes);
  m.device = device;
  m.home = home;
  m.executable = executable;
  next_ = (m.end + 0x1ffff) & ~uint64_t{0xffff};  // at least 64 KiB of nothing between two
  ++epoch_;
  if (options_.mapped) {
    options_.mapped(m.begin, m.end,
                    home == Home::kVram || (home == Home::kHost && isa_ != "gfx942"));
  }
  const uint64_t begin = m.begin;
  mappings_.emplace(m.end, std::move(m));
  return begin;
}

const ExecutorRunner::Mapping* ExecutorRunner::Find(uint64_t address) const {
  const auto found = mappings_.upper_bound(address);
  return found != mappings_.end() && address >= found->second.begin ? &found->second : nullptr;
}

StatusOr<uint64_t> ExecutorRunner::Allocate(uint32_t device, Home home, size_t bytes) {
  return Map(device, home, bytes, false);
}

Status ExecutorRunner::Write(uint64_t address, absl::Span<const uint8_t> bytes) {
  if (bytes.empty()) return OkStatus();
  const Mapping* m = Find(address);
  if (m == nullptr || bytes.size() > m->end - address) {
    return Error(Code::kInvalidArgument, "write of ", bytes.size(), " bytes beyond a buffer");
  }
  std::memcpy(m->host.get() + (address - m->begin), bytes.data(), bytes.size());
  return OkStatus();
}

Status ExecutorRunner::Read(uint64_t address, absl::Span<uint8_t> bytes) {
  if (bytes.empty()) return OkStatus();
  const Mapping* m = Find(address);
  if (m == nullptr || bytes.size() > m->end - address) {
    return Error(Code::kInvalidArgument, "read of ", bytes.size(), " bytes beyond a buffer");
  }
  std::memcpy(bytes.data(), m->host.get() + (address - m->begin), bytes.size());
  return OkStatus();
}

// The objects are our own build's, so this only places segments and reads the dynamic symbols.
StatusOr<const ExecutorRunner::Loaded*> ExecutorRunner::Load(const LaunchRequest& request) {
  std::vector<Loaded>& all = loaded_[request.object.data()];
  for (const Loaded& loaded : all) {
    if (loaded.device == request.device) return &loaded;
  }
  const uint8_t* elf = request.object.data();
  Elf64_Ehdr header;
  std::memcpy(&header, elf, sizeof(header));
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  std::memcpy(segments.data(), elf + header.e_phoff, segments.size() * sizeof(Elf64_Phdr));
  uint64_t end = 0;
  for (const Elf64_Phdr& s : segments) {
    if (s.p_type == PT_LOAD) end = std::max(end, s.p_vaddr + s.p_memsz);
  }
  Loaded loaded;
  loaded.device = request.device;
  ASSIGN_OR_RETURN(loaded.base, Map(request.device, Home::kVram, end + 256, true));
  if (options_.loaded) options_.loaded(loaded.base, loaded.base + end, request.object);
  for (const Elf64_Phdr& s : segments) {
    if (s.p_type != PT_LOAD) continue;
    RETURN_IF_ERROR(Write(loaded.base + s.p_vaddr, {elf + s.p_offset, s.p_filesz}));
  }
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), elf + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  for (const Elf64_Shdr& s : sections) {
    if (s.sh_type != SHT_DYNSYM) continue;
    const char* names = reinterpret_cast<const char*>(elf + sections[s.sh_link].sh_offset);
    std::vector<Elf64_Sym> symbols(s.sh_size / sizeof(Elf64_Sym));
    std::memcpy(symbols.data(), elf + s.sh_offset, s.sh_size);
    for (const Elf64_Sym& symbol : symbols) {
      loaded.symbols[names + symbol.st_name] = symbol.st_value;
    }
  }
  all.push_back(std::move(loaded));
  return &all.back();
}

StatusOr<sim::Dispatch> ExecutorRunner::Prepare(const LaunchRequest& request) {
  ASSIGN_OR_RETURN(const Loaded* loaded, Load(request));
  const auto symbol = loaded->symbols.find(request.kernel + ".kd");
  if (symbol == loaded->symbols.end()) {
    return Error(Code::kNotFound, "the object has no kernel ", request.kernel);
  }
  sim::Dispatch d;
  d.context = contexts_[request.device].get();
  d.kernel_object_va = loaded->base + symbol->second;
  RETURN_IF_ERROR(Read(d.kernel_object_va, absl::MakeSpan(d.descriptor)));
  uint32_t lds, scratch, kernarg_size;
  int64_t entry;
  std::memcpy(&lds, &d.descriptor[0], 4);
  std::memcpy(&scratch, &d.descriptor[4], 4);
  std::memcpy(&kernarg_size, &d.descriptor[8], 4);
  std::memcpy(&entry, &d.descriptor[16], 8);
  // Unoptimised kernels also declare the 256 bytes of hidden arguments, which none of ours reads.
  constexpr uint32_t kHidden = 256;
  std::vector<uint8_t> kernarg = request.kernarg;
  if (kernarg_size == (kernarg.size() + 7) / 8 * 8 + kHidden) kernarg.resize(kernarg_size);
  if (kernarg_size != kernarg.size()) {
    return Error(Code::kInvalidArgument, "kernel ", request.kernel, " takes ", kernarg_size,
                 " bytes of arguments, not ", kernarg.size());
  }
  d.entry_va = d.kernel_object_va + static_cast<uint64_t>(entry);
  ASSIGN_OR_RETURN(d.kernarg_va, Map(request.device, Home::kHost, kernarg.size(), false));
  RETURN_IF_ERROR(Write(d.kernarg_va, kernarg));
  d.grid = {request.workgroups * request.threads, 1, 1};
  d.workgroup = {request.threads, 1, 1};
  d.private_segment_bytes = scratch;
  d.group_segment_bytes = lds + request.dynamic_lds_bytes;
  d.seed = options_.seed;
  if (scratch != 0) {
    const sim::GpuFacts& facts = d.context->facts();
    d.scratch_wave_bytes = (scratch * 64 + 1023) & ~1023u;
    d.scratch_waves = facts.cus_per_xcc * facts.scratch_slots_per_cu;
    d.scratch_bytes_per_xcc = uint64_t{d.scratch_wave_bytes} * d.scratch_waves;
    ASSIGN_OR_RETURN(d.scratch_va, Map(request.device, Home::kVram,
                                       d.scratch_bytes_per_xcc * facts.num_xcc, false));
  }
  return d;
}

Status ExecutorRunner::Launch(absl::Span<const LaunchRequest> together) {
  std::vector<sim::Dispatch> dispatches;
  for (const LaunchRequest& request : together) {
    ASSIGN_OR_RETURN(sim::Dispatch dispatch, Prepare(request));
    dispatches.push_back(dispatch);
  }
  std::vector<std::unique_ptr<sim::Launch>> launches;
  for (const sim::Dispatch& d : dispatches) {
    executor_->Acquire(*d.context, sim::Scope::kSystem);
    ASSIGN_OR_RETURN(std::unique_ptr<sim::Launch> launch, executor_->Start(d));
    launches.push_back(std::move(launch));
  }
  size_t left = launches.size();
  uint64_t spent = 0;
  for (; left > 0; spent += options_.slice) {
    if (spent > options_.limit) {
      return Error(Code::kTimedOut, together[0].kernel, " has not ended after ", spent,
                   " wave-instructions");
    }
    for (size_t i = 0; i < launches.size(); ++i) {
      if (launches[i] == nullptr) continue;
      const sim::Progress progress = launches[i]->Run(options_.slice);
      using State = sim::Progress::State;
      if (progress.state == State::kFault) {
        return Error(Code::kInternal, together[i].kernel, ": page fault at ",
                     absl::Hex(progress.fault.va), " ", progress.detail);
      }
      if (progress.state == State::kException) {
        return Error(Code::kInternal, together[i].kernel, ": exception ",
                     static_cast<int>(progress.exception), " ", progress.detail);
      }
      if (progress.state != State::kDone) continue;
      executor_->Release(*dispatches[i].context, sim::Scope::kSystem);
      launches[i] = nullptr;
      --left;
    }
  }
  if (options_.most != nullptr) *options_.most = std::max(*options_.most, spent);
  return OkStatus();
}

}  // namespace mainarch::kernels_test
