#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What dlopen of the library does is on record: the shared objects that it brings along, and no
constructors. A host pays some 50 us for each object, and a constructor in every file was 115 of them.

A new object fails the test: it is to be judged, and then added to the list.
"""
import os
import re
import subprocess
import sys

# In the order of loading: the C++ run-time first, because its own 4,000 symbols are looked for in
# everything before it.
NEEDED = ["libstdc++.so.6", "libabsl_strings.so", "libabsl_throw_delegate.so", "libsimdjson.so",
          "libm.so.6", "libgcc_s.so.1", "libc.so.6"]
# What those load in turn, and the program's interpreter.
BEHIND = {"libabsl_strings_internal.so", "libabsl_raw_logging_internal.so", "ld-linux-x86-64.so", "ld-linux-aarch64.so"}
CONSTRUCTORS = 1  # the compiler's own, frame_dummy
# AArch64: its interpreter is a library, too (the canary), and atomics ask once what the CPU has.
AARCH64_NEEDED, AARCH64_CONSTRUCTORS = ["ld-linux-aarch64.so"], 2


def run(*command):
    return subprocess.run(command, check=True, text=True, capture_output=True).stdout


def lister():
    """ldd; under qemu (tools/arm64) the interpreter itself."""
    prefix = os.environ.get("QEMU_LD_PREFIX")
    return (f"{prefix}/lib/ld-linux-aarch64.so.1", "--list") if prefix else ("ldd",)


def unversioned(name):
    """libfoo.so.14 as libfoo.so; the run-time's own names have never changed."""
    return name if name in NEEDED else re.sub(r"\.so\..*", ".so", name)


def main():
    library = sys.argv[1]
    dynamic = run("readelf", "-dW", library)
    needed = [unversioned(n) for n in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)]
    aarch64 = "AArch64" in run("readelf", "-hW", library)
    expected = NEEDED + (AARCH64_NEEDED if aarch64 else [])
    allowed = AARCH64_CONSTRUCTORS if aarch64 else CONSTRUCTORS
    bad = []
    if needed != expected:
        bad.append(f"needs {needed}, expected {expected}")
    loaded = {unversioned(line.split()[0].rsplit("/", 1)[-1]) for line in
              run(*lister(), library).splitlines() if "vdso" not in line and not line.strip().startswith("(")}
    more = loaded - set(NEEDED) - BEHIND
    if more:
        bad.append(f"loads {sorted(more)} besides")
    size = re.search(r"\(INIT_ARRAYSZ\)\s+(\d+)", dynamic)
    constructors = int(size[1]) // 8 if size else 0
    if constructors > allowed:
        bad.append(f"runs {constructors} constructors, expected {allowed}")
    for line in bad:
        print(f"{library}: {line}")
    print(f"{len(needed)} objects needed, {len(loaded)} loaded, {constructors} constructors, "
          f"{len(bad)} wrong")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
