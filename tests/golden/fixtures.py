"""Test checkpoints whose weights are computed from tensor names, so that no weight file is stored.

The C++ generator (`mainarch make-checkpoint`) does the same arithmetic and must make the same bytes: data/checkpoints.json has
the hash of every tensor.

    python tests/golden/fixtures.py DIR FIXTURE [--variant V] [--seed S] [--shards N]
"""
import argparse
import json
import math
import pathlib
import re

import numpy as np

import formats

COMMON = dict(
    vocab_size=512, hidden_size=128, num_hidden_layers=3, num_attention_heads=8, rms_norm_eps=1e-6, hidden_act="silu",
    max_position_embeddings=512, attention_bias=False, use_sliding_window=False, sliding_window=None, bos_token_id=0, eos_token_id=1,
)
# Each config spells its RoPE keys in another of the ways that real files do.
CONFIGS = {
    "T1": {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **COMMON, "num_key_value_heads": 4, "head_dim": 32,
        "intermediate_size": 384, "tie_word_embeddings": True, "rope_theta": 1000000.0, "rope_scaling": None, "torch_dtype": "bfloat16",
    },
    "T1y": {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **COMMON, "num_key_value_heads": 4, "head_dim": 32,
        "intermediate_size": 320, "tie_word_embeddings": False, "rope_theta": 1000000.0, "torch_dtype": "bfloat16",
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    },
    "T2": {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", **COMMON, "num_key_value_heads": 2, "head_dim": 64,
        "intermediate_size": 384, "tie_word_embeddings": False, "num_experts": 16, "num_experts_per_tok": 4,
        "moe_intermediate_size": 256, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [1],
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}, "dtype": "bfloat16",
    },
    "L3": {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", **COMMON, "num_key_value_heads": 4, "head_dim": 32,
        "intermediate_size": 384, "tie_word_embeddings": False, "attention_bias": True, "mlp_bias": False, "rope_theta": 500000.0,
        "torch_dtype": "bfloat16",
        "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
        },
    },
}
# What tests that go through all fixtures on GPUs leave out; some of GPUs name it.
CPU_ONLY = {"L3"}
# An untied head at the scale of a linear layer gives logits of standard deviation 0.8: two leaders are then within 0.05 at every
# fifth token, and no seed keeps 168 greedy steps clear of that. Eight times as much is what a tied head has.
HEAD_GAIN = 8.0
VARIANTS = ["bf16", "f32", "f16", "fp8-block", "fp8-channel", "mxfp4", "mxfp4-attnfp8"]

MASK = (1 << 64) - 1


def fnv1a64(text):
    h = 0xCBF29CE484222325
    for byte in text.encode("utf-8"):
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def splitmix64(x):
    """On a numpy array of uint64; wraps."""
    z = x + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniform(name, count, seed):
    """u in [-1, 1), exact in fp32: 24 random bits."""
    key = np.uint64(fnv1a64(name))
    if seed != 0:
        key ^= splitmix64(np.array([seed], dtype=np.uint64))[0]
    bits = splitmix64(np.arange(count, dtype=np.uint64) + key) >> np.uint64(40)
    return (bits.astype(np.float64) / 2.0**23 - 1.0).astype(np.float32)


def linear_scale(fan_in):
    """sqrt(3 / fan_in) to the nearest power of two; fan_in 384 is an exact tie (-3.5) and goes to the even exponent, -4."""
    return 2.0 ** round(0.5 * math.log2(3.0 / fan_in))


def tensor_shapes(cfg):
    """{checkpoint name: logical shape}, linear weights as [out, in]."""
    hidden, heads, kv, hd = cfg["hidden_size"], cfg["num_attention_heads"], cfg["num_key_value_heads"], cfg["head_dim"]
    shapes = {"model.embed_tokens.weight": (cfg["vocab_size"], hidden), "model.norm.weight": (hidden,)}
    if not cfg["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (cfg["vocab_size"], hidden)

    def mlp(prefix, width):
        shapes[prefix + "gate_proj.weight"] = shapes[prefix + "up_proj.weight"] = (width, hidden)
        shapes[prefix + "down_proj.weight"] = (hidden, width)

    for i in range(cfg["num_hidden_layers"]):
        p = f"model.layers.{i}."
        shapes[p + "input_layernorm.weight"] = shapes[p + "post_attention_layernorm.weight"] = (hidden,)
        shapes[p + "self_attn.q_proj.weight"] = (heads * hd, hidden)
        shapes[p + "self_attn.k_proj.weight"] = shapes[p + "self_attn.v_proj.weight"] = (kv * hd, hidden)
        shapes[p + "self_attn.o_proj.weight"] = (hidden, heads * hd)
        if cfg["model_type"] != "llama":
            shapes[p + "self_attn.q_norm.weight"] = shapes[p + "self_attn.k_norm.weight"] = (hd,)
        if cfg["attention_bias"]:
            for part, rows in [("q", heads * hd), ("k", kv * hd), ("v", kv * hd), ("o", hidden)]:
                shapes[p + f"self_attn.{part}_proj.bias"] = (rows,)
        if is_sparse(cfg, i):
            shapes[p + "mlp.gate.weight"] = (cfg["num_experts"], hidden)
            for e in range(cfg["num_experts"]):
                mlp(p + f"mlp.experts.{e}.", cfg["moe_intermediate_size"])
        else:
            mlp(p + "mlp.", cfg["intermediate_size"])
    return shapes


def is_sparse(cfg, layer):
    return cfg.get("num_experts", 0) > 0 and layer not in cfg["mlp_only_layers"] and (layer + 1) % cfg["decoder_sparse_step"] == 0


def logical_weight(name, shape, seed):
    """The fp32 array of a tensor's bf16 values."""
    u = uniform(name, math.prod(shape), seed).reshape(shape)
    if name.endswith(".bias"):
        value = np.float32(0.5) * u
    elif len(shape) == 1:
        value = np.float32(1.0) + np.float32(0.25) * u
    elif name == "model.embed_tokens.weight":
        value = u
    elif name == "lm_head.weight":
        value = u * np.float32(HEAD_GAIN * linear_scale(shape[1]))
    elif name.endswith(".mlp.gate.weight"):
        value = u * np.float32(4.0 * linear_scale(shape[1]))
    else:
        value = u * np.float32(linear_scale(shape[1]))
    return formats.bf16_to_f32(formats.f32_to_bf16(value))


def logical_weights(fixture, seed):
    return {name: logical_weight(name, shape, seed) for name, shape in tensor_shapes(CONFIGS[fixture]).items()}


def weight_format(name, variant):
    """How one tensor of a variant lies on disk."""
    if variant in ("bf16", "f32", "f16"):
        return variant
    attention = re.search(r"\.self_attn\.[qkvo]_proj\.weight$", name)
    mlp = re.search(r"\.mlp\.(experts\.\d+\.)?(gate|up|down)_proj\.weight$", name)
    if not attention and not mlp:
        return "bf16"  # embeddings, head, norms and the router always stay
    if variant == "mxfp4-attnfp8":
        return "fp8-channel" if attention else "mxfp4"
    return variant


def encode_tensor(name, w, fmt):
    """One logical tensor as {stored name: (dtype string, array of raw values)}."""
    base = name.removesuffix(".weight")
    if fmt == "fp8-block":
        q, s = formats.fp8_block(w)
        return {name: ("F8_E4M3", q), base + ".weight_scale_inv": ("F32", s)}
    if fmt == "fp8-channel":
        q, s = formats.fp8_channel(w)
        return {name: ("F8_E4M3", q), base + ".weight_scale": ("F32", s)}
    if fmt == "mxfp4":
        q, s = formats.mxfp4(w)
        return {name: ("U8", q), base + ".weight_scale": ("U8", s)}
    return {name: {"bf16": ("BF16", formats.f32_to_bf16(w)), "f32": ("F32", w), "f16": ("F16", w.astype(np.float16))}[fmt]}


def decode_tensor(w, fmt):
    """The fp32 weight that a reader of that format gets back; what the goldens of a quantised variant run on."""
    if fmt == "fp8-block":
        return formats.fp8_block_decode(*formats.fp8_block(w))
    if fmt == "fp8-channel":
        return formats.fp8_channel_decode(*formats.fp8_channel(w))
    if fmt == "mxfp4":
        return formats.mxfp4_decode(*formats.mxfp4(w))
    return w.astype(np.float16).astype(np.float32) if fmt == "f16" else w


def stored_tensors(fixture, variant, seed):
    stored = {}
    for name, w in logical_weights(fixture, seed).items():
        stored.update(encode_tensor(name, w, weight_format(name, variant)))
    return dict(sorted(stored.items()))


def effective_weights(fixture, variant, seed):
    return {n: decode_tensor(w, weight_format(n, variant)) for n, w in logical_weights(fixture, seed).items()}


def quantization_config(cfg, variant):
    """What released checkpoints say about themselves. Loaders go by the tensors, not by this."""
    excluded = ["lm_head"] + [f"model.layers.{i}.mlp.gate" for i in range(cfg["num_hidden_layers"]) if is_sparse(cfg, i)]
    if variant == "fp8-block":
        return {
            "quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
            "modules_to_not_convert": excluded,
        }
    fp8 = {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel", "ch_axis": 0, "is_dynamic": False}}
    group = dict(
        dtype="fp4", qscheme="per_group", group_size=32, ch_axis=-1, scale_format="e8m0", scale_calculation_mode="even",
        round_method="half_even",
    )
    fp4 = {"weight": {**group, "is_dynamic": False}, "input_tensors": {**group, "is_dynamic": True}}
    quark = {"quant_method": "quark", "exclude": excluded, "layer_quant_config": {}, "global_quant_config": fp4}
    if variant == "fp8-channel":
        quark["global_quant_config"] = fp8
    elif variant == "mxfp4-attnfp8":
        quark["layer_quant_config"] = {"*self_attn*": fp8}
    return quark


def checkpoint_config(fixture, variant):
    cfg = dict(CONFIGS[fixture])
    if variant in ("f32", "f16"):
        key = "dtype" if "dtype" in cfg else "torch_dtype"
        cfg[key] = {"f32": "float32", "f16": "float16"}[variant]
    elif variant != "bf16":
        cfg["quantization_config"] = quantization_config(cfg, variant)
    return cfg


def write_checkpoint(directory, fixture, variant="bf16", seed=0, shards=1):
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    for name, tree in [("config.json", checkpoint_config(fixture, variant)),
                       ("generation_config.json", {"bos_token_id": 0, "eos_token_id": [1], "pad_token_id": 0, "do_sample": False})]:
        (directory / name).write_text(json.dumps(tree, indent=2) + "\n", encoding="utf-8")
    tensors = stored_tensors(fixture, variant, seed)
    if shards == 1:
        formats.write_safetensors(directory / "model.safetensors", tensors)
        return
    # Cut the sorted names into equal runs: a weight and its scale may land in different files, as in real checkpoints.
    names = list(tensors)
    weight_map = {}
    for s in range(shards):
        file = f"model-{s + 1:05d}-of-{shards:05d}.safetensors"
        part = names[len(names) * s // shards:len(names) * (s + 1) // shards]
        formats.write_safetensors(directory / file, {n: tensors[n] for n in part})
        weight_map.update({n: file for n in part})
    total = sum(a.nbytes for _, a in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("directory")
    args.add_argument("fixture", choices=CONFIGS)
    args.add_argument("--variant", choices=VARIANTS, default="bf16")
    args.add_argument("--seed", type=int, default=0)
    args.add_argument("--shards", type=int, default=1)
    write_checkpoint(**vars(args.parse_args()))


if __name__ == "__main__":
    main()
