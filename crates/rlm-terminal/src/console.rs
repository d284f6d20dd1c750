//! The thread that owns the screen. It handles keys, presses, run events and signals, one at a time.

mod draw;
mod effects;
mod foreground_run;
mod job_control;
mod scopes;

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use agent_duplex::Event;
use interrupt_stack::{Interrupts, Notice};
use loop_runner::{RunControl, RunEvent, RunEventReceiver, View};
use loop_state::{Timestamp, times};
use tokio::sync::{mpsc, watch};
use tokio::time::interval;

use effects::{Reader, edited, next_message, next_notice, next_signal, room, typed_before};
pub use foreground_run::{ForegroundRun, FormatEvent, FormatResponse, LogOutput, TerminalSignals};
use scopes::Scopes;

use super::editor::{EditTarget, Editor};
use super::keys::Decoder;
use super::paint::{Painter, ResizeBehavior};
use super::run_snapshot::RunSnapshot;
use super::scope::{AskAbility, PressActions, Scope};
use super::sink::Sink;
use super::tty::{Tty, Typed};
use super::ui::Ui;
use crate::terminal::{LogTarget, Terminal};

/// The interval of ticks. A tick comes when the clock shows a new second, and updates the rows below the log.
const TICK: Duration = Duration::from_secs(1);
/// The interval of ticks while a prompt or an editor is open.
const PROMPT_TICK: Duration = Duration::from_millis(250);
/// The maximum number of bytes of waiting output in one frame.
const FRAME: usize = 64 << 10;
/// The maximum number of run events in one frame.
const FRAME_EVENTS: usize = 64;

impl Terminal {
    /// Starts a thread that shows a run. The thread ends when the run has ended and all output is printed.
    #[must_use]
    pub fn show(&self, shown: ForegroundRun, events: RunEventReceiver) -> JoinHandle<()> {
        // Push the handler of the run before anything starts, because a press without a handler stops the run.
        let answers = self.tty.is_some() || self.broken.is_some() || shown.presses.is_configured();
        let scopes = answers.then(|| Scopes::of_run(shown.interrupts.clone()));
        let (terminal, caller) = (self.clone(), std::thread::current());
        std::thread::spawn(move || {
            self::show(shown, events, &terminal, scopes);
            caller.unpark();
        })
    }
}

/// Shows the run until it has ended and all output is printed.
fn show(
    shown: ForegroundRun,
    events: RunEventReceiver,
    terminal: &Terminal,
    scopes: Option<Scopes>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the runtime of the terminal thread can start");
    let (typed_to, typed) = mpsc::channel(16);
    let reader = Reader::of(terminal, typed_to);
    let interrupts = shown.interrupts.clone();
    let console = Console::new(shown, terminal, scopes);
    runtime.block_on(console.run(events, typed, &interrupts));
    drop(reader);
}

struct Console {
    run: String,
    view: watch::Receiver<Arc<View>>,
    control: mpsc::Sender<RunControl>,
    interrupts: Interrupts,
    prompts: Vec<EditTarget>,
    /// Whether the log is for programs.
    is_json: bool,
    format_event: FormatEvent,
    format_answer: FormatResponse,
    signals: fn() -> TerminalSignals,
    left_code: u8,
    on_stop: Box<dyn Fn() + Send>,
    presses: PressActions,
    bell: bool,
    attached: bool,
    ui: Ui,
    painter: Painter,
    log_target: LogTarget,
    /// Whether the message about a disabled Ctrl-C was shown: another process had turned Ctrl-C off.
    has_reported_rearm: bool,
    /// Whether the message about the closed log was shown: the log has no reader any more.
    has_reported_gone: bool,
    decoder: Decoder,
    /// The time at which the decoder stops waiting for more bytes of a pending key.
    decode_by: Option<Instant>,
    tty: Option<Arc<Tty>>,
    dumb: bool,
    in_front: bool,
    generation: u64,
    ui_generation: u64,
    /// The handlers of presses; `None` if every press is a stop.
    scopes: Option<Scopes>,
    notice: Option<Notice>,
    terminal_error: Option<String>,
    editor: Option<Editor>,
    /// The phase whose prompt an editor opens next.
    editor_request: Option<u32>,
    kill_editor_at: Option<Instant>,
    log: Sink,
    /// The person's terminal, if the log goes elsewhere.
    person_sink: Option<Sink>,
    /// Output that waits for the log.
    for_log: String,
    /// Output that waits for the person's terminal.
    for_person: String,
    is_over: bool,
    earlier_events: Vec<(Timestamp, RunEvent)>,
    messages: Option<mpsc::Receiver<String>>,
}

enum WakeReason {
    Notice(Scope, Notice),
    Shutdown,
    Typed(Option<Typed>),
    Silence,
    Edited(super::editor::EditResult),
    Suspend,
    Continued,
    Resized,
    LogWritable,
    PersonWritable,
    Message(Option<String>),
    Event(Option<(Timestamp, RunEvent)>),
    View(bool),
    Tick,
}

impl Console {
    fn new(shown: ForegroundRun, terminal: &Terminal, scopes: Option<Scopes>) -> Self {
        let ForegroundRun {
            run,
            view,
            control,
            interrupts,
            prompts,
            log,
            signals,
            detached_exit_code,
            on_stop,
            presses,
            bell,
            attached,
            earlier_events: before,
            messages,
        } = shown;
        let LogOutput {
            to,
            has_colour,
            is_json,
            shows_everything: is_full,
            format_event: text,
            format_response: answer,
        } = log;
        let tty = terminal.tty.clone();
        let log_here = tty.is_some() && terminal.log == LogTarget::Here;
        // Only what is printed on the terminal can meet the echo of typed text.
        let after_frame = |tty: Option<Arc<Tty>>| {
            move || {
                if let Some(tty) = &tty {
                    tty.frame_printed();
                }
            }
        };
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let face = tty
            .as_ref()
            .filter(|_| !log_here)
            .and_then(|_| Sink::terminal(after_frame(tty.clone())).ok());
        let screen = tty.clone().filter(|_| log_here);
        let width = tty
            .as_ref()
            .filter(|_| log_here)
            .map(|tty| tty.size().0 - 1);
        Self {
            run,
            view,
            control,
            interrupts,
            prompts,
            ui: Ui::new(width, is_json).attached(attached).in_full(is_full),
            is_json,
            format_event: text,
            format_answer: answer,
            signals,
            left_code: detached_exit_code,
            on_stop,
            presses,
            bell,
            attached,
            log_target: terminal.log,
            has_reported_rearm: false,
            has_reported_gone: false,
            painter: Painter::new(dumb, ResizeBehavior::of(|name| std::env::var(name).ok())),
            decoder: Decoder::default(),
            decode_by: None,
            in_front: tty.as_ref().is_some_and(|tty| tty.is_foreground()),
            tty,
            dumb,
            generation: 0,
            ui_generation: 0,
            scopes,
            notice: None,
            terminal_error: terminal.broken.clone(),
            editor: None,
            editor_request: None,
            kill_editor_at: None,
            log: Sink::start(to, has_colour, after_frame(screen)),
            person_sink: face,
            for_log: String::new(),
            for_person: String::new(),
            is_over: false,
            earlier_events: before,
            messages,
        }
    }

    async fn run(
        mut self,
        mut events: RunEventReceiver,
        mut typed: mpsc::Receiver<Typed>,
        interrupts: &Interrupts,
    ) {
        let mut shutdown = pin!(interrupts.shutdown_cause());
        let (mut is_shut, mut has_view) = (false, true);
        let TerminalSignals {
            mut suspend,
            mut continued,
            mut resized,
        } = (self.signals)();
        let mut tick = interval(TICK);
        let mut tick_at = tokio::time::Instant::now();
        if self.person_sink.is_some() && self.log_target == LogTarget::Program {
            let run = &self.run;
            self.for_person = format!("run {run} is running; Ctrl-C opens the menu here\n");
        }
        for (at, item) in std::mem::take(&mut self.earlier_events) {
            self.take_event(at, &item);
        }
        self.update_handlers();
        while !(self.is_over && self.editor.is_none() && self.wants_to_print() == (false, false)) {
            let deadline = self.decode_by.map(tokio::time::Instant::from_std);
            let can_type = self.tty.is_some();
            // Back-pressure: stop taking events while the log is full. Events wait in the bounded channel.
            let has_room = self.log.has_room();
            let wants_events = !self.is_over
                && has_room
                && self.for_log.len() < FRAME
                && !(self.must_hold_log() && has_view);
            let (log, face) = self.wants_to_print();
            let can_tick = (can_type && !self.is_over) || self.editor.is_some();
            if self.editor.is_some() || self.ui.is_prompting() {
                tick_at = tick_at.min(tokio::time::Instant::now() + PROMPT_TICK);
                tick.reset_at(tick_at);
            }
            let woken = tokio::select! {
                biased;
                (scope, notice) = next_notice(&mut self.scopes), if !is_shut => WakeReason::Notice(scope, notice),
                _ = &mut shutdown, if !is_shut => WakeReason::Shutdown,
                typed = typed_before(&mut typed, deadline), if can_type => typed.map_or(WakeReason::Silence, WakeReason::Typed),
                edited = edited(&mut self.editor), if self.editor.is_some() => WakeReason::Edited(edited),
                _ = next_signal(&mut suspend) => WakeReason::Suspend,
                _ = next_signal(&mut continued) => WakeReason::Continued,
                _ = next_signal(&mut resized) => WakeReason::Resized,
                _ = tick.tick(), if can_tick => WakeReason::Tick,
                message = next_message(&mut self.messages) => WakeReason::Message(message),
                changed = self.view.changed(), if has_view => WakeReason::View(changed.is_ok()),
                () = room(self.person_sink.as_ref()), if face => WakeReason::PersonWritable,
                () = self.log.room(), if log || !has_room => WakeReason::LogWritable,
                // The last branch, so that a flood of events doesn't starve the others.
                item = events.recv(), if wants_events => WakeReason::Event(item),
            };
            match woken {
                WakeReason::Notice(scope, notice) => self.press_taken(scope, notice),
                WakeReason::Shutdown => {
                    is_shut = true;
                    self.close_prompts();
                }
                WakeReason::Typed(typed) => self.typed(typed),
                WakeReason::Silence => {
                    let keys = self.decoder.flush();
                    self.keys(keys);
                }
                WakeReason::Edited(result) => {
                    self.editor = None;
                    if let Some(tty) = &self.tty {
                        tty.reset();
                    }
                    self.terminal_returned();
                    self.ui.edited(result);
                    if self.is_over {
                        self.ui.close_prompts();
                    }
                }
                WakeReason::Suspend => self.suspend(&mut continued).await,
                WakeReason::Continued => self.terminal_returned(),
                WakeReason::LogWritable => self.print_log(),
                WakeReason::PersonWritable => self.print_to_person(),
                WakeReason::Message(message) => match message {
                    Some(message) => self.ui.show_person(message),
                    None => self.messages = None,
                },
                WakeReason::Event(item) => self.take_events(item, &mut events).await,
                WakeReason::View(is_there) => {
                    has_view = is_there;
                    self.refresh();
                }
                // Nothing to do: each pass of the loop compares the live rows with the screen.
                WakeReason::Resized => {}
                WakeReason::Tick => {
                    tick_at = tokio::time::Instant::now() + until_next_second();
                    tick.reset_at(tick_at);
                    self.tick();
                }
            }
            self.perform();
            if let Some(phase) = self.editor_request.take() {
                self.edit(phase).await;
            }
            self.update_handlers();
        }
        self.restore_terminal();
    }

    /// Whether the terminal may have echoed input that this thread hasn't handled yet. The position of the cursor is then unknown.
    fn is_typed_unseen(&self) -> bool {
        let is_ours = self.in_front && self.editor.is_none() && !self.is_over;
        is_ours
            && self.painter.above().is_some()
            && self.tty.as_ref().is_some_and(|tty| tty.has_unread())
    }

    /// Whether the terminal may have echoed the last piece of input before the newest frame was on the screen.
    fn was_typed_during_a_frame(&self) -> bool {
        let screen = self.person_sink.as_ref().unwrap_or(&self.log);
        // Ask in this order: a frame that ends in between is noted by then.
        let is_printing = !screen.has_room();
        let was_echoed = { self.tty.as_ref() }.is_some_and(|tty| tty.was_echoed_in_frame());
        is_printing || was_echoed
    }

    /// Whether the log has to wait, because its reader may print on the terminal while the person is prompted.
    fn must_hold_log(&self) -> bool {
        self.ui.is_prompting()
            && self.person_sink.is_some()
            && self.log_target == LogTarget::Program
    }

    /// Pushes and drops handlers so that they match the press scopes of the run now.
    fn update_handlers(&mut self) {
        let view = self.view.borrow().clone();
        let step = Scope::of_step(RunSnapshot::of(&view, self.attached));
        if let Some(scopes) = &mut self.scopes {
            scopes.update_handlers(step.into_iter().chain(self.ui.scopes()));
        }
    }

    fn press_taken(&mut self, scope: Scope, notice: Notice) {
        let view = self.view.borrow().clone();
        // In the background nothing prompts; a press has the same meaning as without a terminal.
        let is_here = |tty: &Arc<Tty>| tty.is_foreground() || self.editor.is_some();
        let asking = match (&self.terminal_error, &self.tty) {
            (Some(_), _) => AskAbility::Broken,
            (None, Some(tty)) if is_here(tty) => AskAbility::Here,
            _ => AskAbility::Nowhere,
        };
        self.notice = Some(notice);
        let snapshot = RunSnapshot::of(&view, self.attached);
        self.ui
            .pressed(scope, self.presses.action_in(scope), asking, snapshot);
    }

    fn close_prompts(&mut self) {
        self.ui.close_prompts();
        if let Some(editor) = &self.editor {
            editor.hang_up();
            self.kill_editor_at = Some(Instant::now() + times::EDITOR_ENDING);
        }
    }

    fn typed(&mut self, typed: Option<Typed>) {
        let is_read = !matches!(typed, Some(Typed::Rearmed));
        if let Some(tty) = self.tty.as_ref().filter(|_| is_read) {
            tty.piece_handled();
        }
        match typed {
            Some(Typed::Lines(mut bytes)) => {
                self.press_in(&mut bytes);
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let width = self.tty.as_ref().map(|tty| tty.size().0);
                if let Some(width) = width {
                    self.painter.resized(width);
                    match self.was_typed_during_a_frame() {
                        true => self.painter.typed_during_a_frame(),
                        false => self.painter.typed(&text),
                    }
                }
                let view = self.view.borrow().clone();
                self.ui.lines(
                    &text,
                    RunSnapshot::of(&view, self.attached),
                    now(),
                    &self.run,
                );
            }
            Some(Typed::Keys(bytes, generation)) if generation == self.generation => {
                let keys = self.decoder.feed(&bytes);
                self.keys(keys);
            }
            Some(Typed::Keys(..)) => {}
            Some(Typed::Rearmed) => self.report_rearm(),
            Some(Typed::Gone) | None => {
                self.ui.close_prompts();
                self.tty = None;
                if !self.attached {
                    // A busy run may not have taken earlier requests yet, so this waits for its place.
                    let control = self.control.clone();
                    tokio::spawn(async move {
                        let _has_ended = control.send(RunControl::Attended(false)).await;
                    });
                }
            }
        }
    }

    fn keys(&mut self, keys: Vec<super::keys::Key>) {
        self.decode_by = self.decoder.flush_after().map(|wait| Instant::now() + wait);
        let view = self.view.borrow().clone();
        self.ui.keys(
            keys,
            RunSnapshot::of(&view, self.attached),
            now(),
            &self.run,
        );
    }

    /// Takes all events that are ready, up to the limits of a frame, so that a flood is drawn in few frames.
    async fn take_events(
        &mut self,
        first: Option<(Timestamp, RunEvent)>,
        events: &mut RunEventReceiver,
    ) {
        let mut next = Some(first);
        for _ in 0..FRAME_EVENTS {
            match next {
                Some(Some((at, item))) => self.take_event(at, &item),
                Some(None) => {
                    self.is_over = true;
                    self.ui.end_line();
                    if self.editor.is_none() {
                        self.ui.close_prompts();
                    }
                    return;
                }
                None => return,
            }
            if self.for_log.len() >= FRAME {
                return;
            }
            let mut waiting = pin!(events.recv());
            next = std::future::poll_fn(|context| {
                Poll::Ready(match waiting.as_mut().poll(context) {
                    Poll::Ready(item) => Some(item),
                    Poll::Pending => None,
                })
            })
            .await;
        }
        if let Some(Some((at, item))) = next {
            self.take_event(at, &item);
        }
    }

    fn take_event(&mut self, at: Timestamp, event: &RunEvent) {
        if self.bell
            && needs_a_person(event)
            && let Some(tty) = self.tty.as_ref().filter(|tty| tty.is_foreground())
        {
            tty.ring();
        }
        // The status line already shows the wait.
        let is_status = self.tty.is_some() && self.has_status();
        if is_status && matches!(event, RunEvent::StillWaiting { .. }) {
            return;
        }
        // The status line also shows the countdown of a stop. Only a log that goes elsewhere prints the countdown too.
        let counts = is_status && matches!(event, RunEvent::StopAwaits { .. });
        if counts && self.person_sink.is_none() {
            return;
        }
        let text = (self.format_event)(at, event);
        self.ui.take_event(event, text);
        if self.person_sink.is_some()
            && !counts
            && let Some(words) = (self.format_answer)(event)
        {
            self.ui.show_person(words);
        }
        self.perform();
    }

    fn refresh(&mut self) {
        let view = self.view.borrow_and_update().clone();
        self.ui.view_changed(RunSnapshot::of(&view, self.attached));
    }

    fn tick(&mut self) {
        let view = self.view.borrow().clone();
        self.ui.tick(RunSnapshot::of(&view, self.attached));
        if let Some(editor) = &self.editor
            && self.kill_editor_at.is_some_and(|at| at <= Instant::now())
        {
            editor.kill();
        }
        if self.person_sink.is_some() && self.log.is_closed() && !self.has_reported_gone {
            self.has_reported_gone = true;
            let run = &self.run;
            let text = format!(
                "standard output was closed by its reader; the run continues. To see its output: rlm logs {run}\n"
            );
            self.ui.show_person(text);
        }
        let in_front = self.tty.as_ref().is_some_and(|tty| tty.is_foreground());
        if self.editor.is_none() && in_front != self.in_front {
            self.terminal_returned();
        }
        self.report_attendance(RunSnapshot::of(&view, self.attached));
    }

    fn perform(&mut self) {
        loop {
            let effects = self.ui.effects();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.perform_effect(effect);
            }
        }
        self.set_terminal_mode();
    }

    /// Restores the mode of the terminal when the run has ended.
    fn restore_terminal(&mut self) {
        if let Some(tty) = &self.tty {
            tty.restore();
        }
    }
}

/// Prints on the standard error that the menu can't be shown. Also used for the other prompts.
fn print_press_error(why: &str) {
    anstream::eprintln!(
        "rlm: the menu can't be shown: {why}; Ctrl-C again within the cooldown (2 s by default) saves and stops"
    );
}

/// Whether the run waits for the person after this event.
fn needs_a_person(event: &RunEvent) -> bool {
    matches!(
        event,
        RunEvent::Agent(Event::PermissionRequested(_))
            | RunEvent::Update(loop_state::RunUpdate::Review(_))
    )
}

/// Returns the time until the clock shows the next second.
fn until_next_second() -> Duration {
    TICK - Duration::from_millis(now().as_millis() % 1000)
}

fn now() -> Timestamp {
    SystemTime::now().into()
}
