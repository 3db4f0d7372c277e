#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""AMD's conformance suite of the kernel driver, kfdtest (ROCm/rocm-systems, projects/rocr-runtime/libhsakmt/tests/kfdtest): each test
in a process of its own on a node of two GPUs."""

import judges

options = judges.arguments(__doc__, "a built kfdtest", "MAINARCH_JUDGE_KFDTEST")


# They read all the memory that they allocate, or all there is: VRAM of the node is memory of the host once it is touched.
NEED_MEMORY = ("KFDEvictTest.QueueTest", "KFDEvictTest.BurstyTest", "KFDLocalMemoryTest.CheckZeroInitializationVram")
NEEDED_GB = 320


def has_memory():
    with open("/proc/meminfo") as file:
        kilobytes = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:"))
    return kilobytes >> 20 >= NEEDED_GB


def node(chip):
    return f"{chip}x2"


def tests_of(chip):
    command = judges.on_node(options, node(chip), [options.program, "--gtest_list_tests"])
    suite, names = "", []
    for line in judges.run(options, command).text.splitlines():
        word = line.split("#")[0].rstrip()
        if line.startswith("  ") and suite and word:
            names.append(suite + word.strip())
        elif word.endswith(".") and " " not in word:
            suite = word
    return [n for n in names if "DISABLED" not in n]


def verdict_of(chip, test):
    if test in NEED_MEMORY and not has_memory():
        return "skip", f"not run: it needs {NEEDED_GB} GB of memory\n"
    ended = judges.run(options, judges.on_node(options, node(chip), [options.program, f"--gtest_filter={test}"]))
    text = ended.text
    if ended.code is None:
        return "timeout", text
    if "[  FAILED  ]" in text:
        return "fail", text
    if "[       OK ]" not in text:
        return "crash", text
    return ("skip" if "kipping" in text or "skipped" in text.lower() else "pass"), text


judges.judge(options, "kfdtest", tests_of, verdict_of)
