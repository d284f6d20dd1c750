//! The picture in the README: `rlm demo` on the screen, recorded in a real pseudo-terminal, and drawn as an animated SVG.
//!
//! The keys, the shell, the signals, the agent's process and the check are real; only the agent is scripted, as always in `rlm demo`. Variable parts
//! (times, run ids, pids, hashes) are replaced, so that an unchanged program gives the same file byte for byte, and a test can detect an outdated
//! picture.

mod screen;
mod svg;

use std::num::NonZeroU16;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use fs_err as fs;
use tempfile::TempDir;

use crate::wait::poll_until;
use crate::{Sandbox, Terminal};
use screen::Screen;

/// The path of the picture in this repository.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/rlm.svg");
const ROWS: u16 = 25;
/// Wide enough for a status line with two digits for the seconds of an iteration: a slow machine must not change what it shows.
const COLUMNS: u16 = 96;
/// The rows of the recorded terminal: so many that no row scrolls off the top. In a small terminal the number of scrolled rows would depend on
/// intermediate output, and the cursor moves only relative to its position.
const TALL: u16 = 400;
/// The limit for output that appears within a few seconds.
const LONG: Duration = Duration::from_secs(40);
/// The agent's time for a word. It thinks for four of them before a step, and a key has to arrive in this time.
const PACE: Duration = Duration::from_millis(60);
/// The time for a word on a machine so busy that a key came too late.
pub const SLOW_PACE: Duration = Duration::from_millis(250);

/// The message of the person.
const STEER: &str = "explain it in a comment";

/// The next step of the recording.
enum RecordingStep {
    /// Type a text.
    Type(String),
    /// Wait for a screen and record it.
    Record(StyledScreen),
}

/// The start, a part and the end of the last line of a screen: with all three the screen is drawn completely.
type LastLine = [&'static str; 3];

/// A screen, and how the picture shows it.
struct StyledScreen {
    /// A text on the screen.
    has: &'static str,
    last: LastLine,
    caption: &'static str,
    /// The time in the picture, in milliseconds.
    shown: u32,
    /// The seconds to show in the status line instead of the real ones: of the current step, and of the run.
    clock: [u32; 2],
}

/// One screen of the picture.
struct Frame {
    screen: Screen,
    caption: &'static str,
    shown: u32,
}

const SHELL: LastLine = ["$", "", ""];
const WORKS: LastLine = ["iteration", " agent works ", "menu"];
const SLEEPS: LastLine = ["iteration", " next iteration in ", "menu"];

const fn record_screen(
    has: &'static str,
    last: LastLine,
    caption: &'static str,
    shown: u32,
    clock: [u32; 2],
) -> RecordingStep {
    RecordingStep::Record(StyledScreen {
        has,
        last,
        caption,
        shown,
        clock,
    })
}

fn keys(keys: impl Into<String>) -> RecordingStep {
    RecordingStep::Type(keys.into())
}

/// Returns the steps, chapter by chapter; `place` is the directory of the demo.
fn story(place: &Path) -> Vec<RecordingStep> {
    let start = "rlm demo: no account, no network. Only the agent is scripted.";
    let steer = "Enter: message the agent during its turn.";
    let check = "The agent says it is done. The loop's own check decides.";
    let ctrl_c = "Ctrl-C opens a menu. The agent continues.";
    let stopped = "Stop means stop: state saved, all processes ended.";
    let resumed = "Resume means resume: the unfinished iteration runs again.";
    let done = "Done means evidence: the check passed, all processes ended.";
    let resume = format!("rlm -C {} resume", place.display());
    vec![
        record_screen("$", SHELL, start, 600, [0, 0]),
        keys("rlm demo"),
        record_screen("$ rlm demo", ["$ rlm demo", "", ""], start, 900, [0, 0]),
        keys("\r"),
        record_screen("whether it works.", WORKS, start, 2600, [2, 2]),
        record_screen("there is no roman.sh", WORKS, start, 1000, [3, 3]),
        record_screen("again and again.", WORKS, steer, 1200, [5, 5]),
        keys("\r"),
        record_screen("Enter sends", ["steer>", "", ""], steer, 900, [5, 5]),
        keys(STEER),
        record_screen(STEER, ["steer>", "", STEER], steer, 1600, [5, 5]),
        keys("\r"),
        record_screen("see it too.", WORKS, steer, 2400, [9, 9]),
        record_screen("next iteration at", SLEEPS, check, 3200, [1, 14]),
        // The agent changes a file some seconds later. The run must have stopped by then, also on a slow machine.
        record_screen("and I follow it.", WORKS, ctrl_c, 1600, [1, 16]),
        keys("\u{3}"),
        record_screen(
            "save and exit",
            ["Ctrl-C", "", "stops"],
            ctrl_c,
            3000,
            [0, 0],
        ),
        keys("x"),
        record_screen("Continue where", SHELL, stopped, 3600, [0, 0]),
        keys(&resume),
        record_screen(" resume", ["$ rlm", "", "resume"], resumed, 1200, [0, 0]),
        keys("\r"),
        record_screen("files say.", WORKS, resumed, 1800, [2, 21]),
        record_screen("such pairs to the table.", WORKS, resumed, 2000, [5, 24]),
        record_screen("next iteration at", SLEEPS, check, 1600, [1, 29]),
        record_screen("all tests pass", WORKS, done, 1400, [5, 35]),
        record_screen("done:", SHELL, done, 5500, [0, 0]),
    ]
}

/// Plays the steps with this `rlm`, and draws them; the agent takes `pace` for a word, 60 ms by default.
///
/// # Panics
///
/// If the expected screens don't appear; the message contains the screen.
#[must_use]
pub fn picture(rlm: &Path, pace: Option<Duration>) -> String {
    svg::draw(&record(rlm, pace.unwrap_or(PACE)), COLUMNS, ROWS)
}

fn record(rlm: &Path, pace: Duration) -> Vec<Frame> {
    let sandbox = Sandbox::new();
    // The path has the length of the demo's default path, so that lines wrap at the same places.
    let place = tempfile::Builder::new()
        .prefix("rlm-demo-")
        .rand_bytes(8)
        .tempdir_in("/tmp");
    let place: TempDir = place.expect("a temporary directory");
    let profile = sandbox.path().join("profile");
    // The program is on PATH, as on a user's machine, so the suggested commands call it `rlm`.
    let programs = sandbox.path().join("programs");
    fs::create_dir(&programs).expect("a new directory");
    symlink(rlm, programs.join("rlm")).expect("a link in a new directory");
    let (programs, there) = (programs.display(), place.path().display());
    let pace = format!("{}ms", pace.as_millis());
    let function = format!(
        "PATH='{programs}':$PATH\n\
         rlm() {{ case $1 in\n\
         demo) command rlm demo --dir '{there}' --pace {pace} ;;\n\
         *) command rlm \"$@\" ;;\nesac; }}\n"
    );
    fs::write(&profile, function).unwrap();
    let shell = sandbox.rlm("/bin/sh").args(["-i"]).size(ROWS, COLUMNS);
    let shell = shell.env("PS1", "$ ").env("ENV", profile);
    let (running, terminal) = shell.spawn_on_terminal();
    let mut replay = Replay::new();
    let mut frames = Vec::new();
    for step in story(place.path()) {
        match step {
            RecordingStep::Type(keys) => terminal.send(keys),
            RecordingStep::Record(look) => frames.push(replay.find(&terminal, &look)),
        }
    }
    drop((running, terminal));
    frames
}

/// The screen after a prefix of the output: the same for each recording, however late it reads.
struct Replay {
    screen: vt100::Parser,
    read: usize,
}

impl Replay {
    fn new() -> Self {
        let some = |number| NonZeroU16::new(number).expect("a terminal has rows and columns");
        Self {
            screen: vt100::Parser::new(some(TALL), some(COLUMNS), 0),
            read: 0,
        }
    }

    /// Advances to the first screen that matches.
    fn find(&mut self, terminal: &Terminal, look: &StyledScreen) -> Frame {
        let found = poll_until(LONG, || {
            let printed = terminal.bytes();
            if look.fits(&self.screen) {
                return Some(());
            }
            while let Some(byte) = printed.get(self.read) {
                self.screen.process(&[*byte]);
                self.read += 1;
                // Output that is drawn together ends before a cursor movement.
                let is_drawn = printed
                    .get(self.read)
                    .is_none_or(|next| b"\x1b\r\n".contains(next));
                if is_drawn && look.fits(&self.screen) {
                    return Some(());
                }
            }
            None
        });
        assert!(
            found.is_some(),
            "{:?} did not appear:\n{}",
            look.has,
            self.screen.screen().contents()
        );
        Frame {
            screen: Screen::take(self.screen.screen(), ROWS, look.clock),
            caption: look.caption,
            shown: look.shown,
        }
    }
}

impl StyledScreen {
    fn fits(&self, parser: &vt100::Parser) -> bool {
        let rows = screen::used(parser.screen());
        let mut rows = rows.iter().rev().take(ROWS.into());
        let Some(last) = rows.next() else {
            return false;
        };
        let [begins, has, ends] = self.last;
        last.starts_with(begins)
            && last.contains(has)
            && last.trim_end().ends_with(ends)
            && (last.contains(self.has) || rows.any(|row| row.contains(self.has)))
    }
}

/// Writes the picture to its path in the repository.
///
/// # Panics
///
/// As [`picture`], and if the file can't be written.
#[must_use]
pub fn main_impl() -> ExitCode {
    let this = std::env::current_exe().expect("a running program has a path");
    fs::write(FILE, picture(&this.with_file_name("rlm-under-test"), None)).unwrap();
    ExitCode::SUCCESS
}
