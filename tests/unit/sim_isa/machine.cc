// SPDX-License-Identifier: MIT
#include "unit/sim_isa/machine.h"

#include <elf.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "support/test.h"
#include "unit/sim_isa/llvm.h"

namespace mainarch::sim::isa::test {

std::string CompileKernels(Isa isa, const std::string& file, const std::string& flags,
                           std::string* error) {
  const std::string base = mainarch::test::ScratchDirectory() + "/k";
  const std::string source =
      mainarch::test::SourcePath("tests/unit/sim_isa/device/" + file + ".cc");
  const std::string command =
      absl::StrCat("clang-22 -x c++ -std=c++20 --target=amdgcn-amd-amdhsa -mcpu=", CpuName(isa),
                   ":sramecc+:xnack- -nogpulib -ffreestanding -nostdlib -fno-exceptions -fno-rtti "
                   "-fno-threadsafe-statics -munsafe-fp-atomics -mcode-object-version=6 ",
                   flags, " -o ", base, ".hsaco ", source);
  return RunCommand(command, error) ? base + ".hsaco" : "";
}

Machine::Machine(Isa isa, LaneCode code, size_t bytes)
    : set_(isa, code),
      program_(&set_),
      arena_(static_cast<uint8_t*>(std::aligned_alloc(4096, bytes)), std::free),
      size_(bytes) {}

void* Machine::Allocate(size_t bytes) {
  used_ = (used_ + 4095) / 4096 * 4096;
  void* p = arena_.get() + used_;
  used_ += bytes;
  std::memset(p, 0, bytes);
  return p;
}

bool Machine::Load(const std::string& path) {
  elf_ = ReadBytes(path);
  Elf64_Ehdr header;
  if (elf_.size() < sizeof header) {
    error_ = "no code object at " + path;
    return false;
  }
  std::memcpy(&header, elf_.data(), sizeof header);
  const auto* segments = reinterpret_cast<const Elf64_Phdr*>(elf_.data() + header.e_phoff);
  uint64_t end = 0;
  for (int i = 0; i < header.e_phnum; ++i) {
    if (segments[i].p_type == PT_LOAD)
      end = std::max(end, segments[i].p_vaddr + segments[i].p_memsz);
  }
  auto* image = static_cast<uint8_t*>(Allocate(end + 4096));
  load_base_ = reinterpret_cast<uint64_t>(image);
  image_bytes_ = end;
  const Elf64_Dyn* dynamic = nullptr;
  for (int i = 0; i < header.e_phnum; ++i) {
    const Elf64_Phdr& s = segments[i];
    if (s.p_type == PT_LOAD) std::memcpy(image + s.p_vaddr, elf_.data() + s.p_offset, s.p_filesz);
    if (s.p_type == PT_DYNAMIC)
      dynamic = reinterpret_cast<const Elf64_Dyn*>(elf_.data() + s.p_offset);
  }
  uint64_t rela = 0, rela_size = 0;
  for (; dynamic != nullptr && dynamic->d_tag != DT_NULL; ++dynamic) {
    if (dynamic->d_tag == DT_RELA) rela = dynamic->d_un.d_ptr;
    if (dynamic->d_tag == DT_RELASZ) rela_size = dynamic->d_un.d_val;
  }
  for (uint64_t at = 0; at < rela_size; at += sizeof(Elf64_Rela)) {
    Elf64_Rela r;
    std::memcpy(&r, image + rela + at, sizeof r);
    if (ELF64_R_TYPE(r.r_info) != 13) {
      error_ = absl::StrCat("relocation type ", ELF64_R_TYPE(r.r_info));
      return false;
    }
    const uint64_t value = load_base_ + static_cast<uint64_t>(r.r_addend);
    std::memcpy(image + r.r_offset, &value, 8);
  }
  return true;
}

std::vector<uint64_t> Machine::Executed(uint32_t sopp_opcode) {
  std::vector<uint64_t> found;
  for (uint64_t at = 0; at < image_bytes_; at += 4) {
    Program::Chunk* chunk = program_.ChunkOf(load_base_ + at);
    const Op* op = chunk->ops[(load_base_ + at - chunk->base) / 4].load();
    if (op == nullptr || op->inst.row == nullptr || op->inst.row->family != Family::kSopp) continue;
    if (op->inst.row->op == sopp_opcode) found.push_back(at);
  }
  return found;
}

void Machine::Patch(uint64_t offset, uint32_t word) {
  std::memcpy(reinterpret_cast<uint8_t*>(load_base_ + offset), &word, 4);
}

bool Machine::FindKernel(const std::string& name, uint64_t* descriptor) {
  Elf64_Ehdr header;
  std::memcpy(&header, elf_.data(), sizeof header);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(elf_.data() + header.e_shoff);
  for (int i = 0; i < header.e_shnum; ++i) {
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    const auto* names =
        reinterpret_cast<const char*>(elf_.data() + sections[sections[i].sh_link].sh_offset);
    for (uint64_t at = 0; at < sections[i].sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, elf_.data() + sections[i].sh_offset + at, sizeof symbol);
      if (name + ".kd" == names + symbol.st_name) {
        *descriptor = load_base_ + symbol.st_value;
        return true;
      }
    }
  }
  error_ = "no kernel " + name;
  return false;
}

bool Machine::Run(const std::string& kernel, const std::vector<uint64_t>& arguments,
                  const Options& options) {
  uint64_t descriptor;
  if (!FindKernel(kernel, &descriptor)) return false;
  const auto* bytes = reinterpret_cast<const uint8_t*>(descriptor);
  KernelLaunch launch;
  const Status status = ReadDescriptor(bytes, &launch);
  if (!status.ok()) {
    error_ = std::string(status.message());
    return false;
  }
  int64_t entry;
  uint32_t fixed_lds, private_bytes;
  std::memcpy(&fixed_lds, bytes, 4);
  std::memcpy(&private_bytes, bytes + 4, 4);
  std::memcpy(&entry, bytes + 16, 8);
  launch.entry = descriptor + static_cast<uint64_t>(entry);
  launch.grid = options.grid;
  launch.workgroup = options.workgroup;
  launch.lds_bytes = fixed_lds + options.dynamic_lds;
  launch.private_bytes = private_bytes;
  launch.seed = options.seed;
  launch.descriptor = descriptor;
  launch.observer = options.observer;
  launch.lines = options.lines;
  auto* kernarg = New<uint64_t>(arguments.size() + 64);
  std::memcpy(kernarg, arguments.data(), arguments.size() * 8);
  if (options.hidden_arguments) {
    auto* hidden = reinterpret_cast<uint8_t*>(kernarg + arguments.size());
    for (int i = 0; i < 3; ++i) {
      const uint32_t blocks = options.grid[i] / options.workgroup[i];
      const uint16_t size = static_cast<uint16_t>(options.workgroup[i]);
      const uint16_t rest = static_cast<uint16_t>(options.grid[i] % options.workgroup[i]);
      std::memcpy(hidden + 4 * i, &blocks, 4);
      std::memcpy(hidden + 12 + 2 * i, &size, 2);
      std::memcpy(hidden + 18 + 2 * i, &rest, 2);
    }
    hidden[64] = 3;
  }
  launch.kernarg = reinterpret_cast<uint64_t>(kernarg);
  struct SyncedMemory : FlatMemory {
    using FlatMemory::FlatMemory;
    Gws* gws() override { return sync; }
    Gws* sync = nullptr;
  };
  std::vector<std::unique_ptr<SyncedMemory>> memories;
  std::vector<Memory*> pointers;
  for (int i = 0; i < options.threads; ++i) {
    memories.push_back(std::make_unique<SyncedMemory>(reinterpret_cast<uint64_t>(arena_.get()),
                                                      arena_.get(), size_));
    memories.back()->sync = options.gws;
    pointers.push_back(memories.back().get());
  }
  auto grid = Grid::Create(&program_, launch, options.limits, pointers);
  if (!grid.ok()) {
    error_ = std::string(grid.status().message());
    return false;
  }
  // Waiting is advice; only waiting that goes on is a hang.
  for (int waits = 0; waits < 100; ++waits) {
    result = (*grid)->Run(options.budget);
    if (result.state != Grid::State::kWaiting) break;
  }
  instructions_ = (*grid)->instructions();
  if (result.state == Grid::State::kDone) return true;
  error_ = result.detail.empty() ? "did not end" : result.detail;
  return false;
}

namespace {
constexpr size_t kRigBytes = 1 << 20, kCodeBytes = 1 << 19;
}

std::vector<LaneCode> LaneCodes() {
  std::vector<LaneCode> codes;
  for (const LaneCode code : {LaneCode::kPortable, LaneCode::kAvx2, LaneCode::kAvx512}) {
    if (Runs(code)) codes.push_back(code);
  }
  return codes;
}

const char* NameOf(LaneCode code) {
  return code == LaneCode::kPortable ? "portable" : code == LaneCode::kAvx2 ? "avx2" : "avx512";
}

Rig::Rig(Isa isa, LaneCode code)
    : set_(isa, code),
      program_(&set_),
      memory_bytes_(kRigBytes),
      memory_(reinterpret_cast<uint64_t>(memory_bytes_.data()), memory_bytes_.data(), kRigBytes) {
  group_.isa = isa;
  group_.lds.resize(65536);
  group_.registers.reset(static_cast<uint32_t*>(std::aligned_alloc(4096, 512 * kLanes * 4)));
  std::memset(group_.registers.get(), 0, 512 * kLanes * 4);
  group_.scratch.resize(64 * 256);
  group_.waves.resize(1);
  group_.live = 1;
  Wave& w = wave();
  w.v = group_.registers.get();
  w.group = &group_;
  w.memory = &memory_;
  w.scratch = group_.scratch.data();
  w.scratch_bytes = 256;
  w.mode = 0xf0 | 1 << 8 | 1 << 9;
  w.set_exec(~uint64_t{0});
}

bool Rig::Step(const uint8_t* bytes, size_t size) {
  Wave& w = wave();
  // Code lives at the end of memory, each instruction at a fresh address.
  if (code_at_ + 32 > kCodeBytes) return false;
  uint8_t* at = memory_bytes_.data() + kRigBytes - kCodeBytes + code_at_;
  std::memcpy(at, bytes, size);
  code_at_ += 32;
  w.at = w.pc = reinterpret_cast<uint64_t>(at);
  w.state = WaveState::kRunning;
  w.detail.clear();
  Program::Chunk* chunk = program_.ChunkOf(w.at);
  const Op* op = chunk->ops[(w.at - chunk->base) / 4].load();
  if (op == nullptr) op = program_.DecodeAt(w, chunk);
  if (op == nullptr) return false;
  w.pc += op->bytes;
  op->run(w, *op);
  return w.state != WaveState::kStopped;
}

}  // namespace mainarch::sim::isa::test
