// SPDX-License-Identifier: MIT
#include "backend/amdgpu/context.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/amdgpu/uploader.h"

namespace mainarch::amdgpu {
namespace {

using backend::Program;
using backend::Step;
using kernels::StepHeader;
using kernels::StepRow;

constexpr int64_t kSetUpMs = 60'000;
// How often a wait for one GPU looks at the others.
constexpr int64_t kSliceMs = 50;
constexpr uint64_t kAlign = 256;

gpu::Deadline Soon() { return gpu::Deadline::In(kSetUpMs); }
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
                             const backend::ContextOptions& options)
    : model_(std::move(model)),
      program_(model_->program()),
      shape_(ShapeOf(program_, options)),
      row_classes_(RowClasses(options.max_rows)),
      ranks_(static_cast<size_t>(program_.ranks)),
      read_(options.max_logit_rows) {}

AmdGpuContext::~AmdGpuContext() {
  // Run returns when nothing is in flight or every queue is gone, so no GPU uses this memory.
}

StatusOr<std::unique_ptr<backend::Context>> AmdGpuContext::Create(
    std::shared_ptr<const AmdGpuModel> model, const backend::ContextOptions& options) {
  if (options.max_rows == 0 || options.max_logit_rows == 0) {
    return Error(Code::kInvalidArgument, "a context needs at least one row and one logit row");
  }
  RETURN_IF_ERROR(backend::CheckOneCache(options));
  std::unique_ptr<AmdGpuContext> context(new AmdGpuContext(std::move(model), options));
  const int32_t ranks = context->program_.ranks;
  RETURN_IF_ERROR(context->AllocateShared());
  for (int32_t rank = 0; rank < ranks; ++rank) RETURN_IF_ERROR(context->AllocateRank(rank));
  for (int32_t rank = 0; rank < ranks; ++rank) RETURN_IF_ERROR(context->AllocateExchange(rank));
  context->ShareExchange();
  for (int32_t rank = 0; rank < ranks; ++rank) {
    RETURN_IF_ERROR(context->FillRank(rank));
    RETURN_IF_ERROR(context->MakePackets(rank));
  }
  return std::unique_ptr<backend::Context>(std::move(context));
}

Status AmdGpuContext::AllocateShared() {
  const std::vector<gpu::Device*> devices = model_->gpus().devices();
  gpu::BufferOptions options;
  options.place = gpu::Place::kSystem;
  options.caching = gpu::Caching::kUncached;
  options.peers = absl::MakeConstSpan(devices).subspan(1);
  options.label = "step block";
  ASSIGN_OR_RETURN(host_step_,
                   gpu::Buffer::Allocate(*devices[0], uint64_t{shape_.step_words} * 4, options));
  options.label = "logits";
  const uint64_t bytes =
      uint64_t{shape_.options.max_logit_rows} * shape_.logits_stride * sizeof(float);
  ASSIGN_OR_RETURN(logits_, gpu::Buffer::Allocate(*devices[0], bytes, options));
  options.label = "chosen tokens";
  ASSIGN_OR_RETURN(results_, gpu::Buffer::Allocate(*devices[0],
                                                   uint64_t{shape_.options.max_logit_rows} *
                                                       sizeof(kernels::ChoiceResult),
                                                   options));
  memory_bytes_ += host_step_.size() + logits_.size() + results_.size();
  return OkStatus();
}

Status AmdGpuContext::AllocateRank(int32_t rank) {
  Rank& own = ranks_[static_cast<size_t>(rank)];
  gpu::Device& device = *model_->gpus().at(rank).device;
  const uint64_t rows = shape_.options.max_rows;
  const uint64_t half = static_cast<uint64_t>(shape_.heads.cache.key_dim / 2);
  const uint64_t positions =
      std::min<uint64_t>(static_cast<uint64_t>(program_.max_position),
                         uint64_t{shape_.pages()} * kernels::kPageTokens);
  RankMemory& m = own.memory;
  Carver carve;
  m.step = carve.Take(uint64_t{shape_.step_words} * 4);
  m.arrivals = carve.Take(RoundUp(shape_.expert_layers, 16) * 4);
  for (size_t b = 0; b < program_.buffers.size(); ++b) {
    m.buffers.push_back(carve.Take(rows * static_cast<uint64_t>(program_.buffers[b].slots) *
                                   shape_.strides[b] * 4));
  }
  m.partial = carve.Take(rows * shape_.hidden_stride * 4);
  m.squares = carve.Take(rows * shape_.chunks * 4);
  const uint64_t parts =
      shape_.max_splits == 1
          ? 0
          : uint64_t{shape_.attend_rows} * static_cast<uint64_t>(shape_.heads.heads) *
                shape_.max_splits *
                kernels::AttendPartFloats(static_cast<uint32_t>(shape_.heads.cache.key_dim)) * 4;
  m.attend_parts = carve.Take(parts);
  m.router_logits = carve.Take(rows * shape_.router_stride * 4);
  m.logits = carve.Take(uint64_t{shape_.options.max_logit_rows} * shape_.share_stride * 4);
  m.states = carve.Take(shape_.choice_slots * sizeof(kernels::ChoiceState));
  m.races =
      carve.Take(uint64_t{shape_.choice_slots} *
                 (shape_.logits_stride / kernels::kChoiceChunk + 1) * sizeof(kernels::RacePart));
  m.cosine = carve.Take(positions * half * 4);
  m.sine = carve.Take(positions * half * 4);
  ASSIGN_OR_RETURN(own.activations, AllocateVram(device, carve.used(), "activations"));
  const uint64_t base = own.activations.va();
  for (uint64_t* at : {&m.step, &m.arrivals, &m.partial, &m.squares, &m.attend_parts,
                       &m.router_logits, &m.logits, &m.states, &m.races, &m.cosine, &m.sine}) {
    *at += base;
  }
  for (uint64_t& at : m.buffers) at += base;
  const uint64_t kv =
      static_cast<uint64_t>(shape_.heads.cache.layers) * shape_.pages() * shape_.kv_page_bytes;
  ASSIGN_OR_RETURN(own.kv, AllocateVram(device, kv, "KV pool"));
  m.kv = own.kv.va();
  m.host_step = host_step_.va();
  m.host_logits = logits_.va();
  m.results = results_.va();
  m.compute_units = ComputeUnits(device);
  memory_bytes_ += own.activations.size();
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
  const uint64_t rows = shape_.options.max_rows;
  const uint64_t units = 2 * static_cast<uint64_t>(program_.ranks) + 2;
  gpu::BufferOptions options;
  if (program_.ranks > 1) options.caching = gpu::Caching::kUncached;
  options.peers = peers;
  options.label = "choices";
  ASSIGN_OR_RETURN(own.choices, gpu::Buffer::Allocate(*devices[static_cast<size_t>(rank)],
                                                      ExchangeOf(program_, shape_).bytes, options));
  memory_bytes_ += own.choices.size();
  if (program_.ranks == 1) return OkStatus();
  options.label = "all-reduce slots";
  const uint64_t slots = RoundUp(units * rows * shape_.hidden_stride * 4, kAlign);
  const uint64_t flags =
      units * rows * RoundUp(shape_.hidden_stride, kernels::kRowChunk) / kernels::kRowChunk * 4;
  ASSIGN_OR_RETURN(own.exchange, gpu::Buffer::Allocate(*devices[static_cast<size_t>(rank)],
                                                       slots + flags, options));
  memory_bytes_ += own.exchange.size();
  return OkStatus();
}

void AmdGpuContext::ShareExchange() {
  for (Rank& own : ranks_) {
    for (size_t r = 0; r < ranks_.size(); ++r) own.memory.choices[r] = ranks_[r].choices.va();
  }
  if (program_.ranks == 1) return;
  const uint64_t units = 2 * static_cast<uint64_t>(program_.ranks) + 2;
  const uint64_t slots =
      RoundUp(units * shape_.options.max_rows * shape_.hidden_stride * 4, kAlign);
  for (Rank& own : ranks_) {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      own.memory.slots[r] = ranks_[r].exchange.va();
      own.memory.flags[r] = ranks_[r].exchange.va() + slots;
    }
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
  ASSIGN_OR_RETURN(const auto uploader, Uploader::Create(*gpu.device, *gpu.copy));
  if (program_.ropes.empty()) return OkStatus();
  const backend::Rope& rope = program_.ropes[0];
  const uint64_t row_bytes = rope.inv_freq.size() * sizeof(float);
  const uint64_t positions = (own.memory.sine - own.memory.cosine) / row_bytes;
  const auto upload = [&](double (*of)(double), uint64_t to) {
    return UploadRotations(rope, of, positions, to, *uploader);
  };
  RETURN_IF_ERROR(upload([](double angle) { return std::cos(angle); }, own.memory.cosine));
  RETURN_IF_ERROR(upload([](double angle) { return std::sin(angle); }, own.memory.sine));
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
  gpu::BufferOptions options;
  options.place = gpu::Place::kSystem;
  options.caching = gpu::Caching::kUncached;
  options.label = "kernel arguments";
  ASSIGN_OR_RETURN(own.kernargs, gpu::Buffer::Allocate(*gpu.device, bytes, options));
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
  return OkStatus();
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
  // Each kernel needs the one before. Host memory is read at the beginning, and what is written to
  // it (tokens, logits) goes out with the last packet's release; peers are the business of the
  // kernels that push.
  gpu::AqlOrder order;
  order.acquire = first ? gpu::Scope::kSystem : gpu::Scope::kAgent;
  order.release = gpu::Scope::kAgent;
  return Packet{gpu::MakeDispatch(dispatch, order), kernel->name.c_str(), launch.op, launch.when};
}

Status AmdGpuContext::CheckStep(const Step& step) const {
  const backend::ContextOptions& options = shape_.options;
  if (step.rows.empty() || step.rows.size() > options.max_rows) {
    return Error(Code::kInternal, "a step of ", step.rows.size(), " rows; the limit is ",
                 options.max_rows);
  }
  if (step.logit_rows.size() > options.max_logit_rows) {
    return Error(Code::kInternal, "logits of ", step.logit_rows.size(), " rows; the limit is ",
                 options.max_logit_rows);
  }
  if (!step.choices.empty() && step.choices.size() != step.logit_rows.size()) {
    return Error(Code::kInternal, step.choices.size(), " choices of ", step.logit_rows.size(),
                 " logit rows");
  }
  uint64_t words = sizeof(StepHeader) / 4 + step.rows.size() * 4 +
                   step.logit_rows.size() * (1 + kChoiceRowWords) + 4;
  RETURN_IF_ERROR(backend::CheckOneCache(step, shape_.pages()));
  for (const backend::StepSequence& sequence : step.sequences) {
    words += sequence.caches[0].pages.size();
  }
  if (words > shape_.step_words) {
    return Error(Code::kKvFull, "page lists of a step take ", words * 4, " bytes; the limit is ",
                 uint64_t{shape_.step_words} * 4,
                 ": fewer sequences with long shared prefixes at once");
  }
  for (const backend::StepRow& row : step.rows) {
    if (row.sequence >= step.sequences.size() ||
        row.token >= static_cast<uint32_t>(program_.vocab) ||
        row.position / backend::kPageTokens >= step.sequences[row.sequence].caches[0].pages.size()) {
      return Error(Code::kInternal, "a row of token ", row.token, ", position ", row.position,
                   ", sequence ", row.sequence);
    }
  }
  for (uint32_t row : step.logit_rows) {
    if (row >= step.rows.size()) return Error(Code::kInternal, "logits of row ", row, " asked for");
  }
  return OkStatus();
}

void AmdGpuContext::WriteStep(const Step& step) {
  uint32_t* block = host_step_.host<uint32_t>();
  StepHeader header;
  header.rows = static_cast<uint32_t>(step.rows.size());
  header.logit_rows = static_cast<uint32_t>(step.logit_rows.size());
  header.index = step_index_++;
  header.rows_at = sizeof(StepHeader) / 4;
  header.logit_rows_at = header.rows_at + header.rows * 4;
  header.choices_at = header.logit_rows_at + header.logit_rows;
  uint64_t page_words = 0;
  for (const backend::StepSequence& sequence : step.sequences) {
    page_words += sequence.caches[0].pages.size();
  }
  work_ =
      WriteChoices(step, header.choices_at,
                   shape_.step_words - static_cast<uint32_t>(page_words) - 4, block, read_.data());
  std::memset(results_.host(), 0, step.logit_rows.size() * sizeof(kernels::ChoiceResult));
  header.pages_at = work_.end;
  StepRow* rows = reinterpret_cast<StepRow*>(block + header.rows_at);
  uint32_t at = 0, last = 0;
  // Rows of a sequence are adjacent, sequences may come in any order.
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const backend::StepRow& row = step.rows[i];
    if (i == 0 || row.sequence != step.rows[i - 1].sequence) {
      const auto pages = step.sequences[row.sequence].caches[0].pages;
      std::memcpy(block + header.pages_at + at, pages.data(), pages.size() * 4);
      last = at;
      at += static_cast<uint32_t>(pages.size());
    }
    rows[i] = {row.token, row.position, last, 0};
    header.splits = std::max(header.splits, row.position / kernels::kSplitTokens + 1);
  }
  std::memcpy(block + header.logit_rows_at, step.logit_rows.data(), step.logit_rows.size() * 4);
  // Whole blocks of 64 bytes; what is left of the last one is zeros.
  at += header.pages_at;
  header.words = static_cast<uint32_t>(RoundUp(at, 16));
  std::memset(block + at, 0, uint64_t{header.words - at} * 4);
  std::memcpy(block, &header, sizeof(header));
}

Status AmdGpuContext::RunNow(const Step& step) { return RunPrefix(step, program_.ops.size()); }

Status AmdGpuContext::RunPrefix(const Step& step, size_t end) {
  RETURN_IF_ERROR(CheckStep(step));
  if (stop_requested()) return Error(Code::kCancelled, "step cancelled");
  Gpus& gpus = model_->gpus();
  std::lock_guard<std::mutex> lock(gpus.mutex());
  RETURN_IF_ERROR(gpus.status());
  const gpu::Deadline deadline = model_->StepDeadline();
  WriteStep(step);
  row_class_ = static_cast<size_t>(
      std::lower_bound(row_classes_.begin(), row_classes_.end(), step.rows.size()) -
      row_classes_.begin());
  Status status;
  for (size_t r = 0; r < ranks_.size() && status.ok(); ++r) {
    status =
        SubmitRank(ranks_[r], gpus.at(static_cast<int32_t>(r)), static_cast<int32_t>(end), deadline);
  }
  if (status.ok()) {
    for (int32_t r = 0; r < gpus.count(); ++r) gpus.at(r).queue->Ring();
    status = Wait(deadline);
  }
  if (!status.ok()) {
    status = gpus.Explain(status);
    gpus.Fail(status);
  }
  Count(step);
  return status;
}

void AmdGpuContext::Count(const Step& step) {
  const uint64_t n = static_cast<uint64_t>(program_.ranks);
  const bool two_shot = step.rows.size() >= kTwoShotRows;
  const uint64_t bytes = step.rows.size() * static_cast<uint64_t>(program_.hidden) * sizeof(float);
  counts_ = {};
  for (const Packet& packet : ranks_[0].packets[row_class_]) {
    counts_.packets += TakesPart(packet, static_cast<int32_t>(program_.ops.size()));
  }
  counts_.submissions = 1;
  counts_.host_waits = 1;
  if (n == 1) return;
  counts_.all_reduces = shape_.all_reduces;
  counts_.rounds = shape_.all_reduces * (two_shot ? 2 : 1);
  counts_.least_link_bytes = shape_.all_reduces * 2 * bytes * (n - 1) / n;
  counts_.link_bytes =
      two_shot ? counts_.least_link_bytes : uint64_t{shape_.all_reduces} * bytes * (n - 1);
}

bool AmdGpuContext::TakesPart(const Packet& packet, int32_t end) const {
  if (packet.op >= end) return false;
  switch (packet.when) {
    case When::kAlways:
      return true;
    case When::kTokens:
      return work_.tokens;
    case When::kDraws:
      return work_.draws;
  }
  return true;
}

Status AmdGpuContext::SubmitRank(Rank& rank, Gpu& gpu, int32_t end,
                                 gpu::Deadline deadline) {
  const Packet* last = nullptr;
  for (const Packet& packet : rank.packets[row_class_]) {
    if (!TakesPart(packet, end)) continue;
    if (last != nullptr) {
      RETURN_IF_ERROR(gpu.queue->Submit(last->packet, last->label, deadline));
    }
    last = &packet;
  }
  // What the host reads is written back to it.
  gpu::AqlPacket packet = last->packet;
  packet.dword[0] |= static_cast<uint32_t>(gpu::Scope::kSystem) << 11;
  ASSIGN_OR_RETURN(rank.point, gpu.queue->SubmitSignalled(packet, last->label, deadline));
  return OkStatus();
}

Status AmdGpuContext::Wait(gpu::Deadline deadline) {
  for (size_t r = 0; r < ranks_.size(); ++r) RETURN_IF_ERROR(WaitForRank(r, deadline));
  return OkStatus();
}

// A GPU whose peer has died waits for it in its all-reduce: so each is asked now and then.
Status AmdGpuContext::WaitForRank(size_t rank, gpu::Deadline deadline) {
  Gpus& gpus = model_->gpus();
  gpu::Queue& queue = *gpus.at(static_cast<int32_t>(rank)).queue;
  while (true) {
    const gpu::Deadline slice = gpu::Deadline::In(kSliceMs);
    const bool last = deadline.at_ns <= slice.at_ns;
    const Status status = queue.Wait(ranks_[rank].point, last ? deadline : slice);
    if (status.ok()) return status;
    if (CodeOf(status) != Code::kTimedOut) return status;
    for (int32_t r = 0; r < gpus.count(); ++r) {
      RETURN_IF_ERROR(gpus.at(r).device->Health());
      RETURN_IF_ERROR(gpus.at(r).queue->Health());
    }
    if (last) return Hung();
  }
}

// The GPU that has come least far is the one that the others wait for.
Status AmdGpuContext::Hung() {
  Gpus& gpus = model_->gpus();
  for (int32_t r = 0; r < gpus.count(); ++r) RETURN_IF_ERROR(gpus.at(r).device->Probe());
  size_t slowest = 0;
  for (size_t r = 1; r < ranks_.size(); ++r) {
    const auto left = [&](size_t rank) {
      const gpu::Queue& queue = *gpus.at(static_cast<int32_t>(rank)).queue;
      return queue.submitted() - queue.taken();
    };
    if (left(r) > left(slowest)) slowest = r;
  }
  const gpu::Queue& queue = *gpus.at(static_cast<int32_t>(slowest)).queue;
  return WithDevice(
      Error(Code::kTimedOut, "a step did not end in time; furthest behind is ", queue.Describe()),
      queue.device().index());
}

absl::Span<float> AmdGpuContext::Logits(uint32_t i) {
  return {logits_.host<float>() + uint64_t{i} * shape_.logits_stride,
          static_cast<size_t>(program_.vocab)};
}

absl::optional<uint32_t> AmdGpuContext::Chosen(uint32_t i) const {
  const kernels::ChoiceResult result = results_.host<kernels::ChoiceResult>()[i];
  if (result.chosen == 0) return absl::nullopt;
  return result.token;
}

Status AmdGpuContext::FetchLogits(uint32_t i) {
  if (read_[i] != 0) return OkStatus();
  std::lock_guard<std::mutex> lock(model_->gpus().mutex());
  RETURN_IF_ERROR(model_->gpus().status());
  for (int32_t rank = 0; rank < program_.ranks; ++rank) {
    Gpu& gpu = model_->gpus().at(rank);
    const VocabShare share = ShareOf(program_, rank);
    const uint64_t to = logits_.va() + (uint64_t{i} * shape_.logits_stride + share.first) * 4;
    const uint64_t from =
        ranks_[static_cast<size_t>(rank)].memory.logits + uint64_t{i} * shape_.share_stride * 4;
    RETURN_IF_ERROR(gpu.copy->Copy(to, from, uint64_t{share.count} * 4, Soon()));
    ASSIGN_OR_RETURN(const uint64_t point, gpu.copy->Submit(Soon()));
    RETURN_IF_ERROR(gpu.copy->Wait(point, Soon()));
  }
  read_[i] = 1;
  return OkStatus();
}

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
  const uint64_t from =
      ranks_[static_cast<size_t>(rank)].memory.buffers[static_cast<size_t>(buffer)];
  if (!gpu.copy->Copy(staging->va(), from, count * stride * 4, Soon()).ok()) return {};
  const auto point = gpu.copy->Submit(Soon());
  if (!point.ok() || !gpu.copy->Wait(*point, Soon()).ok()) return {};
  std::vector<float> out;
  for (uint64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < info.width; ++c) {
      const uint64_t at = i * stride + static_cast<uint64_t>(c);
      out.push_back(info.type == backend::BufferType::kI32
                        ? static_cast<float>(staging->host<uint32_t>()[at])
                        : staging->host<float>()[at]);
    }
  }
  return out;
}

}  // namespace mainarch::amdgpu
