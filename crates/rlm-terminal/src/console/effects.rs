//! Doing what the person wants: the terminal's effects, where they reach the run, the screen and the shell.

use interrupt_stack::{Cause, PressSource};
use loop_runner::{Control, News};
use loop_state::Request;
use rustix::process::{Signal, getpid, kill_process};

use super::{Console, complain, now};
use crate::editor::Subject;
use crate::ui::{Answer, Effect};

impl Console {
    pub(super) fn one(&mut self, effect: Effect) {
        match effect {
            Effect::Missed(lines) => {
                let text = (self.text)(now(), &News::Missed(lines));
                self.to_log.push_str(&text.unwrap_or_default());
            }
            Effect::Print(text) if self.to_log.is_empty() => self.to_log = text,
            Effect::Print(text) => self.to_log.push_str(&text),
            Effect::Say(text) if self.face.is_some() => self.to_face.push_str(&text),
            Effect::Say(text) => self.to_log.push_str(&text),
            Effect::Send(control) => {
                if let Control::Request(Request::Prompt { phase, text }) = &control
                    && let Some(prompt) = self.prompts.get_mut(*phase as usize)
                {
                    *prompt = Subject::Text(text.clone());
                }
                let stops_now = control.stops_now();
                if let Err(error) = self.control.try_send(control)
                    && !self.is_over
                {
                    self.ui.say("the run takes no orders now\n".into());
                    if let Control::Request(Request::Answer { ask, .. }) = error.into_inner() {
                        self.ui.unanswered(&ask);
                    }
                }
                if stops_now {
                    (self.on_stop)();
                }
            }
            Effect::Notice(answer) => match (self.notice.take(), answer) {
                (Some(notice), Answer::Handled) => notice.handled(),
                (Some(notice), Answer::Escalate) => notice.escalate(),
                (Some(notice), Answer::Decline) => notice.decline(),
                (notice, Answer::CannotAsk) => {
                    complain(self.broken.as_deref().unwrap_or_default());
                    drop(notice);
                }
                (notice, _) => drop(notice),
            },
            Effect::Detach => self
                .interrupts
                .injector()
                .terminate(Cause::Requested(self.left_code)),
            Effect::Press => self.interrupts.injector().press(PressSource::RawByte),
            Effect::Suspend => {
                let _impossible = kill_process(getpid(), Signal::TSTP);
            }
            Effect::Edit(phase) => self.wants_editor = Some(phase),
        }
    }
}
