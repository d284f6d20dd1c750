//! The terminal as a machine: keys, lines, news and presses go in, effects come out. No terminal, no thread and no clock is in here.

mod ask;
mod choice;
mod prompt;

use std::collections::VecDeque;

use agent_duplex::Event;
use loop_runner::{Control, News};
use loop_state::{Notice, Timestamp};

use prompt::{Answered, Menu, Prompt, Question, ReviewQuestion, line};

use super::calm::Calm;
use super::command;
use super::keys::Key;
use super::line::{History, Line, Typed};
use super::menu::{self, Choice};
use super::rows::Rows;
use super::scene::Scene;
use super::scope::{Asking, Meaning, PressAction, Scope};
use super::talk::Talk;
use super::wrap::wrap;

const HELP: &str = "Enter sends, Alt-Enter breaks the line, Esc cancels";
const HELP_SEVERAL: &str = "an empty line sends, Esc cancels";

/// The most lines, and bytes, that wait while the user is asked something.
const MAX_LINES: usize = 500;
const MAX_BYTES: usize = 256 << 10;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Print whole lines to the log.
    Print(String),
    /// Print to the log that it lacks this many lines here.
    Missed(u64),
    /// Show whole lines to the person, also where the log goes elsewhere.
    Say(String),
    Send(Control),
    Notice(Answer),
    /// Look at the run no longer.
    Detach,
    /// The person pressed Ctrl-C on a terminal that makes no signal of it.
    Press,
    Suspend,
    /// Open the editor on the prompt of the phase with this index.
    Edit(u32),
}

/// The answer to the notice of a press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Handled,
    Escalate,
    /// The scope around the one that took it decides.
    Decline,
    /// None: the press stays counted.
    Drop,
    /// None either: it says on the standard error why nobody is asked.
    CannotAsk,
}

/// What the keys are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// Nothing: lines, edited by the terminal.
    Lines,
    /// A text.
    Text,
    /// Single keys, each of which decides something.
    Choice,
}

/// Everything between the person and the run.
#[derive(Debug, Default)]
pub(crate) struct Ui {
    prompt: Option<Prompt>,
    questions: Vec<Question>,
    /// Answered, and not yet gone from the view.
    answered: Vec<Answered>,
    /// Questions that only the view knows, by the last look: their news may still come.
    unannounced: Vec<String>,
    /// The question whether a phase or a batch is good, while it is open.
    review: Option<ReviewQuestion>,
    hold: Hold,
    talk: Talk,
    calm: Calm,
    /// Whether nothing is left out for calm's sake.
    is_full: bool,
    history: History,
    /// What was said here and is not known to be recorded.
    said: std::collections::VecDeque<String>,
    /// What was being written at `steer>` when the menu opened.
    draft: String,
    /// What was typed of a line that has no end yet.
    begun: String,
    /// The run is ending, or the terminal is gone: nothing prompts any more.
    closed: bool,
    effects: Vec<Effect>,
    /// Whether the log and the person share a terminal, so that the log waits while something prompts; and how wide its rows are.
    log_width: Option<usize>,
    /// Whether the log is for programs: then nothing is left out of it, and nothing put in, for a person's sake.
    is_json: bool,
    /// Whether another process has the run.
    attached: bool,
    size: (usize, usize),
    /// Grows whenever keys that were typed before must decide nothing.
    generation: u64,
}

impl Ui {
    /// `log_width` is given when the log goes to the person's terminal.
    pub(crate) fn new(log_width: Option<usize>, is_json: bool) -> Self {
        Self {
            log_width,
            is_json,
            ..Self::default()
        }
    }

    /// Is for a run that another process has, or not.
    pub(crate) fn attached(self, attached: bool) -> Self {
        Self { attached, ..self }
    }

    /// Leaves nothing out of the log but what is too much for everybody.
    pub(crate) fn in_full(self, is_full: bool) -> Self {
        Self { is_full, ..self }
    }

    /// Takes what there is to do.
    pub(crate) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// The screen has room for so many columns and rows.
    pub(crate) fn resized(&mut self, width: usize, height: usize) {
        self.size = (width, height);
        if let Some(old) = &mut self.log_width {
            *old = width;
        }
    }

    pub(crate) fn is_prompting(&self) -> bool {
        self.prompt.is_some()
    }

    pub(crate) fn wants(&self) -> Wants {
        match &self.prompt {
            None | Some(Prompt::Editor(_)) => Wants::Lines,
            Some(Prompt::Steer { .. }) => Wants::Text,
            Some(Prompt::Menu(_) | Prompt::Ask(_)) => Wants::Choice,
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn is_editing(&self) -> bool {
        matches!(self.prompt, Some(Prompt::Editor(_)))
    }

    /// Returns the scopes of what prompts or is asked, from the outside in.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = Scope> {
        let asked = [
            self.review.is_some().then_some(Scope::Review),
            self.waits_for_answer().then_some(Scope::Ask),
        ];
        let prompting = self.prompting().filter(|it| !asked.contains(&Some(*it)));
        asked.into_iter().flatten().chain(prompting)
    }

    /// Returns the scope of what prompts.
    fn prompting(&self) -> Option<Scope> {
        Some(match self.prompt.as_ref()? {
            Prompt::Menu(menu) if menu.is_question() => Scope::Review,
            Prompt::Menu(_) => Scope::Menu,
            Prompt::Steer { .. } => Scope::Draft,
            Prompt::Ask(_) => Scope::Ask,
            Prompt::Editor(_) => Scope::Editor,
        })
    }

    /// A press was taken in a scope that has this action of its own.
    pub(crate) fn pressed(
        &mut self,
        scope: Scope,
        own: Option<PressAction>,
        asking: Asking,
        scene: Scene<'_>,
    ) {
        match scope.meets(self.prompting(), own, asking) {
            Meaning::Declined => self.notice(Answer::Decline),
            Meaning::Unasked => self.notice(Answer::CannotAsk),
            Meaning::Escalates => self.notice(Answer::Escalate),
            Meaning::Menu => self.open_menu(),
            Meaning::Noted => {
                self.say(line(
                    "a press came while the editor was open; once more stops the run",
                ));
                self.notice(Answer::Drop);
            }
            Meaning::Does(action) => self.act(action, scene),
        }
    }

    fn act(&mut self, action: PressAction, scene: Scene<'_>) {
        self.keep_draft();
        match action {
            PressAction::Prompt => self.open_menu(),
            PressAction::Continue => {
                self.choose(Choice::Continue, scene);
                self.say(line("Ctrl-C: the run goes on, as rlm.toml says"));
            }
            PressAction::Steer => self.choose(Choice::Steer, scene),
            PressAction::Stop => self.notice(Answer::Escalate),
            PressAction::Abort => self.choose(Choice::Abort, scene),
        }
    }

    fn open_menu(&mut self) {
        self.keep_draft();
        self.open(Prompt::Menu(Menu::default()));
    }

    /// `steer>` opens with the text that was left there.
    fn keep_draft(&mut self) {
        if let Some(Prompt::Steer { line, .. }) = &self.prompt {
            self.draft = line.text().to_owned();
        }
    }

    /// The terminal does not do what a prompt needs. What the press wants is not known, so it stays counted.
    pub(crate) fn cannot_prompt(&mut self) {
        self.notice(Answer::Drop);
        self.refuse_questions();
        if self.review.take().is_some() {
            self.send(Control::Attended(false));
        }
        self.close();
    }

    /// Keys were typed while something prompts.
    pub(crate) fn keys(&mut self, keys: Vec<Key>, scene: Scene<'_>, now: Timestamp, run: &str) {
        let generation = self.generation;
        for key in keys {
            match key {
                Key::Press => self.effects.push(Effect::Press),
                Key::Suspend => self.effects.push(Effect::Suspend),
                // What was typed before a question was shown is no answer to it.
                _ if self.generation != generation => {}
                key => self.key(key, scene, now, run),
            }
        }
    }

    fn key(&mut self, key: Key, scene: Scene<'_>, now: Timestamp, run: &str) {
        match &mut self.prompt {
            None | Some(Prompt::Editor(_)) => {}
            Some(Prompt::Menu(_)) => self.menu_key(&key, scene, now),
            Some(Prompt::Ask(_)) => self.question_key(&key, now),
            Some(Prompt::Steer {
                line,
                now: at_once,
                hint,
            }) => {
                let at_once = *at_once;
                *hint = None;
                match line.key(key, &self.history) {
                    Typed::More => {}
                    Typed::Refused(why) => *hint = Some(why),
                    Typed::Cancelled => {
                        let text = line.text().trim().to_owned();
                        if !text.is_empty() {
                            self.history.add(&text);
                        }
                        self.ask_again();
                        self.close();
                    }
                    Typed::Said(text) => {
                        match command::parse(&text).filter(|_| !text.contains('\n')) {
                            Some(Err(why)) => *hint = Some(why),
                            Some(Ok(command)) => {
                                self.close();
                                self.command(command, scene, now, run);
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

    /// Something happened. `text` is what the log says of it, with the ends of its lines; without it, what the agent says
    /// flows.
    pub(crate) fn news(&mut self, news: &News, text: Option<String>) {
        let text = match (news, text) {
            (News::Agent(Event::TextDelta(piece)), None) => {
                self.calm.settle() + &self.talk.piece(piece, self.log_width)
            }
            (News::Agent(Event::Message { text, partial }), None) => {
                self.calm.settle() + &self.talk.message(text, *partial, self.log_width)
            }
            (_, None) => String::new(),
            (News::Agent(event), _) if self.is_said_otherwise(event) => String::new(),
            (News::Said { text, .. }, _) if self.is_said_here(text) => String::new(),
            (_, Some(text)) => {
                if !text.is_empty() {
                    let talked = self.talk.settle();
                    self.log(talked);
                }
                self.fitted(news, text)
            }
        };
        self.log(text);
        match news {
            News::Agent(Event::PermissionAsked(ask)) => self.asked(ask.clone()),
            News::Agent(Event::PermissionWithdrawn { id }) => self.withdrawn(|q| q.ask.id == *id),
            News::Run(Notice::Review(_)) => self.review_asked(),
            _ => {}
        }
    }

    /// Makes lines for people fit their screen.
    fn fitted(&mut self, news: &News, text: String) -> String {
        // What is held is shown as it is: there may be very much of it.
        let fits = !self.is_json && self.prompt.is_none();
        let Some(width) = self.log_width.filter(|_| fits) else {
            return text;
        };
        let text = match self.is_full {
            true => text,
            false => self.calm.take(news, text),
        };
        let most = match news {
            _ if self.is_full => usize::MAX,
            News::Output { .. } => 6,
            News::Agent(Event::ToolStarted { .. }) => 3,
            News::Agent(Event::ToolFinished { .. }) => 2,
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

    /// Whether the question on the screen, or the line about its answer, says this.
    fn is_said_otherwise(&self, event: &Event) -> bool {
        let is_said = match event {
            Event::PermissionAsked(_) => !self.closed,
            Event::PermissionDenied { message, .. } => ask::is_own(message),
            _ => false,
        };
        is_said && !self.is_json && self.log_width.is_some()
    }

    /// The shutdown has begun, the run is over or the terminal is gone: what prompts is closed, and nothing prompts any more.
    pub(crate) fn shut(&mut self) {
        self.closed = true;
        self.notice(Answer::Drop);
        self.refuse_questions();
        // An editor has the screen until it has ended.
        if !self.is_editing() {
            self.close();
        }
    }

    /// Ends the line that the agent is writing.
    pub(crate) fn settle(&mut self) {
        let text = self.talk.settle() + &self.calm.settle();
        self.log(text);
    }

    /// The terminal belongs to others: what prompts goes away without an answer, questions come back later.
    pub(crate) fn step_back(&mut self) {
        match self.prompt.take() {
            Some(Prompt::Steer { line, .. }) => self.draft = line.text().to_owned(),
            Some(Prompt::Menu(_)) => {
                self.notice(Answer::Handled);
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

    /// The terminal is ours again.
    pub(crate) fn step_forward(&mut self) {
        if self.prompt.is_none() && self.is_asked() && !self.closed {
            self.close();
        }
    }

    /// What stands below the log on a screen of this size. The status line is added by whoever knows that there is room for one.
    pub(crate) fn rows(&self, scene: Scene<'_>) -> Option<Rows> {
        let (width, height) = self.size;
        let rows = match self.prompt.as_ref()? {
            Prompt::Menu(menu) => {
                let asks = self.waits_for_answer();
                return Some(menu::rows(scene, asks, menu.hint(scene), self.size));
            }
            Prompt::Editor(_) => Rows::default(),
            Prompt::Steer { line, now, hint } => {
                let prompt = match (now, scene.review()) {
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

    /// The row of text that the agent is writing.
    pub(crate) fn partial(&self) -> &str {
        self.talk.partial()
    }

    /// The row that counts what is not shown.
    pub(crate) fn counted(&self, width: usize) -> Option<String> {
        self.calm.counted(width)
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

    /// Closes what prompts; the next question is asked, or what was held is shown.
    fn close(&mut self) {
        self.prompt = None;
        if self.closed || !self.is_asked() {
            self.release();
        } else if self.waits_for_answer() {
            self.open_question();
        } else {
            self.open_review();
        }
    }

    fn release(&mut self) {
        let (left_out, held) = self.hold.release();
        if left_out > 0 {
            self.effects.push(Effect::Missed(left_out));
        }
        self.print(held);
    }

    /// Takes long text too: it is moved, not copied.
    fn log(&mut self, text: String) {
        if text.is_empty() {
        } else if self.prompt.is_some() && self.log_width.is_some() {
            self.hold.push(&text);
        } else {
            self.print(text);
        }
    }

    fn print(&mut self, text: String) {
        if !text.is_empty() {
            self.effects.push(Effect::Print(text));
        }
    }

    /// Tells the person something, whatever prompts; an editor has its screen for itself.
    pub(crate) fn say(&mut self, text: String) {
        if self.is_editing() && self.log_width.is_some() {
            self.hold.push(&text);
        } else {
            self.effects.push(Effect::Say(text));
        }
    }

    fn send(&mut self, what: impl Into<Control>) {
        self.effects.push(Effect::Send(what.into()));
    }

    fn notice(&mut self, answer: Answer) {
        self.effects.push(Effect::Notice(answer));
    }
}

/// The newest of the output that waits while the user is asked something.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    lines: VecDeque<String>,
    bytes: usize,
    left_out: u64,
}

impl Hold {
    /// Keeps lines for later; the oldest go when there is no room.
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

    /// Gives up what waits, and how many lines before it were left out.
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
