// SPDX-License-Identifier: MIT
#include "kfd/ioctl.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "kfd/drm.h"
#include "kfd/linux_sys.h"
#include "support/test.h"
#include "unit/kfd/fake_sys.h"

namespace mainarch::kfd {
namespace {

int CodeNumber(const Status& status) { return static_cast<int>(CodeOf(status)); }
int Number(Code code) { return static_cast<int>(code); }

// Every call, made once: the table of the tests below.
struct NamedCall {
  const char* name;
  Status (*call)(Kfd&);
};

const NamedCall kCalls[] = {
    {"get_version", [](Kfd& k) { return k.GetVersion().status(); }},
    {"get_process_apertures_new", [](Kfd& k) { return k.GetProcessApertures().status(); }},
    {"acquire_vm", [](Kfd& k) { return k.AcquireVm(7, 5); }},
    {"get_clock_counters", [](Kfd& k) { return k.GetClockCounters(7).status(); }},
    {"set_memory_policy", [](Kfd& k) { return k.SetMemoryPolicy({}); }},
    {"available_memory", [](Kfd& k) { return k.AvailableMemory(7).status(); }},
    {"alloc_memory_of_gpu",
     [](Kfd& k) {
       uapi::AllocMemoryArgs args = {};
       return k.AllocMemory(&args);
     }},
    {"free_memory_of_gpu", [](Kfd& k) { return k.FreeMemory(1); }},
    {"map_memory_to_gpu",
     [](Kfd& k) {
       const uint32_t ids[] = {7};
       uint32_t done = 0;
       return k.MapMemory(1, ids, &done);
     }},
    {"unmap_memory_from_gpu",
     [](Kfd& k) {
       const uint32_t ids[] = {7};
       uint32_t done = 0;
       return k.UnmapMemory(1, ids, &done);
     }},
    {"create_queue",
     [](Kfd& k) {
       uapi::CreateQueueArgs args = {};
       return k.CreateQueue(&args);
     }},
    {"update_queue", [](Kfd& k) { return k.UpdateQueue({}); }},
    {"destroy_queue", [](Kfd& k) { return k.DestroyQueue(3); }},
    {"set_cu_mask",
     [](Kfd& k) {
       const uint32_t mask[] = {1};
       return k.SetCuMask(3, mask);
     }},
    {"get_queue_wave_state", [](Kfd& k) { return k.GetQueueWaveState(3, 0).status(); }},
    {"create_event",
     [](Kfd& k) {
       uapi::CreateEventArgs args = {};
       return k.CreateEvent(&args);
     }},
    {"destroy_event", [](Kfd& k) { return k.DestroyEvent(1); }},
    {"set_event", [](Kfd& k) { return k.SetEvent(1); }},
    {"reset_event", [](Kfd& k) { return k.ResetEvent(1); }},
    {"wait_events",
     [](Kfd& k) {
       uapi::EventData event = {};
       return k.WaitEvents(absl::MakeSpan(&event, 1), false, 1).status();
     }},
    {"runtime_enable", [](Kfd& k) { return k.RuntimeEnable(1, 0); }},
    {"set_trap_handler", [](Kfd& k) { return k.SetTrapHandler(7, 0, 0); }},
    {"set_scratch_backing_va", [](Kfd& k) { return k.SetScratchBackingVa(7, 0); }},
    {"set_xnack_mode", [](Kfd& k) { return k.SetXnackMode(-1).status(); }},
    {"smi_events", [](Kfd& k) { return k.SmiEvents(7).status(); }},
    {"export_dmabuf", [](Kfd& k) { return k.ExportDmabuf(1, 0).status(); }},
    {"import_dmabuf", [](Kfd& k) { return k.ImportDmabuf(7, 4, 0).status(); }},
    {"get_dmabuf_info", [](Kfd& k) { return k.GetDmabufInfo(4).status(); }},
    {"svm",
     [](Kfd& k) {
       const uapi::SvmAttribute attribute = {};
       return k.Svm(0x1000, 0x1000, 0, absl::MakeConstSpan(&attribute, 1));
     }},
};

TEST(an_error_names_the_call_and_keeps_the_errno) {
  test::FakeSys sys;
  auto kfd = Kfd::Open(sys);
  CHECK_OK(kfd);
  for (const NamedCall& named : kCalls) {
    sys.ioctl = [](uint32_t, void*) { return -EINVAL; };
    const Status status = named.call(**kfd);
    CHECK(absl::StrContains(status.message(), named.name));
    CHECK_EQ(ErrnoOf(status), EINVAL);
    CHECK_EQ(CodeNumber(status), Number(Code::kIo));
  }
}

TEST(an_interrupted_call_is_made_again) {
  test::FakeSys sys;
  auto kfd = Kfd::Open(sys);
  CHECK_OK(kfd);
  for (const NamedCall& named : kCalls) {
    int calls = 0;
    sys.ioctl = [&](uint32_t, void*) { return ++calls <= 3 ? -EINTR : 0; };
    CHECK_OK(named.call(**kfd));
    CHECK_EQ(calls, 4);
  }
}

TEST(a_call_that_always_wants_another_try_ends) {
  test::FakeSys sys;
  auto kfd = Kfd::Open(sys);
  CHECK_OK(kfd);
  sys.ioctl = [](uint32_t, void*) { return -EAGAIN; };
  CHECK_EQ(ErrnoOf((*kfd)->FreeMemory(1)), EAGAIN);
}

TEST(the_fd_is_closed) {
  test::FakeSys sys;
  {
    CHECK_OK(Kfd::Open(sys));
  }
  CHECK(sys.open_fds.empty());
}

TEST(what_an_open_error_means) {
  test::FakeSys sys;
  const struct {
    int err;
    Code code;
    const char* hint;
  } kCases[] = {{ENOENT, Code::kNoDevice, "amdgpu module"},
                {EACCES, Code::kPermission, "group"},
                {EPERM, Code::kPermission, "cgroup"},
                {EINVAL, Code::kNoDevice, "locked"},
                {ENOMEM, Code::kNoDevice, "no GPU"}};
  for (const auto& c : kCases) {
    sys.open_errors["/dev/kfd"] = c.err;
    const Status status = Kfd::Open(sys).status();
    CHECK_EQ(CodeNumber(status), Number(c.code));
    CHECK(absl::StrContains(status.message(), c.hint));
    CHECK_EQ(ErrnoOf(status), c.err);
  }
}

TEST(errnos_have_their_codes) {
  test::FakeSys sys;
  auto kfd = Kfd::Open(sys);
  CHECK_OK(kfd);
  const struct {
    int err;
    Code code;
  } kCases[] = {{EBADF, Code::kWrongProcess},      {ENOTTY, Code::kUnsupported},
                {524, Code::kUnsupported},         {EBUSY, Code::kBusy},
                {EIO, Code::kDeviceLost},          {ETIME, Code::kDeviceLost},
                {ENOMEM, Code::kOutOfDeviceMemory}};
  for (const auto& c : kCases) {
    sys.ioctl = [&](uint32_t, void*) { return -c.err; };
    CHECK_EQ(CodeNumber((*kfd)->DestroyQueue(1)), Number(c.code));
  }
}

TEST(a_partial_map_says_how_far_it_came) {
  test::FakeSys sys;
  auto kfd = Kfd::Open(sys);
  CHECK_OK(kfd);
  sys.ioctl = [](uint32_t, void* argument) {
    static_cast<uapi::MapMemoryArgs*>(argument)->n_success = 2;
    return -EINVAL;
  };
  const uint32_t ids[] = {1, 2, 3};
  uint32_t done = 0;
  const Status status = (*kfd)->MapMemory(9, ids, &done);
  CHECK_EQ(done, 2u);
  CHECK(absl::StrContains(status.message(), "2 of 3 mapped"));
  CHECK(absl::StrContains(status.message(), "0x1,0x2,0x3"));
}

TEST(the_block_of_svm_carries_its_size_in_the_request) {
  test::FakeSys sys;
  auto kfd = Kfd::Open(sys);
  CHECK_OK(kfd);
  uint32_t seen = 0;
  sys.ioctl = [&](uint32_t request, void*) {
    seen = request;
    return 0;
  };
  const uapi::SvmAttribute attributes[3] = {};
  CHECK_OK((*kfd)->Svm(0x1000, 0x1000, 0, attributes));
  CHECK_EQ(seen, 0xc0304b20u);  // 24 + 3 * 8 bytes
  const std::vector<uapi::SvmAttribute> many(4096);
  CHECK_EQ(CodeNumber((*kfd)->Svm(0, 0, 0, many)), Number(Code::kInvalidArgument));
}

TEST(a_wait_reports_time_out_and_destruction) {
  test::FakeSys sys;
  auto kfd = Kfd::Open(sys);
  CHECK_OK(kfd);
  uint32_t result = uapi::kWaitTimeout;
  sys.ioctl = [&](uint32_t, void* argument) {
    static_cast<uapi::WaitEventsArgs*>(argument)->wait_result = result;
    return 0;
  };
  uapi::EventData event = {};
  auto fired = (*kfd)->WaitEvents(absl::MakeSpan(&event, 1), false, 5);
  CHECK_OK(fired);
  CHECK(!*fired);
  result = uapi::kWaitComplete;
  CHECK(*(*kfd)->WaitEvents(absl::MakeSpan(&event, 1), false, 5));
  result = uapi::kWaitFail;
  CHECK(!(*kfd)->WaitEvents(absl::MakeSpan(&event, 1), false, 5).ok());
}

TEST(an_unbelievable_gpu_count_is_refused) {
  test::FakeSys sys;
  auto kfd = Kfd::Open(sys);
  CHECK_OK(kfd);
  sys.ioctl = [](uint32_t, void* argument) {
    static_cast<uapi::GetProcessAperturesNewArgs*>(argument)->num_of_nodes = 1u << 30;
    return 0;
  };
  CHECK(!(*kfd)->GetProcessApertures().ok());
}

TEST(the_real_kernel_behind_the_seam) {
  LinuxSys sys;
  std::string text;
  CHECK_EQ(sys.ReadFile("/proc/self/comm", 4096, &text), 0);
  CHECK(!text.empty());
  CHECK_EQ(sys.ReadFile("/proc/self/comm", 1, &text), -EFBIG);
  CHECK_EQ(sys.ReadFile("/no/such/file", 10, &text), -ENOENT);
  std::vector<std::string> names;
  CHECK_EQ(sys.ListDir("/no/such/dir", &names), -ENOENT);
  CHECK_EQ(sys.ListDir("/proc/self", &names), 0);
  CHECK(names.size() > 5);
  FileStat stat;
  CHECK_EQ(sys.Stat("/dev/null", &stat), 0);
  CHECK_EQ(stat.mode & 0170000, 0020000u);
  CHECK_EQ(sys.Stat("/no/such", &stat), -ENOENT);
  CHECK_EQ(sys.Ioctl(-1, uapi::kGetVersion, nullptr), -EBADF);
  CHECK_EQ(sys.Close(-1), -EBADF);
  void* address = nullptr;
  CHECK_EQ(sys.Mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &address), 0);
  CHECK_EQ(sys.Madvise(address, 4096, MADV_DONTFORK), 0);
  CHECK_EQ(sys.Munmap(address, 4096), 0);
  CHECK_EQ(sys.Mmap(nullptr, 0, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, &address), -EINVAL);
  CHECK_EQ(sys.WhoAmI().uid, geteuid());
}

TEST(a_render_node_says_who_drives_it) {
  test::FakeSys sys;
  sys.open_errors["/dev/dri/renderD129"] = EACCES;
  const Status refused = RenderNode::Open(sys, 129).status();
  CHECK_EQ(CodeNumber(refused), Number(Code::kPermission));
  CHECK(absl::StrContains(refused.message(), "/dev/dri/renderD129"));
  {
    auto node = RenderNode::Open(sys, 128);
    CHECK_OK(node);
    sys.ioctl = [](uint32_t, void*) { return -EIO; };
    CHECK(absl::StrContains((*node)->VramUse().status().message(), "amdgpu_info"));
  }
  CHECK(sys.open_fds.empty());
}

TEST(facts_of_a_card_are_optional) {
  test::FakeSys sys;
  CHECK_EQ(ReadCardFacts(sys, 128).xgmi_physical_id, -1);
  const std::string device = "/sys/class/drm/renderD128/device/";
  sys.files[device + "current_compute_partition"] = "SPX\n";
  sys.files[device + "xgmi_physical_id"] = "5\n";
  sys.files[device + "mem_info_vram_total"] = "206141652992\n";
  const CardFacts facts = ReadCardFacts(sys, 128);
  CHECK_EQ(facts.compute_partition, "SPX");
  CHECK_EQ(facts.xgmi_physical_id, 5);
  CHECK_EQ(facts.vram_total, 206141652992u);
}

}  // namespace
}  // namespace mainarch::kfd
