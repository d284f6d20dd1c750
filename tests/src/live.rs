//! The live checks: `rlm` around a real, unmodified agent CLI that talks to the scripted model.
//!
//! They show what a scripted agent cannot: that the loop works with what people run. The CLI is installed from the npm registry into
//! `target/agents` at a pinned version, and then started with a scrubbed environment, a home of its own and, where `unshare` allows it, a
//! network that has nothing but loopback. Without npm or a registry the checks are skipped, by name and with the reason.
//!
//! Each line on stdout that begins with `ok: `, `failed: ` or `skipped: ` is a verdict; the others are remarks.
#![expect(clippy::print_stdout, reason = "a program whose output is its purpose")]

mod cage;
mod checks;
mod duplex;
mod install;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Runs the live checks: the whole of `main`.
#[must_use]
pub fn main_impl() -> ExitCode {
    let agent = match install::agent() {
        Ok(agent) => agent,
        Err(reason) => {
            for (name, _) in all() {
                println!("skipped: {name}: {reason}");
            }
            return ExitCode::SUCCESS;
        }
    };
    match cage::enter() {
        cage::Cage::Left(code) => return code,
        cage::Cage::Inside => println!("the network is loopback alone"),
        cage::Cage::None(reason) => println!("the network is not cut off: {reason}"),
    }
    let rlm = beside_this("rlm-under-test");
    let mut code = ExitCode::SUCCESS;
    for (name, check) in all() {
        let begun = Instant::now();
        // The message of a panic goes to stderr as it happens.
        match catch_unwind(AssertUnwindSafe(|| check(&rlm, &agent))) {
            Ok(found) => println!(
                "ok: {name}: {found} ({:.1} s)",
                begun.elapsed().as_secs_f64()
            ),
            Err(_) => {
                println!("failed: {name}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn all() -> impl Iterator<Item = (&'static str, checks::Check)> {
    checks::CHECKS.into_iter().chain(duplex::CHECKS)
}

/// A program of this package, by its name.
fn beside_this(name: &str) -> PathBuf {
    std::env::current_exe()
        .expect("a running program has a path")
        .with_file_name(name)
}
