//! The log of a run: text, or one JSON object per line.

use std::fmt;
use std::io::{self, Write};
use std::time::SystemTime;

use agent_duplex::{Event, ProcessName};
use anstream::{AutoStream, ColorChoice};
use jiff::tz::TimeZone;
use loop_runner::{RunEvent, RunOutcome};
use loop_state::{Evidence, RunUpdate, StopReason, Timestamp, UsageTotal};
use rlm_store::{Holder, Project, RunHead, RunId, Uncommitted};
use rlm_terminal::style::{BAD, BOLD, DIM, GOOD, styled};
use rlm_terminal::{LogOutput, fitted};
use rlm_text::escape::plain;
use rlm_text::money;
use serde_json::{Value, json};

use crate::exit::Code;
use crate::hint::program_command;
use crate::hint::resume_hint;
use crate::output;
use crate::render::RunWorktree;
use crate::render::banner::{self, Control, RunStart};
use crate::render::{Level, event, json_line};

/// The stop reason of a run whose process reported none.
pub(crate) const KILLED: &str = "its process was killed";

/// How to show a run.
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

    /// Sets whether the run is in the background, without a terminal.
    pub(crate) fn in_background(self, in_background: bool) -> Self {
        Self {
            in_background,
            ..self
        }
    }

    /// Sets how much is shown to people.
    pub(crate) fn with_level(self, level: Level) -> Self {
        Self { level, ..self }
    }

    /// Shows the settings of the run that begins. The run starts even if standard output is closed.
    pub(crate) fn begin(
        &self,
        beginning: &RunStart,
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
            let control = match person {
                true => Control::Keys,
                false if self.in_background => Control::Commands,
                false => Control::Signals,
            };
            let lines = banner::lines(beginning, project, head, control);
            lines
                .iter()
                .map(|line| styled(DIM, fitted(line, banner::TEXT_AT)))
                .collect::<Vec<_>>()
                .join("\n")
        };
        let _gone = self.print(&text);
    }

    /// Prints that a run of another process is shown.
    pub(crate) fn attached(&self, run: &RunId, holder: Option<&Holder>, person: bool) {
        let pid = holder.map(|holder| holder.process.pid);
        let text = match self.json {
            true => json_line(&json!({"at": now(), "event": "attached", "run": run, "pid": pid})),
            false => {
                let pid = pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
                let detach = match person {
                    true => "Ctrl-C: menu, then d: detach",
                    false => "Ctrl-C: detach",
                };
                styled(DIM, format!("attached to run {run}{pid}; {detach}"))
            }
        };
        let _gone = self.print(&text);
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Returns the log of a run on standard output.
    pub(crate) fn printed_log(&self) -> LogOutput {
        let has_colour = AutoStream::choice(&io::stdout()) != ColorChoice::Never;
        self.log(Box::new(output::bytes()), has_colour)
    }

    /// Returns the log of a run, in the format of this screen.
    pub(crate) fn log(&self, to: Box<dyn Write + Send>, has_colour: bool) -> LogOutput {
        let (text, answer) = (self.clone(), self.clone());
        LogOutput {
            to,
            has_colour,
            is_json: self.json,
            shows_everything: self.level == Level::Verbose,
            format_event: Box::new(move |at, event| text.event(at, event)),
            format_response: Box::new(move |event| answer.response_text(event)),
        }
    }

    /// Returns an event as whole lines, empty if there is nothing to show; `None` for the agent's own text, which is streamed.
    pub(crate) fn event(&self, at: Timestamp, event: &RunEvent) -> Option<String> {
        let flows = matches!(
            event,
            RunEvent::Agent(Event::TextDelta(_) | Event::Message { .. })
        );
        let text = match self.json {
            true => event::json(at, event).map_or(String::new(), |value| json_line(&value)),
            false => match self.level.replacement_line(event) {
                Some(instead) => instead,
                None if flows => return None,
                None => event::text(event, &self.zone),
            },
        };
        Some(ended(text))
    }

    /// Returns the response that a person must see after a command, even if the log goes elsewhere.
    pub(crate) fn response_text(&self, event: &RunEvent) -> Option<String> {
        match event {
            RunEvent::SteerNextTurn(_) | RunEvent::RequestRejected(_) | RunEvent::Paused { .. } => {
            }
            RunEvent::Update(
                RunUpdate::SteerAdvanced { .. }
                | RunUpdate::Interrupted
                | RunUpdate::Pausing
                | RunUpdate::Continued
                | RunUpdate::Reviewed(_)
                | RunUpdate::RuleChanged(_)
                | RunUpdate::PhaseRuleChanged { .. }
                | RunUpdate::Redoing(_)
                | RunUpdate::FreshSession
                | RunUpdate::StoppingAfterIteration,
            ) => {}
            RunEvent::Stopping { .. } | RunEvent::StopAwaits { .. } => {}
            _ => return None,
        }
        Some(ended(event::text(event, &self.zone)))
    }

    /// Prints how the run ended: the reason, and the proof that no process is alive.
    ///
    /// # Errors
    ///
    /// Returns an error if the output has no reader.
    pub(crate) fn end(
        &self,
        run: &RunId,
        outcome: &RunOutcome,
        exit_code: i32,
        own: Option<&RunWorktree>,
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

    /// Returns how the run ended, as text.
    pub(crate) fn end_words(&self, run: &RunId, outcome: &RunOutcome) -> String {
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

/// The end of a run as text.
#[derive(Debug)]
pub(crate) struct EndWords<'a> {
    pub(crate) run: &'a RunId,
    /// The stop reason; `None` if the process died.
    pub(crate) reason: Option<&'a StopReason>,
    /// The number of processes that were ended.
    pub(crate) ended: usize,
    /// The number of survivors.
    pub(crate) left: usize,
    /// Whether the number of survivors is proven; otherwise it only counts those that were found.
    pub(crate) proven: bool,
    /// The reported usage of the run.
    pub(crate) usage: UsageTotal,
    /// The changes that should have been committed but are not.
    pub(crate) uncommitted: Option<&'a Uncommitted>,
}

impl<'a> EndWords<'a> {
    fn of(run: &'a RunId, outcome: &'a RunOutcome) -> Self {
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

    /// Returns the end of a run as an event.
    fn json(&self, exit_code: i32, survivors: &[ProcessName]) -> Value {
        let mut value = json!({
            "at": now(),
            "event": "run_ended",
            "run": self.run,
            "reason": self.reason.map_or_else(|| KILLED.to_owned(), ToString::to_string),
            "evidence": self.reason.and_then(evidence),
            "exit_code": exit_code,
            "usage": money::usage_json(self.usage),
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

/// Returns the event for the end of a run of another process.
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
        if let Some(used) = money::usage_text(self.usage) {
            write!(f, "; {used}")?;
        }
        if let Some(uncommitted) = self.uncommitted {
            write!(f, "; {}", rlm_report::uncommitted(uncommitted))?;
        }
        let again = match self.reason {
            Some(reason) => resume_hint(self.run, reason),
            None => Some(format!("{} resume {}", program_command(), self.run)),
        };
        match again {
            Some(again) => write!(f, "; to continue: {again}"),
            None => Ok(()),
        }
    }
}

/// Returns a text about how many processes are left `of` those that had to end, and whether this number is `proven`.
pub(crate) fn left(left: usize, of: usize, proven: bool) -> String {
    let seen = match proven {
        true => "",
        false => ", as far as rlm can see",
    };
    match left {
        0 => format!("all processes ended{seen}"),
        left => format!("{left} of {of} processes left{seen}"),
    }
}

fn ended(mut text: String) -> String {
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

pub(crate) fn now() -> String {
    rlm_text::time::utc(SystemTime::now().into())
}

/// Returns the evidence that the work is finished.
fn evidence(reason: &StopReason) -> Option<&'static str> {
    match reason {
        StopReason::Done(Evidence::Check) | StopReason::AlreadyDone => Some("check"),
        StopReason::Done(Evidence::Promise) => Some("promise"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x101e_end_line_counts_only_processes_that_are_left() {
        let shown = [
            (0, 0, true),
            (0, 4, true),
            (1, 4, true),
            (0, 4, false),
            (1, 4, false),
        ]
        .map(|(survivors, of, proven)| left(survivors, of, proven));
        insta::assert_snapshot!(shown.join("\n"), @"
        all processes ended
        all processes ended
        1 of 4 processes left
        all processes ended, as far as rlm can see
        1 of 4 processes left, as far as rlm can see
        ");
    }

    #[test]
    fn x115a_end_line_is_harmless_for_any_agent_text() {
        let run = "r1".parse().unwrap();
        let hostile = || "exit status 1 (\u{1b}]0;mine\u{7}\u{1b}[2J)".to_owned();
        for reason in [
            StopReason::Failed(hostile()),
            StopReason::LastIterationFailed {
                iteration: 3,
                why: hostile(),
            },
        ] {
            let outcome = RunOutcome {
                reason,
                ended: Vec::new(),
                survivors: Vec::new(),
                proven: true,
                usage: UsageTotal::default(),
                uncommitted: None,
            };
            let words = Screen::new(false).end_words(&run, &outcome);
            let ours = anstream::adapter::strip_str(&words).to_string();
            assert!(ours.contains("mine"), "the text is shown: {ours}");
            for hostile in ["\u{1b}]", "\u{7}", "\u{1b}[2J"] {
                assert!(!words.contains(hostile), "{words:?}");
            }
        }
    }
}
