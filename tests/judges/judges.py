# SPDX-License-Identifier: MIT
"""What the judges have in common: programs that others wrote, run on the virtual node, and a list of what each of their tests is
expected to say. A list has one line a test: its name, its verdict (pass, skip, fail, crash, timeout; fail/timeout is either) and, where
that is not pass, behind a # why. A judge fails when a test says something else than its line, or has none; --update writes the lists anew and keeps
the reasons. README.md of this folder says where the programs come from."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
CHIPS = ("gfx942", "gfx950")
SKIPPED = 77  # what meson takes for a skipped test


def arguments(description, program_help, variable):
    """The command line of a judge. `variable` may name the program too."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("program", nargs="?", default=os.environ.get(variable), help=f"{program_help} (or ${variable})")
    parser.add_argument("--mainarch", default=os.environ.get("MAINARCH", "mainarch"), help="the command")
    parser.add_argument("--chip", action="append", choices=CHIPS, help="default: both")
    parser.add_argument("--only", default="", help="tests whose name contains this")
    parser.add_argument("--settings", default="", help="more node settings, as seed=3")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--before", default="", help="words in front of every command, as a queue for the machine's processors")
    parser.add_argument("--timeout", type=float, default=150, help="seconds for one test")
    parser.add_argument("--logs", help="a folder for what each test printed")
    parser.add_argument("--update", action="store_true", help="write the lists")
    options = parser.parse_args()
    options.chip = options.chip or list(CHIPS)
    if not options.program:
        print(f"skipped: no path given: {program_help} as argument or in ${variable}")
        sys.exit(SKIPPED)
    if not os.path.exists(options.program):
        sys.exit(f"{options.program}: no such file or directory")
    options.program = os.path.abspath(options.program)
    if options.logs:
        os.makedirs(options.logs, exist_ok=True)
    return options


class Run:
    """One program that has ended. `code` is None when it ran out of time."""

    def __init__(self, code, text, seconds):
        self.code, self.text, self.seconds = code, text, seconds


def end_session(session):
    """Ends what a program has left running."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
            if int(fields[3]) == session:
                os.kill(int(entry), signal.SIGKILL)
        except OSError:
            pass  # it has ended by itself


def run(options, command, env=None, cwd=None, timeout=None):
    """Runs a command in a session of its own; timeout(1) limits it, and begins to count behind --before."""
    begun = time.monotonic()
    timeout = timeout or options.timeout
    limit = ["timeout", "--signal=KILL", str(timeout)]
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen([*options.before.split(), *limit, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=cwd, start_new_session=True)
        code = child.wait()
        end_session(child.pid)
        out.seek(0)
        text = out.read().decode(errors="replace")
    seconds = time.monotonic() - begun
    return Run(None if code in (-9, 137) and seconds >= timeout else code, text, seconds)


def on_node(options, node, command):
    """`command` on a virtual node."""
    if options.settings:
        node += "," + options.settings
    return [options.mainarch, "sim", "--node", node, "--", *command]


def read_list(path):
    """{name: (verdict, reason)}"""
    lines = {}
    if not os.path.exists(path):
        return lines
    with open(path) as file:
        for line in file:
            text, _, reason = line.partition("#")
            words = text.split()
            if words:
                lines[words[0]] = (words[1], reason.strip())
    return lines


def write_list(path, verdicts, before):
    with open(path, "w") as file:
        for name, verdict in verdicts.items():
            was, reason = before.get(name, (verdict, ""))
            verdict = was if verdict in was.split("/") else verdict
            keep = reason and was == verdict
            file.write(f"{name} {verdict}" + (f"  # {reason}" if keep else "") + "\n")


def compare(name, verdicts, expected):
    """Prints and counts what differs."""
    wrong = 0
    for test, verdict in verdicts.items():
        wanted = expected.get(test, ("nothing: it is not in the list", ""))[0]
        if verdict not in wanted.split("/"):
            print(f"{name}: {test}: {verdict}, expected {wanted}")
            wrong += 1
    counts = {}
    for verdict in verdicts.values():
        counts[verdict] = counts.get(verdict, 0) + 1
    print(f"{name}: {len(verdicts)} tests: " + ", ".join(f"{n} {v}" for v, n in sorted(counts.items())))
    return wrong


def judge(options, name, tests_of, verdict_of, quiet=False):
    """tests_of(chip) -> names; verdict_of(chip, test) -> (verdict, text). Exits with the result. `quiet`: too many tests to name
    them all; the list has those alone that do not pass."""
    wrong = 0
    for chip in options.chip:
        path = os.path.join(HERE, f"{name}.{chip}.txt")
        expected = read_list(path)
        tests = [t for t in tests_of(chip) if options.only in t]
        if not tests:
            sys.exit(f"{name} on {chip}: no test is called so")

        def one(test, chip=chip):
            verdict, text = verdict_of(chip, test)
            if options.logs:
                with open(os.path.join(options.logs, f"{name}.{chip}.{test.replace('/', '_')}.txt"), "w") as file:
                    file.write(text)
            if not quiet:
                print(f"  {chip} {test} {verdict}", flush=True)
            return verdict

        with ThreadPoolExecutor(options.jobs) as pool:
            verdicts = dict(zip(tests, pool.map(one, tests)))
        if quiet:
            expected = {**dict.fromkeys(verdicts, ("pass", "")), **expected}
        if options.update:
            kept = {n: v for n, (v, _) in expected.items()} if options.only else {}
            listed = {n: v for n, v in {**kept, **verdicts}.items() if not quiet or v != "pass"}
            write_list(path, listed, expected)
            expected = {n: (v, "") for n, v in verdicts.items()}
        wrong += compare(f"{name} on {chip}", verdicts, expected)
        for test in [] if options.only else expected:
            if test not in verdicts:
                print(f"{name} on {chip}: {test} is in the list and was not run")
                wrong += 1
    sys.exit(1 if wrong else 0)
