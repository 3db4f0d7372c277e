#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Code objects and their descriptions as a C++ file that defines isa::KernelImages().

  embed.py --objcopy llvm-objcopy --out kernel_images_data.cc a.hsaco a.json b.hsaco b.json ...

Of debug information, three quarters of an object, only lines are kept: nobody reads the rest.
The output depends on the contents of the inputs alone: no path, no time.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

HEAD = """// SPDX-License-Identifier: MIT
// Made by kernels/tools/embed.py.
#include "isa/kernel_images.h"

namespace mainarch::isa {
namespace {

"""
FIELDS = ("vgprs", "agprs", "sgprs", "lds_bytes", "kernarg_bytes", "threads", "code_bytes",
          "end_at", "way_back_at")


def literal(data, width=32):
    lines = []
    for at in range(0, len(data), width):
        lines.append('    "' + "".join(f"\\{b:03o}" for b in data[at:at + width]) + '"')
    return "\n".join(lines)


UNREAD = ("abbrev", "addr", "aranges", "frame", "info", "loc", "loclists", "ranges", "rnglists", "str", "str_offsets")


def with_lines_alone(objcopy, path):
    """The bytes of a code object without what nobody reads."""
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "object"
        subprocess.run([objcopy, *(f"--remove-section=.debug_{name}" for name in UNREAD), path, out], check=True)
        return out.read_bytes()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--objcopy", required=True)
    parser.add_argument("inputs", nargs="+")
    args = parser.parse_args()
    images = []
    for code_path, info_path in zip(args.inputs[::2], args.inputs[1::2]):
        code = with_lines_alone(args.objcopy, code_path)
        with open(info_path, encoding="utf-8") as file:
            images.append((json.load(file), code))
    images.sort(key=lambda image: (image[0]["isa"], image[0]["name"]))
    with open(args.out, "w", encoding="utf-8") as out:
        out.write(HEAD)
        for i, (info, code) in enumerate(images):
            out.write(f"alignas(64) constexpr unsigned char kBytes{i}[] =\n{literal(code)};\n")
            out.write(f"constexpr KernelInfo kKernels{i}[] = {{\n")
            for kernel in info["kernels"]:
                numbers = ", ".join(f".{f} = {kernel[f]}" for f in FIELDS)
                out.write(f'    {{.name = "{kernel["name"]}", {numbers}}},\n')
            out.write("};\n")
        out.write("constexpr KernelImage kImages[] = {\n")
        for i, (info, code) in enumerate(images):
            out.write(f'    {{.name = "{info["name"]}", .isa = "{info["isa"]}", '
                      f'.bytes = {{kBytes{i}, {len(code)}}}, .kernels = kKernels{i}}},\n')
        out.write("};\n\n}  // namespace\n\n")
        out.write("absl::Span<const KernelImage> KernelImages() { return kImages; }\n\n")
        out.write("}  // namespace mainarch::isa\n")


if __name__ == "__main__":
    main()
