//! Compiles the workspace with Clippy as the compiler: cargo then compiles the tests once for the stages `test` and `lint`.

use std::path::Path;
use std::process::Command;

use crate::command::{self, Ended, Show};

/// Returns the variables with which `cargo clippy -- -D warnings` calls cargo: another command with them takes the members of the workspace as
/// Clippy compiled them. Without Clippy there are none.
pub(crate) fn variables() -> Vec<(&'static str, String)> {
    let sysroot = command::run("rustc", &["--print", "sysroot"], Show::Never);
    let driver = Path::new(sysroot.stdout.trim()).join("bin/clippy-driver");
    if !driver.is_file() {
        return Vec::new();
    }
    let arguments = ["-D", "warnings"].map(|argument| format!("{argument}__CLIPPY_HACKERY__"));
    vec![
        ("RUSTC_WORKSPACE_WRAPPER", driver.display().to_string()),
        ("CLIPPY_ARGS", arguments.concat()),
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
