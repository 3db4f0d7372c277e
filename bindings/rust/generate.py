#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The raw Rust declarations, from include/mainarch.h: the sources of mainarch-sys, and the table that
its layout test compares with a C compiler. All are checked in; a test says when they are old.

  generate.py            writes them
  generate.py --check    says whether they are as the header is
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
HEADER = HERE.parent.parent / "include" / "mainarch.h"
SOURCES = HERE / "mainarch-sys" / "src"
TABLE = HERE / "mainarch-sys" / "tests" / "layout" / "table.rs"
WIDTH = 100

C_TYPES = {"char": "c_char", "int": "c_int", "void": "c_void", "float": "f32", "size_t": "usize",
           "int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64"}

MADE = """// SPDX-License-Identifier: MIT
// Made by bindings/rust/generate.py from include/mainarch.h: do not edit.

"""

HEAD = MADE + """//! Raw declarations of `libmainarch`, as `mainarch.h` has them. The crate `mainarch` is the safe one.
//!
//! Statuses and all other codes are integers, never Rust enums: a newer library may give new ones.
//!
//! # The header
//!
"""

MODULES = """
#![allow(non_camel_case_types)]

mod constants;
mod functions;
mod types;

pub use constants::*;
pub use functions::*;
pub use types::*;
"""

CONSTANTS_HEAD = MADE + """//! Codes, flags and the header's version.

"""

TYPES_HEAD = MADE + """//! Structs, handles, callbacks and names of numbers.

use std::marker::{PhantomData, PhantomPinned};
use std::os::raw::{c_char, c_int, c_void};

"""

FUNCTIONS_HEAD = MADE + """//! Every function.

use std::os::raw::{c_char, c_int, c_void};

use crate::types::*;

"""

ITEM = re.compile(
    r"/\*(?P<comment>.*?)\*/"
    r"|^#define (?P<define>MAINARCH_\w+) (?P<value>UINT64_C\(\d+\)|UINT32_MAX|\d+)"
    r"|^enum \{(?P<enum>.*?)\};"
    r"|^typedef struct \w+ \{(?P<fields>.*?)\} (?P<struct>\w+);"
    r"|^typedef struct (?P<opaque>\w+) \w+;"
    r"|^typedef (?P<result>\w+) \(\*(?P<callback>\w+)\)\((?P<arguments>[^)]*)\);"
    r"|^typedef (?P<plain>\w+) (?P<alias>\w+);"
    r"|^MAINARCH_API (?P<check>MAINARCH_CHECK )?(?P<returns>[^;(]*?)(?P<function>mainarch_\w+)"
    r"\((?P<parameters>[^)]*)\);", re.S | re.M)


def rust_type(text):
    """The Rust of a C type such as `const char *const *`."""
    base, *pointers = text.split("*")
    words = base.split()
    constant = "const" in words
    (name,) = [w for w in words if w != "const"]
    rust = C_TYPES.get(name, name)
    for pointer in pointers:
        rust = ("*const " if constant else "*mut ") + rust
        constant = "const" in pointer
    return rust


def rust_name(name):
    return {"from": "from_", "fn": "fn_"}.get(name, name)


def parameter(text):
    match = re.fullmatch(r"\s*(.*?[\s*])(\w+)\s*", text, re.S)
    return rust_name(match.group(2)), rust_type(match.group(1))


def parameters(text):
    return [] if text.strip() == "void" else [parameter(p) for p in text.split(",")]


def escape(line):
    """Text for rustdoc, which reads brackets and angles."""
    line = re.sub(r"([\[\]<>])", r"\\\1", line)
    return re.sub(r"(?<![`\w/])\*(?=\S)", r"\\*", line)


def doc(comment, indent=""):
    lines = [re.sub(r"^\s*\*? ?", "", line).rstrip() for line in comment.strip().split("\n")]
    return "".join(f"{indent}/// {escape(line)}".rstrip() + "\n" for line in lines)


def preface(comment):
    """The comment at the head of the header, as documentation of the crate."""
    lines = [re.sub(r"^ \* ?", "", line).rstrip() for line in comment.strip("\n").split("\n")]
    out, block = [], False
    for line in lines:
        if line.startswith("----"):
            line = ""
        shown = line.startswith("  ") and not block and bool(re.match(r"  (mainarch_|append)", line))
        if shown or (block and line.startswith("  ")):
            if not block:
                out.append("```text")
            block = True
            out.append(line)
            continue
        if block:
            out.append("```")
            block = False
        table = re.match(r"  (group, |decoder  |engine and|  +second|MAINARCH_(LOG|BACK|DEV))", line)
        out.append(("* " if table else "") + escape(line.strip()))
    return "".join(f"//! {line}".rstrip() + "\n" for line in out)


def constant_type(name):
    return "u32" if name.startswith(("MAINARCH_FINISH", "MAINARCH_VERSION")) else "i32"


def words(name):
    return re.sub(r"^mainarch_(error_)?", "", name.lower()).replace("_", " ")


class Writer:
    def __init__(self):
        self.preface, self.constants, self.out, self.table, self.functions = "", [], [], [], []

    def constant(self, name, rust, value, comment):
        self.constants.append(f"{doc(comment)}pub const {name}: {rust} = {value};\n")
        self.table.append(f"    constant!({name});\n")

    def enumeration(self, body, comment):
        title = "" if "ended" in comment else comment
        for name, value, after in re.findall(
                r"(MAINARCH_\w+) = (-?\d+),?[ \t]*(?:/\*(.*?)\*/)?", body, re.S):
            text = after.strip() or title or f"{words(name)}"
            self.constant(name, constant_type(name), value, text)
        self.out.append("\n")

    def struct(self, name, body, comment):
        zero = "; zero is the default of every field" if name.endswith("_options") else ""
        text = doc(comment or f"{words(name).capitalize()}{zero}.")
        text += f"#[repr(C)]\n#[derive(Clone, Copy, Debug)]\npub struct {name} {{\n"
        fields = re.findall(r"(\w[\w *]*[ *])(\w+)(?:\[(\d+)\])?;[ \t]*(?:/\*(.*?)\*/)?", body, re.S)
        self.table.append(f"    size!({name});\n")
        for c, field, count, after in fields:
            rust = rust_type(c)
            rust = f"[{rust}; {count}]" if count else rust
            meaning = after.strip() or ("`size_of` this struct." if field == "struct_size" else "")
            text += doc(meaning, "    ") if meaning else f"    /// {field.replace('_', ' ')}\n"
            text += f"    pub {rust_name(field)}: {rust},\n"
            self.table.append(f"    field!({name}, {field});\n")
        text += "}\n\n"
        if fields[0][1] == "struct_size":
            text += (f"impl Default for {name} {{\n"
                     "    /// All zero but for `struct_size`.\n"
                     "    fn default() -> Self {\n"
                     "        // SAFETY: integers, floats, null pointers and None are all zeros.\n"
                     "        let mut zero: Self = unsafe { std::mem::zeroed() };\n"
                     "        zero.struct_size = std::mem::size_of::<Self>();\n"
                     "        zero\n    }\n}\n\n")
        self.out.append("\n" + text)

    def opaque(self, name, comment):
        self.out.append(
            f"{doc(comment or 'Opaque.')}#[repr(C)]\npub struct {name} {{\n    _data: [u8; 0],\n"
            "    _not_send: PhantomData<(*mut u8, PhantomPinned)>,\n}\n\n")

    def callback(self, name, result, arguments, comment):
        line = ", ".join(f"{n}: {t}" for n, t in parameters(arguments))
        ret = "" if result == "void" else f" -> {rust_type(result)}"
        text = f"pub type {name} =\n    Option<unsafe extern \"C\" fn({line}){ret}>;\n\n"
        self.out.append(doc(comment) + text)

    def function(self, name, returns, text, check, comment):
        ret = "" if returns.strip() == "void" else f" -> {rust_type(returns)}"
        pieces = [f"{n}: {t}" for n, t in parameters(text)]
        line = f"    pub fn {name}({', '.join(pieces)}){ret};"
        if len(line) > WIDTH:
            body = "".join(f"        {p},\n" for p in pieces)
            line = f"    pub fn {name}(\n{body}    ){ret};"
        info = "Fills `out`, whose `struct_size` the caller has set, as the fields of its struct say."
        comment = comment or (info if name.endswith("_get") else f"{words(name).capitalize()}.")
        must = "    #[must_use]\n" if check else ""
        self.functions.append(doc(comment, "    ") + must + line + "\n")
        self.table.append(f"    function!({name});\n")


def used(head, body):
    """The head with only those C types imported that the body names."""
    names = [name for name in ("c_char", "c_int", "c_void") if re.search(rf"\b{name}\b", body)]
    listed = "{" + ", ".join(names) + "}" if len(names) > 1 else names[0]
    return head.replace("{c_char, c_int, c_void}", listed)


def generate():
    header = HEADER.read_text()
    start = header.index("/*\n")
    writer, comment, end = Writer(), "", 0
    for match in ITEM.finditer(header, start):
        adjacent = header[end:match.start()] == "\n"
        end = match.end()
        if match["comment"] is not None:
            text = match["comment"]
            if match.start() == start:
                writer.preface = preface(text)
            comment = "" if "-----" in text or match.start() == start else text.strip()
            continue
        if match["define"] is not None:
            # A comment behind it is its own; one above stands for the first of a run.
            after = re.match(r"[ \t]*/\*(.*?)\*/", header[end:], re.S)
            text = after.group(1).strip() if after else comment if adjacent else ""
            value = re.sub(r"UINT64_C\((\d+)\)", r"\1", match["value"])
            rust = "u64" if "UINT64" in match["value"] else "u32"
            value = "u32::MAX" if value == "UINT32_MAX" else value
            writer.constant(match["define"], rust, value, text or "Version of the header that this was made from.")
            comment = ""
            continue
        comment = comment if adjacent else ""
        if match["enum"] is not None:
            writer.enumeration(match["enum"], comment)
        elif match["struct"]:
            writer.struct(match["struct"], match["fields"], comment)
        elif match["opaque"]:
            writer.opaque(match["opaque"], comment)
        elif match["callback"]:
            writer.callback(match["callback"], match["result"], match["arguments"], comment)
        elif match["alias"]:
            writer.out.append(f"{doc(comment or 'See the header.')}pub type {match['alias']} = "
                              f"{rust_type(match['plain'])};\n\n")
        else:
            writer.function(match["function"], match["returns"], match["parameters"],
                            match["check"], comment)
        comment = ""
    types = re.sub(r"\n\n\n+", "\n\n", "".join(writer.out))
    functions = "extern \"C\" {\n" + "\n".join(writer.functions) + "}\n"
    table = (MADE + "pub fn entries() -> Vec<String> {\n    let mut entries = Vec::new();\n"
             + "".join(line.replace("!(", "!(entries, ") for line in writer.table)
             + "    entries\n}\n")
    return {SOURCES / "lib.rs": HEAD + writer.preface + MODULES,
            SOURCES / "constants.rs": CONSTANTS_HEAD + "".join(writer.constants),
            SOURCES / "types.rs": used(TYPES_HEAD, types) + types.strip() + "\n",
            SOURCES / "functions.rs": used(FUNCTIONS_HEAD, functions) + functions, TABLE: table}


def main():
    stale = False
    for path, text in generate().items():
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.relative_to(HERE.parent.parent)} is not as include/mainarch.h: run "
                  "bindings/rust/generate.py")
            stale = True
    sys.exit(1 if stale else 0)


if __name__ == "__main__":
    main()
