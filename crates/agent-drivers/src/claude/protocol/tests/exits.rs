//! Tests of the end of the process, and of a service that rejects the login.

use super::delivery::{lifecycle_line, result, status, with_messages};
use super::*;

const UNKNOWN: &str = "No conversation found with session ID: x";

fn refused() -> Value {
    json!({"type": "system", "subtype": "api_retry", "attempt": 1, "max_retries": 10, "error_status": 401})
}

/// Returns the turn's end when the process ends; `None` if no turn ends.
fn turn_end_at_exit(mut session: Session, stderr: &str) -> Option<(EndReason, String)> {
    let mut events = session.exited(ExitStatus::Code(1), stderr.to_owned());
    match events.pop() {
        Some(Event::TurnCompleted(end)) => {
            assert_eq!(end.exit, Some(ExitStatus::Code(1)));
            Some((end.reason, end.detail))
        }
        Some(Event::Exited(_)) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn p25b_process_exit_is_classified_by_request_and_output() {
    let no_detail = |reason| Some((reason, String::new()));
    let running = || {
        let (mut session, [_]) = with_messages();
        hear(&mut session, &status());
        session
    };
    assert_eq!(
        turn_end_at_exit(running(), "oops"),
        no_detail(EndReason::Died)
    );
    let mut interrupted = running();
    interrupted.interrupt(false).unwrap();
    assert_eq!(
        turn_end_at_exit(interrupted, ""),
        no_detail(EndReason::Interrupted)
    );
    let mut leaving = running();
    assert!(!leaving.is_leaving());
    leaving.note_ending();
    assert!(leaving.is_leaving());
    assert_eq!(
        turn_end_at_exit(leaving, ""),
        no_detail(EndReason::Interrupted)
    );

    // Text on standard error is used only before the first output.
    let (session, [_]) = with_messages();
    let (reason, hint) = turn_end_at_exit(session, UNKNOWN).unwrap();
    assert_eq!(reason, EndReason::SessionNotFound);
    assert!(hint.contains("start a fresh session"), "{hint}");
    assert_eq!(
        turn_end_at_exit(running(), UNKNOWN),
        no_detail(EndReason::Died)
    );
    let (session, [_]) = with_messages();
    let (reason, hint) = turn_end_at_exit(session, "error: unknown option '--x'").unwrap();
    assert_eq!(reason, EndReason::Died);
    assert!(hint.contains("extra arguments"), "{hint}");

    // The agent got no message, or had to end before it began a turn for one.
    let mut idle = fresh();
    hear(&mut idle, &json!({"type": "system", "subtype": "init"}));
    assert_eq!(turn_end_at_exit(idle, ""), None);
    let (mut leaving, [_]) = with_messages();
    leaving.note_ending();
    assert_eq!(turn_end_at_exit(leaving, ""), None);
}

#[test]
fn second_authentication_failure_ends_the_turn() {
    let (mut session, [_]) = with_messages();
    let lines = |session: &mut Session, line: Value| {
        let outcome = session.handle_line(line.to_string().as_bytes());
        outcome.lines.len()
    };
    assert_eq!(lines(&mut session, refused()), 0);
    assert!(!session.is_refused());
    // A successful call resets the count.
    let answer = json!({"type": "assistant", "message": {"content": []}});
    assert_eq!(lines(&mut session, answer.clone()), 0);
    assert_eq!(lines(&mut session, refused()), 0);
    assert_eq!(lines(&mut session, refused()), 1, "an interrupt is sent");
    assert!(session.is_refused());
    // After the interrupt, further output doesn't change the result.
    assert_eq!(lines(&mut session, answer), 0);
    assert_eq!(lines(&mut session, refused()), 0);
    assert!(session.is_refused());
    let (reason, detail) = turn_end_at_exit(session, "").unwrap();
    assert_eq!((reason, &*detail), (EndReason::NotLoggedIn, LOG_IN));

    // Other errors of the service are not login failures.
    let (mut session, [_]) = with_messages();
    let busy = json!({"type": "system", "subtype": "api_retry", "error_status": 529});
    assert!((0..5).all(|_| lines(&mut session, busy.clone()) == 0));
    assert!(!session.is_refused());
}

#[test]
fn agent_that_retries_after_refusal_is_given_up() {
    let (mut session, [_]) = with_messages();
    hear(&mut session, &refused());
    let events = session.give_up();
    let [Event::TurnCompleted(end)] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((end.reason, &*end.detail), (EndReason::NotLoggedIn, LOG_IN));
    assert_eq!(hear(&mut session, &refused()), []);
    let exited = Event::Exited(ExitStatus::Code(1));
    assert_eq!(
        session.exited(ExitStatus::Code(1), String::new()),
        std::slice::from_ref(&exited)
    );

    // Without a turn, an open permission request is withdrawn.
    let mut session = fresh();
    let ask = json!({"type": "control_request", "request_id": "a", "request": {"subtype": "can_use_tool"}});
    hear(&mut session, &ask);
    let withdrawn = Event::PermissionWithdrawn { id: "a".to_owned() };
    assert_eq!(
        session.exited(ExitStatus::Code(1), String::new()),
        [withdrawn, exited]
    );
}

#[test]
fn failure_before_first_message_fails_that_message() {
    let failed = json!({"type": "result", "subtype": "error_during_execution", "is_error": true, "errors": [UNKNOWN]});
    let mut session = fresh();
    assert!(!session.has_output());
    assert_eq!(hear(&mut session, &failed), []);
    assert!(session.has_output());
    let message = Message::new("hello");
    let events = session.failure_for(&message).unwrap();
    let [
        Event::TurnStarted { inputs },
        Event::TurnCompleted(TurnEnd { reason, detail, .. }),
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(
        (&inputs[..], *reason),
        (&[message.id][..], EndReason::SessionNotFound)
    );
    assert!(
        session.failure_for(&message).is_none(),
        "the failure is reported once"
    );

    // Without a message, the failure is a warning before the exit.
    let mut session = fresh();
    hear(&mut session, &failed);
    let exited = Event::Exited(ExitStatus::Code(1));
    assert_eq!(
        session.exited(ExitStatus::Code(1), String::new()),
        [Event::Warning(detail.clone()), exited]
    );
    // Another result without a turn is ignored.
    let mut session = fresh();
    hear(&mut session, &result());
    assert!(session.failure_for(&message).is_none());
}

#[test]
fn turn_starts_at_an_event_that_only_turns_have() {
    let begins = |announced: bool, line: Value| {
        let (mut session, [a]) = with_messages();
        if announced {
            hear(&mut session, &lifecycle_line(&a, "started"));
        }
        let events = hear(&mut session, &line);
        events
            .iter()
            .any(|event| matches!(event, Event::TurnStarted { inputs } if *inputs == [a.id]))
    };
    let event = |kind: &str| json!({"type": "stream_event", "event": {"type": kind}});
    let status = |what: &str| json!({"type": "system", "subtype": "status", "status": what});
    let init = || json!({"type": "system", "subtype": "init"});
    for (announced, line, expected) in [
        (false, status("requesting"), true),
        (false, status("compacting"), false),
        (false, event("message_start"), true),
        (false, event("message_stop"), false),
        (false, json!({"type": "assistant"}), true),
        (
            false,
            json!({"type": "assistant", "parent_tool_use_id": "t"}),
            false,
        ),
        (false, refused(), true),
        (false, result(), true),
        (false, init(), false),
        // Here the message of the turn is known.
        (true, init(), true),
    ] {
        assert_eq!(begins(announced, line.clone()), expected, "{line}");
    }
}
