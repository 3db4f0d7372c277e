// SPDX-License-Identifier: MIT
#include "isa_rig.h"

#include <elf.h>

#include <cstdlib>
#include <cstring>

#include "isa/chip.h"
#include "isa/kernel_images.h"

namespace mainarch::bench {

using sim::isa::FlatMemory;
using sim::isa::Grid;
using sim::isa::Isa;
using sim::isa::KernelLaunch;

namespace {
const char* NameOf(Isa isa) { return isa == Isa::kGfx942 ? "gfx942" : "gfx950"; }
sim::isa::ChipLimits LimitsOf(Isa which) {
  sim::isa::ChipLimits limits;
  const isa::ChipFacts& chip = which == Isa::kGfx942 ? isa::kGfx942 : isa::kGfx950;
  limits.lds_bytes = chip.lds_bytes, limits.lds_granule = chip.lds_granule;
  return limits;
}
}  // namespace

IsaRig::IsaRig(Isa isa, sim::isa::LaneCode lanes, size_t bytes)
    : set_(isa, lanes),
      program_(&set_),
      arena_(static_cast<uint8_t*>(std::aligned_alloc(4096, bytes)), std::free),
      size_(bytes) {
  std::memset(arena_.get(), 0, size_);
}

uint8_t* IsaRig::Allocate(size_t bytes) {
  used_ = (used_ + 255) / 256 * 256;
  uint8_t* p = arena_.get() + used_;
  used_ += bytes;
  if (used_ > size_) std::abort();  // the benchmark asks for more than it said
  return p;
}

uint16_t* IsaRig::RandomBf16(size_t count) {
  auto* out = New<uint16_t>(count);
  for (size_t i = 0; i < count; ++i) {
    random_ = random_ * 6364136223846793005 + 1442695040888963407;
    const float x = static_cast<float>(static_cast<int32_t>(random_ >> 32)) * 0x1p-31f;
    out[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, x) >> 16);
  }
  return out;
}

uint8_t* IsaRig::RandomBytes(size_t count) {
  uint8_t* out = Allocate(count);
  for (size_t i = 0; i < count; ++i) {
    random_ = random_ * 6364136223846793005 + 1442695040888963407;
    out[i] = static_cast<uint8_t>(random_ >> 56);
  }
  return out;
}

StatusOr<uint64_t> IsaRig::Load(absl::Span<const uint8_t> elf) {
  if (const auto it = loaded_.find(elf.data()); it != loaded_.end()) return it->second;
  Elf64_Ehdr header;
  std::memcpy(&header, elf.data(), sizeof header);
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  std::memcpy(segments.data(), elf.data() + header.e_phoff, segments.size() * sizeof(Elf64_Phdr));
  uint64_t end = 0;
  for (const Elf64_Phdr& s : segments) {
    if (s.p_type == PT_LOAD) end = std::max(end, s.p_vaddr + s.p_memsz);
  }
  used_ = (used_ + 4095) / 4096 * 4096;
  uint8_t* image = Allocate(end + 256);
  for (const Elf64_Phdr& s : segments) {
    if (s.p_type == PT_LOAD) std::memcpy(image + s.p_vaddr, elf.data() + s.p_offset, s.p_filesz);
  }
  return loaded_[elf.data()] = reinterpret_cast<uint64_t>(image);
}

StatusOr<Prepared> IsaRig::PrepareBytes(const std::string& kernel,
                                        absl::Span<const uint8_t> kernarg, uint32_t workgroups) {
  ASSIGN_OR_RETURN(const isa::KernelRef ref, isa::FindKernel(NameOf(set_.isa()), kernel));
  const absl::Span<const uint8_t> elf = ref.image->bytes;
  ASSIGN_OR_RETURN(const uint64_t base, Load(elf));
  Elf64_Ehdr header;
  std::memcpy(&header, elf.data(), sizeof header);
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  std::memcpy(sections.data(), elf.data() + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  for (const Elf64_Shdr& s : sections) {
    if (s.sh_type != SHT_DYNSYM) continue;
    const auto* names = reinterpret_cast<const char*>(elf.data() + sections[s.sh_link].sh_offset);
    for (uint64_t at = 0; at < s.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, elf.data() + s.sh_offset + at, sizeof symbol);
      if (names + symbol.st_name != kernel + ".kd") continue;
      const auto* descriptor = reinterpret_cast<const uint8_t*>(base + symbol.st_value);
      Prepared out;
      out.kernel = kernel;
      RETURN_IF_ERROR(sim::isa::ReadDescriptor(descriptor, &out.launch));
      int64_t entry;
      std::memcpy(&out.launch.lds_bytes, descriptor, 4);
      std::memcpy(&entry, descriptor + 16, 8);
      out.launch.entry = base + symbol.st_value + static_cast<uint64_t>(entry);
      out.launch.grid = {workgroups * kernels::kThreads, 1, 1};
      out.launch.workgroup = {kernels::kThreads, 1, 1};
      uint8_t* arguments = Allocate(kernarg.size());
      std::memcpy(arguments, kernarg.data(), kernarg.size());
      out.launch.kernarg = reinterpret_cast<uint64_t>(arguments);
      return out;
    }
  }
  return Error(Code::kNotFound, "the object has no kernel ", kernel);
}

Prepared IsaRig::PrepareCode(absl::Span<const uint32_t> words, uint32_t workgroups) {
  auto* code = New<uint32_t>(words.size());
  std::memcpy(code, words.data(), words.size() * 4);
  Prepared out;
  out.kernel = "bare code";
  out.launch.entry = reinterpret_cast<uint64_t>(code);
  out.launch.grid = {workgroups * 64, 1, 1};
  out.launch.workgroup = {64, 1, 1};
  out.launch.lds_bytes = 65536;
  out.launch.rsrc1 = 0x00af0000 | 31;  // 256 registers, the usual modes
  out.launch.rsrc3 = 63;
  return out;
}

Status IsaRig::Run(const Prepared& prepared, int threads, uint64_t* instructions) {
  std::vector<std::unique_ptr<FlatMemory>> memories;
  std::vector<sim::isa::Memory*> pointers;
  for (int i = 0; i < threads; ++i) {
    memories.push_back(std::make_unique<FlatMemory>(reinterpret_cast<uint64_t>(arena_.get()),
                                                    arena_.get(), size_));
    pointers.push_back(memories.back().get());
  }
  KernelLaunch launch = prepared.launch;
  launch.pace = pace_;
  ASSIGN_OR_RETURN(const std::unique_ptr<Grid> grid,
                   Grid::Create(&program_, launch, LimitsOf(set_.isa()), pointers));
  // Waiting is advice; only waiting that goes on is a hang.
  Grid::Result result;
  for (int turn = 0; turn < 10'000; ++turn) {
    result = grid->Run(~uint64_t{0} >> 1);
    if (result.state != Grid::State::kWaiting) break;
  }
  if (result.state != Grid::State::kDone) {
    return Error(Code::kInternal, prepared.kernel, " did not end: ", result.detail);
  }
  *instructions += grid->instructions();
  return OkStatus();
}

}  // namespace mainarch::bench
