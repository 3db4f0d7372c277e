#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Adds up what meson noted of its last test run in each build directory."""
import json
import pathlib
import sys

passed = failed = skipped = 0
for build in sys.argv[1:]:
    log = pathlib.Path(build, "meson-logs", "testlog.json")
    if not log.exists():
        print(f"{build}: no tests ran")
        failed += 1
        continue
    for line in log.read_text(encoding="utf-8").splitlines():
        test = json.loads(line)
        result = test["result"]
        for text in test.get("stdout", "").splitlines():
            if text.startswith("# SKIPPED "):
                skipped += 1
                print(f"skipped: {build} {test['name']}: {text[len('# SKIPPED '):]}")
        if result in ("OK", "EXPECTEDFAIL"):
            passed += 1
        elif result == "SKIP":
            skipped += 1
            why = [line for line in test.get("stdout", "").splitlines() if line.startswith("skipped: ")]
            print(f"skipped: {build} {test['name']}: {why[0][len('skipped: '):] if why else 'no reason given'}")
        else:
            failed += 1
            print(f"failed: {build} {test['name']}: {result}")
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(1 if failed or not passed else 0)
