//! Measured processes. They run this binary again, so that signal dispositions, heaps and file descriptors do not mix.

use std::io::Read;
use std::os::fd::AsFd;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{self, Runtime};

use super::bench::{MEASURED, Result};

/// A process. Dropping it kills it, by its id, and reaps it.
pub(crate) struct Process(std::process::Child);

impl Process {
    /// Starts a program with pipes for its input and its output.
    pub(crate) fn piped(mut command: Command) -> Result<(Self, ChildStdin, ChildStdout)> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(input), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both are piped")
        };
        Ok((Self(child), input, out))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls also return `Ok` if the process is already reaped. An error can't be handled here.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A measured process, which is killed when it is dropped.
pub(crate) struct Child {
    process: Process,
    out: ChildStdout,
    /// When this closes, the child knows that this process has ended.
    input: ChildStdin,
}

impl Child {
    /// Starts this binary as the measured process `what`.
    pub(crate) fn start(what: &[&str]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(MEASURED).args(what);
        Self::spawn(command)
    }

    /// Starts any program that ends when its input ends.
    pub(crate) fn spawn(command: Command) -> Result<Self> {
        let (process, input, out) = Process::piped(command)?;
        Ok(Self {
            process,
            out,
            input,
        })
    }

    /// Returns the process id. It is valid until the drop or [`Child::gone_within`] reaps the process.
    pub(crate) fn id(&self) -> u32 {
        self.process.0.id()
    }

    pub(crate) fn input(&mut self) -> &mut ChildStdin {
        &mut self.input
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.id().cast_signed()).ok_or("a child has an id")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Fills `buffer` from the child's output; `false` if that takes longer than `limit`.
    ///
    /// # Errors
    ///
    /// Fails when the child ends first.
    pub(crate) fn read_exact(&mut self, buffer: &mut [u8], limit: Duration) -> Result<bool> {
        let deadline = Instant::now() + limit;
        let mut filled = 0;
        while filled < buffer.len() {
            if !readable_by(&self.out, deadline)? {
                return Ok(false);
            }
            match self.out.read(&mut buffer[filled..])? {
                0 => return Err("the measured process ended too soon".into()),
                count => filled += count,
            }
        }
        Ok(true)
    }

    /// Reads a line of at most 4 KiB.
    ///
    /// # Errors
    ///
    /// Fails when the child ends first, or after `limit`.
    pub(crate) fn read_line(&mut self, limit: Duration) -> Result<String> {
        let deadline = Instant::now() + limit;
        let mut line = Vec::new();
        let mut byte = [0];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if !self.read_exact(&mut byte, left)? {
                return Err(format!("the measured process printed nothing for {limit:?}").into());
            }
            match byte[0] {
                b'\n' => return Ok(String::from_utf8(line)?),
                _ if line.len() == 4096 => return Err("the line has more than 4 KiB".into()),
                byte => line.push(byte),
            }
        }
    }

    /// Reads a line of `N` numbers with a space between them.
    ///
    /// # Errors
    ///
    /// Fails as [`Child::read_line`] does, and when the line has another format.
    pub(crate) fn read_figures<const N: usize>(&mut self, limit: Duration) -> Result<[f64; N]> {
        let line = self.read_line(limit)?;
        let figures: std::result::Result<Vec<f64>, _> = line.split(' ').map(str::parse).collect();
        figures?
            .try_into()
            .map_err(|_| format!("expected {N} figures, got \"{line}\"").into())
    }

    /// Waits for the death of the child, which ends its output, and reaps the child; returns `false` after `limit`.
    pub(crate) fn gone_within(&mut self, limit: Duration) -> Result<bool> {
        let deadline = Instant::now() + limit;
        let mut rest = [0; 512];
        while readable_by(&self.out, deadline)? {
            if self.out.read(&mut rest)? == 0 {
                self.process.0.wait()?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Waits until `from` has something to read, or has ended; `false` after `deadline`.
pub(crate) fn readable_by(from: &impl AsFd, deadline: Instant) -> Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::from_borrowed_fd(from.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&Timespec::try_from(left)?)) {
            Err(rustix::io::Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

/// Sleeps for ever.
pub(crate) fn park() -> ! {
    loop {
        std::thread::park();
    }
}

/// Ends this measured process when its parent has ended, whatever state its other threads are in.
pub(crate) fn end_with_parent() {
    std::thread::spawn(|| {
        let mut byte = [0];
        while matches!(std::io::stdin().read(&mut byte), Ok(1)) {}
        crate::sys::exit_now();
    });
}

/// Returns the nanoseconds of the clock that all processes of the machine share.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Sleeps for `time`, so that other processes settle. To wait for another process, use a pipe instead.
pub(crate) fn pause(time: Duration) {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::park_timeout(left);
    }
}

/// Makes a runtime on the calling thread only.
pub(crate) fn one_thread() -> Result<Runtime> {
    Ok(runtime::Builder::new_current_thread()
        .enable_all()
        .build()?)
}

/// Makes a runtime with as many worker threads as there are cores.
pub(crate) fn workers() -> Result<Runtime> {
    Ok(runtime::Builder::new_multi_thread().enable_all().build()?)
}
