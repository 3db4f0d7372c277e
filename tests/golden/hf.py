"""Hugging Face models on fp32 weights that we hand over ourselves, and what we record of their forward passes."""
import contextlib
import importlib.util

import numpy as np
import torch
import transformers
from transformers.models.llama import modeling_llama
from transformers.models.qwen3 import modeling_qwen3
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_moe import modeling_qwen3_moe

CLASSES = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, modeling_llama),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, modeling_qwen3),
    "qwen3_5_text": (transformers.Qwen3_5TextConfig, transformers.Qwen3_5ForCausalLM, modeling_qwen3_5),
    "qwen3_moe": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM, modeling_qwen3_moe),
}


def deterministic(threads=1):
    for package in ("kernels", "flash_attn", "fla"):
        assert importlib.util.find_spec(package) is None, f"{package} would replace the plain implementation"
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(threads)
    torch.manual_seed(0)


def fuse_experts(weights):
    """Checkpoint names to the names in memory: a layer's experts are stacked, gate rows above up rows."""
    state, experts = {}, {}
    for name, w in weights.items():
        head, found, tail = name.partition(".mlp.experts.")
        if not found:
            state[name] = torch.from_numpy(w)
            continue
        e, projection, _ = tail.split(".")
        experts.setdefault(head, {}).setdefault(projection, {})[int(e)] = torch.from_numpy(w)
    for head, parts in experts.items():
        order = range(len(parts["down_proj"]))
        gate_up = [torch.cat([parts["gate_proj"][e], parts["up_proj"][e]]) for e in order]
        state[head + ".mlp.experts.gate_up_proj"] = torch.stack(gate_up)
        state[head + ".mlp.experts.down_proj"] = torch.stack([parts["down_proj"][e] for e in order])
    return state


def build(cfg, weights, dtype=torch.float32):
    """The model class on our weights; strict, so that nothing is left at its random start."""
    config_class, model_class, _ = CLASSES[cfg["model_type"]]
    keys = {k: v for k, v in cfg.items() if k not in ("torch_dtype", "dtype", "architectures", "quantization_config")}
    config = config_class(**keys, attn_implementation="eager")
    config._experts_implementation = "eager"
    model = model_class(config)
    state = fuse_experts(weights)
    if cfg["tie_word_embeddings"]:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    assert model.config._attn_implementation == "eager" and model.config._experts_implementation == "eager"
    rope = model.model.rotary_emb.inv_freq.clone()  # .to(bf16) would round it; released code keeps it in fp32
    model = model.to(dtype).eval()
    model.model.rotary_emb.inv_freq = rope
    return model


class Recorder:
    """Hooks for one forward pass: every decoder layer's output, q and k of every layer after RoPE, every router's choice."""

    def __init__(self, model):
        self.model, self.layers, self.qk, self.routers = model, {}, [], {}

    @contextlib.contextmanager
    def recording(self):
        self.layers, self.qk, self.routers = {}, [], {}
        handles = []
        for i, layer in enumerate(self.model.model.layers):
            handles.append(layer.register_forward_hook(lambda _m, _a, out, i=i: self.layers.__setitem__(i, first(out)[0].clone())))
            if hasattr(layer.mlp, "gate"):
                handles.append(layer.mlp.gate.register_forward_hook(lambda _m, _a, out, i=i: self.routers.__setitem__(i, out)))
        module = CLASSES[self.model.config.model_type][2]
        original = module.apply_rotary_pos_emb

        def rotate(*args, **kwargs):
            q, k = original(*args, **kwargs)
            self.qk.append((q[0].transpose(0, 1).clone(), k[0].transpose(0, 1).clone()))  # [T, heads, head_dim]
            return q, k

        module.apply_rotary_pos_emb = rotate
        try:
            yield self
        finally:
            module.apply_rotary_pos_emb = original
            for handle in handles:
                handle.remove()


def first(out):
    return out[0] if isinstance(out, tuple) else out


@torch.no_grad()
def forward(model, ids, cache=None):
    """Logits [T, V] in fp32, and the cache after these tokens."""
    out = model(input_ids=torch.tensor([list(map(int, ids))]), past_key_values=cache, use_cache=True)
    return out.logits[0].float(), out.past_key_values


def margin(logits):
    """Distance between the best and the second best logit of each row."""
    top = torch.topk(logits, 2, dim=-1).values
    return top[..., 0] - top[..., 1]


def router_gap(routers, top_k):
    """Smallest distance between the k-th and the next probability (and logit) over all layers and rows."""
    gaps = [(1.0, 1e9)]
    for logits, _weights, _ids in routers.values():
        logits = logits.float().reshape(-1, logits.shape[-1])
        p = torch.topk(torch.softmax(logits, dim=-1), top_k + 1, dim=-1).values
        x = torch.topk(logits, top_k + 1, dim=-1).values
        gaps.append(((p[:, -2] - p[:, -1]).min().item(), (x[:, -2] - x[:, -1]).min().item()))
    return tuple(min(g) for g in zip(*gaps))


def greedy(model, prompt, steps, recorder=None, stop=None):
    """Greedy continuation through the cache.

    Returns ids [steps], logits [steps, V], margins [steps] and the smallest router gap. `stop(margins, gap)` may end it early (None).
    """
    ids, rows, gap, cache, feed = [], [], (1.0, 1e9), None, prompt
    for _ in range(steps):
        with recorder.recording() if recorder else contextlib.nullcontext():
            logits, cache = forward(model, feed, cache)
        if recorder and recorder.routers:
            gap = tuple(map(min, gap, router_gap(recorder.routers, model.config.num_experts_per_tok)))
        rows.append(logits[-1])
        if stop and stop(margin(rows[-1]).item(), gap[0]):
            return None
        ids.append(int(logits[-1].argmax()))  # the lowest id of equals
        feed = [ids[-1]]
    rows = torch.stack(rows)
    return ids, rows, margin(rows), gap


def split_prefill(model, prompt, sizes):
    """Logits of a prompt that is fed in pieces."""
    parts, cache, at = [], None, 0
    for size in sizes:
        logits, cache = forward(model, prompt[at:at + size], cache)
        parts.append(logits)
        at += size
    assert at == len(prompt)
    return torch.cat(parts)


def as_i32(x):
    return np.asarray(x, dtype=np.int32)
