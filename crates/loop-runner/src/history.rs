//! Rebuilds the events of a run from its journal and its transcripts, for a viewer that attaches late. `recent_events` stores only the last events.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use agent_duplex::{Event, Line, Stream, ToolOutcome};
use loop_state::{LoopCommand, RunUpdate, Timestamp};
use rlm_store::timeline::AttemptSpan;
use rlm_store::{AttemptOutcome, Project, Record, Records, RunId, Timeline, transcripts};

use crate::run_event::RunEvent;

/// The most records of the agent that are rebuilt.
const MAX_RECORDS: usize = 300;
/// The longest time between the start of a phase or an attempt in the journal and the run's own event about it.
const MAX_REPORT_DELAY: Duration = Duration::from_secs(5);
/// The most attempts that are rebuilt.
const MAX_ATTEMPTS: usize = 100;

/// A rebuilt event and its time.
type TimedEvent = (Timestamp, RunEvent);

/// Returns the events of a run before `until`, oldest first: the beginning and the end of each of its last 100 attempts, and the last 300 records of
/// its agent.
///
/// Leaves out files that can't be read, so that a damaged transcript does not hide a live run.
#[must_use]
pub fn events_before(
    project: &Project,
    run: &RunId,
    until: Timestamp,
) -> Vec<(Timestamp, RunEvent)> {
    let Ok(timeline) = project.timeline(run) else {
        return Vec::new();
    };
    let mut attempts: Vec<&AttemptSpan> = timeline.attempts.iter().collect();
    attempts.retain(|attempt| attempt.began < until);
    let skipped = attempts.len().saturating_sub(MAX_ATTEMPTS);
    let files = transcripts(&project.run_dir(run)).unwrap_or_default();
    let mut agent_events = agent_events(&files, &attempts, until);
    let mut events = Vec::new();
    if let (1.., Some(first)) = (skipped, attempts.first()) {
        let text = format!("{skipped} earlier attempts are not shown: rlm checkpoints list");
        events.push((
            first.began,
            RunEvent::Agent(Event::ContextReset { reason: text }),
        ));
    }
    let mut phase = None;
    for attempt in attempts.iter().skip(skipped) {
        if timeline.head.settings.phases.len() > 1 && phase != Some(attempt.phase) {
            phase = Some(attempt.phase);
            events.extend(begun(&timeline, attempt));
        }
        events.push((attempt.began, RunEvent::Update(started(&timeline, attempt))));
        let key = (attempt.iteration, attempt.attempt);
        while agent_events.front().is_some_and(|(of, _)| *of == key) {
            events.extend(agent_events.pop_front().map(|(_, event)| event));
        }
        events.extend(ended(attempt, until));
    }
    // The run itself reports an attempt that has just begun.
    while events.last().is_some_and(|last| is_beginning(last, until)) {
        events.pop();
    }
    events
}

fn is_beginning((at, event): &TimedEvent, until: Timestamp) -> bool {
    let begins = matches!(
        event,
        RunEvent::Phase { .. } | RunEvent::Update(RunUpdate::AttemptStarted { .. })
    );
    begins && until.since(*at) < MAX_REPORT_DELAY
}

fn begun(timeline: &Timeline, attempt: &AttemptSpan) -> Option<TimedEvent> {
    let phases = &timeline.head.settings.phases;
    let phase = phases.get(attempt.phase as usize)?;
    let event = RunEvent::Phase {
        name: phase.name.clone(),
        number: attempt.phase + 1,
        count: u32::try_from(phases.len()).ok()?,
    };
    Some((attempt.began, event))
}

fn started(timeline: &Timeline, attempt: &AttemptSpan) -> RunUpdate {
    let is_first =
        |it: &&AttemptSpan| (it.phase, it.iteration) == (attempt.phase, attempt.iteration);
    let first = timeline
        .attempts
        .iter()
        .filter(|it| !it.discarded || attempt.discarded);
    let first = first.into_iter().find(is_first);
    RunUpdate::AttemptStarted {
        iteration: attempt.iteration,
        attempt: attempt.attempt,
        is_retry: first.is_some_and(|first| first.attempt != attempt.attempt),
    }
}

/// Returns the ends of the required checks, the check and the attempt that are before `until`.
fn ended(attempt: &AttemptSpan, until: Timestamp) -> Vec<TimedEvent> {
    let commands = attempt
        .commands
        .iter()
        .filter(|command| command.ended < until);
    let mut events: Vec<TimedEvent> = commands
        .map(|command| {
            let event = RunEvent::CommandEnded {
                command: command.command,
                result: command.result.clone(),
                took: command.ended.since(command.began),
            };
            (command.ended, event)
        })
        .collect();
    let Some(at) = attempt.ended.filter(|at| *at < until) else {
        return events;
    };
    let failure = match &attempt.outcome {
        AttemptOutcome::Complete => None,
        AttemptOutcome::Failed(why) => Some(why.clone()),
        AttemptOutcome::Unfinished(why) => {
            let why = why.map_or_else(|| "unknown cause".to_owned(), |why| why.to_string());
            let text = format!("attempt {} did not finish: {why}", attempt.attempt);
            events.push((at, RunEvent::Warning(text)));
            return events;
        }
        _ => return events,
    };
    let iteration = attempt.iteration;
    let (leftovers, usage) = (Default::default(), attempt.usage);
    let update = RunUpdate::IterationEnded {
        iteration,
        failure,
        leftovers,
        usage,
        took: at.since(attempt.began),
        check: { attempt.commands.iter().rev() }
            .find(|it| it.command == LoopCommand::Check)
            .and_then(|check| check.result.outcome()),
    };
    events.push((at, RunEvent::Update(update)));
    events
}

/// Returns the last events of the agent, each with its iteration and attempt.
fn agent_events(
    files: &[(u32, u32, PathBuf)],
    attempts: &[&AttemptSpan],
    until: Timestamp,
) -> VecDeque<((u32, u32), TimedEvent)> {
    let mut all = VecDeque::new();
    for attempt in attempts.iter().rev() {
        let key = (attempt.iteration, attempt.attempt);
        let room = MAX_RECORDS - all.len();
        let file = files
            .iter()
            .find(|(iteration, attempt, _)| (*iteration, *attempt) == key);
        let Some((.., path)) = file.filter(|_| room > 0) else {
            continue;
        };
        let records = Records::open(path).map(|records| last(records, until, room));
        let (left_out, records) = records.unwrap_or_default();
        for event in events_of(records).into_iter().rev() {
            all.push_front((key, event));
        }
        if left_out > 0 {
            all.push_front((key, (attempt.began, RunEvent::EventsMissed(left_out))));
            break;
        }
    }
    all
}

/// Returns the last records before `until` that a viewer shows, at most `most`, and the number of earlier such records.
fn last(
    records: impl Iterator<Item = io::Result<Record>>,
    until: Timestamp,
    most: usize,
) -> (u64, VecDeque<Record>) {
    let (mut left_out, mut kept) = (0, VecDeque::new());
    for record in records.map_while(Result::ok) {
        if record.at >= until {
            break;
        }
        if matches!(record.kind.as_str(), "raw" | "prompt" | "end" | "ask") {
            continue;
        }
        // A message repeats its streamed text.
        if record.kind == "message" && kept.back().is_some_and(is_streamed) {
            kept.pop_back();
        }
        kept.push_back(record);
        if kept.len() > most {
            kept.pop_front();
            left_out += 1;
        }
    }
    // The live events can continue a streamed text, so leave out its beginning.
    if kept.back().is_some_and(is_streamed) {
        kept.pop_back();
    }
    (left_out, kept)
}

fn is_streamed(record: &Record) -> bool {
    record.kind == "text"
}

/// Converts records back to events.
fn events_of(records: VecDeque<Record>) -> Vec<TimedEvent> {
    let mut begun = VecDeque::new();
    let mut number = 0;
    let events = records.into_iter().filter_map(|record| {
        let text = record.text;
        let line = |stream, text: String, omitted| {
            let bytes = text.into_bytes().into();
            RunEvent::Output {
                stream,
                line: Line { bytes, omitted },
            }
        };
        let event = match record.kind.as_str() {
            "stdout" => line(Stream::Stdout, text, record.omitted),
            "stderr" => line(Stream::Stderr, text, record.omitted),
            "message" => RunEvent::Agent(Event::Message {
                text,
                partial: false,
            }),
            "text" => RunEvent::Agent(Event::Message {
                text,
                partial: true,
            }),
            "tool" => {
                let (name, summary) = text.split_once(": ").unwrap_or((&text, ""));
                number += 1;
                let id = number.to_string();
                begun.push_back(id.clone());
                let (name, summary) = (name.to_owned(), summary.to_owned());
                RunEvent::Agent(Event::ToolStarted { id, name, summary })
            }
            "result" => {
                let (outcome, text) = text.split_once(": ").unwrap_or((&text, ""));
                let outcome = ToolOutcome::from_name(outcome).unwrap_or(ToolOutcome::Failed);
                let (id, text) = (begun.pop_front().unwrap_or_default(), text.to_owned());
                RunEvent::Agent(Event::ToolFinished { id, outcome, text })
            }
            "steer" => RunEvent::Agent(Event::Message {
                text: format!("you: {text}"),
                partial: false,
            }),
            "note" => RunEvent::Warning(text),
            _ => return None,
        };
        Some((record.at, event))
    });
    events.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(at: u64, kind: &str, text: &str) -> Record {
        Record {
            at: Timestamp::from_millis(at),
            kind: kind.into(),
            text: text.into(),
            omitted: 0,
        }
    }

    #[test]
    fn records_convert_back_to_their_events() {
        let records = [
            record(1, "prompt", "do it"),
            record(2, "text", "I wo"),
            record(3, "message", "I work"),
            record(4, "raw", "{}"),
            record(5, "tool", "Read: a\u{1b}]0;b.rs"),
            record(6, "tool", "Bash: ls: x"),
            record(7, "result", "done: one"),
            record(8, "result", "failed: exit 1"),
            record(9, "stdout", "plain"),
            record(10, "note", "retry 1: overloaded"),
            record(11, "text", "and th"),
            record(12, "stdout", "later"),
        ];
        let (left_out, kept) = last(records.into_iter().map(Ok), Timestamp::from_millis(12), 99);
        assert_eq!(left_out, 0);
        let events = events_of(kept).into_iter().map(|(at, event)| {
            let json = serde_json::to_string(&event).unwrap();
            format!("{} {json}", at.as_millis())
        });
        insta::assert_snapshot!(events.collect::<Vec<_>>().join("\n"), @r#"
        3 {"agent":{"Message":{"text":"I work","partial":false}}}
        5 {"agent":{"ToolStarted":{"id":"1","name":"Read","summary":"a\u001b]0;b.rs"}}}
        6 {"agent":{"ToolStarted":{"id":"2","name":"Bash","summary":"ls: x"}}}
        7 {"agent":{"ToolFinished":{"id":"1","outcome":"Succeeded","text":"one"}}}
        8 {"agent":{"ToolFinished":{"id":"2","outcome":"Failed","text":"exit 1"}}}
        9 {"output":{"stream":"Stdout","line":{"bytes":"plain","omitted":0}}}
        10 {"warning":"retry 1: overloaded"}
        "#);
    }

    proptest! {
        /// The last records are kept, and the others are counted.
        #[test]
        fn last_records_are_kept_and_others_counted(count in 0u64..50, most in 1usize..20, until in 0u64..60) {
            let records = (0..count).map(|n| Ok(record(n, "stdout", &n.to_string())));
            let (left_out, kept) = last(records, Timestamp::from_millis(until), most);
            let there = count.min(until);
            prop_assert_eq!(left_out + kept.len() as u64, there);
            prop_assert!(kept.len() <= most);
            prop_assert_eq!(kept.back().map(|record| record.at.as_millis() + 1), (there > 0).then_some(there));
        }
    }
}
