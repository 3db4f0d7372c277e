// SPDX-License-Identifier: MIT
#include "cli/gpu_step_counts.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backend/amdgpu/amdgpu_backend.h"
#include "backend/amdgpu/lower.h"
#include "cli/temporary_directory.h"
#include "model/kv_pages.h"
#include "model/model.h"
#include "sim/isa/executor.h"
#include "sim/node.h"
#include "sim/sim_sys.h"

namespace mainarch::cli {
namespace {

using sim::isa::DispatchCounts;
using sim::isa::FootprintPage;

constexpr uint32_t kTimeoutMs = 3'600'000;  // an interpreter at work

// Which lines of its memory a GPU has written since the step began.
using Written = std::map<uint64_t, uint32_t>;

// Bytes of the blocks asked for whole in these lines.
uint64_t WholeBytes(const FootprintPage& page, uint32_t lines) {
  uint64_t bytes = 0;
  for (uint32_t block = 0; block < 64; ++block) {
    const bool counts = (lines >> (block / 2) & 1) != 0 && (page.whole >> block & 1) != 0;
    bytes += counts ? 64 : 0;
  }
  return bytes;
}

void AddFootprint(const std::vector<FootprintPage>& pages, Written* written, OpCounts* out) {
  const auto bytes = [](uint32_t lines) {
    return static_cast<uint64_t>(__builtin_popcount(lines)) * sim::isa::kFootprintLine;
  };
  for (const FootprintPage& page : pages) {
    if (page.place == FootprintPage::Place::kSystem) {
      out->host_bytes += page.bytes_written;
    } else if (page.place == FootprintPage::Place::kPeer) {
      out->link_bytes += page.bytes_written;
    } else {
      uint32_t& own = (*written)[page.address];
      own |= page.written;  // what workgroups of one launch hand to each other, too
      out->memory_bytes += bytes(page.read & ~own);
      out->memory_whole += WholeBytes(page, page.read & ~own);
      out->activation_bytes += bytes(page.read & own);
      out->written_bytes += bytes(page.written);
    }
  }
}

void AddCounts(const sim::isa::Counts& counts, OpCounts* out) {
  for (const sim::isa::Traffic* t : {&counts.loads, &counts.stores, &counts.atomics}) {
    out->vector_bytes += t->distinct;
    out->full_bytes += t->full64 * 64;
  }
  out->scratch_bytes += counts.scratch_bytes;
  out->instructions += counts.instructions();
}

// Names and least bytes of the ops, as their launches are numbered. An op without a launch of its
// own runs in the next one's.
struct Plan {
  std::vector<std::string> names;  // [op]
  std::vector<uint64_t> least;     // [op], one rank
  std::vector<int32_t> op_of;      // [launch]
};

bool TakesPart(const amdgpu::Launch& launch, const LoggedStep& step) {
  if (launch.op >= static_cast<int32_t>(step.end)) return false;
  switch (launch.when) {
    case amdgpu::When::kAlways:
      return true;
    case amdgpu::When::kRaces:
      return step.outcome == Outcome::kRaced;
  }
  return false;
}

Plan PlanOf(const amdgpu::AmdGpuModel& model, const backend::ContextOptions& context,
            const LoggedStep& step) {
  const backend::Program& program = model.program();
  amdgpu::RankMemory memory;
  memory.buffers.resize(program.buffers.size());
  memory.kv.resize(program.caches.size());
  memory.slots.resize(program.caches.size());
  memory.cosine.resize(program.ropes.size());
  memory.sine.resize(program.ropes.size());
  amdgpu::SetChip(*model.gpus().at(0).device, &memory);
  const amdgpu::Shape shape = amdgpu::ShapeOf(program, context);
  Plan plan;
  for (const amdgpu::Launch& launch : amdgpu::Lower(model, shape, memory, 0, step.rows)) {
    if (TakesPart(launch, step)) plan.op_of.push_back(launch.op);
  }
  std::string name;
  uint64_t least = 0;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    backend::Work work;
    work.rows = step.rows;
    const backend::Cost cost = backend::CostOf(program, program.ops[i], work);
    uint64_t kv = 0;
    if (const auto* attention = std::get_if<backend::AttentionOp>(&program.ops[i])) {
      const backend::PagedCache& cache = backend::CacheOf(program, *attention);
      const auto window = static_cast<uint32_t>(cache.window);
      const uint64_t seen = window > 0 ? std::min(step.position, window) : step.position;
      // Of a head that several ranks hold each of them needs its part; latents every one of them has read so far.
      const bool latents = i > 0 && std::holds_alternative<backend::LatentOp>(program.ops[i - 1]);
      kv = seen * shape.pools[static_cast<size_t>(attention->cache)].page_bytes / kernels::kPageTokens /
           static_cast<uint64_t>(latents ? 1 : cache.replicas);
    }
    least += cost.weight_bytes + kv;
    absl::StrAppend(&name, name.empty() ? "" : " + ", backend::OpName(program.ops[i]));
    plan.names.push_back(name);
    plan.least.push_back(least);
    if (std::count(plan.op_of.begin(), plan.op_of.end(), static_cast<int32_t>(i)) != 0) {
      name.clear();
      least = 0;
    } else {
      plan.least.back() = 0;
    }
  }
  return plan;
}

Status AddRank(std::vector<DispatchCounts> dispatches, const Plan& plan, bool first_rank,
               TokenCounts* out) {
  if (dispatches.size() != plan.op_of.size()) {
    return Error(Code::kInternal, dispatches.size(), " kernels ran; the step has ",
                 plan.op_of.size(), " packets");
  }
  std::sort(dispatches.begin(), dispatches.end(),
            [](const auto& a, const auto& b) { return a.dispatch_id < b.dispatch_id; });
  Written written;
  int32_t last = -2;
  for (size_t i = 0; i < dispatches.size(); ++i) {
    const int32_t op = plan.op_of[i];
    const std::string name = op < 0 ? "step begin" : plan.names[static_cast<size_t>(op)];
    auto row = std::find_if(out->ops.begin(), out->ops.end(),
                            [&](const OpCounts& each) { return each.name == name; });
    if (row == out->ops.end()) {
      row = out->ops.insert(row, OpCounts());
      row->name = name;
    }
    if (op != last) {
      row->ops += first_rank;
      if (op >= 0) row->least_bytes += plan.least[static_cast<size_t>(op)];
    }
    last = op;
    row->packets += first_rank;
    AddFootprint(dispatches[i].footprint, &written, &*row);
    AddCounts(dispatches[i].counts, &*row);
  }
  return OkStatus();
}

// Everything that the sampler can be asked for at once.
struct WholeSampler {
  std::vector<uint32_t> times, counted = {7, 11, 13};
  uint32_t banned = 5;
  backend::LogitBias bias = {17, 1.0f};
  backend::Choice choice;

  WholeSampler(uint32_t vocab, uint32_t position) : times(vocab) {
    for (const uint32_t token : counted) times[token] = 2;
    choice.temperature = 0.7f;
    choice.min_p = 0.01f;
    choice.top_p = 0.95f;
    choice.top_k = 20;
    choice.repetition = 1.1f;
    choice.frequency = 0.1f;
    choice.presence = 0.1f;
    choice.seed = 1;
    choice.position = position + 1;
    choice.banned[0] = absl::MakeConstSpan(&banned, 1);
    choice.bias = absl::MakeConstSpan(&bias, 1);
    choice.counted = counted;
    choice.times = times.data();
  }
};

// The pages of the step's sequence, in the pool's order.
std::vector<uint32_t> ListOf(const LoggedStep& step) {
  std::vector<uint32_t> list(model::PagesFor(step.position + step.rows));
  std::iota(list.begin(), list.end(), 0);
  return list;
}

}  // namespace

backend::ContextOptions ContextFor(const backend::Program& program, const LoggedStep& step,
                                   backend::KvType kv) {
  backend::ContextOptions options;
  options.kv_type = kv;
  options.max_rows = step.rows;
  options.max_logit_rows = step.logit_rows();
  for (size_t i = 0; i < program.caches.size(); ++i) {
    const bool paged = std::holds_alternative<backend::PagedCache>(program.caches[i]);
    std::vector<uint32_t>& units = paged ? options.pages : options.slots;
    units.resize(i + 1);
    units[i] = paged ? model::PagesFor(step.position + step.rows) : step.rows + 1;
  }
  return options;
}

Status FillContext(backend::Context* context, const backend::Program& program, const LoggedStep& what) {
  const backend::StateOut out = {0, 0};
  const std::vector<uint32_t> list = ListOf(what);
  std::vector<backend::StepCache> caches(program.caches.size());
  bool states = false;
  size_t told = 0;  // pages, of all caches
  for (size_t i = 0; i < caches.size(); ++i) {
    if (std::holds_alternative<backend::PagedCache>(program.caches[i])) {
      caches[i].pages = list;
      told += list.size();
    } else {
      caches[i].state_out = absl::MakeConstSpan(&out, 1);
      states = true;
    }
  }
  if (!states && told <= amdgpu::kStepChanges) return OkStatus();
  const backend::StepRow row = {7, 0, 0};
  const backend::StepSequence sequence = {caches};
  backend::Step step;
  step.rows = absl::MakeConstSpan(&row, 1);
  step.sequences = absl::MakeConstSpan(&sequence, 1);
  return context->Run(step);
}

Status RunLoggedStep(backend::Context* context, const backend::Program& program,
                     const LoggedStep& what) {
  const std::vector<uint32_t> list = ListOf(what);
  const WholeSampler sampler(static_cast<uint32_t>(program.vocab), what.position);
  backend::Choice choice;
  const bool raced = what.outcome == Outcome::kRaced;
  if (raced || what.outcome == Outcome::kDrawn) choice = sampler.choice;
  if (raced) choice.top_k = 0;
  choice.choose = what.outcome != Outcome::kRead;
  choice.read = !choice.choose;
  const std::vector<backend::Choice> choices(what.logit_rows(), choice);
  std::vector<backend::StepRow> rows;
  std::vector<uint32_t> logit_rows;
  std::vector<backend::StateOut> outs;
  for (uint32_t i = 0; i < what.rows; ++i) {
    rows.push_back({(7 + i) % static_cast<uint32_t>(program.vocab), what.position + i, 0});
    if (i + what.logit_rows() >= what.rows) logit_rows.push_back(i);
    outs.push_back({i, i + 1});
  }
  std::vector<backend::StepCache> caches;
  for (const backend::Cache& cache : program.caches) {
    backend::StepCache& own = caches.emplace_back();
    if (std::holds_alternative<backend::PagedCache>(cache)) {
      own.pages = list;
      continue;
    }
    if (what.position > 0) own.state_in = 0;
    own.state_out = outs;
  }
  const backend::StepSequence sequence = {caches};
  backend::Step step;
  step.rows = rows;
  step.sequences = absl::MakeConstSpan(&sequence, 1);
  step.logit_rows = logit_rows;
  step.choices = choices;
  RETURN_IF_ERROR(context->Run(step));
  if (choice.choose && !context->Chosen(0).has_value()) {
    return Error(Code::kInternal, "the GPUs chose no token");
  }
  return OkStatus();
}

std::vector<StepPacket> PacketsOf(const backend::LoadedModel& model, const backend::ContextOptions& context,
                                  const LoggedStep& step) {
  const Plan plan = PlanOf(dynamic_cast<const amdgpu::AmdGpuModel&>(model), context, step);
  std::vector<StepPacket> packets;
  for (const int32_t op : plan.op_of) {
    StepPacket packet;
    packet.op = op;
    packet.name = op < 0 ? "step begin" : plan.names[static_cast<size_t>(op)];
    const bool first = packets.empty() || packets.back().op != op;
    if (op >= 0 && first) packet.least_bytes = plan.least[static_cast<size_t>(op)];
    packets.push_back(std::move(packet));
  }
  return packets;
}

void OpCounts::Add(const OpCounts& o) {
  ops += o.ops;
  packets += o.packets;
  memory_bytes += o.memory_bytes;
  memory_whole += o.memory_whole;
  least_bytes += o.least_bytes;
  activation_bytes += o.activation_bytes;
  written_bytes += o.written_bytes;
  link_bytes += o.link_bytes;
  host_bytes += o.host_bytes;
  vector_bytes += o.vector_bytes;
  full_bytes += o.full_bytes;
  scratch_bytes += o.scratch_bytes;
  instructions += o.instructions;
}

void CountedGroup::Restart() { log->Take(); }

StatusOr<CountedGroup> OpenCounted(const std::string& text) {
  CountedGroup group;
  sim::isa::ExecutorOptions executor;
  executor.counts = group.log;
  executor.footprint = true;
  const size_t colon = std::min(text.find(':'), text.size());
  ASSIGN_OR_RETURN(const sim::NodeConfig config, sim::ParseNode(text.substr(0, colon)));
  executor.check = config.check;
  executor.exact_matrix = config.exact_matrix;
  if (config.slice != 0) executor.slice = config.slice;
  ASSIGN_OR_RETURN(auto node,
                   sim::Node::Create(config, std::make_unique<sim::isa::IsaExecutor>(executor)));
  const std::string list = colon == text.size() ? "" : text.substr(colon + 1);
  ASSIGN_OR_RETURN(
      auto gpus, amdgpu::Gpus::OpenOn(std::make_shared<sim::SimSys>(std::move(node)), list, false,
                                      kTimeoutMs));
  ASSIGN_OR_RETURN(group.backend, amdgpu::AmdGpuBackend::Create(std::move(gpus)));
  return group;
}

Status CountLogged(const backend::LoadedModel& model, const backend::ContextOptions& context,
                   const LoggedStep& step, sim::isa::CountLog* log, TokenCounts* out) {
  std::map<uint32_t, std::vector<DispatchCounts>> by_gpu;
  for (DispatchCounts& each : log->Take()) by_gpu[each.gpu].push_back(std::move(each));
  const Plan plan = PlanOf(dynamic_cast<const amdgpu::AmdGpuModel&>(model), context, step);
  bool first = true;
  for (auto& [gpu, dispatches] : by_gpu) {
    RETURN_IF_ERROR(AddRank(std::move(dispatches), plan, first, out));
    first = false;
  }
  out->total.name = "token";
  for (const OpCounts& op : out->ops) out->total.Add(op);
  return OkStatus();
}

StatusOr<std::vector<TokenCounts>> CountSteps(const model::ModelConfig& config,
                                              model::SyntheticFormat format,
                                              const StepCountOptions& options,
                                              absl::Span<const Outcome> outcomes) {
  ASSIGN_OR_RETURN(const auto directory, TemporaryDirectory::Create());
  const std::string path = absl::StrCat(directory->path(), "/model");
  model::SyntheticOptions synthetic;
  synthetic.format = format;
  RETURN_IF_ERROR(model::WriteSyntheticCheckpoint(config, path, synthetic));
  ASSIGN_OR_RETURN(const CountedGroup machine,
                   OpenCounted(absl::StrCat(options.isa, "x", options.ranks)));
  ASSIGN_OR_RETURN(const auto model, model::Model::Load(machine.backend, path, {}));
  const backend::Program& program = model->weights().program();
  const LoggedStep first = {options.position, program.ops.size()};
  const backend::ContextOptions context_options = ContextFor(program, first, options.kv);
  ASSIGN_OR_RETURN(const auto context, model->weights().CreateContext(context_options));
  RETURN_IF_ERROR(FillContext(context.get(), program, first));
  std::vector<TokenCounts> out;
  for (const Outcome outcome : outcomes) {
    const LoggedStep step = {options.position, program.ops.size(), outcome};
    machine.log->Take();
    RETURN_IF_ERROR(RunLoggedStep(context.get(), program, step));
    TokenCounts counts;
    counts.step = context->counts();
    counts.outcome = outcome;
    counts.layers = config.layers;
    RETURN_IF_ERROR(
        CountLogged(model->weights(), context_options, step, machine.log.get(), &counts));
    out.push_back(std::move(counts));
  }
  return out;
}

model::ModelConfig ShareOf(const model::ModelConfig& whole, int32_t of, int32_t ranks) {
  model::ModelConfig share = whole;
  share.heads = whole.heads / of * ranks;
  share.kv_heads = std::max(1, whole.kv_heads / of) * ranks;
  share.intermediate = whole.intermediate / of * ranks;
  share.moe_intermediate = whole.moe_intermediate / of * ranks;
  share.shared_intermediate = whole.shared_intermediate / of * ranks;
  share.delta.key_heads = whole.delta.key_heads / of * ranks;
  share.delta.value_heads = whole.delta.value_heads / of * ranks;
  share.vocab = whole.vocab / of * ranks;
  share.eos_ids.clear();
  return share;
}

}  // namespace mainarch::cli
