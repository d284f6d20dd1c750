//! The log of a run: text, or one JSON object a line.

use std::fmt;
use std::io::{self, Write};
use std::time::SystemTime;

use agent_duplex::{Event, ProcessName};
use anstream::{AutoStream, ColorChoice};
use jiff::tz::TimeZone;
use loop_runner::{News, Outcome};
use loop_state::{Evidence, Notice, StopReason, Timestamp, Usage};
use rlm_store::{Holder, Project, RunHead, RunId, Uncommitted};
use rlm_terminal::style::{BAD, BOLD, DIM, GOOD, styled};
use rlm_terminal::{Log, fitted};
use rlm_text::escape::plain;
use rlm_text::money;
use serde_json::{Value, json};

use crate::exit::Code;
use crate::hint::go_on;
use crate::hint::rlm;
use crate::output;
use crate::render::OwnTree;
use crate::render::banner::{self, Beginning};
use crate::render::{Level, event, json_line};

/// Why a run ended whose process said nothing.
pub(crate) const KILLED: &str = "its process was killed";

/// How a run is shown.
#[derive(Clone, Debug)]
pub(crate) struct Screen {
    json: bool,
    in_background: bool,
    level: Level,
    zone: TimeZone,
}

impl Screen {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            in_background: false,
            level: Level::default(),
            zone: TimeZone::system(),
        }
    }

    /// Shows a run that no terminal has.
    pub(crate) fn in_background(self, in_background: bool) -> Self {
        Self {
            in_background,
            ..self
        }
    }

    /// Shows people less or more.
    pub(crate) fn at(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// Shows what is about to happen. A standard output that is gone is no reason not to run.
    pub(crate) fn begin(
        &self,
        beginning: &Beginning,
        project: &Project,
        head: &RunHead,
        person: bool,
    ) {
        let text = if self.level == Level::Quiet {
            return;
        } else if self.json {
            let mut value = banner::json(beginning, project, head);
            value["at"] = now().into();
            json_line(&value)
        } else {
            let lines = banner::lines(beginning, project, head, person, self.in_background);
            lines
                .iter()
                .map(|line| styled(DIM, fitted(line, banner::TEXT_AT)))
                .collect::<Vec<_>>()
                .join("\n")
        };
        let _gone = self.print(&text);
    }

    /// Says that a run is looked at which another process has.
    pub(crate) fn attached(&self, run: &RunId, holder: Option<&Holder>) {
        let pid = holder.map(|holder| holder.process.pid);
        let text = match self.json {
            true => json_line(&json!({"at": now(), "event": "attached", "run": run, "pid": pid})),
            false => {
                let pid = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
                styled(
                    DIM,
                    format!("attached to run {run}{pid}; Ctrl-C: menu, d in it detaches"),
                )
            }
        };
        let _gone = self.print(&text);
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Returns the log of a run on standard output.
    pub(crate) fn printed_log(&self) -> Log {
        let has_colour = AutoStream::choice(&io::stdout()) != ColorChoice::Never;
        self.log(Box::new(output::bytes()), has_colour)
    }

    /// Returns the log of a run, as this screen shows its events.
    pub(crate) fn log(&self, to: Box<dyn Write + Send>, has_colour: bool) -> Log {
        let (text, answer) = (self.clone(), self.clone());
        Log {
            to,
            has_colour,
            is_json: self.json,
            is_full: self.level == Level::Verbose,
            text: Box::new(move |at, news| text.news(at, news)),
            answer: Box::new(move |news| answer.answer(news)),
        }
    }

    /// Returns one piece of news as whole lines, none when there is nothing to show; `None` for what the agent says in its own words, which flows.
    pub(crate) fn news(&self, at: Timestamp, news: &News) -> Option<String> {
        let flows = matches!(
            news,
            News::Agent(Event::TextDelta(_) | Event::Message { .. })
        );
        let text = match self.json {
            true => event::json(at, news).map_or(String::new(), |value| json_line(&value)),
            false => match self.level.instead(news) {
                Some(instead) => instead,
                None if flows => return None,
                None => event::text(news, &self.zone),
            },
        };
        Some(ended(text))
    }

    /// Returns what a person who gave an order must hear of it, also where the log goes elsewhere.
    pub(crate) fn answer(&self, news: &News) -> Option<String> {
        match news {
            News::NextPrompt(_) | News::Rejected(_) => {}
            News::Run(
                Notice::Steer { .. }
                | Notice::Interrupted
                | Notice::Pausing
                | Notice::Paused
                | Notice::Continued
                | Notice::Reviewed(_)
                | Notice::RuleSet(_)
                | Notice::PhaseRuleSet { .. }
                | Notice::Again(_)
                | Notice::Fresh
                | Notice::StoppingLater,
            ) => {}
            News::Stopping { .. } | News::StopWaiting { .. } => {}
            _ => return None,
        }
        Some(ended(event::text(news, &self.zone)))
    }

    /// Shows how the run ended: the reason, and the proof that nothing was left alive.
    ///
    /// # Errors
    ///
    /// When nobody is there to read it.
    pub(crate) fn end(
        &self,
        run: &RunId,
        outcome: &Outcome,
        exit_code: i32,
        own: Option<&OwnTree>,
    ) -> io::Result<()> {
        if !self.json {
            let own = own.map_or_else(String::new, |own| format!("{own}\n"));
            return self.print(&(own + &self.end_words(run, outcome)));
        }
        let words = EndWords::of(run, outcome);
        let mut value = words.json(exit_code, &outcome.survivors);
        if let Some(own) = own {
            value["worktree"] = own.json();
        }
        self.print(&json_line(&value))
    }

    /// Returns the same in words.
    pub(crate) fn end_words(&self, run: &RunId, outcome: &Outcome) -> String {
        EndWords::of(run, outcome).to_string()
    }

    fn print(&self, text: &str) -> io::Result<()> {
        if self.json {
            writeln!(output::bytes(), "{text}")
        } else {
            writeln!(output::text(), "{text}")
        }
    }
}

/// The end of a run in words.
#[derive(Debug)]
pub(crate) struct EndWords<'a> {
    pub(crate) run: &'a RunId,
    /// Why; `None` when its process died.
    pub(crate) reason: Option<&'a StopReason>,
    /// How many processes were ended.
    pub(crate) ended: usize,
    /// How many could not be ended.
    pub(crate) left: usize,
    /// Whether that is known, rather than nothing being found.
    pub(crate) proven: bool,
    /// What the run used, as far as that is known.
    pub(crate) usage: Usage,
    /// The changes that should have been committed and are not.
    pub(crate) uncommitted: Option<&'a Uncommitted>,
}

impl<'a> EndWords<'a> {
    fn of(run: &'a RunId, outcome: &'a Outcome) -> Self {
        Self {
            run,
            reason: Some(&outcome.reason),
            ended: outcome.ended.len(),
            left: outcome.survivors.len(),
            proven: outcome.proven,
            usage: outcome.usage,
            uncommitted: outcome.uncommitted.as_ref(),
        }
    }

    /// Returns the same as an event.
    fn json(&self, exit_code: i32, survivors: &[ProcessName]) -> Value {
        let mut value = json!({
            "at": now(),
            "event": "run_ended",
            "run": self.run,
            "reason": self.reason.map_or_else(|| KILLED.to_owned(), ToString::to_string),
            "evidence": self.reason.and_then(evidence),
            "exit_code": exit_code,
            "usage": money::json(self.usage),
            "left": self.left,
            "of": self.left + self.ended,
            "proven": self.proven,
            "survivors": event::processes_json(survivors),
        });
        if let Some(uncommitted) = self.uncommitted {
            value["uncommitted"] = json!(uncommitted);
        }
        value
    }
}

/// Returns the event of the end of a run that another process had.
pub(crate) fn ended_elsewhere(words: &EndWords<'_>, survivors: &[ProcessName]) -> String {
    let code = match words.reason {
        _ if !survivors.is_empty() => Code::Survivors,
        Some(reason) => Code::of(reason),
        None => Code::Failed,
    };
    json_line(&words.json(code as i32, survivors))
}

impl fmt::Display for EndWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let style = match self.reason.map(Code::of) {
            Some(Code::Done) => GOOD,
            Some(Code::Stopped) => BOLD,
            _ => BAD,
        };
        let reason = self.reason.map(|reason| plain(&reason.to_string()));
        let reason = reason.unwrap_or_else(|| KILLED.to_owned());
        let left = left(self.left, self.left + self.ended, self.proven);
        write!(f, "{}; {left}", styled(style, reason))?;
        if let Some(used) = money::used(self.usage) {
            write!(f, "; {used}")?;
        }
        if let Some(uncommitted) = self.uncommitted {
            write!(f, "; {}", rlm_report::uncommitted(uncommitted))?;
        }
        let again = match self.reason {
            Some(reason) => go_on(self.run, reason),
            None => Some(format!("{} resume {}", rlm(), self.run)),
        };
        match again {
            Some(again) => write!(f, "; go on with: {again}"),
            None => Ok(()),
        }
    }
}

/// Says how many processes are left `of` those that were to be ended, and whether that is `proven`.
pub(crate) fn left(left: usize, of: usize, proven: bool) -> String {
    let seen = match proven {
        true => "",
        false => ", as far as could be seen",
    };
    match of {
        0 => format!("nothing left running{seen}"),
        of => format!("{left} of {of} left{seen}"),
    }
}

fn ended(mut text: String) -> String {
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

pub(crate) fn now() -> String {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    rlm_text::time::utc(Timestamp(since.as_millis() as u64))
}

/// Says what proves that the work is done.
fn evidence(reason: &StopReason) -> Option<&'static str> {
    match reason {
        StopReason::Done(Evidence::Check) => Some("check"),
        StopReason::Done(Evidence::Claim) => Some("claim"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x115a_the_end_line_is_harmless_whatever_the_agent_said_last() {
        let run = "r1".parse().unwrap();
        let hostile = || "exit status 1 (\u{1b}]0;mine\u{7}\u{1b}[2J)".to_owned();
        for reason in [
            StopReason::Failed(hostile()),
            StopReason::LastFailed(3, hostile()),
        ] {
            let outcome = Outcome {
                reason,
                ended: Vec::new(),
                survivors: Vec::new(),
                proven: true,
                usage: Usage::default(),
                uncommitted: None,
            };
            let words = Screen::new(false).end_words(&run, &outcome);
            let ours = anstream::adapter::strip_str(&words).to_string();
            assert!(ours.contains("mine"), "it is shown: {ours}");
            for hostile in ["\u{1b}]", "\u{7}", "\u{1b}[2J"] {
                assert!(!words.contains(hostile), "{words:?}");
            }
        }
    }
}
