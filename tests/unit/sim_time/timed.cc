// SPDX-License-Identifier: MIT
#include "unit/sim_time/timed.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "unit/sim_isa/llvm.h"

namespace mainarch::sim::timing::test {

isa::ChipLimits LimitsOf(isa::Isa isa) {
  isa::ChipLimits limits;
  if (isa == isa::Isa::kGfx942) {
    limits.cus_per_xcc = 38;
    limits.lds_bytes = 65536;
    limits.lds_granule = 512;
  }
  return limits;
}

bool PlacedMemory::Translate(uint64_t va, bool write, bool execute, isa::View* view,
                             isa::AccessFault* fault) {
  if (va < base_ || va >= base_ + bytes_) {
    *fault = {va, write, execute, true, false, false};
    return false;
  }
  uint64_t begin = base_, end = base_ + bytes_;
  isa::Where where;
  for (const Part& part : parts_) {
    if (va >= part.begin && va < part.end) {
      begin = part.begin, end = part.end, where = part.where;
      break;
    }
    if (part.begin > va) end = std::min(end, part.begin);
    if (part.end <= va) begin = std::max(begin, part.end);
  }
  *view = {begin, end, reinterpret_cast<uint8_t*>(begin), true, true, where};
  return true;
}

Timed::Timed(isa::Isa isa, const ClockOptions& options, uint64_t bytes)
    : set_(isa, isa::BestLaneCode()),
      program_(&set_),
      clock_(std::make_unique<timing::Clock>(options)),
      bytes_(bytes) {
  arena_ = static_cast<uint8_t*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  madvise(arena_, bytes, MADV_HUGEPAGE);
  memory_ = std::make_unique<PlacedMemory>(reinterpret_cast<uint64_t>(arena_), bytes);
}

Timed::~Timed() { munmap(arena_, bytes_); }

uint64_t Timed::Allocate(uint64_t bytes) {
  const uint64_t at = used_;
  used_ = (used_ + bytes + 4095) / 4096 * 4096;
  return used_ <= bytes_ ? reinterpret_cast<uint64_t>(arena_) + at : 0;
}

std::string Timed::Start(const std::string& text, const std::vector<uint64_t>& arguments,
                         const Shape& shape, std::unique_ptr<isa::Grid>* grid) {
  uint64_t code = 0;
  for (const auto& [known, at] : code_) {
    if (known == text) code = at;
  }
  if (code == 0) {
    std::string error;
    const std::vector<uint8_t> bytes = isa::test::Assemble(set_.isa(), text + "\ns_endpgm\n", &error);
    if (bytes.empty()) return "does not assemble: " + error;
    code = Allocate(bytes.size() + 4096);
    std::memcpy(At<uint8_t>(code), bytes.data(), bytes.size());
    code_.emplace_back(text, code);
  }
  const uint64_t kernarg = Allocate(std::max<size_t>(arguments.size() * 8, 8));
  std::memcpy(At<uint8_t>(kernarg), arguments.data(), arguments.size() * 8);
  isa::KernelLaunch launch;
  launch.entry = code;
  launch.kernarg = kernarg;
  launch.properties = 8;
  launch.rsrc1 = (shape.registers + 7) / 8 - 1;
  launch.rsrc1 |= 0xf0 << 12;
  launch.rsrc2 = 2 << 1 | 1 << 7;
  launch.rsrc3 = 63;
  launch.grid = {shape.groups * shape.threads, 1, 1};
  launch.workgroup = {shape.threads, 1, 1};
  launch.lds_bytes = shape.lds;
  launch.observer = shape.observer;
  launch.pace = shape.timed ? clock_.get() : nullptr;
  launch.ticket.gpu = shape.gpu;
  launch.ticket.acquire = shape.acquire;
  launch.ticket.release = shape.release;
  auto made = isa::Grid::Create(&program_, launch, LimitsOf(set_.isa()), {shape.memory == nullptr ? memory_.get() : shape.memory});
  if (!made.ok()) return std::string(made.status().message());
  *grid = std::move(*made);
  return "";
}

std::string Timed::Run(const std::string& text, const std::vector<uint64_t>& arguments,
                       const Shape& shape, LaunchReport* report) {
  std::unique_ptr<isa::Grid> grid;
  std::string error = Start(text, arguments, shape, &grid);
  if (!error.empty()) return error;
  isa::GridResult result;
  for (int turn = 0; turn < 100'000; ++turn) {
    result = grid->Run(shape.slice);
    if (result.state != isa::GridState::kRunning && result.state != isa::GridState::kWaiting) break;
  }
  if (result.state != isa::GridState::kDone) return "did not end: " + result.detail;
  const std::vector<LaunchReport> reports = clock_->Take();
  if (!shape.timed) return "";
  if (reports.size() != 1) return "no report";
  if (report != nullptr) *report = reports[0];
  return "";
}

}  // namespace mainarch::sim::timing::test
