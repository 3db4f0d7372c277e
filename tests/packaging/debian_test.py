#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds the Debian packages from a clean copy of the tree, looks at them, installs them, uses them,
and makes the image of them. TAP; every part that cannot run says why.

usage: debian_test.py SOURCE_ROOT SCRATCH [--built DIRECTORY] [PART...]

--built: of what this build directory holds (debian/rules, MAINARCH_BUILT); without it, or with
MAINARCH_TEST_FULL in the environment, all is compiled once more. SCRATCH is kept. Packages are built anew when a file of the tree that goes into them has changed;
where ccache is installed it helps. Nothing of this machine changes: packages are installed in an
overlay over its root, in a mount namespace that ends with the test.
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time

ONLY = sys.argv[3:]
BUILT = None
if ONLY[:1] == ["--built"]:
    BUILT, ONLY = pathlib.Path(ONLY[1]).resolve(), ONLY[2:]
    if os.environ.get("MAINARCH_TEST_FULL"):
        BUILT = None
SOURCE, SCRATCH = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
VERSION = re.match(r"\w+ \((.*?)\)", (SOURCE / "debian/changelog").read_text()).group(1)
TREE = SCRATCH / f"mainarch-{VERSION}"
MAX_IMAGE_MB = 120
NAMES = ["libmainarch0", "libmainarch0-sim", "libmainarch-dev", "mainarch-tools", "librust-mainarch-dev", "golang-mainarch-dev"]
# What each package holds; "LIB" is usr/lib/<triplet>.
FILES = {
    "libmainarch0": ["LIB/libmainarch.so.0", f"LIB/libmainarch.so.{VERSION}",
                     "lib/udev/rules.d/60-libmainarch0.rules"],
    "libmainarch-dev": ["LIB/libmainarch.so", "LIB/pkgconfig/mainarch.pc", "usr/include/mainarch.h"],
    "libmainarch0-sim": ["LIB/mainarch/libmainarch-sim.so", "LIB/mainarch/libmainarch-sim-preload.so"],
    "mainarch-tools": ["usr/bin/mainarch", "usr/share/bash-completion/completions/mainarch"] +
                      [f"usr/share/man/man{page.suffix[1:]}/{page.name}.gz" for page in (SOURCE / "src/cli/man").glob("*.[15]")],
    # At least; the sources themselves are not listed twice.
    "librust-mainarch-dev": [f"REGISTRY/mainarch-sys-{VERSION}/build.rs"] +
                            [f"REGISTRY/{crate}-{VERSION}/{name}" for crate in ("mainarch", "mainarch-sys")
                             for name in ("Cargo.toml", "src/lib.rs", ".cargo-checksum.json")],
    "golang-mainarch-dev": ["GO/go.mod", "GO/doc.go", "GO/engine.go", "GO/examples/generate/main.go"],
}
SOURCES = {"REGISTRY/": "usr/share/cargo/registry/",
           "GO/": "usr/share/gocode/src/mainarch.invalid/go/mainarch/"}
# The preloaded object stands in for the C library's own functions, so it cannot be fortified. The
# node is compiled with the flag, as blhc sees below, but no checked call is left: gcc makes one in
# Process::Ioctl, whose memset has a length of 14 bits from a request number, and drops it again,
# because the array has room for any of these; of what the others write to it knows no size.
UNFORTIFIED = ["libmainarch-sim-preload.so", "libmainarch-sim.so"]
# Never in an image: other runtimes, tools to build or download with.
DENIED = re.compile(r"rocm|hip\b|libhsa|hsakmt|amdhip|cuda|python|perl|\bgcc\b(?!-12-base)|clang|llvm|"
                    r"/apt|/curl|/wget|dpkg-deb|\.a$|include/", re.I)


class Skip(Exception):
    pass


def run(*words, cwd=None, env=None, check=True, out=subprocess.PIPE):
    """A command's output, both streams. The variables of the test run do not go into it."""
    clean = {k: v for k, v in os.environ.items()
             if k not in ("LD_LIBRARY_PATH", "MALLOC_PERTURB_", "CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS")}
    done = subprocess.run([str(w) for w in words], cwd=cwd, env={**clean, "LC_ALL": "C.UTF-8", **(env or {})},
                          text=True, stdout=out, stderr=subprocess.STDOUT)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))[:200]} ended with {done.returncode}\n{done.stdout or ''}")
    return done.stdout


def need(condition, what):
    if not condition:
        raise AssertionError(what)


def tool(name):
    if not shutil.which(name):
        raise Skip(f"{name} is absent")


def tree_files():
    """Of the tree, what git knows or would; without git, all but build directories."""
    if (SOURCE / ".git").exists():
        listed = run("git", "-c", "safe.directory=*", "-C", SOURCE, "ls-files", "-z", "--cached", "--others",
                     "--exclude-standard")
        return sorted(name for name in listed.split("\0") if name and (SOURCE / name).exists())
    return sorted(str(p.relative_to(SOURCE)) for p in SOURCE.rglob("*")
                  if p.is_file() and not p.relative_to(SOURCE).parts[0].startswith(("build", ".git")))


def export(names):
    shutil.rmtree(TREE, ignore_errors=True)
    for name in names:
        (TREE / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(SOURCE / name, TREE / name)


def digest(names):
    """Of all that the packages are made of: not the tests, nor what else stands beside."""
    whole = hashlib.sha256()
    for name in names:
        if name.startswith("debian/tests/"):
            continue
        if name.startswith(("src/", "kernels/", "include/", "debian/", "bindings/")) or name in ("meson.build", "meson_options.txt"):
            whole.update(name.encode() + b"\0" + (SOURCE / name).read_bytes())
    return whole.hexdigest()


def packages():
    architecture = run("dpkg", "--print-architecture").strip()
    return {name: SCRATCH / f"{name}_{VERSION}_{'all' if name.startswith('golang') else architecture}.deb"
            for name in NAMES}


def changes():
    return next(SCRATCH.glob("*.changes"))


def unpacked(name):
    return SCRATCH / "unpacked" / name


def lib():
    return "usr/lib/" + run("dpkg-architecture", "-qDEB_HOST_MULTIARCH").strip()


def part_build():
    for name in ("dpkg-buildpackage", "dh"):
        tool(name)
    names = tree_files()
    stamp, key = SCRATCH / "built", digest(names)
    fresh = not BUILT and stamp.exists() and stamp.read_text() == key and all(p.exists() for p in packages().values())
    if not fresh:
        for old in [*SCRATCH.glob("*.deb"), *SCRATCH.glob("*.changes"), *SCRATCH.glob("*.buildinfo"), stamp]:
            old.unlink(missing_ok=True)
    export(names)
    if not fresh:
        began = time.monotonic()
        # No debug symbols: they take as long as the rest. -Wp and the like stay.
        options = {"DEB_BUILD_OPTIONS": f"nocheck noautodbgsym parallel={os.cpu_count()}",
                   "DEB_CFLAGS_STRIP": "-g", "DEB_CXXFLAGS_STRIP": "-g", "MAINARCH_BUILT": str(BUILT or "")}
        with (SCRATCH / "build.log").open("w") as log:
            try:
                run("dpkg-buildpackage", "-us", "-uc", "-b", cwd=TREE, env=options, out=log)
            except AssertionError:
                tail = (SCRATCH / "build.log").read_text().splitlines()[-60:]
                raise AssertionError("dpkg-buildpackage failed:\n" + "\n".join(tail)) from None
        stamp.write_text(key)
        print(f"# built in {time.monotonic() - began:.0f} s")
    shutil.rmtree(SCRATCH / "unpacked", ignore_errors=True)
    for name, path in packages().items():
        need(path.exists(), f"no {path.name} was built")
        unpacked(name).mkdir(parents=True)
        run("dpkg-deb", "-x", path, unpacked(name))
        print(f"# {path.name}: {path.stat().st_size / 1e6:.2f} MB")


def part_lintian():
    tool("lintian")
    report = run("lintian", "--allow-root", "--profile", "debian", "--display-info", "--pedantic",
                 "--show-overrides", "--fail-on", "error,warning", changes(), check=False)
    for line in report.splitlines():
        print("# " + line)
    need(not re.search(r"^[EW]: ", report, re.M), "lintian finds errors or warnings")
    for name in SOURCE.glob("debian/*lintian-overrides"):
        lines = name.read_text().splitlines()
        for before, line in zip([""] + lines, lines):
            need(not line or line.startswith("#") or before.startswith("#"), f"{name.name}: no reason for: {line}")


def part_contents():
    for name in NAMES:
        held = {str(p.relative_to(unpacked(name))) for p in unpacked(name).rglob("*") if not p.is_dir()}
        places = {"LIB/": lib() + "/", **SOURCES}
        wanted = {re.sub("^[A-Z]+/", lambda match: places[match.group()], path) for path in FILES[name]}
        for path in sorted(wanted - held):
            raise AssertionError(f"{name} lacks {path}")
        for path in sorted(held - wanted):
            need(path.startswith(("usr/share/doc/" + name, "usr/share/lintian/")) or
                 re.search(r"/src/\w+\.rs$|/examples/\w+\.rs$", path) or
                 re.search(r"/mainarch/(\w+|examples/\w+/\w+)(?<!_test)\.go$", path),
                 f"{name} holds {path}, which nobody expects")
    for path in elf_files():
        for place in (SCRATCH, BUILT or SCRATCH):
            need(str(place).encode() not in path.read_bytes(), f"{path.name} names the place where it was built")
        dynamic = run("readelf", "-d", path)
        need("RPATH" not in dynamic and "RUNPATH" not in dynamic, f"{path.name} has an rpath")
        need(".debug_info" not in run("readelf", "-S", path), f"{path.name} is not stripped")


def elf_files():
    found = [p for name in NAMES for p in unpacked(name).rglob("*")
             if p.is_file() and not p.is_symlink() and p.read_bytes()[:4] == b"\x7fELF"]
    need(len(found) == 4, f"{len(found)} programs and libraries, not 4")
    return found


def part_symbols():
    """Against libmainarch0.symbols, the list of exports and that of imports: as built for users."""
    report = run("dpkg-gensymbols", "-c4", "-plibmainarch0", f"-P{unpacked('libmainarch0')}",
                 f"-I{SOURCE}/debian/libmainarch0.symbols", "-O/dev/null", f"-v{VERSION}", cwd=TREE)
    need("---" not in report, report)
    library = unpacked("libmainarch0") / lib() / "libmainarch.so.0"
    for test in (["exports.py", library, SOURCE], ["imports.py", SOURCE, SCRATCH, library]):
        print("# " + run(sys.executable, SOURCE / "tests/abi" / test[0], *test[1:]).strip())


def part_hardening():
    tool("hardening-check")
    for path in elf_files():
        report = run("hardening-check", "--nocfprotection", path, check=False)
        for line in report.splitlines()[1:]:
            print(f"# {path.name}:{line}")
            if "Fortify" in line and path.name in UNFORTIFIED:
                continue
            need(not re.search(r": no\b", line) or "(ignored)" in line, f"{path.name}: {line.strip()}")
    if not shutil.which("blhc"):
        print("# SKIPPED hardening of each compiler's call: blhc is absent")
        return
    # part_build leaves -g out. GPU code is for another machine; see UNFORTIFIED for the other. Meson links with -pie alone, and that
    # the result is one has been checked above.
    log = SCRATCH / "build.log"
    if BUILT:
        log = SCRATCH / "commands.log"
        packed = [p for p in json.loads(run("meson", "introspect", "--installed", BUILT)) if os.access(p, os.X_OK)]
        # blhc looks at what follows such a line.
        log.write_text("dpkg-buildpackage: info: source package mainarch\n" +
                       run("ninja", "-C", BUILT, "-t", "commands", *(os.path.relpath(p, BUILT) for p in packed)))
    report = run("blhc", "--all", "--ignore-flag", "-fPIE", "--ignore-flag", "-g", "--ignore-line", ".*--target=amdgcn-amd-amdhsa.*",
                 "--ignore-line", r".*-U_FORTIFY_SOURCE.*preload\.cc.*", log, check=False)
    need(not report.strip(), report[:4000])


IN_ROOT = r"""
set -eu
mkdir -p "$SCRATCH/overlay"
mount -t tmpfs -o mode=755 overlay "$SCRATCH/overlay"
cd "$SCRATCH/overlay"
mkdir up work root
mount -t overlay -o "lowerdir=/,upperdir=up,workdir=work" overlay root || exit 77
mount --bind "$SCRATCH" "root$SCRATCH"
mount -t proc proc root/proc
mount --rbind /dev root/dev
cp "$SCRATCH/in_root.sh" root/tmp/in_root.sh
exec chroot root /bin/sh -eu /tmp/in_root.sh
"""

# In the overlay, as its administrator. $1..: the packages.
USE = r"""
export DEBIAN_FRONTEND=noninteractive HOME=/root
unset LD_LIBRARY_PATH PKG_CONFIG_PATH || :
cd "$SCRATCH"
# As README.md says it.
apt-get install -q -y PACKAGES
dpkg -s NAMES | grep -c '^Status: install ok installed' | grep -qx COUNT
# What the library was built with must not be needed to use it.
dpkg --force-depends --purge libabsl-dev libsimdjson-dev libxxhash-dev \
  libdrm-dev clang-22 lld-22 llvm-22 >/dev/null 2>&1
ldconfig -p | grep -q 'libmainarch.so.0 '
cd "$TREE"
for name in $(sed -n 's/^Tests: //p' debian/tests/control); do
  echo "== autopkgtest $name"
  AUTOPKGTEST_TMP=$(mktemp -d)
  export AUTOPKGTEST_TMP
  "debian/tests/$name"
done
udevadm_rules=/lib/udev/rules.d/60-libmainarch0.rules
test -s "$udevadm_rules"
echo "== removal"
dpkg --purge NAMES
for left in /usr/bin/mainarch /usr/include/mainarch.h "$udevadm_rules" /usr/lib/*/libmainarch* /usr/lib/*/mainarch \
  /usr/share/cargo/registry/mainarch* /usr/share/gocode/src/mainarch.invalid; do
  test ! -e "$left" || { echo "left behind: $left"; exit 1; }
done
ldconfig -p | grep libmainarch && exit 1
echo "== done"
"""


def part_install():
    if os.geteuid() != 0:
        raise Skip("installing packages needs root")
    tool("unshare")
    paths = " ".join(f'"{path}"' for path in packages().values())
    (SCRATCH / "in_root.sh").write_text(USE.replace("PACKAGES", paths).replace("NAMES", " ".join(NAMES))
                                       .replace("COUNT", str(len(NAMES))))
    done = subprocess.run(["unshare", "-m", "sh", "-c", IN_ROOT], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=900,
                          env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                               "SCRATCH": str(SCRATCH), "TREE": str(TREE), "LC_ALL": "C.UTF-8"})
    (SCRATCH / "install.log").write_text(done.stdout)
    if done.returncode == 77:
        raise Skip("this machine lets no overlay be mounted")
    need(done.returncode == 0 and "== done" in done.stdout, done.stdout[-6000:])
    for line in done.stdout.splitlines():
        if line.startswith(("== ", "# SKIPPED")):
            print("# " + line.removeprefix("# "))


def make_image(name):
    shutil.rmtree(SCRATCH / name, ignore_errors=True)
    shutil.rmtree(SCRATCH / "root", ignore_errors=True)
    debs = packages()
    done = subprocess.run([sys.executable, SOURCE / "tools/image", "--root", SCRATCH / "root", SCRATCH / name,
                           debs["libmainarch0"], debs["mainarch-tools"]], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0 and "apt-get" in done.stdout:
        raise Skip("no package registry: " + done.stdout.splitlines()[0])
    need(done.returncode == 0, done.stdout)
    print("# " + done.stdout.strip())
    return SCRATCH / name


def part_image():
    image = make_image("image")
    need(json.loads((image / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}, "oci-layout")

    def blob(descriptor):
        data = (image / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
        need(len(data) == descriptor["size"], "a blob's size")
        need("sha256:" + hashlib.sha256(data).hexdigest() == descriptor["digest"], "a blob's digest")
        return data

    index = json.loads((image / "index.json").read_text())
    need(len(index["manifests"]) == 1, "one image")
    manifest = json.loads(blob(index["manifests"][0]))
    config = json.loads(blob(manifest["config"]))
    need(len(list((image / "blobs/sha256").iterdir())) == 3, "three blobs")
    blob(manifest["layers"][0])
    layer = image / "blobs" / manifest["layers"][0]["digest"].replace(":", "/")
    with tarfile.open(layer, "r:gz") as tar:
        members = tar.getmembers()
    size = sum(m.size for m in members)
    print(f"# {len(members)} entries, {size / 1e6:.1f} MB of files")
    need(size < MAX_IMAGE_MB * 1e6, f"{size / 1e6:.1f} MB of files, more than {MAX_IMAGE_MB}")
    names = {m.name for m in members}
    for name in ("usr/bin/mainarch", f"{lib()}/libmainarch.so.0", "etc/passwd", "etc/ld.so.cache",
                 "usr/share/doc/libmainarch0/copyright", "var/lib/dpkg/status.d/libc6"):
        need(name in names, f"no {name}")
    for name in sorted(names):
        need(not DENIED.search(name), f"{name} does not belong into the image")
    need(all(m.uid == m.gid == 0 and not m.uname for m in members), "somebody owns a file")
    need(config["config"]["Entrypoint"] == ["/usr/bin/mainarch"], "entry point")
    # A second run has the same bytes.
    again = make_image("image-again")
    need((again / "index.json").read_text() == (image / "index.json").read_text(), "two runs, two images")
    shutil.rmtree(again)


def part_image_by_umoci():
    tool("umoci")
    if os.geteuid() != 0:
        raise Skip("unpacking with owners needs root")
    shutil.rmtree(SCRATCH / "bundle", ignore_errors=True)
    run("umoci", "unpack", "--image", f"{SCRATCH}/image:mainarch:{VERSION}", SCRATCH / "bundle")
    config = json.loads((SCRATCH / "bundle/config.json").read_text())
    need(config["process"]["args"] == ["/usr/bin/mainarch", "help"], config["process"]["args"])
    in_root(SCRATCH / "bundle/rootfs")
    shutil.rmtree(SCRATCH / "bundle")


def in_root(root):
    """The command, in the image and nothing else."""
    model = SOURCE / "tests/golden/trained"
    (root / "models").mkdir(exist_ok=True)
    shutil.copytree(model, root / "models/trained", dirs_exist_ok=True)

    def mainarch(*words):
        return run("chroot", root, "/usr/bin/mainarch", *words)

    need(mainarch("version").startswith(f"mainarch {VERSION}\n"), "version")
    text = mainarch("generate", "--model", "/models/trained", "--greedy", "--max-tokens", "16", "--no-statistics",
                    "In the beginning")
    print("# in the image: In the beginning" + text.strip("\n"))
    need(len(text.split()) >= 8, "hardly any text")
    # An image has no virtual node, and the command says which package would bring it.
    need(not list(root.rglob("libmainarch-sim*")), "the virtual node is in the image")
    said = run("chroot", root, "/usr/bin/mainarch", "topology", "--device", "sim:gfx950x2", check=False)
    need("libmainarch0-sim" in said, said)
    need("gfx950" in mainarch("kernels") and "gfx942" in mainarch("kernels"), "kernels")


def part_image_runs():
    if os.geteuid() != 0:
        raise Skip("chroot needs root")
    in_root(SCRATCH / "root")


PARTS = [part_build, part_lintian, part_contents, part_symbols, part_hardening, part_install, part_image,
         part_image_by_umoci, part_image_runs]


def main():
    SCRATCH.mkdir(parents=True, exist_ok=True)
    wanted = [p for p in PARTS if not ONLY or p.__name__.removeprefix("part_") in ONLY]
    print(f"1..{len(wanted)}", flush=True)
    failed, broken = 0, None
    for number, part in enumerate(wanted, 1):
        name = part.__name__.removeprefix("part_")
        began = time.monotonic()
        try:
            if broken:
                raise Skip(broken)
            part()
            print(f"# {name}: {time.monotonic() - began:.1f} s")
            print(f"ok {number} - {name}", flush=True)
        except Skip as reason:
            print(f"# SKIPPED {name}: {reason}\nok {number} - {name} # SKIP {reason}", flush=True)
            broken = broken or (f"not built: {reason}" if part is part_build else None)
        except (AssertionError, OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
            failed += 1
            print("".join(f"# {line}\n" for line in f"{type(error).__name__}: {error}".splitlines()), end="")
            print(f"not ok {number} - {name}", flush=True)
            broken = broken or ("the packages were not built" if part is part_build else None)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
