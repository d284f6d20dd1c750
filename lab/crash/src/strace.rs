//! D3: real programs whose system calls fail, or at which the programs are killed, by `strace -e inject`.
//!
//! The code has no hook for this: the saving program and the shipped `rlm` run unchanged. A run without a fault lists the calls on the store. Then
//! there is one run for each of these calls and each fault. Afterwards the store must contain all acknowledged saves and be usable.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::agents::Project;
use crate::child;
use crate::ledger::Ledger;
use crate::outcome::{Level, Outcome};
use crate::parallel;
use crate::program::{self, Running};
use crate::reference::CheckResult;
use crate::rng::Rng;
use crate::saver::{self, Saver, SaverKind};
use crate::storm::APART;

/// The calls by which a store is written, with the names that they have on all machines.
const CALLS: &str =
    "trace=openat,write,pwrite64,fsync,fdatasync,ftruncate,renameat,renameat2,unlinkat,mkdirat";
/// The fault of a call, for this call only, or from this call on.
const FAULTS: [(&str, &str); 5] = [
    ("signal=SIGKILL", ""),
    ("error=EIO", ""),
    ("error=ENOSPC", ""),
    ("error=EIO", "+"),
    ("error=ENOSPC", "+"),
];
/// Number of saves of the traced program.
const STEPS: u32 = 10;
/// Number of iterations of the traced loop.
const ITERATIONS: u64 = 3;

/// One fault at one call.
#[derive(Debug, Clone)]
struct Injection {
    call: String,
    index: u32,
    fault: (&'static str, &'static str),
    /// The number of the program.
    seed: u32,
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, onward) = self.fault;
        write!(f, "inject={}:{what}:when={}{onward}", self.call, self.index)
    }
}

/// Runs both programs with faults.
pub fn run(level: Level) -> Outcome {
    let strace = match program::tool("strace") {
        Ok(path) => path,
        Err(why) => return Outcome::skip(format!("faults at system calls: {why}")),
    };
    let strace = strace.as_os_str().to_owned();
    savers(&strace, level.of([8, 40, 500, 5_000])) + loops(&strace, level.of([0, 3, 60, 600]))
}

/// Returns the words that go before a command.
fn before(strace: &OsString, list: &Path, inject: Option<&Injection>) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![strace.clone()];
    words.extend(["-f", "-q", "-y", "-e", CALLS, "-o"].map(Into::into));
    words.push(list.into());
    if let Some(inject) = inject {
        words.extend(["-e".into(), inject.to_string().into()]);
    }
    words
}

/// Returns the calls on the store of a program that was traced into `list` and broke no promise.
fn listed_calls(
    traced: CheckResult,
    list: &Path,
    store: &Path,
) -> Result<BTreeSet<(String, u32)>, String> {
    traced.map_err(|broken| broken.what)?;
    let text = std::fs::read_to_string(list).map_err(|err| err.to_string())?;
    // `strace` prints paths with resolved links.
    let store = std::fs::canonicalize(store).map_err(|err| err.to_string())?;
    let calls = calls(&text, &store.display().to_string());
    match calls.is_empty() {
        true => Err("strace has no permission to trace here".into()),
        false => Ok(calls),
    }
}

/// Returns the calls on a directory: the name of each call, and its number among the calls of that name in its thread.
fn calls(list: &str, dir: &str) -> BTreeSet<(String, u32)> {
    let (mut counts, mut found) = (BTreeMap::new(), BTreeSet::new());
    for line in list.lines() {
        let Some((thread, rest)) = line.split_once(' ') else {
            continue;
        };
        let rest = rest.trim_start();
        let Some(end) = rest
            .find('(')
            .filter(|&end| !rest.starts_with('<') && end > 0)
        else {
            continue;
        };
        let count = counts.entry((thread, &rest[..end])).or_insert(0);
        *count += 1;
        if rest.contains(dir) {
            found.insert((rest[..end].to_owned(), *count));
        }
    }
    found
}

/// Returns at most `most` of all faults at the calls, in random order.
fn some(calls: BTreeSet<(String, u32)>, seed: u32, most: usize) -> Vec<Injection> {
    // `strace` counts calls for each thread, so it would also hit a `write` of another thread. These go to pipes, where such errors are impossible.
    let calls = calls.into_iter().filter(|(call, _)| call != "write");
    let all = calls.flat_map(|(call, index)| {
        FAULTS.map(|fault| Injection {
            call: call.clone(),
            index,
            fault,
            seed,
        })
    });
    let mut all: Vec<Injection> = all.collect();
    let mut rng = Rng::new(seed.into());
    for index in (1..all.len()).rev() {
        all.swap(index, rng.below(index + 1));
    }
    all.truncate(most);
    all
}

/// Injects faults into programs that save.
fn savers(strace: &OsString, runs: usize) -> Outcome {
    let mut injections = Vec::new();
    for seed in 1.. {
        let place = match tempfile::tempdir() {
            Ok(place) => place,
            Err(err) => return Outcome::skip(format!("faults at system calls: {err}")),
        };
        let list = place.path().join("list");
        let (dir, mut ledger) = (place.path().join("store"), Ledger::default());
        let listed = traced(before(strace, &list, None), &dir, seed, &mut ledger);
        let calls = match listed_calls(listed, &list, &dir) {
            Ok(calls) => calls,
            Err(why) => return Outcome::skip(format!("faults at system calls: {why}")),
        };
        injections.extend(some(calls, seed, runs - injections.len()));
        if injections.len() == runs {
            break;
        }
    }
    let one = |inject: &Injection| {
        let mut outcome = Outcome::default();
        let mut ledger = Ledger::default();
        let kept = inject.hit_saver(strace, &mut ledger);
        outcome.judge(format_args!("program {}, {inject}", inject.seed), kept);
        outcome.acked = ledger.numbers.len() as u64;
        outcome.faults = 1;
        outcome
    };
    parallel::map(&injections, one, |_| false).into_iter().sum()
}

fn traced(mut words: Vec<OsString>, dir: &Path, seed: u32, ledger: &mut Ledger) -> CheckResult {
    words.push(program::own().expect("the program was found before").into());
    words.extend(child::saver(dir, seed * APART, STEPS, SaverKind::Mixed));
    let mut running =
        Running::lead(Command::new(&words[0]).args(&words[1..])).expect("`strace` was found");
    running.wait(ledger)
}

impl Injection {
    fn hit_saver(&self, strace: &OsString, ledger: &mut Ledger) -> CheckResult {
        let place = tempfile::tempdir().expect("a temporary directory could be made before");
        let (dir, list) = (place.path().join("store"), place.path().join("list"));
        traced(before(strace, &list, Some(self)), &dir, self.seed, ledger)?;
        saver::check_load(&dir, ledger)?;
        // A later program must be able to continue.
        let mut kept = Ok(());
        let mut say = |note| {
            kept = std::mem::replace(&mut kept, Ok(())).and_then(|()| ledger.note(note));
            Ok(())
        };
        let worked = Saver::new(&dir, 1_000 * APART).work(SaverKind::Mixed, 3, &mut say);
        worked.expect("`say` never fails");
        kept?;
        saver::finished(ledger)?;
        saver::check_load(&dir, ledger).map(drop)
    }

    fn hit_loop(&self, strace: &OsString) -> CheckResult<u64> {
        let mut project = Project::new().expect("a project could be made before");
        let list = project.place().join("list");
        project.go(&before(strace, &list, Some(self)), ITERATIONS)?;
        project.check_calls()?;
        project.go(&[], ITERATIONS)?;
        project.check_calls()?;
        project.done()
    }
}

/// Injects faults into the shipped program.
fn loops(strace: &OsString, runs: usize) -> Outcome {
    if runs == 0 {
        return Outcome::default();
    }
    let mut project = match Project::new() {
        Ok(project) => project,
        Err(why) => return Outcome::skip(format!("faults at system calls of rlm: {why}")),
    };
    let list = project.place().join("list");
    let listed = project.go(&before(strace, &list, None), ITERATIONS);
    let calls = match listed_calls(listed, &list, &project.store()) {
        Ok(calls) => calls,
        Err(why) => return Outcome::skip(format!("faults at system calls of rlm: {why}")),
    };
    let one = |inject: &Injection| {
        let mut outcome = Outcome::default();
        let done = inject.hit_loop(strace);
        outcome.acked = *done.as_ref().unwrap_or(&0);
        outcome.judge(format_args!("rlm, {inject}"), done.map(drop));
        outcome.faults = 1;
        outcome
    };
    parallel::map(&some(calls, 1, runs), one, |_| false)
        .into_iter()
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_per_thread_and_recorded_for_store_paths() {
        let list = "\
7 openat(AT_FDCWD</>, \"/etc/x\", O_RDONLY) = 3</etc/x>
7 openat(AT_FDCWD</>, \"/p/store\", O_PATH) = 4</p/store>
8 openat(4</p/store>, \"LOCK\", O_RDWR <unfinished ...>
7 fdatasync(5</p/store/j> <unfinished ...>
8 <... openat resumed>) = 6</p/store/LOCK>
7 +++ exited with 0 +++
";
        let found: Vec<(String, u32)> = calls(list, "/p/store").into_iter().collect();
        let of = |name: &str, index| (name.to_owned(), index);
        assert_eq!(
            found,
            [of("fdatasync", 1), of("openat", 1), of("openat", 2)]
        );
    }
}
