//! `--detach`: starts the same program again in its own session. The parent waits until the run has started.
//!
//! The parent reads the child's standard output: first text for the user, then a zero byte, which means that the run has started. If the child exits
//! before that byte, the parent exits with the same code.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use interrupt_stack::{Cause, Interrupts};
use rlm_store::{Project, RunId, state_dir};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use serde_json::json;

use crate::exit::{Code, Failure};
use crate::hint;
use crate::output;
use crate::render;

/// The byte that means that the run has started.
const RUN_STARTED: u8 = 0;
/// How often a detached run checks whether its output file was removed.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The size at which the output continues in a new file. The previous file is kept, and the file before that one is removed.
const MAX_FILE_BYTES: u64 = 32 << 20;
const NAME: &str = "output.log";

/// Starts this program again with the same arguments, and waits until its run has started or the process has exited.
pub(crate) fn start() -> Result<ExitCode, Failure> {
    let failed = |what: &str, e: io::Error| Failure::failed(format!("{what}: {e}"));
    let program =
        std::env::current_exe().map_err(|e| failed("can't find the program file of rlm", e))?;
    let (mut reader, output) = io::pipe().map_err(|e| failed("can't create a pipe", e))?;
    let called = std::env::args_os().next().unwrap_or_default();
    let mut child = Command::new(program)
        .arg0(called)
        .args(words(std::env::args_os().skip(1)))
        .stdin(Stdio::inherit())
        .stdout(output)
        .spawn()
        .map_err(|e| failed("can't start the background process", e))?;
    let mut buffer = [0; 4096];
    loop {
        let count = reader.read(&mut buffer).unwrap_or(0);
        let text = buffer[..count].split(|byte| *byte == RUN_STARTED).next();
        let _noted = output::bytes().write_all(text.unwrap_or_default());
        let _noted = output::bytes().flush();
        if buffer[..count].contains(&RUN_STARTED) {
            return Ok(Code::Done.into());
        }
        if count == 0 {
            let status = child.wait();
            let status = status.map_err(|e| failed("can't wait for the background process", e))?;
            return Ok(code(status));
        }
    }
}

/// Returns the arguments for the child: those of this process, with `--detached` instead of `--detach`.
fn words(ours: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut ours: Vec<_> = ours.collect();
    let end = ours.iter().position(|word| word == "--");
    let end = end.unwrap_or(ours.len());
    for word in ours[..end].iter_mut().filter(|word| *word == "--detach") {
        *word = "--detached".into();
    }
    ours
}

/// Returns the exit code for a child that exited before its run had started.
fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    let code = code.and_then(|code| u8::try_from(code).ok());
    code.map_or(Code::Failed.into(), ExitCode::from)
}

/// Leaves the session of the terminal, so that its end and its signals don't reach this process. Also closes inherited descriptors: otherwise a
/// pipe of the caller would stay open until the run ends, and a lock would stay taken. Must run before this process opens anything.
pub(crate) fn leave_session() -> Result<(), Failure> {
    let inherited = fs_err::read_dir("/dev/fd").into_iter().flatten();
    let inherited = inherited.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let inherited: Vec<i32> = inherited.filter(|fd| *fd > 2).collect();
    for fd in inherited {
        // One of them was the directory itself, which is already closed.
        let _closed = nix::unistd::close(fd);
    }
    rustix::process::setsid()
        .map(drop)
        .map_err(|e| Failure::failed(format!("can't create a session: {e}")))
}

/// Ends this process if its parent exits before the run has started: until then this process uses the terminal of the parent, and may read from it.
pub(crate) fn end_with_parent(interrupts: Interrupts) -> io::Result<DetachedReady> {
    let parent = io::stdout().as_fd().try_clone_to_owned()?;
    let settled = DetachedReady::default();
    let is_settled = Arc::clone(&settled.0);
    std::thread::Builder::new()
        .name("parent".into())
        .spawn(move || {
            // `poll` reports that the reader is gone even if no event is requested.
            let mut parent = [PollFd::new(&parent, PollFlags::empty())];
            let _gone = retry_on_intr(|| poll(&mut parent, None));
            if !is_settled.load(Ordering::SeqCst) {
                interrupts.injector().terminate(Cause::Hangup);
            }
        })?;
    Ok(settled)
}

/// Whether a detached run has started, so that it no longer depends on its parent.
#[derive(Clone, Debug, Default)]
pub(crate) struct DetachedReady(Arc<AtomicBool>);

/// Reports that the run has started and how to reach it, and lets the parent exit. From now on all output goes to a file of the run.
pub(crate) fn report_ready(
    project: &Project,
    run: &RunId,
    settled: &DetachedReady,
    json: bool,
) -> Result<Output, Failure> {
    let path = project.run_dir(run).join(NAME);
    let output = Output {
        path,
        json,
        written: 0,
        missing: 0,
        checked_at: Instant::now(),
    };
    let file = output
        .open()
        .map_err(|e| Failure::failed(format!("can't write `{}`: {e}", output.path.display())))?;
    let rlm = hint::program_command();
    let pid = std::process::id();
    let text = match json {
        true => {
            let at = render::now();
            let value = json!({"at": at, "event": "detached", "run": run, "pid": pid, "output": output.path});
            render::json_line(&value)
        }
        false => format!(
            "run {run} is running in the background (pid {pid})\n\
             \x20 follow   {rlm} logs -f {run}\n\
             \x20 attach   {rlm} attach {run}\n\
             \x20 stop     {rlm} stop {run}"
        ),
    };
    let mut parent = io::stdout();
    settled.0.store(true, Ordering::SeqCst);
    let sent = writeln!(parent, "{text}").and_then(|()| {
        parent.write_all(&[RUN_STARTED])?;
        parent.flush()
    });
    // The parent was stopped before the run began, so this process stops too.
    sent.map_err(|_| {
        Failure::new(
            Code::Stopped,
            format!(
                "the process that started run `{run}` exited; to continue it: {rlm} resume {run}"
            ),
        )
    })?;
    take_over(file).map_err(|e| Failure::failed(format!("can't redirect the output: {e}")))?;
    Ok(output)
}

/// Redirects all output to the file, and standard input to `/dev/null`.
fn take_over(file: File) -> io::Result<()> {
    rustix::stdio::dup2_stdout(&file)?;
    rustix::stdio::dup2_stderr(&file)?;
    rustix::stdio::dup2_stdin(&fs_err::File::open("/dev/null")?)?;
    Ok(())
}

/// The output of a detached run: standard output, which continues in a new file if its file is too large or was removed.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    path: PathBuf,
    json: bool,
    written: u64,
    /// The number of lines that were lost because the disk was full.
    missing: usize,
    /// The last time at which the file was checked.
    checked_at: Instant,
}

impl Output {
    fn open(&self) -> io::Result<File> {
        state_dir::append(&self.path)
    }
}

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    [StorageFull, QuotaExceeded].contains(&error.kind())
}

/// Returns the note about lost lines. It begins with a newline, because the line before it may be incomplete.
fn missed(lines: usize, json: bool) -> String {
    match json {
        true => format!(
            "\n{}\n",
            render::json_line(
                &json!({"at": render::now(), "event": "events_missed", "lines": lines})
            )
        ),
        false => format!(
            "\n({} missing here: the disk was full)\n",
            rlm_text::count(lines, "line is", "lines are")
        ),
    }
}

impl io::Write for Output {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut written = match self.missing {
            0 => Ok(()),
            lines => io::stdout().write_all(missed(lines, self.json).as_bytes()),
        };
        if written.is_ok() {
            self.missing = 0;
            written = io::stdout().write_all(text);
        }
        match written {
            // The disk may have space later.
            Err(e) if is_full(&e) => self.missing += text.split(|byte| *byte == b'\n').count() - 1,
            Err(e) => return Err(e),
            Ok(()) => self.written += text.len() as u64,
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().or_else(|e| match is_full(&e) {
            true => Ok(()),
            false => Err(e),
        })?;
        let is_full = self.written >= MAX_FILE_BYTES;
        if !is_full && self.checked_at.elapsed() < CHECK_INTERVAL {
            return Ok(());
        }
        self.checked_at = Instant::now();
        if is_full {
            self.written = 0;
            let _grows = state_dir::rename(&self.path, &self.path.with_extension("log.1"));
        }
        // If the new file can't be opened, output continues to the old one.
        let there = state_dir::metadata(&self.path).ok();
        let here = rustix::fs::fstat(io::stdout())?;
        if there.is_none_or(|there| there.identity().inode != here.st_ino) {
            return self.open().and_then(take_over).or(Ok(()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_detach_flag_of_rlm_is_replaced() {
        let line = "run --detach -n 3 -- agent --detach";
        let words = words(line.split(' ').map(OsString::from));
        assert_eq!(
            words.join(std::ffi::OsStr::new(" ")),
            "run --detached -n 3 -- agent --detach"
        );
    }
}
