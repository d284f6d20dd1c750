//! The signal handler. Everything that [`SignalCatcher::on_signal`] calls may interrupt any instruction of any thread. So it uses only atomics
//! and async-signal-safe calls: no lock, no allocation, no foreign code.

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
    press_word::{PostKind, PressOutcome, PressWord},
    process::Terminal,
    sys::{self, Origin},
};

/// The interval of checks for posts if the wake pipe doesn't work.
const UNWOKEN: Duration = Duration::from_millis(50);
/// The maximum number of ancestors that are searched for a forwarder.
const ANCESTORS: usize = 16;

/// The signals that an install catches. `SIGTSTP`, the first, is caught only with a hook for it.
pub(crate) const SIGNALS: [i32; 6] = [
    libc::SIGTSTP,
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGCONT,
];

/// The data of the signal handler. It is created before the handler is registered, and later only atomics change.
pub(crate) struct SignalCatcher {
    pub(crate) word: PressWord,
    start: Instant,
    pid: u32,
    /// In microseconds.
    debounce: AtomicU64,
    forward_window: u64,
    /// Processes that may forward the terminal's `SIGINT`.
    ancestors: Vec<i32>,
    /// The time of the terminal's last `SIGINT`, in microseconds since `start`; 0 for never.
    from_terminal: AtomicU64,
    /// The lowest stage at which a press ends the process in the handler: 2, or 3 if a thread tries the exit first, or `u64::MAX` for never.
    last_stage: u64,
    terminal: Option<Terminal>,
    /// Whether the signals were restored.
    released: AtomicBool,
    /// Both ends of the pipe live here, so that the read end is never closed during a write. One byte wakes one reader.
    wake: PipeWriter,
    woken: PipeReader,
}

impl SignalCatcher {
    pub(crate) fn new(
        debounce: Duration,
        forward_window: Duration,
        last_stage: u64,
        restores_terminal: bool,
    ) -> io::Result<Self> {
        let (woken, wake) = io::pipe()?;
        ioctl_fionbio(&wake, true)?; // a full pipe wakes the readers anyway
        Ok(Self {
            word: PressWord::new(),
            start: Instant::now(),
            pid: std::process::id(),
            debounce: AtomicU64::new(micros(debounce)),
            forward_window: micros(forward_window),
            ancestors: ancestors(),
            from_terminal: AtomicU64::new(0),
            last_stage,
            terminal: restores_terminal.then(Terminal::find).flatten(),
            released: AtomicBool::new(false),
            wake,
            woken,
        })
    }

    /// Handles a signal, in the signal handler.
    pub(crate) fn on_signal(&self, signal: i32, origin: Origin) {
        if std::process::id() != self.pid {
            return in_forked_child(signal);
        }
        let now = micros(self.start.elapsed());
        let posted = match signal {
            libc::SIGINT => match self.press(now, origin) {
                PressOutcome::HardExit => self.end(signal),
                outcome => outcome == PressOutcome::Posted,
            },
            libc::SIGQUIT if self.quits() => self.end(signal),
            libc::SIGQUIT => self.word.post(PostKind::Quit, now),
            libc::SIGTERM => self.word.post(PostKind::Terminate, now),
            libc::SIGHUP => self.word.post(PostKind::Hangup, now),
            libc::SIGTSTP => self.word.post(PostKind::Suspend, now),
            _ => self.word.post(PostKind::Resume, now),
        };
        if posted {
            self.wake();
        }
    }

    fn press(&self, now: u64, origin: Origin) -> PressOutcome {
        match origin {
            Origin::Terminal => self.from_terminal.store(now.max(1), Relaxed),
            Origin::Process(pid) => {
                let from_terminal = self.from_terminal.load(Relaxed);
                let is_soon = now.saturating_sub(from_terminal) < self.forward_window;
                if from_terminal != 0 && is_soon && self.ancestors.contains(&pid) {
                    return PressOutcome::Debounced;
                }
            }
        }
        let debounce = self.debounce.load(Relaxed);
        self.word.press(now, debounce, self.last_stage)
    }

    fn quits(&self) -> bool {
        self.last_stage == 2 || self.last_stage == 3 && self.word.is_ending()
    }

    fn end(&self, signal: i32) -> ! {
        self.restore_terminal();
        sys::raise_default(signal);
        sys::exit_now(128 + signal as u8) // signals are below 128
    }

    /// Restores the settings of the terminal for a hard exit, if the program wants that and this process is in the foreground.
    pub(crate) fn restore_terminal(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.restore();
        }
    }

    /// Wakes one waiting thread.
    pub(crate) fn wake(&self) {
        // The only failure is a full pipe, which wakes the threads too.
        drop((&self.wake).write(&[0]));
    }

    /// Blocks until a wake. Another thread may read the posts first.
    pub(crate) fn wait(&self) {
        let read = (&self.woken).read(&mut [0; 64]);
        // A foreign signal handler without `SA_RESTART` interrupts the read; that costs one needless check. Any other error means that
        // the program closed all its descriptors, as daemons do: then check for posts at an interval.
        if read.is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            std::thread::park_timeout(UNWOKEN);
        }
    }

    #[cfg(feature = "driver")]
    pub(crate) fn woken(&self) -> io::Result<PipeReader> {
        self.woken.try_clone()
    }

    /// Sends `SIGTSTP` to the process group, as the terminal does on ^Z. Does nothing after the signals were restored.
    pub(crate) fn suspend_job(&self) {
        if !self.released.load(Relaxed) {
            // This can't fail, because this process is in the group.
            let _impossible = kill_current_process_group(Signal::TSTP);
        }
    }

    pub(crate) fn set_debounce(&self, debounce: Duration) {
        self.debounce.store(micros(debounce), Relaxed);
    }

    /// Notes that the signals are restored.
    pub(crate) fn release(&self) {
        self.released.store(true, Relaxed);
    }

    pub(crate) fn instant(&self, micros: u64) -> Instant {
        self.start + Duration::from_micros(micros)
    }

    /// Returns whether a press that is not a signal is a new press; see [`PressWord::admit`].
    pub(crate) fn admits(&self, at: Instant) -> bool {
        let debounce = self.debounce.load(Relaxed);
        self.word.admit(self.micros(at), debounce)
    }

    pub(crate) fn micros(&self, at: Instant) -> u64 {
        micros(at.saturating_duration_since(self.start))
    }
}

/// Handles a signal in a child between `fork` and `exec`. The child has inherited the handler, but must die of its own signals.
fn in_forked_child(signal: i32) {
    if signal == libc::SIGCONT {
        return; // the child runs already
    }
    sys::raise_default(signal);
    if signal != libc::SIGTSTP {
        sys::exit_now(128 + signal as u8); // signals are below 128
    }
}

/// Converts to microseconds, with room for two thousand years.
fn micros(duration: Duration) -> u64 {
    duration.as_micros().min(u64::MAX as u128 >> 8) as u64
}

/// Returns the parent, its parent and so on, as far as the system reports them.
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
    // The process name in parentheses may contain anything, even parentheses.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(&stat[end..]).ok()?;
    fields.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(not(target_os = "linux"))]
fn parent_of(_: i32) -> Option<i32> {
    None
}
