// SPDX-License-Identifier: MIT
#include "sim/isa/grid.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "sim/isa/lines.h"
#include "sim/isa/symbols.h"

namespace mainarch::sim::isa {
namespace {

constexpr uint64_t kWindowPerThread = 4;  // workgroups a thread works on before it starts more
constexpr uint32_t kPoison = 0x7ff7bad0;  // what registers and LDS hold before they are written

uint32_t WavesOf(const KernelLaunch& l) {
  return (l.workgroup[0] * l.workgroup[1] * l.workgroup[2] + 63) / 64;
}

// VGPRs a wave is given, AGPRs included.
uint32_t RegistersOf(const KernelLaunch& l) { return ((l.rsrc1 & 63) + 1) * 8; }

uint32_t VectorsOf(const KernelLaunch& l) { return std::min(RegistersOf(l), 256u); }

uint32_t AccumulatorsOf(const KernelLaunch& l) {
  const uint32_t total = RegistersOf(l), first = (l.rsrc3 & 63) * 4 + 4;
  return total > first ? std::min(total - first, 256u) : 0;
}

bool IsVector(Family family) {
  switch (family) {
    case Family::kSop2:
    case Family::kSopk:
    case Family::kSop1:
    case Family::kSopc:
    case Family::kSopp:
    case Family::kSmem:
      return false;
    default:
      return true;
  }
}

void FillPoison(uint8_t* bytes, size_t size) {
  auto* words = reinterpret_cast<uint32_t*>(bytes);  // of a vector: aligned
  std::fill(words, words + size / 4, kPoison);
}

template <class T>
T Field(const uint8_t* bytes, int at) {
  T value;
  std::memcpy(&value, bytes + at, sizeof value);
  return value;
}

}  // namespace

Status ReadDescriptor(const uint8_t d[64], KernelLaunch* launch) {
  launch->rsrc3 = Field<uint32_t>(d, 44);
  launch->rsrc1 = Field<uint32_t>(d, 48);
  launch->rsrc2 = Field<uint32_t>(d, 52);
  launch->properties = Field<uint16_t>(d, 56);
  launch->preload = Field<uint16_t>(d, 58);
  if (launch->properties & 1 << 10) {
    return Error(Code::kUnsupported, "kernel descriptor: wave32 is set, the chip has wave64 only");
  }
  if (launch->properties & (1 << 0 | 1 << 5)) {
    return Error(Code::kUnsupported, "kernel descriptor: properties ", launch->properties,
                 " ask for a private segment buffer or flat scratch init, which the chip has not");
  }
  const uint32_t users = launch->rsrc2 >> 1 & 31;
  if (users > 16) {
    return Error(Code::kInvalidArgument, "kernel descriptor: user sgpr count ", users, " above 16");
  }
  return OkStatus();
}

uint64_t ResidentWorkgroups(const KernelLaunch& l, const ChipLimits& limits) {
  const uint32_t waves_per_simd =
      std::min(limits.waves_per_simd, 512 / std::max(RegistersOf(l), 1u));
  const uint32_t waves = WavesOf(l);
  // A workgroup's waves are dealt to the SIMDs in turn.
  const uint32_t slots = waves_per_simd * limits.simds_per_cu;
  uint64_t per_cu = waves == 0 ? 0 : slots / waves;
  if (l.lds_bytes > 0) {
    const uint32_t rounded =
        (l.lds_bytes + limits.lds_granule - 1) / limits.lds_granule * limits.lds_granule;
    per_cu = std::min<uint64_t>(per_cu, limits.lds_bytes / rounded);
  }
  return per_cu * limits.cus_per_xcc * limits.xccs;
}

StatusOr<std::unique_ptr<Grid>> Grid::Create(Program* program, const KernelLaunch& launch,
                                             const ChipLimits& limits,
                                             std::vector<Memory*> memories) {
  const uint64_t items = uint64_t{launch.workgroup[0]} * launch.workgroup[1] * launch.workgroup[2];
  if (items == 0 || items > 1024) {
    return Error(Code::kInvalidArgument, "workgroup of ", items, " work-items, not 1 to 1024");
  }
  if (launch.lds_bytes > limits.lds_bytes) {
    return Error(Code::kInvalidArgument, "workgroup wants ", launch.lds_bytes,
                 " bytes of lds, a compute unit has ", limits.lds_bytes);
  }
  std::unique_ptr<Grid> grid(new Grid(program, launch, std::move(memories)));
  grid->total_ = 1;
  for (int i = 0; i < 3; ++i) {
    if (launch.grid[i] == 0) return Error(Code::kInvalidArgument, "grid size ", i, " is zero");
    grid->groups_[i] = (launch.grid[i] + launch.workgroup[i] - 1) / launch.workgroup[i];
    grid->total_ *= grid->groups_[i];
  }
  grid->xccs_ = std::max(limits.xccs, 1u);
  grid->cus_per_xcc_ = std::max(limits.cus_per_xcc, 1u);
  grid->resident_limit_ = ResidentWorkgroups(launch, limits);
  if (grid->resident_limit_ == 0) {
    return Error(Code::kInvalidArgument, "a workgroup of ", WavesOf(launch), " waves with ",
                 RegistersOf(launch), " registers does not fit a compute unit");
  }
  // No document says whether a compute unit gets a second workgroup before each has one.
  grid->neighbours_ = std::min<uint32_t>(1 + (launch.seed >> 5 & 1), grid->resident_limit_ / (grid->xccs_ * grid->cus_per_xcc_));
  grid->neighbours_ = std::max(grid->neighbours_, 1u);
  grid->window_ = kWindowPerThread * grid->memories_.size();
  grid->random_ = launch.seed * 0x9e3779b97f4a7c15 + 1;
  grid->limits_ = limits;
  if (launch.pace != nullptr) grid->paced_ = launch.pace->Begin(grid.get());
  return grid;
}

uint64_t Grid::NextRandom() {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return random_;
}

Grid::Result Grid::Run(uint64_t budget) {
  if (paced_ != nullptr) return paced_->Run(budget);
  if (result_.state == State::kStopped || result_.state == State::kDone) return result_;
  used_ = 0;
  waiting_ = false;
  std::vector<std::thread> threads;
  for (size_t i = 1; i < memories_.size(); ++i) {
    threads.emplace_back([this, i, budget] { Work(memories_[i], budget); });
  }
  Work(memories_[0], budget);
  for (std::thread& thread : threads) thread.join();
  instructions_ += used_;
  if (result_.state == State::kStopped) return result_;
  result_.state = active_ == 0 && next_ == total_ ? State::kDone
                  : waiting_ || quiet_            ? State::kWaiting
                                                  : State::kRunning;
  result_.detail.clear();
  if (waiting_ && next_ < total_) {
    result_.detail =
        absl::StrCat("all ", active_, " resident workgroups wait; ", total_ - next_, " of ", total_,
                     " have no room on the chip (limit ", resident_limit_,
                     "): a grid barrier over them hangs on silicon too");
    if (launch_.observer != nullptr) {
      // Under checkers this is a finding, not a wait for somebody's deadline.
      result_.state = State::kStopped;
      result_.reason = StopReason::kCheck;
      result_.detail = absl::StrCat("checker: ", result_.detail);
    }
  }
  return result_;
}

std::string Grid::Name() const {
  return launch_.descriptor == 0 ? "" : KernelName(memory(), launch_.descriptor);
}

std::string Grid::Report(const Wave& w, Memory* memory) const {
  std::string name = launch_.descriptor == 0 ? "" : KernelName(memory, launch_.descriptor);
  if (!name.empty()) name = absl::StrCat(name, "+0x", absl::Hex(w.at - launch_.entry), ", ");
  for (const std::shared_ptr<const LineTable>& lines : launch_.lines) {
    const std::string line = lines->FindLoaded(memory, w.at);
    if (!line.empty()) return absl::StrCat(name, line, ", ", Describe(w, program_.set().isa()));
  }
  return absl::StrCat(name, Describe(w, program_.set().isa()));
}

void Grid::DropTranslations() {
  if (paced_ != nullptr) return paced_->DropTranslations();
  for (const std::unique_ptr<Workgroup>& group : ready_) {
    for (Wave& w : group->waves) {
      for (View& view : w.views) view = View();
    }
  }
}

// Starts workgroups while there is room: always up to the window; beyond it, up to what the chip
// holds, only once those started have had their turns without ending (they may wait for others).
void Grid::Admit() {
  if (window_turns_ > 16 * window_) {
    window_ = std::min(window_ * 2, std::max<uint64_t>(resident_limit_, 1));
    window_turns_ = 0;
  }
  while (next_ < total_ && active_ < std::min(window_, resident_limit_)) {
    ready_.push_back(Start(next_++));
    ++active_;
  }
}

std::unique_ptr<Workgroup> Grid::Next() {
  Admit();
  if (ready_.empty()) return nullptr;
  // Mostly in turn, now and then not.
  const size_t pick = NextRandom() % 4 == 0 ? NextRandom() % ready_.size() : 0;
  std::unique_ptr<Workgroup> group = std::move(ready_[pick]);
  ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(pick));
  return group;
}

void Grid::Work(Memory* memory, uint64_t budget) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (result_.state != State::kStopped && used_ < budget && !waiting_) {
    std::unique_ptr<Workgroup> group = Next();
    if (group == nullptr) return;
    lock.unlock();
    bool busy = false;
    const uint64_t ran = RunGroup(group.get(), memory, &busy);
    lock.lock();
    used_ += std::max<uint64_t>(ran, 1);
    ++window_turns_;
    idle_turns_ = busy ? 0 : idle_turns_ + 1;
    quiet_ = quiet_ && !busy;
    for (Wave& w : group->waves) {
      if (w.state != WaveState::kStopped || result_.state == State::kStopped) continue;
      result_ = {State::kStopped, w.stop, w.fault, Report(w, memory)};
    }
    if (group->live == 0) {
      --active_;
      program_.KeepSpare(std::move(group));
      window_turns_ = 0;
    } else {
      ready_.push_back(std::move(group));
    }
    const bool everyone = active_ >= resident_limit_ || next_ == total_;
    if (idle_turns_ <= 4 * active_ + 16 || active_ == 0) continue;
    // Nobody has done more than look and sleep for several rounds.
    if (everyone)
      waiting_ = quiet_ = true;
    else
      window_ = std::min(window_ * 2, resident_limit_);
    idle_turns_ = 0;
  }
}

std::unique_ptr<Workgroup> Grid::Start(uint64_t index) {
  std::unique_ptr<Workgroup> group = program_.TakeSpare();
  if (group == nullptr) group = std::make_unique<Workgroup>();
  // Fewer waves than now: those beyond have registers that nobody has filled.
  if (group->waves.size() < WavesOf(launch_)) std::fill(std::begin(group->filled), std::end(group->filled), 0u);
  group->waves.clear();
  group->live = 0;
  group->turn = 0;
  group->index = index;
  group->id[0] = static_cast<uint32_t>(index % groups_[0]);
  group->id[1] = static_cast<uint32_t>(index / groups_[0] % groups_[1]);
  group->id[2] = static_cast<uint32_t>(index / groups_[0] / groups_[1]);
  group->isa = program_.set().isa();
  group->exact_matrix = launch_.exact_matrix;
  return group;
}

// The lanes' work-item numbers in v0, and in EXEC those that the grid has: the last workgroup of a
// dimension may be partial.
void Grid::SetItems(Wave& w) {
  const auto& size = launch_.workgroup;
  const uint32_t dims = launch_.rsrc2 >> 11 & 3, flat = w.index * 64;
  uint32_t left[3];  // items of the grid from this workgroup's first on
  for (int i = 0; i < 3; ++i) {
    const uint64_t before = uint64_t{w.group->id[i]} * size[i];
    left[i] = static_cast<uint32_t>(std::min<uint64_t>(size[i], launch_.grid[i] - before));
  }
  uint32_t x = flat % size[0], y = flat / size[0] % size[1], z = flat / size[0] / size[1];
  uint64_t exec = 0;
  if (x + 64 <= size[0]) {  // mostly: all lanes in one line of items
    const uint32_t first = x | (dims >= 1 ? y << 10 : 0) | (dims >= 2 ? z << 20 : 0);
    for (uint32_t lane = 0; lane < 64; ++lane) w.v[lane] = first + lane;
    const uint32_t lanes = y < left[1] && z < left[2] && x < left[0] ? std::min(left[0] - x, 64u) : 0;
    exec = lanes == 0 ? 0 : ~uint64_t{0} >> (64 - lanes);
  } else {
    for (uint32_t lane = 0; lane < 64; ++lane) {
      w.v[lane] = x | (dims >= 1 ? y << 10 : 0) | (dims >= 2 ? z << 20 : 0);
      exec |= uint64_t{x < left[0] && y < left[1] && z < left[2]} << lane;
      if (++x < size[0]) continue;
      x = 0;
      if (++y < size[1]) continue;
      y = 0;
      ++z;
    }
  }
  w.set_exec(exec);
  if (exec == 0) w.state = WaveState::kDone;
}

void Grid::InitWave(Workgroup* group, uint32_t index, Memory* memory, bool fill) {
  Wave& w = group->waves[index];
  w.group = group;
  w.index = index;
  w.memory = memory;
  w.bulk = program_.set().bulk();
  w.pc = launch_.entry;
  w.mode = (launch_.rsrc1 >> 12 & 0xff) | (launch_.rsrc1 >> 21 & 1) << 8 |
           (launch_.rsrc1 >> 23 & 1) << 9 | (launch_.rsrc1 >> 26 & 1) << 23;
  w.v = group->registers.get() + size_t{512} * kLanes * index;
  if (fill) {
    std::fill_n(w.v, VectorsOf(launch_) * kLanes, kPoison);
    std::fill_n(w.v + 256 * kLanes, AccumulatorsOf(launch_) * kLanes, kPoison);
  }
  std::fill(std::begin(w.s), std::end(w.s), kPoison);
  w.SetPair(reg::kFlatScratch, 0);  // not set by the program: scratch is the interpreter's own
  w.scratch_bytes = launch_.private_bytes;
  w.scratch = group->scratch.data() + size_t{launch_.private_bytes} * kLanes * index;
  // Workgroups are dealt to the XCCs in turn, and there to the compute units.
  w.xcc_id = static_cast<uint32_t>((group->index + launch_.first_xcc) % xccs_);
  w.hw_id = HwId(index, static_cast<uint32_t>(group->index / xccs_ / neighbours_ % cus_per_xcc_));

  SetItems(w);

  int s = 0;
  const auto pair = [&w, &s](uint64_t value) {
    w.s[s++] = static_cast<uint32_t>(value);
    w.s[s++] = static_cast<uint32_t>(value >> 32);
  };
  const uint16_t p = launch_.properties;
  if (p & 2) pair(launch_.packet);
  if (p & 4) pair(launch_.queue);
  if (p & 8) pair(launch_.kernarg);
  if (p & 16) pair(launch_.dispatch_id);
  if (p & 64) w.s[s++] = launch_.private_bytes;
  const uint32_t preload = launch_.preload & 127, skip = launch_.preload >> 7;
  if (preload != 0) {
    // Firmware that preloads enters past the prologue that would load the same dwords.
    for (uint32_t i = 0; i < preload && s < 16; ++i) {
      uint32_t dword = 0;
      w.Copy(launch_.kernarg + 4 * (skip + i), 4, reinterpret_cast<uint8_t*>(&dword), false);
      w.s[s++] = dword;
    }
    w.pc += 256;
  }
  s = static_cast<int>(launch_.rsrc2 >> 1 & 31);
  if (launch_.has_user_data) std::copy_n(launch_.user_data.begin(), s, w.s);
  for (int i = 0; i < 3; ++i) {
    if (launch_.rsrc2 >> (7 + i) & 1) w.s[s++] = group->id[i];
  }
  if (launch_.rsrc2 >> 10 & 1)
    w.s[s++] = static_cast<uint32_t>(group->waves.size()) | (index == 0 ? 1u << 31 : 0);
}

void Grid::SetUp(Workgroup* group, Memory* memory) {
  const uint32_t waves = WavesOf(launch_);
  if (group->register_waves < waves) {
    const size_t bytes = size_t{512} * kLanes * 4 * waves;
    group->registers.reset(static_cast<uint32_t*>(std::aligned_alloc(4096, bytes)));
    if (group->registers == nullptr) throw std::bad_alloc();
    group->register_waves = waves;
  }
  group->registers_per_wave = RegistersOf(launch_);
  group->lds.resize(launch_.lds_bytes);
  FillPoison(group->lds.data(), group->lds.size());
  group->scratch.assign(size_t{launch_.private_bytes} * kLanes * waves, 0);
  group->waves.resize(waves);
  // Registers used again keep what an earlier workgroup left, unless somebody looks: filling them
  // would take longer than many a short wave runs.
  const uint32_t used[2] = {VectorsOf(launch_), AccumulatorsOf(launch_)};
  const bool fill = group->filled[0] < used[0] || group->filled[1] < used[1] || launch_.observer != nullptr;
  for (int i = 0; i < 2; ++i) group->filled[i] = std::max(group->filled[i], used[i]);
  for (uint32_t i = 0; i < waves; ++i) InitWave(group, i, memory, fill);
  for (Wave& w : group->waves) group->live += w.state != WaveState::kDone;
  if (launch_.observer != nullptr) launch_.observer->Begin(*group);
}

uint64_t Grid::RunGroup(Workgroup* group, Memory* memory, bool* busy) {
  const uint32_t waves = WavesOf(launch_);
  if (group->waves.empty()) SetUp(group, memory);
  uint64_t ran = 0;
  Program::Chunk* chunk = nullptr;  // waves are mostly in one
  const uint32_t first = static_cast<uint32_t>((launch_.seed + group->turn++) % waves);
  for (uint32_t i = 0; i < waves; ++i) {
    Wave& w = group->waves[(first + i) % waves];
    if (w.memory != memory) {
      w.memory = memory;
      for (View& view : w.views) view = View();
    }
    if (w.state == WaveState::kSleeping) w.state = WaveState::kRunning;
    if (w.state != WaveState::kRunning) continue;
    ran += launch_.observer == nullptr ? RunWave<false>(w, launch_.slice, &chunk)
                                       : RunWave<true>(w, launch_.slice, &chunk);
    if (w.state != WaveState::kSleeping) *busy = true;
    if (w.state == WaveState::kDone) --group->live;
    if (w.state == WaveState::kStopped) return ran;
    ReleaseBarrier(group);
  }
  return ran;
}

// All live waves at the barrier: let them go.
void Grid::ReleaseBarrier(Workgroup* group) {
  uint32_t waiting = 0;
  for (const Wave& w : group->waves) waiting += w.state == WaveState::kBarrier;
  if (waiting == 0 || waiting < group->live) return;
  if (launch_.observer != nullptr) launch_.observer->Barrier(*group);
  for (Wave& w : group->waves) {
    if (w.state == WaveState::kBarrier) w.state = WaveState::kRunning;
  }
}

inline const Op* Grid::Fetch(Wave& w, Program::Chunk** chunk) {
  w.at = w.pc;
  uint64_t offset = w.at - (*chunk)->base;
  if (offset >= Program::kChunkBytes) {
    *chunk = program_.ChunkOf(w.at);
    offset = w.at - (*chunk)->base;
  }
  const Op* op = (*chunk)->ops[offset / 4].load(std::memory_order_acquire);
  return __builtin_expect(op != nullptr, 1) ? op : program_.DecodeAt(w, *chunk);
}

inline const Op* Grid::Straight(Wave& w, const Op& op, Program::Chunk** chunk) {
  const std::atomic_ref<const Op*> link(op.next);
  const Op* next = link.load(std::memory_order_acquire);
  if (__builtin_expect(next != nullptr, 1)) return next;
  next = Fetch(w, chunk);
  link.store(next, std::memory_order_release);
  return next;
}

template <bool kObserved>
uint64_t Grid::RunWave(Wave& w, uint64_t slice, Program::Chunk** chunk) {
  if (*chunk == nullptr) *chunk = program_.ChunkOf(w.pc);
  uint64_t n = 0;
  const Op* op = Fetch(w, chunk);
  while (op != nullptr) {
    w.at = op->after - op->bytes;
    if (kObserved && !launch_.observer->Before(w, *op)) break;
    w.pc = op->after;
    op->run(w, *op);
    ++n;
    if (kObserved && w.state != WaveState::kStopped) launch_.observer->After(w, *op);
    if (__builtin_expect(w.state != WaveState::kRunning, 0)) {
      if (w.state != WaveState::kIndexed) break;
      n += RunIndexed<kObserved>(w, chunk);
      if (w.state != WaveState::kRunning) break;
    }
    if (n >= slice) break;
    // Straight on is a pointer; elsewhere is looked up.
    op = w.pc == op->after ? Straight(w, *op, chunk) : Fetch(w, chunk);
  }
  w.instructions += n;
  return n;
}

bool Grid::Times(uint64_t* start, uint64_t* end) const {
  if (paced_ == nullptr) return false;
  paced_->Times(start, end);
  return true;
}

uint32_t Grid::waves_per_group() const { return WavesOf(launch_); }

std::unique_ptr<Workgroup> Grid::StartAt(uint64_t index) {
  std::unique_ptr<Workgroup> group = Start(index);
  SetUp(group.get(), memories_[0]);
  return group;
}

const Op* Grid::First(Wave& w, Program::Chunk** chunk) {
  *chunk = program_.ChunkOf(w.pc);
  return Fetch(w, chunk);
}

const Op* Grid::Step(Wave& w, const Op& op, Program::Chunk** chunk, uint64_t* ran) {
  Observer* const observer = launch_.observer;
  w.at = op.at;
  if (__builtin_expect(observer != nullptr, 0) && !observer->Before(w, op)) return nullptr;
  w.pc = op.after;
  op.run(w, op);
  ++instructions_;
  *ran = 1;
  if (__builtin_expect(observer != nullptr, 0) && w.state != WaveState::kStopped)
    observer->After(w, op);
  if (__builtin_expect(w.state != WaveState::kRunning, 0)) {
    if (w.state == WaveState::kSleeping) w.state = WaveState::kRunning;  // the pace lets it sleep
    if (w.state == WaveState::kIndexed) {
      const uint64_t more = observer == nullptr ? RunIndexed<false>(w, chunk)
                                                : RunIndexed<true>(w, chunk);
      *ran += more;
      instructions_ += more;
    }
    // At a barrier the wave goes on behind it.
    if (w.state != WaveState::kRunning && w.state != WaveState::kBarrier) return nullptr;
  }
  return w.pc == op.after ? Straight(w, op, chunk) : Fetch(w, chunk);
}

bool Grid::PassBarrier(Workgroup* group) {
  bool waiting = false;
  for (const Wave& w : group->waves) waiting |= w.state == WaveState::kBarrier;
  if (!waiting) return false;
  ReleaseBarrier(group);
  for (const Wave& w : group->waves) {
    if (w.state == WaveState::kBarrier) return false;
  }
  return true;
}

// Between s_set_gpr_idx_on and off vector registers are offset by M0: each instruction runs as a
// copy with moved registers. With VSKIP vector instructions do not run at all.
template <bool kObserved>
uint64_t Grid::RunIndexed(Wave& w, Program::Chunk** chunk) {
  uint64_t n = 0;
  while (w.gpr_index_on || w.vskip) {
    w.state = WaveState::kRunning;
    const Op* op = Fetch(w, chunk);
    if (op == nullptr) return n;
    if (w.vskip && op->inst.row != nullptr && IsVector(op->inst.row->family)) {
      w.pc += op->bytes;
      ++n;
      continue;
    }
    Op moved = *op;
    const uint32_t index = w.gpr_index_on ? w.s[reg::kM0] & 0xff : 0,
                   which = w.s[reg::kM0] >> 12 & 15;
    const auto move = [&](Ref* r, int bit) {
      if (r->kind != Ref::kVector || !(which >> bit & 1)) return;
      r->offset += index * kLanes;
      if (r->offset >= 512 * kLanes) w.Stop(StopReason::kIllegal, "register index out of range");
    };
    move(&moved.a, 0);
    move(&moved.b, 1);
    const bool accumulates = op->descriptor != nullptr && op->descriptor->implicit & kAccumulates;
    move(&moved.c, accumulates ? 3 : 2);
    move(&moved.d, 3);
    if (w.state == WaveState::kRunning) {
      if (kObserved && !launch_.observer->Before(w, moved)) return n;
      w.pc += op->bytes;
      moved.run(w, moved);
      if (kObserved && w.state != WaveState::kStopped) launch_.observer->After(w, moved);
    }
    ++n;
    if (w.state != WaveState::kRunning && w.state != WaveState::kIndexed) return n;
  }
  w.state = WaveState::kRunning;
  return n;
}

}  // namespace mainarch::sim::isa
