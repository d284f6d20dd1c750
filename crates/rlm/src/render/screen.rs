//! The plain log of a run on the standard output: text, or one JSON object a line.

use std::io::{self, Write};
use std::time::SystemTime;

use jiff::tz::TimeZone;
use loop_runner::{News, Outcome, Project, RunHead, RunId};
use loop_state::Timestamp;
use serde_json::json;

use crate::exit::Code;
use crate::render::banner::{self, Beginning};
use crate::render::{BAD, BOLD, DIM, GOOD, event, go_on, json_line, styled};

/// Where a run is shown.
#[derive(Clone, Debug)]
pub(crate) struct Screen {
    json: bool,
    zone: TimeZone,
}

impl Screen {
    pub(crate) fn new(json: bool) -> Self {
        Self {
            json,
            zone: TimeZone::system(),
        }
    }

    /// Shows what is about to happen. A standard output that is gone is no reason not to run.
    pub(crate) fn begin(&self, beginning: &Beginning, project: &Project, head: &RunHead) {
        let text = if self.json {
            let mut value = banner::json(beginning, project, head);
            value["at"] = now().into();
            json_line(&value)
        } else {
            let lines = banner::lines(beginning, project, head);
            lines
                .iter()
                .map(|line| styled(DIM, line))
                .collect::<Vec<_>>()
                .join("\n")
        };
        let _gone = self.print(&text);
    }

    /// Shows one piece of news.
    pub(crate) fn news(&self, at: Timestamp, news: &News) -> io::Result<()> {
        let text = if self.json {
            event::json(at, news).map_or(String::new(), |value| json_line(&value))
        } else {
            event::text(news, &self.zone)
        };
        if text.is_empty() {
            Ok(())
        } else {
            self.print(&text)
        }
    }

    /// Shows how the run ended: the reason, and the proof that nothing was left alive.
    pub(crate) fn end(&self, run: &RunId, outcome: &Outcome) {
        let left = outcome.survivors.len();
        let of = left + outcome.ended.len();
        let _gone = if self.json {
            self.print(&json_line(&json!({
                "at": now(),
                "event": "run_ended",
                "run": run,
                "reason": outcome.reason.to_string(),
                "exit_code": Code::of(&outcome.reason) as u8,
                "left": left,
                "of": of,
                "proven": outcome.proven,
                "survivors": event::processes_json(&outcome.survivors),
            })))
        } else {
            let style = match Code::of(&outcome.reason) {
                Code::Done => GOOD,
                Code::Stopped => BOLD,
                _ => BAD,
            };
            let left = match of {
                0 => "nothing left running".to_owned(),
                of => format!("{left} of {of} left"),
            };
            let mut text = format!("{}; {left}", styled(style, &outcome.reason));
            if !outcome.proven {
                text.push_str(", as far as could be seen");
            }
            if let Some(again) = go_on(run, &outcome.reason) {
                text.push_str(&format!("; go on with: {again}"));
            }
            self.print(&text)
        };
    }

    fn print(&self, text: &str) -> io::Result<()> {
        if self.json {
            writeln!(io::stdout(), "{text}")
        } else {
            writeln!(anstream::stdout(), "{text}")
        }
    }
}

fn now() -> String {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    event::utc(Timestamp(since.as_millis() as u64))
}
