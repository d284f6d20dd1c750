//! Publishes the missing versions in order. It stores no progress: the index knows which crates exist, so the same command continues after any
//! failure.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::crates::Crate;
use super::registry;
use crate::command::{self, Show};
use crate::tally::Tally;

/// The time in which the index must show an upload.
const INDEX_TIMEOUT: Duration = Duration::from_secs(300);
const BETWEEN: Duration = Duration::from_secs(3);

/// The options of an upload.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct UploadOptions {
    /// Whether to skip the build of each package; `release check` built them.
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Whether to accept a working tree with uncommitted changes.
    #[arg(long)]
    pub(crate) allow_dirty: bool,
}

/// Returns for each crate whether the registry has its version. Stops after one query without an answer, since cargo tries for ten seconds each
/// time.
pub(crate) fn published(crates: &[Crate]) -> Result<Vec<bool>, String> {
    crates.iter().map(has).collect()
}

fn has(found: &Crate) -> Result<bool, String> {
    registry::has(&found.name, Some(&found.version))
}

pub(crate) fn run(crates: &[Crate], manner: UploadOptions) -> Tally {
    let mut tally = Tally::default();
    let result = carry_out(
        crates,
        &mut tally.passed,
        has,
        |found| upload(found, manner),
        |found| wait(|| has(found), INDEX_TIMEOUT),
    );
    if let Err(why) = result {
        tally += Tally::failed(format!("release publish: {why}"));
    }
    tally
}

/// Uploads each missing crate, waits until the index shows it, and counts the uploads. Stops at the first failure, because the next crate may need
/// it.
fn carry_out(
    crates: &[Crate],
    done: &mut usize,
    mut has: impl FnMut(&Crate) -> Result<bool, String>,
    mut upload: impl FnMut(&Crate) -> Result<(), String>,
    mut wait: impl FnMut(&Crate) -> Result<(), String>,
) -> Result<(), String> {
    for found in crates {
        let name = format!("{} {}", found.name, found.version);
        let wrong = |why: String| format!("{name}: {why}; run the same command again to continue");
        if has(found).map_err(wrong)? {
            println!("{name}: already published");
            continue;
        }
        upload(found).map_err(wrong)?;
        wait(found).map_err(wrong)?;
        println!("{name}: published");
        *done += 1;
    }
    Ok(())
}

fn upload(found: &Crate, manner: UploadOptions) -> Result<(), String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["publish", "--color=never", "--locked", "-p", &found.name]);
    cargo.args(["--registry", registry::NAME]);
    cargo.args(manner.no_verify.then_some("--no-verify"));
    cargo.args(manner.allow_dirty.then_some("--allow-dirty"));
    let ended = command::finish(&mut cargo, Show::Steps("Verifying"));
    match ended.success {
        true => Ok(()),
        false => Err(reason(&ended.output)),
    }
}

/// Returns the error of cargo with a hint.
fn reason(output: &str) -> String {
    let lines = command::errors(output)
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let words: Vec<&str> = lines.collect();
    let words = words[words.len().saturating_sub(6)..].join("; ");
    let hint = [
        (
            "429",
            "crates.io accepts five new crates at once and then one in ten minutes: wait for the stated time",
        ),
        ("no token", "run `cargo login`"),
        (
            "403",
            "the token is not valid for this crate: ask an owner, or run `cargo login` again",
        ),
    ];
    match hint.iter().find(|(sign, _)| words.contains(sign)) {
        Some((_, hint)) => format!("{words} ({hint})"),
        None => words,
    }
}

fn wait(mut has: impl FnMut() -> Result<bool, String>, patience: Duration) -> Result<(), String> {
    let deadline = Instant::now() + patience;
    loop {
        // A failed query is repeated.
        let answer = has();
        if answer == Ok(true) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let why = answer.err().unwrap_or_else(|| "not there".into());
            return Err(format!(
                "uploaded, but not in the index after {} s: {why}",
                patience.as_secs()
            ));
        }
        thread::park_timeout(BETWEEN.min(patience));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use proptest::prelude::*;

    use super::super::crates::order;
    use super::super::crates::tests::sample;
    use super::*;

    proptest! {
        /// After any number of failures at any place, the same command ends with each crate uploaded exactly once, after its dependencies.
        #[test]
        fn failed_publish_can_be_repeated(edges in prop::collection::vec(any::<u8>(), 1..8), faults in prop::collection::vec((0..8_usize, any::<bool>()), 0..6)) {
            let crates = edges.iter().enumerate().map(|(at, bits)| {
                let needed: Vec<String> = (0..at).filter(|it| bits >> it & 1 == 1).map(|it| format!("c{it}")).collect();
                sample(&format!("c{at}"), &needed.iter().map(String::as_str).collect::<Vec<_>>())
            }).collect();
            let crates = order(crates).unwrap();
            let index = RefCell::new(Vec::<String>::new());
            for fault in faults.into_iter().map(Some).chain([None]) {
                let before = index.borrow().len();
                let mut done = 0;
                let result = carry_out(
                    &crates,
                    &mut done,
                    |found| Ok(index.borrow().contains(&found.name)),
                    |found| {
                        for needed in found.siblings.keys() {
                            assert!(index.borrow().contains(needed));
                        }
                        if fault == Some((index.borrow().len(), false)) {
                            return Err("429".into());
                        }
                        index.borrow_mut().push(found.name.clone());
                        Ok(())
                    },
                    |_| match fault == Some((index.borrow().len(), true)) {
                        true => Err("lost".into()),
                        false => Ok(()),
                    },
                );
                if result.is_ok() {
                    prop_assert_eq!(done, index.borrow().len() - before);
                    prop_assert_eq!(index.borrow().len(), crates.len());
                } else {
                    prop_assert!(fault.is_some());
                }
            }
            prop_assert_eq!(index.into_inner(), crates.iter().map(|it| it.name.clone()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn slow_index_is_awaited_and_missing_entry_is_reported() {
        let mut answers = vec![Ok(true), Ok(false), Err("busy".to_owned())];
        // The wait between two queries is limited by the whole time.
        let patience = Duration::from_millis(40);
        let mut late = Ok(());
        while !answers.is_empty() {
            late = wait(|| answers.pop().unwrap_or(Ok(true)), Duration::ZERO);
        }
        assert_eq!(late, Ok(()));
        let never = wait(|| Err("busy".into()), patience).unwrap_err();
        assert!(
            never.contains("not in the index after 0 s: busy"),
            "{never}"
        );
    }

    #[test]
    fn known_refusals_have_hints() {
        assert!(reason("error: x\n  status 429 Too Many Requests").contains("ten minutes"));
        assert!(reason("error: no token found").contains("cargo login"));
        assert_eq!(
            reason("   Uploading x\nerror: one\n\n  two\n"),
            "error: one; two"
        );
    }
}
