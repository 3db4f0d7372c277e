// SPDX-License-Identifier: MIT
//
// The driver's state for one process, and its side of every ioctl on /dev/kfd. Each handler checks
// what the kernel checks, in its order, and answers with the kernel's negative errno (reference:
// what the kernel checks, call by call). Arguments arrive already copied in and are copied back by
// Ioctl even when the handler failed.
//
// Threads: any; calls hold the node's mutex but for WAIT_EVENTS.
#ifndef MAINARCH_SIM_PROCESS_H_
#define MAINARCH_SIM_PROCESS_H_

#include <atomic>
#include <bitset>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/fd.h"
#include "kfd/uapi/kfd_ioctl.h"
#include "sim/events.h"
#include "sim/node.h"
#include "sim/queue.h"
#include "sim/vm.h"

// Of amdgpu_drm.h.
union drm_amdgpu_bo_list;
union drm_amdgpu_cs;
union drm_amdgpu_ctx;
union drm_amdgpu_gem_create;
struct drm_amdgpu_gem_va;
struct drm_amdgpu_gem_metadata;
struct drm_amdgpu_gem_op;

namespace mainarch::sim {

class SdmaQueue;

// One process on one GPU.
class GpuVm final : public GpuContext, public QueueHost {
 public:
  GpuVm(Node* node, Process* process, uint32_t gpu);

  const GpuFacts& facts() const override { return node_->profile().facts; }
  uint32_t gpu_index() const override { return gpu_; }
  uint32_t process_id() const override;
  bool Translate(uint64_t va, Access access, Window* window, MemoryFault* fault) const override {
    return table.Translate(va, access, window, fault);
  }
  uint64_t epoch() const override { return node_->epoch_.load(); }
  uint64_t Clock() const override { return node_->Clock(gpu_); }
  void Interrupt(uint32_t m0) override { Interrupt(m0, 24); }
  uint64_t trap_handler_va() const override { return trap_handler; }
  uint64_t trap_memory_va() const override { return trap_memory; }

  GpuContext& context() override { return *this; }
  Executor& executor() override { return node_->executor(); }
  const NodeConfig& config() const override { return node_->config(); }
  Script& script() override { return node_->script(); }
  void Note(const std::string& line) override;
  void Interrupt(uint32_t context_id, int bits) override;
  void OnFault(HwQueue& queue, const MemoryFault& fault) override;
  void OnException(HwQueue& queue, WaveException exception, const std::string& detail) override;
  void OnPacketError(HwQueue& queue, uint32_t code) override;
  void OnTrouble(HwQueue& queue, Trouble trouble) override;

  // The driver's record.
  uint64_t drm_file = 0;  // of ACQUIRE_VM; 0: not acquired
  PageTable table;
  std::map<uint32_t, std::shared_ptr<Buffer>> buffers;  // by the handle's lower half
  Block doorbells;
  std::bitset<kfd::uapi::kDoorbellSliceSize / 8> doorbells_used;
  uint64_t trap_handler = 0;
  uint64_t trap_memory = 0;

 private:
  // Tells an enabled runtime through the error payload that its save area names.
  void TellRuntime(const HwQueue& queue, uint32_t code);

  Node* node_;
  Process* process_;
  const uint32_t gpu_;
};

class Process {
 public:
  explicit Process(std::shared_ptr<Node> node);
  ~Process();  // as the kernel tidies up after a dead process
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  Node& node() { return *node_; }
  uint32_t id() const { return id_; }
  // What the driver's sysfs calls it: the host's number for the first, which is all that most hosts have, and another one
  // for each further one that the host plays, on whatever node.
  int64_t pid() const { return pid_; }
  EventTable& events() { return events_; }
  GpuVm& vm(uint32_t gpu) { return *vms_[gpu]; }

  // An ioctl on /dev/kfd. `drm_file_of` tells the DRM file and GPU behind an fd of the caller's.
  struct RenderFile {
    uint64_t id = 0;  // 0: not a render node
    uint32_t gpu = 0;
  };
  struct Caller {
    std::function<RenderFile(int fd)> render_file;
    // Wraps an exported buffer in an fd; the buffer behind an fd.
    std::function<int(std::shared_ptr<Buffer>, int flags)> export_fd;
    std::function<std::shared_ptr<Buffer>(int fd)> import_fd;
    // A new event stream: the client's end is returned, the driver's filled in.
    std::function<int(uint32_t gpu, UniqueFd* driver_end)> smi_fd;
  };
  int Ioctl(const Caller& caller, uint32_t request, void* argument);
  // A buffer call on a render node (ioctl_gem.cc); -EINVAL for what is none.
  int GemIoctl(const Caller& caller, RenderFile render, uint32_t request, void* argument);
  // The last descriptor of a render node's file is gone, and with it its buffers.
  void CloseDrmFile(uint64_t id);

  // Where mmap on /dev/kfd leads: an offset in the arena's file, or a negative errno.
  int64_t KfdMapping(uint64_t cookie, uint64_t size);
  // The same for a render node.
  int64_t RenderMapping(uint64_t drm_file, uint64_t cookie, uint64_t size);

  // The client unmaps [address, address + size): user memory in it leaves the GPUs first, as by the
  // kernel's MMU notifier. Its buffers stay; an access of a GPU faults from here on.
  void UserMemoryGoes(uint64_t address, uint64_t size);
  // mprotect for the client, followed by the page tables of ranges that GPUs use in place. 0 or a
  // negative errno.
  int ProtectUserMemory(void* address, size_t size, int protection);

  // A line for the event streams of that GPU which asked for such events (kSmi…).
  void ReportSmi(uint32_t gpu, uint32_t event, const std::string& line);

  Ledger ledger();

 private:
  friend class GpuVm;
  struct QueueRecord {
    std::unique_ptr<HwQueue> hw;
    uint32_t gpu = 0;
    uint32_t type = 0;
    int sdma_engine = -1;
    uint32_t sdma_slot = 0;
    uint32_t doorbell = 0;         // index in the slice
    bool gws = false;              // has the GPU's global wave sync
    std::vector<uint64_t> pinned;  // first addresses of the mappings it lives in
  };

  struct SmiStream {
    uint32_t gpu = 0;
    uint64_t mask = 0;
    UniqueFd end;
  };
  // A range of the client's memory that GPUs may be allowed to use in place.
  struct SvmRange {
    uint64_t end = 0;
    uint32_t preferred = kfd::uapi::kSvmLocationUndefined;
    uint32_t prefetch = kfd::uapi::kSvmLocationUndefined;
    uint32_t location = kfd::uapi::kSvmLocationSystem;  // where the driver would have it
    std::set<uint32_t> access;  // GPU indices
    std::set<uint32_t> in_place;
    uint32_t flags = kfd::uapi::kSvmHostAccess | kfd::uapi::kSvmCoherent;
    uint32_t granularity = 9;
  };

  // The buffers of one open render node.
  struct GemFile {
    uint32_t gpu = 0;
    std::map<uint32_t, std::shared_ptr<Buffer>> objects;  // by handle
    std::map<uint64_t, std::shared_ptr<Buffer>> mapped;   // by address in the GPU's VM
    // Of submissions (ioctl_submit.cc).
    uint32_t next_id = 1;
    std::set<uint32_t> contexts, lists;
    uint64_t submitted = 0;                // sequence number of the last
    uint64_t doorbell = HwQueue::kSilent;  // nobody's: the engine is told by the driver
    std::unique_ptr<SdmaQueue> engine;
  };

  int Dispatch(const Caller& caller, uint32_t number, uint8_t* args, uint32_t size);
  uint32_t LastIoctl() const;

  // ioctl_memory.cc
  int AcquireVm(const Caller& caller, kfd::uapi::AcquireVmArgs& args);
  int AllocMemory(kfd::uapi::AllocMemoryArgs& args);
  int FillBuffer(const kfd::uapi::AllocMemoryArgs& args, GpuVm& vm, Buffer& buffer);
  int FreeMemory(kfd::uapi::FreeMemoryArgs& args);
  int MapMemory(kfd::uapi::MapMemoryArgs& args);
  int UnmapMemory(kfd::uapi::UnmapMemoryArgs& args);
  template <class Args>
  int TakeDevices(const Args& args, std::vector<uint32_t>* devices,
                  std::shared_ptr<Buffer>* buffer);
  int MapOn(const std::shared_ptr<Buffer>& buffer, uint32_t gpu);
  int AvailableMemory(kfd::uapi::AvailableMemoryArgs& args);
  int ExportDmabuf(const Caller& caller, kfd::uapi::ExportDmabufArgs& args);
  int ImportDmabuf(const Caller& caller, kfd::uapi::ImportDmabufArgs& args);
  int GetDmabufInfo(const Caller& caller, kfd::uapi::GetDmabufInfoArgs& args);
  std::shared_ptr<Buffer> Find(uint64_t handle, bool* gpu_known);
  void Release(Buffer& buffer);

  // ioctl_gem.cc
  uint32_t AddObject(GemFile& file, std::shared_ptr<Buffer> buffer);
  int CreateObject(GemFile& file, drm_amdgpu_gem_create& args);
  static std::shared_ptr<Buffer> ObjectOf(const GemFile& file, uint32_t handle);
  void CloseObject(GemFile& file, uint32_t handle);  // with the gate closed
  int MapObject(GemFile& file, uint64_t file_id, const drm_amdgpu_gem_va& args);
  static int ObjectMetadata(const GemFile& file, drm_amdgpu_gem_metadata& args);
  static int ObjectOperation(const GemFile& file, const drm_amdgpu_gem_op& args);

  // ioctl_submit.cc
  static int ContextCall(GemFile& file, drm_amdgpu_ctx& args);
  static int BufferListCall(GemFile& file, drm_amdgpu_bo_list& args);
  int Submit(GemFile& file, uint64_t file_id, drm_amdgpu_cs& args);
  void DropEngine(GemFile& file);
  int WaitSubmitted(RenderFile render, uint64_t handle, bool idle, uint64_t deadline_ns, bool* busy);

  // ioctl_queue.cc
  int CreateQueue(kfd::uapi::CreateQueueArgs& args);
  int CheckQueueProperties(kfd::uapi::CreateQueueArgs& args);
  int AcquireBuffers(const kfd::uapi::CreateQueueArgs& args, GpuVm& vm, QueueRecord& record);
  int AllocateSdma(const kfd::uapi::CreateQueueArgs& args, QueueRecord& record);
  int AllocateDoorbell(GpuVm& vm, QueueRecord& record);
  void ReleaseQueue(QueueRecord& record);
  int DestroyQueue(kfd::uapi::DestroyQueueArgs& args);
  int UpdateQueue(kfd::uapi::UpdateQueueArgs& args);
  int SetCuMask(kfd::uapi::SetCuMaskArgs& args);
  int EnsureDoorbells(GpuVm& vm);

  // ioctl_event.cc
  int CreateEvent(kfd::uapi::CreateEventArgs& args);
  int SetEventPage(uint64_t handle);
  int WaitEvents(kfd::uapi::WaitEventsArgs& args);

  // ioctl_misc.cc
  int GetVersion(kfd::uapi::GetVersionArgs& args);
  int GetApertures(kfd::uapi::GetProcessAperturesArgs& args);
  int GetAperturesNew(kfd::uapi::GetProcessAperturesNewArgs& args);
  int SetMemoryPolicy(kfd::uapi::SetMemoryPolicyArgs& args);
  int GetClockCounters(kfd::uapi::GetClockCountersArgs& args);
  int SetScratchBackingVa(kfd::uapi::SetScratchBackingVaArgs& args);
  int GetTileConfig(kfd::uapi::GetTileConfigArgs& args);
  int SetTrapHandler(kfd::uapi::SetTrapHandlerArgs& args);
  int RuntimeEnable(kfd::uapi::RuntimeEnableArgs& args);
  int SetXnackMode(kfd::uapi::SetXnackModeArgs& args);
  int SmiEvents(const Caller& caller, kfd::uapi::SmiEventsArgs& args);

  // ioctl_svm.cc
  int Svm(kfd::uapi::SvmArgs& args, uint32_t block_bytes);
  int CheckSvm(const kfd::uapi::SvmArgs& args,
               absl::Span<const kfd::uapi::SvmAttribute> attributes);
  void SetSvm(uint64_t start, uint64_t end, absl::Span<const kfd::uapi::SvmAttribute> attributes);
  int GetSvm(uint64_t start, uint64_t end, absl::Span<kfd::uapi::SvmAttribute> attributes);
  void SplitSvm(uint64_t at);
  void MapSvm(uint64_t start, uint64_t end);  // page tables follow the ranges; gate closed
  void FillSvm(GpuVm& vm, const SvmRange& range, uint64_t start, uint64_t end, bool writable);
  void ReportMigrations(uint64_t start, uint64_t end);
  void DropSvm(uint64_t start, uint64_t end);
  bool OverlapsSvm(uint64_t start, uint64_t size) const;
  bool IsQueueSvm(uint64_t start, uint64_t size, uint32_t gpu) const;

  // ioctl_debug.cc
  int DbgTrap(const kfd::uapi::DbgTrapArgs& args);
  int AllocQueueGws(kfd::uapi::AllocQueueGwsArgs& args);
  int GetQueueWaveState(uint32_t queue_id);

  // -EINVAL for an unknown gpu_id, -ENODEV for a GPU that is gone.
  int KnownGpu(uint32_t gpu_id, uint32_t* gpu) const;

  std::shared_ptr<Node> node_;
  const uint32_t id_;
  const int64_t pid_;
  EventTable events_;
  std::vector<std::unique_ptr<GpuVm>> vms_;
  std::map<uint32_t, QueueRecord> queues_;
  std::map<uint64_t, GemFile> gem_;  // by the render node's file
  uint64_t event_page_handle_ = 0;
  Block driver_event_page_;
  Block mmio_page_;
  std::map<uint64_t, SvmRange> svm_;      // by first address, disjoint
  std::atomic<uint32_t> user_ranges_{0};  // of user memory; asked without a lock at every munmap
  std::mutex smi_mutex_;                  // a leaf
  std::vector<SmiStream> smi_;
  bool debugged_ = false;  // by itself; no other process can
  bool runtime_enabled_ = false;
  uint32_t created_queues_ = 0;
};

// Copies between a client's pointer and ours; false when the client's memory is not there (EFAULT).
bool CopyFromUser(void* to, uint64_t from, size_t size);
bool CopyToUser(uint64_t to, const void* from, size_t size);

}  // namespace mainarch::sim

#endif  // MAINARCH_SIM_PROCESS_H_
