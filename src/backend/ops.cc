// SPDX-License-Identifier: MIT
//
// What every operator means to whoever does not run it: its name, the buffers and weights it
// touches, what it demands beyond that, and what it costs beyond its weights. One struct an op.
#include "backend/ops_info.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace mainarch::backend {
namespace {

int64_t Width(const Program& program, BufferId id) {
  if (id < 0 || static_cast<size_t>(id) >= program.buffers.size()) return 0;
  return program.buffers[static_cast<size_t>(id)].width;
}

// What most ops leave as it is.
struct Plain {
  template <class T>
  static Status Check(const Program&, const T&) {
    return OkStatus();
  }
  template <class T>
  static std::string Note(const T&) {
    return "";
  }
  template <class T>
  static void AddCost(const Program&, const T&, const Work&, Cost*) {}
};

template <class T>
struct OpType;

template <>
struct OpType<EmbedOp> : Plain {
  static constexpr absl::string_view kName = "embed";
  static OpUses Uses(const Program& p, const EmbedOp& o) {
    return {{}, {{o.table, WeightUse::kLookup, 0, Width(p, o.x)}}, {o.x}};
  }
};

template <>
struct OpType<NormMatmulOp> : Plain {
  static constexpr absl::string_view kName = "norm_matmul";
  static OpUses Uses(const Program& p, const NormMatmulOp& o) {
    return {{o.x},
            {{o.norm, WeightUse::kVector, p.hidden},
             {o.w, WeightUse::kProduct, Width(p, o.x), Width(p, o.out)}},
            {o.out}};
  }
};

template <>
struct OpType<WideNormOp> : Plain {
  static constexpr absl::string_view kName = "wide_norm";
  static OpUses Uses(const Program&, const WideNormOp& o) {
    return {{o.qkv},
            {{o.q_norm, WeightUse::kVector, int64_t{o.heads} * o.key_dim},
             {o.k_norm, WeightUse::kVector, int64_t{o.kv_heads} * o.key_dim}},
            {o.qkv}};
  }
  static Status Check(const Program& p, const WideNormOp& o) {
    const int64_t held = int64_t{o.kv_heads} * p.ranks;
    if (o.heads >= 1 && o.kv_heads >= 1 && o.key_dim >= 1 && o.total_kv_heads >= 1 &&
        held % o.total_kv_heads == 0 &&
        int64_t{o.heads + o.kv_heads} * o.key_dim <= Width(p, o.qkv)) {
      return OkStatus();
    }
    return Error(Code::kInternal, "wide norm of ", o.heads, " and ", o.kv_heads, " heads of ",
                 o.key_dim, " does not match its buffer");
  }
  // Ranks add up what their heads have of squares.
  static void AddCost(const Program& p, const WideNormOp&, const Work&, Cost* cost) {
    cost->all_reduces += p.ranks > 1;
  }
};

template <>
struct OpType<ResizeHeadsOp> : Plain {
  static constexpr absl::string_view kName = "resize_heads";
  static OpUses Uses(const Program&, const ResizeHeadsOp& o) {
    OpUses uses = {{o.in}, {}, {o.out}};
    for (const WeightId norm : {o.q_norm, o.k_norm}) {
      if (norm != kNone) uses.weights.push_back({norm, WeightUse::kVector, o.from});
    }
    return uses;
  }
  static Status Check(const Program& p, const ResizeHeadsOp& o) {
    const int64_t keys = int64_t{o.heads} + o.kv_heads;
    if (o.from >= 1 && o.to >= 1 && o.heads >= 0 && o.kv_heads >= 0 && o.value_from >= 0 &&
        (o.value_from > 0) == (o.value_to > 0)) {
      const int64_t from = o.value_from > 0 ? o.value_from : o.from, to = o.value_from > 0 ? o.value_to : o.to;
      const int64_t behind = Width(p, o.in) - keys * o.from;
      if (behind >= 0 && behind % from == 0 && Width(p, o.out) == keys * o.to + behind / from * to) return OkStatus();
    }
    return Error(Code::kInternal, "heads of ", o.from, " and ", o.to, " do not match their buffers");
  }
};

template <>
struct OpType<HeadsMatmulOp> : Plain {
  static constexpr absl::string_view kName = "heads_matmul";
  static OpUses Uses(const Program&, const HeadsMatmulOp& o) {
    return {{o.in}, {{o.w, WeightUse::kHeads, o.in_step, o.out_step}}, {o.out}};
  }
  static Status Check(const Program& p, const HeadsMatmulOp& o) {
    const int64_t heads = p.weights[static_cast<size_t>(o.w)].groups;
    const auto fits = [&](BufferId buffer, int64_t at, int64_t step) {
      return at >= 0 && step >= 1 && at + (heads - 1) * step < Width(p, buffer);
    };
    if (fits(o.in, o.in_at, o.in_step) && fits(o.out, o.out_at, o.out_step)) return OkStatus();
    return Error(Code::kInternal, "products of ", heads, " heads do not match their buffers");
  }
};

template <>
struct OpType<LatentOp> : Plain {
  static constexpr absl::string_view kName = "latent";
  static OpUses Uses(const Program&, const LatentOp& o) {
    return {{o.q, o.kv, o.qkv}, {{o.norm, WeightUse::kVector, o.latent}}, {o.qkv}};
  }
  static Status Check(const Program& p, const LatentOp& o) {
    const int64_t key = int64_t{o.turning} + o.latent;
    const bool turns = o.rope >= 0 && static_cast<size_t>(o.rope) < p.ropes.size() &&
                       p.ropes[static_cast<size_t>(o.rope)].rotary_dim == o.turning;
    if (turns && o.heads >= 1 && o.still >= 1 && o.turning % 2 == 0 &&
        Width(p, o.q) == int64_t{o.heads} * (o.still + o.turning) && Width(p, o.kv) == key &&
        Width(p, o.qkv) == (o.heads + 1) * key + o.latent) {
      return OkStatus();
    }
    return Error(Code::kInternal, "latent heads do not match their buffers or rope");
  }
};

template <>
struct OpType<AttentionOp> : Plain {
  static constexpr absl::string_view kName = "attention";
  static const PagedCache* Cache(const Program& p, const AttentionOp& o) {
    if (o.cache < 0 || static_cast<size_t>(o.cache) >= p.caches.size()) return nullptr;
    return std::get_if<PagedCache>(&p.caches[static_cast<size_t>(o.cache)]);
  }
  static OpUses Uses(const Program& p, const AttentionOp& o) {
    const PagedCache* cache = Cache(p, o);
    const int64_t key_dim = cache == nullptr ? 0 : cache->key_dim;
    OpUses uses = {{o.qkv}, {}, {o.out}};
    if (o.gate != kNone) uses.reads.push_back(o.gate);
    const auto vector = [&uses](WeightId id, int64_t size) {
      if (id != kNone) uses.weights.push_back({id, WeightUse::kVector, size});
    };
    vector(o.q_norm, key_dim);
    vector(o.k_norm, key_dim);
    vector(o.sinks, o.heads);
    vector(o.bias, Width(p, o.qkv));
    return uses;
  }
  static std::string Note(const AttentionOp& o) {
    const std::string near = o.near == kNone ? "" : absl::StrCat(" near ", o.near);
    return absl::StrCat("cache ", o.cache, near, " layer ", o.layer);
  }
  static Status CheckNear(const Program& p, const AttentionOp& o, const PagedCache& cache) {
    if (o.near == kNone && cache.kept == 0) return OkStatus();
    const bool there = o.near >= 0 && static_cast<size_t>(o.near) < p.caches.size();
    const auto* near = there ? std::get_if<PagedCache>(&p.caches[static_cast<size_t>(o.near)]) : nullptr;
    if (near != nullptr && cache.window == 0 && near->window > 0 && near->kept % 16 == 0 && near->kept >= 0 &&
        o.layer < near->layers && near->kv_heads == cache.kv_heads && near->key_dim == cache.key_dim &&
        near->value_dim == cache.value_dim) {
      return OkStatus();
    }
    return Error(Code::kInternal, "cache ", o.near, " holds no first and last tokens of cache ", o.cache);
  }
  static Status Check(const Program& p, const AttentionOp& o) {
    const PagedCache* cache = Cache(p, o);
    if (cache == nullptr || o.layer < 0 || o.layer >= cache->layers) {
      return Error(Code::kInternal, "no layer ", o.layer, " of a paged cache ", o.cache);
    }
    RETURN_IF_ERROR(CheckNear(p, o, *cache));
    if (cache->kv_heads < 1 || o.heads < 1 || o.heads % cache->kv_heads != 0 ||
        cache->key_dim % 16 != 0 || cache->value_dim % 16 != 0) {
      return Error(Code::kInternal, o.heads, " heads to ", cache->kv_heads, " of ",
                   cache->key_dim, " and ", cache->value_dim);
    }
    const int64_t out = int64_t{o.heads} * cache->value_dim;
    const int64_t qkv = int64_t{o.heads} * cache->key_dim +
                        int64_t{cache->kv_heads} * (cache->key_dim + cache->value_dim);
    if (Width(p, o.qkv) != qkv || Width(p, o.out) != out ||
        (o.gate != kNone && Width(p, o.gate) != out)) {
      return Error(Code::kInternal, "attention buffers do not match the heads");
    }
    if (o.rope == kNone) return OkStatus();
    if (o.rope < 0 || static_cast<size_t>(o.rope) >= p.ropes.size()) {
      return Error(Code::kInternal, "no rope ", o.rope);
    }
    const Rope& rope = p.ropes[static_cast<size_t>(o.rope)];
    if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > cache->key_dim ||
        rope.inv_freq.size() != static_cast<size_t>(rope.rotary_dim / 2)) {
      return Error(Code::kInternal, "rope ", o.rope, " of ", rope.rotary_dim, " dimensions and ",
                   rope.inv_freq.size(), " frequencies for heads of ", cache->key_dim);
    }
    return OkStatus();
  }
  // Row r of a sequence sees the context and r rows before it, and itself for nothing; a window is
  // what the first row sees of it.
  static void AddCost(const Program& p, const AttentionOp& o, const Work& work, Cost* cost) {
    const PagedCache& cache = CacheOf(p, o);
    int64_t seen = work.context;
    if (cache.window > 0 && seen > cache.window) seen = cache.window;
    const auto times = [](int64_t a, int64_t b) {
      return static_cast<uint64_t>(a) * static_cast<uint64_t>(b);
    };
    // Both caches are appended to; what the near one has of the context is not read from the other.
    const auto add = [&](const PagedCache& of, int64_t tokens) {
      cost->kv_bytes += quant::KvTokenBytes(TypeOf(of, work.kv_type), static_cast<uint64_t>(of.key_dim),
                                            static_cast<uint64_t>(of.value_dim)) *
                        times(of.kv_heads, tokens) * static_cast<uint64_t>(work.sequences);
    };
    int64_t near_seen = 0;
    if (o.near != kNone) {
      const PagedCache& near = std::get<PagedCache>(p.caches[static_cast<size_t>(o.near)]);
      near_seen = std::min<int64_t>(seen, int64_t{near.window} + near.kept);
      add(near, near_seen + work.rows);
    }
    add(cache, seen - near_seen + work.rows);
    const int64_t pairs = work.rows * seen + work.rows * (work.rows - 1) / 2;
    cost->flops += 2 * times(o.heads, int64_t{cache.key_dim} + cache.value_dim) *
                   times(work.sequences, pairs);
  }
};

template <>
struct OpType<MatmulAddOp> : Plain {
  static constexpr absl::string_view kName = "matmul_add";
  static OpUses Uses(const Program& p, const MatmulAddOp& o) {
    return {{o.in},
            {{o.w, WeightUse::kProduct, Width(p, o.in), Width(p, o.x)}},
            {o.x},
            /*adds=*/true};
  }
};

template <>
struct OpType<MatmulOp> : Plain {
  static constexpr absl::string_view kName = "matmul";
  static OpUses Uses(const Program& p, const MatmulOp& o) {
    return {{o.in},
            {{o.w, WeightUse::kProduct, Width(p, o.in), Width(p, o.partial)}},
            {o.partial}};
  }
};

template <>
struct OpType<AddBiasOp> : Plain {
  static constexpr absl::string_view kName = "add_bias";
  static OpUses Uses(const Program& p, const AddBiasOp& o) {
    return {{}, {{o.bias, WeightUse::kVector, Width(p, o.x)}}, {o.x}, /*adds=*/true};
  }
};

template <>
struct OpType<AllReduceAddOp> : Plain {
  static constexpr absl::string_view kName = "all_reduce_add";
  static OpUses Uses(const Program&, const AllReduceAddOp& o) {
    return {{o.partial}, {}, {o.x}, /*adds=*/o.add};
  }
  static Status Check(const Program& p, const AllReduceAddOp& o) {
    if (Width(p, o.partial) == Width(p, o.x) && p.ranks > 1) return OkStatus();
    return Error(Code::kInternal, "all-reduce of unequal buffers");
  }
  static std::string Note(const AllReduceAddOp& o) { return o.add ? "" : "set"; }
  static void AddCost(const Program&, const AllReduceAddOp&, const Work&, Cost* cost) {
    ++cost->all_reduces;
  }
};

// A vector that is not there is none to touch.
void AddVector(WeightId id, int64_t size, OpUses* uses) {
  if (id != kNone) uses->weights.push_back({id, WeightUse::kVector, size});
}

template <>
struct OpType<AddNormedOp> : Plain {
  static constexpr absl::string_view kName = "add_normed";
  static OpUses Uses(const Program& p, const AddNormedOp& o) {
    OpUses uses = {{o.y}, {}, {o.x}, /*adds=*/o.add};
    AddVector(o.norm, Width(p, o.x), &uses);
    return uses;
  }
  static Status Check(const Program& p, const AddNormedOp& o) {
    if (Width(p, o.y) == Width(p, o.x)) return OkStatus();
    return Error(Code::kInternal, "adds buffers of unequal widths");
  }
  static std::string Note(const AddNormedOp& o) { return o.add ? "" : "set"; }
};

template <>
struct OpType<NormGateUpOp> : Plain {
  static constexpr absl::string_view kName = "norm_gate_up";
  static OpUses Uses(const Program& p, const NormGateUpOp& o) {
    OpUses uses = {
        {o.x}, {{o.w, WeightUse::kProduct, Width(p, o.x), 2 * Width(p, o.act)}}, {o.act}};
    AddVector(o.norm, p.hidden, &uses);
    return uses;
  }
  static Status Check(const Program& p, const NormGateUpOp& o) {
    return CheckBiases(p, o.gate_bias, o.up_bias, 1, Width(p, o.act));
  }
  // Shares may be uneven, and an activation is as wide as the widest.
  static Status CheckBiases(const Program& p, WeightId gate, WeightId up, int64_t groups,
                            int64_t width) {
    if ((gate == kNone) != (up == kNone)) return Error(Code::kInternal, "one bias of two");
    for (const WeightId id : {gate, up}) {
      if (id == kNone) continue;
      if (id < 0 || static_cast<size_t>(id) >= p.weights.size()) {
        return Error(Code::kInternal, "no weight ", id);
      }
      const Weight& weight = p.weights[static_cast<size_t>(id)];
      for (int32_t rank = 0; rank < p.ranks; ++rank) {
        if (weight.layout == WeightLayout::kVector && VectorSize(weight, rank) <= groups * width) {
          continue;
        }
        return Error(Code::kInternal, weight.label, " is no bias of ", groups, " times ", width);
      }
    }
    return OkStatus();
  }
};

template <>
struct OpType<RouterOp> : Plain {
  static constexpr absl::string_view kName = "router";
  // Experts that are chosen among.
  static int32_t Chosen(const Program& p) { return p.experts - (p.shared_expert ? 1 : 0); }
  static OpUses Uses(const Program& p, const RouterOp& o) {
    OpUses uses = {{o.x},
                   {{o.norm, WeightUse::kVector, p.hidden},
                    {o.w, WeightUse::kProduct, Width(p, o.x), p.experts}},
                   {o.h, o.ids, o.weights}};
    AddVector(o.bias, Chosen(p), &uses);
    AddVector(o.correction, Chosen(p), &uses);
    return uses;
  }
  static Status Check(const Program& p, const RouterOp& o) {
    if (Width(p, o.h) != Width(p, o.x) || Width(p, o.ids) != p.experts_per_token ||
        Width(p, o.weights) != p.experts_per_token) {
      return Error(Code::kInternal, "router buffers do not match the experts");
    }
    if (o.groups == 1) return OkStatus();
    const int32_t experts = Chosen(p);
    if (o.groups >= 1 && experts % o.groups == 0 && experts / o.groups >= 2 &&
        o.chosen_groups >= 1 && o.chosen_groups <= o.groups &&
        experts / o.groups * o.chosen_groups >= p.experts_per_token) {
      return OkStatus();
    }
    return Error(Code::kInternal, o.chosen_groups, " of ", o.groups, " groups of ", p.experts,
                 " experts");
  }
};

template <>
struct OpType<ExpertsGateUpOp> : Plain {
  static constexpr absl::string_view kName = "experts_gate_up";
  static OpUses Uses(const Program& p, const ExpertsGateUpOp& o) {
    return {{o.h, o.ids},
            {{o.w, WeightUse::kRouted, Width(p, o.h), 2 * Width(p, o.act)}},
            {o.act}};
  }
  static Status Check(const Program& p, const ExpertsGateUpOp& o) {
    return OpType<NormGateUpOp>::CheckBiases(p, o.gate_bias, o.up_bias, p.experts, Width(p, o.act));
  }
};

template <>
struct OpType<ExpertsBiasOp> : Plain {
  static constexpr absl::string_view kName = "experts_bias";
  static OpUses Uses(const Program& p, const ExpertsBiasOp& o) {
    return {{o.ids, o.weights},
            {{o.bias, WeightUse::kVector, p.experts * Width(p, o.x)}},
            {o.x},
            /*adds=*/true};
  }
};

template <>
struct OpType<RowGateOp> : Plain {
  static constexpr absl::string_view kName = "row_gate";
  static OpUses Uses(const Program&, const RowGateOp& o) { return {{o.gate}, {}, {o.act}}; }
};

template <>
struct OpType<ExpertsDownOp> : Plain {
  static constexpr absl::string_view kName = "experts_down";
  static OpUses Uses(const Program& p, const ExpertsDownOp& o) {
    return {{o.act, o.ids, o.weights},
            {{o.w, WeightUse::kRouted, Width(p, o.act), Width(p, o.out)}},
            {o.out},
            /*adds=*/o.add};
  }
};

template <>
struct OpType<LogitsOp> : Plain {
  static constexpr absl::string_view kName = "logits";
  static OpUses Uses(const Program& p, const LogitsOp& o) {
    return {{o.x},
            {{o.norm, WeightUse::kVector, p.hidden},
             {o.w, WeightUse::kProduct, Width(p, o.x), p.logit_width()}},
            {}};
  }
};

// The cache of slots that an op names a layer of, or null.
const SlotCache* SlotsOf(const Program& p, int32_t cache, int32_t layer) {
  if (cache < 0 || static_cast<size_t>(cache) >= p.caches.size()) return nullptr;
  const auto* slots = std::get_if<SlotCache>(&p.caches[static_cast<size_t>(cache)]);
  return slots != nullptr && layer >= 0 && layer < slots->layers ? slots : nullptr;
}

Status NoSlots(int32_t cache, int32_t layer) {
  return Error(Code::kInternal, "no layer ", layer, " of a slot cache ", cache);
}

template <>
struct OpType<RecurrentOp> : Plain {
  static constexpr absl::string_view kName = "recurrent";
  static OpUses Uses(const Program&, const RecurrentOp& o) { return {{o.in}, {}, {o.out}}; }
  static std::string Note(const RecurrentOp& o) {
    return absl::StrCat("cache ", o.cache, " layer ", o.layer);
  }
  static Status Check(const Program& p, const RecurrentOp& o) {
    const SlotCache* cache = SlotsOf(p, o.cache, o.layer);
    if (cache == nullptr) return NoSlots(o.cache, o.layer);
    const int64_t width = Width(p, o.out);
    if (Width(p, o.in) == 2 * width && cache->bytes == width * int64_t{sizeof(float)}) {
      return OkStatus();
    }
    return Error(Code::kInternal, "recurrent buffers do not match a state of ", cache->bytes,
                 " bytes");
  }
};

template <>
struct OpType<GatedDeltaOp> : Plain {
  static constexpr absl::string_view kName = "gated_delta";
  static OpUses Uses(const Program&, const GatedDeltaOp& o) {
    return {{o.in, o.gates},
            {{o.conv, WeightUse::kVector, DeltaChannels(o) * o.taps},
             {o.decay, WeightUse::kVector, o.value_heads},
             {o.dt_bias, WeightUse::kVector, o.value_heads},
             {o.norm, WeightUse::kVector, o.value_dim}},
            {o.out}};
  }
  static std::string Note(const GatedDeltaOp& o) {
    return absl::StrCat("cache ", o.cache, " layer ", o.layer);
  }
  static Status Check(const Program& p, const GatedDeltaOp& o) {
    const SlotCache* cache = SlotsOf(p, o.cache, o.layer);
    if (cache == nullptr) return NoSlots(o.cache, o.layer);
    if (o.key_heads < 1 || o.value_heads < 1 || o.value_heads % o.key_heads != 0 ||
        o.key_dim < 16 || o.key_dim % 16 != 0 || o.value_dim < 16 || o.value_dim % 16 != 0 ||
        o.taps < 2 || o.taps > kMostTaps) {
      return Error(Code::kInternal, "a delta net of ", o.key_heads, " heads of ", o.key_dim, " to ",
                   o.value_heads, " of ", o.value_dim, ", ", o.taps, " taps");
    }
    const int64_t width = int64_t{o.value_heads} * o.value_dim;
    if (Width(p, o.in) == DeltaChannels(o) + width && Width(p, o.gates) == 2 * o.value_heads &&
        Width(p, o.out) == width && cache->bytes == DeltaStateBytes(o)) {
      return OkStatus();
    }
    return Error(Code::kInternal, "delta net buffers do not match the heads, or its state ",
                 cache->bytes, " bytes");
  }
  // A state is read and written once a sequence; S meets k, q, and k again with u.
  static void AddCost(const Program&, const GatedDeltaOp& o, const Work& work, Cost* cost) {
    const auto rows = static_cast<uint64_t>(work.rows * work.sequences);
    cost->kv_bytes += 2 * static_cast<uint64_t>(DeltaStateBytes(o) * work.sequences);
    cost->flops += rows * static_cast<uint64_t>(6 * int64_t{o.value_heads} * o.key_dim * o.value_dim +
                                                2 * DeltaChannels(o) * o.taps);
  }
};

template <>
struct OpType<TapOp> : Plain {
  static constexpr absl::string_view kName = "tap";
  static OpUses Uses(const Program&, const TapOp& o) { return {{o.x}, {}, {o.out}}; }
  static Status Check(const Program& p, const TapOp& o) {
    if (Width(p, o.x) == Width(p, o.out) &&
        std::find(p.taps.begin(), p.taps.end(), o.out) != p.taps.end()) {
      return OkStatus();
    }
    return Error(Code::kInternal, "no tap of the width of what it is to keep");
  }
};

// Whether the source has such a tap is known when a context is made.
template <>
struct OpType<InputOp> : Plain {
  static constexpr absl::string_view kName = "input";
  static OpUses Uses(const Program&, const InputOp& o) { return {{}, {}, {o.x}}; }
  static std::string Note(const InputOp& o) { return absl::StrCat("tap ", o.tap); }
  static Status Check(const Program& p, const InputOp& o) {
    if (o.own != kNone && (o.own < 0 || static_cast<size_t>(o.own) >= p.taps.size())) {
      return Error(Code::kInternal, "no tap ", o.own, " of its own");
    }
    if (o.cache == kNone) return OkStatus();
    const SlotCache* cache = SlotsOf(p, o.cache, o.layer);
    if (cache == nullptr) return NoSlots(o.cache, o.layer);
    if (cache->bytes == Width(p, o.x) * int64_t{sizeof(float)}) return OkStatus();
    return Error(Code::kInternal, "a state of ", cache->bytes, " bytes does not hold a row");
  }
};

// The descriptor of what an Op holds.
template <class F>
auto WithType(const Op& op, F f) {
  return std::visit([&f](const auto& o) { return f(OpType<std::decay_t<decltype(o)>>(), o); }, op);
}

}  // namespace

absl::string_view OpName(const Op& op) {
  return WithType(op, [](auto type, const auto&) { return type.kName; });
}

OpUses UsesOf(const Program& program, const Op& op) {
  return WithType(op, [&](auto type, const auto& o) { return type.Uses(program, o); });
}

std::string NoteOf(const Op& op) {
  return WithType(op, [](auto type, const auto& o) { return type.Note(o); });
}

Status CheckOp(const Program& program, const Op& op) {
  return WithType(op, [&](auto type, const auto& o) { return type.Check(program, o); });
}

void AddOwnCost(const Program& program, const Op& op, const Work& work, Cost* cost) {
  WithType(op, [&](auto type, const auto& o) { type.AddCost(program, o, work, cost); });
}

}  // namespace mainarch::backend
