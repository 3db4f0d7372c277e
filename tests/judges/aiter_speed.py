#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How many wave-instructions a second of processor time the virtual node's interpreter runs of AMD's compiled products, in functional mode
and with one thread. Speeds of a simulator; they say nothing of any GPU.

usage: aiter_speed.py CHECKOUT [--mainarch PROGRAM] [--lanes portable|avx2|avx512 ...]"""

import argparse
import json
import os
import resource
import subprocess
import tempfile

import aiter_launch
import aiter_products

KERNELS = [("gfx942", "bf16gemm/bf16gemm_fp32bf16_tn_64x64_splitk_clean"), ("gfx950", "bf16gemm/bf16gemm_bf16_tn_256x256"),
           ("gfx942", "fp8gemm_blockscale/fp8gemm_bf16_blockscale_BpreShuffle_128x128"),
           ("gfx950", "fp8gemm_blockscale/fp8gemm_bf16_blockscale_BpreShuffle_128x128"),
           ("gfx942", "i8gemm/I8gemm_bf16_perTokenI8_BpreShuffle_128x128"), ("gfx950", "f4gemm/f4gemm_bf16_per1x32Fp4_BpreShuffle_128x512")]
RUNS = 20


def timed(command):
    """Seconds of processor time of a command, and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout")
    parser.add_argument("--mainarch", default=os.environ.get("MAINARCH", "mainarch"))
    parser.add_argument("--lanes", action="append", choices=("portable", "avx2", "avx512"), help="default: avx2")
    options = parser.parse_args()
    aiter_products.K = 8192
    print("M wave-instructions a second   " + "  ".join(options.lanes or ["avx2"]))
    for chip, name in KERNELS:
        case = next(c for c in aiter_products.cases(options.checkout, chip) if c.name == name)
        with tempfile.TemporaryDirectory(prefix="mainarch-judge-") as folder:
            launch = aiter_launch.Launch(chip, os.path.join(os.path.abspath(options.checkout), case.object), case.kernel, folder)
            case.make(launch)
            paths = {}
            for runs in (1, RUNS):
                paths[runs] = os.path.join(folder, f"launch{runs}")
                with open(paths[runs], "w") as file:
                    file.write(launch.text() + f"runs {runs}\n")
            base = [options.mainarch, "time", "--json", "--waits", "0", "--launch"]
            counted = json.loads(timed([*base, paths[1], "--no-results", "--device", f"sim:{chip},threads=1"])[1])
            instructions = sum(run["instructions"] for run in counted["launches"]) * (RUNS - 1)
            speeds = []
            for lanes in options.lanes or ["avx2"]:
                one, many = (timed([*base, paths[runs], "--no-clock", "--device", f"sim:{chip},threads=1,lanes={lanes}"])[0] for runs in (1, RUNS))
                speeds.append(f"{instructions / (many - one) / 1e6:6.2f}")
        print(f"{chip} {name:70} " + "  ".join(speeds), flush=True)


if __name__ == "__main__":
    main()
