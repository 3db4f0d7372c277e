#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints what ninja must build for some tests, and no more. They are named as to `meson test`; with none but
suites to leave out, it is all that is built by default, but for what those tests alone want.

usage: test_targets.py BUILD_DIRECTORY [TEST | --suite SUITE | --no-suite SUITE]...
"""
import json
import os
import pathlib
import sys

build = pathlib.Path(sys.argv[1])
words = iter(sys.argv[2:])
names, suites, without = set(), set(), set()
for word in words:
    if word == "--suite":
        suites.add(next(words))
    elif word == "--no-suite":
        without.add(next(words))
    else:
        names.add(word)
if not names and not suites and not without:
    sys.exit(0)  # ninja's own default


def read(what):
    return json.loads((build / "meson-info" / f"intro-{what}.json").read_text(encoding="utf-8"))


def suites_of(test):
    return {suite.split(":")[-1] for suite in test["suite"]}  # each is "project:name"


def targets_of(these):
    return {target for test in these for target in test["depends"]}


every = not names and not suites
tests = [test for test in read("tests")
         if (every or test["name"] in names or suites & suites_of(test)) and not without & suites_of(test)]
unknown = names - {test["name"] for test in tests}
if unknown or not tests:
    sys.exit(f"{build}: no tests {' '.join(sorted(unknown | suites))}")
wanted = targets_of(tests)
if every:
    others = targets_of(read("tests")) - wanted
    wanted |= {target["id"] for target in read("targets")
               if target["installed"] or (target["build_by_default"] and target["id"] not in others)}
print("\n".join(sorted({os.path.relpath(name, build.resolve()) for target in read("targets")
                        if target["id"] in wanted for name in target["filename"]})))
