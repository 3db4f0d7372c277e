# SPDX-License-Identifier: MIT
"""An installed copy of the just-built library, and an environment in which cargo and go find that
copy and nothing else: no network, no home directory, all that they write inside the build
directory."""
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

# Debian's own first: a fresh Debian 12 has no other, and other versions hide what does not work there.
SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"


def tool(name):
    """The program of that name, or None: Debian's if it is there."""
    return shutil.which(name, path=SYSTEM_PATH) or shutil.which(name)


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def need(*names):
    """Where the programs are; ends the test as skipped if one is absent."""
    found = {name: tool(name) for name in names}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        skip(f"no {' and no '.join(missing)} on this machine")
    return found


def stage(build):
    """Installs the build below BUILD/bindings/stage unless that is up to date."""
    work = build / "bindings"
    work.mkdir(exist_ok=True)
    root, stamp = work / "stage", work / "stage.stamp"
    with open(work / "stage.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        built = [build / "src/api/libmainarch.so", build / "src/cli/mainarch",
                 build / "src/sim/part/libmainarch-sim.so",
                 build / "meson-private/mainarch.pc", build / "build.ninja"]
        newest = max(os.stat(path).st_mtime_ns for path in built if path.exists())
        if stamp.exists() and stamp.stat().st_mtime_ns >= newest:
            return root
        shutil.rmtree(root, ignore_errors=True)
        done = subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet",
                               "--destdir", root], text=True, capture_output=True)
        if done.returncode != 0:
            sys.exit(f"meson install:\n{done.stdout}{done.stderr}")
        stamp.write_text("")
        os.utime(stamp, ns=(newest, newest))
        return root


def tiny(build):
    """A checkpoint that opens in a fraction of a millisecond; made once."""
    directory = build / "bindings" / "tiny"
    with open(build / "bindings" / "stage.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "model.safetensors").exists():
            shutil.rmtree(directory, ignore_errors=True)
            sizes = ["--layers", "1", "--hidden", "32", "--vocab", "512", "--heads", "2",
                     "--kv-heads", "1", "--head-dim", "16", "--intermediate", "32"]
            subprocess.run([build / "src/cli/mainarch", "make-checkpoint", directory, "--preset",
                            "tiny", *sizes], check=True, stdout=subprocess.DEVNULL)
    return directory


def cross(work):
    """In a cross build for AArch64: how cargo and go make programs for it, which the kernel hands to qemu (tools/arm64)."""
    compiler = os.environ.get("MAINARCH_CROSS_CC", "")
    if not compiler:
        return {}
    linker = work / "cc"
    linker.write_text(f'#!/bin/sh\nexec {compiler} -Wno-unused-command-line-argument "$@"\n')
    linker.chmod(0o755)
    (sysroot,) = [word.partition("=")[2] for word in compiler.split() if word.startswith("--sysroot=")]
    target = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU"
    return {"GOARCH": "arm64", "CC": str(linker),
            "CARGO_BUILD_TARGET": "aarch64-unknown-linux-gnu", f"{target}_LINKER": str(linker),
            f"{target}_RUSTFLAGS": f"--sysroot={sysroot}/usr", "QEMU_LD_PREFIX": sysroot}


def environment(source, build):
    """For cargo, go and the programs that they build."""
    root = stage(build)
    (pc,) = root.rglob("mainarch.pc")
    work = build / "bindings"
    home = work / "home"
    home.mkdir(exist_ok=True)
    keep = {name: os.environ[name] for name in
            ("CC", "TMPDIR", "LANG", "MAINARCH_TEST_SIM") if name in os.environ}
    # Go 1.19 does not see that a compiler behind a launcher ("ccache gcc") knows -no-pie, and links
    # a position-independent program with warnings, which its race detector cannot run in.
    launcher, _, compiler = keep.get("CC", "").partition(" ")
    if pathlib.Path(launcher).name in ("ccache", "distcc", "sccache"):
        keep["CC"] = compiler.strip()
    return keep | {
        "PATH": SYSTEM_PATH + ":" + os.environ.get("PATH", ""),
        "HOME": str(home),
        "PKG_CONFIG_LIBDIR": str(pc.parent),
        "PKG_CONFIG_SYSROOT_DIR": str(root),
        "LD_LIBRARY_PATH": str(pc.parent.parent),
        "MAINARCH_SOURCE_ROOT": str(source),
        "MAINARCH_BUILD_ROOT": str(build),
        "MAINARCH_CLI": str(build / "src/cli/mainarch"),
        "MAINARCH_TINY": str(tiny(build)),
        "RUSTC": tool("rustc") or "rustc",
        "RUSTDOC": tool("rustdoc") or "rustdoc",
        "CARGO_HOME": str(work / "cargo-home"),
        "CARGO_TARGET_DIR": str(work / "rust"),
        "CARGO_NET_OFFLINE": "true",
        "CARGO_INCREMENTAL": "0",
        "GOCACHE": str(work / "go-cache"),
        "GOPATH": str(work / "go-path"),
        "GOFLAGS": "-mod=mod",
        "GOPROXY": "off",
        "GOSUMDB": "off",
        "GOTOOLCHAIN": "local",
        "GOENV": "off",
        "CGO_ENABLED": "1",
    } | cross(work)


def run(command, env, cwd):
    print("+", " ".join(str(word) for word in command), flush=True)
    done = subprocess.run(command, env=env, cwd=cwd)
    if done.returncode != 0:
        sys.exit(done.returncode if done.returncode > 0 else 1)
