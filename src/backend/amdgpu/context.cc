// SPDX-License-Identifier: MIT
#include "backend/amdgpu/context.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/amdgpu/uploader.h"
#include "backend/source.h"
#include "kernels/choice_args.h"
#include "kernels/experts_args.h"
#include "kernels/quant/bf16.h"

namespace mainarch::amdgpu {
namespace {

constexpr uint64_t kAlign = 256;

uint64_t RoundUp(uint64_t n, uint64_t unit) { return (n + unit - 1) / unit * unit; }

// Hands out offsets in a buffer that is allocated afterwards.
class Carver {
 public:
  uint64_t Take(uint64_t bytes) {
    const uint64_t at = used_;
    used_ += RoundUp(bytes, kAlign);
    return at;
  }
  uint64_t used() const { return used_; }

 private:
  uint64_t used_ = 0;
};

// Of all sequences and caches.
uint64_t TableWords(const Shape& shape) {
  return uint64_t{shape.page_lists} * shape.table_words * shape.options.max_sequences;
}

// The last 64 bytes of a buffer are never an array's: reads of whole lines stay inside.
StatusOr<gpu::Buffer> AllocateVram(gpu::Device& device, uint64_t bytes, const char* label) {
  gpu::BufferOptions options;
  options.label = label;
  return gpu::Buffer::Allocate(device, std::max<uint64_t>(bytes, 4096), options);
}

// Table [positions, rotary_dim / 2] of cosines or sines, `of` an angle: as many rows at a time as fit
// a chunk.
Status UploadRotations(const backend::Rope& rope, double (*of)(double), uint64_t positions,
                       uint64_t to, Uploader& uploader) {
  const uint64_t row_bytes = rope.inv_freq.size() * sizeof(float);
  const uint64_t at_once = std::max<uint64_t>(1, Uploader::kChunk / row_bytes);
  for (uint64_t first = 0; first < positions; first += at_once) {
    const uint64_t end = std::min(positions, first + at_once);
    ASSIGN_OR_RETURN(uint8_t* bytes, uploader.Begin((end - first) * row_bytes));
    float* out = reinterpret_cast<float*>(bytes);
    for (uint64_t position = first; position < end; ++position) {
      for (const double frequency : rope.inv_freq) {
        // In fp64: an fp32 angle is wrong by 0.06 rad at a million tokens.
        *out++ = static_cast<float>(of(static_cast<double>(position) * frequency) * rope.scale);
      }
    }
    RETURN_IF_ERROR(uploader.Send(to + first * row_bytes, (end - first) * row_bytes));
  }
  return OkStatus();
}

}  // namespace

AmdGpuContext::AmdGpuContext(std::shared_ptr<const AmdGpuModel> model,
                             const backend::ContextOptions& options,
                             const AmdGpuContext* source, PageTables tables)
    : model_(std::move(model)),
      program_(backend::ProgramOf(*model_, options)),
      source_(source),
      shape_(ShapeOf(program_, options)),
      row_classes_(RowClasses(options.max_rows)),
      ranks_(static_cast<size_t>(program_.ranks)),
      tables_(std::move(tables)) {
  for (Flight& flight : flights_) flight.outcomes.resize(options.max_logit_rows);
}

// No GPU uses this memory once nothing is in flight, or every queue is halted.
AmdGpuContext::~AmdGpuContext() {
  Recall();
  while (submitted_ != polled_) Poll(-1).status().IgnoreError();
}

StatusOr<std::unique_ptr<backend::Context>> AmdGpuContext::Create(
    std::shared_ptr<const AmdGpuModel> model, const backend::ContextOptions& options) {
  if (options.max_rows == 0 || options.max_logit_rows == 0) {
    return Error(Code::kInvalidArgument, "a context needs at least one row and one logit row");
  }
  const backend::Program& program = backend::ProgramOf(*model, options);
  RETURN_IF_ERROR(CheckKvType(program, options.kv_type));
  const size_t caches = program.caches.size();
  if (options.pages.size() > caches || options.slots.size() > caches) {
    return Error(Code::kInternal, "pools of ", options.pages.size(), " paged and ",
                 options.slots.size(), " slot caches; the Program has ", caches);
  }
  const auto* source = dynamic_cast<const AmdGpuContext*>(options.source);
  if (options.source != nullptr && (source == nullptr || source->model_ != model)) {
    return backend::WrongSource();
  }
  RETURN_IF_ERROR(backend::CheckSource(program,
                                       source == nullptr ? nullptr : &source->program_));
  const Shape shape = ShapeOf(program, options);
  if (TableWords(shape) > UINT32_MAX - shape.step_words) {
    return Error(Code::kOutOfDeviceMemory, "page tables of ", options.max_sequences,
                 " sequences of ", shape.table_words, " pages");
  }
  std::vector<PageTables::Pool> pools;
  for (size_t i = 0; i < shape.pools.size(); ++i) {
    if (shape.pools[i].list != backend::kNone) pools.push_back({i, shape.pools[i].pages});
  }
  ASSIGN_OR_RETURN(PageTables tables, PageTables::Create(options.max_sequences, shape.table_words,
                                                         std::move(pools)));
  std::unique_ptr<AmdGpuContext> context(
      new AmdGpuContext(std::move(model), options, source, std::move(tables)));
  const int32_t ranks = context->program_.ranks;
  RETURN_IF_ERROR(context->AllocateShared());
  for (int32_t rank = 0; rank < ranks; ++rank) RETURN_IF_ERROR(context->AllocateRank(rank));
  for (int32_t rank = 0; rank < ranks; ++rank) RETURN_IF_ERROR(context->AllocateExchange(rank));
  context->ShareExchange();
  for (int32_t rank = 0; rank < ranks; ++rank) RETURN_IF_ERROR(context->FillRank(rank));
  // Packets name what it made: its rounds may end as such.
  RETURN_IF_ERROR(context->MakeResident());
  for (int32_t rank = 0; rank < ranks; ++rank) RETURN_IF_ERROR(context->MakePackets(rank));
  return std::unique_ptr<backend::Context>(std::move(context));
}

Status AmdGpuContext::AllocateShared() {
  const std::vector<gpu::Device*> devices = model_->gpus().devices();
  gpu::BufferOptions options;
  options.place = gpu::Place::kSystem;
  options.caching = gpu::Caching::kUncached;
  options.peers = absl::MakeConstSpan(devices).subspan(1);
  options.label = "step blocks";
  const uint64_t blocks = uint64_t{kMostInFlight} * shape_.step_words * 4;
  ASSIGN_OR_RETURN(
      host_step_,
      gpu::Buffer::Allocate(*devices[0],
                            blocks + (1 + uint64_t{kListChanges}) * sizeof(kernels::PageChange),
                            options));
  const uint64_t rows = uint64_t{kMostInFlight} * shape_.options.max_logit_rows;
  const uint64_t results = uint64_t{kernels::kResultSlots} * shape_.options.max_logit_rows;
  options.label = "logits";
  ASSIGN_OR_RETURN(logits_, gpu::Buffer::Allocate(
                                *devices[0], rows * shape_.logits_stride * sizeof(float), options));
  options.label = "chosen tokens";
  ASSIGN_OR_RETURN(results_, gpu::Buffer::Allocate(
                                 *devices[0], results * sizeof(kernels::ChoiceResult), options));
  memory_bytes_ += host_step_.size() + logits_.size() + results_.size();
  return OkStatus();
}

Status AmdGpuContext::AllocateRank(int32_t rank) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  gpu::Device& device = *model_->gpus().at(rank).device;
  const uint64_t rows = shape_.options.max_rows;
  RankMemory& m = own.memory;
  Carver carve;
  m.step = carve.Take((shape_.step_words + TableWords(shape_)) * 4);
  m.arrivals = carve.Take(kernels::kArrivalBytes);
  const uint32_t widest = *std::max_element(shape_.strides.begin(), shape_.strides.end());
  for (uint64_t& words : m.told_words) {
    words = carve.Take(uint64_t{kernels::kMaxSplits} * kernels::kToldRows *
                       kernels::ToldStride(std::max({widest, shape_.hidden_stride, shape_.router_stride})) *
                       sizeof(uint64_t));
  }
  m.plain = carve.Take(rows * shape_.plain_stride * 4);
  const std::vector<bool> taps = TapsOf(program_), inputs = InputsOf(program_);
  for (size_t b = 0; b < program_.buffers.size(); ++b) {
    m.buffers.push_back(carve.Take(rows * static_cast<uint64_t>(program_.buffers[b].slots) *
                                   shape_.strides[b] * 4 * (taps[b] ? kMostInFlight : 1)));
  }
  m.input_squares.assign(program_.buffers.size(), 0);
  m.input_splits.assign(program_.buffers.size(), 0);
  m.partial = carve.Take(rows * shape_.hidden_stride * 4);
  m.sums = carve.Take(uint64_t{kernels::kMaxSplits} * shape_.sum_rows * shape_.sum_stride * 4);
  m.squares = carve.Take(rows * shape_.chunks * 4);
  m.split = carve.Take(rows * shape_.hidden_stride * 4);
  for (size_t b = 0; b < inputs.size(); ++b) {
    if (inputs[b] && static_cast<backend::BufferId>(b) != program_.x) {
      m.input_squares[b] = carve.Take(rows * shape_.chunks * 4);
      m.input_splits[b] = carve.Take(rows * shape_.hidden_stride * 4);
    }
  }
  const uint64_t parts =
      shape_.max_splits == 1
          ? 0
          : uint64_t{shape_.attend_rows} * shape_.attend_floats * 4;
  m.attend_parts = carve.Take(parts);
  m.attend_words = carve.Take((uint64_t{shape_.here_rows} * shape_.attend_words + shape_.appended_words) * sizeof(uint64_t));
  m.shared_queries = carve.Take(shape_.share.query_floats() * 4);
  m.router_logits = carve.Take(rows * shape_.router_stride * 4);
  m.expert_lists = carve.Take(4 * kernels::ExpertListWords(static_cast<uint32_t>(program_.experts), static_cast<uint32_t>(rows),
                                                           static_cast<uint32_t>(program_.experts_per_token)));
  const bool scales = shape_.options.activations == backend::Activations::kMxfp8 && device.chip().has_scaled_mfma;
  const uint32_t steps = std::max(widest, shape_.hidden_stride) / kernels::kStepColumns;
  const bool tiles = shape_.options.activations != backend::Activations::kF32 && HasTiledRows(device.chip());
  const uint64_t taken_rows = carve.Take(tiles ? kernels::TiledRowsBytes(static_cast<uint32_t>(rows), steps)
                                         : scales ? rows * kernels::ScaledRowBytes(steps)
                                                  : 0);
  m.logits = carve.Take(uint64_t{kMostInFlight} * shape_.options.max_logit_rows *
                        shape_.share_stride * 4);
  m.teams = carve.Take(uint64_t{kernels::kRaceTeams} * kernels::kRaceTeamWords * sizeof(uint64_t));
  m.fields = carve.Take(shape_.choice_slots * sizeof(kernels::RaceField));
  m.races = carve.Take(uint64_t{shape_.choice_slots} * (shape_.logits_stride / kernels::kChoiceChunk + 1) *
                       kernels::kRacerWords * sizeof(uint64_t));
  for (const backend::Rope& rope : program_.ropes) {
    m.cosine.push_back(carve.Take(shape_.positions * rope.inv_freq.size() * 4));
    m.sine.push_back(carve.Take(shape_.positions * rope.inv_freq.size() * 4));
  }
  ASSIGN_OR_RETURN(own.activations, AllocateVram(device, carve.used(), "activations"));
  const uint64_t base = own.activations.va();
  if (scales || tiles) m.taken_rows = base + taken_rows;
  for (uint64_t* at : {&m.step, &m.arrivals, &m.told_words[0], &m.told_words[1], &m.partial, &m.sums, &m.squares, &m.split,
                       &m.attend_parts, &m.attend_words, &m.shared_queries, &m.router_logits, &m.expert_lists, &m.logits, &m.teams,
                       &m.fields, &m.races, &m.plain}) {
    *at += base;
  }
  for (std::vector<uint64_t>* each : {&m.buffers, &m.cosine, &m.sine}) {
    for (uint64_t& at : *each) at += base;
  }
  // None is at the start: the step block is.
  for (uint64_t& at : m.input_squares) at += at != 0 ? base : 0;
  for (uint64_t& at : m.input_splits) at += at != 0 ? base : 0;
  if (source_ != nullptr) {
    const RankMemory& from = source_->ranks_[static_cast<size_t>(rank)].memory;
    for (const backend::BufferId tap : source_->program_.taps) {
      m.source_taps.push_back(from.buffers[static_cast<size_t>(tap)]);
    }
  }
  RETURN_IF_ERROR(AllocatePages(rank));
  RETURN_IF_ERROR(AllocateSlots(rank));
  m.host_step = host_step_.va();
  m.host_logits = logits_.va();
  m.results = results_.va();
  SetChip(device, &m);
  memory_bytes_ += own.activations.size();
  return OkStatus();
}

Status AmdGpuContext::AllocatePages(int32_t rank) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  Carver carve;
  for (const PoolShape& pool : shape_.pools) {
    own.memory.kv.push_back(
        carve.Take(static_cast<uint64_t>(pool.layers) * pool.pages * pool.page_bytes));
  }
  ASSIGN_OR_RETURN(
      own.kv, AllocateVram(*model_->gpus().at(rank).device, carve.used(), "KV pools"));
  for (uint64_t& at : own.memory.kv) at += own.kv.va();
  return OkStatus();
}

Status AmdGpuContext::AllocateSlots(int32_t rank) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  Carver carve;
  for (const SlotShape& slots : shape_.slots) {
    own.memory.slots.push_back(
        carve.Take(static_cast<uint64_t>(slots.layers) * slots.slots * slots.slot_bytes));
  }
  if (shape_.slot_lists == 0) return OkStatus();
  ASSIGN_OR_RETURN(own.slots, AllocateVram(*model_->gpus().at(rank).device, carve.used(),
                                           "slots of recurrent state"));
  for (uint64_t& at : own.memory.slots) at += own.slots.va();
  return OkStatus();
}

// Where the peers push: their slots are in this rank's memory, never cached, so that a poll sees
// what has arrived.
Status AmdGpuContext::AllocateExchange(int32_t rank) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  const std::vector<gpu::Device*> devices = model_->gpus().devices();
  std::vector<gpu::Device*> peers;
  for (gpu::Device* device : devices) {
    if (device != devices[static_cast<size_t>(rank)]) peers.push_back(device);
  }
  gpu::BufferOptions options;
  if (program_.ranks > 1) options.caching = gpu::Caching::kUncached;
  options.peers = peers;
  options.label = "choices";
  ASSIGN_OR_RETURN(own.choices, gpu::Buffer::Allocate(*devices[static_cast<size_t>(rank)],
                                                      ExchangeOf(program_, shape_).bytes, options));
  memory_bytes_ += own.choices.size();
  if (program_.ranks == 1) return OkStatus();
  options.label = "all-reduce slots";
  ASSIGN_OR_RETURN(own.exchange, gpu::Buffer::Allocate(*devices[static_cast<size_t>(rank)],
                                                       shape_.exchange.bytes, options));
  memory_bytes_ += own.exchange.size();
  return OkStatus();
}

void AmdGpuContext::ShareExchange() {
  for (Rank& own : ranks_) {
    for (size_t r = 0; r < ranks_.size(); ++r) own.memory.choices[r] = ranks_[r].choices.va();
  }
  if (program_.ranks == 1) return;
  for (Rank& own : ranks_) {
    for (size_t r = 0; r < ranks_.size(); ++r) own.memory.exchange[r] = ranks_[r].exchange.va();
  }
}

// Zeroes what kernels read before they write it (padding, flags, pages), and makes the RoPE tables.
Status AmdGpuContext::FillRank(int32_t rank) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  Gpu& gpu = model_->gpus().at(rank);
  for (const gpu::Buffer* buffer : {&own.activations, &own.kv, &own.exchange, &own.choices}) {
    if (!buffer->valid()) continue;
    RETURN_IF_ERROR(gpu.copy->Fill(buffer->va(), 0, buffer->size(), Soon()));
  }
  ASSIGN_OR_RETURN(const uint64_t filled, gpu.copy->Submit(Soon()));
  RETURN_IF_ERROR(gpu.copy->Wait(filled, Soon()));
  ASSIGN_OR_RETURN(const auto uploader, Uploader::Create(model_->gpus(), *gpu.device, *gpu.copy));
  if (program_.ropes.empty()) return OkStatus();
  for (size_t i = 0; i < program_.ropes.size(); ++i) {
    const auto upload = [&](double (*of)(double), uint64_t to) {
      return UploadRotations(program_.ropes[i], of, shape_.positions, to, *uploader);
    };
    RETURN_IF_ERROR(upload([](double angle) { return std::cos(angle); }, own.memory.cosine[i]));
    RETURN_IF_ERROR(upload([](double angle) { return std::sin(angle); }, own.memory.sine[i]));
  }
  return uploader->Finish();
}

Status AmdGpuContext::MakePackets(int32_t rank) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  Gpu& gpu = model_->gpus().at(rank);
  std::vector<std::vector<Launch>> launches;
  uint64_t bytes = 0;
  for (const uint32_t rows : row_classes_) {
    launches.push_back(Lower(*model_, shape_, own.memory, rank, rows));
    for (const Launch& launch : launches.back()) bytes += RoundUp(launch.args.size(), 64);
    if (launches.back().size() > gpu.queue->capacity() / 2) {
      return Error(Code::kUnsupported, "a step of ", launches.back().size(),
                   " packets; the queue has ", gpu.queue->capacity());
    }
  }
  const Launch tables = LowerTables(shape_, own.memory);
  bytes += RoundUp(tables.args.size(), 64);
  // Every kernel begins with reading them, on all of its compute units at once. They are written once, before any is
  // read.
  ASSIGN_OR_RETURN(own.kernargs, AllocateWrittenOnce(*gpu.device, bytes, "kernel arguments"));
  memory_bytes_ += own.kernargs.size();
  uint64_t at = 0;
  for (const std::vector<Launch>& step : launches) {
    std::vector<Packet> packets;
    for (const Launch& launch : step) {
      ASSIGN_OR_RETURN(const Packet packet, MakePacket(rank, launch, at, packets.empty()));
      packets.push_back(packet);
      at += RoundUp(launch.args.size(), 64);
    }
    own.packets.push_back(std::move(packets));
  }
  ASSIGN_OR_RETURN(own.tables, MakePacket(rank, tables, at, /*first=*/true));
  return gpu.device->node().vram_is_host_visible() ? gpu.device->FlushHostWrites() : OkStatus();
}

StatusOr<AmdGpuContext::Packet> AmdGpuContext::MakePacket(int32_t rank, const Launch& launch,
                                                          uint64_t kernarg, bool first) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  ASSIGN_OR_RETURN(const gpu::Kernel* kernel, model_->gpus().at(rank).code->Find(launch.kernel));
  if (kernel->kernarg_bytes != launch.args.size()) {
    return Error(Code::kInternal, launch.kernel, ": takes ", kernel->kernarg_bytes,
                 " bytes of arguments, given ", launch.args.size());
  }
  std::memcpy(own.kernargs.host() + kernarg, launch.args.data(), launch.args.size());
  gpu::Dispatch dispatch;
  dispatch.kernel_object = kernel->object;
  dispatch.kernarg = own.kernargs.va() + kernarg;
  dispatch.workgroup.x = kernels::kThreads;
  dispatch.grid.x = launch.workers * kernels::kThreads;
  dispatch.group_bytes = kernel->group_bytes;
  // Each kernel needs the one before, but for those beside it. Host memory is read at the beginning, and
  // what is written to it (tokens, logits) goes out with the last packet's release; peers are the business of the
  // kernels that push.
  gpu::AqlOrder order;
  order.acquire = first ? gpu::Scope::kSystem : gpu::Scope::kAgent;
  order.release = gpu::Scope::kAgent;
  order.barrier = !launch.beside;
  return Packet{gpu::MakeDispatch(dispatch, order), kernel->name.c_str(), launch.op, launch.when};
}

absl::Span<float> AmdGpuContext::Logits(uint32_t i) {
  return {logits_.host<float>() + ResultRow(i) * shape_.logits_stride,
          static_cast<size_t>(program_.logit_width())};
}

absl::optional<uint32_t> AmdGpuContext::Chosen(uint32_t i) const {
  const kernels::ChoiceResult result = ResultsOf(polled_)[i];
  if (result.chosen == 0) return absl::nullopt;
  return result.token;
}

Status AmdGpuContext::FetchLogits(uint32_t i) {
  RowOutcome& outcome = FlightOf(seen_).outcomes[i];
  if (outcome.read) return OkStatus();
  RETURN_IF_ERROR(CheckLogitsStand());
  Gpus& gpus = model_->gpus();
  std::lock_guard<std::mutex> lock(gpus.mutex());
  RETURN_IF_ERROR(gpus.Settle(gpus.Health()));
  for (int32_t rank = 0; rank < program_.ranks; ++rank) {
    const VocabShare share = ShareOf(program_, rank);
    const uint64_t to = logits_.va() + (ResultRow(i) * shape_.logits_stride + share.first) * 4;
    const uint64_t from =
        ranks_[static_cast<size_t>(rank)].memory.logits + ResultRow(i) * shape_.share_stride * 4;
    RETURN_IF_ERROR(gpus.Settle(gpus.CopyAndWait(rank, to, from, uint64_t{share.count} * 4)));
  }
  outcome.read = true;
  return OkStatus();
}

// By the GPU's copy queue. The group's mutex is held.
std::vector<float> AmdGpuContext::ReadBuffer(int32_t rank, backend::BufferId buffer,
                                             uint32_t rows) const {
  const backend::Buffer& info = program_.buffers[static_cast<size_t>(buffer)];
  const uint64_t stride = shape_.strides[static_cast<size_t>(buffer)];
  const uint64_t count = uint64_t{rows} * static_cast<uint64_t>(info.slots);
  Gpu& gpu = model_->gpus().at(rank);
  gpu::BufferOptions options;
  options.place = gpu::Place::kSystem;
  options.label = "read back";
  auto staging = gpu::Buffer::Allocate(*gpu.device, count * stride * 4, options);
  if (!staging.ok()) return {};
  uint64_t from = ranks_[static_cast<size_t>(rank)].memory.buffers[static_cast<size_t>(buffer)];
  if (TapsOf(program_)[static_cast<size_t>(buffer)]) {
    from += uint64_t{kernels::Parity(polled_)} * shape_.options.max_rows * stride * 4;
  }
  if (!model_->gpus().CopyAndWait(rank, staging->va(), from, count * stride * 4).ok()) return {};
  std::vector<float> out;
  const bool splits = LiesSplit(program_, buffer);
  for (uint64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < info.width; ++c) {
      const uint64_t at = i * stride + static_cast<uint64_t>(c);
      if (splits) {
        const uint8_t* both =
            staging->host() + i * stride * 4 + kernels::SplitPlace(static_cast<uint32_t>(c));
        uint16_t high, low;
        std::memcpy(&high, both, sizeof(high));
        std::memcpy(&low, both + kernels::kSplitHalfBytes, sizeof(low));
        out.push_back(quant::FloatFromBf16(high) + quant::FloatFromBf16(low));
        continue;
      }
      out.push_back(info.type == backend::BufferType::kI32
                        ? static_cast<float>(staging->host<uint32_t>()[at])
                        : staging->host<float>()[at]);
    }
  }
  return out;
}

}  // namespace mainarch::amdgpu
