// SPDX-License-Identifier: MIT
//
// Queue calls of the driver. The strictest of all: a buffer that is not exactly what the hardware
// was told is refused here rather than corrupted at the first preemption.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "sim/aql_queue.h"
#include "sim/pm4_queue.h"
#include "sim/process.h"
#include "sim/sdma_queue.h"

namespace mainarch::sim {
namespace {

namespace uapi = kfd::uapi;

constexpr uint64_t kUserLimit = uint64_t{1} << 47;
constexpr uint32_t kQueuesPerProcess = 1024;
constexpr uint32_t kQueuesPerGpu = 255;  // GC 9.4.3 and later; 127 before
constexpr uint32_t kQueuesPerOldGpu = 127;
constexpr uint32_t kSdmaDoorbellFirst = 0x100;  // amdgpu/amdgpu_doorbell.h: SDMA, IH, VCN
constexpr uint32_t kSdmaDoorbellLast = 0x1e8;
constexpr uint32_t kSecondWindow = 512;

bool IsSdma(uint32_t type) {
  return type == uapi::kQueueTypeSdma || type == uapi::kQueueTypeSdmaXgmi ||
         type == uapi::kQueueTypeSdmaByEngId;
}

// access_ok: the range is user space, whether or not anything is mapped there.
bool AccessOk(uint64_t address, uint64_t size) {
  return address < kUserLimit && size <= kUserLimit - address;
}

}  // namespace

int Process::CheckQueueProperties(uapi::CreateQueueArgs& args) {
  if ((args.queue_percentage & 0xff) > uapi::kMaxQueuePercentage) return -EINVAL;
  if (args.queue_priority > uapi::kMaxQueuePriority) return -EINVAL;
  if (args.ring_base_address != 0 && !AccessOk(args.ring_base_address, 8)) return -EFAULT;
  if (args.ring_size != 0 && !std::has_single_bit(args.ring_size)) return -EINVAL;
  args.ring_size = std::max(args.ring_size, uapi::kMinRingSize);
  if (!AccessOk(args.read_pointer_address, 4) || !AccessOk(args.write_pointer_address, 4)) {
    return -EFAULT;
  }
  if (args.eop_buffer_address != 0 && !AccessOk(args.eop_buffer_address, 4)) return -EFAULT;
  if (args.ctx_save_restore_address != 0 && !AccessOk(args.ctx_save_restore_address, 4)) {
    return -EFAULT;
  }
  const bool by_engine_known = node_->config().kfd_minor >= 17;
  if (args.queue_type > uapi::kQueueTypeSdmaByEngId ||
      (args.queue_type == uapi::kQueueTypeSdmaByEngId && !by_engine_known)) {
    return -uapi::kErrnoNotSupported;
  }
  return 0;
}

// Buffers a queue lives in: each the start of a mapping of exactly its size (first page for the
// pointers). Takes a reference on each.
int Process::AcquireBuffers(const uapi::CreateQueueArgs& args, GpuVm& vm, QueueRecord& record) {
  // Drivers before Linux 6.12 looked at none of this.
  const bool strict = node_->config().kfd_minor >= 17;
  const auto take = [&](uint64_t address, uint64_t size) {
    VmMapping* mapping = strict ? vm.table.At(address & ~(kPageSize - 1)) : vm.table.Find(address);
    if (mapping == nullptr) return !strict;
    if (strict && mapping->svm) return false;  // buffers are looked for, not ranges of the client's
    if (strict && size >= kPageSize && mapping->size != (size & ~(kPageSize - 1))) return false;
    record.pinned.push_back(mapping->va);
    return true;
  };
  if (!take(args.write_pointer_address, kPageSize)) return -EINVAL;
  if (!take(args.read_pointer_address, kPageSize)) return -EINVAL;
  if (!take(args.ring_base_address, args.ring_size)) return -EINVAL;
  if (IsSdma(args.queue_type) || !strict) return 0;
  if (args.eop_buffer_address != 0) {
    if (args.eop_buffer_size < kPageSize) return -EINVAL;
    if (!take(args.eop_buffer_address, PageUp(args.eop_buffer_size))) return -EINVAL;
  }
  const SaveAreaSizes sizes = SaveAreaOf(node_->profile());
  if (args.ctl_stack_size != sizes.ctl_stack_bytes) return -EINVAL;
  if (args.ctx_save_restore_size < sizes.cwsr_bytes) return -EINVAL;
  const uint64_t total = PageUp((uint64_t{args.ctx_save_restore_size} + sizes.debug_bytes) *
                                node_->profile().facts.num_xcc);
  if (take(args.ctx_save_restore_address, total)) return 0;
  return IsQueueSvm(args.ctx_save_restore_address, total, vm.gpu_index()) ? 0 : -EINVAL;
}

// Finds a free queue slot of an engine (reference: SDMA placement).
int Process::AllocateSdma(const uapi::CreateQueueArgs& args, QueueRecord& record) {
  const GpuProfile& chip = node_->profile();
  std::vector<uint32_t>& slots = node_->sdma_slots_[record.gpu];
  const auto take = [&](uint32_t engine, uint32_t slot) {
    if ((slots[engine] >> slot & 1) != 0) return false;
    slots[engine] |= 1u << slot;
    record.sdma_engine = static_cast<int>(engine);
    record.sdma_slot = slot;
    return true;
  };
  const uint32_t per_engine = chip.sdma_queues_per_engine;
  if (args.queue_type == uapi::kQueueTypeSdmaByEngId) {
    for (uint32_t slot = 0; slot < per_engine; ++slot) {
      if (take(args.sdma_engine_id, slot)) return 0;
    }
    return -ENOMEM;
  }
  const bool xgmi = args.queue_type == uapi::kQueueTypeSdmaXgmi;
  const uint32_t first = xgmi ? chip.num_sdma : 0;
  const uint32_t engines = xgmi ? chip.num_sdma_xgmi : chip.num_sdma;
  for (uint32_t i = 0; i < engines * per_engine; ++i) {
    if (take(first + i % engines, i / engines)) return 0;
  }
  return -ENOMEM;
}

int Process::EnsureDoorbells(GpuVm& vm) {
  if (vm.doorbells.size() != 0) return 0;
  StatusOr<Block> block = node_->arena().Allocate(uapi::kDoorbellSliceSize);
  if (!block.ok()) return -ENOMEM;
  vm.doorbells = *std::move(block);
  std::memset(vm.doorbells.data(), 0xff, vm.doorbells.size());
  return 0;
}

int Process::AllocateDoorbell(GpuVm& vm, QueueRecord& record) {
  uint32_t index = 0;
  if (record.sdma_engine >= 0) {
    index = kSdmaDoorbellFirst + 10 * static_cast<uint32_t>(record.sdma_engine) +
            (record.sdma_slot & 1) * kSecondWindow + (record.sdma_slot >> 1);
    if (vm.doorbells_used[index]) return -EBUSY;
  } else {
    const auto reserved = [](uint32_t i) {
      return i % kSecondWindow >= kSdmaDoorbellFirst && i % kSecondWindow <= kSdmaDoorbellLast;
    };
    while (index < vm.doorbells_used.size() && (vm.doorbells_used[index] || reserved(index))) {
      ++index;
    }
    if (index == vm.doorbells_used.size()) return -EBUSY;
  }
  vm.doorbells_used[index] = true;
  record.doorbell = index;
  std::memset(vm.doorbells.data() + 8 * index, 0xff, 8);
  return 0;
}

int Process::CreateQueue(uapi::CreateQueueArgs& args) {
  if (const int error = CheckQueueProperties(args); error != 0) return error;
  uint32_t gpu = 0;
  if (const int error = KnownGpu(args.gpu_id, &gpu); error != 0) return error;
  GpuVm& vm = *vms_[gpu];
  if (vm.drm_file == 0) return -ESRCH;
  const GpuProfile& chip = node_->profile();
  if (args.queue_type == uapi::kQueueTypeSdmaByEngId &&
      args.sdma_engine_id >= chip.num_sdma + chip.num_sdma_xgmi) {
    return -EINVAL;
  }
  if (const int error = EnsureDoorbells(vm); error != 0) return error;
  QueueRecord record;
  record.gpu = gpu;
  record.type = args.queue_type;
  if (const int error = AcquireBuffers(args, vm, record); error != 0) return error;
  uint32_t id = 0;
  while (queues_.count(id) != 0) ++id;
  if (id >= kQueuesPerProcess) return -ENOSPC;
  if (!IsSdma(args.queue_type)) {
    const uint32_t limit =
        chip.facts.gfx_target_version >= 90402 ? kQueuesPerGpu : kQueuesPerOldGpu;
    if (node_->compute_queues_[gpu] >= limit) return -EPERM;
  } else if (const int error = AllocateSdma(args, record); error != 0) {
    return error;
  }
  if (const int error = AllocateDoorbell(vm, record); error != 0) {
    if (record.sdma_engine >= 0) {
      node_->sdma_slots_[gpu][static_cast<size_t>(record.sdma_engine)] &= ~(1u << record.sdma_slot);
    }
    return error;
  }
  HwQueue::Setup setup;
  setup.host = &vm;
  setup.id = id;
  setup.ring_va = args.ring_base_address;
  setup.ring_bytes = args.ring_size;
  setup.read_va = args.read_pointer_address;
  setup.write_va = args.write_pointer_address;
  setup.doorbell = vm.doorbells.data() + 8 * record.doorbell;
  setup.save_area_va = args.ctx_save_restore_address;
  setup.first_xcc = created_queues_++ % chip.facts.num_xcc;
  setup.seed = node_->config().seed * 7919 + uint64_t{id_} * 1024 + id;
  if (args.queue_type == uapi::kQueueTypeComputeAql) {
    record.hw = std::make_unique<AqlQueue>(setup);
  } else if (args.queue_type == uapi::kQueueTypeCompute) {
    record.hw = std::make_unique<Pm4Queue>(setup);
  } else {
    // gfx90a's engines count 30 bits.
    const uint32_t count_bits = chip.facts.gfx_target_version == 90010 ? 30 : 22;
    record.hw =
        std::make_unique<SdmaQueue>(setup, static_cast<uint32_t>(record.sdma_engine), count_bits);
  }
  if ((args.queue_percentage & 0xff) == 0 || args.ring_base_address == 0) {
    record.hw->set_state(HwQueue::State::kSuspended);
  }
  args.queue_id = id;
  args.doorbell_offset =
      uapi::MmapCookie(uapi::kMmapTypeDoorbell, args.gpu_id) | 8 * record.doorbell;
  Gate::Closed closed(node_->gate_);
  for (uint64_t va : record.pinned) ++vm.table.At(va)->queue_refs;
  if (!IsSdma(args.queue_type)) ++node_->compute_queues_[gpu];
  node_->AddQueue(gpu, record.hw.get());
  queues_[id] = std::move(record);
  return 0;
}

// With the gate closed.
void Process::ReleaseQueue(QueueRecord& record) {
  GpuVm& vm = *vms_[record.gpu];
  node_->DropQueue(record.gpu, record.hw.get());
  record.hw.reset();
  for (uint64_t va : record.pinned) {
    VmMapping* mapping = vm.table.At(va);
    if (mapping != nullptr) --mapping->queue_refs;
  }
  vm.doorbells_used[record.doorbell] = false;
  if (record.sdma_engine >= 0) {
    node_->sdma_slots_[record.gpu][static_cast<size_t>(record.sdma_engine)] &=
        ~(1u << record.sdma_slot);
  } else {
    --node_->compute_queues_[record.gpu];
  }
}

int Process::DestroyQueue(uapi::DestroyQueueArgs& args) {
  const auto found = queues_.find(args.queue_id);
  if (found == queues_.end()) return -EINVAL;
  Gate::Closed closed(node_->gate_);
  const bool stuck = found->second.hw->stuck();
  const uint32_t gpu = found->second.gpu;
  ReleaseQueue(found->second);
  queues_.erase(found);
  if (!stuck) return 0;
  // It cannot be preempted: the queue goes, but by way of a reset.
  node_->Reset(gpu, uapi::kResetCauseHang, false);
  return -ETIME;
}

int Process::UpdateQueue(uapi::UpdateQueueArgs& args) {
  if ((args.queue_percentage & 0xff) > uapi::kMaxQueuePercentage ||
      args.queue_priority > uapi::kMaxQueuePriority) {
    return -EINVAL;
  }
  if (args.ring_base_address != 0 && !AccessOk(args.ring_base_address, 8)) return -EFAULT;
  if (args.ring_size != 0 && !std::has_single_bit(args.ring_size)) return -EINVAL;
  const auto found = queues_.find(args.queue_id);
  if (found == queues_.end()) return -EFAULT;
  QueueRecord& record = found->second;
  HwQueue& queue = *record.hw;
  Gate::Closed closed(node_->gate_);
  if (queue.state() == HwQueue::State::kReset) return -EACCES;
  PageTable& table = vms_[record.gpu]->table;
  const uint64_t ring_bytes = std::max(args.ring_size, uapi::kMinRingSize);
  if (args.ring_base_address != 0 &&
      (args.ring_base_address != queue.setup().ring_va || ring_bytes != queue.setup().ring_bytes)) {
    VmMapping* mapping = table.At(args.ring_base_address);
    if (mapping == nullptr || mapping->size != ring_bytes) return -EINVAL;
    // The ring's reference is the third taken.
    if (record.pinned.size() > 2) {
      if (VmMapping* old = table.At(record.pinned[2]); old != nullptr) --old->queue_refs;
      ++mapping->queue_refs;
      record.pinned[2] = mapping->va;
    }
    queue.set_ring(args.ring_base_address, ring_bytes);
  }
  const bool run = args.ring_base_address != 0 && (args.queue_percentage & 0xff) != 0;
  if (run && queue.state() == HwQueue::State::kSuspended) {
    queue.set_state(HwQueue::State::kActive);
  } else if (!run && queue.state() == HwQueue::State::kActive) {
    queue.set_state(HwQueue::State::kSuspended);
  }
  return 0;
}

int Process::SetCuMask(uapi::SetCuMaskArgs& args) {
  if (args.num_cu_mask == 0 || args.num_cu_mask % 32 != 0) return -EINVAL;
  if (queues_.count(args.queue_id) == 0) return -EFAULT;
  const uint32_t bits = std::min(args.num_cu_mask, 1024u);
  std::vector<uint32_t> mask(bits / 32);
  // The mask is read and forgotten: which CU runs a workgroup is not modelled.
  return CopyFromUser(mask.data(), args.cu_mask_ptr, mask.size() * 4) ? 0 : -EFAULT;
}

}  // namespace mainarch::sim
