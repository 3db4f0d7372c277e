#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A file that a comment names exists: by its path, by the end of it, or, as a bare name, in the
comment's own folder or once in the whole tree."""
import pathlib
import re
import shutil
import subprocess
import sys

SOURCES = {".h", ".cc", ".c", ".py", ".build", ".rs", ".go", ".sh"}
# What comments look like, and what in them looks like a file of ours.
COMMENT = {".py": r"#(.*)", ".build": r"#(.*)", ".sh": r"#(.*)"}
NAME = re.compile(
    r"(?<![\w./<>*{$@-])((?:[\w-]+/)*[\w-]+\.(?:h|cc|py|md|build|sh|rs|go|map))(?![\w/*}>:])")
# Named as sources, and not in this tree: the project's references, and headers of the kernel's.
ELSEWHERE = {"models.md", "silicon.md", "kfd.md", "soc15_hw_ip.h", "amdgpu/amdgpu_doorbell.h", "amdgpu_drm.h",
             "asic_reg/gc/gc_9_4_3_offset.h", "sdma_registers.h"}
EACH = {"prims.h"}  # one an ISA
FROZEN = "tests/abi/v0/"  # a client with the header of its day


def main():
    root = pathlib.Path(sys.argv[1])
    files = []
    if shutil.which("git"):
        listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"],
                                capture_output=True, text=True)
        files = listed.stdout.splitlines() if listed.returncode == 0 else []
    if not files:  # a copy without its history; what builds make is not of the tree
        files = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
        files = [file for file in files if not re.match(r"\.|build|obj-", file)]
    files = [file for file in files if (root / file).is_file()]
    ends, known, bad = {}, set(files), 0
    files = [file for file in files if not file.startswith(FROZEN)]
    for file in files:
        parts = file.split("/")
        for i in range(len(parts)):
            ends.setdefault("/".join(parts[i:]), []).append(file)
    for file in files:
        suffix = pathlib.Path(file).suffix
        if suffix not in SOURCES:
            continue
        text = (root / file).read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            comment = re.search(COMMENT.get(suffix, r"(?://|^\s*/?\*)(.*)"), line)
            if not comment:
                continue
            for name in NAME.findall(comment.group(1)):
                found = ends.get(name, [])
                near = [str(folder / name) for folder in pathlib.Path(file).parents]
                if any(path in known for path in near) or ("/" in name and found) or len(found) == 1:
                    continue
                if name in ELSEWHERE or name in EACH:
                    continue
                bad += 1
                print(f"{file}:{number}: names {name}: " +
                      (f"is it {' or '.join(found)}?" if found else "there is no such file"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
