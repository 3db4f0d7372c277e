# SPDX-License-Identifier: MIT
"""Writes corpus/gguf/: small GGUF files, right and wrong ones, for gguf_fuzz.cc. No package is needed."""
import math
import pathlib
import struct

OUT = pathlib.Path(__file__).parent / "corpus/gguf"


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def u32(name, value):
    return key(name, 4, struct.pack("<I", value))


def f32(name, value):
    return key(name, 6, struct.pack("<f", value))


def string(name, value):
    return key(name, 8, text(value))


def array(name, kind, values):
    return key(name, 9, struct.pack("<IQ", kind, len(values)) + b"".join(values))


def tensor(name, shape, kind, offset):
    return text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in shape) + \
        struct.pack("<IQ", kind, offset)


def write(name, *args, **options):
    (OUT / name).write_bytes(file(*args, **options))


def write_parts(name, *parts):
    (OUT / name).write_bytes(b"P" + b"".join(struct.pack("<I", len(part)) + part for part in parts))


def file(keys, tensors=(), data=b"", version=3, magic=b"GGUF", align=32):
    body = magic + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors)
    return body + b"\0" * (-len(body) % align) + data


def model(arch, **more):
    prefix = arch + "."
    keys = [string("general.architecture", arch), u32(prefix + "context_length", 64),
            u32(prefix + "embedding_length", 32), u32(prefix + "block_count", 1),
            u32(prefix + "feed_forward_length", 32), u32(prefix + "attention.head_count", 2),
            u32(prefix + "attention.head_count_kv", 1), f32(prefix + "attention.layer_norm_rms_epsilon", 1e-5),
            f32(prefix + "rope.freq_base", 1e4)]
    return keys + [u32(prefix + name, value) for name, value in more.items()]


def layout(shapes):
    """Tensors (name, shape, type, bytes) one behind the other."""
    described, data = [], b""
    for name, shape, kind, size in shapes:
        described.append(tensor(name, shape, kind, len(data)))
        data += bytes((i * 37 + len(name)) % 256 for i in range(size))
        data += b"\0" * (-len(data) % 32)
    return described, data


EXPERTS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32}
ARCHS = {
    "gemma3": {"attention.sliding_window": 16}, "smollm3": {}, "olmo2": {}, "granite": {}, "phi3": {"rope.dimension_count": 16},
    "gpt-oss": {**EXPERTS, "attention.sliding_window": 16, "attention.key_length": 16, "attention.value_length": 16},
    "glm4moe": {**EXPERTS, "expert_shared_count": 1, "leading_dense_block_count": 0, "rope.dimension_count": 8},
    "minimax-m2": {**EXPERTS, "attention.key_length": 16, "rope.dimension_count": 8},
    "deepseek2": {**EXPERTS, "expert_shared_count": 1, "leading_dense_block_count": 0, "attention.q_lora_rank": 16,
                  "attention.kv_lora_rank": 32, "attention.key_length": 48, "attention.value_length": 32,
                  "attention.key_length_mla": 24, "attention.value_length_mla": 16, "rope.dimension_count": 16,
                  "expert_gating_func": 2},
}
# What an architecture has of its own; shapes as the file lists them, the fastest first.
TENSORS = {
    "gpt-oss": {"attn_sinks.weight": [2], "ffn_gate_exps.bias": [32, 4], "ffn_up_exps.bias": [32, 4]},
    "phi3": {"attn_qkv.weight": [32, 64], "ffn_up.weight": [32, 64]},
    "gemma3": {"post_attention_norm.weight": [32], "post_ffw_norm.weight": [32]},
    "glm4moe": {"exp_probs_b.bias": [4], "ffn_gate_inp.weight": [32, 4]},
    "deepseek2": {"attn_k_b.weight": [8, 32, 2], "attn_v_b.weight": [32, 16, 2], "exp_probs_b.bias": [4]},
}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    embedding = ("token_embd.weight", [32, 4], 0, 512)
    write("empty", [])
    for arch in ("llama", "qwen3"):
        write(arch, model(arch), *layout([
            embedding, ("output_norm.weight", [32], 0, 128), ("blk.0.attn_q.weight", [32, 32], 8, 32 * 34),
            ("blk.0.attn_k.weight", [32, 16], 2, 16 * 18), ("blk.0.attn_q.bias", [32], 1, 64)]))
    write("qwen3moe", model("qwen3moe", expert_count=2, expert_used_count=1, expert_feed_forward_length=32),
          *layout([embedding, ("blk.0.ffn_down_exps.weight", [32, 32, 2], 39, 64 * 17)]))
    kinds = {12: 144, 13: 176, 14: 210}
    write("k_blocks", model("qwen3"), *layout([embedding] + [
        ("blk.0.k%d.weight" % kind, [256, 2], kind, 2 * size) for kind, size in kinds.items()]))
    write("small_blocks", model("qwen3"), *layout([embedding] + [
        ("blk.0.b%d.weight" % kind, [32, 1], kind, size)
        for kind, size in {2: 18, 3: 20, 6: 22, 7: 24, 8: 34, 20: 18, 39: 17}.items()]))
    types = [struct.pack("<i", n) for n in (1, 1, 1, 3)]
    write("vocabulary", model("qwen3") + [
        string("tokenizer.ggml.model", "gpt2"), string("tokenizer.ggml.pre", "qwen2"),
        array("tokenizer.ggml.tokens", 8, [text(t) for t in ("a", "b", "ab", "<e>")]),
        array("tokenizer.ggml.token_type", 5, types), array("tokenizer.ggml.merges", 8, [text("a b")]),
        u32("tokenizer.ggml.bos_token_id", 3), key("tokenizer.ggml.add_bos_token", 7, b"\1"),
        string("tokenizer.chat_template", "{{ messages }}")], *layout([embedding]))
    write("rope", model("llama") + [string("llama.rope.scaling.type", "yarn"), f32("llama.rope.scaling.factor", 4)],
          *layout([embedding, ("rope_freqs.weight", [8], 0, 32)]))
    write("all_types", [key("t%d" % kind, kind, b"\1" * size) for kind, size in
                        {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}.items()])
    write("alignment", [u32("general.alignment", 8)], [tensor("t", [1], 0, 8)], b"\0" * 12, align=8)
    for arch, more in ARCHS.items():
        more = dict(more)
        extra = more.pop("keys", [])
        write(arch, model(arch, **more) + extra, *layout([embedding] + [
            ("blk.0." + tensor, shape, 0, 4 * math.prod(shape)) for tensor, shape in TENSORS.get(arch, {}).items()]))

    def split(number, count=2, tensors=2):
        return [key("split.no", 2, struct.pack("<H", number)), key("split.count", 2, struct.pack("<H", count)),
                key("split.tensors.count", 5, struct.pack("<i", tensors))]

    first, second = layout([embedding]), layout([("output_norm.weight", [32], 0, 128)])
    write_parts("parts", file(model("qwen3") + split(0), *first), file(split(1), *second))
    # Wrong ones.
    write_parts("parts_twice", file(model("qwen3") + split(0), *first), file(split(1), *first))
    write_parts("parts_turned", file(model("qwen3") + split(1), *first), file(split(0), *second))
    write_parts("parts_missing", file(model("qwen3") + split(0, count=3), *first), file(split(1, count=3), *second))
    write_parts("parts_count", file(model("qwen3") + split(0, tensors=3), *first), file(split(1, tensors=3), *second))
    write("part_alone", model("qwen3") + split(0), *first)
    write("version_1", [], version=1)
    write("big_endian", [], version=3 << 24)
    write("no_magic", [], magic=b"GGML")
    write("duplicate_key", [u32("a", 1), u32("a", 2)])
    write("array_of_arrays", [key("a", 9, struct.pack("<IQ", 9, 1) + b"\0" * 32)])
    write("array_huge", [key("a", 9, struct.pack("<IQ", 4, 1 << 62))])
    write("string_huge", [key("a", 8, struct.pack("<Q", (1 << 64) - 1))])
    write("not_utf8", [string("a", b"\xff")])
    write("overlap", [], [tensor("a", [16], 0, 0), tensor("b", [16], 0, 32)], b"\0" * 128)
    write("overflow", [], [tensor("a", [1 << 62, 1 << 62], 0, 0)])
    write("beyond", [], [tensor("a", [16], 0, (1 << 64) - 32)], b"\0" * 64)
    write("ragged", [], [tensor("a", [33], 8, 0)], b"\0" * 68)
    (OUT / "counts").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1 << 20, 1 << 16))


if __name__ == "__main__":
    main()
