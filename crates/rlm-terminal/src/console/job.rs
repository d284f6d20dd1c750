//! Who has the terminal: we, the shell, an editor.

use loop_runner::Control;
use loop_state::times;
use nix::unistd::{Pid, getpgid, getpgrp, getppid, getsid};
use rustix::process::{Signal, getpid, kill_process};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Console, complain};
use crate::console::effects::{REARMED, next_signal};
use crate::editor::Editor;
use crate::keys::Decoder;
use crate::rows::Rows;
use crate::scene::Scene;
use crate::ui::{Effect, Wants};

/// How many wrappers in our own group may stand between us and the shell.
const MAX_ANCESTORS: usize = 16;

/// The byte of Ctrl-C.
const CTRL_C: u8 = 3;

impl Console {
    /// The terminal was somebody else's, and may be ours again.
    pub(super) fn returned(&mut self) {
        let Some(tty) = &self.tty else { return };
        if self.editor.is_some() {
            return;
        }
        self.in_front = tty.is_foreground();
        self.painter.resized(tty.size().0);
        self.painter.forget();
        tty.note_live_rows(0);
        if self.in_front {
            tty.take_over();
            self.ui.step_forward();
        } else {
            self.ui.step_back();
        }
    }

    /// Says once that somebody had turned Ctrl-C off.
    pub(super) fn rearmed(&mut self) {
        if std::mem::replace(&mut self.told_rearmed, true) {
            return;
        }
        match self.is_json {
            true => anstream::eprintln!("rlm: {REARMED}"),
            false => self.ui.say(format!("{REARMED}\n")),
        }
    }

    /// Takes a Ctrl-C out of lines, where the terminal makes no signal of it.
    pub(super) fn press_in(&mut self, lines: &mut Vec<u8>) {
        if lines.contains(&CTRL_C) {
            lines.retain(|byte| *byte != CTRL_C);
            self.one(Effect::Press);
        }
    }

    /// Lets the run know whether somebody is there to be asked. A question that was asked stays.
    pub(super) fn attend(&self, scene: Scene<'_>) {
        let is_there = self.in_front || self.editor.is_some();
        let is_known = is_there == scene.head.attended || scene.review().is_some();
        // Who merely looks at a run is not the one it asks.
        if !is_known && !self.is_over && !self.attached {
            // Said again with the next tick, as long as it is not known.
            let _busy = self.control.try_send(Control::Attended(is_there));
        }
    }

    /// Stops the whole tree as ^Z does, and comes back as by `fg`.
    pub(super) async fn suspend(&mut self, continued: &mut Option<tokio::signal::unix::Signal>) {
        if !has_shell() {
            self.ui
                .say("^Z does nothing here: there is no shell to come back to\n".into());
            return;
        }
        self.clear().await;
        if let Some(tty) = &self.tty {
            tty.restore();
        }
        // What another process has goes on.
        let has_it = !self.attached;
        if has_it {
            self.freeze(true).await;
        }
        let _impossible = kill_process(getpid(), Signal::STOP);
        // Stopping takes effect at a moment of its own: only the signal to go on says that it is over.
        let _at_once = timeout(times::SUSPEND_STEP, next_signal(continued)).await;
        if has_it {
            self.freeze(false).await;
        }
        self.returned();
    }

    async fn freeze(&self, frozen: bool) {
        let (done, is_done) = oneshot::channel();
        if self
            .control
            .try_send(Control::Freeze { frozen, done })
            .is_ok()
        {
            let _slow = timeout(times::SUSPEND_STEP, is_done).await;
        }
    }

    /// Opens the editor on a screen that is nobody's.
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

    /// Takes away what stands below the log, and waits for that.
    async fn clear(&mut self) {
        let erased = self.frame(String::new(), &Rows::default());
        let sink = self.face.as_ref().unwrap_or(&self.log);
        let _slow = timeout(times::SUSPEND_STEP, sink.write_through(erased)).await;
    }

    /// Has the terminal be in the mode that what prompts needs.
    pub(super) fn settle_mode(&mut self) {
        let Some(tty) = self.tty.clone() else { return };
        if self.editor.is_some() || !tty.is_foreground() {
            return;
        }
        let wants = self.ui.wants();
        let bracket = wants == Wants::Text && !self.dumb;
        match tty.single_keys(wants != Wants::Lines, bracket) {
            Ok(()) => {}
            Err(error) if wants != Wants::Lines && tty.is_foreground() => {
                complain(&error.to_string());
                self.ui.cannot_prompt();
                for effect in self.ui.effects() {
                    self.one(effect);
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

/// Whether somebody can let this process go on after a stop: a process of its session, outside its group, that it descends from. Without one the
/// system ignores ^Z for programs that have no say in it, and so do we.
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
    // The name in parentheses may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let parent = fields.split_ascii_whitespace().nth(1)?;
    parent.parse().ok().map(Pid::from_raw)
}
