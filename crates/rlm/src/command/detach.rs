//! `--detach`: the same program in a session of its own, which its parent waits for until the run is at work.
//!
//! The parent reads the child's standard output: what is for the person, and then a byte of nothing, which says that the run is at work. Before that
//! byte the child dies like any program, and the parent ends as it does.

use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use fs_err::os::unix::fs::OpenOptionsExt as _;
use loop_runner::{Project, RunId};
use serde_json::json;

use crate::exit::{Code, Failure};
use crate::render;

/// What says that the run is at work.
const AT_WORK: u8 = 0;
/// When what a detached run prints is begun anew; the file before is kept, and the one before that goes.
const MOST: u64 = 32 << 20;
const NAME: &str = "output.log";

/// Starts this program again with the same words, and waits until its run is at work or it has ended.
pub(crate) fn start() -> Result<ExitCode, Failure> {
    let failed = |what: &str, e: io::Error| Failure {
        code: Code::Failed,
        message: format!("{what}: {e}"),
    };
    let program =
        std::env::current_exe().map_err(|e| failed("this program can't find itself", e))?;
    let (mut says, output) = io::pipe().map_err(|e| failed("no pipe can be made", e))?;
    let mut child = Command::new(program)
        .args(words(std::env::args_os().skip(1)))
        .stdin(Stdio::inherit())
        .stdout(output)
        .spawn()
        .map_err(|e| failed("the background process can't be started", e))?;
    let mut said = [0; 4096];
    loop {
        let count = says.read(&mut said).unwrap_or(0);
        let text = said[..count].split(|byte| *byte == AT_WORK).next();
        // That nobody reads is no reason to fail.
        let _gone = io::stdout().write_all(text.unwrap_or_default());
        let _gone = io::stdout().flush();
        if said[..count].contains(&AT_WORK) {
            return Ok(Code::Done.into());
        }
        if count == 0 {
            let status = child.wait();
            let status = status.map_err(|e| failed("the background process is lost", e))?;
            return Ok(code(status));
        }
    }
}

/// Returns the words for the child: those that we were called with, but for the one that asked for it.
fn words(ours: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut ours: Vec<_> = ours.collect();
    let end = ours.iter().position(|word| word == "--");
    let end = end.unwrap_or(ours.len());
    for word in ours[..end].iter_mut().filter(|word| *word == "--detach") {
        *word = "--detached".into();
    }
    ours
}

/// A child that is dead has not begun, whatever it died of.
fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    let code = code.and_then(|code| u8::try_from(code).ok());
    code.map_or(Code::Failed.into(), ExitCode::from)
}

/// Leaves the session of the terminal: its end, and its signals, are none of ours from now on.
pub(crate) fn leave_session() -> Result<(), Failure> {
    rustix::process::setsid().map(drop).map_err(|e| Failure {
        code: Code::Failed,
        message: format!("no session of its own can be had: {e}"),
    })
}

/// Says that the run is at work and how it is reached, and lets whoever started it go. What is printed from now on goes to a file with the run.
pub(crate) fn settle(project: &Project, run: &RunId, json: bool) -> Result<Output, Failure> {
    let path = project.run_dir(run).join(NAME);
    let output = Output { path, written: 0 };
    let file = output.open().map_err(|e| Failure {
        code: Code::Failed,
        message: format!("nothing can be written with the run: {e}"),
    })?;
    let rlm = render::rlm();
    let pid = std::process::id();
    let text = match json {
        true => {
            let at = render::now();
            json!({"at": at, "event": "detached", "run": run, "pid": pid, "output": output.path})
                .to_string()
        }
        false => format!(
            "run {run} is at work in the background (pid {pid})\n\
             \x20 follow   {rlm} logs -f {run}\n\
             \x20 attach   {rlm} attach {run}\n\
             \x20 stop     {rlm} stop {run}"
        ),
    };
    let mut parent = io::stdout();
    let told = writeln!(parent, "{text}").and_then(|()| {
        parent.write_all(&[AT_WORK])?;
        parent.flush()
    });
    // Who started it was stopped, and so is this: nothing has begun.
    told.map_err(|_| Failure {
        code: Code::Stopped,
        message: format!("who started run `{run}` is gone; go on with: {rlm} resume {run}"),
    })?;
    take_over(file).map_err(|e| Failure {
        code: Code::Failed,
        message: format!("the output can't be turned: {e}"),
    })?;
    Ok(output)
}

/// Has everything that is printed go to the file, and nothing be read.
fn take_over(file: fs_err::File) -> io::Result<()> {
    rustix::stdio::dup2_stdout(&file)?;
    rustix::stdio::dup2_stderr(&file)?;
    rustix::stdio::dup2_stdin(&fs_err::File::open("/dev/null")?)?;
    Ok(())
}

/// What a detached run prints: the standard output, whose file is begun anew before it is too large.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    path: PathBuf,
    written: u64,
}

impl Output {
    fn open(&self) -> io::Result<fs_err::File> {
        let mut options = fs_err::OpenOptions::new();
        options
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)
    }
}

impl io::Write for Output {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let written = io::stdout().write(text)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()?;
        if self.written < MOST {
            return Ok(());
        }
        self.written = 0;
        // Where it can't be begun anew it grows.
        let turned = fs_err::rename(&self.path, self.path.with_extension("log.1"))
            .and_then(|()| self.open())
            .and_then(take_over);
        turned.or(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_word_is_replaced() {
        let line = "run --detach -n 3 -- agent --detach";
        let words = words(line.split(' ').map(OsString::from));
        assert_eq!(
            words.join(std::ffi::OsStr::new(" ")),
            "run --detached -n 3 -- agent --detach"
        );
    }
}
