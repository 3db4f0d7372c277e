// SPDX-License-Identifier: MIT
//! Finds libmainarch by the program pkg-config. `MAINARCH_LIB_DIR` names a directory instead,
//! `PKG_CONFIG` another program. Nothing is downloaded, built or generated.

use std::env;
use std::process::{exit, Command};

/// What this crate's declarations need of the library.
const VERSION: &str = "0.1.0";

fn fail(message: &str) -> ! {
    eprintln!("mainarch-sys: {message}");
    exit(1)
}

fn pkg_config(arguments: &[&str]) -> String {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let output = match Command::new(&program).args(arguments).arg("mainarch").output() {
        Ok(output) => output,
        Err(error) => fail(&format!(
            "{} cannot be run: {error}; install pkg-config or set MAINARCH_LIB_DIR",
            program.to_string_lossy()
        )),
    };
    if !output.status.success() {
        fail(&format!(
            "pkg-config {}: {}; install libmainarch-dev, or set PKG_CONFIG_PATH to the directory \
             of mainarch.pc",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn main() {
    for name in [
        "MAINARCH_LIB_DIR",
        "PKG_CONFIG",
        "PKG_CONFIG_PATH",
        "PKG_CONFIG_LIBDIR",
        "PKG_CONFIG_SYSROOT_DIR",
    ] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    if let Some(directory) = env::var_os("MAINARCH_LIB_DIR") {
        println!("cargo:rustc-link-search=native={}", directory.to_string_lossy());
        println!("cargo:rustc-link-lib=mainarch");
        return;
    }
    pkg_config(&["--print-errors", &format!("--atleast-version={VERSION}")]);
    for flag in pkg_config(&["--libs"]).split_whitespace() {
        if let Some(directory) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={directory}");
        } else if let Some(library) = flag.strip_prefix("-l") {
            println!("cargo:rustc-link-lib={library}");
        } else {
            println!("cargo:rustc-link-arg={flag}");
        }
    }
    // For crates that compile C against the same header: DEP_MAINARCH_INCLUDE.
    for flag in pkg_config(&["--cflags"]).split_whitespace() {
        if let Some(directory) = flag.strip_prefix("-I") {
            println!("cargo:include={directory}");
        }
    }
}
