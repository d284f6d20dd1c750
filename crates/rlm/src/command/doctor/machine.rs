//! The properties of this machine that a run depends on.

use std::fs::{File, TryLockError};
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Duration;

use agent_subprocess::{Containment, ProcessContext, ProcessTree, StopPolicy, TreeCommand};
use rlm_store::{Project, RunDiskUsage, RunState, state_dir};
use rlm_text::{bytes, count};
use rustix::fs::{Access, access, statvfs};
use tokio::time::{Instant, timeout, timeout_at};

use super::file_system;
use crate::agents;
use crate::config::{self, Layers};
use crate::exit::Failure;
use crate::hint::program_command;
use crate::render::Health;

/// The health of something, with details.
pub(super) type Finding = (Health, String);

/// With less free space, a run may fail.
const LITTLE: u64 = 1 << 30;
/// With less free space, a run will fail: a single transcript may have 64 MiB.
const TOO_LITTLE: u64 = 128 << 20;
/// From this size on, the doctor reports the space of the runs as a warning.
const MUCH: u64 = 4_000_000_000;
const ENOUGH_FILES: u64 = 1000;
/// An agent with an orphan: a stop must find both processes.
const ORPHAN: &str = "(sleep 600 & echo ready); exec sleep 600";
const BLIND: &str = "rlm can't distinguish an agent's changes from yours";
const NO_GUARD: &str = "no guard, so a stop may miss processes";

/// Returns which settings files exist, or the error of one.
pub(super) fn settings(project: &Project, read: &Result<Layers, Failure>) -> Finding {
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
            format!("no {file}; `{} init` writes one", program_command()),
        ),
        false => (Health::Ok, format!("{} can be read", shown.join(" and "))),
    }
}

/// Starts a process that would outlive its parent, stops it, and checks what is left.
pub(super) async fn guard(until: Instant) -> Finding {
    let shell = TreeCommand::new("sh").args(["-c", ORPHAN]);
    let mut agent = match spawn(shell).await {
        Ok(agent) => agent,
        Err(why) => return (Health::Problem, why),
    };
    let ready = timeout_at(until, agent.next_output()).await;
    let report = agent.stop(&StopPolicy::kill()).await;
    match ready {
        Ok(Some(_)) if report.is_proven() => (
            Health::Ok,
            format!("orphan cleanup works (a stop also ended a detached child process): {report}"),
        ),
        Ok(Some(_)) if report.containment == Containment::Group => {
            (Health::Warning, format!("{NO_GUARD}: {report}"))
        }
        Ok(Some(_)) => (Health::Problem, format!("a stop left processes: {report}")),
        _ => (Health::Problem, "`sh` did not start a program".into()),
    }
}

/// Checks that `/proc` shows this process: otherwise no process tree can be listed.
#[cfg(target_os = "linux")]
pub(super) fn proc_fs() -> Finding {
    let own = std::process::id().to_string();
    match std::fs::read_link("/proc/self") {
        Ok(there) if there.as_os_str() == &*own => (
            Health::Ok,
            "shows the processes of this PID namespace".into(),
        ),
        Ok(_) => (
            Health::Warning,
            format!("belongs to another namespace: {NO_GUARD}; mount it again"),
        ),
        Err(_) => (
            Health::Warning,
            format!("not mounted: {NO_GUARD}; mount it"),
        ),
    }
}

pub(super) fn kernel() -> Finding {
    let name = rustix::system::uname();
    let name = [name.sysname(), name.release(), name.machine()];
    let name = name.map(|text| text.to_string_lossy()).join(" ");
    match cfg!(target_os = "linux") {
        true => (Health::Ok, name),
        false => (Health::Warning, format!("{name}: {NO_GUARD}")),
    }
}

pub(super) async fn git(project: &Project, until: Instant) -> Finding {
    let version = match git_version(until).await {
        Ok(version) => version,
        Err(why) => return (Health::Warning, format!("no git, so {BLIND}: {why}")),
    };
    let root = project.root();
    let shown = root.display();
    match root.join(".git").exists() {
        true => (Health::Ok, format!("{version}, repository {shown}")),
        false => (
            Health::Warning,
            format!("{version}, but {shown} is not in a repository: {BLIND}"),
        ),
    }
}

/// Runs `git --version` and returns the version.
async fn git_version(until: Instant) -> Result<String, String> {
    let mut git = spawn(TreeCommand::new("git").arg("--version")).await?;
    let first = timeout_at(until, async { (git.next_output().await, git.wait().await) }).await;
    git.stop(&StopPolicy::kill()).await;
    match first {
        Ok((Some(output), exit)) if exit.success() => {
            let line = output.line.text();
            Ok(line.trim().trim_start_matches("git version ").to_owned())
        }
        Ok((_, exit)) => Err(format!("`git --version` failed: {exit}")),
        Err(_) => Err("no response from `git --version`".into()),
    }
}

/// Starts a program of doctor's own, away from the project.
async fn spawn(command: TreeCommand) -> Result<ProcessTree, String> {
    let command = command.context(&away()).map_err(|e| e.to_string())?;
    command.spawn().await.map_err(|e| e.to_string())
}

/// Returns the context of each program that doctor starts: `/` has no settings of a project, and a sweep finds leftovers by the marker.
pub(super) fn away() -> ProcessContext {
    agents::query_context(Path::new("/"), "doctor")
}

/// Checks that the state directory can be written, and that its file system supports locks.
pub(super) fn state(project: &Project) -> Finding {
    let state = project.root().join(".rlm");
    let kind = state_dir::metadata(&state).map(|meta| meta.is_dir());
    let (there, place) = match kind {
        Ok(true) => (true, &*state),
        Ok(false) => {
            let why = state_dir::open_directory(&state).err();
            let why = why.map_or_else(|| "it changed during the check".into(), |e| e.to_string());
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
    // Nothing else uses this lock; the lock of a run is on the working tree.
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
    let there = if there { "" } else { " (not created yet)" };
    match file_system::of(place) {
        Some(kind) => {
            let caution = kind
                .warning()
                .map_or(String::new(), |why| format!(": {why}"));
            (
                kind.health,
                format!("{shown}{there}, on {}{caution}", kind.name),
            )
        }
        None => (Health::Ok, format!("{shown}{there}")),
    }
}

pub(super) fn disk(project: &Project) -> Finding {
    match statvfs(project.root()) {
        // Some file systems don't count files.
        Ok(stat) => room(
            stat.f_bavail.saturating_mul(stat.f_frsize),
            Some(stat.f_favail).filter(|_| stat.f_files > 0),
        ),
        Err(e) => (Health::Warning, std::io::Error::from(e).kind().to_string()),
    }
}

/// Returns the size of the project's runs, and the largest of them.
pub(super) fn space(project: &Project) -> Finding {
    let mut runs: Vec<_> = match project.clone().in_project_tree().runs() {
        Ok(runs) => { runs.into_iter() }
            .map(|run| (project.disk_usage(&run.id), run.id))
            .collect(),
        Err(e) => return (Health::Warning, e.to_string()),
    };
    let sum = |of: fn(&RunDiskUsage) -> u64| runs.iter().map(|(space, _)| of(space)).sum::<u64>();
    let trees = project.worktree_disk_usage();
    let all = sum(RunDiskUsage::total) + trees.bytes;
    let mut detail = format!(
        "{} in {}: transcripts {}, state {}, output {}",
        bytes::show(all),
        count(runs.len(), "run", "runs"),
        bytes::show(sum(|space| space.transcripts)),
        bytes::show(sum(|space| space.state)),
        bytes::show(sum(|space| space.output)),
    );
    if trees.worktrees > 0 {
        let more = if trees.is_partial { "more than " } else { "" };
        let count = count(trees.worktrees, "worktree with", "worktrees with");
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
    let rlm = program_command();
    detail += &format!(
        "; largest: {}. `{rlm} clean --dry-run` lists what can be deleted, `{rlm} clean --transcripts` keeps the state",
        largest.join(", ")
    );
    (Health::Warning, detail)
}

/// Returns the health for the free bytes and the number of files that can still be created.
fn room(free: u64, files: Option<u64>) -> Finding {
    let size = match free >> 30 {
        0 => format!("{} MiB free", free >> 20),
        gigabytes => format!("{gigabytes} GiB free"),
    };
    match files {
        _ if free < TOO_LITTLE => (Health::Problem, format!("{size}: free some space")),
        Some(0) => (
            Health::Problem,
            format!("{size}, but no more files can be created: delete some"),
        ),
        Some(n) if n < ENOUGH_FILES => {
            (Health::Warning, format!("{size}; room for {n} more files"))
        }
        _ if free < LITTLE => (Health::Warning, format!("{size}: a run may need more")),
        _ => (Health::Ok, size),
    }
}

/// Returns crashed and damaged runs.
pub(super) fn runs(project: &Project) -> Finding {
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
    let (mut text, rlm) = (
        format!("{} saved, {live} live", runs.len()),
        program_command(),
    );
    if let Some(one) = crashed.first() {
        let all = crashed.join(", ");
        text.push_str(&format!(
            "; crashed: {all}; to continue: {rlm} resume {one}"
        ));
    }
    if !damaged.is_empty() {
        let all = damaged.join(", ");
        text.push_str(&format!(
            "; damaged: {all}; to check: {rlm} checkpoints verify"
        ));
    }
    match crashed.is_empty() && damaged.is_empty() {
        true => (Health::Ok, text),
        false => (Health::Warning, text),
    }
}

/// Returns the directory in which agents' sessions are locked against other runs.
pub(super) fn sessions() -> Finding {
    match agents::session_place() {
        Some((place, _)) => (Health::Ok, format!("lock files in {}", place.display())),
        None => (
            Health::Warning,
            "not locked: no directory for lock files can be written; set XDG_STATE_HOME".into(),
        ),
    }
}

pub(super) fn terminal() -> Finding {
    let here = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let what = match here {
        true => "yes: in a run, Ctrl-C opens the menu and Enter messages the agent",
        false => "no: rlm asks nothing, Ctrl-C saves and stops",
    };
    (Health::Ok, what.into())
}

/// Warns about relative directories in `PATH`, because the project then decides which program is started.
pub(super) fn path() -> Finding {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let parts: Vec<_> = std::env::split_paths(&path).collect();
    let relative = parts.iter().filter(|part| !part.is_absolute()).count();
    let all = parts.len();
    match relative {
        _ if path.is_empty() => (
            Health::Problem,
            "not set: no program can be found by name".into(),
        ),
        0 => (Health::Ok, format!("{all} directories")),
        n => (
            Health::Warning,
            format!(
                "{n} of {all} directories are relative: a file of the project may run instead of a program"
            ),
        ),
    }
}

/// Runs a check that may hang, for example on a network file system.
pub(super) async fn on_thread(
    within: Duration,
    look: impl FnOnce() -> Finding + Send + 'static,
) -> Finding {
    match timeout(within, tokio::task::spawn_blocking(look)).await {
        Ok(Ok(seen)) => seen,
        Ok(Err(e)) => (Health::Problem, e.to_string()),
        Err(_) => {
            let seconds = within.as_secs();
            (
                Health::Problem,
                format!("no response within {seconds} s: a file system may hang"),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_disk_space_is_reported_before_the_disk_is_full() {
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
        Warning 5 GiB free; room for 7 more files
        Problem 5 GiB free, but no more files can be created: delete some
        Warning 700 MiB free: a run may need more
        Problem 90 MiB free: free some space
        ");
    }
}
