//! Performs the effects of `ui`, runs the thread that reads the terminal, and waits for inputs that may be absent.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;

use futures_core::Stream;
use interrupt_stack::{Cause, Notice, PressSource};
use loop_runner::{RunControl, RunEvent};
use loop_state::Request;
use rustix::process::{self, getpid, kill_process};
use signal_hook_tokio::Signals;
use tokio::sync::mpsc;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use crate::console::scopes::Scopes;
use crate::console::{Console, now, print_press_error};
use crate::editor::{EditResult, EditTarget, Editor};
use crate::scope::Scope;
use crate::sink::Sink;
use crate::terminal::Terminal;
use crate::tty::{Tty, Typed};
use crate::ui::{Effect, PressAnswer};

impl Console {
    pub(super) fn perform_effect(&mut self, effect: Effect) {
        match effect {
            Effect::ReportMissed(lines) => {
                let text = (self.format_event)(now(), &RunEvent::EventsMissed(lines));
                self.for_log.push_str(&text.unwrap_or_default());
            }
            Effect::Print(text) if self.for_log.is_empty() => self.for_log = text,
            Effect::Print(text) => self.for_log.push_str(&text),
            Effect::ShowPerson(text) if self.person_sink.is_some() => {
                self.for_person.push_str(&text)
            }
            Effect::ShowPerson(text) => self.for_log.push_str(&text),
            Effect::Send(control) => {
                if let RunControl::Request(Request::Prompt { phase, text }) = &control
                    && let Some(prompt) = self.prompts.get_mut(*phase as usize)
                {
                    *prompt = EditTarget::Text(text.clone());
                }
                let stops_now = control.stops_now();
                if let Err(error) = self.control.try_send(control)
                    && !self.is_over
                {
                    self.ui
                        .show_person("request not sent: the run is ending or busy\n".into());
                    if let RunControl::Request(Request::Answer {
                        permission_request: ask,
                        ..
                    }) = error.into_inner()
                    {
                        self.ui.answer_lost(&ask);
                    }
                }
                if stops_now {
                    (self.on_stop)();
                }
            }
            Effect::AnswerPress(answer) => match (self.notice.take(), answer) {
                (Some(notice), PressAnswer::Handled) => notice.handled(),
                (Some(notice), PressAnswer::Escalate) => notice.escalate(),
                (Some(notice), PressAnswer::Decline) => notice.decline(),
                (notice, PressAnswer::CannotAsk) => {
                    print_press_error(self.terminal_error.as_deref().unwrap_or_default());
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
                let _impossible = kill_process(getpid(), process::Signal::TSTP);
            }
            Effect::OpenEditor(phase) => self.editor_request = Some(phase),
        }
    }
}

pub(super) async fn next_notice(scopes: &mut Option<Scopes>) -> (Scope, Notice) {
    match scopes {
        Some(scopes) => scopes.notified().await,
        None => pending().await,
    }
}

pub(super) async fn next_signal(signals: &mut Option<Signals>) {
    let came = match signals {
        Some(signals) => poll_fn(|context| Pin::new(&mut *signals).poll_next(context)).await,
        None => None,
    };
    if came.is_none() {
        pending::<()>().await;
    }
}

pub(super) async fn typed_before(
    typed: &mut mpsc::Receiver<Typed>,
    deadline: Option<Instant>,
) -> Result<Option<Typed>, Elapsed> {
    match deadline {
        Some(deadline) => timeout_at(deadline, typed.recv()).await,
        None => Ok(typed.recv().await),
    }
}

pub(super) async fn next_message(messages: &mut Option<mpsc::Receiver<String>>) -> Option<String> {
    match messages {
        Some(messages) => messages.recv().await,
        None => pending().await,
    }
}

pub(super) async fn edited(editor: &mut Option<Editor>) -> EditResult {
    match editor {
        Some(editor) => editor.ended().await,
        None => pending().await,
    }
}

pub(super) async fn room(sink: Option<&Sink>) {
    match sink {
        Some(sink) => sink.room().await,
        None => pending().await,
    }
}

/// The message when `rlm` has enabled Ctrl-C again. It is shown once.
pub(super) const REARMED: &str = "another process, perhaps the agent, turned Ctrl-C off on this terminal; rlm turned it on again. To stop the run from another terminal: rlm stop";

/// The thread that reads the terminal. Dropping it ends the thread.
pub(super) struct Reader {
    end: Option<std::io::PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    /// Starts the thread that reads the terminal. With `--no-input`, the thread only keeps the keys for signals (such as Ctrl-C) enabled.
    pub(super) fn of(terminal: &Terminal, to: mpsc::Sender<Typed>) -> Option<Self> {
        match (terminal.tty.clone(), terminal.unread.clone()) {
            (Some(tty), _) => Self::start(tty, to),
            (None, Some(tty)) => Self::guard(tty),
            (None, None) => None,
        }
    }

    fn start(tty: Arc<Tty>, to: mpsc::Sender<Typed>) -> Option<Self> {
        let (ended, end) = std::io::pipe().ok()?;
        let thread = std::thread::spawn(move || tty.read_all(&to, &ended.into()));
        Some(Self {
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// Starts a thread that reads nothing and only keeps the keys for signals enabled.
    fn guard(tty: Arc<Tty>) -> Option<Self> {
        let (ended, end) = std::io::pipe().ok()?;
        let mut told = false;
        let rearmed = move || {
            if !std::mem::replace(&mut told, true) {
                anstream::eprintln!("rlm: {REARMED}");
            }
        };
        let thread = std::thread::spawn(move || tty.guard(&ended.into(), rearmed));
        Some(Self {
            end: Some(end),
            thread: Some(thread),
        })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.end.take());
        // The thread ends soon: its pipe is closed and its receiver is gone. A panic in the thread has been reported already.
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}
