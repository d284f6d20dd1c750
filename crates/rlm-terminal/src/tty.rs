//! The controlling terminal: its modes, its foreground process group, and its input.
//!
//! The keys for signals stay enabled in every mode, so that Ctrl-C is a press even while this program is busy. Any process of the same user,
//! such as an agent, can disable them: `restore_signal_keys` enables them again.

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

/// The maximum number of bytes of one piece.
const MAX_PIECE: usize = 64 << 10;
/// Bytes that follow within this time belong to the same piece, such as a paste.
const TOGETHER: Duration = Duration::from_millis(20);
/// The interval at which a program in the background checks whether it is in the foreground.
const FOREGROUND_POLL: Duration = Duration::from_millis(250);
const PASTE_ON: &[u8] = b"\x1b[?2004h";
const PASTE_OFF: &[u8] = b"\x1b[?2004l";
/// Selects the main screen, shows the cursor, and begins a new row.
const LEAVE_EDITOR: &[u8] = b"\x1b[?1049l\x1b[?25h\r\n";

/// The terminal whose mode must be restored when the process ends.
static OURS: OnceLock<Arc<Tty>> = OnceLock::new();

/// The controlling terminal.
#[derive(Debug)]
pub(crate) struct Tty {
    /// A new open file description, so that making it non-blocking doesn't affect the descriptors of other processes.
    fd: OwnedFd,
    state: Mutex<State>,
    /// Whether the terminal is in the mode for single keys, or in the mode that a killed editor left. Atomic, for callers that can't wait for the
    /// lock.
    is_ours: AtomicBool,
    /// Whether `restore_signal_keys` changed the mode after another process had changed it, so that the mode must be restored when the
    /// process ends.
    is_rearmed: AtomicBool,
    /// The number of live rows, from the first one to the row of the cursor, that must be erased when the process ends.
    live_rows: AtomicUsize,
    /// The number of pieces that were read, or are being read, and that the console has not handled yet.
    unread_pieces: AtomicUsize,
    /// Whether unread input may have been echoed while a frame was printed.
    is_echo_in_frame: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// The mode of the terminal before rlm changed it.
    initial_mode: Termios,
    single_keys: bool,
    paste: bool,
    /// Increases when earlier input must be discarded.
    generation: u64,
}

impl State {
    /// Returns the mode for single keys, or the mode for lines.
    fn mode(&self, single_keys: bool) -> Termios {
        let mut mode = self.initial_mode.clone();
        if single_keys {
            mode.local_modes
                .remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::IEXTEN);
            mode.special_codes[SpecialCodeIndex::VMIN] = 1;
            mode.special_codes[SpecialCodeIndex::VTIME] = 0;
        }
        mode
    }

    /// Whether Ctrl-C makes a signal in the original mode, but not in the mode `now`.
    fn is_signal_key_off(&self, now: &Termios) -> bool {
        const NONE: u8 = 0;
        let interrupt = |mode: &Termios| match mode.local_modes.contains(LocalModes::ISIG) {
            true => mode.special_codes[SpecialCodeIndex::VINTR],
            false => NONE,
        };
        interrupt(&self.initial_mode) != NONE && interrupt(now) != interrupt(&self.initial_mode)
    }
}

/// A piece of input from the terminal.
#[derive(Debug)]
pub(crate) enum Typed {
    /// Input that the terminal edited: lines with their ends, or a part of a line.
    Lines(Vec<u8>),
    /// Keys, with the generation that they belong to.
    Keys(Vec<u8>, u64),
    /// No input: another process had disabled the keys for signals, and `restore_signal_keys` enabled them again.
    Rearmed,
    /// The terminal is gone.
    Gone,
}

impl Tty {
    /// Opens the controlling terminal; `None` when there is none.
    ///
    /// # Errors
    ///
    /// Fails if there is a controlling terminal that can't be used.
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
                initial_mode: found,
                single_keys: false,
                paste: false,
                generation: 0,
            }),
            is_ours: AtomicBool::new(false),
            is_rearmed: AtomicBool::new(false),
            live_rows: AtomicUsize::new(0),
            unread_pieces: AtomicUsize::new(0),
            is_echo_in_frame: AtomicBool::new(false),
        });
        // A process has one session, and so at most one controlling terminal.
        let tty = Arc::clone(OURS.get_or_init(|| tty));
        Ok(Some(tty))
    }

    /// Opens the terminal once more, in blocking mode.
    pub(crate) fn reopen() -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(open("/dev/tty", flags, Mode::empty())?.into())
    }

    /// Whether this process is in the foreground. A program in the background must not touch the terminal.
    pub(crate) fn is_foreground(&self) -> bool {
        is_foreground(&self.fd)
    }

    /// Returns the number of columns and rows.
    pub(crate) fn size(&self) -> (usize, usize) {
        let size = tcgetwinsize(&self.fd).ok();
        let (columns, rows) = size.map_or((0, 0), |size| (size.ws_col, size.ws_row));
        let or = |n: u16, default: usize| if n == 0 { default } else { n.into() };
        (or(columns, 80), or(rows, 24))
    }

    /// Switches between single keys without echo, and lines that the terminal edits.
    ///
    /// # Errors
    ///
    /// Fails if this process is in the background, or if the terminal refuses the mode.
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

    /// Discards unread input. Returns the generation of later input.
    pub(crate) fn forget_typed(&self) -> u64 {
        let mut state = self.lock();
        if self.is_foreground() {
            // If this fails, a key that was typed before the question was visible may answer it. There is no better way.
            let _unlikely = tcflush(&self.fd, QueueSelector::IFlush);
        }
        state.generation += 1;
        state.generation
    }

    /// Adopts the current mode as the one to restore, after another program may have had the terminal.
    pub(crate) fn adopt_current_mode(&self) {
        let mut state = self.lock();
        if let Ok(found) = tcgetattr(&self.fd)
            && self.is_foreground()
            && found.local_modes.contains(LocalModes::ICANON)
            && !state.is_signal_key_off(&found)
        {
            state.initial_mode = found;
        }
        state.single_keys = false;
        state.paste = false;
        self.is_ours.store(false, Ordering::SeqCst);
    }

    /// Restores the original mode after another program may have changed it.
    pub(crate) fn reset(&self) {
        let mut state = self.lock();
        if self.is_foreground() {
            let _gone = tcsetattr(&self.fd, OptionalActions::Now, &state.initial_mode);
            state.single_keys = false;
            state.paste = false;
        }
    }

    /// Enables the keys for signals again if another process disabled them. Returns whether they were disabled.
    ///
    /// Input that was typed meanwhile becomes readable, and a Ctrl-C in it counts as a press.
    pub(crate) fn restore_signal_keys(&self) -> bool {
        let state = self.lock();
        let now = tcgetattr(&self.fd);
        if !now.is_ok_and(|now| state.is_signal_key_off(&now)) || !self.is_foreground() {
            return false;
        }
        self.is_rearmed.store(true, Ordering::SeqCst);
        let mut mode = state.mode(state.single_keys);
        if !state.single_keys {
            // If the signals are disabled again, Ctrl-C ends the line, so the line is read immediately.
            mode.special_codes[SpecialCodeIndex::VEOL] =
                mode.special_codes[SpecialCodeIndex::VINTR];
            // Leave line mode for a moment, so that an unfinished line becomes readable.
            let mut keys = mode.clone();
            keys.local_modes.remove(LocalModes::ICANON);
            let _gone = tcsetattr(&self.fd, OptionalActions::Now, &keys);
        }
        tcsetattr(&self.fd, OptionalActions::Now, &mode).is_ok()
    }

    /// Checks each second that the keys for signals are enabled, until the other side of `end` is closed. For a terminal that rlm doesn't read.
    pub(crate) fn guard(&self, end: &OwnedFd, mut rearmed: impl FnMut()) {
        while wait(&[end], FOREGROUND_POLL * 4)[0].is_none() {
            if self.restore_signal_keys() {
                rearmed();
            }
        }
    }

    /// Makes `group` the foreground process group of the terminal.
    pub(crate) fn give_to(&self, group: rustix::process::Pid) -> io::Result<()> {
        Ok(rustix::termios::tcsetpgrp(&self.fd, group)?)
    }

    /// Erases the live rows and restores the original mode of the terminal, if this process is in the foreground.
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
            let _gone = tcsetattr(&self.fd, OptionalActions::Now, &state.initial_mode);
        }
    }

    /// Sets the number of rows, from the first live row to the row of the cursor, that must be erased when the process ends.
    pub(crate) fn note_live_rows(&self, rows: usize) {
        self.live_rows.store(rows, Ordering::SeqCst);
    }

    /// Prints a line, unless the terminal's buffer is full.
    pub(crate) fn print_line(&self, text: &str) {
        self.write_now(format!("{}\n", anstream::adapter::strip_str(text)).as_bytes());
    }

    /// Rings the bell, which doesn't move the cursor.
    pub(crate) fn ring(&self) {
        self.write_now(b"\x07");
    }

    /// Writes a short text, or drops it: a blocked terminal must not block this process.
    fn write_now(&self, bytes: &[u8]) {
        let _full = rustix::io::write(&self.fd, bytes);
    }

    /// Locks the state, but does not wait forever: when the process ends, this thread may hold the lock itself. Other threads hold the lock only
    /// for moments.
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

    /// Whether the terminal may have echoed the end of a line for which [`piece_handled`](Self::piece_handled) was not called yet.
    pub(crate) fn has_unread(&self) -> bool {
        if self.unread_pieces.load(Ordering::SeqCst) > 0 {
            return true;
        }
        // With single keys nothing is echoed.
        let edits_lines = !self.is_ours.load(Ordering::SeqCst);
        let typed = || wait(&[&self.fd], Duration::ZERO)[0];
        edits_lines && typed().is_some_and(|flags| flags.contains(PollFlags::IN))
    }

    /// Notes that a frame is on the screen. Input that is unread now may have been echoed before the frame, within it, or after it.
    pub(crate) fn frame_printed(&self) {
        if self.has_unread() {
            self.is_echo_in_frame.store(true, Ordering::SeqCst);
        }
    }

    /// Whether the last piece that was handled may have been echoed before the frame that is on the screen now.
    pub(crate) fn was_echoed_in_frame(&self) -> bool {
        match self.has_unread() {
            true => self.is_echo_in_frame.load(Ordering::SeqCst),
            false => self.is_echo_in_frame.swap(false, Ordering::SeqCst),
        }
    }

    /// Notes that the console has received one piece of input.
    pub(crate) fn piece_handled(&self) {
        let less = |unheard: usize| unheard.checked_sub(1);
        let _none = self
            .unread_pieces
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }

    /// Reads until the terminal or the receiver is gone, or the other side of `end` is closed. In the background it reads nothing, so the kernel
    /// doesn't suspend the process.
    pub(crate) fn read_all(&self, to: &mpsc::Sender<Typed>, end: &OwnedFd) {
        loop {
            if !self.is_foreground() {
                if wait(&[end], FOREGROUND_POLL)[0].is_some() {
                    return;
                }
                continue;
            }
            let [typed, ended] = wait(&[&self.fd, end], FOREGROUND_POLL * 4);
            if ended.is_some() {
                return;
            }
            // If the channel is full, the message is dropped: it is only a notice, and the keys work again without it.
            if self.restore_signal_keys()
                && matches!(to.try_send(Typed::Rearmed), Err(TrySendError::Closed(_)))
            {
                return;
            }
            let Some(flags) = typed else { continue };
            self.unread_pieces.fetch_add(1, Ordering::SeqCst);
            let Some(piece) = self.read_piece(flags, end) else {
                self.piece_handled();
                continue;
            };
            let gone = matches!(piece, Typed::Gone);
            if to.blocking_send(piece).is_err() || gone {
                return;
            }
        }
    }

    /// Reads one piece: the bytes that arrive together.
    fn read_piece(&self, flags: PollFlags, end: &OwnedFd) -> Option<Typed> {
        let mut piece = Vec::new();
        let mut block = [0; 4096];
        let (mut single_keys, mut generation) = (false, 0);
        loop {
            // Read under the lock, so that each byte belongs to the mode before or after a change.
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
                    // An end of file, typed as Ctrl-D; or this process is in the background now. Wait, so that this loop doesn't spin.
                    wait(&[end], TOGETHER);
                    return None;
                }
                Ok(0) | Err(_) => break,
                Ok(count) => piece.extend_from_slice(&block[..count]),
            }
            // A piece of one key is complete. Otherwise wait a moment for more, so that a piece doesn't end at a line break by chance.
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

/// Whether `fd` is our controlling terminal, under any name.
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

/// Waits until one of the descriptors is ready, or until the timeout.
fn wait<const N: usize>(fds: &[&OwnedFd; N], timeout: Duration) -> [Option<PollFlags>; N] {
    let mut polled = fds.map(|fd| PollFd::new(fd, PollFlags::IN));
    let timeout = Timespec::try_from(timeout).ok();
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) => polled.map(|fd| Some(fd.revents()).filter(|flags| !flags.is_empty())),
        Err(_) => [None; N],
    }
}

/// Blocks SIGTTIN and SIGTTOU in this thread and the threads that it starts, so that the kernel never suspends the process because it uses the
/// terminal from the background. A read then fails with an error. A write succeeds, even with `stty tostop`, so a run in the background continues
/// its log.
pub fn block_terminal_signals() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTTIN);
    signals.add(Signal::SIGTTOU);
    signals
        .thread_block()
        .expect("SIGTTIN and SIGTTOU can be blocked");
}

/// Restores the terminal. For a panic or a hard exit, which don't run the console's own cleanup.
pub fn restore() {
    if let Some(tty) = OURS.get() {
        if kill_open() {
            // The editor can't undo its changes to the terminal any more.
            tty.is_ours.store(true, Ordering::SeqCst);
            let _gone = tty.give_to(getpgrp());
            tty.write_now(LEAVE_EDITOR);
        }
        tty.restore();
    }
}

/// Installs a panic hook that restores the terminal, so that the message of a panic is readable.
pub fn restore_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        before(panic);
    }));
}
