//! The status and the view of a run for clients: the status, the current step as one word, the view as one line, and the stream of events.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use agent_subprocess::ProcessId;
use loop_state::{IterationStep, Timestamp};
use rlm_store::deadline::sleep_until;
use rlm_store::{RunId, RunState};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::View;
use crate::control::peer::{Peer, RunEndWatch};
use crate::control::protocol::{self, Activity, AttachMessage, MAX_LINE, Response, Status};
use crate::recent_events::RecentEvents;
use crate::run_event::RunEvent;

/// The most tools and permission requests in a status, and the most characters of each.
const NAMED: usize = 16;
const SHORT: usize = 200;

/// Returns the status of a run; `age` is the time since the last pass of its loop.
pub(super) fn build_status(run: &RunId, process: ProcessId, view: &View, age: Duration) -> Status {
    let (head, agent) = (&view.head, &view.agent);
    let short = |text: &String| text.chars().take(SHORT).collect();
    Status {
        run: run.clone(),
        state: match head.awaits_person() {
            true => RunState::Paused,
            false => RunState::Running,
        },
        process,
        phase: short(&head.phase_rules().name),
        phase_number: head.phase + 1,
        phases: u32::try_from(head.rules.phases.len()).unwrap_or(u32::MAX),
        review: match head.step {
            IterationStep::Review { point: of, .. } => Some(of.to_string()),
            _ => None,
        },
        iteration: head.iteration,
        attempt: head.attempt,
        iterations_complete: head.iterations_complete(),
        pausing: head.pausing,
        stopping: head.stopping.is_some(),
        steers_waiting: head.unseen_steers().count(),
        attended: head.attended,
        session: head.session.as_ref().map(short),
        last_tick_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
        activity: Activity::of(head),
        shutdown: view.shutdown,
        agent_alive: agent.alive,
        awaited_tasks: agent.awaited_tasks,
        tools: agent.tools.iter().take(NAMED).map(short).collect(),
        permission_requests: agent
            .permission_requests
            .iter()
            .take(NAMED)
            .map(|ask| short(&format!("{}: {}", ask.tool, ask.summary)))
            .collect(),
    }
}

/// The most characters of a text in a view whose line is too long; each further value is for a line that is still too long. With the last value every
/// line fits: a head has at most a few hundred texts, and [`MAX_LISTED`] bounds those of the agent.
const SHORTENED: [usize; 4] = [4096, 1024, 256, 64];
/// The most tools and permission requests in a view whose line is too long.
const MAX_LISTED: usize = 64;
/// The longest id that is not shortened: an answer needs the whole id.
const LONGEST_ID: usize = 256;

/// Returns the line of a view. If it is too long, removes the middle of its texts, and of the longest texts first.
pub(super) fn line(view: &View) -> Vec<u8> {
    let mut message = AttachMessage::View(Box::new(view.clone()));
    let mut line = protocol::line(&message);
    if line.len() < MAX_LINE {
        return line;
    }
    if let AttachMessage::View(view) = &mut message {
        view.agent.tools.truncate(MAX_LISTED);
        view.agent.permission_requests.truncate(MAX_LISTED);
    }
    let mut value = serde_json::to_value(&message).expect("a view serializes");
    for most in SHORTENED {
        shorten(&mut value, most);
        line = protocol::line(&value);
        if line.len() < MAX_LINE {
            break;
        }
    }
    line
}

fn shorten(value: &mut Value, most: usize) {
    match value {
        Value::String(text) => shorten_text(text, most),
        Value::Array(all) => all.iter_mut().for_each(|it| shorten(it, most)),
        Value::Object(all) => {
            for (key, value) in all.iter_mut() {
                let is_id = key == "id" && value.as_str().is_some_and(|id| id.len() <= LONGEST_ID);
                if !is_id {
                    shorten(value, most);
                }
            }
        }
        _ => {}
    }
}

/// Removes the middle of a text: the end of a command's output and the beginning of a person's text are the most useful parts.
fn shorten_text(text: &mut String, most: usize) {
    let count = text.chars().count();
    if count <= most {
        return;
    }
    let half = (most - 1) / 2;
    let begin = text.chars().take(half);
    let end = text.chars().skip(count - half);
    *text = begin.chain(['…']).chain(end).collect();
}

/// The shortest interval between two views.
const VIEW_INTERVAL: Duration = Duration::from_millis(100);

/// Shows the run to a peer until the run ends. A slow peer misses events and gets their number; a peer that reads nothing any more is dropped.
pub(super) async fn show(
    mut view: watch::Receiver<Arc<View>>,
    mut over: RunEndWatch,
    recent: &RecentEvents,
    peer: &mut Peer<'_>,
) -> io::Result<()> {
    let mut more = recent.subscribe();
    let mut viewed = Instant::now();
    send_view(&mut view, peer).await?;
    let (mut batch, mut next) = recent.snapshot();
    loop {
        // Read the end first: then the events before the end are already stored.
        let ended = over.borrow_and_update().clone();
        more.borrow_and_update();
        loop {
            for (at, event) in batch {
                send_event(at, event, peer).await?;
            }
            batch = recent.since(&mut next);
            if batch.is_empty() {
                break;
            }
        }
        let is_due = viewed.elapsed() >= VIEW_INTERVAL || ended.is_some();
        if is_due && view.has_changed().unwrap_or(true) {
            send_view(&mut view, peer).await?;
            viewed = Instant::now();
        }
        if let Some(ended) = ended {
            return peer.send(&Response::RunEnded(ended)).await;
        }
        let due = viewed + VIEW_INTERVAL;
        tokio::select! {
            _ = more.changed() => {}
            changed = over.changed() => if changed.is_err() {
                return Ok(());
            },
            // The sender of the view lives as long as the run.
            _ = async { sleep_until(due).await; view.changed().await } => view.mark_changed(),
        }
    }
}

async fn send_view(view: &mut watch::Receiver<Arc<View>>, peer: &mut Peer<'_>) -> io::Result<()> {
    let now = Arc::clone(&view.borrow_and_update());
    peer.send_line(&line(&now)).await
}

async fn send_event(at: Timestamp, event: RunEvent, peer: &mut Peer<'_>) -> io::Result<()> {
    let event = Box::new(event);
    let mut line = protocol::line(&AttachMessage::Event { at, event });
    if line.len() >= MAX_LINE {
        let event = Box::new(RunEvent::EventsMissed(1));
        line = protocol::line(&AttachMessage::Event { at, event });
    }
    peer.send_line(&line).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_duplex::PermissionRequest;
    use loop_state::{
        Feedback, FinishedPhase, Head, IterationFailure, LoopCommand, MAX_ERRORS, MAX_PHASES,
        MAX_STEER_BYTES, MAX_STEERS, MAX_TEXT, PhaseRules, Rules, Steer, Timestamp,
    };
    use proptest::prelude::*;

    use crate::AgentView;

    /// The largest possible view of a run whose texts consist of `letter`.
    fn largest(letter: char, tools: usize) -> View {
        let text = |bytes: usize| String::from(letter).repeat(bytes / letter.len_utf8());
        let phases = (0..MAX_PHASES).map(|n| PhaseRules {
            name: format!("{n}"),
            has_check: true,
            ..PhaseRules::default()
        });
        let rules = Rules {
            phases: phases.collect(),
            ..Rules::default()
        };
        let mut head = Head::new(rules).unwrap();
        let at = Timestamp::from_millis(7);
        let error = |iteration| IterationFailure {
            iteration,
            at,
            what: text(MAX_TEXT),
        };
        let errors = || (1..=MAX_ERRORS as u32).map(error).collect::<Vec<_>>();
        head.steers = (1..=MAX_STEERS as u32)
            .map(|id| Steer {
                id,
                at,
                text: text(MAX_STEER_BYTES / MAX_STEERS),
                state: Default::default(),
            })
            .collect();
        head.failure = Some(text(MAX_TEXT));
        head.last_message = Some(text(MAX_TEXT));
        head.feedback = Some(Feedback {
            source: LoopCommand::Check,
            text: text(MAX_TEXT),
        });
        head.errors = errors();
        let finished = |n: usize| FinishedPhase {
            name: n.to_string(),
            at,
            iterations: 3,
            evidence: None,
            result: Some(text(MAX_TEXT)),
            usage: Default::default(),
            errors: errors(),
        };
        head.finished_phases = (0..MAX_PHASES).map(finished).collect();
        let ask = |n: usize| PermissionRequest {
            id: format!("{n:0>200}"),
            tool: text(MAX_TEXT),
            summary: text(MAX_TEXT),
            reason: text(MAX_TEXT),
        };
        let agent = AgentView {
            tools: vec![text(MAX_TEXT); tools],
            permission_requests: (0..tools).map(ask).collect(),
            ..AgentView::default()
        };
        View {
            head,
            pause_reason: Some(text(MAX_TEXT)),
            agent,
            shutdown: None,
        }
    }

    fn read(line: &[u8]) -> View {
        assert!(line.len() < MAX_LINE, "{} bytes", line.len());
        match serde_json::from_slice(line).unwrap() {
            AttachMessage::View(view) => *view,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn largest_view_fits_one_line() {
        for letter in ['…', '\u{1}'] {
            for tools in [0, 100] {
                let whole = largest(letter, tools);
                let shown = read(&line(&whole));
                assert_eq!(shown.head.rules, whole.head.rules);
                let ids = |view: &View| view.head.steers.iter().map(|it| it.id).collect::<Vec<_>>();
                assert_eq!(ids(&shown), ids(&whole));
                assert_eq!(shown.head.finished_phases.len(), MAX_PHASES);
                let ask = shown.agent.permission_requests.first().map(|it| &it.id);
                assert_eq!(
                    ask,
                    whole.agent.permission_requests.first().map(|it| &it.id)
                );
            }
        }
    }

    #[test]
    fn text_that_fits_is_unchanged() {
        let mut small = largest('x', 3);
        small.head.finished_phases.clear();
        small.head.steers.truncate(5);
        assert_eq!(read(&line(&small)).head, small.head);
    }

    proptest! {
        #[test]
        fn a_shortened_text_keeps_both_ends(text in ".{0,300}", most in 3usize..200) {
            let mut short = text.clone();
            shorten_text(&mut short, most);
            prop_assert!(short.chars().count() <= most.max(2));
            prop_assert_eq!(short.chars().next(), text.chars().next());
            prop_assert_eq!(short.chars().last(), text.chars().last());
        }
    }
}
