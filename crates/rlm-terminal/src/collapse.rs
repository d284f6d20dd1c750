//! Collapses repeated events into a count.
//!
//! Printed log lines can't change. So the log shows the first events of a series, and one row below the log counts the others. When a different event
//! comes, this row becomes a line of the log.

use std::collections::VecDeque;

use agent_duplex::{Event, ToolOutcome};
use loop_runner::RunEvent;
use loop_state::RunUpdate;
use rlm_text::escape::plain;

use super::rows::cut;
use crate::style::{DIM, styled};

/// The number of consecutive uses of one tool that the log shows.
const TOOLS: u64 = 3;
/// The maximum number of hidden tool uses whose ids are stored until their results arrive.
const MOST_OPEN: usize = 64;
/// The maximum width, in columns, of the last event in the row that counts its series.
const MAX_LAST: usize = 160;

/// The collapser of repeated events: it stores the last event and how often it came.
#[derive(Debug, Default)]
pub(crate) struct RepeatCollapser {
    streak: Option<Repeats>,
    /// Hidden tool uses: their ids, and the lines that would have announced them.
    open: VecDeque<(String, String)>,
    /// Whether anything was printed.
    begun: bool,
}

#[derive(Debug)]
struct Repeats {
    kind: RepeatKind,
    /// The number of events.
    seen: u64,
    /// The number of hidden events.
    collapsed: u64,
    /// The last event.
    last: String,
}

#[derive(Debug, PartialEq, Eq)]
enum RepeatKind {
    Tool(String),
    Retry,
    Line(String),
    Blank,
}

impl RepeatKind {
    /// Returns how many consecutive events of this kind the log shows.
    fn shown(&self) -> u64 {
        match self {
            Self::Tool(_) => TOOLS,
            _ => 1,
        }
    }
}

impl RepeatCollapser {
    /// Takes a run event with its lines, and returns the text to print now.
    pub(crate) fn take(&mut self, event: &RunEvent, text: String) -> String {
        match event {
            RunEvent::Agent(Event::ToolStarted { id, name, summary }) => {
                let out = self.repeats(RepeatKind::Tool(name.clone()), summary, text);
                if let Collapsed::Yes(text) = out {
                    if self.open.len() >= MOST_OPEN {
                        self.open.pop_front();
                    }
                    self.open.push_back((id.clone(), text));
                    return String::new();
                }
                out.shown()
            }
            RunEvent::Agent(Event::ToolFinished { id, outcome, .. }) => {
                let at = self.open.iter().position(|(open, _)| open == id);
                match (at.and_then(|at| self.open.remove(at)), outcome) {
                    (None, _) => text,
                    (Some(_), ToolOutcome::Succeeded) => String::new(),
                    (Some((_, begun)), _) => {
                        if let Some(streak) = &mut self.streak {
                            streak.collapsed = streak.collapsed.saturating_sub(1);
                        }
                        begun + &text
                    }
                }
            }
            RunEvent::Agent(Event::Retrying { error, .. }) => {
                self.repeats(RepeatKind::Retry, error, text).shown()
            }
            RunEvent::Output { line, .. } => {
                let kind = match line.bytes.trim_ascii().is_empty() {
                    true => RepeatKind::Blank,
                    false => RepeatKind::Line(text.clone()),
                };
                self.repeats(kind, "", text).shown()
            }
            _ if text.is_empty() => text,
            RunEvent::Update(RunUpdate::AttemptStarted { .. }) if self.begun => {
                self.end_repeats() + "\n" + &text
            }
            _ => self.end_repeats() + &text,
        }
    }

    /// Ends the series, and returns the line that counts its hidden events.
    pub(crate) fn end_repeats(&mut self) -> String {
        self.begun = true;
        let line = self.repeat_count_line(usize::MAX);
        self.streak = None;
        line.map_or_else(String::new, |line| styled(DIM, line) + "\n")
    }

    /// Returns a row of at most `width` columns with the number of hidden events; `None` if no event is hidden, or only empty lines are.
    pub(crate) fn repeat_count_line(&self, width: usize) -> Option<String> {
        let streak = self.streak.as_ref().filter(|streak| streak.collapsed > 0)?;
        let last = &streak.last;
        let times = match streak.collapsed {
            1 => "once more".to_owned(),
            n => format!("{n} more times"),
        };
        let text = match &streak.kind {
            RepeatKind::Tool(name) => format!("  … {} {times}, last: {last}", plain(name)),
            RepeatKind::Retry => format!("  … {times}, last: {last}"),
            RepeatKind::Line(_) => format!("  … the same line {times}"),
            RepeatKind::Blank => return None,
        };
        Some(cut(&text, width))
    }

    fn repeats(&mut self, kind: RepeatKind, last: &str, text: String) -> Collapsed {
        let is_same = self.streak.as_ref().is_some_and(|it| it.kind == kind);
        let before = if is_same {
            String::new()
        } else {
            self.end_repeats()
        };
        let streak = self.streak.get_or_insert_with(|| Repeats {
            kind,
            seen: 0,
            collapsed: 0,
            last: String::new(),
        });
        streak.seen += 1;
        if streak.seen <= streak.kind.shown() {
            return Collapsed::No(before + &text);
        }
        streak.collapsed += 1;
        streak.last = cut(&plain(last), MAX_LAST);
        Collapsed::Yes(text)
    }
}

/// Whether an event is hidden, and its text.
enum Collapsed {
    Yes(String),
    No(String),
}

impl Collapsed {
    fn shown(self) -> String {
        match self {
            Self::Yes(_) => String::new(),
            Self::No(text) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_duplex::{Line, Stream};
    use proptest::prelude::*;

    /// A log and its collapser.
    #[derive(Default)]
    struct TestLog {
        collapser: RepeatCollapser,
        text: String,
    }

    impl TestLog {
        fn event(&mut self, event: &RunEvent, text: &str) {
            self.text += &self.collapser.take(event, format!("{text}\n"));
        }

        fn tool(&mut self, id: usize, name: &str, outcome: ToolOutcome) {
            let (id, summary) = (id.to_string(), format!("file {id}"));
            let begun = Event::ToolStarted {
                id: id.clone(),
                name: name.into(),
                summary: summary.clone(),
            };
            self.event(&RunEvent::Agent(begun), &format!("● {name}: {summary}"));
            let text = String::new();
            let done = Event::ToolFinished { id, outcome, text };
            self.event(&RunEvent::Agent(done), &format!("  ⎿ {outcome:?}"));
        }

        fn line(&mut self, text: &str) {
            let line = Line {
                bytes: text.to_owned().into(),
                omitted: 0,
            };
            let stream = Stream::Stdout;
            self.event(&RunEvent::Output { stream, line }, &format!("│ {text}"));
        }

        fn end(mut self) -> String {
            self.text += &self.collapser.end_repeats();
            anstream::adapter::strip_str(&self.text).to_string()
        }
    }

    #[test]
    fn repeated_tool_calls_collapse_into_a_count() {
        let mut log = TestLog::default();
        for id in 0..12 {
            let outcome = match id {
                8 => ToolOutcome::Failed,
                _ => ToolOutcome::Succeeded,
            };
            log.tool(id, "Read", outcome);
        }
        let below = log.collapser.repeat_count_line(30);
        log.tool(12, "Edit", ToolOutcome::Succeeded);
        insta::assert_snapshot!(format!("{}---\n{}", log.end(), below.unwrap()), @r"
        ● Read: file 0
          ⎿ Succeeded
        ● Read: file 1
          ⎿ Succeeded
        ● Read: file 2
          ⎿ Succeeded
        ● Read: file 8
          ⎿ Failed
          … Read 8 more times, last: file 11
        ● Edit: file 12
          ⎿ Succeeded
        ---
          … Read 8 more times, last: …
        ");
    }

    #[test]
    fn repeated_lines_and_retries_are_counted_and_empty_lines_are_hidden() {
        let mut log = TestLog::default();
        for text in ["one", "two", "two", "two", "", "", "", "one"] {
            log.line(text);
        }
        for attempt in 1..5 {
            let retry = Event::Retrying {
                attempt,
                max_attempts: 10,
                delay: std::time::Duration::ZERO,
                status: Some(529),
                error: format!("overloaded {attempt}"),
            };
            log.event(&RunEvent::Agent(retry), &format!("try {attempt}"));
        }
        insta::assert_snapshot!(log.end(), @r"
        │ one
        │ two
          … the same line 2 more times
        │ 
        │ one
        try 1
          … 3 more times, last: overloaded 4
        ");
    }

    proptest! {
        /// Events in any order are all printed or counted.
        #[test]
        fn every_omission_is_reported(kinds in proptest::collection::vec(0usize..4, 0..40)) {
            let mut log = TestLog::default();
            for (id, kind) in kinds.iter().enumerate() {
                match kind {
                    0 => log.tool(id, "Read", ToolOutcome::Succeeded),
                    1 => log.tool(id, "Edit", ToolOutcome::Denied),
                    2 => log.line("same"),
                    _ => log.event(&RunEvent::Warning("careful".into()), "warning"),
                }
            }
            let text = log.end();
            let counted: usize = text.lines().filter_map(|line| {
                let words = line.strip_prefix("  … ")?;
                let number = words.split(' ').find_map(|word| word.parse::<usize>().ok());
                if words.contains("once more") { Some(1) } else { number }
            }).sum();
            let printed = text.lines().filter(|line| line.starts_with(['●', '│', 'w'])).count();
            prop_assert_eq!(printed + counted, kinds.len(), "{}", text);
        }
    }
}
