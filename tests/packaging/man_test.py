#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The manual pages and what the command says of itself agree, and the pages render clean.

usage: man_test.py MAINARCH PAGE...
"""
import pathlib
import re
import shutil
import subprocess
import sys

OPTION = r"--[a-z][a-z0-9-]*"


def of_help(mainarch, command):
    """Commands and options of `mainarch help`, or of `mainarch help COMMAND`."""
    words = [mainarch, "help"] + ([command] if command else [])
    text = subprocess.run(words, check=True, text=True, capture_output=True).stdout
    usage = " ".join(line for line in text.splitlines() if line.startswith("usage:"))
    options = set(re.findall(rf"^  ({OPTION})", text, re.M)) | set(re.findall(rf"\[({OPTION})", usage))
    return set(re.findall(r"^  ([a-z][a-z-]*)  ", text, re.M)) - {"help"}, options - {"--help"}


def of_page(text):
    """Commands and options that a page describes: the tags of its lists."""
    options = {"--" + name for name in re.findall(r"^\.It Fl Fl ([a-z][a-z0-9-]*)", text, re.M)}
    synopsis = re.search(r"^\.Sh SYNOPSIS\n(.*?)^\.Sh ", text, re.M | re.S).group(1)
    options |= {"--" + name for name in re.findall(r"Fl Fl ([a-z][a-z0-9-]*)", synopsis)}
    return set(re.findall(r"^\.It Cm ([a-z][a-z-]*)", text, re.M)), options


def rendered(page):
    """What a reader sees, and what the formatter complains of."""
    done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", page], text=True, check=True,
                          capture_output=True, env={"MANWIDTH": "100", "LC_ALL": "C.UTF-8",
                                                    "PATH": "/usr/bin:/bin"})
    return done.stdout, done.stderr


def differences(what, page, described, real):
    for name in sorted(real - described):
        yield f"{page}: nothing about {what} {name}"
    for name in sorted(described - real):
        yield f"{page}: {what} {name} is not there any more"


def check(mainarch, path, commands):
    text = path.read_text(encoding="utf-8")
    name, section = path.name.rsplit(".", 1)
    headings = ("NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO")
    if section == "1":
        yield from check_command(mainarch, path, text, name, commands)
    else:  # a page about a file
        headings = ("NAME", "DESCRIPTION", "EXAMPLES", "SEE ALSO")
    yield from check_rendered(path, text, name, headings)


def check_command(mainarch, path, text, name, commands):
    command = name.removeprefix("mainarch").removeprefix("-")
    if command and command not in commands:
        yield f"{path.name}: there is no command {command}"
        return
    described_commands, described = of_page(text)
    if command:
        yield from differences("the option", path.name, described, of_help(mainarch, command)[1])
    else:
        yield from differences("the command", path.name, described_commands - {"help"}, commands)


def check_rendered(path, text, name, headings):
    for other, section in re.findall(r"^\.Xr mainarch-([a-z-]+) (\d)", text, re.M):
        if not (path.parent / f"mainarch-{other}.{section}").exists():
            yield f"{path.name}: refers to mainarch-{other}({section}), which is not there"
    if not shutil.which("man"):
        return
    page, warnings = rendered(path)
    for line in warnings.splitlines():
        yield f"{path.name}: {line}"
    for heading in headings:
        if not re.search(rf"^{heading}$", page, re.M):
            yield f"{path.name}: has no {heading}"
    if f"{name} — " not in page:
        yield f"{path.name}: its NAME is of no use to whatis(1)"


def main():
    mainarch, pages = sys.argv[1], [pathlib.Path(p) for p in sys.argv[2:]]
    if not shutil.which("man"):
        print("# SKIPPED rendering: man is absent")
    commands, _ = of_help(mainarch, "")
    wrong = [line for path in pages for line in check(mainarch, path, commands)]
    print("\n".join(wrong))
    print(f"{len(pages)} pages, {len(commands)} commands, {len(wrong)} differences")
    sys.exit(1 if wrong or not pages or not commands else 0)


if __name__ == "__main__":
    main()
