// SPDX-License-Identifier: MIT
//
// Submission through the render node (amdgpu/amdgpu_cs.c, amdgpu_ctx.c, amdgpu_bo_list.c), as far as a
// compute node has engines for it: buffers of packets for the copy engines, one ring a file. There are
// no graphics rings, and compute is for user queues.
#include <amdgpu_drm.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "sim/drm.h"
#include "sim/process.h"
#include "sim/sdma_queue.h"

namespace mainarch::sim {
namespace {

constexpr uint32_t kMostChunks = 128;
constexpr uint32_t kMostDwords = 0xfffff;  // an INDIRECT packet's count
constexpr uint32_t kRingId = 0xd000;       // for messages: no user queue's
constexpr uint32_t kCountBits = 22;

struct Submission {
  uint64_t va = 0;
  uint32_t dwords = 0;
};

// What the chunks of a submission ask for. 0 or a negative errno.
int ReadChunks(const drm_amdgpu_cs& args, std::vector<Submission>* buffers) {
  if (args.in.num_chunks == 0 || args.in.num_chunks > kMostChunks) return -EINVAL;
  std::vector<uint64_t> places(args.in.num_chunks);
  if (!CopyFromUser(places.data(), args.in.chunks, places.size() * 8)) return -EFAULT;
  for (const uint64_t place : places) {
    drm_amdgpu_cs_chunk chunk = {};
    if (!CopyFromUser(&chunk, place, sizeof chunk)) return -EFAULT;
    // One engine runs everything in order: what a submission depends on is done.
    if (chunk.chunk_id == AMDGPU_CHUNK_ID_DEPENDENCIES || chunk.chunk_id == AMDGPU_CHUNK_ID_BO_HANDLES) continue;
    drm_amdgpu_cs_chunk_ib ib = {};
    if (chunk.chunk_id != AMDGPU_CHUNK_ID_IB || chunk.length_dw * 4 < sizeof ib) return -EINVAL;
    if (!CopyFromUser(&ib, chunk.chunk_data, sizeof ib)) return -EFAULT;
    if (ib.ip_type != AMDGPU_HW_IP_DMA || ib.ip_instance != 0 || ib.ring != 0) return -EINVAL;
    if (ib.ib_bytes % 4 != 0 || ib.ib_bytes / 4 > kMostDwords || ib.va_start % 32 != 0) return -EINVAL;
    if (ib.ib_bytes != 0) buffers->push_back({ib.va_start, ib.ib_bytes / 4});
  }
  return buffers->empty() ? -EINVAL : 0;
}

}  // namespace

int Process::ContextCall(GemFile& file, drm_amdgpu_ctx& args) {
  const auto in = args.in;
  std::memset(&args, 0, sizeof args);
  switch (in.op) {
    case AMDGPU_CTX_OP_ALLOC_CTX:
      // More than normal wants a capability.
      if (in.priority > AMDGPU_CTX_PRIORITY_NORMAL) return -EACCES;
      args.out.alloc.ctx_id = file.next_id++;
      file.contexts.insert(args.out.alloc.ctx_id);
      return 0;
    case AMDGPU_CTX_OP_FREE_CTX:
      return file.contexts.erase(in.ctx_id) != 0 ? 0 : -EINVAL;
    case AMDGPU_CTX_OP_QUERY_STATE:
    case AMDGPU_CTX_OP_QUERY_STATE2:
      return file.contexts.count(in.ctx_id) != 0 ? 0 : -EINVAL;
    default:
      return -EINVAL;
  }
}

int Process::BufferListCall(GemFile& file, drm_amdgpu_bo_list& args) {
  const auto in = args.in;
  if (in.operation == AMDGPU_BO_LIST_OP_DESTROY) {
    return file.lists.erase(in.list_handle) != 0 ? 0 : -ENOENT;
  }
  if (in.operation != AMDGPU_BO_LIST_OP_CREATE || in.bo_info_size != sizeof(drm_amdgpu_bo_list_entry) ||
      in.bo_number > file.objects.size()) {
    return -EINVAL;
  }
  std::vector<drm_amdgpu_bo_list_entry> entries(in.bo_number);
  if (!CopyFromUser(entries.data(), in.bo_info_ptr, entries.size() * sizeof entries[0])) return -EFAULT;
  for (const drm_amdgpu_bo_list_entry& entry : entries) {
    if (ObjectOf(file, entry.bo_handle) == nullptr) return -ENOENT;
  }
  // Nothing is ever moved, so nobody has to remember what must be there.
  std::memset(&args, 0, sizeof args);
  args.out.list_handle = file.next_id++;
  file.lists.insert(args.out.list_handle);
  return 0;
}

int Process::Submit(GemFile& file, uint64_t file_id, drm_amdgpu_cs& args) {
  std::vector<Submission> buffers;
  if (file.contexts.count(args.in.ctx_id) == 0) return -EINVAL;
  if (args.in.bo_list_handle != 0 && file.lists.count(args.in.bo_list_handle) == 0) return -ENOENT;
  if (const int error = ReadChunks(args, &buffers); error != 0) return error;
  Gate::Closed closed(node_->gate_);
  if (file.engine == nullptr) {
    HwQueue::Setup setup;
    setup.host = vms_[file.gpu].get();
    setup.id = kRingId + static_cast<uint32_t>(file_id);
    setup.doorbell = reinterpret_cast<uint8_t*>(&file.doorbell);
    setup.seed = node_->config().seed * 7919 + file_id;
    file.engine = std::make_unique<SdmaQueue>(setup, /*engine=*/0, kCountBits);
    node_->AddQueue(file.gpu, file.engine.get());
  }
  if (file.engine->state() != HwQueue::State::kActive) return -ECANCELED;  // after a fault or a reset
  ++file.submitted;
  for (size_t i = 0; i < buffers.size(); ++i) {
    // It is done when its last buffer is.
    const uint64_t sequence = i + 1 == buffers.size() ? file.submitted : file.submitted - 1;
    file.engine->Submit(buffers[i].va, buffers[i].dwords, sequence);
  }
  std::memset(&args, 0, sizeof args);
  args.out.handle = file.submitted;
  return 0;
}

// With the gate closed.
void Process::DropEngine(GemFile& file) {
  if (file.engine == nullptr) return;
  node_->DropQueue(file.gpu, file.engine.get());
  file.engine.reset();
}

// WAIT_CS, and a buffer's wait to be idle (`idle`): without the node's mutex, since others go on.
int Process::WaitSubmitted(RenderFile render, uint64_t handle, bool idle, uint64_t deadline_ns, bool* busy) {
  std::shared_ptr<const std::atomic<uint64_t>> executed;
  {
    std::lock_guard lock(node_->mutex());
    const GemFile& file = gem_[render.id];
    if (idle || handle == ~uint64_t{0}) handle = file.submitted;
    if (handle > file.submitted) return -EINVAL;
    if (file.engine != nullptr) executed = file.engine->executed();
  }
  const auto done = [&] { return handle == 0 || executed == nullptr || executed->load() >= handle; };
  while (!done() && static_cast<uint64_t>(NowNs()) < deadline_ns) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  *busy = !done();
  return 0;
}

}  // namespace mainarch::sim
