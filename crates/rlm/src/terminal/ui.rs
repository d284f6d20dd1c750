//! The terminal as a machine: keys, lines, news and presses go in, effects come out. No terminal, no thread and no clock is in here.

use agent_duplex::{Ask, Decision, Event};
use loop_runner::{Control, News};
use loop_state::{Again, StopCause, StopRequest, Timestamp, When};

use super::command::{self, Command};
use super::hold::Hold;
use super::keys::Key;
use super::line::{History, Line, Typed};
use super::menu::{self, Choice, Chosen};
use super::rows::Rows;
use super::scene::Scene;
use super::status;
use super::talk::Talk;
use crate::render::{DIM, plain, styled};

const HELP: &str = "Enter sends, Alt-Enter breaks the line, Esc cancels";
/// How much of what was said is shown again.
const MAX_ECHO: usize = 200;
/// How many answered questions are remembered, so that the view does not bring them back.
const MAX_ANSWERED: usize = 100;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Print whole lines to the log.
    Print(String),
    /// Show whole lines to the person, also where the log goes elsewhere.
    Say(String),
    Send(Control),
    Notice(Answer),
    /// Begin the shutdown: what the person wants saved is saved.
    Exit,
    /// The person pressed Ctrl-C on a terminal that makes no signal of it.
    Press,
    Suspend,
    /// Open the editor on the prompt.
    Edit,
}

/// The answer to the notice of a press.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Handled,
    Escalate,
    /// None: the press stays counted.
    Drop,
}

/// What waits for the person.
#[derive(Debug)]
enum Prompt {
    Menu {
        hint: Option<String>,
    },
    Steer {
        line: Line,
        now: bool,
        hint: Option<String>,
    },
    /// The first of the questions.
    Ask {
        hint: bool,
    },
    Editor,
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

#[derive(Debug)]
struct Question {
    ask: Ask,
    /// Whether the view has shown it; when it no longer does, nobody waits for the answer.
    seen: bool,
}

/// Everything between the person and the run.
#[derive(Debug, Default)]
pub(crate) struct Ui {
    prompt: Option<Prompt>,
    questions: Vec<Question>,
    answered: Vec<String>,
    /// Questions that only the view knows, by the last look: their news may still come.
    unannounced: Vec<String>,
    hold: Hold,
    talk: Talk,
    history: History,
    /// What was being written at `steer>` when the menu opened.
    draft: String,
    /// What was typed of a line that has no end yet.
    begun: String,
    /// The run is ending, or the terminal is gone: nothing prompts any more.
    closed: bool,
    effects: Vec<Effect>,
    /// Whether the log and the person share a terminal, so that the log waits while something prompts; and how wide its rows are.
    log_width: Option<usize>,
    /// Grows whenever keys that were typed before must decide nothing.
    generation: u64,
}

impl Ui {
    /// `log_width` is given when the log goes to the person's terminal.
    pub(crate) fn new(log_width: Option<usize>) -> Self {
        Self {
            log_width,
            ..Self::default()
        }
    }

    /// Takes what there is to do.
    pub(crate) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn resized(&mut self, width: usize) {
        if let Some(old) = &mut self.log_width {
            *old = width;
        }
    }

    pub(crate) fn wants(&self) -> Wants {
        match &self.prompt {
            None | Some(Prompt::Editor) => Wants::Lines,
            Some(Prompt::Steer { .. }) => Wants::Text,
            Some(Prompt::Menu { .. } | Prompt::Ask { .. }) => Wants::Choice,
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn is_editing(&self) -> bool {
        matches!(self.prompt, Some(Prompt::Editor))
    }

    /// A press was taken, and the menu can be shown.
    pub(crate) fn pressed(&mut self) {
        match self.prompt.take() {
            menu @ Some(Prompt::Menu { .. }) => {
                self.prompt = menu;
                self.notice(Answer::Escalate);
            }
            editor @ Some(Prompt::Editor) => {
                self.prompt = editor;
                self.log(line(
                    "a press came while the editor was open; once more stops the run",
                ));
                self.notice(Answer::Drop);
            }
            other => {
                if let Some(Prompt::Steer { line, .. }) = other {
                    self.draft = line.text().to_owned();
                }
                self.open(Prompt::Menu { hint: None });
            }
        }
    }

    /// The terminal does not do what a prompt needs. What the press wants is not known, so it stays counted.
    pub(crate) fn cannot_prompt(&mut self) {
        self.notice(Answer::Drop);
        self.refuse_questions();
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
            None | Some(Prompt::Editor) => {}
            Some(Prompt::Menu { hint }) => match menu::choose(&key, scene) {
                None => {}
                Some(Chosen::Wrong(c)) => {
                    let c = plain(&c.to_string());
                    *hint = Some(format!("`{c}` is no choice now; Esc goes on"));
                }
                Some(Chosen::Nothing) => {
                    self.notice(Answer::Handled);
                    self.close();
                }
                Some(Chosen::It(choice)) => self.choose(choice, scene),
            },
            Some(Prompt::Ask { hint }) => {
                let answer = match key {
                    Key::Char('y' | 'Y') => Some(("allowed", Decision::Allow)),
                    Key::Char('n' | 'N') => Some(("denied", deny("the person denied this"))),
                    Key::Esc => Some(("skipped", deny("the person skipped this question"))),
                    _ => None,
                };
                *hint = answer.is_none();
                if let Some((word, decision)) = answer {
                    self.answer(word, decision);
                }
            }
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

    /// Lines were typed while nothing prompted, or the beginning of one.
    pub(crate) fn lines(&mut self, text: &str, scene: Scene<'_>, now: Timestamp, run: &str) {
        match &mut self.prompt {
            Some(Prompt::Steer { line, .. }) => {
                // It was on its way when the prompt opened: text, and no order to send it.
                line.key(Key::Paste(text.to_owned()), &self.history);
                return;
            }
            Some(_) => return,
            None => self.begun.push_str(text),
        }
        if self.closed || !self.begun.contains('\n') {
            // A terminal passes lines of a few thousand bytes; who sends more without an end types nothing.
            if self.closed || self.begun.len() > super::keys::MAX_PASTE {
                self.begun.clear();
            }
            return;
        }
        let text = std::mem::take(&mut self.begun);
        let mut text = text.strip_suffix('\n').unwrap_or(&text);
        // Commands that were typed ahead are carried out one by one; what is no command was typed, or pasted, to be said.
        while let Some((first, rest)) = text.split_once('\n')
            && command::parse(first).is_some()
            && self.prompt.is_none()
        {
            self.typed_line(first, scene, now, run);
            text = rest;
        }
        if self.prompt.is_some() || text.contains('\n') {
            let before = match &self.prompt {
                Some(Prompt::Steer { line, .. }) => line.text().to_owned(),
                _ => String::new(),
            };
            self.open_steer(format!("{before}{text}\n"), false);
        } else {
            self.typed_line(text, scene, now, run);
        }
    }

    fn typed_line(&mut self, text: &str, scene: Scene<'_>, now: Timestamp, run: &str) {
        match command::parse(text) {
            None if text.trim().is_empty() => {
                let draft = std::mem::take(&mut self.draft);
                self.open_steer(draft, false);
            }
            None => self.open_steer(text.to_owned(), false),
            Some(Err(why)) => self.say(&line(why)),
            Some(Ok(command)) => self.command(command, scene, now, run),
        }
    }

    fn command(&mut self, command: Command, scene: Scene<'_>, now: Timestamp, run: &str) {
        match command {
            Command::Pause => self.send(Control::Pause),
            Command::Continue => self.send(Control::Continue),
            Command::Interrupt => self.send(Control::Interrupt),
            Command::New => self.send(Control::FreshSession),
            Command::StopLater => self.send(Control::Stop(StopRequest {
                by: StopCause::Person,
                when: When::AfterIteration,
            })),
            Command::Exit => self.effects.push(Effect::Exit),
            Command::Help => self.say_lines(&command::help()),
            Command::Status => self.say_lines(&status::report(run, scene, now)),
            Command::Steer(text, at_once) if text.is_empty() => {
                let draft = std::mem::take(&mut self.draft);
                self.open_steer(draft, at_once);
            }
            Command::Steer(text, at_once) => self.steer(text, at_once),
        }
    }

    fn steer(&mut self, text: String, now: bool) {
        self.history.add(&text);
        let mut lines = text.lines();
        let first = super::rows::cut(&plain(lines.next().unwrap_or_default()), MAX_ECHO);
        let more = match lines.count() {
            0 => String::new(),
            n => format!(" (and {n} more lines)"),
        };
        self.say(&line(format!("{} {first}{more}", styled(DIM, "you:"))));
        self.send(Control::Steer { text, now });
    }

    fn choose(&mut self, choice: Choice, scene: Scene<'_>) {
        self.notice(Answer::Handled);
        match choice {
            Choice::Continue => {
                if scene.waits() {
                    self.send(Control::Continue);
                }
            }
            Choice::Steer => {
                let draft = std::mem::take(&mut self.draft);
                self.open_steer(draft, false);
                return;
            }
            Choice::EditPrompt => {
                self.prompt = Some(Prompt::Editor);
                self.effects.push(Effect::Edit);
                return;
            }
            Choice::SkipSleep => self.send(Control::SkipSleep),
            Choice::Restart => self.send(Control::Again(Again::Iteration)),
            Choice::StartOver => self.send(Control::Again(Again::Phase)),
            Choice::Exit => self.effects.push(Effect::Exit),
            Choice::Abort => {
                self.send(Control::Abort);
                self.effects.push(Effect::Exit);
            }
        }
        self.close();
    }

    /// The editor has ended.
    pub(crate) fn edited(&mut self, result: Result<Option<String>, String>) {
        if !self.is_editing() {
            return;
        }
        match result {
            Ok(text) => {
                match text {
                    Some(text) => self.send(Control::Prompt(text)),
                    None => self.say(&line("the next iteration reads the prompt as it is now")),
                }
                self.close();
            }
            Err(why) => self.open(Prompt::Menu { hint: Some(why) }),
        }
    }

    fn answer(&mut self, word: &str, decision: Decision) {
        if self.questions.is_empty() {
            return self.close();
        }
        let ask = self.questions.remove(0).ask;
        let what = format!("{}: {}", plain(&ask.tool), plain(&ask.summary));
        self.say(&line(format!("{} {what}", styled(DIM, format!("{word}:")))));
        self.decide(ask, decision);
        self.close();
    }

    fn decide(&mut self, ask: Ask, decision: Decision) {
        if self.answered.len() == MAX_ANSWERED {
            self.answered.remove(0);
        }
        self.answered.push(ask.id.clone());
        self.send(Control::Answer {
            ask: ask.id,
            decision,
        });
    }

    /// Something happened. `text` is what the log says of it, with the ends of its lines; without it, what the agent says
    /// flows.
    pub(crate) fn news(&mut self, news: &News, text: Option<String>) {
        let text = match (news, text) {
            (News::Agent(Event::TextDelta(piece)), None) => self.talk.piece(piece, self.log_width),
            (News::Agent(Event::Message { text, partial }), None) => {
                self.talk.message(text, *partial, self.log_width)
            }
            (_, None) => String::new(),
            (_, Some(text)) => {
                if !text.is_empty() {
                    self.settle();
                }
                text
            }
        };
        self.log(text);
        match news {
            News::Agent(Event::PermissionAsked(ask)) => self.asked(ask.clone()),
            News::Agent(Event::PermissionWithdrawn { id }) => self.withdrawn(|q| q.ask.id == *id),
            _ => {}
        }
    }

    fn asked(&mut self, ask: Ask) {
        let known = |id: &String| *id == ask.id;
        if self.questions.iter().any(|q| q.ask.id == ask.id) || self.answered.iter().any(known) {
            return;
        }
        if self.closed {
            return self.decide(ask, deny("nobody is there to answer"));
        }
        self.questions.push(Question { ask, seen: false });
        if self.prompt.is_none() {
            self.open(Prompt::Ask { hint: false });
        }
    }

    fn withdrawn(&mut self, gone: impl Fn(&Question) -> bool) {
        let first = self.questions.first().is_some_and(&gone);
        self.questions.retain(|question| !gone(question));
        if first && matches!(self.prompt, Some(Prompt::Ask { .. })) {
            self.say(&line(styled(DIM, "the question needs no answer any more")));
            self.close();
        }
    }

    /// The run looks different now.
    pub(crate) fn viewed(&mut self, scene: Scene<'_>) {
        let asks = &scene.agent.asks;
        let shown = |id: &String| asks.iter().any(|ask| ask.id == *id);
        for question in &mut self.questions {
            question.seen |= shown(&question.ask.id);
        }
        self.withdrawn(|question| question.seen && !shown(&question.ask.id));
    }

    /// A moment passed: questions whose news were lost are asked all the same.
    pub(crate) fn ticked(&mut self, scene: Scene<'_>) {
        let before = std::mem::take(&mut self.unannounced);
        for ask in &scene.agent.asks {
            if before.contains(&ask.id) {
                self.asked(ask.clone());
            }
            self.unannounced.push(ask.id.clone());
        }
    }

    /// The shutdown has begun, the run is over or the terminal is gone: what prompts is closed, and nothing prompts any more.
    pub(crate) fn shut(&mut self) {
        self.closed = true;
        self.notice(Answer::Drop);
        self.refuse_questions();
        self.close();
    }

    fn refuse_questions(&mut self) {
        for question in std::mem::take(&mut self.questions) {
            self.decide(question.ask, deny("nobody is there to answer"));
        }
    }

    /// Ends the line that the agent is writing.
    pub(crate) fn settle(&mut self) {
        let text = self.talk.settle();
        self.log(text);
    }

    /// The terminal belongs to others: what prompts goes away without an answer, questions come back later.
    pub(crate) fn step_back(&mut self) {
        match self.prompt.take() {
            Some(Prompt::Steer { line, .. }) => self.draft = line.text().to_owned(),
            Some(Prompt::Menu { .. }) => self.notice(Answer::Handled),
            editor @ Some(Prompt::Editor) => {
                self.prompt = editor;
                return;
            }
            _ => {}
        }
        self.release();
    }

    /// The terminal is ours again.
    pub(crate) fn step_forward(&mut self) {
        if self.prompt.is_none() && !self.questions.is_empty() && !self.closed {
            self.open(Prompt::Ask { hint: false });
        }
    }

    /// What stands below the log on a screen of this size. The status line is added by whoever knows that there is room for one.
    pub(crate) fn rows(&self, scene: Scene<'_>, width: usize, height: usize) -> Option<Rows> {
        let rows = match self.prompt.as_ref()? {
            Prompt::Menu { hint } => {
                return Some(menu::rows(scene, hint.as_deref(), width, height));
            }
            Prompt::Editor => Rows::default(),
            Prompt::Steer { line, now, hint } => {
                let prompt = if *now { "now> " } else { "steer> " };
                let mut rows = line.rows(prompt, width);
                let hint = hint.as_deref().unwrap_or(HELP);
                rows.rows.insert(0, super::rows::cut(hint, width));
                rows.cursor = rows.cursor.map(|(row, column)| (row + 1, column));
                rows
            }
            Prompt::Ask { hint } => self.question_rows(*hint, width),
        };
        Some(rows.within(height))
    }

    fn question_rows(&self, hint: bool, width: usize) -> Rows {
        let Some(Question { ask, .. }) = self.questions.first() else {
            return Rows::default();
        };
        let mut what = format!("may it? {}: {}", plain(&ask.tool), plain(&ask.summary));
        let mut rows = Rows::default();
        rows.rows = super::rows::take_rows(&mut what, width);
        rows.rows.push(what);
        // The keys must stay in sight, however much it says.
        rows.rows.truncate(6);
        if !ask.reason.is_empty() {
            rows.rows.push(super::rows::cut(&plain(&ask.reason), width));
        }
        let keys = match hint {
            true => "press y, n or Esc ",
            false => "y allow, n deny, Esc skip ",
        };
        rows.rows.push(super::rows::cut(keys, width));
        let column = super::rows::width(rows.rows.last().map_or("", String::as_str));
        rows.cursor = Some((rows.rows.len() - 1, column.min(width.saturating_sub(1))));
        rows
    }

    /// The row of text that the agent is writing.
    pub(crate) fn partial(&self) -> &str {
        self.talk.partial()
    }

    fn open(&mut self, prompt: Prompt) {
        if self.closed {
            return self.close();
        }
        if matches!(prompt, Prompt::Menu { .. } | Prompt::Ask { .. }) {
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
        if self.closed || self.questions.is_empty() {
            self.release();
        } else {
            self.open(Prompt::Ask { hint: false });
        }
    }

    fn release(&mut self) {
        let held = self.hold.release();
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

    /// Tells the person something, whatever prompts.
    pub(crate) fn say(&mut self, text: &str) {
        self.effects.push(Effect::Say(text.to_owned()));
    }

    fn say_lines(&mut self, lines: &[String]) {
        let text: String = lines.iter().map(line).collect();
        self.say(&text);
    }

    fn send(&mut self, control: Control) {
        self.effects.push(Effect::Send(control));
    }

    fn notice(&mut self, answer: Answer) {
        self.effects.push(Effect::Notice(answer));
    }
}

fn deny(message: &str) -> Decision {
    Decision::Deny {
        message: message.into(),
    }
}

fn line(text: impl std::fmt::Display) -> String {
    format!("{text}\n")
}

#[cfg(test)]
mod tests;
