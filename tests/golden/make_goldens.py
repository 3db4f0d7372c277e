"""Make everything under tests/golden/data/ again. Takes a few minutes.

    python tests/golden/make_goldens.py [--only models,trained,trained_hybrid,sampler,tokenizer] [--fixtures L3]
"""
import argparse
import hashlib
import json
import pathlib
import platform
import tempfile
import time

import numpy
import safetensors
import safetensors.numpy
import tokenizers
import torch
import transformers
import xxhash

import fixtures
import hf
import model_goldens

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE / "data"
VERSIONS = {
    "python": platform.python_version(), "numpy": numpy.__version__, "safetensors": safetensors.__version__,
    "tokenizers": tokenizers.__version__, "torch": torch.__version__, "transformers": transformers.__version__,
    "xxhash": xxhash.VERSION,
}


def write_json(path, tree):
    path.write_text(json.dumps(tree, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path, default):
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else default


def checkpoint_hashes():
    """Every tensor of every variant that the C++ generator can make: at the seeds of the goldens, and at seed 0."""
    out = []
    seeds = model_goldens.WEIGHT_SEED
    cases = [(f, v, seeds[f]) for f, v in model_goldens.CASES] + [("T1", "f32", seeds["T1"]), ("T1", "f16", seeds["T1"])]
    cases += [(f, "bf16", 0) for f in fixtures.CONFIGS]
    for fixture, variant, seed in cases:
        tensors = {
            name: [dtype, list(a.shape), f"{xxhash.xxh64(numpy.ascontiguousarray(a).tobytes(), seed=0).intdigest():016x}"]
            for name, (dtype, a) in fixtures.stored_tensors(fixture, variant, seed).items()
        }
        out.append({"fixture": fixture, "variant": variant, "seed": seed, "tensors": tensors})
    return out


def write_checkpoints_json():
    """One line for each tensor: compact, and a diff stays readable."""
    blocks = []
    for case in checkpoint_hashes():
        head = json.dumps({k: case[k] for k in ("fixture", "variant", "seed")})[:-1]
        lines = ",\n".join(f"  {json.dumps(n)}: {json.dumps(t)}" for n, t in case["tensors"].items())
        blocks.append(f' {head}, "tensors": {{\n{lines}\n }}}}')
    (DATA / "checkpoints.json").write_text("[\n" + ",\n".join(blocks) + "\n]\n", encoding="utf-8")


def make_models(manifest, only):
    hf.deterministic()
    write_checkpoints_json()
    configs = manifest.setdefault("configs", {})
    configs.update({name: cfg for name, cfg in fixtures.CONFIGS.items() if not only or name in only})
    manifest["head_gain"] = fixtures.HEAD_GAIN
    entries = manifest.setdefault("models", {})
    with tempfile.TemporaryDirectory() as scratch:
        for case, seed in read_json(HERE / "seeds.json", {}).items():
            fixture, variant = case.split("-", 1)
            if only and fixture not in only:
                continue
            tensors, entry = model_goldens.golden(fixture, variant, seed["prompt_seed"], scratch)
            safetensors.numpy.save_file(tensors, DATA / f"{case}.safetensors")
            entries[case] = entry
            print(case, json.dumps(entry), flush=True)


def make_trained(manifest):
    import trained_goldens
    hf.deterministic()
    tensors, manifest["trained"] = trained_goldens.golden(HERE / "trained")
    safetensors.numpy.save_file(tensors, DATA / "trained.safetensors")


def make_trained_hybrid(manifest):
    import hybrid_goldens
    hf.deterministic()
    tensors, manifest["trained_hybrid"] = hybrid_goldens.golden(HERE / "trained_hybrid", HERE / "trained")
    safetensors.numpy.save_file(tensors, DATA / "trained_hybrid.safetensors")
    entry = manifest["trained_hybrid"]
    print(f"held out: perplexity {entry['heldout']['ppl']:.2f}", json.dumps(entry["drafts"]), flush=True)


def make_sampler(manifest):
    import sampler_goldens
    tensors, manifest["sampler"] = sampler_goldens.golden()
    safetensors.numpy.save_file(tensors, DATA / "sampler.safetensors")


def make_tokenizer(manifest):
    import tokenizer_goldens
    import tokenizer_kinds
    manifest["tokenizer"] = tokenizer_goldens.write(DATA, HERE / "trained")
    tokenizer_kinds.write(DATA)


PARTS = {
    "models": make_models, "trained": make_trained, "trained_hybrid": make_trained_hybrid, "sampler": make_sampler,
    "tokenizer": make_tokenizer,
}


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--only", default=",".join(PARTS), help="comma-separated parts")
    args.add_argument("--fixtures", default="", help="comma-separated fixtures, of the part models; default: all")
    args = args.parse_args()
    parts = args.only.split(",")
    DATA.mkdir(exist_ok=True)
    manifest = read_json(DATA / "manifest.json", {})
    manifest["versions"] = VERSIONS
    for part in parts:
        start = time.time()
        if part == "models":
            make_models(manifest, args.fixtures.split(",") if args.fixtures else [])
        else:
            PARTS[part](manifest)
        print(f"{part}: {time.time() - start:.0f} s", flush=True)
    for path in DATA.rglob("*.safetensors"):
        path.chmod(0o644)  # safetensors makes them private
    files = sorted(p for p in DATA.rglob("*") if p.is_file() and p.name != "manifest.json")
    manifest["files"] = {
        p.relative_to(DATA).as_posix(): {"bytes": p.stat().st_size, "sha256": hashlib.sha256(p.read_bytes()).hexdigest()} for p in files
    }
    write_json(DATA / "manifest.json", dict(sorted(manifest.items())))


if __name__ == "__main__":
    main()
