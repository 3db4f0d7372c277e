#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""AMD's compiled kernels (ROCm/aiter, hsa/gfx942 and hsa/gfx950): every object is loaded, every instruction decoded and looked up, and
the wait states are counted in both settings. An object is expected to pass: loaded, nothing unknown, nothing that is not carried out,
and, if its kernel has a measured row with error 0 in the tuning tables of the checkout, no finding in the setting "known". The list
names only those that do not."""

import csv
import glob
import os
import re
import subprocess
import sys

import judges

options = judges.arguments(__doc__, "a checkout of aiter", "MAINARCH_JUDGE_AITER")
SCAN = os.environ.get("MAINARCH_JUDGE_SCAN", "judge_scan_objects")  # tests/judges/scan_objects.cc, built
ERRORS = {"errRatio": "kernelName", "err_ratio": "kernelName", "err1": "kernelName1", "err2": "kernelName2"}


def chip_of(row):
    """The chip that a row was measured on; older tables say how many units it has."""
    return row.get("gfx") or {"80": "gfx942", "304": "gfx942", "256": "gfx950"}.get(row.get("cu_num", ""), "")


def measured_kernels():
    """{chip: names of kernels with a row of error 0}"""
    names = {chip: set() for chip in judges.CHIPS}
    for path in glob.glob(os.path.join(options.program, "aiter/configs/**/*.csv"), recursive=True):
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                for error, kernel in ERRORS.items():
                    text = (row.get(error) or "").rstrip("%")
                    mangled = re.match(r"_ZN5aiter(\d+)(.*)E$", row.get(kernel) or "")
                    if re.fullmatch(r"0(\.0*)?", text) and mangled and chip_of(row) in names:
                        names[chip_of(row)].add(mangled.group(2)[: int(mangled.group(1))])
    return names


measured = measured_kernels()
lines = {}


def scan(chip):
    if chip not in lines:
        root = os.path.join(options.program, "hsa", chip)
        paths = sorted(glob.glob(os.path.join(root, "**/*.co"), recursive=True))
        if not paths:
            sys.exit(f"{root}: no objects")
        ended = subprocess.run([*options.before.split(), SCAN], input="\n".join(paths) + "\n", capture_output=True, text=True, check=True)
        lines[chip] = {os.path.relpath(line.split()[0], root): line for line in ended.stdout.splitlines()}
        findings = sum(line.split(" # ")[0].count(":known=") > 0 for line in lines[chip].values())
        rows = sum(os.path.basename(n)[:-3] in measured[chip] for n in lines[chip])
        print(f"aiter on {chip}: {len(paths)} objects, {rows} with measured rows, {findings} with findings in known")
    return lines[chip]


def verdict_of(chip, name):
    line = scan(chip)[name]
    said = line.split(" # ")[0].split()
    if said[1] != "loads" or said[3] != "0" or said[4] != "0":
        return "fail", line
    if os.path.basename(name)[:-3] in measured[chip] and any(":known=" in word for word in said[5:]):
        return "fail", line
    return "pass", line


judges.judge(options, "aiter", lambda chip: sorted(scan(chip)), verdict_of, quiet=True)
