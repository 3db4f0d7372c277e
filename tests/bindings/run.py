#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The bindings against the just-built library, as installed: run.py SOURCE BUILD WHAT [ARGUMENT...]
where WHAT is a function below."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from stage import environment, need, run, tool

source, build = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
rust, go = source / "bindings/rust", source / "bindings/go"


def cargo_version(cargo, env):
    text = subprocess.run([cargo, "--version"], env=env, text=True, capture_output=True).stdout
    print(text.strip(), flush=True)


def rust_tests():
    tools = need("cargo", "rustc", "pkg-config", "cc")
    env = environment(source, build)
    cargo_version(tools["cargo"], env)
    run([sys.executable, rust / "generate.py", "--check"], env, source)
    cargo = [tools["cargo"], "test", "--offline", "--locked", "--quiet"]
    # Not captured: what is skipped is said there. Documentation tests know no --nocapture.
    run([*cargo, "--workspace", "--tests", "--examples", "--", "--nocapture"], env, rust)
    run([*cargo, "--workspace", "--doc"], env, rust)


def rust_lint():
    tools = need("cargo", "rustc", "rustdoc", "rustfmt", "cargo-clippy", "pkg-config")
    env = environment(source, build) | {"RUSTDOCFLAGS": "-D warnings"}
    cargo, offline = tools["cargo"], ["--offline", "--locked"]
    run([cargo, "fmt", "--all", "--", "--check"], env, rust)
    run([cargo, "clippy", *offline, "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"],
        env, rust)
    run([cargo, "doc", *offline, "--quiet", "--workspace", "--no-deps"], env, rust)
    page = build / "bindings/rust/doc/mainarch/struct.Engine.html"
    if "Runs one step on this thread" not in page.read_text():
        sys.exit(f"{page} lacks the documentation of Engine::step")


def go_tests():
    tools = need("go", "pkg-config", "cc")
    env = environment(source, build) | {"GODEBUG": "cgocheck=2"}
    # Go's threads come and go, and each would get a heap arena of its own from the C library: that
    # is not what a leak looks like.
    env |= {"MALLOC_ARENA_MAX": "1"}
    run([tools["go"], "version"], env, go)
    race = race_detector(tools["go"], env)
    if race:
        run([tools["go"], "test", "-race", "-count=1", "-v", "./..."], env, go)
        run([tools["go"], "test", "-count=1", "-v", "-run", "NothingIsLeftBehind", "."], env, go)
    else:
        print("# SKIPPED the race detector: this Go has none, or no C compiler for it")
        run([tools["go"], "test", "-count=1", "-v", "./..."], env, go)


def race_detector(program, env):
    """Whether a program can be built with it, and run: not by qemu."""
    if "QEMU_LD_PREFIX" in env:
        return False
    with tempfile.TemporaryDirectory() as scratch:
        pathlib.Path(scratch, "main.go").write_text("package main\nfunc main() {}\n")
        pathlib.Path(scratch, "go.mod").write_text("module scratch\ngo 1.19\n")
        return subprocess.run([program, "build", "-race", "."], env=env, cwd=scratch,
                              capture_output=True).returncode == 0


def go_lint():
    tools = need("go", "gofmt", "pkg-config", "cc")
    env = environment(source, build)
    unformatted = subprocess.run([tools["gofmt"], "-l", "."], env=env, cwd=go, text=True,
                                 capture_output=True).stdout
    if unformatted:
        sys.exit(f"gofmt would change {unformatted}")
    run([tools["go"], "vet", "./..."], env, go)
    page = subprocess.run([tools["go"], "doc", "-all", "."], env=env, cwd=go, text=True,
                          capture_output=True, check=True).stdout
    exported = set(re.findall(r"^func (?:\(\w+ \*?\w+\) )?([A-Z]\w*)\(", page, re.M))
    print(f"{len(exported)} functions documented")
    for want in ("Open", "OpenModel", "Step", "Text", "Close"):
        if want not in exported:
            sys.exit(f"go doc lacks {want}")
    # Every exported function has a comment below it.
    bare = re.findall(r"^func .*\n(?!    )", page, re.M)
    if bare:
        sys.exit(f"without documentation: {''.join(bare)}")


def expected_text(env):
    """What the command writes after "In the beginning", greedily, in at most 64 tokens."""
    command = [env["MAINARCH_CLI"], "generate", "--greedy", "--max-tokens", "64", "--threads", "1",
               "--statistics", "--model", source / "tests/golden/trained", "In the beginning"]
    return subprocess.run(command, env=env, text=True, capture_output=True, check=True).stdout


def examples():
    """Each example writes what the command writes, and says what was wrong when it cannot."""
    env = environment(source, build)
    checkpoint, text = str(source / "tests/golden/trained"), expected_text(env)
    for name, command, flag, cwd in (("cargo", ["run", "--offline", "--locked", "--quiet", "--example",
                                                "generate", "--"], "--", rust),
                                     ("go", ["run", "./examples/generate"], "-", go)):
        program = tool(name)
        if program is None:
            print(f"# SKIPPED example: no {name} on this machine")
            continue
        command = [program, *command]

        def output(*arguments, code=0):
            done = subprocess.run([*command, *arguments], env=env, cwd=cwd, text=True,
                                  capture_output=True)
            if done.returncode != code:
                sys.exit(f"{name}: exit {done.returncode}\n{done.stdout}{done.stderr}")
            return done.stdout + done.stderr

        greedy, device, chat = f"{flag}greedy", [f"{flag}device", "cpu:2"], f"{flag}chat"
        for arguments in ([greedy], [greedy, *device]):
            written = output(*arguments, checkpoint, "In the beginning")
            if written != text:
                sys.exit(f"{name}: {written!r}, not {text!r}")
        answer = output(greedy, chat, checkpoint, "Which book is this from? Let there be light.")
        if len(answer.split()) < 2 or "<|" in answer:
            sys.exit(f"{name}: chat: {answer!r}")
        refused = output("/nonexistent", "x", code=1)
        if "not found" not in refused or "/nonexistent" not in refused:
            sys.exit(f"{name}: {refused!r}")
        print(f"{name}: {written.strip()!r}; chat: {answer.strip()!r}")


def snippet(language):
    page = (source / "README.md").read_text()
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", page, re.S | re.M)
    lines = len(text.strip().splitlines())
    if lines > 34:
        sys.exit(f"the {language} program of README.md has grown to {lines} lines")
    return text


def readme():
    """The programs of README.md, exactly as they stand there, in a project of a user's own."""
    env = environment(source, build)
    checkpoint, text = source / "tests/golden/trained", expected_text(env)
    scratch = build / "bindings/readme"
    (scratch / "rust/src").mkdir(parents=True, exist_ok=True)
    (scratch / "go").mkdir(exist_ok=True)
    manifest = ('[package]\nname = "readme"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n'
                f'mainarch = {{ path = "{rust}/mainarch" }}\n[workspace]\n')
    (scratch / "rust/Cargo.toml").write_text(manifest)
    (scratch / "rust/src/main.rs").write_text(snippet("rust"))
    (scratch / "go/go.mod").write_text(
        "module readme\n\ngo 1.19\n\nrequire mainarch.invalid/go/mainarch v0.0.0\n\n"
        f"replace mainarch.invalid/go/mainarch => {go}\n")
    (scratch / "go/main.go").write_text(snippet("go"))
    for name, command, cwd in (("cargo", ["run", "--offline", "--quiet", "--"], scratch / "rust"),
                               ("go", ["run", "."], scratch / "go")):
        program = tool(name)
        if program is None:
            print(f"# SKIPPED README: no {name} on this machine")
            continue
        done = subprocess.run([program, *command, checkpoint, "In the beginning"], env=env, cwd=cwd,
                              text=True, capture_output=True)
        if done.returncode != 0 or done.stdout.strip() != text.strip() or "warning" in done.stderr:
            sys.exit(f"{name}: exit {done.returncode}: {done.stdout!r}, not {text!r}\n{done.stderr}")
        print(f"{name}: {done.stdout.strip()!r}")


if __name__ == "__main__":
    os.environ.pop("MAKEFLAGS", None)
    {f.__name__: f for f in (rust_tests, rust_lint, go_tests, go_lint, examples, readme)}[sys.argv[3]]()
