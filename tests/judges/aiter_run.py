#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""AMD's compiled kernels (ROCm/aiter) executed on the virtual node, as they are, with operands that we make; results are compared with numpy's.
A kernel runs with every checker on and what production kernels show to be forgiven (`check=all,hazards=known`), and, where a checker stops it,
without. Verdicts: pass; noted (right, and a checker stopped it: the list says with what); fail (wrong); refused; skip (how it is called is not
written here)."""

import sys

import judges

options = judges.arguments(__doc__, "a checkout of aiter", "MAINARCH_JUDGE_AITER")
try:
    import numpy  # noqa: F401
except ImportError:
    print("skipped: no numpy")
    sys.exit(judges.SKIPPED)

import aiter_attention
import aiter_launch
import aiter_moe
import aiter_products

FAMILIES = [aiter_products, aiter_moe, aiter_attention]
# Short turns: some kernels overwrite in LDS what other waves have just read, with no barrier between, and one uses a load's result a little
# before another wave has it there (README.md).
CHECKED, PLAIN = "check=all,hazards=known,slice=16", "slice=1"
found = {}


def cases(chip):
    if chip not in found:
        found[chip] = {case.name: case for family in FAMILIES for case in family.cases(options.program, chip)}
    return found[chip]


def verdict_of(chip, name):
    case = cases(chip)[name]
    checked = aiter_launch.run(options, chip, case, options.program, CHECKED)
    if checked.verdict in ("pass", "skip"):
        return checked.verdict, checked.text
    plain = aiter_launch.run(options, chip, case, options.program, PLAIN)
    return ("noted" if plain.verdict == "pass" else plain.verdict), plain.text + "\nwith checkers:\n" + checked.text


judges.judge(options, "aiter_run", lambda chip: sorted(cases(chip)), verdict_of)
