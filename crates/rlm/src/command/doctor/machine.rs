//! What of this machine a run depends on.

use std::fs::{File, TryLockError};
use std::io::IsTerminal as _;
use std::time::Duration;

use agent_subprocess::Containment;
use rlm_store::{Project, RunState, Space, state_dir};
use rlm_text::{bytes, count};
use rustix::fs::{Access, access, statvfs};
use tokio::time::{Instant, timeout, timeout_at};

use super::ask::{self, Program, command};
use super::file_system;
use crate::agents;
use crate::config::{self, Layers};
use crate::exit::Failure;
use crate::hint::rlm;
use crate::render::Health;

/// How something is, and what is to be known of it.
pub(super) type Seen = (Health, String);

/// Below this a run may fail for want of room.
const LITTLE: u64 = 1 << 30;
/// Below this it will: a transcript alone may have 64 MiB.
const TOO_LITTLE: u64 = 128 << 20;
/// From here on it is worth a word what runs take.
const MUCH: u64 = 4_000_000_000;
const ENOUGH_FILES: u64 = 1000;
/// An agent whose child has lost its parent: who stops it must find both.
const ORPHAN: &str = "(sleep 600 & echo ready); exec sleep 600";
const BLIND: &str = "what an agent did can't be told from what was there";
const NO_GUARD: &str = "no guard, so a stop proves less";

/// Tells which files of settings there are, or why one can't be read.
pub(super) fn settings(project: &Project, read: &Result<Layers, Failure>) -> Seen {
    let file = config::FILE_NAME;
    let layers = match read {
        Ok(layers) => layers,
        Err(why) => return (Health::Problem, why.to_string()),
    };
    let own = project.root().join(file);
    let there = layers.files().filter(|path| path.exists());
    let shown = there.map(|path| match path == own {
        true => file.to_owned(),
        false => path.display().to_string(),
    });
    let shown: Vec<String> = shown.collect();
    match shown.is_empty() {
        true => (
            Health::Ok,
            format!("no {file}; `{} init` writes one", rlm()),
        ),
        false => (Health::Ok, format!("{} can be read", shown.join(" and "))),
    }
}

/// Starts something that would outlive its parent, stops it, and sees what is left.
pub(super) async fn guard(until: Instant) -> Seen {
    let shell = ["sh", "-c", ORPHAN].map(Into::into).into();
    let mut agent = match command(&Program::new(shell), &[]).spawn().await {
        Ok(agent) => agent,
        Err(e) => return (Health::Problem, e.to_string()),
    };
    let ready = timeout_at(until, agent.next_output()).await;
    let report = ask::end(&mut agent).await;
    match ready {
        Ok(Some(_)) if report.is_proven() => (
            Health::Ok,
            format!("a stop ends an orphan too, and proves it: {report}"),
        ),
        Ok(Some(_)) if report.containment == Containment::Group => {
            (Health::Warning, format!("{NO_GUARD}: {report}"))
        }
        Ok(Some(_)) => (Health::Problem, format!("a stop left something: {report}")),
        _ => (Health::Problem, "`sh` did not start a program".into()),
    }
}

/// Tells whether `/proc` shows this process: without that no tree can be listed.
#[cfg(target_os = "linux")]
pub(super) fn proc_fs() -> Seen {
    let own = std::process::id().to_string();
    match std::fs::read_link("/proc/self") {
        Ok(there) if there.as_os_str() == &*own => (
            Health::Ok,
            "it shows the processes of this namespace".into(),
        ),
        Ok(_) => (
            Health::Warning,
            format!("it is another namespace's: {NO_GUARD}; mount it anew"),
        ),
        Err(_) => (
            Health::Warning,
            format!("it is not mounted: {NO_GUARD}; mount it"),
        ),
    }
}

pub(super) fn kernel() -> Seen {
    let name = rustix::system::uname();
    let name = [name.sysname(), name.release(), name.machine()];
    let name = name.map(|text| text.to_string_lossy()).join(" ");
    match cfg!(target_os = "linux") {
        true => (Health::Ok, name),
        false => (Health::Warning, format!("{name}: {NO_GUARD}")),
    }
}

pub(super) async fn git(project: &Project, until: Instant) -> Seen {
    let git = Program::new(vec!["git".into()]);
    let said = match ask::run(command(&git, &["--version"]), until).await {
        Ok(said) if said.exit.success() => said.stdout,
        Ok(said) => {
            return (
                Health::Warning,
                format!("`git --version` ended with {}", said.exit),
            );
        }
        Err(why) => return (Health::Warning, format!("none, {BLIND}: {why}")),
    };
    let version = said.trim().trim_start_matches("git version ");
    let root = project.root();
    let shown = root.display();
    match root.join(".git").exists() {
        true => (Health::Ok, format!("{version}, repository {shown}")),
        false => (
            Health::Warning,
            format!("{version}, but {shown} is in no repository: {BLIND}"),
        ),
    }
}

/// Tells whether state can be kept: whether it can be written, and what the file system makes of locks.
pub(super) fn state(project: &Project) -> Seen {
    let state = project.root().join(".rlm");
    let kind = state_dir::metadata(&state).map(|meta| meta.is_dir());
    let (there, place) = match kind {
        Ok(true) => (true, &*state),
        Ok(false) => {
            let why = state_dir::open_directory(&state).err();
            let why = why.map_or_else(|| "it changed just now".into(), |e| e.to_string());
            return (Health::Problem, format!("{}: {why}", state.display()));
        }
        Err(_) => (false, project.root()),
    };
    let shown = state.display();
    if let Err(e) = access(place, Access::WRITE_OK | Access::READ_OK | Access::EXEC_OK) {
        let e = std::io::Error::from(e).kind();
        return (
            Health::Problem,
            format!("{} can't be written to: {e}", place.display()),
        );
    }
    // This lock has no other use, while that on the top of the tree is a run's.
    let locked =
        there.then(|| state_dir::open_directory(place).map(|place| File::from(place).try_lock()));
    match locked {
        Some(Err(e)) | Some(Ok(Err(TryLockError::Error(e)))) => {
            return (
                Health::Problem,
                format!("{shown} can't be locked: {}", e.kind()),
            );
        }
        _ => {}
    }
    let there = if there { "" } else { " (not yet there)" };
    match file_system::of(place) {
        Some(kind) => {
            let caution = kind
                .caution()
                .map_or(String::new(), |why| format!(": {why}"));
            (
                kind.health,
                format!("{shown}{there}, on {}{caution}", kind.name),
            )
        }
        None => (Health::Ok, format!("{shown}{there}")),
    }
}

pub(super) fn disk(project: &Project) -> Seen {
    match statvfs(project.root()) {
        // Some file systems count no files.
        Ok(stat) => room(
            stat.f_bavail.saturating_mul(stat.f_frsize),
            Some(stat.f_favail).filter(|_| stat.f_files > 0),
        ),
        Err(e) => (Health::Warning, std::io::Error::from(e).kind().to_string()),
    }
}

/// Tells what the runs of the project take, and which of them take most.
pub(super) fn space(project: &Project) -> Seen {
    let mut runs: Vec<_> = match project.clone().in_root().runs() {
        Ok(runs) => { runs.into_iter() }
            .map(|run| (project.space(&run.id), run.id))
            .collect(),
        Err(e) => return (Health::Warning, e.to_string()),
    };
    let sum = |of: fn(&Space) -> u64| runs.iter().map(|(space, _)| of(space)).sum::<u64>();
    let trees = project.tree_space();
    let all = sum(Space::total) + trees.bytes;
    let mut detail = format!(
        "{} in {}: transcripts {}, state {}, output {}",
        bytes::show(all),
        count(runs.len(), "run", "runs"),
        bytes::show(sum(|space| space.transcripts)),
        bytes::show(sum(|space| space.state)),
        bytes::show(sum(|space| space.output)),
    );
    if trees.trees > 0 {
        let more = if trees.is_more { "more than " } else { "" };
        let count = count(trees.trees, "working tree", "working trees");
        detail += &format!("; {count} {more}{}", bytes::show(trees.bytes));
    }
    let free = statvfs(project.root())
        .map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    if all < MUCH && all < free {
        return (Health::Ok, detail);
    }
    runs.sort_by_key(|(space, _)| std::cmp::Reverse(space.total()));
    let largest =
        { runs.iter().take(3) }.map(|(space, run)| format!("{run} {}", bytes::show(space.total())));
    let largest: Vec<_> = largest.collect();
    let rlm = rlm();
    detail += &format!(
        "; largest: {}. `{rlm} clean --dry-run` shows what can go, `{rlm} clean --transcripts` leaves the state",
        largest.join(", ")
    );
    (Health::Warning, detail)
}

/// Judges by the bytes that are free, and by how many more files there can be.
fn room(free: u64, files: Option<u64>) -> Seen {
    let size = match free >> 30 {
        0 => format!("{} MiB free", free >> 20),
        gigabytes => format!("{gigabytes} GiB free"),
    };
    match files {
        _ if free < TOO_LITTLE => (Health::Problem, format!("{size}: make room")),
        Some(0) => (
            Health::Problem,
            format!("{size}, but no more files: remove some"),
        ),
        Some(n) if n < ENOUGH_FILES => {
            (Health::Warning, format!("{size}, but only {n} more files"))
        }
        _ if free < LITTLE => (Health::Warning, format!("{size}: a run may need more")),
        _ => (Health::Ok, size),
    }
}

/// Tells of runs whose process died, and of what can't be read.
pub(super) fn runs(project: &Project) -> Seen {
    let runs = match project.runs() {
        Ok(runs) => runs,
        Err(e) => return (Health::Problem, e.to_string()),
    };
    let names = |state: RunState| -> Vec<&str> {
        let of = runs.iter().filter(|run| run.state == state);
        of.map(|run| run.id.as_str()).collect()
    };
    let (crashed, damaged) = (names(RunState::Crashed), names(RunState::Damaged));
    let live = names(RunState::Running).len() + names(RunState::Paused).len();
    let (mut told, rlm) = (format!("{} saved, {live} live", runs.len()), rlm());
    if let Some(one) = crashed.first() {
        let all = crashed.join(", ");
        told.push_str(&format!("; crashed: {all}; go on with: {rlm} resume {one}"));
    }
    if !damaged.is_empty() {
        let all = damaged.join(", ");
        told.push_str(&format!(
            "; damaged: {all}; look with: {rlm} checkpoints verify"
        ));
    }
    match crashed.is_empty() && damaged.is_empty() {
        true => (Health::Ok, told),
        false => (Health::Warning, told),
    }
}

/// Tells where agents' sessions are locked against other runs.
pub(super) fn sessions() -> Seen {
    match agents::session_place() {
        Some((place, _)) => (Health::Ok, format!("locked in {}", place.display())),
        None => (
            Health::Warning,
            "not locked: no place for that can be written to; set XDG_STATE_HOME to one".into(),
        ),
    }
}

pub(super) fn terminal() -> Seen {
    let here = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let what = match here {
        true => "here: in a run Ctrl-C opens a menu, and Enter lets you say something",
        false => "not here: nothing asks, Ctrl-C saves and stops",
    };
    (Health::Ok, what.into())
}

/// Tells of parts of `PATH` by which the project decides what is started.
pub(super) fn path() -> Seen {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let parts: Vec<_> = std::env::split_paths(&path).collect();
    let relative = parts.iter().filter(|part| !part.is_absolute()).count();
    let all = parts.len();
    match relative {
        _ if path.is_empty() => (
            Health::Problem,
            "it is not set: nothing is found by its name".into(),
        ),
        0 => (Health::Ok, format!("{all} places")),
        n => (
            Health::Warning,
            format!(
                "{n} of {all} places are relative: a file of the project may be started in the place of a program"
            ),
        ),
    }
}

/// Looks at something that may hang, such as a file system of another machine.
pub(super) async fn on_thread(
    within: Duration,
    look: impl FnOnce() -> Seen + Send + 'static,
) -> Seen {
    match timeout(within, tokio::task::spawn_blocking(look)).await {
        Ok(Ok(seen)) => seen,
        Ok(Err(e)) => (Health::Problem, e.to_string()),
        Err(_) => {
            let seconds = within.as_secs();
            (
                Health::Problem,
                format!("no answer within {seconds} s: does a file system hang?"),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_room_is_a_problem_before_it_is_full() {
        let judged = [
            room(5 << 30, Some(9999)),
            room(5 << 30, None),
            room(5 << 30, Some(7)),
            room(5 << 30, Some(0)),
            room(700 << 20, None),
            room(90 << 20, Some(9999)),
        ];
        let shown = judged.map(|(health, detail)| format!("{health:?} {detail}"));
        insta::assert_snapshot!(shown.join("\n"), @r"
        Ok 5 GiB free
        Ok 5 GiB free
        Warning 5 GiB free, but only 7 more files
        Problem 5 GiB free, but no more files: remove some
        Warning 700 MiB free: a run may need more
        Problem 90 MiB free: make room
        ");
    }
}
