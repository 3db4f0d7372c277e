// SPDX-License-Identifier: MIT
//
// mainarch attn-decode: one decoded token's paged attention alone, at a context, against fp64. On a
// virtual node with what its kernels moved, counted, and how long they take by the timing model; on real
// devices with the time.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "cli/attn_reference.h"
#include "cli/attn_time.h"
#include "cli/bench_probe.h"
#include "cli/command.h"
#include "cli/geometry.h"
#include "cli/gpu_step_counts.h"
#include "cli/interrupt.h"
#include "cli/json_writer.h"
#include "cli/model_options.h"
#include "cli/options.h"
#include "cli/output.h"
#include "model/kv_pages.h"
#include "model/synthetic_values.h"

namespace mainarch::cli {
namespace {

// Tokens that are computed; the pages of the rest of the context are copies of theirs.
constexpr uint32_t kDistinct = 128;
constexpr uint32_t kPage = backend::kPageTokens;
constexpr int kRepeats = 20;

struct Settings {
  ModelOptions model;
  int64_t context = 1024, heads = 64, kv_heads = 4, head_dim = 128, value_dim = 0, share_from = 0;
  uint64_t seed = 0;
  double bound = 0;
  bool time = true;
  bool json = false;
};

// A line a second on stderr of what takes long; nothing of what does not.
class Lines {
 public:
  explicit Lines(const char* what) : what_(what), last_ns_(NowNs()) {}
  void Update(uint64_t done, uint64_t total) {
    const int64_t now = NowNs();
    if (now - last_ns_ < 1'000'000'000) return;
    last_ns_ = now;
    std::fprintf(stderr, "%s: %llu of %llu\n", what_, static_cast<unsigned long long>(done),
                 static_cast<unsigned long long>(total));
  }

 private:
  const char* const what_;
  int64_t last_ns_;
};

struct Report {
  double error = NAN, bound = 0;
  uint64_t kv_bytes = 0;  // K and V of the context, on all ranks, each once
  double seconds = NAN;   // NAN on a virtual node
  double read_rate = 0;   // bytes a second of plain reads, of all threads, before and after; CPUs only
  bool counted = false;
  OpCounts attention;  // on all ranks
  AttentionTime time;  // modelled; without packets where it was not asked for
  int32_t ranks = 1;
  std::string isa;

  bool ok() const { return error <= bound; }
  double rate() const { return seconds > 0 ? static_cast<double>(kv_bytes) / seconds : 0; }
  // Modelled, a rank's K and V: bytes a second, and what of the ceiling that is.
  double modelled_rate() const { return static_cast<double>(kv_bytes) / ranks / (time.us * 1e-6); }
  double of_ceiling() const { return modelled_rate() / (time.read_tbs * 1e12); }
};

// One layer; where V has a size of its own, that of the family which has such heads, and a factor for V.
StatusOr<model::ModelConfig> ConfigOf(const Settings& s) {
  const bool unequal = s.value_dim != 0 && s.value_dim != s.head_dim;
  model::ModelConfig c;
  c.model_type = "qwen3";
  if (unequal) {
    ASSIGN_OR_RETURN(c, PresetConfig("tiny-mimo"));
    c.layer_attention.resize(1);  // the first one has no window and no sinks
    c.attention.sinks = false;
    c.value_dim = static_cast<int32_t>(s.value_dim);
    for (model::RopeConfig& rope : c.more_ropes) rope.rotary_dim = static_cast<int32_t>(s.head_dim);
  }
  c.hidden = 1024;  // wide enough that attention is not fused with the product before it
  c.layers = 1;
  c.heads = static_cast<int32_t>(s.heads);
  c.kv_heads = static_cast<int32_t>(s.kv_heads);
  c.head_dim = static_cast<int32_t>(s.head_dim);
  c.intermediate = 256;
  c.vocab = 512;
  c.max_position = s.context + 1;
  c.tied_embeddings = true;
  c.rope.theta = 1e6;
  c.rope.rotary_dim = c.head_dim;
  c.sparse_layer.assign(1, false);
  return c;
}

class Run {
 public:
  explicit Run(const Settings& s) : s_(s), context_tokens_(static_cast<uint32_t>(s.context)) {}

  Status Init() {
    ASSIGN_OR_RETURN(const model::ModelConfig config, ConfigOf(s_));
    ASSIGN_OR_RETURN(directory_, MakeTemporaryCheckpoint(config, model::SyntheticFormat::kBF16, s_.seed));
    if (s_.model.is_virtual()) {
      ASSIGN_OR_RETURN(group_, OpenCounted(s_.model.device.substr(4)));
      ASSIGN_OR_RETURN(model_, model::Model::Load(group_.backend, directory_->path(), {}));
    } else {
      ASSIGN_OR_RETURN(model_, LoadModel(s_.model, directory_->path()));
    }
    const backend::Program& program = model_->weights().program();
    for (size_t i = 0; i < program.ops.size(); ++i) {
      const auto* op = std::get_if<backend::AttentionOp>(&program.ops[i]);
      if (op != nullptr) attention_ = i, out_ = op->out;
    }
    options_.kv_type = s_.model.kv_type();
    options_.activations = s_.model.activations();
    options_.share_from = static_cast<uint32_t>(s_.share_from);
    options_.max_rows = kPage;
    options_.pages = {model::PagesFor(uint64_t{context_tokens_} + 1)};
    ASSIGN_OR_RETURN(context_, model_->weights().CreateContext(options_));
    // In a random order, so that a page table that is ignored shows, and none is kinder than a pool in use.
    for (uint32_t i = 0; i < options_.pages[0]; ++i) pages_.push_back(i);
    const uint64_t order = model::SyntheticKey("pages", s_.seed);
    for (uint32_t i = options_.pages[0]; i > 1; --i) {
      std::swap(pages_[i - 1], pages_[model::SplitMix64(order + i) % i]);
    }
    const uint64_t key = model::SyntheticKey("prompt", s_.seed);
    for (uint32_t i = 0; i <= std::min(context_tokens_, kDistinct); ++i) {
      tokens_.push_back(
          static_cast<uint32_t>(model::SplitMix64(key + i) % static_cast<uint64_t>(program.vocab)));
    }
    last_ = tokens_.back();
    tokens_.pop_back();
    return Fill();
  }

  StatusOr<Report> Decode() {
    Report report;
    report.ranks = model_->weights().program().ranks;
    report.isa = model_->backend().devices()[0].isa;
    report.bound = s_.bound;
    report.kv_bytes = KvBytesPerToken(model_->config(), s_.model.kv_type()) * context_tokens_;
    group_.Restart();
    RETURN_IF_ERROR(Token(attention_ + 1));
    if (s_.model.is_virtual()) {
      TokenCounts counts;
      RETURN_IF_ERROR(CountLogged(model_->weights(), options_, {context_tokens_, attention_ + 1},
                                  group_.log.get(), &counts));
      report.attention = counts.ops.back();
      report.counted = true;
    }
    ASSIGN_OR_RETURN(report.error, Error64());
    if (s_.model.is_virtual() && s_.time) {
      ASSIGN_OR_RETURN(report.time,
                       TimeAttention(model_->config(), report.ranks, report.isa, options_, context_tokens_));
    }
    if (!s_.model.is_virtual()) {
      RETURN_IF_ERROR(Time(&report));
    }
    return report;
  }

 private:
  Status Rows(const std::vector<backend::StepRow>& rows, size_t end) {
    if (Interrupted()) return Error(Code::kCancelled, "interrupted");
    const backend::StepCache cache = {pages_};
    const backend::StepSequence sequence = {absl::MakeConstSpan(&cache, 1)};
    const uint32_t logit_row = static_cast<uint32_t>(rows.size()) - 1;
    backend::Step step;
    step.rows = rows;
    step.sequences = absl::MakeConstSpan(&sequence, 1);
    step.logit_rows = absl::MakeConstSpan(&logit_row, 1);
    return context_->RunPrefix(step, end);
  }
  Status Token(size_t end) { return Rows({{last_, context_tokens_, 0}}, end); }

  Status Fill() {
    for (uint32_t begin = 0; begin < tokens_.size(); begin += kPage) {
      std::vector<backend::StepRow> rows;
      for (uint32_t p = begin; p < std::min<size_t>(begin + kPage, tokens_.size()); ++p) {
        rows.push_back({tokens_[p], p, 0});
      }
      RETURN_IF_ERROR(Rows(rows, attention_ + 1));
    }
    Lines lines("pages filled");
    for (uint32_t i = kDistinct / kPage; i < options_.pages[0]; ++i) {
      lines.Update(i, options_.pages[0]);
      if (Interrupted()) return Error(Code::kCancelled, "interrupted");
      RETURN_IF_ERROR(context_->CopyPage(0, pages_[i % (kDistinct / kPage)], pages_[i]));
    }
    return OkStatus();
  }

  // The largest difference over the largest magnitude.
  StatusOr<double> Error64() const {
    ASSIGN_OR_RETURN(const std::vector<double> want,
                     AttendReference(*model_, s_.model.kv_type(), tokens_, last_, context_tokens_));
    const backend::Program& program = model_->weights().program();
    const size_t width = static_cast<size_t>(program.buffers[static_cast<size_t>(out_)].width);
    double worst = 0, largest = 0;
    for (int32_t rank = 0; rank < program.ranks; ++rank) {
      const std::vector<float> got = context_->ReadBuffer(rank, out_, 1);
      if (got.size() < width) {
        return Error(Code::kInternal, "the attention of rank ", rank, " could not be read back");
      }
      for (size_t i = 0; i < width; ++i) {
        const double value = want[static_cast<size_t>(rank) * width + i];
        const double delta = std::fabs(double{got[i]} - value);
        if (!(delta <= worst)) worst = delta;  // a NaN stays
        largest = std::max(largest, std::fabs(value));
      }
    }
    return worst / largest;
  }

  // With attention less without: medians. On a CPU beside plain reads of as many bytes, before and after.
  Status Time(Report* report) {
    std::unique_ptr<Probes> probes;
    if (s_.model.device.compare(0, 3, "cpu") == 0) {
      const int threads = static_cast<int>(model_->backend().devices()[0].compute_units);
      const uint64_t bytes = std::max<uint64_t>(report->kv_bytes >> 20 << 20, uint64_t{1} << 20);
      ASSIGN_OR_RETURN(probes, Probes::Create(threads, bytes));
      report->read_rate = probes->Whole() / 2;
    }
    double median[2];
    Lines lines("runs timed");
    for (size_t with : {0, 1}) {
      std::vector<int64_t> times;
      for (int i = 0; i < kRepeats; ++i) {
        const int64_t start = NowNs();
        RETURN_IF_ERROR(Token(attention_ + with));
        times.push_back(NowNs() - start);
        lines.Update(with * kRepeats + static_cast<size_t>(i) + 1, 2 * kRepeats);
      }
      std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
      median[with] = static_cast<double>(times[kRepeats / 2]) * 1e-9;
    }
    report->seconds = median[1] - median[0];
    if (probes != nullptr) report->read_rate += probes->Whole() / 2;
    return OkStatus();
  }

  const Settings& s_;
  const uint32_t context_tokens_;
  std::unique_ptr<TemporaryDirectory> directory_;
  CountedGroup group_;
  std::shared_ptr<const model::Model> model_;
  std::unique_ptr<backend::Context> context_;
  backend::ContextOptions options_;
  size_t attention_ = 0;
  backend::BufferId out_ = 0;
  std::vector<uint32_t> pages_, tokens_;
  uint32_t last_ = 0;
};

void PrintModelled(const Report& r) {
  if (r.time.packets.empty()) {
    std::printf("a virtual node: its times say nothing about hardware and are not shown\n");
    return;
  }
  std::printf("\n");
  Table table({"<kernel", "us", "floor us", "<limited by"});
  for (const AttentionTime::Packet& packet : r.time.packets) {
    table.Row({packet.kernel, Fixed(packet.us, 2), Fixed(packet.floor_us, 2), packet.limits});
  }
  table.Print();
  const std::string merging =
      r.time.merge_us > 0 ? absl::StrCat("; merging ", Percent(r.time.merge_us / r.time.us), " of it") : "";
  std::printf(
      "%s us for a GPU's %s of K and V: %s TB/s, %s of what a streaming read gets%s\n"
      "modelled, not measured: %s; of attention nothing was ever held against it\n",
      Fixed(r.time.us, 2).c_str(), Bytes(r.kv_bytes / static_cast<uint64_t>(r.ranks)).c_str(),
      Fixed(r.modelled_rate() * 1e-12, 2).c_str(), Percent(r.of_ceiling()).c_str(),
      merging.c_str(), r.time.error.c_str());
}

void PrintReport(const Settings& s, const Report& r) {
  const bool own = s.value_dim != 0 && s.value_dim != s.head_dim;
  std::printf("%lld query and %lld KV heads of %lld%s, context %lld, KV %s; %s, %d rank(s), %s\n\n",
              static_cast<long long>(s.heads), static_cast<long long>(s.kv_heads),
              static_cast<long long>(s.head_dim), own ? absl::StrCat(", values of ", s.value_dim).c_str() : "",
              static_cast<long long>(s.context),
              s.model.kv.c_str(), s.model.device.c_str(), r.ranks, r.isa.c_str());
  std::printf("relative error %s, bound %s: %s\n", absl::StrFormat("%.2e", r.error).c_str(),
              absl::StrFormat("%.2e", r.bound).c_str(), r.ok() ? "ok" : "TOO FAR");
  if (r.counted) {
    const OpCounts& c = r.attention;
    std::printf(
        "%u packets a GPU, 1 doorbell, 1 wait of the host, no fabric round\n"
        "%llu bytes from memory, least possible %llu (%s); %s in whole blocks of 64\n"
        "%llu bytes of the step's own read again, %llu written, %llu spilled, %llu to peers\n",
        c.packets, static_cast<unsigned long long>(c.memory_bytes),
        static_cast<unsigned long long>(c.least_bytes), Fixed(c.ratio(), 3).c_str(),
        Percent(c.memory_coalesced()).c_str(), static_cast<unsigned long long>(c.activation_bytes),
        static_cast<unsigned long long>(c.written_bytes),
        static_cast<unsigned long long>(c.scratch_bytes),
        static_cast<unsigned long long>(c.link_bytes));
    PrintModelled(r);
    return;
  }
  std::printf(
      "%s of K and V in %s: %s/s\n", Bytes(r.kv_bytes).c_str(), Seconds(r.seconds).c_str(),
      Bytes(static_cast<uint64_t>(r.rate())).c_str());
  if (r.read_rate > 0) {
    std::printf("plain reads of as many bytes by as many threads: %s/s; of that %s\n",
                Bytes(static_cast<uint64_t>(r.read_rate)).c_str(), Percent(r.rate() / r.read_rate).c_str());
  }
}

void WriteModelled(const Report& r, JsonWriter* out) {
  out->Key("modelled").BeginObject().Field("us", r.time.us);
  if (!std::isnan(r.time.merge_us)) out->Field("merge_us", r.time.merge_us);
  out->Field("rate", r.modelled_rate()).Field("of_read", r.of_ceiling()).Field("model_error", r.time.error);
  out->Key("packets").BeginArray();
  for (const AttentionTime::Packet& packet : r.time.packets) {
    out->BeginObject().Field("kernel", packet.kernel).Field("us", packet.us);
    out->Field("floor_us", packet.floor_us).Field("limited_by", packet.limits).EndObject();
  }
  out->EndArray().EndObject();
}

void PrintJson(const Settings& s, const Report& r) {
  JsonWriter out;
  out.BeginObject().Field("device", s.model.device).Field("isa", r.isa).Field("ranks", r.ranks);
  out.Field("heads", s.heads).Field("kv_heads", s.kv_heads).Field("head_dim", s.head_dim);
  out.Field("value_dim", s.value_dim == 0 ? s.head_dim : s.value_dim);
  out.Field("context", s.context).Field("kv", s.model.kv).Field("kv_bytes", r.kv_bytes);
  out.Field("virtual", s.model.is_virtual());
  out.Field("relative_error", r.error).Field("bound", r.bound).Field("ok", r.ok());
  if (r.counted) {
    const OpCounts& c = r.attention;
    out.Key("counts").BeginObject().Field("packets", c.packets).Field("doorbells", 1);
    out.Field("host_waits", 1).Field("rounds", 0).Field("memory_bytes", c.memory_bytes);
    out.Field("least_bytes", c.least_bytes).Field("memory_whole", c.memory_whole);
    out.Field("activation_bytes", c.activation_bytes).Field("written_bytes", c.written_bytes);
    out.Field("scratch_bytes", c.scratch_bytes).Field("link_bytes", c.link_bytes);
    out.Field("instructions", c.instructions).EndObject();
    if (!r.time.packets.empty()) WriteModelled(r, &out);
  } else {
    out.Field("seconds", r.seconds);
    if (r.read_rate > 0) out.Field("read_rate", r.read_rate).Field("of_read", r.rate() / r.read_rate);
  }
  out.EndObject().Print();
}

StatusOr<int> Attend(const Settings& s) {
  Run run(s);
  RETURN_IF_ERROR(run.Init());
  ASSIGN_OR_RETURN(const Report report, run.Decode());
  s.json ? PrintJson(s, report) : PrintReport(s, report);
  return report.ok() ? kExitOk : kExitFailure;
}

}  // namespace

int RunAttnDecode(Arguments arguments) {
  Settings s;
  Options options(
      "attn-decode", "[options]",
      "One token's paged attention alone, at a context, verified against fp64: the largest "
      "difference over the largest magnitude. Weights are hashed; beyond 128 tokens the pages of "
      "the context are copies. On a virtual node it prints what the kernels moved, counted, "
      "beside the least there is, and how long they take by the timing model.",
      "mainarch attn-decode --context 4096\n"
      "mainarch attn-decode --context 131072 --heads 16 --kv-heads 1 --head-dim 192 --value-dim 128\n"
      "mainarch attn-decode --device sim:gfx950x8 --heads 64 --kv-heads 4 --kv fp8\n"
      "mainarch attn-decode --device sim:gfx950 --heads 16 --kv-heads 1 --context 1000000 --kv fp4\n"
      "mainarch attn-decode --device gpu --tp 8 --context 131072 --json");
  options.Integer("context", &s.context, 1, 1 << 20, "tokens before the one that attends");
  options.Integer("heads", &s.heads, 1, 1024, "query heads, on all ranks");
  options.Integer("kv-heads", &s.kv_heads, 1, 1024, "key and value heads, on all ranks");
  options.Integer("head-dim", &s.head_dim, 16, 512, "of a head");
  options.Integer("value-dim", &s.value_dim, 0, 512, "of a head of V; 0: as --head-dim");
  options.Integer("share-from", &s.share_from, 0, 1 << 20,
                  "GPUs that hold the same KV head share it from that context on; 0: where that is sooner done");
  options.Number("bound", &s.bound, 0, 1e6,
                 "relative error that fails; 0: by --kv, 2e-1 for fp4 and k8v4, 6e-2 for fp8 and with --fast, "
                 "--int8 or --mxfp8, 4e-3 for bf16, 2e-5 for f32");
  options.Unsigned("seed", &s.seed, "of tokens and weights");
  options.Flag("time", &s.time, "on a virtual node, counts alone, without the timing model");
  options.Flag("json", &s.json, "one JSON object");
  s.model.DeclareDevice(&options);
  if (const auto code = options.Parse(arguments)) return *code;
  if (s.heads % s.kv_heads != 0) return options.Usage("--heads must be a multiple of --kv-heads");
  const Status resolved = s.model.Resolve();
  if (!resolved.ok()) return options.Usage(resolved.message());
  if (s.bound == 0) {
    const bool wide = s.model.kv_type() == backend::KvType::kF32;
    // An element that falls to the other side of a rounding is a whole step of its type off.
    const quant::KvTypeInfo& info = quant::InfoOf(s.model.kv_type());
    const bool eight = info.k == quant::KvForm::kFp8;
    s.bound = info.v == quant::KvForm::kFp4 ? 2e-1 : s.model.rounds() || eight ? 6e-2 : wide ? 2e-5 : 4e-3;
  }
  const StatusOr<int> code = Attend(s);
  return code.ok() ? *code : Fail("attn-decode", code.status());
}

}  // namespace mainarch::cli
