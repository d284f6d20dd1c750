//! The controlling terminal: its modes, who it belongs to, and what comes from it.
//!
//! The signals of the terminal's keys stay switched on in every mode, so that Ctrl-C is a press whatever state this program is in. A process of the same
//! user can switch them off from anywhere, an agent too: `rearm` switches them on again.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcgetpgrp, tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::editor::kill_open;

/// The most that is read as one piece.
const MAX_PIECE: usize = 64 << 10;
/// What follows this closely came at once: a paste.
const TOGETHER: Duration = Duration::from_millis(20);
/// How often a program in the background looks whether it still is.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
const PASTE_ON: &[u8] = b"\x1b[?2004h";
const PASTE_OFF: &[u8] = b"\x1b[?2004l";
/// The first screen, a cursor, a fresh row.
const LEAVE_EDITOR: &[u8] = b"\x1b[?1049l\x1b[?25h\r\n";

/// The terminal that the end of the process must leave as it was.
static OURS: OnceLock<Arc<Tty>> = OnceLock::new();

/// The controlling terminal.
#[derive(Debug)]
pub(crate) struct Tty {
    /// Opened anew and not blocking, which nobody else's descriptor becomes by that.
    fd: OwnedFd,
    state: Mutex<State>,
    /// Whether the terminal is in our mode, for those who can't wait for the lock.
    is_ours: AtomicBool,
    /// Whether the mode was set again after somebody else had changed it, so that the end has to restore it.
    is_rearmed: AtomicBool,
    /// How many live rows there are down to that of the cursor, for an end of the process that has to take them away.
    live_rows: AtomicUsize,
    /// How many pieces were read, or are being read, that whoever draws has not heard of.
    unheard: AtomicUsize,
}

#[derive(Debug)]
struct State {
    /// The mode that we found.
    found: Termios,
    single_keys: bool,
    paste: bool,
    /// Grows when what was typed before is to be forgotten.
    generation: u64,
}

impl State {
    /// Returns the mode in which keys come one by one, or lines.
    fn mode(&self, single_keys: bool) -> Termios {
        let mut mode = self.found.clone();
        if single_keys {
            mode.local_modes
                .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN);
            mode.special_codes[SpecialCodeIndex::VMIN] = 1;
            mode.special_codes[SpecialCodeIndex::VTIME] = 0;
        }
        mode
    }

    /// Whether Ctrl-C makes a signal in the mode that we found, and none in this one.
    fn is_disarmed(&self, now: &Termios) -> bool {
        const NONE: u8 = 0;
        let interrupt = |mode: &Termios| match mode.local_modes.contains(LocalModes::ISIG) {
            true => mode.special_codes[SpecialCodeIndex::VINTR],
            false => NONE,
        };
        interrupt(&self.found) != NONE && interrupt(now) != interrupt(&self.found)
    }
}

/// Something that was typed.
#[derive(Debug)]
pub(crate) enum Typed {
    /// By a terminal that edits lines itself: a line with its end, or what there was of one.
    Lines(Vec<u8>),
    /// Keys, with the generation that they belong to.
    Keys(Vec<u8>, u64),
    /// Nothing: somebody else had switched the signals of the keys off, and they are on again.
    Rearmed,
    /// The terminal is gone.
    Gone,
}

impl Tty {
    /// Opens the controlling terminal; `None` when there is none.
    ///
    /// # Errors
    ///
    /// When there is one that can't be used.
    pub(crate) fn open() -> io::Result<Option<Arc<Self>>> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = open("/dev/tty", flags, Mode::empty());
        let (fd, found) = match opened.and_then(|fd| Ok((tcgetattr(&fd)?, fd))) {
            Ok((found, fd)) => (fd, found),
            Err(errno) if errno != Errno::NXIO && has_terminal() => return Err(errno.into()),
            Err(_) => return Ok(None),
        };
        let tty = Arc::new(Self {
            fd,
            state: Mutex::new(State {
                found,
                single_keys: false,
                paste: false,
                generation: 0,
            }),
            is_ours: AtomicBool::new(false),
            is_rearmed: AtomicBool::new(false),
            live_rows: AtomicUsize::new(0),
            unheard: AtomicUsize::new(0),
        });
        // A process has one session.
        let tty = Arc::clone(OURS.get_or_init(|| tty));
        Ok(Some(tty))
    }

    /// Opens it once more, for somebody who may block.
    pub(crate) fn again() -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(open("/dev/tty", flags, Mode::empty())?.into())
    }

    /// Whether it is our turn: a program in the background must not touch a terminal.
    pub(crate) fn is_foreground(&self) -> bool {
        is_foreground(&self.fd)
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(&self.fd).ok();
        let (columns, rows) = size.map_or((0, 0), |size| (size.ws_col, size.ws_row));
        let or = |n: u16, default: usize| if n == 0 { default } else { n.into() };
        (or(columns, 80), or(rows, 24))
    }

    /// Has keys come one by one and unseen, or lines edited by the terminal.
    ///
    /// # Errors
    ///
    /// When the terminal is not ours or does not obey.
    pub(crate) fn single_keys(&self, on: bool, bracket_pastes: bool) -> io::Result<()> {
        let mut state = self.lock();
        if state.single_keys == on && state.paste == (on && bracket_pastes) {
            return Ok(());
        }
        if !self.is_foreground() {
            return Err(Errno::PERM.into());
        }
        let mode = state.mode(on);
        if on {
            self.is_ours.store(true, Ordering::SeqCst);
        }
        tcsetattr(&self.fd, OptionalActions::Now, &mode)?;
        self.is_ours.store(on, Ordering::SeqCst);
        state.single_keys = on;
        let paste = on && bracket_pastes;
        if paste != state.paste {
            state.paste = paste;
            self.write_now(if paste { PASTE_ON } else { PASTE_OFF });
        }
        Ok(())
    }

    /// Forgets what was typed and not read. Returns the generation of what is typed from now on.
    pub(crate) fn forget_typed(&self) -> u64 {
        let mut state = self.lock();
        if self.is_foreground() {
            // If it fails, keys that nobody saw the question for may answer it; there is nothing better to do.
            let _unlikely = tcflush(&self.fd, QueueSelector::IFlush);
        }
        state.generation += 1;
        state.generation
    }

    /// Takes the mode that is found now for the one to restore: after a time in which the terminal was somebody else's.
    pub(crate) fn take_over(&self) {
        let mut state = self.lock();
        if let Ok(found) = tcgetattr(&self.fd)
            && self.is_foreground()
            && found.local_modes.contains(LocalModes::ICANON)
            && !state.is_disarmed(&found)
        {
            state.found = found;
        }
        state.single_keys = false;
        state.paste = false;
        self.is_ours.store(false, Ordering::SeqCst);
    }

    /// Puts the mode back that somebody else may have left otherwise.
    pub(crate) fn reset(&self) {
        let mut state = self.lock();
        if self.is_foreground() {
            let _gone = tcsetattr(&self.fd, OptionalActions::Now, &state.found);
            state.single_keys = false;
            state.paste = false;
        }
    }

    /// Switches the signals of the keys on again if somebody else switched them off; says whether that was so.
    ///
    /// What was typed meanwhile can be read then, and a Ctrl-C in it counts.
    pub(crate) fn rearm(&self) -> bool {
        let state = self.lock();
        let now = tcgetattr(&self.fd);
        if !now.is_ok_and(|now| state.is_disarmed(&now)) || !self.is_foreground() {
            return false;
        }
        self.is_rearmed.store(true, Ordering::SeqCst);
        let mut mode = state.mode(state.single_keys);
        if !state.single_keys {
            // Should they be switched off once more, Ctrl-C ends a line, which is read at once.
            mode.special_codes[SpecialCodeIndex::VEOL] =
                mode.special_codes[SpecialCodeIndex::VINTR];
            // Without lines for a moment: what was typed without an end becomes readable by that.
            let mut keys = mode.clone();
            keys.local_modes.remove(LocalModes::ICANON);
            let _gone = tcsetattr(&self.fd, OptionalActions::Now, &keys);
        }
        tcsetattr(&self.fd, OptionalActions::Now, &mode).is_ok()
    }

    /// Looks each second whether the signals of the keys are on, until `end` is closed at its other side. For a terminal that nobody reads.
    pub(crate) fn guard(&self, end: &OwnedFd, mut rearmed: impl FnMut()) {
        while wait(&[end], LOOK_AGAIN * 4)[0].is_none() {
            if self.rearm() {
                rearmed();
            }
        }
    }

    /// Gives the terminal to the process group `group`, or back to ours.
    pub(crate) fn give_to(&self, group: rustix::process::Pid) -> io::Result<()> {
        Ok(rustix::termios::tcsetpgrp(&self.fd, group)?)
    }

    /// Puts the terminal into the mode in which we found it, if it is ours to do so.
    pub(crate) fn restore(&self) {
        let Some(state) = self.lock_soon() else {
            return;
        };
        let live = self.live_rows.swap(0, Ordering::SeqCst);
        if live > 0 && self.is_foreground() {
            let up = match live - 1 {
                0 => String::new(),
                up => format!("\x1b[{up}A"),
            };
            self.write_now(format!("\r{up}\x1b[J").as_bytes());
        }
        let is_changed =
            self.is_ours.load(Ordering::SeqCst) || self.is_rearmed.load(Ordering::SeqCst);
        if is_changed && self.is_foreground() {
            if state.paste {
                self.write_now(PASTE_OFF);
            }
            let _gone = tcsetattr(&self.fd, OptionalActions::Now, &state.found);
        }
    }

    /// Notes how many rows, from the first live one to that of the cursor, are to be taken away at the end.
    pub(crate) fn note_live_rows(&self, rows: usize) {
        self.live_rows.store(rows, Ordering::SeqCst);
    }

    /// Shows a line, if the terminal takes it.
    pub(crate) fn tell(&self, text: &str) {
        self.write_now(format!("{}\n", anstream::adapter::strip_str(text)).as_bytes());
    }

    /// Rings the bell, which moves no cursor.
    pub(crate) fn ring(&self) {
        self.write_now(b"\x07");
    }

    /// Writes what is small, or gives it up: a terminal that takes nothing must hold nobody up.
    fn write_now(&self, bytes: &[u8]) {
        let _full = rustix::io::write(&self.fd, bytes);
    }

    /// Locks for an end of the process that may have come upon the thread that holds the lock: others hold it for moments only.
    fn lock_soon(&self) -> Option<MutexGuard<'_, State>> {
        (0..10_000).find_map(|_| match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                None
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the terminal may have echoed the end of a line that [`heard`](Self::heard) was not called for.
    pub(crate) fn has_unheard(&self) -> bool {
        if self.unheard.load(Ordering::SeqCst) > 0 {
            return true;
        }
        // Without lines nothing is echoed.
        let edits_lines = !self.is_ours.load(Ordering::SeqCst);
        let typed = || wait(&[&self.fd], Duration::ZERO)[0];
        edits_lines && typed().is_some_and(|flags| flags.contains(PollFlags::IN))
    }

    /// Whoever draws has got a piece of what was typed.
    pub(crate) fn heard(&self) {
        let less = |unheard: usize| unheard.checked_sub(1);
        let _none = self
            .unheard
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }

    /// Reads until the terminal or the receiver is gone, or `end` is closed at its other side. Never reads, and is never stopped, in the background.
    pub(crate) fn read_all(&self, to: &mpsc::Sender<Typed>, end: &OwnedFd) {
        loop {
            if !self.is_foreground() {
                if wait(&[end], LOOK_AGAIN)[0].is_some() {
                    return;
                }
                continue;
            }
            let [typed, ended] = wait(&[&self.fd, end], LOOK_AGAIN * 4);
            if ended.is_some() {
                return;
            }
            // One that waits to be heard of is enough.
            if self.rearm() && matches!(to.try_send(Typed::Rearmed), Err(TrySendError::Closed(_))) {
                return;
            }
            let Some(flags) = typed else { continue };
            self.unheard.fetch_add(1, Ordering::SeqCst);
            let Some(piece) = self.read_piece(flags, end) else {
                self.heard();
                continue;
            };
            let gone = matches!(piece, Typed::Gone);
            if to.blocking_send(piece).is_err() || gone {
                return;
            }
        }
    }

    /// Reads what came at once.
    fn read_piece(&self, flags: PollFlags, end: &OwnedFd) -> Option<Typed> {
        let mut piece = Vec::new();
        let mut block = [0; 4096];
        let (mut single_keys, mut generation) = (false, 0);
        loop {
            // Under the lock, so that each byte is known to be typed before or after a change.
            let state = self.lock();
            let same = piece.is_empty()
                || (state.single_keys, state.generation) == (single_keys, generation);
            if !same {
                break;
            }
            (single_keys, generation) = (state.single_keys, state.generation);
            let result = rustix::io::read(&self.fd, &mut block);
            drop(state);
            match result {
                Ok(0) | Err(Errno::IO) if piece.is_empty() => {
                    if flags.contains(PollFlags::HUP) || !is_terminal(&self.fd) {
                        return Some(Typed::Gone);
                    }
                    // The end of a file, typed as Ctrl-D; or we are in the background by now. Neither may make this loop spin.
                    wait(&[end], TOGETHER);
                    return None;
                }
                Ok(0) | Err(_) => break,
                Ok(count) => piece.extend_from_slice(&block[..count]),
            }
            // A single key has nothing that belongs to it; more is awaited for a moment, and the end of a piece is no end of a line by chance.
            let alone = single_keys && piece.len() == 1;
            if alone || piece.len() >= MAX_PIECE || wait(&[&self.fd], TOGETHER)[0].is_none() {
                break;
            }
        }
        match (piece.is_empty(), single_keys) {
            (true, _) => None,
            (_, true) => Some(Typed::Keys(piece, generation)),
            (_, false) => Some(Typed::Lines(piece)),
        }
    }
}

fn is_foreground(fd: &OwnedFd) -> bool {
    tcgetpgrp(fd).is_ok_and(|group| group == getpgrp())
}

fn is_terminal(fd: &OwnedFd) -> bool {
    tcgetattr(fd).is_ok()
}

/// Whether `fd` is our controlling terminal, by whatever name.
pub(crate) fn is_controlling(fd: impl AsFd) -> bool {
    tcgetpgrp(fd).is_ok()
}

/// Returns how many columns the standard output has, if it is a terminal.
pub(crate) fn width_of_stdout() -> Option<usize> {
    let columns = tcgetwinsize(io::stdout()).ok()?.ws_col;
    (columns > 1).then_some(columns.into())
}

/// Whether a standard stream is our controlling terminal.
fn has_terminal() -> bool {
    is_controlling(io::stdin()) || is_controlling(io::stdout()) || is_controlling(io::stderr())
}

/// Waits until one of the descriptors has something to say, at most this long.
fn wait<const N: usize>(fds: &[&OwnedFd; N], timeout: Duration) -> [Option<PollFlags>; N] {
    let mut polled = fds.map(|fd| PollFd::new(fd, PollFlags::IN));
    let timeout = Timespec::try_from(timeout).ok();
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) => polled.map(|fd| Some(fd.revents()).filter(|flags| !flags.is_empty())),
        Err(_) => [None; N],
    }
}

/// Has this thread, and those that it starts, be refused rather than the process stopped when they touch a terminal from the background. What is printed
/// there is printed, also with `stty tostop`: it is the log of a run that goes on.
pub fn block_terminal_signals() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTTIN);
    signals.add(Signal::SIGTTOU);
    signals.thread_block().expect("these signals exist");
}

/// Leaves the terminal as it was found: for the ends of the process that pass nobody who would do it.
pub fn restore() {
    if let Some(tty) = OURS.get() {
        if kill_open() {
            // What it had made of the terminal is ours to undo.
            tty.is_ours.store(true, Ordering::SeqCst);
            let _gone = tty.give_to(getpgrp());
            tty.write_now(LEAVE_EDITOR);
        }
        tty.restore();
    }
}

/// Has a panic leave the terminal as it was found, so that its message can be read.
pub fn restore_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        before(panic);
    }));
}
