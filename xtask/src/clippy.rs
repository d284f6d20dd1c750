//! Compiles the workspace with Clippy as the compiler: cargo then compiles the tests once for the stages `test` and `lint`.

use std::path::Path;
use std::process::Command;

use crate::command::{self, Ended, Show};

/// The arguments for Clippy. A position-independent debug build of rlm spends half of its start on relocations, and the tests start thousands of
/// programs. So on Linux, programs are linked for a fixed address.
const ARGUMENTS: &[&str] = if cfg!(target_os = "linux") {
    &["-D", "warnings", "-Clink-arg=-no-pie"]
} else {
    &["-D", "warnings"]
};

/// Returns the variables that make cargo compile the members of the workspace with Clippy. Without Clippy there are none.
///
/// `.ci/run` sets the same variables.
pub(crate) fn variables() -> Vec<(&'static str, String)> {
    let sysroot = command::run("rustc", &["--print", "sysroot"], Show::Never);
    let driver = Path::new(sysroot.stdout.trim()).join("bin/clippy-driver");
    if !driver.is_file() {
        return Vec::new();
    }
    let arguments = { ARGUMENTS.iter() }.map(|argument| format!("{argument}__CLIPPY_HACKERY__"));
    vec![
        ("RUSTC_WORKSPACE_WRAPPER", driver.display().to_string()),
        ("CLIPPY_ARGS", arguments.collect()),
    ]
}

/// Compiles the tests with Clippy as the compiler, which the stage `build` did already if Clippy accepts them. `None` without Clippy.
pub(crate) fn tests() -> Option<Ended> {
    let variables = variables();
    if variables.is_empty() {
        return None;
    }
    let mut build = Command::new("cargo");
    build
        .args([
            "build",
            "--quiet",
            "--workspace",
            "--all-features",
            "--tests",
            "--examples",
        ])
        .envs(variables);
    Some(command::finish(&mut build, Show::Never))
}

/// Returns the variables with which the stage `build` compiled the tests: none if Clippy refused them.
pub(crate) fn variables_of_built_tests() -> Vec<(&'static str, String)> {
    match tests() {
        Some(tests) if tests.success => variables(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With other variables, cargo would compile the workspace a second time.
    #[cfg(target_os = "linux")]
    #[test]
    fn ci_compiles_with_the_same_variables() {
        let script = include_str!("../../.ci/run");
        assert!(script.contains("--workspace --all-features --tests --examples"));
        if variables().is_empty() {
            println!("skipped: clippy-driver is not installed");
        }
        for (name, value) in variables() {
            assert!(script.contains(name), "{name}");
            if name == "CLIPPY_ARGS" {
                let (lints, link) = value.split_at(value.find("-Clink-arg").unwrap());
                assert!(script.contains(lints) && script.contains(link), "{value}");
            }
        }
    }
}
