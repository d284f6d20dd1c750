//! Job control: the owner of the terminal is `rlm`, the shell, or an editor.

use loop_runner::RunControl;
use loop_state::times;
use nix::unistd::{Pid, getpgid, getpgrp, getppid, getsid};
use rustix::process::{Signal, getpid, kill_process};
use signal_hook_tokio::Signals;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Console, print_press_error};
use crate::console::effects::{REARMED, next_signal};
use crate::editor::Editor;
use crate::keys::Decoder;
use crate::rows::Rows;
use crate::run_snapshot::RunSnapshot;
use crate::ui::{Effect, KeyMode};

/// The maximum number of wrapper processes in our own process group between `rlm` and the shell.
const MAX_ANCESTORS: usize = 16;

const CTRL_C: u8 = 3;

impl Console {
    /// Checks whether the terminal is ours again after another program may have had it.
    pub(super) fn terminal_returned(&mut self) {
        let Some(tty) = &self.tty else { return };
        if self.editor.is_some() {
            return;
        }
        self.in_front = tty.is_foreground();
        self.painter.resized(tty.size().0);
        self.painter.forget();
        tty.note_live_rows(0);
        if self.in_front {
            tty.adopt_current_mode();
            self.ui.enter_foreground();
        } else {
            self.ui.leave_foreground();
        }
    }

    /// Reports, once, that another process had turned Ctrl-C off.
    pub(super) fn report_rearm(&mut self) {
        if std::mem::replace(&mut self.has_reported_rearm, true) {
            return;
        }
        match self.is_json {
            true => anstream::eprintln!("rlm: {REARMED}"),
            false => self.ui.show_person(format!("{REARMED}\n")),
        }
    }

    /// Removes Ctrl-C bytes from typed lines and counts them as a press. The terminal sends these bytes if it doesn't turn Ctrl-C into a signal.
    pub(super) fn press_in(&mut self, lines: &mut Vec<u8>) {
        if lines.contains(&CTRL_C) {
            lines.retain(|byte| *byte != CTRL_C);
            self.perform_effect(Effect::Press);
        }
    }

    /// Reports to the run whether a person is present to answer questions. A review that is already open stays open.
    pub(super) fn report_attendance(&self, snapshot: RunSnapshot<'_>) {
        let is_there = self.in_front || self.editor.is_some();
        let is_known = is_there == snapshot.head.attended || snapshot.review().is_some();
        // For a run of another process, that process counts the attached viewers itself.
        if !is_known && !self.is_over && !self.attached {
            // If the channel is full, the next tick sends it again.
            let _busy = self.control.try_send(RunControl::Attended(is_there));
        }
    }

    /// Suspends `rlm` and the process tree as Ctrl-Z does, and returns when `fg` continues them.
    pub(super) async fn suspend(&mut self, continued: &mut Option<Signals>) {
        if !has_shell() {
            self.ui.show_person(
                "Ctrl-Z does nothing here: there is no shell that could continue rlm\n".into(),
            );
            return;
        }
        self.clear().await;
        if let Some(tty) = &self.tty {
            tty.restore();
        }
        // A run of another process continues while this process is suspended.
        let has_it = !self.attached;
        if has_it {
            self.freeze(true).await;
        }
        let _impossible = kill_process(getpid(), Signal::STOP);
        // `kill` may return before the process stops. Only SIGCONT shows that the suspension is over.
        let _at_once = timeout(times::SUSPEND_STEP, next_signal(continued)).await;
        if has_it {
            self.freeze(false).await;
        }
        self.terminal_returned();
    }

    async fn freeze(&self, frozen: bool) {
        let (done, is_done) = oneshot::channel();
        if self
            .control
            .try_send(RunControl::Freeze { frozen, done })
            .is_ok()
        {
            let _slow = timeout(times::SUSPEND_STEP, is_done).await;
        }
    }

    /// Opens the editor after removing the live rows from the screen.
    pub(super) async fn edit(&mut self, phase: u32) {
        let Some(tty) = self.tty.clone() else { return };
        let Some(prompt) = self.prompts.get(phase as usize).cloned() else {
            return;
        };
        self.clear().await;
        tty.reset();
        match Editor::open(&tty, prompt) {
            Ok(editor) => self.editor = Some(editor),
            Err(why) => self.ui.edited(Err(why)),
        }
        self.perform();
    }

    /// Erases the live rows, and waits until that is written.
    async fn clear(&mut self) {
        let erased = self.frame(String::new(), &Rows::default());
        let sink = self.person_sink.as_ref().unwrap_or(&self.log);
        let _slow = timeout(times::SUSPEND_STEP, sink.write_through(erased)).await;
    }

    /// Sets the terminal to the mode that the current prompt needs.
    pub(super) fn set_terminal_mode(&mut self) {
        let Some(tty) = self.tty.clone() else { return };
        if self.editor.is_some() || !tty.is_foreground() {
            return;
        }
        let wants = self.ui.key_mode();
        let bracket = wants == KeyMode::Text && !self.dumb;
        match tty.single_keys(wants != KeyMode::Lines, bracket) {
            Ok(()) => {}
            Err(error) if wants != KeyMode::Lines && tty.is_foreground() => {
                print_press_error(&error.to_string());
                self.ui.cannot_prompt();
                for effect in self.ui.effects() {
                    self.perform_effect(effect);
                }
                return;
            }
            Err(_) => return,
        }
        if self.ui.generation() != self.ui_generation {
            self.ui_generation = self.ui.generation();
            self.generation = tty.forget_typed();
            self.decoder = Decoder::default();
            self.decode_by = None;
        }
    }
}

/// Whether a shell can continue this process after a suspension: an ancestor in the same session but in another process group. Without such an
/// ancestor the kernel ignores Ctrl-Z for programs with the default action (an orphaned process group), and so does `rlm`.
fn has_shell() -> bool {
    let (session, group) = (getsid(None), getpgrp());
    let mut ancestor = getppid();
    for _ in 0..MAX_ANCESTORS {
        if getsid(Some(ancestor)) != session {
            return false;
        }
        if getpgid(Some(ancestor)) != Ok(group) {
            return true;
        }
        match parent_of(ancestor) {
            Some(parent) => ancestor = parent,
            None => return false,
        }
    }
    false
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let parent = fields.split_ascii_whitespace().nth(1)?;
    parent.parse().ok().map(Pid::from_raw)
}
