// SPDX-License-Identifier: MIT
#include "backend/amdgpu/resident.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "base/clock.h"
#include "isa/kernel_images.h"

namespace mainarch::amdgpu {

using kernels::ResidentArgs;
using kernels::ResidentCommand;
using kernels::ResidentMailbox;
using kernels::ResidentOp;
using kernels::ResidentState;

namespace {

// Looks at the mailbox, each a read over the bus and a short sleep: some milliseconds.
constexpr uint32_t kPatience = 2000;

uint32_t Load(const uint32_t& word) { return __atomic_load_n(&word, __ATOMIC_ACQUIRE); }

StatusOr<gpu::Buffer> HostBuffer(gpu::Device& device, uint64_t bytes, const char* label) {
  gpu::BufferOptions options;
  options.place = gpu::Place::kSystem;
  options.caching = gpu::Caching::kUncached;
  options.label = label;
  return gpu::Buffer::Allocate(device, bytes, options);
}

// How many workgroups of a kernel a compute unit holds, on each GPU of the group.
StatusOr<std::vector<uint32_t>> GroupsPerUnit(const Gpus& gpus, absl::string_view kernel) {
  std::vector<uint32_t> groups;
  for (int32_t r = 0; r < gpus.count(); ++r) {
    gpu::Device& device = *gpus.at(r).device;
    ASSIGN_OR_RETURN(const isa::KernelRef ref, isa::FindKernel(device.chip().name, kernel));
    ASSIGN_OR_RETURN(const isa::Occupancy occupancy, isa::OccupancyOf(device.chip().name, *ref.kernel));
    groups.push_back(occupancy.groups_per_cu);
  }
  return groups;
}

}  // namespace

StatusOr<size_t> ResidentKindFor(const isa::KernelInfo& kernel) {
  if (kernel.end_at == 0) {
    return Error(Code::kUnsupported, "a resident kernel: ", kernel.name, " has no single end to come back from");
  }
  const uint32_t vgprs = kernel.vgprs - kernel.agprs;
  for (size_t kind = 0; kind < kResidentKinds; ++kind) {
    const kernels::ResidentRoom& room = kResidents[kind].room;
    if (kernel.lds_bytes <= room.op_lds && vgprs <= room.vgprs && kernel.agprs <= room.agprs) return kind;
  }
  const kernels::ResidentRoom& most = kResidents[kResidentKinds - 1].room;
  return Error(Code::kUnsupported, "a resident kernel: ", kernel.name, " wants ", kernel.lds_bytes, " bytes of LDS, ",
               vgprs, " registers and ", kernel.agprs, " for accumulation; there are ", most.op_lds, ", ", most.vgprs,
               " and ", most.agprs);
}

StatusOr<std::unique_ptr<Resident>> Resident::Create(Gpus& gpus, size_t kind, uint32_t workers, bool timed) {
  ASSIGN_OR_RETURN(const std::vector<uint32_t> groups, GroupsPerUnit(gpus, kResidents[kind].kernel));
  for (size_t r = 0; r < groups.size(); ++r) {  // all of them run at once, on each GPU
    workers = std::clamp<uint32_t>(workers, 1, groups[r] * ComputeUnits(*gpus.at(static_cast<int32_t>(r)).device));
  }
  std::vector<uint32_t> units;
  for (const uint32_t of_unit : groups) units.push_back((workers + of_unit - 1) / of_unit);
  std::unique_ptr<Resident> out(new Resident(gpus, kind, workers, std::move(units), timed));
  RETURN_IF_ERROR(gpus.Settle(gpus.Claim(nullptr)));
  RETURN_IF_ERROR(gpus.Settle(gpus.LoadThreaded(kind)));
  out->ranks_.resize(static_cast<size_t>(gpus.count()));
  RETURN_IF_ERROR(out->CreateAsks());
  for (int32_t r = 0; r < gpus.count(); ++r) RETURN_IF_ERROR(out->CreateRank(r));
  return out;
}

Resident::~Resident() {
  if (!claimed_) return;
  std::lock_guard<std::mutex> lock(gpus_.mutex());
  const bool well = gpus_.Health().ok() && gpus_.Settle(Leave(false)).ok();
  for (int32_t r = 0; well && launches_ > 0 && r < static_cast<int32_t>(ranks_.size()); ++r) {
    gpus_.Settle(gpus_.at(r).queue->Wait(ranks_[static_cast<size_t>(r)].point, gpus_.Soon()))
        .IgnoreError();
  }
  gpus_.Release(this);
}

// In memory of the rank that looks there. The host writes to the first rank's, that rank to the
// others'.
Status Resident::CreateAsks() {
  std::array<gpu::Device*, 1> first = {gpus_.at(0).device};
  for (size_t r = 0; r < ranks_.size(); ++r) {
    Gpu& gpu = gpus_.at(static_cast<int32_t>(r));
    gpu::BufferOptions options;
    options.caching = gpu::Caching::kUncached;
    options.label = "resident asks";
    if (r > 0) options.peers = first;
    if (r == 0 && gpu.device->node().vram_is_host_visible()) options.host_access = true;
    if (r == 0 && !options.host_access) options.place = gpu::Place::kSystem;
    ASSIGN_OR_RETURN(ranks_[r].asks, gpu::Buffer::Allocate(*gpu.device, sizeof(uint32_t), options));
    memory_bytes_ += ranks_[r].asks.size();
    RETURN_IF_ERROR(gpu.copy->Fill(ranks_[r].asks.va(), 0, ranks_[r].asks.size(), gpus_.Soon()));
    ASSIGN_OR_RETURN(const uint64_t filled, gpu.copy->Submit(gpus_.Soon()));
    RETURN_IF_ERROR(gpu.copy->Wait(filled, gpus_.Soon()));
  }
  return OkStatus();
}

Status Resident::CreateRank(int32_t rank) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  Gpu& gpu = gpus_.at(rank);
  ASSIGN_OR_RETURN(own.mailbox, HostBuffer(*gpu.device, sizeof(ResidentMailbox), "resident mailbox"));
  ASSIGN_OR_RETURN(own.copy, HostBuffer(*gpu.device, sizeof(ResidentState), "copy of the resident state"));
  const ResidentMailbox empty;
  std::memcpy(own.mailbox.host(), &empty, sizeof(empty));
  gpu::BufferOptions options;
  options.label = "resident state";
  ASSIGN_OR_RETURN(own.state, gpu::Buffer::Allocate(*gpu.device, sizeof(ResidentState), options));
  RETURN_IF_ERROR(gpu.copy->Fill(own.state.va(), 0, own.state.size(), gpus_.Soon()));
  ASSIGN_OR_RETURN(const uint64_t filled, gpu.copy->Submit(gpus_.Soon()));
  RETURN_IF_ERROR(gpu.copy->Wait(filled, gpus_.Soon()));
  if (timed_) {
    // Not in host memory: a store to there would be waited for at each meeting.
    ASSIGN_OR_RETURN(own.times, AllocateWrittenOnce(*gpu.device, 2 * (kMostOps + 1) * sizeof(uint64_t), "resident times"));
  }
  using Kernarg = kernels::Kernarg<ResidentArgs>;
  constexpr uint64_t kStride = 256;
  static_assert(sizeof(Kernarg) <= kStride);
  ASSIGN_OR_RETURN(own.kernargs, AllocateWrittenOnce(*gpu.device, 2 * kStride, "resident arguments"));
  ASSIGN_OR_RETURN(const gpu::Kernel* kernel, gpu.resident->Find(kResidents[kind_].kernel));
  for (uint32_t turn = 0; turn < 2; ++turn) {
    Kernarg kernarg;
    kernarg.args.mailbox.address = own.mailbox.va();
    kernarg.args.state.address = own.state.va();
    kernarg.args.times.address = timed_ ? own.times.va() : 0;
    kernarg.args.turn = turn;
    kernarg.args.patience = kPatience;
    kernarg.args.rank = static_cast<uint32_t>(rank);
    kernarg.args.ranks = static_cast<uint32_t>(ranks_.size());
    for (size_t r = 0; r < ranks_.size(); ++r) kernarg.args.asks[r].address = ranks_[r].asks.va();
    kernarg.workers = workers_;
    std::memcpy(own.kernargs.host() + turn * kStride, &kernarg, sizeof(kernarg));
    gpu::Dispatch dispatch;
    dispatch.kernel_object = kernel->object;
    dispatch.kernarg = own.kernargs.va() + turn * kStride;
    dispatch.workgroup.x = kernels::kThreads;
    dispatch.grid.x = workers_ * kernels::kThreads;
    dispatch.group_bytes = kernel->group_bytes;
    own.packets[turn] = gpu::MakeDispatch(dispatch, gpu::AqlOrder{});
  }
  memory_bytes_ += own.mailbox.size() + own.copy.size() + own.state.size() + own.kernargs.size();
  return OkStatus();
}

StatusOr<ResidentOp> Resident::OpOf(int32_t rank, const Launch& launch, uint64_t kernarg) const {
  ASSIGN_OR_RETURN(const gpu::Kernel* kernel, gpus_.at(rank).threaded[kind_]->Find(launch.kernel));
  ResidentOp op;
  op.code = kernel->entry;
  op.kernarg = kernarg;
  op.workers = std::min(launch.workers, workers_);
  op.beside = launch.beside;
  op.kernarg_bytes = static_cast<uint16_t>(kernel->kernarg_bytes);
  ASSIGN_OR_RETURN(const isa::KernelRef ref,
                   isa::FindKernel(gpus_.at(rank).device->chip().name, launch.kernel));
  op.reads = launch.reads;
  op.reads_stride = static_cast<uint32_t>(launch.reads_stride);
  op.reads_bytes = static_cast<uint32_t>(std::min<uint64_t>(launch.reads_stride, kernels::kResidentReads));
  op.code_bytes = ref.kernel->code_bytes;
  return op;
}

Status Resident::SetLists(int32_t rank, std::vector<ResidentList> lists) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  gpu::Device& device = *gpus_.at(rank).device;
  std::vector<ResidentOp> all;
  for (ResidentList& list : lists) {
    if (list.ops.size() > kMostOps) {
      return Error(Code::kUnsupported, "a step of ", list.ops.size(), " launches; the resident kernel takes ", kMostOps);
    }
    SetStops(/*alone=*/ranks_.size() == 1, &list);
    DealApart(workers_, &list);
    // A look costs the meeting some of its time. The first rank looks now and then, the others, which it tells,
    // wherever they can.
    constexpr size_t kLooksApart = 4;
    for (size_t i = 0; i < list.ops.size(); ++i) {
      if (rank != 0) list.ops[i].stop_at = UINT16_MAX;
      if (rank == 0 && i % kLooksApart != 0) list.ops[i].stop_at = 0;
    }
    all.insert(all.end(), list.ops.begin(), list.ops.end());
  }
  const uint64_t bytes = std::max<uint64_t>(1, all.size()) * sizeof(ResidentOp);
  ASSIGN_OR_RETURN(own.lists, AllocateWrittenOnce(device, bytes, "resident lists"));
  memory_bytes_ += own.lists.size();
  std::memcpy(own.lists.host(), all.data(), all.size() * sizeof(ResidentOp));
  uint64_t at = own.lists.va();
  for (const ResidentList& list : lists) {
    kernels::ResidentCommand command;
    command.ops = at;
    command.count = static_cast<uint16_t>(list.ops.size());
    own.commands.push_back(command);
    at += list.ops.size() * sizeof(ResidentOp);
  }
  alike_ = alike_ && (rank == 0 || Alike(first_lists_, lists));
  if (rank == 0) first_lists_ = std::move(lists);
  return device.node().vram_is_host_visible() ? device.FlushHostWrites() : OkStatus();
}

ResidentMailbox* Resident::MailboxOf(int32_t rank) const {
  return ranks_[static_cast<size_t>(rank)].mailbox.host<ResidentMailbox>();
}

bool Resident::Reached(int32_t rank, uint64_t number) const {
  return static_cast<int32_t>(Load(MailboxOf(rank)->done) - static_cast<uint32_t>(number)) >= 0;
}

Resident::Round Resident::Look(int32_t rank, uint64_t number, uint32_t round) const {
  // In this order: the last round is told of before the command's end is.
  const bool over = Reached(rank, number);
  const uint32_t ran = Load(MailboxOf(rank)->ran[number % kernels::kResidentSlots]);
  const uint32_t none = kernels::ResidentRan(static_cast<uint32_t>(number), 0);
  if ((ran ^ none) < 256 && ran - none >= round) return Round::kRan;
  return over ? Round::kLeftOut : Round::kRuns;
}

uint64_t Resident::Moved(int32_t rank) const {
  const ResidentMailbox& mailbox = *MailboxOf(rank);
  uint64_t moved = Load(mailbox.done);
  for (const uint32_t& ran : mailbox.ran) moved += Load(ran);
  return moved;
}

void Resident::Recall() { __atomic_store_n(&MailboxOf(0)->recall, recalls_, __ATOMIC_RELEASE); }

uint64_t Resident::recall() const { return ranks_[0].mailbox.va() + offsetof(ResidentMailbox, recall); }

bool Resident::left() const {
  for (int32_t r = 0; r < gpus_.count(); ++r) {
    const Rank& own = ranks_[static_cast<size_t>(r)];
    if (own.there && Load(MailboxOf(r)->left) != own.posted + 1) return false;
  }
  return true;
}

bool Resident::AllAreThere() const {
  for (int32_t r = 0; r < gpus_.count(); ++r) {
    const Rank& own = ranks_[static_cast<size_t>(r)];
    if (!own.there || Load(MailboxOf(r)->left) == own.posted + 1 || Load(MailboxOf(r)->paused) != own.resumed) return false;
  }
  return true;
}

uint32_t Resident::late() const {
  uint32_t late = 0;
  for (int32_t r = 0; r < gpus_.count(); ++r) late = std::max(late, Load(MailboxOf(r)->late));
  return late;
}

StatusOr<std::vector<backend::OpTimes>> Resident::Times(int32_t rank, size_t list) const {
  const Rank& own = ranks_[static_cast<size_t>(rank)];
  if (!timed_) return Error(Code::kInternal, "no times of ops are kept");
  const size_t count = own.commands[list].count;
  const uint64_t* ticks = own.times.host<uint64_t>();
  constexpr double kTickUs = 0.01;
  std::vector<backend::OpTimes> out;
  for (size_t i = 0; i <= count; ++i) {
    out.push_back({static_cast<double>(ticks[2 * i]) * kTickUs, static_cast<double>(ticks[2 * i + 1]) * kTickUs,
                   alike_ && i < count ? first_lists_[list].ops[i].stop_at : 0u});
  }
  return out;
}

StatusOr<uint32_t> Resident::WordOf(int32_t rank, uint64_t at) const {
  const gpu::Buffer& copy = ranks_[static_cast<size_t>(rank)].copy;
  RETURN_IF_ERROR(gpus_.CopyAndWait(rank, copy.va(), at, sizeof(uint32_t)));
  return *copy.host<uint32_t>();
}

StatusOr<uint64_t> Resident::Meetings(int32_t rank) const {
  const Rank& own = ranks_[static_cast<size_t>(rank)];
  RETURN_IF_ERROR(gpus_.CopyAndWait(rank, own.copy.va(), own.state.va(), sizeof(ResidentState)));
  const auto& meeting = own.copy.host<ResidentState>()->meetings[(own.launches + 1) % 2];
  uint64_t met = 0;
  for (const kernels::ResidentLine& line : meeting.arrived) met += line.values[0];
  return met / workers_;
}

Status Resident::PostCommand(int32_t rank, ResidentCommand command, bool launches) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  ResidentMailbox* mailbox = MailboxOf(rank);
  command.number = ++own.posted;
  ResidentCommand& slot = mailbox->commands[command.number % kernels::kResidentSlots];
  slot.ops = command.ops;
  slot.ends = command.ends;
  slot.count = command.count;
  slot.rounds = command.rounds;
  slot.kind = command.kind;
  __atomic_store_n(&slot.number, command.number, __ATOMIC_RELEASE);
  // Before it looks at `left`: see resident_args.h.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool gone = Load(mailbox->left) == command.number || !own.there;
  own.there = command.count != 0 && launches;
  if (rank == 0 && command.count != 0 && command.kind != kernels::kBeside) recalls_ = command.number;
  if (!gone || !launches) return OkStatus();
  gpu::Queue& queue = *gpus_.at(rank).queue;
  if (command.count != 0) return Start(&own, &queue);
  // It has left by itself, and the number is free, unless it has seen the end when it looked once more.
  RETURN_IF_ERROR(queue.Wait(own.point, gpus_.Soon()));
  if (Reached(rank, command.number)) return OkStatus();
  __atomic_store_n(&slot.number, command.number - kernels::kResidentSlots, __ATOMIC_RELEASE);
  --own.posted;
  return OkStatus();
}

Status Resident::Start(Rank* rank, gpu::Queue* queue) {
  ASSIGN_OR_RETURN(rank->point, queue->SubmitSignalled(rank->packets[rank->launches++ % 2], "resident", gpus_.Soon()));
  launches_ = std::max(launches_, rank->launches);
  rank->rung = false;
  return OkStatus();
}

StatusOr<uint64_t> Resident::Post(int32_t rank, size_t list, const Work& work, bool launches) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  ResidentCommand command = own.commands[list];
  command.kind = work.kind;
  command.rounds = static_cast<uint16_t>(work.rounds);
  command.ends = work.ends[static_cast<size_t>(rank)];
  RETURN_IF_ERROR(PostCommand(rank, command, launches));
  return own.posted;
}

void Resident::Ring() {
  for (int32_t r = 0; r < gpus_.count(); ++r) {
    Rank& own = ranks_[static_cast<size_t>(r)];
    if (!own.rung) gpus_.at(r).queue->Ring();
    own.rung = true;
  }
}

// Another number for the first rank's kernel, which looks now and then (SetLists). It is not taken back: a kernel that ends by
// itself remembers it as answered.
Status Resident::Ask() {
  __atomic_store_n(ranks_[0].asks.host<uint32_t>(), ++asks_, __ATOMIC_RELEASE);
  gpu::Device& device = *gpus_.at(0).device;
  return device.node().vram_is_host_visible() ? device.FlushHostWrites() : OkStatus();
}

uint32_t Resident::pauses() const { return Load(MailboxOf(0)->paused); }

bool Resident::Paused() const {
  for (int32_t r = 0; r < static_cast<int32_t>(ranks_.size()); ++r) {
    if (Load(MailboxOf(r)->paused) == ranks_[static_cast<size_t>(r)].resumed) return false;
  }
  return true;
}

// Every end of a kernel, by a pause, a command or itself, has one launch behind it, if there is room; which of them are in
// the queue already does not matter: each goes on where the one before has left.
Status Resident::Resume() {
  RETURN_IF_ERROR(Claim());
  for (int32_t r = 0; r < static_cast<int32_t>(ranks_.size()); ++r) {
    Rank& own = ranks_[static_cast<size_t>(r)];
    RETURN_IF_ERROR(Start(&own, gpus_.at(r).queue.get()));
    ++own.resumed;
  }
  Ring();
  return OkStatus();
}

Status Resident::Claim() {
  claimed_ = true;
  return gpus_.Claim(this);
}

// All ranks have left before the same op of the same command, so the first one's state tells of all.
StatusOr<Resident::Stand> Resident::TakeStand() {
  for (int32_t r = 0; r < gpus_.count(); ++r) {
    Rank& own = ranks_[static_cast<size_t>(r)];
    own.there = false;
    own.resumed = Load(MailboxOf(r)->paused);
  }
  const Rank& first = ranks_[0];
  RETURN_IF_ERROR(gpus_.CopyAndWait(0, first.copy.va(), first.state.va(), sizeof(ResidentState)));
  const ResidentState& state = *first.copy.host<ResidentState>();
  const kernels::ResidentResume& resume = state.meetings[first.launches % 2].resume;
  return Stand{state.command.number, resume.next, resume.work >> 16, state.ran, state.broken != 0};
}

absl::optional<std::pair<size_t, ResidentCommand>> Resident::PostedAt(uint32_t number) const {
  const ResidentCommand& command = MailboxOf(0)->commands[number % kernels::kResidentSlots];
  const std::vector<ResidentCommand>& lists = ranks_[0].commands;
  for (size_t i = 0; command.number == number && command.count != 0 && i < lists.size(); ++i) {
    if (lists[i].ops == command.ops) return std::make_pair(i, command);
  }
  return absl::nullopt;
}

void Resident::TellRan(uint32_t number, uint32_t rounds) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const uint32_t own = NumberOn(r, number);
    uint32_t* const ran = MailboxOf(static_cast<int32_t>(r))->ran;
    __atomic_store_n(&ran[own % kernels::kResidentSlots], kernels::ResidentRan(own, rounds), __ATOMIC_RELEASE);
  }
}

void Resident::TellDone(uint32_t number) {
  for (size_t r = 0; r < ranks_.size(); ++r) {
    __atomic_store_n(&MailboxOf(static_cast<int32_t>(r))->done, NumberOn(r, number), __ATOMIC_RELEASE);
  }
}

// The state as each rank's kernel has left it, but for the command and whether a pause has interrupted it.
Status Resident::GoOnBehind(bool broken) {
  for (int32_t r = 0; r < gpus_.count(); ++r) {
    const Rank& own = ranks_[static_cast<size_t>(r)];
    RETURN_IF_ERROR(gpus_.CopyAndWait(r, own.copy.va(), own.state.va(), sizeof(ResidentState)));
    ResidentState& state = *own.copy.host<ResidentState>();
    state.command.number = own.posted;
    state.broken = broken;
    state.meetings[own.launches % 2].resume = {};
    RETURN_IF_ERROR(gpus_.CopyAndWait(r, own.state.va(), own.copy.va(), sizeof(ResidentState)));
  }
  return OkStatus();
}

Status Resident::Leave(bool pause) {
  Recall();
  // Idle kernels find the end at once.
  if (pause && alike_ && !Reached(0, ranks_[0].posted)) RETURN_IF_ERROR(Ask());
  for (int32_t r = 0; r < static_cast<int32_t>(ranks_.size()); ++r) {
    if (!ranks_[static_cast<size_t>(r)].there) continue;
    RETURN_IF_ERROR(PostCommand(r, {}, /*launches=*/true));
  }
  return OkStatus();
}

}  // namespace mainarch::amdgpu
