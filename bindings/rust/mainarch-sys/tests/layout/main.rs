// SPDX-License-Identifier: MIT
//! Every size, offset, constant and function of the crate, against what a C compiler makes of the
//! installed header. What is to be found there is read from the header here, not from the
//! generator of the crate.

use mainarch_sys::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

macro_rules! constant {
    ($to:ident, $name:ident) => {
        $to.push(format!("{} = {}", stringify!($name), $name as i64))
    };
}
macro_rules! size {
    ($to:ident, $name:ident) => {
        $to.push(format!("{}: {} bytes", stringify!($name), std::mem::size_of::<$name>()))
    };
}
macro_rules! field {
    ($to:ident, $name:ident, $field:ident) => {{
        let whole = std::mem::MaybeUninit::<$name>::zeroed();
        // SAFETY: zeros are a value of every struct of the header.
        let whole = unsafe { whole.assume_init() };
        let at = std::ptr::addr_of!(whole.$field) as usize - std::ptr::addr_of!(whole) as usize;
        let bytes = std::mem::size_of_val(&whole.$field);
        $to.push(format!("{}.{} at {at}, {bytes} bytes", stringify!($name), stringify!($field)));
    }};
}
macro_rules! function {
    ($to:ident, $name:ident) => {{
        assert!(!($name as *const ()).is_null()); // it links
        $to.push(format!("{}()", stringify!($name)));
    }};
}
include!("table.rs");

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    for (i, part) in text.split("/*").enumerate() {
        out += if i == 0 { part } else { part.split_once("*/").map_or("", |(_, rest)| rest) };
    }
    out
}

fn pkg_config(argument: &str) -> Vec<String> {
    let output = Command::new(env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into()))
        .args([argument, "mainarch"])
        .output()
        .expect("pkg-config");
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().split_whitespace().map(String::from).collect()
}

fn header(flags: &[String]) -> String {
    let directories = flags.iter().filter_map(|flag| flag.strip_prefix("-I"));
    let candidates = directories.chain(["/usr/include", "/usr/local/include"]);
    let path = candidates.map(|d| Path::new(d).join("mainarch.h")).find(|p| p.exists()).unwrap();
    without_comments(&fs::read_to_string(path).unwrap())
}

/// A C program that prints what the header holds, in the words of the macros above.
fn probe(header: &str) -> String {
    let mut lines = Vec::new();
    for line in header.lines().map(str::trim) {
        let name = line.strip_prefix("#define ").unwrap_or(line).split(' ').next().unwrap();
        let is_value = line.starts_with("#define")
            && line.chars().last().map_or(false, |c| c == ')' || c == 'X' || c.is_ascii_digit())
            && !line.contains("__attribute__");
        let is_enumerator = line.starts_with("MAINARCH_") && line.contains(" = ");
        if name.starts_with("MAINARCH_") && (is_value || is_enumerator) {
            lines.push(format!("printf(\"{name} = %lld\\n\", (long long){name});\n"));
        }
    }
    for block in header.split("typedef struct ").skip(1) {
        let declaration = block.split_once('}').map_or("", |(body, _)| body);
        let (name, body) = match declaration.split_once(" {") {
            Some((name, body)) if !name.contains(';') => (name, body),
            _ => continue, // opaque
        };
        lines.push(format!("printf(\"{name}: %zu bytes\\n\", sizeof({name}));\n"));
        for declared in body.split(';').map(str::trim).filter(|d| !d.is_empty()) {
            let declared = declared.split('[').next().unwrap();
            let field = declared.rsplit([' ', '*']).next().unwrap();
            lines.push(format!(
                "printf(\"{name}.{field} at %zu, %zu bytes\\n\", offsetof({name}, {field}), \
                 sizeof((({name} *)0)->{field}));\n"
            ));
        }
    }
    for declared in header.split("MAINARCH_API ").skip(1) {
        let before = declared.split('(').next().unwrap();
        let name = before.rsplit(|c: char| c.is_whitespace() || c == '*').next().unwrap();
        if name.starts_with("mainarch_") {
            lines.push(format!("printf(\"{name}()\\n\");\n"));
        }
    }
    format!(
        "#include <mainarch.h>\n#include <stdio.h>\nint main(void) {{\n{}return 0; }}\n",
        lines.concat()
    )
}

#[test]
fn the_layout_is_that_of_the_header() {
    let flags = pkg_config("--cflags");
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (directory.join("probe.c"), directory.join("probe"));
    fs::write(&source, probe(&header(&flags))).unwrap();
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut words = compiler.split_whitespace();
    let status = Command::new(words.next().unwrap())
        .args(words)
        .args(&flags)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .status()
        .expect("a C compiler");
    assert!(status.success());
    let output = Command::new(&program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let c: BTreeSet<String> = text.lines().map(String::from).collect();
    let rust: BTreeSet<String> = entries().into_iter().collect();
    assert!(c.len() > 200, "the header was not understood:\n{text}");
    let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| {
        a.difference(b).cloned().collect::<Vec<_>>().join("\n  ")
    };
    assert_eq!(
        c,
        rust,
        "\nonly in C:\n  {}\nonly in Rust:\n  {}",
        only(&c, &rust),
        only(&rust, &c)
    );
}

#[test]
fn the_library_is_the_one_that_was_staged() {
    // SAFETY: no arguments.
    let version = unsafe { mainarch_version() };
    let [major, minor, patch] =
        [MAINARCH_VERSION_MAJOR, MAINARCH_VERSION_MINOR, MAINARCH_VERSION_PATCH];
    assert_eq!(version, major << 16 | minor << 8 | patch);
    assert_eq!(env!("CARGO_PKG_VERSION"), format!("{major}.{minor}.{patch}"));
}
