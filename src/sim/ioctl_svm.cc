// SPDX-License-Identifier: MIT
//
// Shared virtual memory: GPUs use the client's own memory in place, by attributes of ranges
// (amdkfd/kfd_svm.c). As with XNACK off, a GPU that has access has the range in its page table from
// the call on, writable where the client may write. Memory never migrates: a preferred or prefetch
// location in VRAM is remembered, answered and told to event streams, and the data stays where it is.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "kfd/linux_sys.h"
#include "sim/process.h"

namespace mainarch::sim {
namespace {

namespace uapi = kfd::uapi;

bool IsMapped(uint64_t address, uint64_t size) {
  std::vector<unsigned char> residency(size / kPageSize);
  return mincore(reinterpret_cast<void*>(address), size, residency.data()) == 0;
}

// The client's address space where it may be read, as the kernel has it, neighbours of one kind joined.
struct UserPiece {
  uint64_t start = 0, end = 0;
  bool writable = false;
};
std::vector<UserPiece> UserPieces() {
  constexpr size_t kMostText = 64 << 20;
  std::string text;
  // Without it nothing is known of protections: all of it, then.
  if (kfd::LinuxSys().ReadFile("/proc/self/maps", kMostText, &text) != 0) return {{0, UINT64_MAX, true}};
  std::vector<UserPiece> pieces;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 2));
    const std::vector<absl::string_view> ends = absl::StrSplit(words[0], '-');
    UserPiece piece;
    if (words.size() < 2 || words[1].size() < 2 || words[1][0] != 'r' || ends.size() != 2 ||
        !absl::SimpleHexAtoi(ends[0], &piece.start) || !absl::SimpleHexAtoi(ends[1], &piece.end)) {
      continue;
    }
    piece.writable = words[1][1] == 'w';
    if (!pieces.empty() && pieces.back().end == piece.start && pieces.back().writable == piece.writable) {
      pieces.back().end = piece.end;
    } else {
      pieces.push_back(piece);
    }
  }
  return pieces;
}

bool NamesGpu(const uapi::SvmAttribute& attribute) {
  switch (attribute.type) {
    case uapi::kSvmPreferredLocation:
      return attribute.value != uapi::kSvmLocationSystem &&
             attribute.value != uapi::kSvmLocationUndefined;
    case uapi::kSvmPrefetchLocation:
      return attribute.value != uapi::kSvmLocationSystem;
    case uapi::kSvmAccess:
    case uapi::kSvmAccessInPlace:
    case uapi::kSvmNoAccess:
      return true;
    default:
      return false;
  }
}

}  // namespace

int Process::CheckSvm(const uapi::SvmArgs& args, absl::Span<const uapi::SvmAttribute> attributes) {
  for (const uapi::SvmAttribute& one : attributes) {
    uint32_t gpu = 0;
    if (one.type > uapi::kSvmGranularity) return -EINVAL;
    // In a question neither stands for anything.
    if (args.op == uapi::kSvmOpGet &&
        (one.type == uapi::kSvmAccessInPlace || one.type == uapi::kSvmNoAccess)) {
      return -EINVAL;
    }
    const bool asks_location = args.op == uapi::kSvmOpGet && one.type <= uapi::kSvmPrefetchLocation;
    if (!asks_location && NamesGpu(one) &&
        (KnownGpu(one.value, &gpu) != 0 || vms_[gpu]->drm_file == 0)) {
      return -EINVAL;
    }
  }
  if (!IsMapped(args.start_addr, args.size)) return -EFAULT;
  for (const auto& vm : vms_) {
    for (const auto& [id, buffer] : vm->buffers) {
      if (buffer->va < args.start_addr + args.size && args.start_addr < buffer->va + buffer->size) {
        return -EADDRINUSE;
      }
    }
  }
  return 0;
}

int Process::Svm(uapi::SvmArgs& args, uint32_t block_bytes) {
  const uint64_t start = args.start_addr, size = args.size;
  if (start % kPageSize != 0 || size % kPageSize != 0 || start == 0 || size == 0) return -EINVAL;
  if (start + size < start || start + size - 1 > kGpuVmLimit) return -EINVAL;
  auto* first = reinterpret_cast<uapi::SvmAttribute*>(&args + 1);
  if (block_bytes < sizeof args + uint64_t{args.nattr} * sizeof *first) return -EINVAL;
  if (args.op > uapi::kSvmOpGet) return -EINVAL;
  const auto attributes = absl::MakeSpan(first, args.nattr);
  if (const int error = CheckSvm(args, attributes); error != 0) return error;
  if (args.op == uapi::kSvmOpGet) return GetSvm(start, start + size, attributes);
  SetSvm(start, start + size, attributes);
  for (const uapi::SvmAttribute& one : attributes) {
    if (one.type == uapi::kSvmPrefetchLocation) ReportMigrations(start, start + size);
  }
  Gate::Closed closed(node_->gate_);
  MapSvm(start, start + size);
  return 0;
}

void Process::SplitSvm(uint64_t at) {
  auto next = svm_.upper_bound(at);
  if (next == svm_.begin()) return;
  auto& [start, range] = *std::prev(next);
  if (start == at || range.end <= at) return;
  SvmRange upper = range;
  range.end = at;
  svm_.emplace(at, std::move(upper));
  ++user_ranges_;
}

void Process::SetSvm(uint64_t start, uint64_t end,
                     absl::Span<const uapi::SvmAttribute> attributes) {
  SplitSvm(start);
  SplitSvm(end);
  for (uint64_t at = start; at < end;) {
    const auto next = svm_.lower_bound(at);
    if (next == svm_.end() || next->first > at) {
      SvmRange fresh;
      fresh.end = next == svm_.end() ? end : std::min(end, next->first);
      at = svm_.emplace(at, std::move(fresh)).first->second.end;
      ++user_ranges_;
    } else {
      at = next->second.end;
    }
  }
  for (auto one = svm_.find(start); one != svm_.end() && one->first < end; ++one) {
    SvmRange& range = one->second;
    for (const uapi::SvmAttribute& a : attributes) {
      uint32_t gpu = 0;
      if (NamesGpu(a)) KnownGpu(a.value, &gpu);
      if (a.type == uapi::kSvmPreferredLocation) range.preferred = a.value;
      if (a.type == uapi::kSvmPrefetchLocation) range.prefetch = a.value;
      if (a.type >= uapi::kSvmAccess && a.type <= uapi::kSvmNoAccess) {
        range.access.erase(gpu);
        range.in_place.erase(gpu);
        if (a.type == uapi::kSvmAccess) range.access.insert(gpu);
        if (a.type == uapi::kSvmAccessInPlace) range.in_place.insert(gpu);
      }
      if (a.type == uapi::kSvmSetFlags) range.flags |= a.value;
      if (a.type == uapi::kSvmClearFlags) range.flags &= ~a.value;
      if (a.type == uapi::kSvmGranularity) range.granularity = std::min(a.value, 63u);
    }
  }
}

// Tells the event streams of the migrations that a prefetch is (kfd_smi_events.c; the lines' form is
// in the UAPI header, KFD_EVENT_FMT_MIGRATE_START and _END). The driver gets here only where the data
// is elsewhere.
void Process::ReportMigrations(uint64_t start, uint64_t end) {
  constexpr int kPrefetchTrigger = 0;  // enum kfd_smi_migrate… of the UAPI header
  for (auto one = svm_.lower_bound(start); one != svm_.end() && one->first < end; ++one) {
    SvmRange& range = one->second;
    const uint32_t to = range.prefetch, from = range.location;
    uint32_t gpu = 0;
    if (to == from || KnownGpu(to == uapi::kSvmLocationSystem ? from : to, &gpu) != 0) continue;
    range.location = to;
    // Addresses and sizes count pages; a location is a gpu_id, 0 the host.
    const std::string where = absl::StrCat("-", getpid(), " @", absl::Hex(one->first / kPageSize), "(",
                                           absl::Hex((range.end - one->first) / kPageSize), ") ",
                                           absl::Hex(from), "->", absl::Hex(to), " ");
    ReportSmi(gpu, uapi::kSmiMigrateStart,
              absl::StrCat(NowNs(), " ", where, absl::Hex(to), ":", absl::Hex(range.preferred), " ", kPrefetchTrigger));
    ReportSmi(gpu, uapi::kSmiMigrateEnd, absl::StrCat(NowNs(), " ", where, kPrefetchTrigger, " 0"));
  }
}

// Over several ranges: what all of them agree on.
int Process::GetSvm(uint64_t start, uint64_t end, absl::Span<uapi::SvmAttribute> attributes) {
  SvmRange common;
  uint32_t flags_or = 0;
  bool first = true;
  auto one = svm_.upper_bound(start);
  if (one != svm_.begin() && std::prev(one)->second.end > start) --one;
  for (; one != svm_.end() && one->first < end; ++one) {
    const SvmRange& range = one->second;
    flags_or |= range.flags;
    if (first) {
      common = range;
      first = false;
      continue;
    }
    if (common.preferred != range.preferred) common.preferred = uapi::kSvmLocationUndefined;
    if (common.prefetch != range.prefetch) common.prefetch = uapi::kSvmLocationUndefined;
    for (auto* sets : {&common.access, &common.in_place}) {
      const auto& other = sets == &common.access ? range.access : range.in_place;
      std::set<uint32_t> both;
      std::set_intersection(sets->begin(), sets->end(), other.begin(), other.end(),
                            std::inserter(both, both.end()));
      *sets = std::move(both);
    }
    common.flags &= range.flags;
    common.granularity = std::min(common.granularity, range.granularity);
  }
  if (first) flags_or = common.flags;
  for (uapi::SvmAttribute& a : attributes) {
    uint32_t gpu = 0;
    if (a.type == uapi::kSvmPreferredLocation) a.value = common.preferred;
    if (a.type == uapi::kSvmPrefetchLocation) a.value = common.prefetch;
    if (a.type == uapi::kSvmSetFlags) a.value = common.flags;
    if (a.type == uapi::kSvmClearFlags) a.value = ~flags_or;
    if (a.type == uapi::kSvmGranularity) a.value = common.granularity;
    if (a.type == uapi::kSvmAccess && KnownGpu(a.value, &gpu) == 0) {
      a.type = common.access.count(gpu) != 0     ? uapi::kSvmAccess
               : common.in_place.count(gpu) != 0 ? uapi::kSvmAccessInPlace
                                                 : uapi::kSvmNoAccess;
    }
  }
  return 0;
}

// With the gate closed: no GPU writes while the client's own right to goes.
int Process::ProtectUserMemory(void* address, size_t size, int protection) {
  const uint64_t start = reinterpret_cast<uint64_t>(address);
  if (user_ranges_.load() == 0) return mprotect(address, size, protection) == 0 ? 0 : -errno;
  std::lock_guard lock(node_->mutex());
  Gate::Closed closed(node_->gate_);
  if (mprotect(address, size, protection) != 0) return -errno;
  if (OverlapsSvm(start, size)) MapSvm(start, start + size);
  return 0;
}

void Process::MapSvm(uint64_t start, uint64_t end) {
  node_->TablesChanged();
  // Mappings that reach out of [start, end) go as a whole, so what is looked for are holes, in all ranges.
  const std::vector<UserPiece> pieces = svm_.empty() ? std::vector<UserPiece>() : UserPieces();
  for (auto& vm : vms_) {
    vm->table.DropSvm(start, end);
    for (const auto& [at, range] : svm_) {
      const uint32_t gpu = vm->gpu_index();
      if (range.access.count(gpu) == 0 && range.in_place.count(gpu) == 0) continue;
      auto piece = std::upper_bound(pieces.begin(), pieces.end(), at, [](uint64_t va, const UserPiece& p) { return va < p.end; });
      for (; piece != pieces.end() && piece->start < range.end; ++piece) {
        FillSvm(*vm, range, std::max(at, piece->start), std::min(range.end, piece->end), piece->writable);
      }
    }
  }
}

// What of [start, end) is not mapped yet.
void Process::FillSvm(GpuVm& vm, const SvmRange& range, uint64_t start, uint64_t end,
                      bool writable) {
  for (uint64_t at = start; at < end;) {
    if (const VmMapping* mapped = vm.table.Find(at); mapped != nullptr) {
      at = mapped->va + mapped->size;
      continue;
    }
    VmMapping mapping;
    mapping.va = at;
    mapping.size = vm.table.HoleEnd(at, end) - at;
    mapping.host = reinterpret_cast<uint8_t*>(at);
    const bool ext = (range.flags & uapi::kSvmExtCoherent) != 0;
    mapping.mtype = MtypeOf(node_->profile().facts, ext ? uapi::kAllocExtCoherent : 0, false);
    mapping.writable = writable && (range.flags & uapi::kSvmGpuReadOnly) == 0;
    mapping.executable = (range.flags & uapi::kSvmGpuExecutable) != 0;
    mapping.system_memory = true;
    mapping.svm = true;
    at += mapping.size;
    vm.table.Map(std::move(mapping));
  }
}

void Process::DropSvm(uint64_t start, uint64_t end) {
  if (!OverlapsSvm(start, end - start)) return;
  SplitSvm(start);
  SplitSvm(end);
  for (auto one = svm_.lower_bound(start); one != svm_.end() && one->first < end;) {
    one = svm_.erase(one);
    --user_ranges_;
  }
  Gate::Closed closed(node_->gate_);
  MapSvm(start, end);
}

bool Process::OverlapsSvm(uint64_t start, uint64_t size) const {
  const auto next = svm_.lower_bound(start + size);
  return next != svm_.begin() && std::prev(next)->second.end > start;
}

// May a queue keep its save area here? Every part must be this GPU's for good.
bool Process::IsQueueSvm(uint64_t start, uint64_t size, uint32_t gpu) const {
  uint64_t at = start;
  while (at < start + size) {
    const auto next = svm_.upper_bound(at);
    if (next == svm_.begin()) return false;
    const SvmRange& range = std::prev(next)->second;
    if (range.end <= at || (range.flags & uapi::kSvmGpuAlwaysMapped) == 0) return false;
    if (range.access.count(gpu) == 0 && range.in_place.count(gpu) == 0) return false;
    at = range.end;
  }
  return true;
}

}  // namespace mainarch::sim
