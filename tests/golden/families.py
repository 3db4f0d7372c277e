"""Small models of every architecture, as transformers makes, saves and runs them: goldens of families_golden_test.

    python tests/golden/families.py [--only NAME,NAME…]     data/families.json and data/families.safetensors, one model a family
    python tests/golden/families.py --random N DIR [NAME…]  N models of random geometry a family, with weights, for that test by hand:
                                                            MAINARCH_FAMILIES=DIR build/tests/golden/families_golden_test

A model's configuration and its tensors' names are what `save_pretrained` writes. Its weights follow from the stored names as in
fixtures.py, so that the C++ test makes them again.
"""
import argparse
import json
import math
import pathlib
import random
import shutil
import tempfile

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import fixtures
import formats
import hf

DATA = pathlib.Path(__file__).parent / "data"
TOKENS = 40
GREEDY = 16
POSITIONS = list(range(3, TOKENS, 4))
BASE = dict(vocab_size=112, hidden_size=64, num_hidden_layers=3, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=512, bos_token_id=0, eos_token_id=1, pad_token_id=None, tie_word_embeddings=False)
LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
YARN = dict(rope_type="yarn", rope_theta=1e5, factor=4.0, original_max_position_embeddings=16)
DELTA = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=32, linear_conv_kernel_dim=4)
MROPE = dict(rope_type="default", rope_theta=1e5, partial_rotary_factor=0.25, mrope_section=[2, 1, 1], mrope_interleaved=True)
MOE = dict(num_experts_per_tok=2, moe_intermediate_size=64)


def longrope(half, seed=7):
    u = random.Random(seed)
    return dict(rope_type="longrope", rope_theta=1e4, short_factor=[round(1 + u.random(), 3) for _ in range(half)],
                long_factor=[round(1 + 8 * u.random(), 3) for _ in range(half)])


# What each model of the repository exercises beside its family's own operators.
FAMILIES = {
    "llama": dict(BASE, attention_bias=True, mlp_bias=True, head_dim=32, rope_parameters=LLAMA3),
    "qwen2": dict(BASE, num_hidden_layers=4, use_sliding_window=True, sliding_window=9, max_window_layers=2,
                  rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=3.0)),
    "qwen3": dict(BASE, head_dim=32, attention_bias=True, use_sliding_window=True, sliding_window=11, max_window_layers=1,
                  rope_parameters=dict(YARN, mscale=0.8, mscale_all_dim=0.4)),
    "qwen3_moe": dict(BASE, **MOE, head_dim=32, num_experts=6, norm_topk_prob=True, mlp_only_layers=[1],
                      rope_parameters=dict(rope_type="dynamic", rope_theta=1e4, factor=2.0)),
    "mistral": dict(BASE, sliding_window=10, head_dim=48, num_attention_heads=8, num_key_value_heads=8),
    "ministral": dict(BASE, head_dim=16, sliding_window=13, layer_types=["full_attention", "sliding_attention", "sliding_attention"],
                      rope_parameters=YARN),
    "smollm3": dict(BASE, num_hidden_layers=4, no_rope_layer_interval=2, tie_word_embeddings=True),
    "phi3": dict(BASE, sliding_window=15, partial_rotary_factor=0.75, original_max_position_embeddings=32, num_attention_heads=2,
                 num_key_value_heads=1, rope_parameters=longrope(12)),
    "olmo2": dict(BASE, num_key_value_heads=4, attention_bias=True, rope_parameters=YARN),
    "olmo3": dict(BASE, num_hidden_layers=4, sliding_window=7, num_attention_heads=4, num_key_value_heads=4,
                  rope_scaling=dict(YARN, attention_factor=1.3)),
    "gemma3_text": dict(BASE, num_hidden_layers=6, head_dim=32, sliding_window=9, query_pre_attn_scalar=20, tie_word_embeddings=True,
                        rope_scaling=dict(rope_type="linear", factor=8.0)),
    "granite": dict(BASE, embedding_multiplier=3.0, logits_scaling=2.5, residual_multiplier=0.4, attention_multiplier=0.11),
    "gpt_oss": dict(BASE, head_dim=32, intermediate_size=64, num_local_experts=6, num_experts_per_tok=3, sliding_window=8,
                    rope_parameters=dict(YARN, truncate=False, beta_fast=32.0, beta_slow=1.0)),
    "glm4_moe": dict(BASE, **MOE, n_routed_experts=8, n_shared_experts=2, n_group=4, topk_group=2, routed_scaling_factor=1.7,
                     first_k_dense_replace=1, use_qk_norm=True, attention_bias=True, head_dim=32, num_nextn_predict_layers=0),
    "deepseek_v3": dict(BASE, **MOE, num_key_value_heads=4, q_lora_rank=48, kv_lora_rank=32, qk_nope_head_dim=32, qk_rope_head_dim=16,
                        v_head_dim=48, n_routed_experts=8, n_shared_experts=2, n_group=4, topk_group=2, routed_scaling_factor=1.7,
                        first_k_dense_replace=1, num_nextn_predict_layers=0, rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=0.8)),
    # Windows with sinks and twice the key heads.
    "mimo_v2_flash": dict(BASE, **MOE, num_hidden_layers=4, head_dim=48, v_head_dim=32, num_attention_heads=8, attention_bias=True, n_routed_experts=8,
                          n_group=2, topk_group=1, routed_scaling_factor=1.7, sliding_window=7, attention_value_scale=0.607,
                          layer_types=["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
                          mlp_layer_types=["dense", "sparse", "sparse", "dense"]),
    "minimax_m2": dict(BASE, head_dim=32, num_attention_heads=8, num_key_value_heads=1, num_local_experts=6, num_experts_per_tok=2,
                       intermediate_size=64, partial_rotary_factor=0.5, rope_parameters=dict(rope_type="default", rope_theta=5e6)),
    "qwen2_moe": dict(BASE, **MOE, num_experts=6, shared_expert_intermediate_size=160, mlp_only_layers=[0]),
    "mixtral": dict(BASE, num_local_experts=4, num_experts_per_tok=2),
    "qwen3_next": dict(BASE, **MOE, **DELTA, num_hidden_layers=5, head_dim=32, num_experts=8, shared_expert_intermediate_size=96, mlp_only_layers=[1],
                       full_attention_interval=2),
    "qwen3_5_text": dict(BASE, **DELTA, num_hidden_layers=4, head_dim=64, tie_word_embeddings=True, attention_bias=True,
                         rope_parameters=MROPE),
    "qwen3_5_moe_text": dict(BASE, **MOE, **DELTA, head_dim=32, num_experts=12, shared_expert_intermediate_size=64,
                             layer_types=["linear_attention", "full_attention", "linear_attention"], rope_parameters=MROPE),
}
# Heads that are no multiple of 16: with biases and norms of each, of all together, and of one matrix.
NARROW = {
    "llama_narrow": ("llama", dict(BASE, head_dim=24, attention_bias=True, num_hidden_layers=2, rope_parameters=LLAMA3)),
    "qwen3_narrow": ("qwen3", dict(BASE, head_dim=40, attention_bias=True, num_hidden_layers=2)),
    "olmo2_narrow": ("olmo2", dict(BASE, hidden_size=96, num_hidden_layers=2)),
    "phi3_narrow": ("phi3", dict(BASE, hidden_size=288, num_hidden_layers=2, sliding_window=None, partial_rotary_factor=0.5,
                                 original_max_position_embeddings=32, rope_parameters=longrope(18))),
}
HYBRIDS = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")
# What the models above do not have, and GPUs do in ways of their own.
ON_GPUS = {
    "llama_gpu": ("llama", dict(BASE, head_dim=64, rope_parameters=LLAMA3, intermediate_size=256)),
    "qwen2_gpu": ("qwen2", dict(BASE, hidden_size=128, rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=3.0))),
    "llama_96_gpu": ("llama", dict(BASE, head_dim=96, num_hidden_layers=2, num_attention_heads=8)),
    "llama_bias_gpu": ("llama", dict(BASE, head_dim=32, hidden_size=72, num_hidden_layers=2, attention_bias=True)),
    "granite_gpu": ("granite", dict(FAMILIES["granite"], hidden_size=128, num_hidden_layers=2, attention_bias=True)),
    "mistral_gpu": ("mistral", dict(BASE, head_dim=128, num_attention_heads=2, num_key_value_heads=1, sliding_window=10,
                                    rope_parameters=YARN)),
    # Its window is all that there is, as in Ministral 8B.
    "ministral_gpu": ("ministral", dict(BASE, head_dim=32, sliding_window=512, layer_types=["full_attention", "sliding_attention", "sliding_attention"])),
    "mixtral_gpu": ("mixtral", dict(BASE, hidden_size=128, intermediate_size=256, num_local_experts=4, num_experts_per_tok=2)),
    "qwen2_moe_gpu": ("qwen2_moe", dict(BASE, hidden_size=128, num_experts=20, num_experts_per_tok=10, moe_intermediate_size=32,
                                        shared_expert_intermediate_size=80, num_hidden_layers=2)),
    "glm4_moe_gpu": ("glm4_moe", dict(BASE, hidden_size=128, head_dim=64, moe_intermediate_size=32, n_routed_experts=12, n_shared_experts=1,
                                      num_experts_per_tok=3, n_group=1, topk_group=1, routed_scaling_factor=1.7, norm_topk_prob=True,
                                      first_k_dense_replace=1, use_qk_norm=True, attention_bias=True, num_nextn_predict_layers=0)),
    "gemma3_text_gpu": ("gemma3_text", dict(BASE, num_hidden_layers=2, head_dim=256, num_attention_heads=2, num_key_value_heads=1,
                                            sliding_window=512, layer_types=["sliding_attention", "full_attention"],
                                            query_pre_attn_scalar=20, tie_word_embeddings=True)),
    "deepseek_v3_gpu": ("deepseek_v3", dict(FAMILIES["deepseek_v3"], num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=8,
                                            kv_lora_rank=64, qk_nope_head_dim=16, v_head_dim=32, moe_intermediate_size=32, intermediate_size=128)),
    # Queries of no latent, halves that turn.
    "kimi_gpu": ("deepseek_v3", dict(BASE, **MOE, num_hidden_layers=2, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=128, qk_nope_head_dim=48,
                                     qk_rope_head_dim=32, v_head_dim=32, n_routed_experts=8, n_shared_experts=1, n_group=1, topk_group=1,
                                     first_k_dense_replace=1, rope_interleave=False, num_nextn_predict_layers=0)),
    "mimo_v2_flash_gpu": ("mimo_v2_flash", dict(BASE, hidden_size=128, num_hidden_layers=3, head_dim=192, v_head_dim=128, num_attention_heads=8,
                                                n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, sliding_window=17)),
    "smollm3_gpu": ("smollm3", dict(BASE, hidden_size=128, num_hidden_layers=2, no_rope_layer_interval=2, tie_word_embeddings=True)),
    "phi3_gpu": ("phi3", dict(BASE, hidden_size=128, num_hidden_layers=2, sliding_window=33, partial_rotary_factor=0.75,
                              original_max_position_embeddings=32, rope_parameters=longrope(12))),
}


# gpt-oss as published: its experts in MXFP4. transformers runs what they decode to.
IN_BLOCKS = {"gpt_oss_mxfp4": ("gpt_oss", dict(FAMILIES["gpt_oss"], num_local_experts=4))}


def norm_offset(name):
    return 0.0 if name.startswith("gemma") or name in HYBRIDS else 1.0


def value_of(name, shape, family):
    """The fp32 array of a stored tensor's bf16 values; fixtures.h has the same rule."""
    u = fixtures.uniform(name, math.prod(shape), 0).reshape(shape)
    scale = fixtures.linear_scale(shape[-1])
    offset = 0.0
    if name.endswith("bias"):
        scale = 0.5
    elif name.endswith("sinks"):
        scale = 2.0
    elif name.endswith("A_log"):  # states that last: alpha from a half to nearly one
        offset, scale = -2.0, 1.0
    elif name.endswith("linear_attn.norm.weight"):
        offset, scale = 1.0, 0.25
    elif len(shape) == 1:
        offset, scale = norm_offset(family), 0.25
    elif name.endswith("embed_tokens.weight"):
        scale = 1.0
    elif name.endswith("lm_head.weight"):
        scale *= fixtures.HEAD_GAIN
    elif name.endswith((".gate.weight", ".router.weight", "shared_expert_gate.weight")):
        scale *= 4.0
    return formats.bf16_to_f32(formats.f32_to_bf16(np.float32(offset) + np.float32(scale) * u))


def save(directory, family, config):
    """A checkpoint as transformers saves it, with our values. Returns {name: shape}."""
    config = transformers.CONFIG_MAPPING[family](**config)
    config.dtype = "bfloat16"
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(directory)
    path = pathlib.Path(directory) / "model.safetensors"
    with safe_open(path, "np") as f:
        shapes = {name: f.get_slice(name).get_shape() for name in f.keys()}
    values = {name: value_of(name, shape, family) for name, shape in shapes.items()}
    formats.write_safetensors(path, {n: ("BF16", formats.f32_to_bf16(v)) for n, v in sorted(values.items())})
    return shapes


def block_bytes(name, shape):
    """Codes, or scales from 2^-6 to 2^-3: the first bits of each hash."""
    key = np.uint64(fixtures.fnv1a64(name))
    bits = fixtures.splitmix64(np.arange(math.prod(shape), dtype=np.uint64) + key)
    if name.endswith("_scales"):
        return (121 + (bits >> np.uint64(62))).astype(np.uint8).reshape(shape)
    return (bits >> np.uint64(56)).astype(np.uint8).reshape(shape)


def to_blocks(directory):
    """Replaces the experts' matrices by blocks and scales in a copy, and by what these decode to in the checkpoint itself.

    Returns the copy's {name: (shape, dtype)}.
    """
    path = pathlib.Path(directory) / "model.safetensors"
    with safe_open(path, "np") as f:
        shapes = {name: f.get_slice(name).get_shape() for name in f.keys()}
    decoded, stored = {}, {}
    for name, shape in shapes.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            decoded[name] = value_of(name, shape, "gpt_oss")
            stored[name] = (shape, "BF16")
            continue
        experts, cols, rows = shape  # inputs by outputs
        blocks = block_bytes(name + "_blocks", (experts, rows, cols // 32, 16))
        scales = block_bytes(name + "_scales", (experts, rows, cols // 32))
        flat = formats.mxfp4_decode(blocks.reshape(experts * rows, cols // 2), scales.reshape(experts * rows, cols // 32))
        decoded[name] = flat.reshape(experts, rows, cols).transpose(0, 2, 1)
        stored[name + "_blocks"], stored[name + "_scales"] = (blocks.shape, "U8"), (scales.shape, "U8")
    formats.write_safetensors(path, {n: ("BF16", formats.f32_to_bf16(np.ascontiguousarray(v))) for n, v in sorted(decoded.items())})
    return stored


def run(directory, prompt):
    """Logits of the prompt and a greedy continuation, in fp32."""
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager",
                                                              experts_implementation="eager").eval()
    embedding = model.get_input_embeddings()
    if hasattr(embedding, "embed_scale"):  # rounded as in a model of bf16
        embedding.embed_scale = embedding.embed_scale.to(torch.bfloat16).float()
    logits, _ = hf.forward(model, prompt)
    # Not through transformers' cache: that of a window of 1 keeps all, and that of LongRoPE keys of two kinds.
    ids, rows = [], []
    for _ in range(GREEDY):
        rows.append(hf.forward(model, list(prompt) + ids)[0][-1])
        ids.append(int(rows[-1].argmax()))
    rows = torch.stack(rows)
    return logits.numpy(), np.array(ids), rows.numpy(), hf.margin(rows).numpy()


def golden(directory, family, config, seed, blocks=False):
    shapes = {name: (shape, "BF16") for name, shape in save(directory, family, config).items()}
    if blocks:
        shapes = to_blocks(directory)
    prompt = np.random.default_rng(seed).integers(2, config["vocab_size"], TOKENS)
    logits, ids, rows, margins = run(directory, prompt)
    tensors = {
        "prompt": prompt.astype(np.int32), "positions": np.array(POSITIONS, dtype=np.int32),
        "logits": logits[POSITIONS], "greedy.ids": ids.astype(np.int32), "greedy.logits": rows[::5], "greedy.margins": margins,
    }
    return shapes, tensors


def random_config(family, rng):
    """Another geometry of a family: odd widths, other head counts, other ropes."""
    config = dict(FAMILIES[family])
    kv = rng.choice([1, 2, 3, 4, 8])
    heads = kv * rng.choice([1, 2, 3, 5] if kv < 4 else [1, 2])
    # Heads with a gate are multiples of 16.
    head_dim = rng.choice([16, 32, 48, 64, 80, 128] + ([] if family in HYBRIDS else [24, 40, 72, 120]))
    config.update(num_attention_heads=heads, num_key_value_heads=kv, num_hidden_layers=rng.choice([1, 2, 5, 7]),
                  vocab_size=rng.choice([97, 160, 515]), rms_norm_eps=rng.choice([1e-6, 1e-5, 1e-3]),
                  tie_word_embeddings=rng.random() < 0.4)
    latent = family == "deepseek_v3"
    if latent:
        config.update(num_key_value_heads=heads, hidden_size=heads * rng.choice([8, 24, 56]), q_lora_rank=rng.choice([None, 48, 80]),
                      kv_lora_rank=rng.choice([16, 32, 64, 128]), qk_nope_head_dim=rng.choice([16, 48, 64]), qk_rope_head_dim=rng.choice([16, 32]),
                      v_head_dim=rng.choice([16, 32, 64, 80]), rope_interleave=rng.random() < 0.5)
    derived = family in ("qwen2", "qwen2_moe", "smollm3", "phi3", "olmo2", "olmo3", "granite")
    if latent:
        pass
    elif derived:
        config["hidden_size"] = heads * head_dim
    else:
        config["head_dim"] = head_dim
        config["hidden_size"] = rng.choice([48, 72, 136, 200]) if family not in ("llama", "gemma3_text", "gpt_oss") else heads * rng.choice([8, 24])
    if "intermediate_size" in config:
        config["intermediate_size"] = rng.choice([40, 96, 264, 328])
    if "sliding_window" in config:
        config["sliding_window"] = rng.choice([1, 2, 5, 16, 39, 100])
    if "layer_types" in config:
        config["layer_types"] = [rng.choice(["full_attention", "sliding_attention"]) for _ in range(config["num_hidden_layers"])]
    if "mlp_layer_types" in config:
        config["mlp_layer_types"] = [rng.choice(["dense", "sparse"]) for _ in range(config["num_hidden_layers"])]
    if "v_head_dim" in config and not latent:
        config["v_head_dim"] = rng.choice([16, 24, 64, 80, 128])
        config["num_attention_heads"] = 2 * heads
        config["n_group"], config["topk_group"] = rng.choice([(1, 1), (2, 1), (4, 3), (2, 2)])
        config["attention_value_scale"] = rng.choice([None, 0.3, 1.5])
    if "mlp_only_layers" in config:
        config["mlp_only_layers"] = [i for i in range(config["num_hidden_layers"]) if rng.random() < 0.3]
    if "first_k_dense_replace" in config:
        config["first_k_dense_replace"] = rng.randrange(config["num_hidden_layers"] + 1)
        config["n_group"], config["topk_group"] = rng.choice([(1, 1), (2, 1), (4, 3), (2, 2)])
        if not latent:
            config["use_qk_norm"] = rng.random() < 0.5
        config["norm_topk_prob"] = rng.random() < 0.5
    for key in ("num_experts", "num_local_experts", "n_routed_experts"):
        if key in config:
            config[key] = rng.choice([8, 16, 24])
            config["num_experts_per_tok"] = rng.choice([1, 2, 4])
    if "moe_intermediate_size" in config:
        config["moe_intermediate_size"] = rng.choice([24, 64, 200])
    if family in HYBRIDS:
        keys = rng.choice([1, 2, 4, 8])
        config.update(linear_num_key_heads=keys, linear_num_value_heads=keys * rng.choice([1, 2, 3, 4]),
                      linear_key_head_dim=rng.choice([16, 32, 48, 80]), linear_value_head_dim=rng.choice([16, 32, 64]),
                      linear_conv_kernel_dim=rng.choice([2, 3, 4, 5, 8]))
        config.pop("layer_types", None)
        layers = config["num_hidden_layers"]
        if rng.random() < 0.5:
            config["full_attention_interval"] = rng.randrange(1, layers + 1)
        else:  # transformers wants attention somewhere
            types = ["linear_attention"] * (layers - 1) + ["full_attention"] * rng.randrange(1, layers + 1)
            config["layer_types"] = rng.sample(types, layers) if "full_attention" in types[:layers] else rng.sample(types[-layers:], layers)
    for key in ("attention_bias", "mlp_bias"):
        if key in config:
            config[key] = rng.random() < 0.5
    partial = family in ("phi3", "glm4_moe", "minimax_m2") + HYBRIDS
    if partial:
        config["partial_rotary_factor"] = rng.choice([0.25, 0.5, 1.0])
    if family == "phi3":
        half = int(head_dim * config["partial_rotary_factor"]) // 2
        config["rope_parameters"] = longrope(half, rng.random())
        config["original_max_position_embeddings"] = rng.choice([16, 32, 512])
    elif family == "mimo_v2_flash":
        config["rope_parameters"] = {kind: dict(rope_type="default", rope_theta=theta, partial_rotary_factor=share) for kind, theta, share in
                                     (("full_attention", 3e5, 0.5), ("sliding_attention", 1e4, 0.25))}
    elif family in ("olmo3", "gemma3_text"):
        config["rope_scaling"] = rng.choice([dict(rope_type="linear", factor=2.5), YARN, LLAMA3])
    elif family != "gpt_oss":
        config["rope_parameters"] = dict(rng.choice([
            dict(rope_type="default", rope_theta=1e4), dict(rope_type="linear", rope_theta=3e4, factor=2.5), LLAMA3, YARN,
            dict(YARN, mscale=1.0, mscale_all_dim=0.5, truncate=False), dict(rope_type="dynamic", rope_theta=1e4, factor=4.0)]))
        if partial:
            config["rope_parameters"]["partial_rotary_factor"] = config["partial_rotary_factor"]
    if family == "gemma3_text":
        config["query_pre_attn_scalar"] = rng.choice([16, 24, 256])
    return config


def make_random(directory, count, families):
    for family in families:
        for i in range(count):
            rng = random.Random(f"{family} {i}")
            case = pathlib.Path(directory) / f"{family}-{i}"
            shutil.rmtree(case, ignore_errors=True)
            case.mkdir(parents=True)
            config = random_config(family, rng)
            _, tensors = golden(case, family, config, i)
            save_file(tensors, case / "golden.safetensors")
            print(family, i, {k: v for k, v in config.items() if k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")})


def make_data(only):
    models = {name: (name, config) for name, config in FAMILIES.items()} | NARROW | ON_GPUS | IN_BLOCKS
    index_path, tensors_path = DATA / "families.json", DATA / "families.safetensors"
    index = {one["name"]: one for one in json.loads(index_path.read_text())} if only else {}
    tensors = load_file(tensors_path) if only else {}
    for name, (family, config) in models.items():
        if only and name not in only:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            shapes, own = golden(scratch, family, config, 1, blocks=name in IN_BLOCKS)
            said = json.loads((pathlib.Path(scratch) / "config.json").read_text())
        index[name] = {"name": name, "norm_offset": norm_offset(family), "config": said,
                       "tensors": [[tensor, list(shape)] + ([dtype] if dtype != "BF16" else [])
                                   for tensor, (shape, dtype) in sorted(shapes.items())]}
        tensors = {key: value for key, value in tensors.items() if not key.startswith(name + ".")}
        tensors |= {f"{name}.{key}": value for key, value in own.items()}
    lines = ",\n".join(json.dumps(index[name], separators=(",", ":")) for name in models if name in index)
    index_path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    save_file(tensors, tensors_path)
    tensors_path.chmod(0o644)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--only", help="names, separated by commas: the others stay as they are")
    parser.add_argument("rest", nargs="*")
    args = parser.parse_args()
    hf.deterministic()
    transformers.utils.logging.set_verbosity_error()
    if args.random:
        make_random(args.rest[0], args.random, args.rest[1:] or FAMILIES)
    else:
        make_data(args.only.split(",") if args.only else None)


if __name__ == "__main__":
    main()
