//! Performs the actions of a plan, one after another.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use fs_err as fs;
use rustix::process::{Signal, getpid, kill_process};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use signal_hook::consts::{SIGKILL, SIGSTOP};
use signal_hook::low_level::emulate_default_handler;

use super::record::AgentStart;
use super::script::{Action, Plan, Stream, signal};
use super::{children, signals};
use crate::wait::poll_until;

/// A title, a screen clear, the alternate screen, a cursor move, a device query, broken UTF-8, a lone carriage return and a NUL.
const GARBAGE: &[u8] = b"\x1b]0;owned\x07\x1b[2J\x1b[?1049h\x1b[31mred\x1b[0m\x1b[999D\x1b[6n\x9b2J\xff\xfe\xc3(\xed\xa0\x80 over\rwritten\0\n";

pub(super) fn run(dir: &Path, script: &str) -> io::Result<ExitCode> {
    let (mut start, plan, watch) = begin(dir, script)?;
    watch.obey(dir.to_owned(), start.start, plan.ignore);
    let mut stdin = Vec::new();
    if plan.reads_stdin {
        io::stdin().read_to_end(&mut stdin)?;
        start.complete(dir, &stdin)?;
    }
    if plan.turns.len() > 1 {
        return Err(io::Error::other("a command has only one turn"));
    }
    for (number, action) in plan.turns[0].iter().enumerate() {
        match action {
            Action::Exit(code) => return Ok(ExitCode::from(*code)),
            Action::Echo => write(Stream::Stdout, &stdin)?,
            Action::Child { kind, ignore } => {
                children::start(dir, start.start, number, *kind, ignore)?
            }
            other => perform(other)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Records the start and reads its actions.
pub(super) fn begin(
    dir: &Path,
    script: &str,
) -> io::Result<(AgentStart, Plan, signals::CaughtSignals)> {
    let mut start = AgentStart::prepare()?;
    // A test that sees the record expects that the signals of `ignore` are already ignored. But only the record gives the number of the start, which
    // selects the lines of the script. So signals are held back until the script is parsed.
    let watch = signals::catch()?;
    start.claim(dir)?;
    let mut plan = Plan::parse(script, start.start).map_err(io::Error::other)?;
    plan.ignore
        .extend(start.ignored.iter().filter_map(|name| signal(name).ok()));
    Ok((start, plan, watch))
}

/// Performs an action that needs no other process.
pub(super) fn perform(action: &Action) -> io::Result<()> {
    match action {
        Action::Delay(time) => {
            let end = Instant::now() + *time;
            while Instant::now() < end {
                thread::park_timeout(end - Instant::now());
            }
        }
        Action::Print { to, text } => write(*to, text)?,
        Action::Garbage => write(Stream::Stdout, GARBAGE)?,
        Action::Flood {
            to,
            bytes,
            unbroken,
        } => flood(*to, *bytes, *unbroken)?,
        Action::Write { path, text, append } => {
            let mut options = fs::OpenOptions::new();
            options
                .create(true)
                .write(true)
                .append(*append)
                .truncate(!append);
            options.open(path)?.write_all(text)?;
        }
        Action::Await(path) => {
            poll_until(children::LIFE, || path.exists().then_some(()));
        }
        Action::Hang => children::linger(),
        Action::Die(signal) => die(*signal)?,
        Action::Close(stream) => {
            // The null device takes its place: the reader sees the end of the stream, and no file opened later gets this descriptor number.
            let null = fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open("/dev/null")?;
            match stream {
                Stream::Stdin => dup2_stdin(null.file())?,
                Stream::Stdout => dup2_stdout(null.file())?,
                Stream::Stderr => dup2_stderr(null.file())?,
            }
        }
        other => {
            return Err(io::Error::other(format!("{other:?} is for a conversation")));
        }
    }
    Ok(())
}

fn die(signal: i32) -> io::Result<()> {
    match signal {
        SIGKILL => kill_process(getpid(), Signal::KILL)?,
        SIGSTOP => kill_process(getpid(), Signal::STOP)?,
        other => emulate_default_handler(other)?,
    }
    Ok(())
}

/// Prints lines of 512 bytes, or one line without an end.
fn flood(to: Stream, bytes: u64, unbroken: bool) -> io::Result<()> {
    let line = format!("{:x<511}{}", "flood ", if unbroken { 'x' } else { '\n' });
    let block = line.repeat(128).into_bytes();
    let mut left = bytes;
    while left > 0 {
        let part = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        write(to, &block[..part])?;
        left -= part as u64;
    }
    Ok(())
}

fn write(to: Stream, bytes: &[u8]) -> io::Result<()> {
    if to == Stream::Stderr {
        return io::stderr().write_all(bytes);
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}
