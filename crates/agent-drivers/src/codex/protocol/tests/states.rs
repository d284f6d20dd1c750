//! Tests of the state of a session and of its turns.

use super::*;
use crate::codex::protocol::framing::{BYTES, LINES};

fn unopened() -> Session {
    session(&SessionChoice::Fresh, Permissions::All)
}

#[test]
fn session_is_busy_only_with_written_messages() {
    let mut session = unopened();
    assert!(!session.has_output() && !session.is_settled() && session.thread().is_none());
    session.handle_line(b"noise");
    assert!(!session.has_output());
    say(&mut session, "before");
    session.interrupt(false);
    assert!(session.is_turn_expected() && !session.is_busy() && !session.is_interrupting());

    let mut session = opened();
    assert!(session.has_output() && session.is_settled() && !session.has_failed());
    assert_eq!(session.thread(), Some(THREAD));
    assert!(!session.is_busy());
    let (_, outcome) = say(&mut session, "work");
    assert!(session.is_busy() && !session.is_interrupting());
    session.interrupt(false);
    assert!(session.is_interrupting());
    ok(&mut session, &id(&outcome), json!({"turn": {"id": "a"}}));
    tell(&mut session, "turn/started", json!({"turn": {"id": "a"}}));
    assert!(session.is_busy() && session.is_interrupting());
    complete(&mut session, "a", "interrupted");
    assert!(!session.is_busy() && !session.is_interrupting());

    let mut session = unopened();
    session.initialize();
    hear(&mut session, &json!({"id": 1, "error": {"message": "no"}}));
    assert!(session.is_settled() && session.has_failed() && session.thread().is_none());
}

#[test]
fn queued_messages_are_limited() {
    let mut session = unopened();
    for _ in 0..WAITING {
        assert!(session.has_room());
        say(&mut session, "work");
    }
    assert!(!session.has_room());
}

#[test]
fn p25b_process_exit_is_classified_by_the_request() {
    let ended = |session: &mut Session| {
        let events = session.exited(ExitStatus::Code(1), "oops".to_owned());
        match events.last() {
            Some(Event::TurnCompleted(end)) => {
                assert_eq!(
                    (end.exit, &*end.output_tail),
                    (Some(ExitStatus::Code(1)), "oops")
                );
                Some(end.reason)
            }
            Some(Event::Exited(_)) => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ended(&mut opened()), None);
    let mut running = opened();
    begin(&mut running, "a");
    assert_eq!(ended(&mut running), Some(EndReason::Died));
    let mut interrupted = opened();
    begin(&mut interrupted, "a");
    interrupted.interrupt(false);
    assert_eq!(ended(&mut interrupted), Some(EndReason::Interrupted));
    let mut leaving = opened();
    begin(&mut leaving, "a");
    assert!(!leaving.is_leaving());
    leaving.note_ending();
    assert!(leaving.is_leaving());
    assert_eq!(ended(&mut leaving), Some(EndReason::Interrupted));

    // A message in no turn fails with the agent, unless the driver ends the agent.
    for (leaving, reason) in [(false, Some(EndReason::Died)), (true, None)] {
        let mut session = opened();
        say(&mut session, "work");
        if leaving {
            session.note_ending();
        }
        assert_eq!(ended(&mut session), reason);
    }
}

#[test]
fn p20a_p20b_turn_begins_once_under_its_own_id() {
    let started = |id: &str| json!({"turn": {"id": id}});
    let mut session = opened();
    begin(&mut session, "a");
    for id in ["a", ""] {
        let outcome = tell(&mut session, "turn/started", started(id));
        assert_eq!(outcome.events, [], "{id:?}");
    }
    let outcome = tell(&mut session, "turn/started", started("b"));
    assert_eq!(reasons(&outcome), [EndReason::ProtocolError]);
    assert!(
        matches!(outcome.events.last(), Some(Event::TurnStarted { inputs }) if inputs.is_empty())
    );

    // A turn of another client does not answer the driver's message.
    let mut session = opened();
    let (message, outcome) = say(&mut session, "work");
    ok(&mut session, &id(&outcome), started("a"));
    let outcome = tell(&mut session, "turn/started", started("x"));
    assert_eq!(outcome.events, [Event::TurnStarted { inputs: vec![] }]);
    complete(&mut session, "x", "completed");
    // If the agent doesn't report the beginning of a turn, the first item of the turn begins it.
    let item = json!({"turnId": "a", "item": {"type": "agentMessage", "id": "m"}});
    let outcome = tell(&mut session, "item/started", item);
    let inputs = vec![message];
    assert_eq!(outcome.events, [Event::TurnStarted { inputs }]);
}

#[test]
fn p20a_queued_message_is_written_after_interrupt() {
    for (status, at_once) in [("completed", true), ("interrupted", false)] {
        let mut session = opened();
        begin(&mut session, "a");
        let (_, outcome) = say(&mut session, "and this");
        refuse(&mut session, &id(&outcome));
        let turn = json!({"threadId": THREAD, "turn": {"id": "a", "status": status}});
        let line = json!({"method": "turn/completed", "params": turn}).to_string();
        let outcome = session.handle_line(line.as_bytes());
        assert_eq!(outcome.lines.is_empty(), !at_once, "{status}");
        assert_eq!(
            session.continue_after_interrupt().lines.is_empty(),
            at_once,
            "{status}"
        );
    }
}

#[test]
fn returned_message_is_not_written() {
    let mut session = unopened();
    let (first, _) = say(&mut session, "one");
    let (second, _) = say(&mut session, "two");
    session.take_back(first);
    let waiting: Vec<Uuid> = session.waiting.iter().map(|message| message.id).collect();
    assert_eq!(waiting, [second]);
    let mut session = opened();
    session.note_ending();
    assert!(say(&mut session, "work").1.lines.is_empty());
}

#[test]
fn p22_interrupt_without_a_turn_does_not_hit_a_later_one() {
    let starts = |mut session: Session, outcome: LineOutcome| {
        ok(&mut session, &id(&outcome), json!({"turn": {"id": "b"}}));
        tell(&mut session, "turn/started", json!({"turn": {"id": "b"}})).lines
    };
    let mut idle = opened();
    assert!(idle.interrupt(false).lines.is_empty());
    let (_, outcome) = say(&mut idle, "work");
    assert!(starts(idle, outcome).is_empty());

    // A message that waits for the end of an interrupted turn is not part of that turn.
    let mut session = opened();
    begin(&mut session, "a");
    let (_, outcome) = say(&mut session, "and this");
    refuse(&mut session, &id(&outcome));
    let turn = json!({"threadId": THREAD, "turn": {"id": "a", "status": "interrupted"}});
    let line = json!({"method": "turn/completed", "params": turn}).to_string();
    session.handle_line(line.as_bytes());
    session.interrupt(false);
    let outcome = session.continue_after_interrupt();
    assert!(starts(session, outcome).is_empty());
}

#[test]
fn p25b_p25c_text_is_reported_once_and_interrupted_text_as_received() {
    let item = |id: &str| json!({"turnId": "a", "item": {"type": "agentMessage", "id": id}});
    let delta = |id: &str, text: &str| json!({"turnId": "a", "itemId": id, "delta": text});
    let partial = |text: &str| Event::Message {
        text: text.to_owned(),
        partial: true,
    };
    let mut session = opened();
    begin(&mut session, "a");
    tell(&mut session, "item/started", item("m"));
    tell(&mut session, "item/agentMessage/delta", delta("m", "lost"));
    // The text with the same id begins again.
    let outcome = tell(&mut session, "item/started", item("m"));
    assert_eq!(outcome.events, []);
    tell(&mut session, "item/agentMessage/delta", delta("m", "one"));
    let outcome = tell(&mut session, "item/started", item("n"));
    assert_eq!(outcome.events, [partial("one")]);
    for method in [
        "item/reasoning/textDelta",
        "item/reasoning/summaryTextDelta",
    ] {
        let outcome = tell(&mut session, method, delta("r", "hm"));
        assert_eq!(outcome.events, [Event::ThinkingDelta("hm".to_owned())]);
    }
    let piece = "x".repeat(1 << 20);
    for _ in 0..5 {
        tell(&mut session, "item/agentMessage/delta", delta("n", &piece));
    }
    let outcome = complete(&mut session, "a", "completed");
    assert_eq!(outcome.events[0], partial(&piece.repeat(4)));
}

#[test]
fn p19b_message_without_id_is_matched_by_its_text() {
    let mut session = opened();
    begin(&mut session, "a");
    let messages = ["one", "two"].map(|text| {
        let (message, outcome) = say(&mut session, text);
        ok(&mut session, &id(&outcome), json!({"turnId": "a"}));
        message
    });
    for (text, expected) in [("two", Some(1)), ("other", None), ("one", Some(0))] {
        let content = json!([{"type": "text", "text": text}]);
        let item = json!({"type": "userMessage", "id": "u", "content": content});
        let params = json!({"turnId": "a", "item": item});
        let outcome = tell(&mut session, "item/started", params);
        let taken = expected.map(|n: usize| Event::Input {
            id: messages[n],
            state: InputState::InTurn,
        });
        assert_eq!(outcome.events, Vec::from_iter(taken), "{text}");
    }
}

#[test]
fn p21b_repeatedly_refused_interrupt_is_given_up() {
    let mut session = opened();
    begin(&mut session, "a");
    let mut outcome = session.interrupt(false);
    let item = || json!({"turnId": "a", "item": {"type": "agentMessage", "id": "m"}});
    for _ in 1..INTERRUPTS {
        let refused = refuse(&mut session, &id(&outcome));
        assert!(refused.events.is_empty() && refused.lines.is_empty());
        outcome = tell(&mut session, "item/started", item());
        assert_eq!(methods(&outcome), ["turn/interrupt"]);
    }
    let refused = refuse(&mut session, &id(&outcome));
    assert!(
        matches!(refused.events[..], [Event::Warning(_)]),
        "{refused:?}"
    );
    assert!(tell(&mut session, "item/started", item()).lines.is_empty());
}

#[test]
fn p16c_unanswered_message_belongs_to_its_turn() {
    let mut session = opened();
    begin(&mut session, "a");
    say(&mut session, "and this");
    let now = Instant::now();
    let due = session.next_answer_deadline(now).unwrap();
    session.restart_timeouts();
    let later = now + Duration::from_secs(3600);
    assert_eq!(
        session.expire_requests(due).events,
        [],
        "frozen time doesn't count"
    );
    assert_eq!(
        session.next_answer_deadline(later),
        Some(later + TIMEOUTS.other_requests)
    );
    let outcome = session.expire_requests(later + TIMEOUTS.other_requests);
    let [Event::Warning(warning)] = &outcome.events[..] else {
        panic!("{outcome:?}")
    };
    assert!(warning.contains("the message"), "{warning}");
    assert!(outcome.lines.is_empty(), "the agent may have taken it");

    // After the end of that turn, the message begins the next turn.
    let mut session = opened();
    begin(&mut session, "a");
    say(&mut session, "and this");
    let due = session.next_answer_deadline(now).unwrap();
    assert!(complete(&mut session, "a", "completed").lines.is_empty());
    assert_eq!(methods(&session.expire_requests(due)), ["turn/start"]);

    // Without an id or an answer the conversation fails, and the driver reports why.
    let mut session = unopened();
    session.initialize();
    hear(&mut session, &json!({"id": 1, "result": {}}));
    hear(&mut session, &json!({"id": 2, "result": {"thread": {}}}));
    let why = session.refusal().unwrap_or_default();
    assert!(why.contains("without an id"), "{why}");
    let mut session = unopened();
    session.initialize();
    let due = session.next_answer_deadline(now).unwrap();
    session.expire_requests(due);
    let why = session.refusal().unwrap_or_default();
    assert!(why.contains("did not answer in time"), "{why}");
}

#[test]
fn p20a_turn_that_never_starts_ends_with_the_reason() {
    for (code, reason) in [
        (-32001, EndReason::ServiceFailed),
        (-32600, EndReason::Failed),
    ] {
        let mut session = opened();
        let (message, outcome) = say(&mut session, "work");
        let error = json!({"code": code, "message": "not now"});
        let outcome = hear(&mut session, &json!({"id": id(&outcome), "error": error}));
        let [Event::TurnStarted { inputs }, Event::TurnCompleted(end)] = &outcome.events[..] else {
            panic!("{outcome:?}")
        };
        assert_eq!(*inputs, [message]);
        assert_eq!((end.reason, &*end.detail), (reason, "not now"));
    }
}

#[test]
fn p4d_split_message_is_assembled_up_to_a_limit() {
    let put_together = |lines: &[&[u8]]| {
        let mut framing = Framing::default();
        let (mut values, mut lost) = (Vec::new(), 0);
        for line in lines {
            let (value, gave_up) = framing.take(line);
            values.extend(value);
            lost += usize::from(gave_up);
        }
        (values, lost + usize::from(framing.give_up()))
    };
    // A line inside a text can be valid JSON on its own.
    let (values, lost) = put_together(&[br#"{"method": "a"#, b"7", b"{}", br#"b"}"#]);
    assert_eq!((values, lost), (vec![json!({"method": "a\n7\n{}\nb"})], 0));
    // This message never ends.
    assert_eq!(put_together(&[br#"{"method": "a"#]), (vec![], 1));

    let spread = |lines: usize| {
        let mut all: Vec<&[u8]> = vec![b"x"; lines];
        all[0] = br#"{"method": "a"#;
        all[lines - 1] = br#"b"}"#;
        let (values, lost) = put_together(&all);
        (values.len(), lost)
    };
    assert_eq!(spread(LINES), (1, 0));
    assert_eq!(spread(LINES + 1), (0, 1));

    let large = |bytes: usize| {
        let begun = [br#"{"method": ""#.to_vec(), vec![b'x'; bytes - 20]].concat();
        let more = "x".repeat(bytes - begun.len() - 2);
        let (values, lost) = put_together(&[&begun, more.as_bytes(), br#"b"}"#]);
        (values.len(), lost)
    };
    assert_eq!(large(BYTES - 1), (1, 0));
    assert_eq!(large(BYTES), (0, 1));
}
