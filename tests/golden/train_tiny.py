"""Train the tiny Qwen3-MoE of tests/golden/trained/ from nothing, on the CPU, with fixed seeds.

    nice python tests/golden/train_tiny.py [--out DIR] [--steps N]

Needs the Debian packages that corpus.py names. Writes the checkpoint as bf16 under the usual checkpoint names.
"""
import argparse
import math
import pathlib
import re
import time

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

import corpus
import qwen_bpe

HERE = pathlib.Path(__file__).resolve().parent
VOCAB, CONTEXT = 2048, 512
ARCHITECTURE = dict(
    vocab_size=VOCAB, hidden_size=128, intermediate_size=384, num_hidden_layers=5, num_attention_heads=8, num_key_value_heads=4,
    head_dim=32, num_experts=16, num_experts_per_tok=4, moe_intermediate_size=128, norm_topk_prob=True, decoder_sparse_step=1,
    mlp_only_layers=[], hidden_act="silu", rms_norm_eps=1e-6, attention_bias=False, max_position_embeddings=2048,
    tie_word_embeddings=True, initializer_range=0.06, router_aux_loss_coef=0.01,
)


# ChatML with Qwen3's thinking switch; our own words.
CHAT_TEMPLATE = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}")


def model_config():
    return Qwen3MoeConfig(**ARCHITECTURE, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})


def checkpoint_config():
    """config.json as released Qwen3-MoE checkpoints have it (the flat, older keys)."""
    return {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", **ARCHITECTURE, "rope_theta": 1000000.0,
        "rope_scaling": None, "use_sliding_window": False, "sliding_window": None, "bos_token_id": VOCAB - 5,
        "eos_token_id": VOCAB - 3, "torch_dtype": "bfloat16", "use_cache": True,
    }


def split_experts(state):
    """transformers holds a layer's experts as two stacked tensors; files hold one 2-D tensor for each projection."""
    out = {}
    for name, t in state.items():
        if name.endswith(".mlp.experts.gate_up_proj"):
            for e, gate_up in enumerate(t):
                gate, up = gate_up.chunk(2, dim=0)
                base = name.removesuffix("gate_up_proj")
                out[f"{base}{e}.gate_proj.weight"], out[f"{base}{e}.up_proj.weight"] = gate, up
        elif name.endswith(".mlp.experts.down_proj"):
            for e, down in enumerate(t):
                out[f"{name.removesuffix('down_proj')}{e}.down_proj.weight"] = down
        elif name != "lm_head.weight":  # tied
            out[name] = t
    return out


def learning_rate(step, steps, peak, warmup=60):
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))))


def token_stream(tok, docs, rng):
    """All documents in a fresh random order, one after the other."""
    ids = [tok.encode(docs[i]).ids for i in rng.permutation(len(docs))]
    return np.concatenate([np.asarray(d, dtype=np.int64) for d in ids])


def batches(tok, docs, batch, rng):
    while True:
        ids = token_stream(tok, docs, rng)
        windows = ids[: len(ids) // CONTEXT * CONTEXT].reshape(-1, CONTEXT)
        windows = windows[rng.permutation(len(windows))]
        for i in range(0, len(windows) - batch + 1, batch):
            yield torch.from_numpy(windows[i:i + batch])


def optimizer_for(model):
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1.0, betas=(0.9, 0.95), eps=1e-8)


def train(tok, docs, steps, batch, peak):
    torch.manual_seed(20260101)
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    model = Qwen3MoeForCausalLM(model_config())
    model.config.output_router_logits = True  # adds the load-balancing loss
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters", flush=True)
    opt = optimizer_for(model)
    source = batches(tok, docs, batch, np.random.default_rng(20260101))
    start, running = time.time(), None
    for step in range(steps):
        for group in opt.param_groups:
            group["lr"] = learning_rate(step, steps, peak)
        ids = next(source)
        out = model(input_ids=ids, labels=ids, use_cache=False)
        opt.zero_grad(set_to_none=True)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        loss = out.loss.item() - model.config.router_aux_loss_coef * out.aux_loss.item()
        running = loss if running is None else 0.95 * running + 0.05 * loss
        if step % 20 == 0 or step == steps - 1:
            print(f"step {step} loss {running:.3f} aux {out.aux_loss.item():.3f} {time.time() - start:.0f} s", flush=True)
    return model, time.time() - start


def save_checkpoint(model, tok_file, out):
    tensors = {n: t.detach().to(torch.bfloat16).contiguous() for n, t in split_experts(model.state_dict()).items()}
    save_file(dict(sorted(tensors.items())), out / "model.safetensors", metadata={"format": "pt"})
    qwen_bpe.write_json(out / "config.json", checkpoint_config())
    qwen_bpe.write_json(out / "generation_config.json", {
        "bos_token_id": VOCAB - 5, "do_sample": True, "eos_token_id": [VOCAB - 3, VOCAB - 5], "pad_token_id": VOCAB - 5,
        "temperature": 0.6, "top_k": 20, "top_p": 0.95,
    })
    tokenizer_config = qwen_bpe.tokenizer_config(2048, first_added_id=VOCAB - 5)
    tokenizer_config["chat_template"] = CHAT_TEMPLATE
    qwen_bpe.write_json(out / "tokenizer_config.json", tokenizer_config)


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--out", type=pathlib.Path, default=HERE / "trained")
    args.add_argument("--steps", type=int, default=1500)
    args.add_argument("--batch", type=int, default=8)
    args.add_argument("--peak", type=float, default=4e-3)
    args = args.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    docs, held_out = corpus.documents()
    (args.out / "heldout.txt").write_text(held_out, encoding="utf-8")
    added = re.compile("|".join(re.escape(text) for text, _ in qwen_bpe.CHAT_TOKENS))
    plain = [piece for d in docs for piece in added.split(d) if piece]  # merges need not learn the added tokens
    tok = qwen_bpe.save(qwen_bpe.train(plain, VOCAB), args.out / "tokenizer.json", merges="strings")
    total = sum(len(tok.encode(d).ids) for d in docs)
    print(f"{len(docs)} documents, {total} tokens, held out {len(tok.encode(held_out).ids)}", flush=True)

    model, seconds = train(tok, docs, args.steps, args.batch, args.peak)
    save_checkpoint(model, tok, args.out)
    print(f"trained {args.steps} steps of {args.batch}x{CONTEXT} tokens in {seconds:.0f} s")


if __name__ == "__main__":
    main()
