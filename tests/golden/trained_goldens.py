"""Goldens of the trained checkpoint: held-out perplexity, the last prefill rows of a few prompts, greedy continuations."""
import json

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer

import hf

WINDOW, STEPS, LAST = 512, 48, 8
# Chosen so that no greedy step is a close call; 2 is a chat with thinking off, 3 with thinking on.
PROMPTS = [
    "In the beginning",
    "Ruth 4\n\nThen went Boaz up to the gate,",
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nRead me a verse from Proverbs.<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n",
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nRead me a verse from Psalm.<|im_end|>\n"
    "<|im_start|>assistant\n",
]
MARGIN, GAP = 0.02, 1e-3


def check_loading(directory, model, ids):
    """transformers' own loader must give the same model from these files."""
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"], info
    assert torch.equal(hf.forward(loaded.eval(), ids)[0], hf.forward(model, ids)[0])


def load(directory, dtype=torch.float32):
    """The bf16 file upcast to fp32 (or as bf16), through our own name map."""
    cfg = json.loads((directory / "config.json").read_text())
    tensors = load_file(directory / "model.safetensors")
    weights = {n: t.float().numpy() for n, t in tensors.items() if not n.startswith("mtp.")}
    return hf.build(cfg, weights, dtype)


@torch.no_grad()
def perplexity(model, ids):
    """Teacher-forced in windows that do not overlap; the first token of a window is not predicted."""
    nll, count = 0.0, 0
    for at in range(0, len(ids), WINDOW):
        window = ids[at:at + WINDOW]
        if len(window) < 2:
            break
        logits, _ = hf.forward(model, window)
        logp = torch.log_softmax(logits[:-1].double(), dim=-1)
        nll -= logp.gather(1, torch.tensor(window[1:])[:, None]).sum().item()
        count += len(window) - 1
    return {"window": WINDOW, "tokens": len(ids), "predicted": count, "nll_sum": nll, "ppl": float(np.exp(nll / count))}


def golden(directory, heldout=None, prompts=PROMPTS):
    """(tensors, manifest entry). heldout: where heldout.txt is, if not in `directory`."""
    model, low = load(directory), load(directory, torch.bfloat16)
    tok = Tokenizer.from_file(str(directory / "tokenizer.json"))
    held_out = tok.encode(((heldout or directory) / "heldout.txt").read_text(encoding="utf-8"), add_special_tokens=False).ids
    check_loading(directory, model, held_out[:WINDOW])
    t = {"heldout.ids": hf.as_i32(held_out)}
    entry = {"heldout": perplexity(model, held_out), "heldout_hf_bf16": perplexity(low, held_out), "prompts": []}
    recorder, top_k = hf.Recorder(model), getattr(model.config, "num_experts_per_tok", None)
    for i, text in enumerate(prompts):
        prompt = tok.encode(text, add_special_tokens=False).ids
        with recorder.recording():
            logits, _ = hf.forward(model, prompt)
        prefill_gap = hf.router_gap(recorder.routers, top_k)
        rows = np.arange(max(0, len(prompt) - LAST), len(prompt))
        t[f"p{i}.prompt"], t[f"p{i}.positions"], t[f"p{i}.logits"] = hf.as_i32(prompt), hf.as_i32(rows), logits[rows].numpy()
        for layer, out in recorder.layers.items():
            t[f"p{i}.layers.{layer}"] = out[rows].numpy()
        ids, steps, margin, gap = hf.greedy(model, prompt, STEPS, recorder)
        top = torch.topk(steps, 5, dim=-1)
        t[f"p{i}.greedy.ids"], t[f"p{i}.greedy.margin"] = hf.as_i32(ids), margin.numpy()
        t[f"p{i}.greedy.top5_ids"], t[f"p{i}.greedy.top5_logits"] = hf.as_i32(top.indices.numpy()), top.values.numpy()
        assert margin.min() > MARGIN and min(prefill_gap[1], gap[1]) > GAP, (text, margin.min(), prefill_gap, gap)
        low_logits, _ = hf.forward(low, prompt)
        delta = (low_logits - logits).abs()
        entry["prompts"].append({
            "text": text, "greedy_text": tok.decode(ids, skip_special_tokens=False), "min_argmax_margin": margin.min().item(),
            **({"min_router_probability_gap": min(prefill_gap[0], gap[0]), "min_router_logit_gap": min(prefill_gap[1], gap[1])}
               if top_k else {}),
            "hf_bf16": {
                "top1_agreement": (low_logits.argmax(-1) == logits.argmax(-1)).float().mean().item(),
                "max_abs_delta": delta.max().item(), "mean_abs_delta": delta.mean().item(),
            },
        })
    return {k: np.ascontiguousarray(v) for k, v in t.items()}, entry
