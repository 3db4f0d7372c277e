#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""AMD's rocminfo over AMD's runtime: what it says of a node of eight GPUs, point by point. A runtime that is older than the chips takes
them for what HSA_OVERRIDE_GFX_VERSION says (Debian's 5.2.3: 9.0.10), and is then expected to say that."""

import os
import re

import judges

options = judges.arguments(__doc__, "a built rocminfo", "MAINARCH_JUDGE_ROCMINFO")

NAMES = {"gfx942": "AMD Instinct MI300X", "gfx950": "AMD Instinct MI355X"}
UNITS = {"gfx942": "304", "gfx950": "256"}


OVERRIDE = os.environ.get("HSA_OVERRIDE_GFX_VERSION")


def isa_of(chip):
    return "gfx" + "".join(f"{int(n):x}" for n in OVERRIDE.split(".")) if OVERRIDE else chip


def value_of(agent, key):
    found = re.search(rf"^  *{re.escape(key)}: *(.*?) *$", agent, re.M)
    return found.group(1) if found else ""


CHECKS = {
    "ends_well": lambda chip, text, gpus: "*** Done ***" in text,
    "eight_gpus": lambda chip, text, gpus: len(gpus) == 8,
    "isa": lambda chip, text, gpus: all(value_of(g, "Name") == isa_of(chip) for g in gpus),
    "marketing_name": lambda chip, text, gpus: all(value_of(g, "Marketing Name") == NAMES[chip] for g in gpus),
    "compute_units": lambda chip, text, gpus: all(value_of(g, "Compute Unit") == UNITS[chip] for g in gpus),
    "wavefront": lambda chip, text, gpus: all(value_of(g, "Wavefront Size").startswith("64") for g in gpus),
    "pools": lambda chip, text, gpus: all(len(re.findall(r"^  *Pool \d", g, re.M)) >= 3 for g in gpus),
    "uuids_differ": lambda chip, text, gpus: len({value_of(g, "Uuid") for g in gpus}) == 8,
}

texts = {}


def verdict_of(chip, test):
    if chip not in texts:
        texts[chip] = judges.run(options, judges.on_node(options, f"{chip}x8", [options.program]))
    ended = texts[chip]
    if ended.code is None:
        return "timeout", ended.text
    agents = re.split(r"^\*+ *\nAgent \d+ *\n\*+", ended.text, flags=re.M)[1:]
    gpus = [a for a in agents if value_of(a, "Device Type") == "GPU"]
    return ("pass" if CHECKS[test](chip, ended.text, gpus) else "fail"), ended.text


judges.judge(options, "rocminfo", lambda chip: list(CHECKS), verdict_of)
