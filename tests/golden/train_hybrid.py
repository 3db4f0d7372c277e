"""Train the tiny hybrid Qwen3.5 of tests/golden/trained_hybrid/, and the layer that drafts for it, on the CPU, with fixed seeds.

    nice python tests/golden/train_hybrid.py [--out DIR] [--steps N] [--draft-steps N] [--state FILE]

Same text, tokenizer and chat template as train_tiny.py, which goes first. With --state a run that was cut off goes on where it was.
"""
import argparse
import json
import pathlib
import shutil
import time

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

import corpus
import draft_head
import qwen_bpe
import train_tiny
from train_tiny import CONTEXT, HERE, VOCAB

SEED, DEPTHS = 20260102, 4
MATRIX_PEAK, OTHER_PEAK = 0.02, 4e-3
ARCHITECTURE = dict(
    vocab_size=VOCAB, hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
    head_dim=64, linear_conv_kernel_dim=4, linear_key_head_dim=32, linear_value_head_dim=32, linear_num_key_heads=4,
    linear_num_value_heads=4, hidden_act="silu", rms_norm_eps=1e-6, attention_bias=False, max_position_embeddings=2048,
    tie_word_embeddings=True, initializer_range=0.06, bos_token_id=VOCAB - 5, eos_token_id=VOCAB - 3, pad_token_id=None,
    rope_parameters={"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25},
)
# Keys of released checkpoints that transformers does not write.
RELEASED_KEYS = dict(
    attn_output_gate=True, full_attention_interval=4, mamba_ssm_dtype="float32", mtp_num_hidden_layers=1,
    mtp_use_dedicated_embeddings=False,
)


class Muon(torch.optim.Optimizer):
    """Momentum whose matrix is made orthogonal before it is taken as a step: fewer tokens to the same loss than Adam."""

    def __init__(self, params):
        super().__init__(params, {"lr": 1.0})

    @staticmethod
    def orthogonal(g):
        """The nearest orthogonal matrix, roughly, by five steps of Newton and Schulz's iteration."""
        x = g.T if g.shape[0] > g.shape[1] else g
        x = x / (x.norm() + 1e-7)
        for _ in range(5):
            a = x @ x.T
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        return x.T if g.shape[0] > g.shape[1] else x

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                momentum.lerp_(p.grad, 0.05)
                step = self.orthogonal(p.grad.lerp(momentum, 0.95))
                p.add_(step, alpha=-group["lr"] * max(1.0, p.shape[0] / p.shape[1]) ** 0.5)


def learning_rate(step, steps, peak, warmup=20, falling=0.4):
    """Level, then falling to a fiftieth: up to there a run does not depend on its length, so one that is slow can be made shorter."""
    left = (steps - step) / (falling * steps)
    return peak * min(1.0, (step + 1) / warmup, 0.02 + 0.98 * left)


def optimizers_for(modules):
    """Muon for the matrices between the embedding and the head, Adam for everything else."""
    named = [(n, p) for m in modules for n, p in m.named_parameters()]
    matrices = [p for n, p in named if p.ndim == 2 and min(p.shape) >= 32 and "embed_tokens" not in n]
    chosen = {id(p) for p in matrices}
    others = [p for _, p in named if id(p) not in chosen]
    return Muon(matrices), torch.optim.AdamW(others, lr=1.0, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)


class Training:
    """First the model and one draft a row of every other text, then, with the model as it is, all depths of drafts."""

    def __init__(self, args):
        torch.manual_seed(SEED)
        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        self.args, self.step, self.seconds = args, 0, 0.0
        config = Qwen3_5TextConfig(**ARCHITECTURE)
        self.model, self.head = Qwen3_5ForCausalLM(config), draft_head.DraftHead(config)
        self.phases = [optimizers_for([self.model, self.head]), optimizers_for([self.head])]

    def modules(self):
        return {"model": self.model, "head": self.head, **{f"o{i}{j}": o for i, p in enumerate(self.phases) for j, o in enumerate(p)}}

    def save(self):
        if self.args.state:
            state = {"step": self.step, "seconds": self.seconds, **{n: m.state_dict() for n, m in self.modules().items()}}
            torch.save(state, self.args.state.with_suffix(".new"))
            self.args.state.with_suffix(".new").replace(self.args.state)

    def resume(self):
        if self.args.state and self.args.state.exists():
            state = torch.load(self.args.state)
            self.step, self.seconds = state["step"], state["seconds"]
            for name, module in self.modules().items():
                module.load_state_dict(state[name])

    def losses(self, ids, drafting):
        """(the model's loss, the drafts' losses by depth)."""
        with torch.set_grad_enabled(not drafting):
            hidden = self.model.model(input_ids=ids, use_cache=False).last_hidden_state
            logits = self.model.lm_head(hidden)
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        rows = slice(None) if drafting else slice(0, max(1, len(ids) // 2))
        depths = DEPTHS - 1 if drafting else 1
        return loss, draft_head.draft_loss(self.model, self.head, ids[rows], hidden[rows], logits[rows], depths)

    def one(self, ids):
        steps, drafting = self.args.steps, self.step >= self.args.steps
        at, of = (self.step - steps, self.args.draft_steps) if drafting else (self.step, steps)
        optimizers = self.phases[drafting]
        for optimizer, peak in zip(optimizers, (MATRIX_PEAK, OTHER_PEAK)):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(at, of, peak)
            optimizer.zero_grad(set_to_none=True)
        loss, drafts = self.losses(ids, drafting)
        (drafts.sum() if drafting else loss + drafts.sum()).backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.item(), drafts.tolist()

    def run(self, source):
        self.resume()
        for _ in range(self.step):
            next(source)
        total, running = self.args.steps + self.args.draft_steps, None
        while self.step < total:
            start = time.time()
            loss, drafts = self.one(next(source))
            self.seconds += time.time() - start
            running = loss if running is None else 0.95 * running + 0.05 * loss
            self.step += 1
            if self.step % 10 == 0 or self.step == total:
                shown = " ".join(f"{x:.3f}" for x in drafts)
                print(f"step {self.step} loss {running:.3f} drafts {shown} {self.seconds:.0f} s", flush=True)
            if self.step % 50 == 0 or self.step == total:
                self.save()


def stored(name, tensor):
    """As released files have it: bf16, but for the decay and the norm behind the delta rule."""
    exact = name.endswith(("linear_attn.A_log", "linear_attn.norm.weight"))
    return tensor.detach().to(torch.float32 if exact else torch.bfloat16).contiguous()


def save_checkpoint(model, head, tokenizer, out):
    tensors = {n: t for n, t in model.state_dict().items() if n != "lm_head.weight"}  # tied
    tensors.update({f"mtp.{n}": t for n, t in head.state_dict().items()})
    tensors = {n: stored(n, t) for n, t in sorted(tensors.items())}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    config = json.loads(model.config.to_json_string(use_diff=True))
    config.update(architectures=["Qwen3_5ForCausalLM"], dtype="bfloat16", **RELEASED_KEYS)
    qwen_bpe.write_json(out / "config.json", dict(sorted(config.items())))
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, out / name)


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--out", type=pathlib.Path, default=HERE / "trained_hybrid")
    args.add_argument("--tokenizer", type=pathlib.Path, default=HERE / "trained", help="whose tokenizer")
    args.add_argument("--steps", type=int, default=540)
    args.add_argument("--draft-steps", type=int, default=120)
    args.add_argument("--batch", type=int, default=2)
    args.add_argument("--state", type=pathlib.Path, help="where a run is kept while it goes on")
    args = args.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tok = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    docs, _ = corpus.documents()
    training = Training(args)
    parts = [sum(p.numel() for p in m.parameters()) / 1e6 for m in (training.model, training.head)]
    print(f"{parts[0]:.2f} M parameters, {parts[1]:.2f} M to draft", flush=True)
    training.run(train_tiny.batches(tok, docs, args.batch, np.random.default_rng(SEED)))
    save_checkpoint(training.model, training.head, args.tokenizer, args.out)
    print(f"trained {args.steps} + {args.draft_steps} steps of {args.batch}x{CONTEXT} tokens in {training.seconds:.0f} s")


if __name__ == "__main__":
    main()
