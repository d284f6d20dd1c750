//! How fast `rlm run` shows the output of an agent, on a terminal with a reader and on one without.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::harness::{Outcome, Plan, Progress, Result, Role, Series, Turn, in_turn_beside, pause};
use crate::programs::{command_in, is_in_path, make_place, peak_kib, rlm_or_skip};

const QUANTITY: &str = "printed by an agent";
const MEMORY: &str = "peak memory, printed by an agent";
const CAT: &str = "cat, to a pipe";
const READ: &str = "rlm run, a terminal";
const STALLED: &str = "rlm run, a terminal without a reader";
/// The time between two checks whether the run has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// A run that takes longer than this hangs.
const HANGS: Duration = Duration::from_secs(120);

/// Measures with `file` once and with several copies of it.
pub(super) fn run(plan: &Plan, file: &Path, outcome: &mut Outcome) -> Result<()> {
    let Some(rlm) = rlm_or_skip(READ, outcome) else {
        return Ok(());
    };
    if !is_in_path("setsid") {
        outcome.skip(READ, &"`setsid` is not in the path");
        return Ok(());
    }
    let sizes = plan.scale.pick(
        [(1, "25 MB"), (4, "100 MB")],
        [(1, "6.4 MB"), (5, "32 MB")],
        [(1, "60 KB"), (2, "120 KB")],
    );
    let megabytes = fs_err::metadata(file)?.len() as f64 / 1e6;
    let rounds = plan.scale.pick(5, 2, 1);
    for (times, label) in sizes {
        let megabytes = megabytes * f64::from(times);
        let ours = [(READ, true), (STALLED, false)].map(|(name, is_read)| {
            let rlm = &rlm;
            Turn::beside(name, Role::Ours, move |_| {
                let dir = plan.scratch.join("b7-view");
                let shown = show(rlm, &dir, file, times, is_read);
                fs_err::remove_dir_all(dir)?;
                let (took, memory) = shown?.unzip();
                Ok((took.map(|took| megabytes / took.as_secs_f64()), memory))
            })
        });
        let floor = Turn::new(CAT, Role::Floor, |_| {
            let took = cat(file, times)?;
            Ok(Some(megabytes / took.as_secs_f64()))
        });
        let turns = [floor].into_iter().chain(ours).collect();
        let progress = Progress::of(format!("b7 view, {label}"));
        let (found, mut memory) = in_turn_beside(0..rounds, turns, &progress)?;
        memory.retain(|contender| contender.role == Role::Ours);
        let size = megabytes * 1e6;
        outcome.series.extend([
            Series::new(QUANTITY, "MB/s", found).sized(size, label),
            Series::new(MEMORY, "MiB", memory).sized(size, label),
        ]);
    }
    outcome.notes.push(format!(
        "{QUANTITY}: from the start of `rlm run` until `cat` has written all of it; meanwhile `rlm` also writes the transcript"
    ));
    Ok(())
}

fn cat(file: &Path, times: u32) -> Result<Duration> {
    let begun = Instant::now();
    let mut child = Command::new("cat")
        .args((0..times).map(|_| file))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut out = child.stdout.take().ok_or("standard output is piped")?;
    let mut buffer = vec![0; 64 << 10];
    while out.read(&mut buffer)? > 0 {}
    child.wait()?;
    Ok(begun.elapsed())
}

/// Returns the time until the agent printed everything, and the peak resident memory at that moment, in MiB; `None` if the run hung.
///
/// After that moment the terminal is read in any case, so that `rlm` can print its last lines.
fn show(
    rlm: &Path,
    dir: &Path,
    file: &Path,
    times: u32,
    is_read: bool,
) -> Result<Option<(Duration, f64)>> {
    make_place(dir)?;
    let (ours, theirs) = terminal()?;
    let mut reader = is_read.then(|| read(&ours)).transpose()?;
    let file = std::path::absolute(file)?;
    let begun = Instant::now();
    let mut command = command_in(dir, "setsid".as_ref());
    command
        .arg("--ctty")
        .arg(rlm)
        .args(["run", "--sleep", "0", "--prompt", "x", "-n", "1", "--"])
        .args(["sh", "-c", "cat \"$@\" && touch through", "sh"])
        .args((0..times).map(|_| &file))
        .env("TERM", "xterm-256color")
        .stdin(theirs.try_clone()?)
        .stdout(theirs.try_clone()?)
        .stderr(theirs);
    let mut child = command.spawn()?;
    // The command holds the terminal open, so it is dropped here.
    drop(command);
    let (through, mut took) = (dir.join("work/through"), None);
    let ended = loop {
        if took.is_none() && through.exists() {
            let most = peak_kib(child.id()).unwrap_or_default();
            took = Some((begun.elapsed(), most / 1024.0));
            if reader.is_none() {
                reader = Some(read(&ours)?);
            }
        }
        match child.try_wait()? {
            Some(status) => break status.success(),
            None if begun.elapsed() > HANGS => {
                child.kill()?;
                child.wait()?;
                return Ok(None);
            }
            None => pause(POLL_INTERVAL),
        }
    };
    drop(ours);
    if let Some(reader) = reader {
        let _panicked = reader.join();
    }
    match ended {
        true => Ok(took),
        false => Err("`rlm run` failed".into()),
    }
}

/// Reads the output until the terminal has no other user.
fn read(ours: &File) -> Result<JoinHandle<()>> {
    let mut ours = ours.try_clone()?;
    Ok(std::thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while matches!(ours.read(&mut buffer), Ok(1..)) {}
    }))
}

/// Opens a terminal of 24 rows and 100 columns; the second end is only for the child.
fn terminal() -> Result<(File, OwnedFd)> {
    use rustix::fs::{Mode, OFlags, open};

    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = open(ptsname(&ours, Vec::new())?, flags, Mode::empty())?;
    let size = rustix::termios::Winsize {
        ws_row: 24,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&ours, size)?;
    Ok((File::from(ours), theirs))
}
