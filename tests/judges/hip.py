#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""HIP programs: those of hip/, which are ours, compiled by a HIP compiler and linked with AMD's libamdhip64, on nodes of two GPUs. One
test is one case of one program."""

import os
import re
import sys
import tempfile

import judges

options = judges.arguments(__doc__, "a HIP installation (lib/libamdhip64.so, include/hip, amdgcn/bitcode)", "MAINARCH_JUDGE_HIP")
COMPILER = os.environ.get("MAINARCH_JUDGE_HIP_COMPILER", "clang++-22")

SOURCES = os.path.join(judges.HERE, "hip")
LIBRARIES = os.path.join(options.program, "lib")
# IPC by dma-bufs: the older way needs calls of AMD's own kernel package.
ENVIRONMENT = dict(os.environ, HSA_ENABLE_IPC_MODE_LEGACY="0", LD_LIBRARY_PATH=":".join(filter(None, [LIBRARIES, os.environ.get("LD_LIBRARY_PATH")])))
folder = tempfile.TemporaryDirectory(prefix="mainarch-judge-hip-")
results = {}


def programs():
    return sorted(name[:-4] for name in os.listdir(SOURCES) if name.endswith(".hip"))


def compile_program(name):
    """Its path; both chips' code is in it."""
    path = os.path.join(folder.name, name)
    if not os.path.exists(path):
        command = [COMPILER, "-x", "hip", "-std=c++17", "-O2", "-Wno-deprecated-declarations", f"--rocm-path={options.program}"]
        command += [f"--offload-arch={chip}" for chip in judges.CHIPS]
        command += [os.path.join(SOURCES, name + ".hip"), f"-L{LIBRARIES}", f"-Wl,-rpath-link,{LIBRARIES}", "-lamdhip64", "-lhiprtc", "-o", path]
        ended = judges.run(options, command)
        if ended.code != 0:
            sys.exit(f"{' '.join(command)}\n{ended.text}")
    return path


def cases_of(name):
    """The cases as the source lists them, so that a program that dies leaves none out."""
    with open(os.path.join(SOURCES, name + ".hip")) as file:
        return re.findall(r'\{"(\w+)", [\w\[]', file.read().rpartition("judge::Run(")[2])


def verdict_of(chip, test):
    name, case = test.split(".")
    if (chip, name) not in results:
        results[chip, name] = judges.run(options, judges.on_node(options, f"{chip}x2", [compile_program(name)]), env=ENVIRONMENT)
    ended = results[chip, name]
    said = re.search(rf"^(pass|fail) {case}\b", ended.text, re.M)
    if said:
        return said.group(1), ended.text
    return ("timeout" if ended.code is None else "crash"), ended.text


options.jobs = 1  # the cases of a program share its run
judges.judge(options, "hip", lambda chip: [f"{name}.{case}" for name in programs() for case in cases_of(name)], verdict_of)
