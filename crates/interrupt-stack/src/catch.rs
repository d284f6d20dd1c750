//! The side of the signal handler. Everything under [`Catch::on_signal`] may interrupt any instruction of any thread: it is atomics
//! and async-signal-safe calls, no lock, no allocation, no code of others.

use std::{
    io::{self, PipeReader, PipeWriter, Read, Write},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use rustix::{
    io::ioctl_fionbio,
    process::{Signal, kill_current_process_group},
};

use crate::{
    process::Terminal,
    sys::{self, Origin},
    word::{Kind, Verdict, Word},
};

/// How often is looked for what was posted when nobody can be woken.
const UNWOKEN: Duration = Duration::from_millis(50);
/// How far up a forwarder is looked for.
const ANCESTORS: usize = 16;

/// What an install catches; `SIGTSTP`, the first, only where there is something to be done about it.
pub(crate) const SIGNALS: [i32; 6] = [
    libc::SIGTSTP,
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGCONT,
];

/// What the handler needs, made before it is registered and never changed but by atomics.
pub(crate) struct Catch {
    pub(crate) word: Word,
    start: Instant,
    pid: u32,
    debounce: u64,
    forward_window: u64,
    /// Processes whose `SIGINT` may be the terminal's, forwarded.
    ancestors: Vec<i32>,
    /// When the terminal sent a `SIGINT` last, in microseconds since `start`; 0 for never.
    from_terminal: AtomicU64,
    /// From so many rungs on a press ends the process right here: 2, or 3 where a thread has the first try, or never.
    last_rung: u64,
    terminal: Option<Terminal>,
    /// The signals were given back.
    released: AtomicBool,
    /// Both ends live here, so that no write ever meets a closed one. One byte wakes one of those who read.
    wake: PipeWriter,
    woken: PipeReader,
}

impl Catch {
    pub(crate) fn new(
        debounce: Duration,
        forward_window: Duration,
        last_rung: u64,
        restores_terminal: bool,
    ) -> io::Result<Self> {
        let (woken, wake) = io::pipe()?;
        ioctl_fionbio(&wake, true)?; // full means that there is enough to wake by
        Ok(Self {
            word: Word::new(),
            start: Instant::now(),
            pid: std::process::id(),
            debounce: micros(debounce),
            forward_window: micros(forward_window),
            ancestors: ancestors(),
            from_terminal: AtomicU64::new(0),
            last_rung,
            terminal: restores_terminal.then(Terminal::find).flatten(),
            released: AtomicBool::new(false),
            wake,
            woken,
        })
    }

    /// The handler itself.
    pub(crate) fn on_signal(&self, signal: i32, origin: Origin) {
        if std::process::id() != self.pid {
            return in_forked_child(signal);
        }
        let now = micros(self.start.elapsed());
        let posted = match signal {
            libc::SIGINT => match self.press(now, origin) {
                Verdict::LastRung => self.end(signal),
                verdict => verdict == Verdict::Posted,
            },
            libc::SIGQUIT if self.quits() => self.end(signal),
            libc::SIGQUIT => self.word.raise(Kind::Quit, now),
            libc::SIGTERM => self.word.raise(Kind::Terminate, now),
            libc::SIGHUP => self.word.raise(Kind::Hangup, now),
            libc::SIGTSTP => self.word.raise(Kind::Suspend, now),
            _ => self.word.raise(Kind::Resume, now),
        };
        if posted {
            self.wake();
        }
    }

    fn press(&self, now: u64, origin: Origin) -> Verdict {
        match origin {
            Origin::Terminal => self.from_terminal.store(now.max(1), Relaxed),
            Origin::Process(pid) => {
                let from_terminal = self.from_terminal.load(Relaxed);
                let is_soon = now.saturating_sub(from_terminal) < self.forward_window;
                if from_terminal != 0 && is_soon && self.ancestors.contains(&pid) {
                    return Verdict::Part;
                }
            }
        }
        self.word.press(now, self.debounce, self.last_rung)
    }

    fn quits(&self) -> bool {
        self.last_rung == 2 || self.last_rung == 3 && self.word.is_ending()
    }

    fn end(&self, signal: i32) -> ! {
        self.restore_terminal();
        sys::raise_default(signal);
        sys::exit_now(128 + signal as u8) // signals are below 128
    }

    /// Puts the terminal's settings back for a hard exit, if that is wanted and the terminal is ours.
    pub(crate) fn restore_terminal(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.restore();
        }
    }

    /// Wakes one of those who wait.
    pub(crate) fn wake(&self) {
        // The only failure is a full pipe, by which they wake as well.
        drop((&self.wake).write(&[0]));
    }

    /// Blocks until there is something to look for. Others may find it first.
    pub(crate) fn wait(&self) {
        let read = (&self.woken).read(&mut [0; 64]);
        // A signal of others, without `SA_RESTART`, costs a look too many. Anything else says that somebody closed all descriptors of
        // the process, as daemons do: what is posted is looked for now and then.
        if read.is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            std::thread::park_timeout(UNWOKEN);
        }
    }

    #[cfg(feature = "driver")]
    pub(crate) fn woken(&self) -> io::Result<PipeReader> {
        self.woken.try_clone()
    }

    /// Does what the terminal does on ^Z, as long as the signals are caught.
    pub(crate) fn suspend_job(&self) {
        if !self.released.load(Relaxed) {
            // It cannot fail: the group has us in it.
            let _impossible = kill_current_process_group(Signal::TSTP);
        }
    }

    /// Notes that the signals are given back.
    pub(crate) fn release(&self) {
        self.released.store(true, Relaxed);
    }

    pub(crate) fn instant(&self, micros: u64) -> Instant {
        self.start + Duration::from_micros(micros)
    }

    /// See [`Word::admit`].
    pub(crate) fn admits(&self, at: Instant) -> bool {
        self.word.admit(self.micros(at), self.debounce)
    }

    pub(crate) fn micros(&self, at: Instant) -> u64 {
        micros(at.saturating_duration_since(self.start))
    }
}

/// A copy of the process between `fork` and `exec`: it has our handler, but nothing of what is meant by it.
fn in_forked_child(signal: i32) {
    if signal == libc::SIGCONT {
        return; // it goes on already
    }
    sys::raise_default(signal);
    if signal != libc::SIGTSTP {
        sys::exit_now(128 + signal as u8); // signals are below 128
    }
}

/// Microseconds, of which there is room for two thousand years.
fn micros(duration: Duration) -> u64 {
    duration.as_micros().min(u64::MAX as u128 >> 8) as u64
}

/// The parent, its parent and so on, as far as the system tells.
fn ancestors() -> Vec<i32> {
    let parent = std::os::unix::process::parent_id() as i32;
    let up = |pid: &i32| parent_of(*pid);
    std::iter::successors(Some(parent), up)
        .take_while(|pid| *pid > 0)
        .take(ANCESTORS)
        .collect()
}

#[cfg(target_os = "linux")]
fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name before it is in parentheses and may hold anything, these too.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&stat[end..]).ok()?;
    fields.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(not(target_os = "linux"))]
fn parent_of(_: i32) -> Option<i32> {
    None
}
