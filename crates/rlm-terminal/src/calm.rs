//! Collapses repeated events into a count.
//!
//! Printed log lines can't change. So the log shows the first events of a series, and one row below the log counts the others. When a different event
//! comes, this row becomes a line of the log.

use std::collections::VecDeque;

use agent_duplex::{Event, ToolOutcome};
use loop_runner::News;
use loop_state::Notice;
use rlm_text::escape::plain;

use super::rows::cut;
use crate::style::{DIM, styled};

/// The number of consecutive uses of one tool that the log shows.
const TOOLS: u64 = 3;
/// The most hidden tool uses whose ids are stored until their results come.
const MOST_OPEN: usize = 64;
/// The most columns of the last event of a series in its count.
const MAX_LAST: usize = 160;

/// The collapser of repeated events: it stores the last event and how often it came.
#[derive(Debug, Default)]
pub(crate) struct Calm {
    streak: Option<Streak>,
    /// Hidden tool uses: their ids, and the lines that would have announced them.
    open: VecDeque<(String, String)>,
    /// Whether anything was printed.
    begun: bool,
}

#[derive(Debug)]
struct Streak {
    kind: Kind,
    /// The number of events.
    seen: u64,
    /// The number of hidden events.
    hidden: u64,
    /// The last event.
    last: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Tool(String),
    Retry,
    Line(String),
    Blank,
}

impl Kind {
    /// Returns how many consecutive events of this kind the log shows.
    fn shown(&self) -> u64 {
        match self {
            Self::Tool(_) => TOOLS,
            _ => 1,
        }
    }
}

impl Calm {
    /// Takes a run event with its lines, and returns the text to print now.
    pub(crate) fn take(&mut self, news: &News, text: String) -> String {
        match news {
            News::Agent(Event::ToolStarted { id, name, summary }) => {
                let out = self.again(Kind::Tool(name.clone()), summary, text);
                if let Hidden::Yes(text) = out {
                    if self.open.len() >= MOST_OPEN {
                        self.open.pop_front();
                    }
                    self.open.push_back((id.clone(), text));
                    return String::new();
                }
                out.shown()
            }
            News::Agent(Event::ToolFinished { id, outcome, .. }) => {
                let at = self.open.iter().position(|(open, _)| open == id);
                match (at.and_then(|at| self.open.remove(at)), outcome) {
                    (None, _) => text,
                    (Some(_), ToolOutcome::Done) => String::new(),
                    (Some((_, begun)), _) => {
                        if let Some(streak) = &mut self.streak {
                            streak.hidden = streak.hidden.saturating_sub(1);
                        }
                        begun + &text
                    }
                }
            }
            News::Agent(Event::Retrying { error, .. }) => {
                self.again(Kind::Retry, error, text).shown()
            }
            News::Output { line, .. } => {
                let kind = match line.bytes.trim_ascii().is_empty() {
                    true => Kind::Blank,
                    false => Kind::Line(text.clone()),
                };
                self.again(kind, "", text).shown()
            }
            _ if text.is_empty() => text,
            News::Run(Notice::AttemptStarted { .. }) if self.begun => self.settle() + "\n" + &text,
            _ => self.settle() + &text,
        }
    }

    /// Ends the series, and returns the line that counts its hidden events.
    pub(crate) fn settle(&mut self) -> String {
        self.begun = true;
        let told = self.counted(usize::MAX);
        self.streak = None;
        told.map_or_else(String::new, |told| styled(DIM, told) + "\n")
    }

    /// Returns a row of at most `width` columns with the number of hidden events; `None` if there are none.
    pub(crate) fn counted(&self, width: usize) -> Option<String> {
        let streak = self.streak.as_ref().filter(|streak| streak.hidden > 0)?;
        let last = &streak.last;
        let times = match streak.hidden {
            1 => "once more".to_owned(),
            n => format!("{n} more times"),
        };
        let text = match &streak.kind {
            Kind::Tool(name) => format!("  … {} {times}, last: {last}", plain(name)),
            Kind::Retry => format!("  … {times}, last: {last}"),
            Kind::Line(_) => format!("  … the same line {times}"),
            Kind::Blank => return None,
        };
        Some(cut(&text, width))
    }

    fn again(&mut self, kind: Kind, last: &str, text: String) -> Hidden {
        let is_same = self.streak.as_ref().is_some_and(|it| it.kind == kind);
        let before = if is_same {
            String::new()
        } else {
            self.settle()
        };
        let streak = self.streak.get_or_insert_with(|| Streak {
            kind,
            seen: 0,
            hidden: 0,
            last: String::new(),
        });
        streak.seen += 1;
        if streak.seen <= streak.kind.shown() {
            return Hidden::No(before + &text);
        }
        streak.hidden += 1;
        streak.last = cut(&plain(last), MAX_LAST);
        Hidden::Yes(text)
    }
}

/// Whether an event is hidden, and its text.
enum Hidden {
    Yes(String),
    No(String),
}

impl Hidden {
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
    struct Log {
        calm: Calm,
        text: String,
    }

    impl Log {
        fn news(&mut self, news: &News, text: &str) {
            self.text += &self.calm.take(news, format!("{text}\n"));
        }

        fn tool(&mut self, id: usize, name: &str, outcome: ToolOutcome) {
            let (id, summary) = (id.to_string(), format!("file {id}"));
            let begun = Event::ToolStarted {
                id: id.clone(),
                name: name.into(),
                summary: summary.clone(),
            };
            self.news(&News::Agent(begun), &format!("● {name}: {summary}"));
            let text = String::new();
            let done = Event::ToolFinished { id, outcome, text };
            self.news(&News::Agent(done), &format!("  ⎿ {outcome:?}"));
        }

        fn line(&mut self, text: &str) {
            let line = Line {
                bytes: text.to_owned().into(),
                omitted: 0,
            };
            let stream = Stream::Stdout;
            self.news(&News::Output { stream, line }, &format!("│ {text}"));
        }

        fn end(mut self) -> String {
            self.text += &self.calm.settle();
            anstream::adapter::strip_str(&self.text).to_string()
        }
    }

    #[test]
    fn one_tool_many_times_is_a_few_lines_and_a_number() {
        let mut log = Log::default();
        for id in 0..12 {
            let outcome = match id {
                8 => ToolOutcome::Failed,
                _ => ToolOutcome::Done,
            };
            log.tool(id, "Read", outcome);
        }
        let below = log.calm.counted(30);
        log.tool(12, "Edit", ToolOutcome::Done);
        insta::assert_snapshot!(format!("{}---\n{}", log.end(), below.unwrap()), @r"
        ● Read: file 0
          ⎿ Done
        ● Read: file 1
          ⎿ Done
        ● Read: file 2
          ⎿ Done
        ● Read: file 8
          ⎿ Failed
          … Read 8 more times, last: file 11
        ● Edit: file 12
          ⎿ Done
        ---
          … Read 8 more times, last: …
        ");
    }

    #[test]
    fn the_same_line_empty_lines_and_tries_are_counted() {
        let mut log = Log::default();
        for text in ["one", "two", "two", "two", "", "", "", "one"] {
            log.line(text);
        }
        for attempt in 1..5 {
            let retry = Event::Retrying {
                attempt,
                of: 10,
                delay: std::time::Duration::ZERO,
                status: Some(529),
                error: format!("overloaded {attempt}"),
            };
            log.news(&News::Agent(retry), &format!("try {attempt}"));
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
        fn nothing_is_left_out_unsaid(kinds in proptest::collection::vec(0usize..4, 0..40)) {
            let mut log = Log::default();
            for (id, kind) in kinds.iter().enumerate() {
                match kind {
                    0 => log.tool(id, "Read", ToolOutcome::Done),
                    1 => log.tool(id, "Edit", ToolOutcome::Denied),
                    2 => log.line("same"),
                    _ => log.news(&News::Warning("careful".into()), "warning"),
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
