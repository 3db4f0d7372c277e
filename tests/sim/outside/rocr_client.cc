// SPDX-License-Identifier: MIT
//
// A client that is none of ours: AMD's own runtime (ROCr 5.2.3 as Debian ships it) makes a queue,
// runs barrier packets through it with polling and with blocking waits, and copies host -> first
// GPU
// -> last GPU -> host over the copy engines. Run by sim_rocr on a virtual node; it links nothing of
// mainarch, so what passes here does not pass because both sides share a mistake.
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

constexpr uint64_t kTimeout = 20'000'000'000;  // of the system clock: ns
constexpr size_t kBytes = 8 << 20;

void Must(hsa_status_t status, const char* what) {
  if (status == HSA_STATUS_SUCCESS || status == HSA_STATUS_INFO_BREAK) return;
  const char* text = "unknown";
  hsa_status_string(status, &text);
  std::printf("FAILED %s: %s\n", what, text);
  std::exit(1);
}

struct Machine {
  hsa_agent_t cpu = {};
  std::vector<hsa_agent_t> gpus;
};

hsa_status_t Collect(hsa_agent_t agent, void* data) {
  Machine& machine = *static_cast<Machine*>(data);
  hsa_device_type_t type;
  hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type);
  if (type == HSA_DEVICE_TYPE_CPU) {
    machine.cpu = agent;
  } else {
    machine.gpus.push_back(agent);
  }
  return HSA_STATUS_SUCCESS;
}

hsa_status_t FirstGlobal(hsa_amd_memory_pool_t pool, void* data) {
  hsa_amd_segment_t segment;
  hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment);
  if (segment != HSA_AMD_SEGMENT_GLOBAL) return HSA_STATUS_SUCCESS;
  *static_cast<hsa_amd_memory_pool_t*>(data) = pool;
  return HSA_STATUS_INFO_BREAK;
}

void* Allocate(const Machine& machine, hsa_agent_t agent) {
  hsa_amd_memory_pool_t pool = {};
  void* memory = nullptr;
  Must(hsa_amd_agent_iterate_memory_pools(agent, FirstGlobal, &pool), "pools");
  Must(hsa_amd_memory_pool_allocate(pool, kBytes, 0, &memory), "allocate");
  Must(hsa_amd_agents_allow_access(static_cast<uint32_t>(machine.gpus.size()), machine.gpus.data(),
                                   nullptr, memory),
       "allow access");
  return memory;
}

void RunBarriers(hsa_agent_t gpu, hsa_signal_t signal) {
  hsa_queue_t* queue = nullptr;
  Must(hsa_queue_create(gpu, 64, HSA_QUEUE_TYPE_MULTI, nullptr, nullptr, UINT32_MAX, UINT32_MAX,
                        &queue),
       "queue create");
  for (int i = 0; i < 300; ++i) {  // several times round the ring
    hsa_signal_store_relaxed(signal, 1);
    const uint64_t index = hsa_queue_add_write_index_screlease(queue, 1);
    while (index - hsa_queue_load_read_index_scacquire(queue) >= queue->size) {
    }
    uint8_t* slot = static_cast<uint8_t*>(queue->base_address) + index % queue->size * 64;
    std::memset(slot + 4, 0, 60);
    std::memcpy(slot + 56, &signal.handle, 8);
    __atomic_store_n(reinterpret_cast<uint32_t*>(slot), 0x1503u, __ATOMIC_RELEASE);
    hsa_signal_store_screlease(queue->doorbell_signal, static_cast<hsa_signal_value_t>(index));
    const auto how = i % 2 != 0 ? HSA_WAIT_STATE_BLOCKED : HSA_WAIT_STATE_ACTIVE;
    if (hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_EQ, 0, kTimeout, how) != 0) {
      std::printf("FAILED barrier %d\n", i);
      std::exit(1);
    }
  }
  Must(hsa_queue_destroy(queue), "queue destroy");
  std::printf("barriers ok\n");
}

// Destroying a queue makes two threads of the runtime sleep on one event, and both must wake: the
// caller waits for the handler that is to let go of the queue. (Of itself this runtime loses the
// wake-up once in some hundred times on a busy machine, sim/profile.h says how; the node's `nudge`
// makes that a pause.)
void MakeAndDestroyQueues(hsa_agent_t gpu, int times) {
  for (int i = 0; i < times; ++i) {
    hsa_queue_t* queue = nullptr;
    Must(hsa_queue_create(gpu, 64, HSA_QUEUE_TYPE_MULTI, nullptr, nullptr, UINT32_MAX, UINT32_MAX,
                          &queue),
         "queue create");
    Must(hsa_queue_destroy(queue), "queue destroy");
  }
  std::printf("queues ok\n");
}

void Copy(void* to, hsa_agent_t to_agent, const void* from, hsa_agent_t from_agent,
          hsa_signal_t signal) {
  hsa_signal_store_relaxed(signal, 1);
  Must(hsa_amd_memory_async_copy(to, to_agent, from, from_agent, kBytes, 0, nullptr, signal),
       "copy");
  if (hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_LT, 1, kTimeout,
                                HSA_WAIT_STATE_BLOCKED) != 0) {
    std::printf("FAILED copy\n");
    std::exit(1);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const int queues = count > 1 ? std::atoi(arguments[1]) : 20;
  Must(hsa_init(), "init");
  Machine machine;
  Must(hsa_iterate_agents(Collect, &machine), "agents");
  std::printf("gpus %zu\n", machine.gpus.size());
  if (machine.gpus.empty()) return 1;
  hsa_signal_t signal;
  Must(hsa_signal_create(1, 0, nullptr, &signal), "signal");
  RunBarriers(machine.gpus.front(), signal);
  MakeAndDestroyQueues(machine.gpus.front(), queues);
  const hsa_agent_t first = machine.gpus.front(), last = machine.gpus.back();
  void* source = Allocate(machine, machine.cpu);
  void* target = Allocate(machine, machine.cpu);
  void* on_first = Allocate(machine, first);
  void* on_last = Allocate(machine, last);
  for (size_t i = 0; i < kBytes / 4; ++i) {
    static_cast<uint32_t*>(source)[i] = static_cast<uint32_t>(i) * 2654435761u;
  }
  std::memset(target, 0, kBytes);
  Copy(on_first, first, source, machine.cpu, signal);
  Copy(on_last, last, on_first, first, signal);
  Copy(target, machine.cpu, on_last, last, signal);
  if (std::memcmp(source, target, kBytes) != 0) {
    std::printf("FAILED data\n");
    return 1;
  }
  std::printf("copies ok\n");
  for (void* memory : {source, target, on_first, on_last}) {
    Must(hsa_amd_memory_pool_free(memory), "free");
  }
  Must(hsa_signal_destroy(signal), "signal destroy");
  Must(hsa_shut_down(), "shut down");
  std::printf("done\n");
  return 0;
}
