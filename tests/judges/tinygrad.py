#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""tinygrad's own tests on its AMD backend, which drives the kernel driver itself: a checkout of tinygrad/tinygrad, with a Python
that has numpy, pytest, hypothesis and torch, clang in PATH, and libLLVM where LLVM_PATH says. Each file runs on one node; its tests are told
apart by pytest. What a test skips is not listed."""

import os
import re
import sys

import judges

options = judges.arguments(__doc__, "a checkout of tinygrad", "MAINARCH_JUDGE_TINYGRAD")

# File, GPUs, environment beside DEV=AMD.
FILES = [
    ("test/test_tiny.py", 1, {}),
    ("test/device/test_hcq.py", 2, {}),
    ("test/opt/test_tensor_cores.py", 4, {}),
    ("test/backend/test_multitensor.py", 8, {}),  # one that is everybody's, and some count on from it
    ("test/backend/test_dtype.py", 4, {}),
    ("test/backend/test_dtype_alu.py", 4, {}),
    ("test/backend/test_ops.py", 4, {}),
]
SECONDS = 3600  # for one file, at least


def files():
    """Those of FILES that this checkout has; names of folders change. --only with a file's name keeps to it."""
    for path, gpus, more in FILES:
        if options.only.endswith(".py") and options.only != os.path.basename(path):
            continue
        for place in (path, path.replace("test/device/", "test/"), path.replace("test/backend/", "test/"), path.replace("test/opt/", "test/"),
                      path.replace("test/", "test/unit/")):
            if os.path.exists(os.path.join(options.program, place)):
                yield place, gpus, more
                break


def run_file(chip, path, gpus, more):
    # A kernel of one work-item runs for half a minute on a busy machine; tinygrad gives up after that.
    env = dict(os.environ, PYTHONPATH=options.program, CACHELEVEL="0", DEV="AMD:LLVM", HCQDEV_WAIT_TIMEOUT_MS="600000", **more)
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "-o", "addopts=", "--color=no", path]
    return judges.run(options, judges.on_node(options, f"{chip}x{gpus}", command), env=env, cwd=options.program, timeout=max(SECONDS, options.timeout))


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
