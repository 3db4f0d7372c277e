#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs every subcommand of mainarch as a user would, and checks what it prints.

usage: cli_test.py MAINARCH SOURCE_ROOT [unittest arguments]
"""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

MAINARCH = sys.argv[1]
ROOT = pathlib.Path(sys.argv[2])
TRAINED = str(ROOT / "tests/golden/trained")
COMMANDS = ["generate", "model-decode", "attn-decode", "kv-accuracy", "bench", "tokenize", "inspect", "make-checkpoint", "time", "version"]
# Built without GPUs (tools/arm64): of the commands about them each says so, and that is all.
WITHOUT_GPUS = "on CPUs alone" in subprocess.run([MAINARCH, "doctor"], capture_output=True, text=True).stdout
GPU_COMMANDS = ["topology", "doctor", "sim", "probe", "estimate", "time", "kernels"]
needs_gpus = unittest.skipIf(WITHOUT_GPUS, "built without GPUs")
# The switch that Qwen3 has: nothing, or an empty block.
TEMPLATE = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
            "{%- if enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
            "{%- endif %}")


def run(*words, stdin="", code=0, env=None):
    done = subprocess.run([MAINARCH, *map(str, words)], input=stdin.encode(), capture_output=True,
                          timeout=300, env={**os.environ, **(env or {})})
    out, err = done.stdout.decode(), done.stderr.decode()
    assert done.returncode == code, f"{words}: exit code {done.returncode}\n{out}\n{err}"
    return out, err


def here(words):
    """Whether a build has what these words ask for."""
    return not WITHOUT_GPUS or (words[0] not in GPU_COMMANDS and not any("sim:" in str(word) for word in words))


def run_json(*words, **options):
    out, _ = run(*words, "--json", **options)
    return json.loads(out)


class Case(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.mkdtemp(prefix="mainarch-cli-test-")
        self.addCleanup(shutil.rmtree, self.scratch)


class Usage(Case):
    def test_help_of_everything(self):
        out, _ = run("help")
        for name in COMMANDS:
            self.assertIn(f"  {name} ", out)
            if not here([name]):
                continue
            text, _ = run(name, "--help")
            self.assertIn(f"usage: mainarch {name}", text)
            self.assertIn("Examples:", text)
            self.assertEqual(text, run("help", name)[0])
            self.assertTrue(all(len(line) <= 120 for line in text.splitlines()), text)

    def test_no_command(self):
        _, err = run(code=2)
        self.assertIn("usage: mainarch", err)

    def test_unknown_command(self):
        _, err = run("generat", code=2)
        self.assertIn("did you mean generate?", err)

    def test_unknown_option(self):
        for name in filter(lambda name: here([name]), COMMANDS):
            _, err = run(name, "--jsn", code=2)
            self.assertIn("unknown option --jsn; did you mean --json?", err)
            self.assertIn(f"see mainarch {name} --help", err)
        _, err = run("generate", "-x", code=2)
        self.assertIn("two dashes", err)

    def test_bad_values(self):
        for words, message in [
                (["generate", "--model", TRAINED, "--top-p", "2", "a"], "--top-p 2: is not a number from 0 to 1"),
                (["generate", "--model", TRAINED, "--seed", "-1", "a"], "--seed -1: is not an integer"),
                (["generate", "--model", TRAINED, "--seed"], "--seed needs a value"),
                (["generate", "--model", TRAINED, "--json=1", "a"], "--json takes no value"),
                (["generate", "--model", TRAINED, "--kv", "int4", "a"], "--kv int4: is not one of bf16, fp8, f32"),
                (["generate", "--model", TRAINED, "two", "words"], "put quotes around text"),
                (["generate", "--model", TRAINED, "--system", "s", "a"], "are for --chat"),
                (["generate", "--model", TRAINED, "--tp", "2", "--device", "cpu:4", "a"], "contradicts"),
                (["generate", "prompt"], "--model DIR is missing"),
                (["tokenize", "a"], "--model DIR is missing"),
                (["inspect"], "DIR is missing"),
                (["time"], "give --launch FILE, or --preset or --like"),
                (["inspect", TRAINED, "--tp", "3"], "--tp must be 1, 2, 4 or 8"),
                (["bench"], "give --model, --preset or --like"),
                (["bench", "--preset", "tiny", "--beside-exact", "1"], "--beside-exact needs --fast, --int8 or --mxfp8"),
                (["bench", "--model", TRAINED, "--decode", "1,,2"], "separated by commas"),
                (["make-checkpoint"], "DIR is missing"),
                (["make-checkpoint", "x", "--preset", "qwen3-0.6"], "did you mean qwen3-0.6b?"),
                (["model-decode", "--model", TRAINED, "--format", "mxfp4"], "without --model"),
                (["version", "extra"], "takes options only")]:
            if not here(words):
                continue
            out, err = run(*words, code=2)
            self.assertIn(message, err)
            self.assertEqual(out, "")

    def plain_model(self):
        """The trained model without its chat template."""
        model = os.path.join(self.scratch, "plain")
        shutil.copytree(TRAINED, model)
        path = pathlib.Path(model) / "tokenizer_config.json"
        config = json.loads(path.read_text())
        del config["chat_template"]
        path.chmod(0o644)
        path.write_text(json.dumps(config))
        return model

    def test_failures(self):
        missing = os.path.join(self.scratch, "none")
        for words, message in [
                (["generate", "--model", missing, "a"], missing),
                (["inspect", missing], missing),
                (["model-decode", "--model", missing], missing),
                (["tokenize", "--model", missing, "a"], missing),
                (["generate", "--model", TRAINED, "--device", "cpu:3", "a"], "cpu:3"),
                (["generate", "--model", TRAINED, "--context", "3", "one two three four"], "the context 3"),
                (["bench", "--model", TRAINED, "--decode", "9999"], "the model has 2048"),
                (["tokenize", "--model", TRAINED, "--decode", "9999"], "token 9999 is outside"),
                (["tokenize", "--model", TRAINED, "--decode", "x"], "is no token id"),
                (["generate", "--model", self.plain_model(), "--chat", "a"], "no chat template")]:
            out, err = run(*words, code=1)
            self.assertIn(message, err)
            self.assertEqual(out, "")

    @needs_gpus
    def test_an_estimate_refuses_what_it_does_not_count(self):
        model = os.path.join(self.scratch, "windows")
        os.makedirs(model, exist_ok=True)
        config = {"model_type": "mistral", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 96, "num_attention_heads": 4,
                  "num_key_value_heads": 2, "intermediate_size": 96, "sliding_window": 16}
        pathlib.Path(model, "config.json").write_text(json.dumps(config))
        _, err = run("estimate", "--model", model, "--tp", "1", code=1)
        self.assertIn("model_type mistral: an estimate does not count windows", err)
        pathlib.Path(model, "config.json").write_text(json.dumps({**config, "sliding_window": None}))
        run("estimate", "--model", model, "--tp", "1")

    def test_full_disk(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([MAINARCH, "help"], stdout=full, stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"writing to stdout failed", done.stderr)

    def test_version(self):
        out, _ = run("version")
        self.assertRegex(out, r"^mainarch \d+\.\d+\.\d+\n")
        self.assertEqual(out, run("--version")[0])
        self.assertIn(run_json("version")["version"], out)


class JsonAlways(Case):
    """With --json stdout is one JSON object, whatever happens."""

    def commands(self):
        text = run_json("help")["help"]
        names = [line.split()[0] for line in text.splitlines() if line.startswith("  ")]
        self.assertGreater(len(names), len(COMMANDS))
        names.remove("help")
        return names

    def check_error(self, *words, code, message="", stdin="", env=None):
        with self.subTest(words=words):
            out, err = run(*words, code=code, stdin=stdin, env=env)
            self.assertEqual(out.count("\n"), 1, out)
            error = json.loads(out)["error"]
            self.assertEqual(error["exit_code"], code)
            self.assertIn(message, error["message"])
            self.assertIn(error["message"], err)  # the same words for people
            return error

    def test_help(self):
        for name in self.commands():
            for words in (["help", name, "--json"], [name, "--help", "--json"], [name, "--json", "--help"]):
                out, err = run(*words)
                self.assertIn(f"usage: mainarch {name}", json.loads(out)["help"], words)
                self.assertEqual(err, "")
        self.assertEqual(run_json("--help"), run_json("help"))

    def test_wrong_use(self):
        for name in filter(lambda name: here([name]), self.commands()):
            self.check_error(name, "--json", "--no-such-option", code=2, message="unknown option")
            self.check_error(name, "--no-such-option", "--json", code=2, message="no-such-option")
        for words, message in [(["--json"], "unknown command"), (["generat", "--json"], "unknown command"),
                               (["generate", "--json", "prompt"], "--model DIR is missing"),
                               (["generate", "--model", TRAINED, "--seed", "--json"], "is not an integer"),
                               (["bench", "--json"], "give --model, --preset or --like"),
                               (["inspect", "--json"], "DIR is missing"),
                               (["make-checkpoint", "--json"], "DIR is missing"),
                               (["sim", "--json", "--", "true"], "--json")]:
            if not here(words):
                continue
            self.check_error(*words, code=2, message=message)

    def test_failures(self):
        missing = os.path.join(self.scratch, "none")
        for words, status in [(["generate", "--model", missing, "a"], -4),
                              (["model-decode", "--model", missing], -4),
                              (["bench", "--model", missing], -4),
                              (["tokenize", "--model", missing, "a"], -4),
                              (["inspect", missing], -4),
                              (["estimate", "--model", missing], -4),
                              (["make-checkpoint", missing, "--heads", "6", "--kv-heads", "4"], None),
                              (["attn-decode", "--device", "sim:gfx1100"], -2),
                              (["topology", "--device", "tpu"], -2),
                              (["doctor", "--device", "tpu"], -2),
                              (["probe", "--device", "tpu"], -2),
                              (["gpu-allreduce-bench", "--device", "tpu"], -2),
                              (["generate", "--model", TRAINED, "--device", "cpu:01", "a"], -2)]:
            if not here(words):
                continue
            error = self.check_error(*words, "--json", code=1)
            if status is not None:
                self.assertEqual(error["code"], status, error)

    def test_what_is_not_asked_for_is_not_json(self):
        # The word of an option's value, behind "--", or taken back.
        out, _ = run("generate", "--model", TRAINED, "--stop", "--json", "--max-tokens", 1, "a")
        self.assertFalse(out.startswith("{"))
        out, _ = run("tokenize", "--model", TRAINED, "--", "--json")
        self.assertFalse(out.startswith("{"))
        out, _ = run("inspect", os.path.join(self.scratch, "none"), "--json", "--no-json", code=1)
        self.assertEqual(out, "")

    def test_lists(self):
        presets = run_json("make-checkpoint", "--list")["presets"]
        self.assertIn("qwen3-0.6b", [preset["name"] for preset in presets])


@needs_gpus
class Time(Case):
    """Modelled time: of a launch file, of a step. What the model says is the business of its own tests."""

    KERNELS = pathlib.Path(MAINARCH).resolve().parents[2] / "kernels"

    def launch(self, *lines, isa="gfx950"):
        path = os.path.join(self.scratch, "fill.launch")
        text = ["mainarch-launch 1", f"object \"{self.KERNELS}/memory.{isa}.hsaco\"", "kernel fill", "workgroups 64",
                "workgroup 256", "buffer d 1048576", "arg 0 ptr d", "arg 8 u64 1048576", "arg 16 u64 1", "arg 24 u64 1",
                "arg 32 u32 64", "arg 36 u32 0", "expect d u64 value=1", *lines]
        pathlib.Path(path).write_text("\n".join(text) + "\n")
        return path

    def test_estimate_beside_what_kernels_take(self):
        plain = run_json("estimate", "--preset", "tiny-moe", "--tp", "1", "--context", "100")
        self.assertNotIn("modelled_seconds", plain)
        timed = run_json("estimate", "--preset", "tiny-moe", "--tp", "1", "--context", "100", "--time")
        self.assertEqual(timed["seconds"], plain["seconds"])
        step = run_json("time", "--preset", "tiny-moe", "--tp", "1", "--context", "100")
        self.assertAlmostEqual(timed["modelled_seconds"] * 1e6, step["modelled_us"], 3)
        self.assertIn("error", timed["model_error"])
        out, _ = run("estimate", "--preset", "tiny-moe", "--tp", "1", "--time")
        self.assertIn("Modelled, not measured", out)
        _, err = run("estimate", "--preset", "tiny-moe", "--format", "mxfp4-ffn", "--time", code=1)
        self.assertIn("weights of two formats", err)

    def test_a_step_of_a_model_with_states(self):
        step = run_json("time", "--preset", "tiny-hybrid-moe", "--tp", "1", "--rows", "3", "--run-layers", "4")
        ops = {op["name"]: op["times"] for op in step["ops"]}
        self.assertEqual(ops["gated_delta"], 3)
        self.assertEqual(ops["attention"], 1)

    def test_experts_of_a_prompt_are_grouped(self):
        model = os.path.join(self.scratch, "model")
        run("make-checkpoint", model, "--preset", "tiny-moe", "--hidden", 512, "--layers", 1, "--experts", 8)
        kernels = {}
        for rows in (20, 64):
            step = run_json("time", "--like", model, "--tp", "1", "--rows", str(rows), "--packets")
            kernels[rows] = [launch["kernel"] for launch in step["launches"]]
        self.assertIn("experts_bf16", kernels[20])
        for kernel in ("experts_group", "experts_tall_bf16", "experts_tall_down_bf16"):
            self.assertIn(kernel, kernels[64])
        self.assertNotIn("experts_bf16", kernels[64])
        # Of leaves that are not of blocks, too, and where k ends with half a tile; but not as MXFP8.
        ragged = os.path.join(self.scratch, "ragged")
        run("make-checkpoint", ragged, "--preset", "tiny-moe", "--hidden", 576, "--layers", 1, "--experts", 8)
        for more, kernel in (((), "experts_tall_mxfp4"), (("--fast",), "experts_tall_mxfp4_rounded"), (("--mxfp8",), "experts_mxfp4_scaled")):
            step = run_json("time", "--like", ragged, "--tp", "1", "--rows", "256", "--packets", "--format", "mxfp4", *more)
            self.assertIn(kernel, [launch["kernel"] for launch in step["launches"]])

    def test_a_prompt_of_many_rows(self):
        """The last row alone has logits. Where the chip has the LDS for it, rounded products take rows in tiles."""
        model = os.path.join(self.scratch, "prompt")
        run("make-checkpoint", model, "--preset", "tiny", "--hidden", 512, "--layers", 1, "--intermediate", 2048)
        for device, rows, tiled in (("sim:gfx950", 2048, True), ("sim:gfx942", 512, False)):
            step = run_json("time", "--like", model, "--tp", "1", "--rows", str(rows), "--prompt", "--fast", "--packets", "--context", "0",
                            "--run-layers", "1", "--device", device)
            self.assertEqual([step["rows"], step["prompt"]], [rows, True])
            launches = {launch["kernel"]: launch for launch in step["launches"]}
            self.assertEqual("tile_rows" in launches, tiled)
            self.assertIn("tall_gate_up_bf16_" + ("tiled" if tiled else "rounded"), launches)
            self.assertEqual(launches["choose_share"]["workgroups"], 1)
            self.assertEqual(launches["reduce"]["workgroups"], rows)  # more than there are compute units

    def test_gate_and_up_fill_the_chip(self):
        """Of few rows by two workgroups an output tile, where compute units would have none; of one row also where some have two."""
        for hidden, intermediate, weights, rows, device, halves in (
            (512, 2048, "bf16", 1, "sim:gfx950", True),  # 128 output tiles for 256 compute units
            (512, 2048, "bf16", 8, "sim:gfx950", True),
            (512, 2048, "bf16", 9, "sim:gfx950", False),
            (512, 2064, "bf16", 1, "sim:gfx950", False),
            (512, 2064, "bf16", 1, "sim:gfx942", True),  # 304 compute units
            (2048, 2080, "bf16", 1, "sim:gfx950", False),
            (2048, 2080, "mxfp4", 1, "sim:gfx950", True),
            (2048, 2080, "mxfp4", 4, "sim:gfx950", False),
            (544, 512, "mxfp4", 1, "sim:gfx950", False),  # the last tile is not whole
        ):
            model = os.path.join(self.scratch, f"halves-{hidden}-{intermediate}")
            if not os.path.exists(model):
                run("make-checkpoint", model, "--preset", "tiny", "--hidden", hidden, "--layers", 1, "--intermediate", intermediate)
            step = run_json("time", "--like", model, "--tp", "1", "--rows", str(rows), "--packets", "--run-layers", "1", "--device", device,
                            "--format", weights, "--context", "0")
            launches = {launch["kernel"]: launch["workgroups"] for launch in step["launches"]}
            self.assertEqual(launches.get("gate_up_half_" + weights), intermediate // 8 if halves else None)
            self.assertEqual("gate_up_" + weights in launches, not halves)

    def attention_of(self, *options):
        """Kernels of a layer's attention, in their order."""
        step = run_json("time", "--tp", "1", "--run-layers", "1", "--packets", *options)
        return [launch["kernel"] for launch in step["launches"] if launch["kernel"].startswith(("prepare_", "attend_"))]

    def test_few_rows_make_their_own_heads(self):
        """Up to eight rows, where every split has a workgroup; more of them, and long contexts, have a launch before."""
        for rows in ("2", "8"):
            self.assertEqual(self.attention_of("--preset", "tiny", "--rows", rows, "--context", "300"), ["attend_bf16_64"])
        self.assertEqual(self.attention_of("--preset", "tiny", "--rows", "12", "--context", "300"),
                         ["prepare_bf16_64", "attend_bf16_64", "attend_long_merge"])
        self.assertEqual(self.attention_of("--preset", "tiny", "--rows", "8", "--context", "70000"), ["prepare_bf16_64", "attend_long_bf16_64"])

    def test_prompts_that_fill_the_chip_leave_no_parts(self):
        model = os.path.join(self.scratch, "runs")
        run("make-checkpoint", model, "--preset", "tiny", "--hidden", 128, "--layers", 1, "--intermediate", 128, "--heads", 512,
            "--kv-heads", 32, "--head-dim", 64)
        for rows, prompt in ((128, ["attend_prompt_bf16_64"]), (120, [])):
            kernels = self.attention_of("--like", model, "--rows", str(rows), "--prompt", "--context", "0")
            self.assertEqual(kernels, ["prepare_bf16_64", *prompt, "attend_tall_bf16_64"])

    def kernels_of_mxfp8(self, model, rows, device="sim:gfx950", weights="mxfp4"):
        step = run_json("time", "--like", model, "--tp", "1", "--rows", str(rows), "--packets", "--run-layers", "1",
                        "--format", weights, "--mxfp8", "--device", device)
        return [launch["kernel"] for launch in step["launches"]]

    def test_rows_as_mxfp8_where_the_chip_multiplies_both(self):
        model = os.path.join(self.scratch, "scaled")
        run("make-checkpoint", model, "--preset", "tiny-moe", "--hidden", 512, "--layers", 1, "--experts", 8)
        many = self.kernels_of_mxfp8(model, 64)
        for kernel in ("scale_rows", "experts_tall_mxfp4_scaled", "experts_tall_down_mxfp4_scaled"):
            self.assertIn(kernel, many)
        few = self.kernels_of_mxfp8(model, 20)
        for kernel in ("experts_mxfp4_scaled", "matmul_mxfp4_scaled"):
            self.assertIn(kernel, few)
        self.assertNotIn("scale_rows", few)
        other = self.kernels_of_mxfp8(model, 64, "sim:gfx942")
        self.assertFalse([kernel for kernel in other if kernel == "scale_rows" or kernel.endswith("_scaled")])

    def test_rows_as_mxfp8_where_fp8_lies_in_blocks(self):
        """Of experts gate and up, and so for any number of rows; the product behind heads, of 256 columns, not."""
        model = os.path.join(self.scratch, "blocks")
        run("make-checkpoint", model, "--preset", "tiny-moe", "--hidden", 512, "--layers", 1, "--experts", 8)
        many = self.kernels_of_mxfp8(model, 64, weights="fp8-block")
        for kernel in ("scale_rows", "experts_tall_fp8_scaled", "experts_tall_down_fp8_rounded"):
            self.assertIn(kernel, many)
        few = self.kernels_of_mxfp8(model, 20, weights="fp8-block")
        for kernel in ("experts_fp8_scaled", "matmul_fp8_scaled", "matmul_fp8_rounded"):
            self.assertIn(kernel, few)

    def test_many_rows_as_mxfp8_want_leaves_that_are_alike(self):
        """A kernel for many rows has no way for others: 5,120 columns in eight parts have leaves of one chunk and of two. Workgroups
        of 128 rows, through a ring in LDS, where they leave no more compute units idle than those of 64."""
        model = os.path.join(self.scratch, "leaves")
        run("make-checkpoint", model, "--preset", "tiny", "--hidden", 512, "--layers", 1, "--intermediate", 5120, "--heads", 2,
            "--kv-heads", 1, "--vocab", 64)
        for rows, way in ((512, "ring"), (256, "scaled")):
            kernel = "tall_gate_up_mxfp4_" + way
            kernels = self.kernels_of_mxfp8(model, rows)
            up = kernels.index(kernel)
            self.assertEqual(kernels[up - 1 : up + 2], ["scale_rows", kernel, "matmul_mxfp4_scaled"])
            kernels = self.kernels_of_mxfp8(model, rows, weights="fp8-block")
            up = kernels.index("tall_gate_up_fp8_" + way)
            self.assertEqual(kernels[up - 1], "scale_rows")

    def test_more_pages_than_a_step_tells_of(self):
        step = run_json("time", "--preset", "tiny", "--tp", "1", "--context", "40000")
        self.assertEqual({op["name"]: op["times"] for op in step["ops"]}["attention"], 4)

    def test_launch(self):
        for isa in ("gfx942", "gfx950"):
            path = self.launch(isa=isa)
            report = run_json("time", "--launch", path, "--device", f"sim:{isa}")
            self.assertTrue(report["ok"])
            self.assertGreater(report["modelled_us"], 0.5)
            self.assertIn("error", report["model_error"])
            # To the clock, though buffers lie at other addresses in every process.
            again = run_json("time", "--launch", path, "--device", f"sim:{isa}")
            self.assertEqual(again["modelled_us"], report["modelled_us"])
            launch = report["launches"][0]
            self.assertEqual((launch["workgroups"], launch["waves"]), (64, 256))
            self.assertAlmostEqual(sum(launch["limited_by"].values()), 1, 3)
            plain = run_json("time", "--launch", path, "--device", f"sim:{isa}", "--no-clock")
            self.assertNotIn("modelled_us", plain)
            self.assertEqual(plain["expectations"], report["expectations"])
        out, _ = run("time", "--launch", self.launch())
        for words in ("modelled, not measured", "limited by", "occupancy", "d against 1: 131072 elements"):
            self.assertIn(words, out)

    def test_runs_and_trace(self):
        trace = os.path.join(self.scratch, "trace.json")
        report = run_json("time", "--launch", self.launch("runs 3", "rotate 2"), "--trace", trace)
        self.assertEqual(len(report["launches"]), 3)
        starts = [launch["start_us"] for launch in report["launches"]]
        self.assertEqual(starts, sorted(starts))
        events = json.loads(pathlib.Path(trace).read_text())["traceEvents"]
        packets = [event for event in events if event["ph"] == "X" and event["pid"] == 0]
        self.assertEqual([event["args"]["kernel"] for event in packets], ["fill"] * 3)
        self.assertEqual(sum(event["ph"] == "b" for event in events), 3 * 64)
        self.assertEqual(sum(event["ph"] == "e" for event in events), 3 * 64)

    def test_params(self):
        path = self.launch()
        base = run_json("time", "--launch", path)["modelled_us"]
        slow = run_json("time", "--launch", path, "--param", "complete_ns=5000")["modelled_us"]
        self.assertGreater(slow, base + 3)
        for param, message in (("nonsense=1", "nonsense"), ("clock_mhz", "NAME=NUMBER"), ("clock_mhz=x", "NAME=NUMBER")):
            _, err = run("time", "--launch", path, "--param", param, code=1)
            self.assertIn(message, err)

    def test_wrong_results_and_bad_files(self):
        out, _ = run("time", "--launch", self.launch("expect d u64 value=2"), code=1)
        self.assertIn("131072 WRONG; element 0 is 1, expected 2", out)
        _, err = run("time", "--launch", self.launch("lds 999999"), code=1)
        self.assertIn("fill.launch:14: lds 999999: with 0 static bytes of kernel fill, gfx950 has 163840", err)
        _, err = run("time", "--launch", self.launch("frob"), code=1)
        self.assertIn("fill.launch:14: \"frob\": no such statement", err)
        self.assertNotIn("checkpoint", err)  # what to do next is about the file at hand
        _, err = run("time", "--launch", self.launch(), "--device", "sim:gfx90a", code=1)
        self.assertIn("no timing model of gfx90a", err)

    def test_step(self):
        words = ["time", "--like", TRAINED, "--tp", 1, "--context", 40]
        report = run_json(*words, "--packets")
        self.assertEqual(report["kind"], "modelled")
        self.assertGreater(report["modelled_us"], 10)
        self.assertGreater(report["floor_us"], 0)
        names = [op["name"] for op in report["ops"]]
        self.assertIn("step begin", names)
        self.assertAlmostEqual(sum(op["modelled_us"] * op["times"] for op in report["ops"]), report["modelled_us"], 3)
        self.assertEqual(len(report["launches"]), sum(op["packets"] for op in report["ops"]))
        self.assertEqual({launch["op"] for launch in report["launches"]}, {op["name"] for op in report["ops"] if op["packets"]})
        out, _ = run(*words)
        self.assertIn("modelled, not measured", out)
        # Of many rows products and attention have kernels of their own.
        wide = pathlib.Path(self.scratch, "wide.json")
        for rows, many, window in ((32, False, None), (256, True, None), (256, True, 20)):
            wide.write_text(json.dumps(dict(
                architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=3072, num_hidden_layers=1, num_attention_heads=32,
                num_key_value_heads=2, head_dim=128, intermediate_size=2048, vocab_size=512, max_position_embeddings=512,
                rms_norm_eps=1e-6, rope_theta=1e6, tie_word_embeddings=True, hidden_act="silu",
                use_sliding_window=window is not None, sliding_window=window, max_window_layers=0)))
            packets = run_json("time", "--like", wide, "--tp", 1, "--context", 40, "--rows", rows, "--run-layers", 1, "--packets")
            kernels = {launch["kernel"] for launch in packets["launches"]}
            for kernel in ("tall_parts_bf16", "tall_gate_up_bf16", "attend_tall_bf16_128", "attend_merge_rows"):
                self.assertEqual(kernel in kernels, many, kernel)
        # By the resident kernel: of each GPU, every op and the wait behind it, one behind the other.
        trace = os.path.join(self.scratch, "step.json")
        resident = run_json("time", "--like", TRAINED, "--tp", 2, "--ranks", 2, "--context", 40, "--resident", "--trace", trace)
        for op in resident["ops"]:
            self.assertGreater(op["modelled_us"], op["wait_us"])
            self.assertGreater(op["wait_us"], 0)
        events = json.loads(pathlib.Path(trace).read_text())["traceEvents"]
        launches = [event for event in events if event["ph"] == "X" and event["name"] == "resident"]
        self.assertEqual(len(launches), 2)
        for launch in launches:
            own = [event for event in events if event["ph"] == "X" and event["pid"] == launch["pid"] and event["tid"] == 2000]
            self.assertEqual(len(own), 2 * sum(op["packets"] for op in resident["ops"]))
            for event, after in zip(own, own[1:]):
                self.assertAlmostEqual(event["ts"] + event["dur"], after["ts"], 2)
            self.assertGreater(own[0]["ts"], launch["ts"])
            self.assertLess(own[-1]["ts"] + own[-1]["dur"], launch["ts"] + launch["dur"])
        for bad, message in ((["--ranks", 2], "--ranks 2 of --tp 1"), (["--device", "gpu"], "a step is timed on"),
                             (["--tp", 3], "does not divide"),
                             (["--tp", 8, "--ranks", 3], "--ranks 3 of --tp 8: 1, 2, 4 or 8")):
            _, err = run(*words, *bad, code=1)
            self.assertIn(message, err)


class Signals(Case):
    """A signal ends every command. The bounds are for machines that are busy: what is begun here takes
    minutes, or for ever, where it is not cut short."""

    def wait_until_caught(self, pid, number):
        """On a machine that is busy a program may take long to come so far."""
        for _ in range(6000):
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            if int(re.search(r"SigCgt:\s*([0-9a-f]+)", status).group(1), 16) >> (number - 1) & 1:
                return
            time.sleep(0.01)
        self.fail("no handler within a minute")

    def interrupted(self, *words, number=signal.SIGINT, after=1.0, stdin=None):
        temporary = os.path.join(self.scratch, "tmp")
        os.makedirs(temporary, exist_ok=True)
        # Under nohup the tests ignore SIGHUP, and what ignores a signal from the start does so on.
        process = subprocess.Popen([MAINARCH, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   stdin=stdin, env={**os.environ, "TMPDIR": temporary},
                                   preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
        self.addCleanup(process.kill)  # what a failure leaves would run for hours
        self.wait_until_caught(process.pid, number)
        time.sleep(after)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130, (words, out, err))
        self.assertEqual(os.listdir(temporary), [], words)
        return out.decode(), err.decode()

    def test_a_step_is_cut_short(self):
        # One step of 65536 rows over a context as long.
        model = os.path.join(self.scratch, "long")
        run("make-checkpoint", model, "--preset", "tiny", "--max-position", 65536)
        words = ["bench", "--model", model, "--prefill", 65536, "--chunk", 65536, "--only", "prefill",
                 "--threads", 1, "--probe-mb", 64]
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            out, err = self.interrupted(*words, "--json", number=number, after=3)
            self.assertIn("interrupted", err)
            report = json.loads(out)
            if "error" not in report:  # it was measuring already
                self.assertTrue(report["interrupted"])
                self.assertEqual(report["cases"], [])

    @needs_gpus
    def test_what_cannot_be_cut_short_is_left(self):
        # One dispatch over a context that takes minutes to interpret.
        words = ["attn-decode", "--device", "sim:gfx942", "--context", 100000, "--json"]
        out, _ = self.interrupted(*words, after=3)
        self.assertEqual(json.loads(out)["error"], {"exit_code": 130, "code": -7, "message": "interrupted"})

    def test_what_is_known_is_said(self):
        out, _ = self.interrupted("model-decode", "--tokens", 40000, "--json", after=4)
        report = json.loads(out)
        if "error" not in report:
            self.assertTrue(report["interrupted"])
            self.assertGreater(len(report["steps"]), 0)

    def test_waiting_for_input(self):
        for words in (["generate", "--model", TRAINED, "--json"], ["tokenize", "--model", TRAINED, "--json"]):
            reader, writer = os.pipe()
            out, _ = self.interrupted(*words, stdin=reader)
            os.close(reader)
            os.close(writer)
            self.assertEqual(json.loads(out)["error"]["message"], "interrupted")

    @needs_gpus
    def test_sim_ends_its_program(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = subprocess.Popen([MAINARCH, "sim", "--", "sh", "-c", "echo $$; exec sleep 1000"],
                                       env={**os.environ, "TMPDIR": self.scratch}, stdout=subprocess.PIPE)
            program = int(process.stdout.readline())
            process.send_signal(number)
            self.assertEqual(process.wait(timeout=60), 128 + signal.SIGTERM)
            process.stdout.close()
            self.assertFalse(os.path.exists(f"/proc/{program}"))
            self.assertEqual(os.listdir(self.scratch), [])  # the node's files are gone

    def test_nobody_reads(self):
        # Quietly, as commands of Unix end; and the checkpoint is removed.
        process = subprocess.Popen([MAINARCH, "model-decode", "--tokens", "400", "--no-verify"],
                                   env={**os.environ, "TMPDIR": self.scratch}, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        process.stdout.close()
        err = process.stderr.read().decode()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=120), 130)
        self.assertEqual(err, "")
        self.assertEqual(os.listdir(self.scratch), [])


class Streams(Case):
    def test_closed_standard_streams_are_not_taken_by_files(self):
        model = os.path.join(self.scratch, "model")
        done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&-', "sh", MAINARCH, "make-checkpoint", model, "--json"],
                              stderr=subprocess.PIPE, timeout=120)
        self.assertEqual(done.returncode, 1)  # there is nowhere to write to
        self.assertIn(b"writing to stdout failed", done.stderr)
        self.assertEqual(run_json("inspect", model)["config"]["model_type"], "qwen3_moe")


class Generate(Case):
    def words(self, *more):
        return ["generate", "--model", TRAINED, "--max-tokens", 40, "--ignore-end", *more,
                "In the beginning"]

    def chat_model(self):
        model = os.path.join(self.scratch, "chat")
        shutil.copytree(TRAINED, model)
        path = pathlib.Path(model) / "tokenizer_config.json"
        config = json.loads(path.read_text())
        config["chat_template"] = TEMPLATE
        path.chmod(0o644)
        path.write_text(json.dumps(config))
        return model

    def write(self, name, value):
        path = os.path.join(self.scratch, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(value if isinstance(value, str) else json.dumps(value))
        return path

    def test_chats_and_tools_of_json_files(self):
        words = ["generate", "--model", TRAINED, "--max-tokens", 2]
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
        prompt = run_json(*words, "--chat", "--system", "Be brief.", "Hi")["prompt"]
        chat = self.write("chat.json", messages)
        self.assertEqual(run_json(*words, "--messages", chat)["prompt"], prompt)
        off = run_json(*words, "--messages", chat, "--thinking", "off")["prompt"]
        self.assertEqual(off, prompt + "<think>\n\n</think>\n\n")
        whole = self.write("whole.json", {"messages": messages, "chat_template_kwargs": {"enable_thinking": False}})
        self.assertEqual(run_json(*words, "--messages", whole)["prompt"], off)
        self.assertIn("is an object", run(*words, "--messages", whole, "--thinking", "on", code=1)[1])
        self.assertIn("messages[0] is no object", run(*words, "--messages", self.write("bad.json", "[1]"), code=1)[1])
        self.assertIn("in place of PROMPT", run(*words, "--messages", chat, "Hi", code=2)[1])
        self.assertIn("are for --chat", run(*words, "--tools", chat, "Hi", code=2)[1])
        model = os.path.join(self.scratch, "own")
        shutil.copytree(TRAINED, model)
        (pathlib.Path(model) / "chat_template.jinja").write_text(
            "{{ tools|map(attribute='name')|join(',') if tools }}:{{ messages[-1].content }}:{{ bos_token is defined }}")
        tools = self.write("tools.json", [{"name": "a"}, {"name": "b"}])
        words = ["generate", "--model", model, "--max-tokens", 2]
        self.assertEqual(run_json(*words, "--chat", "--tools", tools, "Hi")["prompt"], "a,b:Hi:False")
        self.assertEqual(run_json(*words, "--messages", chat)["prompt"], ":Hi:False")
        self.assertIn("tools is no array", run(*words, "--messages", chat, "--tools", whole, code=1)[1])

    def test_finds_downloaded_models_by_name(self):
        hub = os.path.join(self.scratch, "home", ".cache", "huggingface", "hub")
        commit, other = "0123456789abcdef0123456789abcdef01234567", "f" * 40
        model = os.path.join(hub, "models--Org--Tiny-1.0")
        os.makedirs(os.path.join(model, "refs"))
        os.makedirs(os.path.join(model, "snapshots", other))
        snapshot = os.path.join(model, "snapshots", commit)
        os.makedirs(snapshot)
        for name in os.listdir(TRAINED):  # snapshots are links, as the tools make them
            os.symlink(os.path.join(TRAINED, name), os.path.join(snapshot, name))
        self.write(os.path.join("home", ".cache", "huggingface", "hub", "models--Org--Tiny-1.0", "refs", "main"), commit)
        none = {name: "" for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")}
        home = os.path.join(self.scratch, "home")
        for env in ({"HOME": home}, {"HOME": "/", "XDG_CACHE_HOME": os.path.join(home, ".cache")},
                    {"HOME": "/", "HF_HOME": os.path.join(home, ".cache", "huggingface")},
                    {"HOME": "/", "HF_HOME": "/x", "HF_HUB_CACHE": hub}):
            out, _ = run("inspect", "Org/Tiny-1.0", env={**none, **env})
            self.assertIn("qwen3_moe", out)
        env = {**none, "HF_HUB_CACHE": hub}
        run("generate", "--model", "Org/Tiny-1.0", "--max-tokens", 2, "a", env=env)
        run("tokenize", "--model", f"Org/Tiny-1.0@{commit}", "a", env=env)
        for words, message in [
                (["inspect", "Org/Tiny-2.0"], f"no model of that name in {hub}; download it (hf download Org/Tiny-2.0)"),
                (["inspect", "Org/Tiny-1.0@dev"], f"revision dev is not in {model}/snapshots; there is {commit}, {other}"),
                (["inspect", f"Org/Tiny-1.0@{other}"], "config.json"),
                (["inspect", "../Org"], "../Org"), (["inspect", "a/b/c"], "a/b/c")]:
            self.assertIn(message, run(*words, env=env, code=1)[1])
        with open(os.path.join(model, "refs", "main"), "w") as ref:
            ref.write("../../../../..")  # leads nowhere
        self.assertIn("revision main is not in", run("inspect", "Org/Tiny-1.0", env=env, code=1)[1])

    def test_streams_what_json_holds(self):
        out, err = run(*self.words())
        whole = run_json(*self.words())
        self.assertEqual(out, whole["text"] + "\n")
        self.assertRegex(err, r"prompt \d+ tokens in .* \| 40 tokens, .* finish: max-tokens")
        self.assertEqual(len(whole["tokens"]), 40)
        decoded, _ = run("tokenize", "--model", TRAINED, "--decode", "--skip-special", *whole["tokens"])
        self.assertEqual(decoded.rstrip("\n"), whole["text"].rstrip("\n"))

    def test_pieces_come_one_by_one(self):
        # A pipe of packets: what one write sends, one read gets.
        out, into = os.pipe2(os.O_DIRECT | os.O_CLOEXEC)
        process = subprocess.Popen([MAINARCH, *map(str, self.words())], stdout=into,
                                   stderr=subprocess.DEVNULL)
        os.close(into)
        pieces = []
        while piece := os.read(out, 1 << 16):
            pieces.append(piece)
        os.close(out)
        self.assertEqual(process.wait(), 0)
        self.assertGreater(len(pieces), 30)  # of 40 tokens
        for piece in pieces:
            piece.decode()  # a character is never cut
        self.assertEqual(b"".join(pieces).decode(), run(*self.words())[0])

    def test_same_seed_same_text(self):
        texts = [run(*self.words("--seed", seed))[0] for seed in (1, 1, 2)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_devices_and_threads_agree(self):
        texts = {run(*self.words("--seed", 5, *more))[0]
                 for more in ([], ["--device", "cpu:2"], ["--tp", 4], ["--threads", 1], ["--in-place"])}
        self.assertEqual(len(texts), 1)

    def test_environment_chooses_the_device_unless_it_is_given(self):
        run(*self.words(), env={"MAINARCH_BACKEND": "sim"}, code=1)
        run(*self.words("--device", "cpu"), env={"MAINARCH_BACKEND": "sim"})

    def test_greedy_is_temperature_zero(self):
        self.assertEqual(run(*self.words("--greedy"))[0], run(*self.words("--temperature", 0))[0])
        self.assertEqual(run(*self.words("--greedy", "--seed", 1))[0],
                         run(*self.words("--greedy", "--seed", 2))[0])

    def test_stop_texts(self):
        whole = run_json(*self.words("--greedy"))["text"]
        for begin, length in ((5, 1), (12, 4), (20, 9)):  # within tokens and across them
            stop = whole[begin:begin + length]
            cut = run_json(*self.words("--greedy", "--stop", "no such text", "--stop", stop))
            self.assertEqual(cut["text"], whole[:whole.index(stop)])
            self.assertEqual(cut["finish"], "stop")
            drafted = run_json(*self.words("--greedy", "--drafts", 3, "--stop", stop))
            self.assertEqual(drafted["text"], cut["text"])
            self.assertEqual(drafted["finish"], "stop")

    def test_prompt_from_stdin_and_file(self):
        words = ["generate", "--model", TRAINED, "--max-tokens", 8]
        path = os.path.join(self.scratch, "prompt")
        pathlib.Path(path).write_text("In the beginning")
        texts = {run(*words, "In the beginning")[0], run(*words, stdin="In the beginning")[0],
                 run(*words, "--file", path)[0]}
        self.assertEqual(len(texts), 1)
        self.assertIn("not both", run(*words, "--file", path, "text", code=2)[1])

    def test_echo_and_quiet(self):
        out, err = run(*self.words("--echo", "--no-statistics"))
        self.assertTrue(out.startswith("In the beginning"))
        self.assertEqual(err, "")

    def test_logprobs(self):
        whole = run_json(*self.words("--greedy", "--logprobs", 3))
        self.assertEqual(len(whole["logprobs"]), 40)
        for token, entries in zip(whole["tokens"], whole["logprobs"]):
            self.assertEqual(len(entries), 4)
            self.assertEqual([entries[0]["token"]] * 2, [token, entries[1]["token"]])  # greedy
            self.assertLessEqual(entries[1]["logprob"], 0)

    def test_drafts(self):
        plain = run_json(*self.words("--greedy"))
        self.assertNotIn("drafts", plain)
        drafted = run_json(*self.words("--greedy", "--drafts", 3))
        self.assertEqual(drafted["tokens"], plain["tokens"])
        self.assertLessEqual(drafted["drafts_accepted"], drafted["drafts"])
        self.assertGreaterEqual(drafted["tokens_a_step"], 1)
        self.assertIn("tokens a step", run(*self.words("--drafts", 1, "--draft-source", "ngram"))[1])
        self.assertIn("has none", run(*self.words("--drafts", 1, "--draft-source", "head"), code=1)[1])

    def test_chat(self):
        words = ["generate", "--model", self.chat_model(), "--chat", "--max-tokens", 8]
        prompt = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        self.assertEqual(run_json(*words, "--system", "Be brief.", "Hi")["prompt"], prompt)
        off = run_json(*words, "--system", "Be brief.", "--thinking", "off", "Hi")
        self.assertEqual(off["prompt"], prompt + "<think>\n\n</think>\n\n")

    def test_conversation(self):
        words = ["generate", "--model", self.chat_model(), "--chat", "--max-tokens", 8, "--greedy"]
        out, err = run(*words, stdin="Hi\nAnd now?\n")
        self.assertEqual(err.count("finish:"), 2)
        first = run(*words, "Hi")[0]
        self.assertTrue(out.startswith(first))
        # The second turn keeps the KV of the first.
        fresh = [int(line.split("prompt ")[1].split()[0]) for line in err.splitlines()]
        self.assertLess(fresh[1], 2 * fresh[0])

    def test_interrupt_ends_with_statistics(self):
        process = subprocess.Popen(
            [MAINARCH, "generate", "--model", TRAINED, "--ignore-end", "--max-tokens", "0", "a"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.read(process.stdout.fileno(), 1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130)
        self.assertIn(b"finish: interrupted", err)


class AttnDecode(Case):
    def check(self, *words, bound):
        report = run_json("attn-decode", *words)
        self.assertTrue(report["ok"])
        self.assertLess(report["relative_error"], bound)
        self.assertGreater(report["relative_error"], 0)  # something was compared
        return report

    def test_cpu(self):
        small = ["--heads", 8, "--kv-heads", 4, "--head-dim", 64]
        # Shorter than a page; as long as what is computed; with copied pages, the last one in part.
        for context in (1, 7, 128, 700):
            self.check("--kv", "f32", "--context", context, *small, bound=2e-5)
        report = self.check("--kv", "fp8", "--tp", 4, "--context", 300, *small, bound=6e-2)
        self.assertEqual(report["ranks"], 4)
        self.assertEqual(report["kv_bytes"], 300 * 2 * 4 * (64 + 4))
        self.assertGreater(report["seconds"], -1)
        self.assertGreater(report["read_rate"], 0)
        self.assertNotIn("counts", report)
        for kv, token in (("fp4", 34 + 34), ("k8v4", 68 + 34)):
            report = self.check("--kv", kv, "--tp", 2, "--context", 300, *small, bound=2e-1)
            self.assertEqual(report["kv_bytes"], 300 * 4 * token)

    @needs_gpus
    def test_long_on_a_virtual_node(self):
        # Splits of two blocks: fewer than 512 of a row, and their kernels.
        one = ["--heads", 4, "--kv-heads", 1, "--head-dim", 32, "--context", 70000]
        report = self.check("--device", "sim:gfx950", "--kv", "fp4", *one, bound=2e-1)
        self.assertEqual([packet["kernel"] for packet in report["modelled"]["packets"]],
                         ["prepare_fp4_32", "attend_long_fp4_32"])
        # The merge is in the same launch, by words of 64 bits: what comes behind the last of its parts.
        self.assertGreater(report["modelled"]["merge_us"], 0.3)
        self.assertLess(report["modelled"]["merge_us"], 0.5 * report["modelled"]["us"])
        self.assertLess(report["counts"]["written_bytes"], 1.1 * 512 * 4 * (32 + 16) * 8)
        self.check("--device", "sim:gfx942", "--kv", "bf16", "--no-time", *one, bound=4e-3)

    def test_a_million_tokens_in_f32(self):
        # The same 128 tokens over and over: roundings of a long chain of sums would all go the same way.
        one = ["--heads", 8, "--kv-heads", 1, "--context", 1000000]
        self.check("--kv", "f32", "--head-dim", 32, *one, bound=5e-6)

    def test_values_smaller_than_keys(self):
        """Read once, V in its own size: on CPUs any, on GPUs 128 beside 192."""
        few = ["--heads", 12, "--kv-heads", 2, "--head-dim", 192, "--value-dim", 128, "--context", 700]
        bounds = {"f32": 2e-5, "bf16": 4e-3, "fp8": 6e-2, "k8v4": 2e-1, "fp4": 2e-1}
        token = {"f32": 320 * 4, "bf16": 320 * 2, "fp8": 320 + 8, "k8v4": 192 + 4 + 64 + 4, "fp4": 96 + 6 + 64 + 4}
        for kv, bound in bounds.items():
            for device in ("cpu", "sim:gfx942", "sim:gfx950"):
                if not here([device]):
                    continue
                report = self.check("--device", device, "--kv", kv, "--no-time", *few, bound=bound)
                self.assertEqual(report["value_dim"], 128)
                self.assertEqual(report["kv_bytes"], 700 * 2 * token[kv])
                if device != "cpu":
                    self.assertEqual(report["counts"]["least_bytes"], report["kv_bytes"])
                    self.assertLess(report["counts"]["memory_bytes"], 1.05 * report["kv_bytes"])
        self.check("--heads", 4, "--kv-heads", 4, "--head-dim", 48, "--value-dim", 112, "--context", 300, "--kv", "bf16", bound=4e-3)

    @needs_gpus
    def test_ranks_share_a_head(self):
        # Two GPUs with the same KV head read it once between them.
        one = ["--heads", 8, "--kv-heads", 1, "--head-dim", 32, "--context", 70000, "--share-from", 50000]
        report = self.check("--device", "sim:gfx950x2", "--kv", "fp8", *one, bound=6e-2)
        self.assertEqual([packet["kernel"] for packet in report["modelled"]["packets"]],
                         ["prepare_fp8_32", "share_queries", "attend_long_fp8_32", "attend_shared_merge"])
        counts = report["counts"]
        self.assertEqual(counts["least_bytes"], report["kv_bytes"])
        self.assertLess(counts["memory_bytes"], 1.03 * counts["least_bytes"])
        self.assertGreater(counts["link_bytes"], 0)

    @needs_gpus
    def test_virtual_node(self):
        report = self.check("--device", "sim:gfx942x2", "--heads", 8, "--kv-heads", 2, "--context", 530, bound=4e-3)
        self.assertNotIn("seconds", report)
        counts = report["counts"]
        self.assertEqual(counts["least_bytes"], 530 * 2 * 2 * 128 * 2)
        self.assertLess(counts["memory_bytes"], 1.05 * counts["least_bytes"])
        self.assertGreater(counts["memory_bytes"], 0.95 * counts["least_bytes"])
        self.assertGreater(counts["memory_whole"], 0.98 * counts["memory_bytes"])
        self.assertEqual((counts["scratch_bytes"], counts["link_bytes"], counts["rounds"]), (0, 0, 0))
        # By the timing model, a GPU's share: one packet, K and V from memory, some of the ceiling.
        modelled = report["modelled"]
        self.assertEqual([packet["kernel"] for packet in modelled["packets"]], ["attend_bf16_128"])
        attend = modelled["packets"][0]
        self.assertAlmostEqual(modelled["us"], attend["us"])
        self.assertGreater(modelled["merge_us"], 0.3)
        self.assertLess(modelled["merge_us"], 0.5 * modelled["us"])
        self.assertAlmostEqual(modelled["rate"] * modelled["us"] * 1e-6, report["kv_bytes"] / 2, delta=1)
        self.assertLess(modelled["of_read"], 1)
        self.assertGreater(attend["floor_us"], 0.05)
        out, _ = run("attn-decode", "--device", "sim:gfx950", "--heads", 4, "--kv-heads", 1, "--context", 20)
        self.assertIn("bytes from memory, least possible", out)
        self.assertIn("modelled, not measured", out)
        out, _ = run("attn-decode", "--device", "sim:gfx950", "--heads", 4, "--kv-heads", 1, "--context", 20, "--no-time")
        self.assertNotRegex(out, r"[0-9] (s|ms|us|ns)\b")

    def test_wrong_uses(self):
        _, err = run("attn-decode", "--heads", 6, "--kv-heads", 4, code=2)
        self.assertIn("--kv-heads", err)
        out, _ = run("attn-decode", "--context", 20, "--bound", "1e-12", code=1)
        self.assertIn("TOO FAR", out)
        _, err = run("attn-decode", "--device", "sim:gfx1100", code=1)
        self.assertIn("gfx1100", err)


class KvAccuracy(Case):
    def test_types(self):
        words = ["kv-accuracy", "--model", TRAINED, "--text", TRAINED + "/heldout.txt", "--tokens", 300]
        report = run_json(*words, "--window", 200)
        self.assertEqual((report["window"], report["tokens"]), (200, 300))
        all = {(each["kv"], each["near"], each["outer"]): each for each in report["types"]}
        types = {kv: each for (kv, near, outer), each in all.items() if not near and not outer}
        self.assertEqual(list(types), ["f32", "bf16", "fp8", "k8v4", "fp4"])
        self.assertEqual(list(all)[5:], [(kv, True, outer) for kv in ("k8v4", "fp4") for outer in (False, True)])
        self.assertEqual((types["bf16"]["kl"], types["bf16"]["same_top"], types["f32"]["kl_f32"]), (0, 1, 0))
        self.assertLess(types["fp8"]["kl"], 1e-2)
        # Fewer bits, more loss.
        self.assertLess(0, types["f32"]["kl"])
        self.assertLess(types["f32"]["kl"], types["fp8"]["kl"])
        self.assertLess(types["fp8"]["kl"], types["k8v4"]["kl"])
        self.assertLess(types["k8v4"]["kl"], types["fp4"]["kl"])
        # What is near in fp8 takes most of it; where all tokens are near, it is all of it, to the bit, of K that is not turned.
        self.assertLess(all["fp4", True, False]["kl"], 0.5 * types["fp4"]["kl"])
        for at in (0, 1):
            self.assertEqual(all["k8v4", True, False]["positions"][at], types["fp8"]["positions"][at])
        for each in all.values():
            self.assertEqual(each["predicted"], 298)  # each window's last token predicts nothing that is given
            self.assertEqual([at["from"] for at in each["positions"]], [0, 16, 128])
            self.assertEqual([at["tokens"] for at in each["positions"]], [32, 196, 72])
        # The pieces of a text change nothing.
        again = run_json(*words, "--window", 200, "--rows", 7, "--kv", "fp4")
        self.assertEqual(again["types"][2], types["fp4"])
        again = run_json(*words, "--window", 200, "--rows", 11, "--kv", "fp4", "--kv-near", "--kv-outer")
        self.assertEqual(again["types"][2], all["fp4", True, True])
        _, err = run(*words, "--kv", "fp8", "--kv-near", code=1)
        self.assertIn("fp8", err)

    def test_ingredients(self):
        words = ["kv-accuracy", "--model", TRAINED, "--text", TRAINED + "/heldout.txt", "--tokens", 40, "--ingredients"]
        report = run_json(*words, "--window", 30)
        self.assertEqual((report["window"], report["tokens"]), (30, 40))
        all = {each["name"]: each for each in report["ingredients"]}
        of = {name.split(":")[0]: each for name, each in all.items()}
        for key in ("kl", "made_up_kl", "made_up_error"):
            self.assertLess(of["fp8"][key], of["fp4"][key])
            self.assertLess(of["fp4"][key], of["E8M0 floor"][key])
        # The measure: half of what the plain format loses. What is in fp8 beside, loses less.
        self.assertLess(of["fp4"]["made_up_kl"], 0.6 * of["E8M0 floor"]["made_up_kl"])
        self.assertLess(of["fp4, all three"]["made_up_kl"], of["fp4"]["made_up_kl"])
        # A window of 30 is all first 16 and last 128 tokens.
        self.assertEqual(of["fp4, last 128 tokens in fp8"]["kl"], of["fp8"]["kl"])
        self.assertNotEqual(of["fp4, first 16 tokens in fp8"]["kl"], of["fp8"]["kl"])

    def test_wrong_uses(self):
        run("kv-accuracy", code=2)
        _, err = run("kv-accuracy", "--model", TRAINED, stdin="a", code=1)
        self.assertIn("fewer than two tokens", err)
        out, _ = run("kv-accuracy", "--model", TRAINED, "--tokens", 40, stdin="In the beginning " * 9)
        self.assertIn("same top", out)


class ModelDecode(Case):
    def check(self, *words, bound):
        report = run_json("model-decode", *words)
        self.assertTrue(report["ok"])
        self.assertTrue(report["verified"])
        errors = [step["relative_error"] for step in report["steps"]]
        self.assertEqual(report["worst"]["relative_error"], max(errors))
        self.assertEqual(errors.index(max(errors)), report["worst"]["step"])
        self.assertLess(max(errors), bound)
        self.assertGreater(max(errors), 0)  # something was compared
        return report

    def test_without_arguments(self):
        scratch = {"TMPDIR": self.scratch}
        out, _ = run("model-decode", env=scratch)
        self.assertRegex(out, r"worst relative error \S+ at step \d+, token \d+; bound \S+: ok")
        self.assertEqual(os.listdir(self.scratch), [])  # the checkpoint is gone

    def test_formats_and_ranks(self):
        few = ["--tokens", 6, "--prompt-tokens", 20]
        for format in ("bf16", "fp8-block", "mxfp4"):
            for device in ("cpu", "cpu:2"):
                report = self.check("--format", format, "--device", device, *few, bound=2e-5)
                self.assertEqual(len(report["steps"]), 6)
                self.assertEqual(report["ranks"], 2 if device == "cpu:2" else 1)

    def test_kv_types(self):
        few = ["--tokens", 6, "--prompt-tokens", 20]
        self.check("--kv", "f32", *few, bound=2e-5)
        self.check("--kv", "fp8", *few, bound=2e-5)
        self.check("--kv", "fp8", "--device", "cpu:8", *few, bound=2e-5)  # ranks share KV heads
        self.check("--kv", "bf16", "--fast", *few, bound=6e-2)
        self.check("--format", "mxfp4", "--int8", *few, bound=0.15)
        for kv in ("fp4", "k8v4"):
            self.check("--kv", kv, *few, bound=2e-5)
            self.check("--kv", kv, "--device", "cpu:8", *few, bound=2e-5)

    @needs_gpus
    def test_virtual_nodes(self):
        few = ["--tokens", 4, "--prompt-tokens", 18]  # the cache goes over a page's end
        for kv in ("f32", "bf16", "fp8", "fp4", "k8v4"):
            report = self.check("--kv", kv, "--device", "sim:gfx950x2", *few, bound=1e-4)
            self.assertEqual(report["bound"], 1e-4)
        report = self.check("--device", "sim:gfx942x8", "--format", "mxfp4", *few, bound=1e-4)
        self.assertEqual(report["ranks"], 8)

    def test_values_smaller_than_keys(self):
        """MiMo's layers: on CPUs V lies in its own size, on GPUs as wide as K where these are of 64. Tokens go beyond the window."""
        model = os.path.join(self.scratch, "model")
        run("make-checkpoint", model, "--preset", "tiny-mimo")
        few = ["--model", model, "--tokens", 3, "--prompt-tokens", 140]
        for kv in ("f32", "bf16", "fp8", "fp4", "k8v4"):
            self.check("--kv", kv, "--device", "cpu:8", *few, bound=2e-5)
            for device in filter(lambda device: here([device]), ("sim:gfx942", "sim:gfx950x4")):
                self.check("--kv", kv, "--device", device, *few, bound=1e-4)
        for node in filter(lambda node: here([node]), ("cpu:", "sim:gfx950x")):
            hashes = [[step["logits_hash"] for step in run_json("model-decode", "--device", f"{node}{ranks}", *few)["steps"]]
                      for ranks in (1, 2, 8)]
            self.assertEqual(len(set(hashes[0])), 3)
            for other in hashes[1:]:
                self.assertEqual(hashes[0], other)

    def test_trained(self):
        self.check("--model", TRAINED, "--tokens", 6, "--prompt-tokens", 12, bound=2e-5)

    def test_arithmetic_of_formats(self):
        for format in ("bf16", "fp8-block", "mxfp4", "mxfp4-attnfp8"):
            self.check("--kv", "f32", "--format", format, "--tp", 2, "--tokens", 4, bound=2e-5)

    def test_ranks_give_the_same_bits(self):
        # Of 8 ranks, four have nothing of an expert of 128.
        few = ["--tokens", 4, "--prompt-tokens", 18]
        for node, kind in (("cpu:", ["--kv", "bf16"]), ("sim:gfx950x", ["--kv", "fp8", "--format", "fp8-block"]),
                           ("sim:gfx942x", ["--kv", "bf16", "--format", "mxfp4"])):
            if not here([node]):
                continue
            reports = [run_json("model-decode", "--device", f"{node}{ranks}", *kind, *few)
                       for ranks in (1, 2, 4, 8)]
            steps = [[{**step, "seconds": 0} for step in report["steps"]] for report in reports]
            hashes = [step["logits_hash"] for step in steps[0]]
            self.assertEqual(len(set(hashes)), 4)  # each of a token's own logits
            for other in steps[1:]:
                self.assertEqual(steps[0], other)

    def test_geometries_by_chance(self):
        chance = random.Random(2026)
        for _ in range(8):
            kv_heads = chance.choice([1, 2, 4])
            heads = kv_heads * chance.choice([2, 4, 8])
            format = chance.choice(["bf16", "f16", "fp8-block", "fp8-channel", "mxfp4"])
            unit, hidden = (32, 128) if format == "mxfp4" else (16, chance.choice([96, 136, 256]))
            words = ["--hidden", hidden, "--layers", 2, "--heads", heads, "--kv-heads", kv_heads,
                     "--head-dim", chance.choice([32, 64, 96, 128, 192]), "--vocab", chance.choice([512, 1027]),
                     "--format", format]
            if chance.random() < 0.7:
                words += ["--preset", "tiny-moe", "--experts", chance.choice([4, 7, 16]),
                          "--experts-per-token", chance.choice([1, 4]),
                          "--moe-intermediate", unit * chance.choice([1, 3, 8])]
            else:
                words += ["--preset", "tiny", "--intermediate", unit * chance.choice([1, 3, 9])]
            model = os.path.join(self.scratch, "model")
            run("make-checkpoint", model, *words)
            for device in filter(lambda device: here([device]), ("cpu", f"cpu:{min(heads, 8)}", "sim:gfx950x2")):
                with self.subTest(words=words, device=device):
                    bound = 1e-4 if "sim" in device else 2e-5
                    self.check("--model", model, "--device", device, "--tokens", 2,
                               "--prompt-tokens", 17, bound=bound)
            shutil.rmtree(model)

    def test_a_bound_that_is_passed_fails(self):
        out, _ = run("model-decode", "--tokens", 2, "--bound", "1e-12", code=1)
        self.assertIn("TOO FAR", out)

    def test_no_verify(self):
        report = run_json("model-decode", "--no-verify", "--tokens", 3)
        self.assertFalse(report["verified"])
        self.assertNotIn("worst", report)
        self.assertNotIn("relative_error", report["steps"][0])

    def test_interrupt_removes_the_checkpoint(self):
        process = subprocess.Popen(
            [MAINARCH, "model-decode", "--tokens", "100000", "--prompt-tokens", "8"],
            env={**os.environ, "TMPDIR": self.scratch}, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while not os.listdir(self.scratch) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertNotEqual(os.listdir(self.scratch), [])
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual(os.listdir(self.scratch), [])


class Checkpoints(Case):
    def make(self, name, *words):
        path = os.path.join(self.scratch, name)
        return path, run_json("make-checkpoint", path, *words)

    def test_formats_and_shards(self):
        for format in ("bf16", "f16", "f32", "fp8-block", "fp8-channel", "mxfp4", "mxfp4-attnfp8"):
            path, made = self.make(format, "--format", format, "--layers", 2, "--shards", 2)
            seen = run_json("inspect", path)
            self.assertEqual(seen["file_bytes"], made["bytes"])
            names = {entry["format"] for entry in seen["formats"]}
            self.assertTrue(format.split("-attn")[0] in {n.replace("_", "-") for n in names}, names)
            self.assertEqual(len([n for n in os.listdir(path) if n.endswith(".safetensors")]), 2)
            expected = ["there is no tokenizer.json: tokens only, no text"]
            self.assertEqual(seen["warnings"], expected)

    def test_seed_and_bytes(self):
        files = [pathlib.Path(self.make(str(i), "--seed", seed, "--layers", 1)[0]) / "model.safetensors"
                 for i, seed in enumerate((3, 3, 4))]
        self.assertEqual(files[0].read_bytes(), files[1].read_bytes())
        self.assertNotEqual(files[0].read_bytes(), files[2].read_bytes())

    def test_like_and_fields(self):
        path, _ = self.make("like", "--like", TRAINED, "--layers", 2, "--vocab", 512)
        config = run_json("inspect", path)["config"]
        trained = run_json("inspect", TRAINED)["config"]
        self.assertEqual(config, {**trained, "layers": 2, "vocab": 512, "eos_ids": [],
                                  "temperature": 0, "top_k": 0, "top_p": 0})
        path, _ = self.make("dense", "--preset", "tiny-moe", "--experts", 0)
        self.assertEqual(run_json("inspect", path)["config"]["model_type"], "qwen3")
        path, _ = self.make("mimo", "--preset", "tiny-mimo", "--layers", 7)
        again, _ = self.make("again", "--like", path, "--hidden", 128)
        config = run_json("inspect", path)["config"]
        self.assertEqual((config["head_dim"], config["value_dim"]), (64, 32))
        self.assertEqual(run_json("inspect", again)["config"], {**config, "hidden": 128})
        self.assertIn("5 with a window of 129", run("inspect", path)[0])
        self.assertIn("4 KV heads in layers with a window", run("inspect", again)[0])
        _, err = run("make-checkpoint", os.path.join(self.scratch, "none"), "--preset", "tiny-mimo", "--kv-heads", 4, code=2)
        self.assertIn("mimo_v2_flash has heads of its own", err)

    def test_draft_head(self):
        plain, _ = self.make("plain", "--preset", "tiny-hybrid-moe")
        path, _ = self.make("head", "--preset", "tiny-hybrid-moe", "--draft-head")
        self.assertNotIn("a layer that guesses tokens ahead", run("inspect", plain)[0])
        self.assertIn("a layer that guesses tokens ahead", run("inspect", path)[0])
        _, err = run("make-checkpoint", os.path.join(self.scratch, "none"), "--draft-head", code=2)
        self.assertIn("qwen3_moe has no layer that drafts", err)

    def test_existing_is_kept(self):
        path, _ = self.make("twice", "--layers", 1)
        before = (pathlib.Path(path) / "model.safetensors").read_bytes()
        _, err = run("make-checkpoint", path, code=1)
        self.assertIn("exists", err)
        self.assertEqual((pathlib.Path(path) / "model.safetensors").read_bytes(), before)

    def test_bad_geometry(self):
        _, err = run("make-checkpoint", os.path.join(self.scratch, "bad"), "--heads", 6,
                     "--kv-heads", 4, code=1)
        self.assertIn("heads", err)

    def test_presets(self):
        out, _ = run("make-checkpoint", "--list")
        for name in ("qwen3-0.6b", "moe-64x", "qwen3-30b-a3b"):
            self.assertIn(name, out)


class Inspect(Case):
    def test_trained(self):
        seen = run_json("inspect", TRAINED, "--tensors", "--program")
        header = (ROOT / "tests/golden/trained/model.safetensors").read_bytes()
        length = int.from_bytes(header[:8], "little")
        tensors = json.loads(header[8:8 + length])
        tensors.pop("__metadata__", None)
        self.assertEqual({t["name"]: t["shape"] for t in seen["tensors"]},
                         {name: tensor["shape"] for name, tensor in tensors.items()})
        parameters = 0
        for tensor in tensors.values():
            count = 1
            for size in tensor["shape"]:
                count *= size
            parameters += count
        self.assertEqual(seen["parameters"], parameters)
        self.assertEqual(seen["weight_bytes"], 2 * parameters)
        self.assertEqual(seen["kv_bytes_per_token"], 5 * 2 * 4 * 32 * 2)
        self.assertEqual(seen["warnings"], [])
        self.assertIn("experts_gate_up", seen["program"])

    def test_a_token_of_a_moe_reads_its_experts_only(self):
        seen = run_json("inspect", TRAINED)
        h, layers, experts, width = 128, 5, 16, 128
        attention = layers * (2 * 8 * 32 * h + 2 * 4 * 32 * h)
        ffn = layers * (experts * h + 4 * 3 * width * h)
        self.assertEqual(seen["decode"][0]["flops"], 2 * (attention + ffn + 2048 * h))

    def test_text_and_ranks(self):
        out, _ = run("inspect", TRAINED, "--tensors")
        self.assertRegex(out, r"model\.embed_tokens\.weight +BF16 +\[2048, 128\] +524288")
        self.assertIn("parameters", out)
        self.assertIn("all_reduce_add", run("inspect", TRAINED, "--program", "--tp", 2)[0])

    def test_unused_tensors_are_listed(self):
        model = pathlib.Path(self.scratch) / "extra"
        run("make-checkpoint", model, "--layers", 1)
        path = model / "model.safetensors"
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + length])
        end = len(data) - 8 - length
        for name in ("value_head.weight", "a.lora"):
            header[name] = {"dtype": "U8", "shape": [3], "data_offsets": [end, end + 3]}
            end += 3
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length:] + b"abcdef")
        seen = run_json("inspect", model)
        self.assertEqual(seen["unused_tensors"], ["a.lora", "value_head.weight"])
        self.assertIn('2 tensors (6 bytes) are not used: "a.lora", "value_head.weight"', seen["warnings"])
        self.assertEqual(run_json("inspect", TRAINED)["unused_tensors"], [])

    def test_quantisation_claims(self):
        def claim(path, value):
            config = json.loads((path / "config.json").read_text())
            config.pop("quantization_config", None)
            if value:
                config["quantization_config"] = value
            (path / "config.json").write_text(json.dumps(config))

        plain = pathlib.Path(self.scratch) / "plain"
        run("make-checkpoint", plain, "--layers", 1)
        claim(plain, {"quant_method": "fp8"})
        self.assertIn("no weight is quantised", run("inspect", plain)[0])
        fp4 = pathlib.Path(self.scratch) / "fp4"
        run("make-checkpoint", fp4, "--layers", 1, "--format", "mxfp4")
        claim(fp4, None)
        self.assertIn("has no quantization_config", run("inspect", fp4)[0])
        claim(fp4, {"quant_method": "fp8"})
        self.assertIn("but weights are mxfp4", run("inspect", fp4)[0])

    def test_unsupported_lists_tensors_first(self):
        path = pathlib.Path(self.scratch) / "other"
        run("make-checkpoint", path, "--layers", 1)
        config = (path / "config.json").read_text().replace("qwen3_moe", "mamba")
        (path / "config.json").write_text(config)
        out, err = run("inspect", path, "--tensors", code=1)
        self.assertIn("model.norm.weight", out)
        self.assertIn("mamba", err)


class Tokenize(Case):
    TEXT = "In the beginning\n<|im_end|> d\u00e9j\u00e0 \U0001f600"

    def test_round_trip(self):
        made = run_json("tokenize", "--model", TRAINED, self.TEXT)
        self.assertEqual(made["tokens"], len(made["ids"]))
        ids, _ = run("tokenize", "--model", TRAINED, "--ids", stdin=self.TEXT)
        self.assertEqual([int(i) for i in ids.split()], made["ids"])
        back = run_json("tokenize", "--model", TRAINED, "--decode", stdin=ids)
        self.assertEqual(back["text"], self.TEXT)
        path = os.path.join(self.scratch, "text")
        pathlib.Path(path).write_text(self.TEXT)
        self.assertEqual(run_json("tokenize", "--model", TRAINED, "--file", path), made)

    def test_special_tokens(self):
        special = run_json("tokenize", "--model", TRAINED, "<|im_end|>")
        self.assertEqual(special["ids"], [2045])
        plain = run_json("tokenize", "--model", TRAINED, "--no-special", "<|im_end|>")
        self.assertNotIn(2045, plain["ids"])
        out, _ = run("tokenize", "--model", TRAINED, "<|im_end|>")
        self.assertRegex(out, r"2045 +\"<\|im_end\|>\" +special")
        self.assertEqual(run("tokenize", "--model", TRAINED, "--decode", "--skip-special", "2045")[0], "\n")


class Bench(Case):
    def test_small(self):
        report = run_json("bench", "--preset", "tiny-moe", "--prefill", 40, "--decode", "0,100",
                          "--batch", "1,2", "--tokens", 4, "--chunk", 32, "--repetitions", 2,
                          "--probe-mb", 64, "--ops")
        self.assertEqual([(c["case"], c["context"], c["batch"]) for c in report["cases"]],
                         [("prefill", 0, 1), ("decode", 0, 1), ("decode", 0, 2),
                          ("decode", 100, 1), ("decode", 100, 2)])
        for case in report["cases"]:
            self.assertGreater(case["tokens_per_second"], 0)
            self.assertGreater(case["read_share"], 0)
            self.assertEqual(len(case["repetitions"]), 2)
            tokens = case["tokens"] * case["batch"]
            self.assertAlmostEqual(case["tokens_per_second"] * case["seconds"] / tokens, 1, 5)
        for name in ("read_1", "read_n", "read_1_small_pages", "read_n_small_pages"):
            self.assertGreater(report["probe"][name], 1e8)
        self.assertGreater(report["fp32_flops"], 1e8)
        names = [op["name"] for op in report["ops"]["operators"]]
        self.assertIn("attention", names)
        self.assertTrue(any(name.startswith("logits ") for name in names), names)
        # All operators together cost what a step costs.
        ops = sum(op["bytes"] for op in report["ops"]["operators"])
        self.assertGreater(ops, 2 * report["cases"][4]["bytes_per_token"] * 0.9)
        self.assertLess(ops, 2 * report["cases"][4]["bytes_per_token"] * 1.1)

    def test_modes_beside_exact(self):
        """Each case with fp32 activations in turns, and what is below the ratio asked for by name."""
        words = ("bench", "--preset", "tiny-moe", "--format", "fp8-block", "--prefill", 20, "--decode", 0, "--batch", "1,2",
                 "--tokens", 2, "--repetitions", 2, "--probe-mb", 8)
        for mode in ("--fast", "--int8"):
            report = run_json(*words, mode, "--beside-exact", 0)
            for case in report["cases"]:
                ratios = [r["exact_seconds"] / r["seconds"] for r in case["repetitions"]]
                self.assertGreaterEqual(case["of_exact"], min(ratios) * 0.999)
                self.assertLessEqual(case["of_exact"], max(ratios) * 1.001)
        out, err = run(*words, "--fast", "--beside-exact", 1000, code=1)
        self.assertIn("x exact", out)
        self.assertRegex(err, r"prefill 20, batch 1, fast, on .*: [0-9.]+ x exact, asked for 1000")
        self.assertNotIn("of_exact", json.dumps(run_json(*words, "--fast")))

    def test_states(self):
        """Of a model whose layers keep states beside one that keeps pages."""
        report = run_json("bench", "--preset", "tiny-hybrid", "--prefill", 20, "--decode", "0,30",
                          "--batch", "1,3", "--tokens", 3, "--chunk", 8, "--repetitions", 1, "--probe-mb", 8)
        self.assertEqual(len(report["cases"]), 5)
        for case in report["cases"]:
            self.assertGreater(case["tokens_per_second"], 0)

    def test_text(self):
        out, _ = run("bench", "--model", TRAINED, "--only", "decode", "--tokens", 2,
                     "--repetitions", 1, "--probe-mb", 64, "--threads", 1)
        self.assertRegex(out, r"decode @0 +1 ")
        self.assertIn("decode @8192 left out: the model has 2048 positions", out)
        self.assertIn("read, huge pages", out)


class Machine(Case):
    @unittest.skipUnless(WITHOUT_GPUS, "built with GPUs")
    def test_without_gpus_every_command_about_them_says_so(self):
        for name in GPU_COMMANDS:
            for words in ([name], [name, "--device", "sim:gfx950x2"]):
                out, err = run(*words, code=1)
                self.assertIn("runs on CPUs alone, without GPUs and virtual nodes", out + err)
        for name in ("generate", "attn-decode", "gpu-allreduce-bench"):
            model = ["--model", TRAINED, "a"] if name == "generate" else []
            _, err = run(name, "--device", "gpu", *model, code=1)
            self.assertIn('device "gpu": this library was built for', err)
        self.assertEqual(run_json("doctor", code=1)["usable_gpus"], 0)
        self.assertEqual(json.loads(run("time", "--json", code=1)[0])["error"]["code"], -3)

    @needs_gpus
    def test_topology_of_a_virtual_node(self):
        out, _ = run("topology", "--device", "sim:gfx950x8")
        self.assertEqual(out.count(": gfx950 "), 8)
        self.assertIn("256 CUs", out)
        node = run_json("topology", "--device", "sim:gfx942x2")
        self.assertIn("gfx942", json.dumps(node))

    @needs_gpus
    def test_topology_needs_a_device(self):
        _, err = run("topology", "--device", "sim:gfx900", code=1)
        self.assertIn("gfx900", err)
        _, err = run("topology", "--device", "cuda", code=1)
        self.assertIn("sim:", err)

    @needs_gpus
    def test_doctor_finds_a_virtual_node_well(self):
        out, _ = run("doctor", "--device", "sim:gfx950x2")
        self.assertIn("2 usable GPUs", out)

    def test_doctor_says_what_is_missing_here(self):
        if os.path.exists("/dev/kfd"):
            self.skipTest("this machine has a GPU driver")
        out, _ = run("doctor", code=1)
        self.assertIn("0 usable GPUs", out)
        self.assertIn("->", out)

    @needs_gpus
    def test_sim_runs_a_program_and_passes_its_code_on(self):
        out, _ = run("sim", "--node", "gfx950x2", "--", "cat",
                     "/sys/class/kfd/kfd/topology/nodes/2/properties")
        self.assertIn("gfx_target_version 90500", out)
        run("sim", "--", "sh", "-c", "exit 7", code=7)
        _, err = run("sim", "--node", "gfx1", "--", "true", code=2)
        self.assertIn("gfx1", err)
        run("sim", code=2)

    @needs_gpus
    def test_sim_lists_the_agents_with_rocminfo(self):
        if shutil.which("rocminfo") is None:
            self.skipTest("rocminfo is not installed")
        out, _ = run("sim", "--node", "gfx90ax2", "--", "rocminfo")
        self.assertEqual(out.count("Name:                    gfx90a"), 2)

    @needs_gpus
    def test_kernels(self):
        out, _ = run("kernels", "--isa", "gfx950")
        self.assertIn("ping_pong", out)
        self.assertNotIn("gfx942", out)
        rows = run_json("kernels")["kernels"]
        self.assertEqual({row["isa"] for row in rows}, {"gfx942", "gfx950"})
        self.assertTrue(all(row["waves_per_simd"] >= 1 for row in rows))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
