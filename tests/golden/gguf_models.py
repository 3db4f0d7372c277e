# SPDX-License-Identifier: MIT
"""data/gguf/<arch>.gguf, small random models as the `gguf` package writes them, and data/gguf/models.safetensors, what transformers
says about the same (dequantised) weights: <arch>.tokens I32 [12], <arch>.logits F32 [12, vocab].

  venv/bin/pip install -r tests/golden/requirements.txt gguf==0.19.0
  venv/bin/python tests/golden/gguf_models.py

Names come from the package's own tables; what converters change of the values (pairs of rows, norms with 1 added, experts stacked) is
done here. Matrices are Q8_0, of gemma3 Q4_0, vectors F32."""
import math
import pathlib

import gguf
import numpy as np
import torch
import transformers

from gguf_goldens import write_safetensors

OUT = pathlib.Path(__file__).parent / "data/gguf"
BASE = dict(vocab_size=64, hidden_size=64, num_hidden_layers=1, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=128, bos_token_id=0, eos_token_id=1, pad_token_id=None, tie_word_embeddings=False, rms_norm_eps=1e-5)
LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
MOE = dict(num_experts_per_tok=2, moe_intermediate_size=32)
MODELS = {
    "llama": ("LlamaForCausalLM", dict(BASE, attention_bias=True, rope_parameters=LLAMA3)),
    "mixtral": ("MixtralForCausalLM", dict(BASE, num_local_experts=4, num_experts_per_tok=2, sliding_window=None)),
    "granite": ("GraniteForCausalLM", dict(BASE, embedding_multiplier=3.0, logits_scaling=2.5, residual_multiplier=0.4,
                                           attention_multiplier=0.11)),
    "qwen2": ("Qwen2ForCausalLM", dict(BASE, tie_word_embeddings=True)),
    "qwen2moe": ("Qwen2MoeForCausalLM", dict(BASE, **MOE, num_experts=4, shared_expert_intermediate_size=96, norm_topk_prob=False,
                                             mlp_only_layers=[])),
    "qwen3": ("Qwen3ForCausalLM", dict(BASE, head_dim=32)),
    "qwen3moe": ("Qwen3MoeForCausalLM", dict(BASE, **MOE, head_dim=32, num_experts=4, norm_topk_prob=True, mlp_only_layers=[])),
    "gemma3": ("Gemma3ForCausalLM", dict(BASE, num_hidden_layers=6, head_dim=32, sliding_window=5, query_pre_attn_scalar=32,
                                         tie_word_embeddings=True)),
    # (Of a range beyond the original one, transformers takes the long factors of long sequences alone, this library of all.)
    "phi3": ("Phi3ForCausalLM", dict(BASE, sliding_window=None, original_max_position_embeddings=128, partial_rotary_factor=0.5,
                                     rope_parameters=dict(rope_type="longrope", rope_theta=1e4,
                                                          short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.5, 2.0, 3.0, 4.0]))),
    "smollm3": ("SmolLM3ForCausalLM", dict(BASE, num_hidden_layers=4, no_rope_layer_interval=4)),
    "olmo2": ("Olmo2ForCausalLM", dict(BASE, num_hidden_layers=2)),
    "olmo3": ("Olmo3ForCausalLM", dict(BASE, num_hidden_layers=4, sliding_window=5, rope_theta=5e5,
                                       layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"])),
    "gpt-oss": ("GptOssForCausalLM", dict(BASE, num_hidden_layers=2, head_dim=16, intermediate_size=32, num_local_experts=4,
                                          num_experts_per_tok=2, sliding_window=5,
                                          rope_parameters=dict(rope_type="yarn", rope_theta=1.5e5, factor=4.0, beta_fast=32.0, beta_slow=1.0,
                                                               truncate=False, original_max_position_embeddings=32))),
    "glm4moe": ("Glm4MoeForCausalLM", dict(BASE, **MOE, num_hidden_layers=2, head_dim=32, n_routed_experts=4, n_shared_experts=1, n_group=1,
                                           topk_group=1, routed_scaling_factor=1.5, first_k_dense_replace=1, use_qk_norm=True,
                                           attention_bias=True, norm_topk_prob=True, partial_rotary_factor=0.5)),
    "minimax-m2": ("MiniMaxM2ForCausalLM", dict(BASE, head_dim=32, num_local_experts=4, num_experts_per_tok=2, intermediate_size=32,
                                                rope_parameters=dict(rope_type="default", rope_theta=5e6, partial_rotary_factor=0.5))),
    "deepseek2": ("DeepseekV3ForCausalLM", dict(BASE, **MOE, num_hidden_layers=2, num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=32,
                                                qk_nope_head_dim=32, qk_rope_head_dim=16, v_head_dim=32, n_routed_experts=8, n_shared_experts=1,
                                                n_group=1, topk_group=1, routed_scaling_factor=1.5, first_k_dense_replace=1,
                                                rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=4.0, mscale=1.0, mscale_all_dim=1.0,
                                                                     beta_fast=32.0, beta_slow=1.0, original_max_position_embeddings=32))),
}
PAIRED = {"llama", "mixtral", "granite", "smollm3"}
ARCHS = {"mixtral": "llama", "olmo3": "olmo2"}  # where they are called otherwise


def in_pairs(w, heads):
    """Of each head the rows of its halves take turns."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def stored(name, cfg, w):
    """A tensor of transformers as {name that the package's tables know: array}."""
    heads, kv = cfg.num_attention_heads, cfg.num_key_value_heads
    base, _, kind = name.rpartition(".")
    if cfg.model_type == "gpt_oss" and ".experts." in name:
        if kind == "gate_up_proj":
            return {base + ".gate_proj.weight": w.swapaxes(1, 2)[:, ::2], base + ".up_proj.weight": w.swapaxes(1, 2)[:, 1::2]}
        if kind == "down_proj":
            return {base + ".down_proj.weight": w.swapaxes(1, 2)}
        if kind == "gate_up_proj_bias":
            return {base + ".gate_proj.bias": w[:, ::2], base + ".up_proj.bias": w[:, 1::2]}
        return {base + ".down_proj.bias": w}
    if name.endswith("kv_b_proj.weight"):
        both = w.reshape(heads, cfg.qk_nope_head_dim + cfg.v_head_dim, -1)
        return {base[:-9] + "k_b_proj.weight": both[:, :cfg.qk_nope_head_dim].swapaxes(1, 2), base[:-9] + "v_b_proj.weight": both[:, cfg.qk_nope_head_dim:]}
    if name.endswith("sinks"):
        return {name + ".weight": w}
    if name.endswith("e_score_correction_bias"):
        return {name.replace("_bias", ".bias"): w}
    if name.endswith("experts.gate_up_proj"):
        half = w.shape[1] // 2
        return {base + ".gate_proj.weight": w[:, :half], base + ".up_proj.weight": w[:, half:]}
    if name.endswith("experts.down_proj"):
        return {base + ".down_proj.weight": w}
    if cfg.model_type in PAIRED and base.endswith("q_proj"):
        return {name: in_pairs(w, heads)}
    if cfg.model_type in PAIRED and base.endswith("k_proj"):
        return {name: in_pairs(w, kv)}
    if cfg.model_type == "gemma3_text" and name.endswith("norm.weight"):
        return {name: w + 1}
    return {name: w}


def rounded(w, kind):
    """What the quantised tensor holds."""
    w = np.ascontiguousarray(w, dtype=np.float32)
    if w.ndim < 2:
        return w
    return gguf.dequantize(gguf.quantize(w, kind), kind).reshape(w.shape).astype(np.float32)


def write_keys(writer, cfg, arch):
    writer.add_context_length(cfg.max_position_embeddings)
    writer.add_embedding_length(cfg.hidden_size)
    writer.add_block_count(cfg.num_hidden_layers)
    writer.add_feed_forward_length(cfg.intermediate_size)
    writer.add_head_count(cfg.num_attention_heads)
    writer.add_head_count_kv(1 if arch == "deepseek2" else cfg.num_key_value_heads)
    writer.add_layer_norm_rms_eps(cfg.rms_norm_eps)
    if arch == "deepseek2":
        writer.add_q_lora_rank(cfg.q_lora_rank)
        writer.add_kv_lora_rank(cfg.kv_lora_rank)
        writer.add_key_length(cfg.kv_lora_rank + cfg.qk_rope_head_dim)
        writer.add_value_length(cfg.kv_lora_rank)
        writer.add_key_length_mla(cfg.qk_nope_head_dim + cfg.qk_rope_head_dim)
        writer.add_value_length_mla(cfg.v_head_dim)
        writer.add_rope_dimension_count(cfg.qk_rope_head_dim)
        writer.add_expert_group_count(cfg.n_group)
        writer.add_expert_group_used_count(cfg.topk_group)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_rope_scaling_yarn_log_mul(0.1 * cfg.rope_parameters["mscale_all_dim"])
    head_dim = getattr(cfg, "head_dim", None) or cfg.hidden_size // cfg.num_attention_heads
    parameters = cfg.rope_parameters
    if "full_attention" in parameters:
        parameters = parameters["full_attention"]
    writer.add_rope_freq_base(parameters["rope_theta"])
    if arch in ("qwen3", "qwen3moe", "gemma3", "gpt-oss", "glm4moe", "minimax-m2"):
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if arch == "phi3":
        writer.add_rope_dimension_count(int(head_dim * cfg.rope_parameters["partial_rotary_factor"]))
        writer.add_rope_scaling_orig_ctx_len(cfg.original_max_position_embeddings)
        for name in ("long", "short"):
            writer.add_tensor(f"rope_factors_{name}.weight", np.array(parameters[f"{name}_factor"], dtype=np.float32))
    if arch in ("glm4moe", "minimax-m2"):
        writer.add_rope_dimension_count(int(head_dim * parameters["partial_rotary_factor"]))
    if arch in ("gemma3", "gpt-oss") or cfg.model_type == "olmo3":
        writer.add_sliding_window(cfg.sliding_window)
    if cfg.model_type == "olmo3":
        writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in cfg.layer_types])
    if arch in ("gpt-oss", "deepseek2"):
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(parameters["factor"])
        writer.add_rope_scaling_orig_ctx_len(parameters["original_max_position_embeddings"])
    if arch in ("gpt-oss", "minimax-m2"):
        writer.add_expert_feed_forward_length(cfg.intermediate_size)
    if arch in ("glm4moe", "deepseek2"):
        writer.add_leading_dense_block_count(cfg.first_k_dense_replace)
        writer.add_expert_shared_count(cfg.n_shared_experts)
        writer.add_expert_weights_scale(cfg.routed_scaling_factor)
        writer.add_expert_weights_norm(cfg.norm_topk_prob)
    experts = getattr(cfg, "num_experts", None) or getattr(cfg, "num_local_experts", None) or getattr(cfg, "n_routed_experts", None)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(cfg.num_experts_per_tok)
        if hasattr(cfg, "moe_intermediate_size"):
            writer.add_expert_feed_forward_length(cfg.moe_intermediate_size)
    if arch == "qwen2moe":
        writer.add_expert_shared_feed_forward_length(cfg.shared_expert_intermediate_size)
    if arch == "granite":
        writer.add_attention_scale(cfg.attention_multiplier)
        writer.add_embedding_scale(cfg.embedding_multiplier)
        writer.add_residual_scale(cfg.residual_multiplier)
        writer.add_logit_scale(cfg.logits_scaling)
    if parameters.get("rope_type") == "llama3":
        turns = parameters["original_max_position_embeddings"] * parameters["rope_theta"] ** (-np.arange(0, head_dim, 2) / head_dim)
        smooth = np.clip((turns / (2 * math.pi) - 1) / 3, 0, 1)
        writer.add_tensor("rope_freqs.weight", (1 / ((1 - smooth) / parameters["factor"] + smooth)).astype(np.float32))
    writer.add_eos_token_id(1)


def make(name, class_name, fields, goldens):
    torch.manual_seed(len(name) * 7 + 1)
    model_class = getattr(transformers, class_name)
    cfg = model_class.config_class(**fields, attn_implementation="eager")
    model = model_class(cfg).eval()
    arch = ARCHS.get(name, name)
    kind = gguf.GGMLQuantizationType.Q4_0 if name == "gemma3" else gguf.GGMLQuantizationType.Q8_0
    writer = gguf.GGUFWriter(str(OUT / f"{name}.gguf"), arch)
    write_keys(writer, cfg, arch)
    ids = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(ids[arch], cfg.num_hidden_layers)
    state = model.state_dict()
    with torch.no_grad():
        for key, tensor in state.items():
            if key == "lm_head.weight" and cfg.tie_word_embeddings:
                continue
            scale = 0.3 if tensor.ndim > 1 else 0.2
            values = torch.randn_like(tensor) * scale + (0 if tensor.ndim > 1 or cfg.model_type == "gemma3_text" or key.endswith("bias") else 1)
            turned = cfg.model_type == "gpt_oss" and key.endswith(("gate_up_proj", "experts.down_proj"))
            tensor.copy_(torch.from_numpy(rounded(values.mT.numpy(), kind)).mT if turned else torch.from_numpy(rounded(values.numpy(), kind)))
            for part, w in stored(key, cfg, tensor.numpy()).items():
                to = names.get_name(part, try_suffixes=(".weight", ".bias"))
                assert to is not None, part
                if w.ndim < 2 or to.endswith("bias") or "attn_k_b" in to or "attn_v_b" in to:
                    writer.add_tensor(to, np.ascontiguousarray(w, dtype=np.float32))
                else:
                    data = gguf.quantize(np.ascontiguousarray(w, dtype=np.float32), kind)
                    assert np.array_equal(gguf.dequantize(data, kind).reshape(w.shape), w), part
                    writer.add_tensor(to, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    tokens = (np.arange(12) * 19 + 5) % cfg.vocab_size
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)[None]).logits[0]
    goldens[name + ".tokens"] = tokens.astype(np.int32)
    goldens[name + ".logits"] = logits.numpy().astype(np.float32)


def main():
    torch.set_num_threads(1)
    OUT.mkdir(exist_ok=True)
    goldens = {}
    for name, (class_name, fields) in MODELS.items():
        make(name, class_name, fields, goldens)
        print(name)
    write_safetensors(OUT / "models.safetensors", goldens)


if __name__ == "__main__":
    main()
