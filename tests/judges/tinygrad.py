#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tinygrad's own tests on its AMD backend, which drives the kernel driver itself: a checkout of tinygrad/tinygrad, with a Python
that has numpy, pytest and hypothesis, clang in PATH, and libLLVM where LLVM_PATH says. Each file runs on one node; its tests are told apart by pytest."""

import os
import re
import sys

import judges

options = judges.arguments(__doc__, "a checkout of tinygrad", "MAINARCH_JUDGE_TINYGRAD")

# File, GPUs, environment beside DEV=AMD.
FILES = [
    ("test/test_tiny.py", 1, {}),
    ("test/device/test_hcq.py", 2, {}),
]


def files():
    """Those of FILES that this checkout has; names of folders change."""
    for path, gpus, more in FILES:
        for place in (path, path.replace("test/device/", "test/"), path.replace("test/", "test/unit/")):
            if os.path.exists(os.path.join(options.program, place)):
                yield place, gpus, more
                break


def run_file(chip, path, gpus, more):
    env = dict(os.environ, PYTHONPATH=options.program, CACHELEVEL="0", DEV="AMD:LLVM", **more)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-o", "addopts=", "--color=no", path]
    return judges.run(options, judges.on_node(options, f"{chip}x{gpus}", command), env=env, cwd=options.program)


WORDS = {"PASSED": "pass", "FAILED": "fail", "ERROR": "fail", "SKIPPED": "skip"}
results = {}


def results_of(chip):
    if chip not in results:
        found = {}
        for path, gpus, more in files():
            ended = run_file(chip, path, gpus, more)
            for word, name in re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", ended.text, re.M):
                found[name.split("/")[-1]] = (WORDS[word], ended.text)
            if ended.code is None:
                found[os.path.basename(path)] = ("timeout", ended.text)
            elif not any(name.startswith(os.path.basename(path)) for name in found):
                found[os.path.basename(path)] = ("crash", ended.text)
        results[chip] = found
    return results[chip]


judges.judge(options, "tinygrad", lambda chip: sorted(results_of(chip)), lambda chip, test: results_of(chip)[test])
