"""Which tokens survive the sampling filters, in two orders: that of transformers and that of vLLM (the library's).

Sets, not samples: a sampler is right if it never draws outside of the set and draws inside by the probabilities.
"""
import numpy as np
import torch
from transformers import (
    MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper,
)

WIDTH = 512  # all rows are padded to this
BORDER = 1e-5  # a cumulative sum closer than this to its threshold decides nothing
FIELDS = ["temperature", "top_k", "top_p", "min_p", "repetition", "presence", "frequency"]
PARAMS = [
    # temperature 0 is greedy; top_k 0, top_p 1, min_p 0, repetition 1, presence 0, frequency 0 are off
    (0.0, 0, 1.0, 0.0, 1.0, 0.0, 0.0), (0.0, 0, 1.0, 0.0, 1.3, 0.0, 0.0), (0.0, 5, 0.9, 0.1, 1.0, 1.5, 0.5),
    (1.0, 0, 1.0, 0.0, 1.0, 0.0, 0.0), (1.0, 1, 1.0, 0.0, 1.0, 0.0, 0.0), (1.0, 5, 1.0, 0.0, 1.0, 0.0, 0.0),
    (1.0, 50, 1.0, 0.0, 1.0, 0.0, 0.0), (1.0, 2000, 1.0, 0.0, 1.0, 0.0, 0.0), (1.0, 0, 0.95, 0.0, 1.0, 0.0, 0.0),
    (1.0, 0, 0.5, 0.0, 1.0, 0.0, 0.0), (1.0, 0, 0.1, 0.0, 1.0, 0.0, 0.0), (1.0, 0, 1e-6, 0.0, 1.0, 0.0, 0.0),
    (1.0, 0, 0.999, 0.0, 1.0, 0.0, 0.0), (1.0, 0, 1.0, 0.05, 1.0, 0.0, 0.0), (1.0, 0, 1.0, 0.5, 1.0, 0.0, 0.0),
    (1.0, 0, 1.0, 1.0, 1.0, 0.0, 0.0), (0.6, 20, 0.95, 0.0, 1.0, 0.0, 0.0), (0.7, 20, 0.8, 0.0, 1.0, 1.5, 0.0),
    (0.3, 0, 0.9, 0.02, 1.0, 0.0, 0.0), (1.7, 40, 0.9, 0.1, 1.0, 0.0, 0.0), (1.0, 0, 0.7, 0.2, 1.0, 0.0, 0.0),
    (1.0, 10, 0.7, 0.01, 1.0, 0.0, 0.0), (1.0, 0, 0.9, 0.0, 1.1, 0.0, 0.0), (1.0, 0, 0.9, 0.0, 0.8, 0.0, 0.0),
    (1.0, 0, 0.9, 0.0, 1.0, 1.0, 0.0), (1.0, 0, 0.9, 0.0, 1.0, 0.0, 0.7), (1.0, 0, 0.9, 0.0, 1.0, -1.0, -0.5),
    (0.8, 30, 0.9, 0.05, 1.2, 0.6, 0.3), (0.01, 0, 0.9, 0.0, 1.0, 0.0, 0.0), (10.0, 0, 0.9, 0.3, 1.0, 0.0, 0.0),
]


def logit_rows():
    """[(name, fp32 logits)]: 32 rows of vocab 64 to 512."""
    r = np.random.default_rng(5)

    def normal(v, std):
        return r.standard_normal(v) * std

    peaked = normal(128, 1.0)
    peaked[77] = 40.0
    two = np.full(100, -20.0)
    two[[3, 96]] = 5.0
    banned = normal(256, 3.0)
    banned[::3] = -np.inf
    rows = [(f"normal{v}-{std}", normal(v, std)) for v in (64, 100, 257, 512) for std in (0.5, 2.0, 6.0)]
    rows += [
        ("flat64", np.zeros(64)), ("flat512", np.full(512, -7.25)), ("flat100-huge", np.full(100, 1e4)),
        ("ties-int", np.round(normal(256, 2.0))), ("ties-half", np.round(normal(512, 1.5) * 2) / 2), ("ties-two-leaders", two),
        ("ties-blocks", np.repeat(np.arange(16), 16) / 4.0), ("ties-zero-signs", np.where(np.arange(64) % 2, 0.0, -0.0)),
        ("peaked", peaked), ("peaked-last", np.append(np.zeros(511), 25.0)), ("peaked-first", np.append(12.0, np.zeros(319))),
        ("extreme", normal(128, 1e4)), ("extreme-1e30", normal(100, 1e30)), ("tiny-differences", 1e3 + normal(320, 1e-3)),
        ("all-negative", -50 + normal(256, 2.0)), ("all-positive", 50 + normal(256, 2.0)), ("ramp", np.arange(512) / 16.0),
        ("ramp-down", -np.arange(300) * 0.1), ("zipf", -1.1 * np.log(1 + np.arange(512))), ("banned", banned),
    ]
    assert len(rows) == 32, len(rows)
    return [(name, np.asarray(x, dtype=np.float32)) for name, x in rows]


def histories(rows):
    """(prompt tokens, output tokens) of each row: the leaders are among them, or penalties would show little; with repeats."""
    r = np.random.default_rng(6)
    out = []
    for _, x in rows:
        order = np.argsort(-x, kind="stable")
        prompt = np.concatenate([order[[1, 4]], r.integers(0, len(x), 6)])
        output = np.concatenate([order[[0, 0, 0, 2, 2, 3]], r.integers(0, len(x), 6)])
        out.append((prompt, output))
    return out


def penalised(x, p, prompt, output):
    """Repetition over prompt and output; then frequency and presence over the output only. All in fp32."""
    x = x.copy()
    seen = np.unique(np.concatenate([prompt, output]))
    rep = np.float32(p["repetition"])
    x[seen] = np.where(x[seen] > 0, x[seen] / rep, x[seen] * rep)
    count = np.bincount(output, minlength=len(x)).astype(np.float32)
    x = x - np.float32(p["frequency"]) * count
    return x - np.float32(p["presence"]) * (count > 0).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum(dtype=x.dtype)


def best(x):
    return np.arange(len(x)) == np.argmax(x)  # the lowest id of equals


class Unclear(Exception):
    """A borderline sum or ratio: correct implementations may differ."""


class TiedNucleus(Exception):
    """The nucleus ends inside a group of equal logits."""


def check_ratio(x, min_p):
    """For min_p: no logit may lie on the threshold (except when it is the maximum itself)."""
    if 0 < min_p < 1:
        distance = np.abs(x.astype(np.float64) - x.max() - np.log(min_p))
        if (distance < 1e-4).any():
            raise Unclear


def vllm_nucleus(x, top_p, strict_ties=False):
    """Drop where the ascending cumulative sum is <= 1 - p; equal logits: the lower id stays longer; the best always stays."""
    order = np.lexsort((-np.arange(len(x)), x))  # ascending; of equal logits the higher id first
    probability = softmax(x)[order]
    exact = np.cumsum(softmax(x.astype(np.float64))[order])
    if (np.abs(exact[:-1] - (1.0 - top_p)) < BORDER).any():
        raise Unclear
    drop = np.cumsum(probability, dtype=x.dtype) <= x.dtype.type(1.0) - x.dtype.type(top_p)
    drop[-1] = False
    kept = np.zeros(len(x), dtype=bool)
    kept[order[~drop]] = True
    if strict_ties and kept.any() and (x[~kept] == x[kept].min()).any():
        raise TiedNucleus
    return kept


def vllm_order(x, p, dtype):
    """Penalties, greedy?, temperature, min_p, top_k, top_p. Returns (kept mask, final logits)."""
    x = x.astype(dtype)
    if p["temperature"] < 1e-5:
        return best(x), np.where(best(x), x, -np.inf).astype(dtype)
    x = x / dtype(p["temperature"])
    if p["min_p"] > 0:
        check_ratio(x, p["min_p"])
        probability = softmax(x)
        x = np.where(probability < dtype(p["min_p"]) * probability.max(), -np.inf, x).astype(dtype)
    if 0 < p["top_k"] < len(x):
        x = np.where(x < np.sort(x)[-p["top_k"]], -np.inf, x).astype(dtype)  # equals of the k-th stay
    kept = x > -np.inf
    if p["top_p"] < 1:
        kept &= vllm_nucleus(x, p["top_p"])
    return kept, np.where(kept, x, -np.inf).astype(dtype)


def hf_order(x, p, raw, prompt, output):
    """transformers' own processors: repetition (frequency and presence it has not: ours), temperature, top_k, top_p, min_p."""
    ids = torch.from_numpy(np.concatenate([prompt, output]).astype(np.int64))[None]
    scores = torch.from_numpy(raw)[None].clone()
    if p["repetition"] != 1:
        scores = RepetitionPenaltyLogitsProcessor(float(p["repetition"]))(ids, scores)
    count = torch.bincount(ids[0, len(prompt):], minlength=len(raw)).float()
    scores = scores - p["frequency"] * count - p["presence"] * (count > 0).float()
    if p["temperature"] < 1e-5:
        return best(scores[0].numpy())
    scores = TemperatureLogitsWarper(float(p["temperature"]))(ids, scores)
    if p["top_k"] > 0:
        scores = TopKLogitsWarper(p["top_k"])(ids, scores)
    if p["top_p"] < 1:
        vllm_nucleus(scores[0].numpy(), p["top_p"], strict_ties=True)  # only to refuse what is unclear
        scores = TopPLogitsWarper(p["top_p"])(ids, scores)
    if p["min_p"] > 0:
        check_ratio(scores[0].numpy(), p["min_p"])
        scores = MinPLogitsWarper(p["min_p"])(ids, scores)
    return (scores[0] > -np.inf).numpy()


def bits(kept):
    """A set as a bit mask, bit i % 8 of byte i / 8."""
    return np.packbits(np.pad(kept, (0, WIDTH - len(kept))), bitorder="little")


def attempt(f, *args):
    """(result or None, why it was left out)."""
    try:
        return f(*args), None
    except Unclear:
        return None, "borderline"
    except TiedNucleus:
        return None, "tied_nucleus"


def golden():
    """(tensors, manifest entry)."""
    rows, cases, left_out = logit_rows(), [], {"hf": {}, "vllm": {}}
    for r, ((_, raw), (prompt, output)) in enumerate(zip(rows, histories(rows))):
        for i, values in enumerate(PARAMS):
            p = dict(zip(FIELDS, values))
            x = penalised(raw, p, prompt, output)
            vllm, why_vllm = attempt(vllm_order, x, p, np.float32)
            exact, _ = attempt(vllm_order, x, p, np.float64)
            if vllm and (exact is None or (exact[0] != vllm[0]).any()):
                vllm, why_vllm = None, "fp32_and_fp64_differ"
            hf, why_hf = attempt(hf_order, x, p, raw, prompt, output)
            for name, why in (("vllm", why_vllm), ("hf", why_hf)):
                if why:
                    left_out[name][why] = left_out[name].get(why, 0) + 1
            top = softmax(vllm[1].astype(np.float64)).max() if vllm else 0.0
            none = np.zeros(WIDTH, dtype=bool)
            cases.append((r, i, vllm is not None, hf is not None, bits(vllm[0] if vllm else none), bits(none if hf is None else hf), top))
    column = list(zip(*cases))
    tensors = {
        "logits": np.stack([np.pad(x, (0, WIDTH - len(x)), constant_values=-np.inf) for _, x in rows]),
        "vocab": np.array([len(x) for _, x in rows], dtype=np.int32),
        "prompt_tokens": np.array([h[0] for h in histories(rows)], dtype=np.int32),
        "output_tokens": np.array([h[1] for h in histories(rows)], dtype=np.int32),
        "params": np.array(PARAMS, dtype=np.float32),
        "case": np.stack(column[:2], axis=1).astype(np.int32),
        "vllm.valid": np.array(column[2], dtype=np.uint8), "hf.valid": np.array(column[3], dtype=np.uint8),
        "vllm.kept": np.stack(column[4]), "hf.kept": np.stack(column[5]), "vllm.top_probability": np.array(column[6], dtype=np.float32),
    }
    both = tensors["vllm.valid"] & tensors["hf.valid"]
    differ = int(((tensors["vllm.kept"] != tensors["hf.kept"]).any(axis=1) & (both == 1)).sum())
    return tensors, {
        "rows": [name for name, _ in rows], "param_fields": FIELDS, "cases": len(cases), "left_out": left_out,
        "cases_where_the_orders_differ": differ,
    }

