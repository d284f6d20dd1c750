//! The children of a fake agent: the same program in another role.
//!
//! They are executed, not forked, so that no unsafe code is needed. They only wait, and exit by themselves.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::record::{Child, write_whole};
use super::script::ChildKind;
use super::signals;
use crate::wait::wait_for;

/// The lifetime of a child. It ends children that a test forgets.
pub(super) const LIFE: Duration = Duration::from_secs(600);
const READY: Duration = Duration::from_secs(20);

/// The arguments of a child.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct ChildRole {
    /// Run as a child of this kind instead of an agent
    #[arg(long, hide = true)]
    kind: Option<ChildKind>,
    /// Start the child of that child, then exit
    #[arg(long, hide = true)]
    launch: bool,
    /// Number of the agent's start
    #[arg(long, hide = true, default_value_t = 0)]
    start: u32,
    /// Number of the child within that start
    #[arg(long, hide = true, default_value_t = 0)]
    number: usize,
    /// Signals to ignore, by number
    #[arg(long, hide = true, value_delimiter = ',')]
    ignoring: Vec<i32>,
}

/// Starts a child, and returns when it reports that it is ready.
pub(super) fn start(
    record: &Path,
    start: u32,
    number: usize,
    kind: ChildKind,
    ignore: &[i32],
) -> io::Result<()> {
    let orphaned = matches!(kind, ChildKind::Daemon | ChildKind::Holder);
    let mut child = spawn(
        record,
        &ChildRole {
            kind: Some(kind),
            launch: orphaned,
            start,
            number,
            ignoring: ignore.to_vec(),
        },
    )?;
    if orphaned {
        child.wait()?;
    }
    let ready = path(record, start, number);
    wait_for(format!("{kind:?} child to be ready"), READY, || {
        ready.exists().then_some(())
    });
    Ok(())
}

/// Runs as a child, if this process was started as one.
pub(super) fn live(record: &Path, role: &ChildRole) -> Option<io::Result<()>> {
    let kind = role.kind?;
    Some(live_as(kind, record, role))
}

fn live_as(kind: ChildKind, record: &Path, role: &ChildRole) -> io::Result<()> {
    if kind == ChildKind::Setsid || (kind == ChildKind::Daemon && role.launch) {
        rustix::process::setsid()?;
    }
    if role.launch {
        // No `wait` follows: the child must become an orphan.
        drop(spawn(
            record,
            &ChildRole {
                launch: false,
                ..role.clone()
            },
        )?);
        return Ok(());
    }
    signals::catch()?.obey(record.to_owned(), role.start, role.ignoring.clone());
    let this = Child {
        start: role.start,
        pid: std::process::id().cast_signed(),
        kind,
    };
    write_whole(&path(record, role.start, role.number), &this)?;
    linger();
    Ok(())
}

/// Waits until the end of its lifetime.
pub(super) fn linger() {
    let end = Instant::now() + LIFE;
    while Instant::now() < end {
        thread::park_timeout(end - Instant::now());
    }
}

fn spawn(record: &Path, role: &ChildRole) -> io::Result<std::process::Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--record").arg(record).stdin(Stdio::null());
    if let Some(kind) = role.kind {
        command
            .arg("--kind")
            .arg(format!("{kind:?}").to_lowercase());
        if kind != ChildKind::Holder {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
    }
    command.args(role.launch.then_some("--launch"));
    command
        .arg(format!("--start={}", role.start))
        .arg(format!("--number={}", role.number));
    let ignoring: Vec<_> = role.ignoring.iter().map(ToString::to_string).collect();
    if !ignoring.is_empty() {
        command.arg(format!("--ignoring={}", ignoring.join(",")));
    }
    command.spawn()
}

fn path(record: &Path, start: u32, number: usize) -> std::path::PathBuf {
    record.join(format!("child-{start:06}-{number:03}.json"))
}
