//! The terminal as a state machine: keys, lines, run events and presses go in, effects come out. It has no terminal, no thread and no clock.

mod choice;
mod permission;
mod prompt;

use std::collections::VecDeque;

use agent_duplex::Event;
use loop_runner::{RunControl, RunEvent};
use loop_state::{RunUpdate, Timestamp};

use prompt::{AnsweredQuestion, Menu, PermissionQuestion, Prompt, ReviewQuestion, line};

use super::collapse::RepeatCollapser;
use super::command;
use super::keys::Key;
use super::line::{History, Line, LineEdit};
use super::menu::{self, Choice};
use super::message_stream::MessageStream;
use super::rows::Rows;
use super::run_snapshot::RunSnapshot;
use super::scope::{AskAbility, PressAction, PressMeaning, Scope};
use super::wrap::wrap;

const HELP: &str = "Enter sends, Alt-Enter adds a line, Esc cancels";
const HELP_SEVERAL: &str = "an empty line sends, Esc cancels";

/// The maximum number of lines, and of bytes, of output that wait while something prompts.
const MAX_LINES: usize = 500;
const MAX_BYTES: usize = 256 << 10;

/// An action that the console performs for the state machine.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Print whole lines to the log.
    Print(String),
    /// Print to the log that this many lines are missing here.
    ReportMissed(u64),
    /// Show whole lines to the person, even if the log goes elsewhere.
    ShowPerson(String),
    Send(RunControl),
    /// Answer the notice of the press.
    AnswerPress(PressAnswer),
    /// Detach from the run.
    Detach,
    /// Count a Ctrl-C that the terminal sent as a byte.
    Press,
    Suspend,
    /// Open the editor on the prompt of the phase with this index.
    OpenEditor(u32),
}

/// The answer to the notice of a press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PressAnswer {
    Handled,
    Escalate,
    /// The scope around this one decides.
    Decline,
    /// No answer: the press counts during the cooldown.
    LeaveOpen,
    /// No answer either, and a message on the standard error that says why the menu can't be shown.
    CannotAsk,
}

/// The use of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyMode {
    /// Nothing prompts: the terminal edits lines.
    Lines,
    /// The keys write a text.
    Text,
    /// Each key is a decision.
    Choice,
}

/// The state of the dialogue between the person and the run.
#[derive(Debug, Default)]
pub(crate) struct Ui {
    prompt: Option<Prompt>,
    questions: Vec<PermissionQuestion>,
    /// Answered questions that a snapshot may still contain.
    answered: Vec<AnsweredQuestion>,
    /// The questions in the snapshot of the last tick, in case their events were lost.
    unannounced_questions: Vec<String>,
    /// The open review of a phase or batch.
    review: Option<ReviewQuestion>,
    held_output: HeldOutput,
    stream: MessageStream,
    repeats: RepeatCollapser,
    /// Whether the log shows everything, without collapsing.
    shows_everything: bool,
    history: History,
    /// Steers that were sent here and that the run has not recorded yet.
    sent_texts: std::collections::VecDeque<String>,
    /// The unfinished text of `steer>` when the menu opened.
    draft: String,
    /// The beginning of a typed line whose end has not arrived yet.
    partial_line: String,
    /// Whether the run is ending or the terminal is gone, so that nothing prompts any more.
    closed: bool,
    effects: Vec<Effect>,
    /// The width of the log's rows, if the log and the person share a terminal; the log then waits while something prompts.
    log_width: Option<usize>,
    /// Whether the log is for programs. Its events are then neither collapsed nor wrapped.
    is_json: bool,
    /// Whether another process works on the run.
    attached: bool,
    size: (usize, usize),
    /// Increases when earlier keys must have no effect.
    generation: u64,
}

impl Ui {
    /// Creates the state machine. `log_width` is `Some` if the log goes to the person's terminal.
    pub(crate) fn new(log_width: Option<usize>, is_json: bool) -> Self {
        Self {
            log_width,
            is_json,
            ..Self::default()
        }
    }

    /// Sets whether another process works on the run.
    pub(crate) fn attached(self, attached: bool) -> Self {
        Self { attached, ..self }
    }

    /// Sets whether the log shows everything, without collapsing or truncating.
    pub(crate) fn in_full(self, is_full: bool) -> Self {
        Self {
            shows_everything: is_full,
            ..self
        }
    }

    /// Takes the effects to perform.
    pub(crate) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Sets the number of columns and rows of the screen.
    pub(crate) fn resized(&mut self, width: usize, height: usize) {
        self.size = (width, height);
        if let Some(old) = &mut self.log_width {
            *old = width;
        }
    }

    pub(crate) fn is_prompting(&self) -> bool {
        self.prompt.is_some()
    }

    pub(crate) fn key_mode(&self) -> KeyMode {
        match &self.prompt {
            None | Some(Prompt::Editor(_)) => KeyMode::Lines,
            Some(Prompt::Steer { .. }) => KeyMode::Text,
            Some(Prompt::Menu(_) | Prompt::Ask(_)) => KeyMode::Choice,
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn is_editing(&self) -> bool {
        matches!(self.prompt, Some(Prompt::Editor(_)))
    }

    /// Returns the press scopes of the open prompt and the open questions, from the outermost to the innermost.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = Scope> {
        let asked = [
            self.review.is_some().then_some(Scope::Review),
            self.waits_for_answer().then_some(Scope::PermissionRequest),
        ];
        let prompting = self.prompting().filter(|it| !asked.contains(&Some(*it)));
        asked.into_iter().flatten().chain(prompting)
    }

    /// Returns the press scope of the open prompt.
    fn prompting(&self) -> Option<Scope> {
        Some(match self.prompt.as_ref()? {
            Prompt::Menu(menu) if menu.is_question() => Scope::Review,
            Prompt::Menu(_) => Scope::Menu,
            Prompt::Steer { .. } => Scope::Draft,
            Prompt::Ask(_) => Scope::PermissionRequest,
            Prompt::Editor(_) => Scope::Editor,
        })
    }

    /// Handles a press in a scope. `own` is the action that is configured for the scope.
    pub(crate) fn pressed(
        &mut self,
        scope: Scope,
        own: Option<PressAction>,
        asking: AskAbility,
        snapshot: RunSnapshot<'_>,
    ) {
        match scope.press_meaning(self.prompting(), own, asking) {
            PressMeaning::Decline => self.notice(PressAnswer::Decline),
            PressMeaning::CannotAsk => self.notice(PressAnswer::CannotAsk),
            PressMeaning::Escalate => self.notice(PressAnswer::Escalate),
            PressMeaning::Menu => self.open_menu(),
            PressMeaning::Note => {
                self.show_person(line(
                    "Ctrl-C came while the editor was open; Ctrl-C again stops the run",
                ));
                self.notice(PressAnswer::LeaveOpen);
            }
            PressMeaning::Runs(action) => self.do_press_action(action, snapshot),
        }
    }

    fn do_press_action(&mut self, action: PressAction, snapshot: RunSnapshot<'_>) {
        self.keep_draft();
        match action {
            PressAction::Prompt => self.open_menu(),
            PressAction::Continue => {
                self.choose(Choice::Continue, snapshot);
                self.show_person(line("Ctrl-C: the run continues, as set in rlm.toml"));
            }
            PressAction::Steer => self.choose(Choice::Steer, snapshot),
            PressAction::Stop => self.notice(PressAnswer::Escalate),
            PressAction::Abort => self.choose(Choice::Abort, snapshot),
        }
    }

    fn open_menu(&mut self) {
        self.keep_draft();
        self.open(Prompt::Menu(Menu::default()));
    }

    /// Keeps the text of `steer>` for the next time that this prompt opens.
    fn keep_draft(&mut self) {
        if let Some(Prompt::Steer { line, .. }) = &self.prompt {
            self.draft = line.text().to_owned();
        }
    }

    /// Closes all prompts because the terminal refuses the mode that they need. The press gets no answer, so it
    /// counts during the cooldown.
    pub(crate) fn cannot_prompt(&mut self) {
        self.notice(PressAnswer::LeaveOpen);
        self.refuse_questions();
        if self.review.take().is_some() {
            self.send(RunControl::Attended(false));
        }
        self.close();
    }

    /// Handles keys that were typed while something prompts.
    pub(crate) fn keys(
        &mut self,
        keys: Vec<Key>,
        snapshot: RunSnapshot<'_>,
        now: Timestamp,
        run: &str,
    ) {
        let generation = self.generation;
        for key in keys {
            match key {
                Key::Press => self.effects.push(Effect::Press),
                Key::Suspend => self.effects.push(Effect::Suspend),
                // A key that was typed before a question was shown doesn't answer it.
                _ if self.generation != generation => {}
                key => self.key(key, snapshot, now, run),
            }
        }
    }

    fn key(&mut self, key: Key, snapshot: RunSnapshot<'_>, now: Timestamp, run: &str) {
        match &mut self.prompt {
            None | Some(Prompt::Editor(_)) => {}
            Some(Prompt::Menu(_)) => self.menu_key(&key, snapshot, now),
            Some(Prompt::Ask(_)) => self.question_key(&key, now),
            Some(Prompt::Steer {
                line,
                now: at_once,
                hint,
            }) => {
                let at_once = *at_once;
                *hint = None;
                match line.key(key, &self.history) {
                    LineEdit::Edited => {}
                    LineEdit::Refused(why) => *hint = Some(why),
                    LineEdit::Cancelled => {
                        let text = line.text().trim().to_owned();
                        if !text.is_empty() {
                            self.history.add(&text);
                        }
                        self.ask_again();
                        self.close();
                    }
                    LineEdit::Sent(text) => {
                        match command::parse(&text).filter(|_| !text.contains('\n')) {
                            Some(Err(why)) => *hint = Some(why),
                            Some(Ok(command)) => {
                                self.close();
                                self.command(command, snapshot, now, run);
                            }
                            None => {
                                self.close();
                                self.steer(text, at_once);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Handles a run event. `text` is its lines in the log, with line ends; `None` for a message of the agent, which is streamed.
    pub(crate) fn take_event(&mut self, event: &RunEvent, text: Option<String>) {
        let text = match (event, text) {
            (RunEvent::Agent(Event::TextDelta(piece)), None) => {
                self.repeats.end_repeats() + &self.stream.push_piece(piece, self.log_width)
            }
            (RunEvent::Agent(Event::Message { text, partial }), None) => {
                self.repeats.end_repeats() + &self.stream.message(text, *partial, self.log_width)
            }
            (_, None) => String::new(),
            (RunEvent::Agent(event), _) if self.is_shown_elsewhere(event) => String::new(),
            (RunEvent::SteerRecorded { text, .. }, _) if self.was_sent_here(text) => String::new(),
            (_, Some(text)) if !self.closed && may_wait(event) => {
                let text = self.fitted(event, text);
                self.stream.insert(&text)
            }
            (_, Some(text)) => {
                if !text.is_empty() {
                    let talked = self.stream.end_line();
                    self.log(talked);
                }
                self.fitted(event, text)
            }
        };
        self.log(text);
        match event {
            RunEvent::Agent(Event::PermissionRequested(ask)) => {
                self.permission_requested(ask.clone())
            }
            RunEvent::Agent(Event::PermissionWithdrawn { id }) => {
                self.permission_withdrawn(|q| q.ask.id == *id)
            }
            RunEvent::Update(RunUpdate::Review(_)) => self.review_asked(),
            _ => {}
        }
    }

    /// Wraps lines for a person to the width of the screen.
    fn fitted(&mut self, event: &RunEvent, text: String) -> String {
        // Held output is shown unchanged, because it may be very long.
        let fits = !self.is_json && self.prompt.is_none();
        let Some(width) = self.log_width.filter(|_| fits) else {
            return text;
        };
        let text = match self.shows_everything {
            true => text,
            false => self.repeats.take(event, text),
        };
        let most = match event {
            _ if self.shows_everything => usize::MAX,
            RunEvent::Output { .. } => 6,
            RunEvent::Agent(Event::ToolStarted { .. }) => 3,
            RunEvent::Agent(Event::ToolFinished { .. }) => 2,
            _ => 12,
        };
        if text
            .lines()
            .all(|line| line.len() <= width && !line.contains('\t'))
        {
            return text;
        }
        let rows = text.lines().map(|row| line(wrap(row, width, most)));
        rows.collect()
    }

    /// Whether the question on the screen, or the line about its answer, already shows this event.
    fn is_shown_elsewhere(&self, event: &Event) -> bool {
        let is_said = match event {
            Event::PermissionRequested(_) => !self.closed,
            Event::PermissionDenied { message, .. } => permission::is_own(message),
            _ => false,
        };
        is_said && !self.is_json && self.log_width.is_some()
    }

    /// Closes all prompts permanently, because the shutdown has begun, the run has ended or the terminal is gone.
    pub(crate) fn close_prompts(&mut self) {
        self.closed = true;
        let waiting = self.stream.release();
        self.log(waiting);
        self.notice(PressAnswer::LeaveOpen);
        self.refuse_questions();
        // An editor has the screen until it has ended.
        if !self.is_editing() {
            self.close();
        }
    }

    /// Ends the agent's unfinished line in the log.
    pub(crate) fn end_line(&mut self) {
        let text = self.stream.end_line() + &self.repeats.end_repeats();
        self.log(text);
    }

    /// Closes the prompt without an answer, because another program has the terminal. Questions are asked again later.
    pub(crate) fn leave_foreground(&mut self) {
        match self.prompt.take() {
            Some(Prompt::Steer { line, .. }) => self.draft = line.text().to_owned(),
            Some(Prompt::Menu(_)) => {
                self.notice(PressAnswer::Handled);
                self.ask_again();
            }
            editor @ Some(Prompt::Editor(_)) => {
                self.prompt = editor;
                return;
            }
            _ => {}
        }
        self.release();
    }

    /// Asks open questions again, because the terminal is ours again.
    pub(crate) fn enter_foreground(&mut self) {
        if self.prompt.is_none() && self.has_pending_question() && !self.closed {
            self.close();
        }
    }

    /// Returns the rows of the open prompt; `None` if nothing prompts, in which case the caller shows the status line.
    pub(crate) fn rows(&self, snapshot: RunSnapshot<'_>) -> Option<Rows> {
        let (width, height) = self.size;
        let rows = match self.prompt.as_ref()? {
            Prompt::Menu(menu) => {
                let asks = self.waits_for_answer();
                return Some(menu::rows(snapshot, asks, menu.hint(snapshot), self.size));
            }
            Prompt::Editor(_) => Rows::default(),
            Prompt::Steer { line, now, hint } => {
                let prompt = match (now, snapshot.review()) {
                    (true, _) => "now> ",
                    (_, Some(_)) => "revise> ",
                    _ => "steer> ",
                };
                let mut rows = line.rows(prompt, width);
                let several = line.text().contains('\n');
                let help = if several { HELP_SEVERAL } else { HELP };
                let hint = hint.as_deref().unwrap_or(help);
                rows.rows.insert(0, super::rows::cut(hint, width));
                rows.cursor = rows.cursor.map(|(row, column)| (row + 1, column));
                rows
            }
            Prompt::Ask(asking) => self.question_rows(asking),
        };
        Some(rows.within(height))
    }

    /// Returns the unfinished row of the agent's text.
    pub(crate) fn partial(&self) -> &str {
        self.stream.partial()
    }

    /// Returns the row with the number of hidden events.
    pub(crate) fn counted(&self, width: usize) -> Option<String> {
        self.repeats.repeat_count_line(width)
    }

    fn open(&mut self, prompt: Prompt) {
        if self.closed {
            return self.close();
        }
        if matches!(prompt, Prompt::Menu(_) | Prompt::Ask(_)) {
            self.generation += 1;
        }
        self.prompt = Some(prompt);
    }

    fn open_steer(&mut self, text: String, now: bool) {
        let line = Line::new(text);
        let hint = None;
        self.open(Prompt::Steer { line, now, hint });
    }

    /// Closes the prompt, and then asks the next question or shows the held output.
    fn close(&mut self) {
        self.prompt = None;
        if self.closed || !self.has_pending_question() {
            self.release();
        } else if self.waits_for_answer() {
            self.open_question();
        } else {
            self.open_review();
        }
    }

    fn release(&mut self) {
        let (left_out, held) = self.held_output.release();
        if left_out > 0 {
            self.effects.push(Effect::ReportMissed(left_out));
        }
        self.print(held);
    }

    /// Prints or holds a text. Printing makes no copy of the text, because it may be long.
    fn log(&mut self, text: String) {
        if text.is_empty() {
        } else if self.prompt.is_some() && self.log_width.is_some() {
            self.held_output.push(&text);
        } else {
            self.print(text);
        }
    }

    fn print(&mut self, text: String) {
        if !text.is_empty() {
            self.effects.push(Effect::Print(text));
        }
    }

    /// Shows the person a text, even while something prompts. If the terminal also shows the log, the text waits while an editor has the screen.
    pub(crate) fn show_person(&mut self, text: String) {
        if self.is_editing() && self.log_width.is_some() {
            self.held_output.push(&text);
        } else {
            self.effects.push(Effect::ShowPerson(text));
        }
    }

    fn send(&mut self, what: impl Into<RunControl>) {
        self.effects.push(Effect::Send(what.into()));
    }

    fn notice(&mut self, answer: PressAnswer) {
        self.effects.push(Effect::AnswerPress(answer));
    }
}

/// Whether the lines of an event may wait until the agent has finished its sentence.
fn may_wait(event: &RunEvent) -> bool {
    matches!(
        event,
        RunEvent::SteerRecorded { .. }
            | RunEvent::SteerNextTurn(_)
            | RunEvent::InPrompt(_)
            | RunEvent::PauseReason(_)
            | RunEvent::Update(
                RunUpdate::SteerAdvanced { .. }
                    | RunUpdate::Pausing
                    | RunUpdate::StoppingAfterIteration
                    | RunUpdate::RuleChanged(_)
                    | RunUpdate::PhaseRuleChanged { .. }
                    | RunUpdate::FreshSession
            )
    )
}

/// The newest output that waits while something prompts.
#[derive(Debug, Default)]
pub(crate) struct HeldOutput {
    lines: VecDeque<String>,
    bytes: usize,
    left_out: u64,
}

impl HeldOutput {
    /// Keeps lines for later. Drops the oldest lines if there are too many.
    pub(crate) fn push(&mut self, text: &str) {
        for line in text.split_terminator('\n') {
            self.bytes += line.len();
            self.lines.push_back(line.to_owned());
            while self.lines.len() > MAX_LINES || (self.bytes > MAX_BYTES && self.lines.len() > 1) {
                let oldest = self.lines.pop_front().unwrap_or_default();
                self.bytes -= oldest.len();
                self.left_out += 1;
            }
        }
    }

    /// Takes the held lines, and the number of dropped lines before them.
    pub(crate) fn release(&mut self) -> (u64, String) {
        let held = std::mem::take(self);
        let mut text = String::with_capacity(held.bytes + held.lines.len());
        for line in held.lines {
            text.push_str(&line);
            text.push('\n');
        }
        (held.left_out, text)
    }
}

#[cfg(test)]
mod tests;
