//! Properties that hold for every line and every end of the process.

use super::*;
use crate::dialogue::test_support::{a_value, check, mutate};
use agent_subprocess::Lines;
use proptest::prelude::*;

/// Strings with a meaning in the protocol.
const WORDS: [&str; 10] = [
    "",
    "turn/started",
    "turn/completed",
    "item/started",
    "item/completed",
    "interrupted",
    "agentMessage",
    "commandExecution",
    "userMessage",
    "0",
];

/// Feeds bytes in chunks, as a pipe delivers them, and then ends the process.
fn play(recording: &str, bytes: &[u8], cuts: &[usize]) -> Vec<Event> {
    let (mut replay, mut lines) = (Replay::new(recording), Lines::new(1 << 20));
    let (mut events, mut written) = (Vec::new(), Vec::new());
    let mut rest = bytes;
    for cut in cuts.iter().map(Some).chain([None]) {
        let (chunk, later) = rest.split_at(cut.map_or(rest.len(), |cut| cut % (rest.len() + 1)));
        rest = later;
        lines.push(chunk);
        let whole = std::iter::from_fn(|| lines.next_line());
        let mut whole: Vec<_> = whole.collect();
        if cut.is_none() {
            whole.extend(lines.finish());
        }
        for line in whole {
            let outcome = replay.line(&line.bytes);
            events.extend(outcome.events);
            // An answered request is closed, as if it were withdrawn.
            let value: Value = serde_json::from_slice(&line.bytes).unwrap_or_default();
            let sent = &value["sent"];
            if sent.is_object() && sent["method"].is_null() && !outcome.lines.is_empty() {
                let id = sent["id"].to_string();
                events.push(Event::PermissionWithdrawn { id });
            }
            written.extend(outcome.lines);
        }
    }
    // Each written line is exactly one line.
    for line in written {
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        assert!(serde_json::from_slice::<Value>(&line).is_ok_and(|line| line.is_object()));
    }
    events.extend(replay.session.exited(ExitStatus::Signal(9), String::new()));
    events
}

/// Feeds a whole recording. It has events, so a reader that ignores all lines doesn't pass a comparison with it.
fn play_whole(recording: &str) -> Vec<Event> {
    let events = play(recording, recording.as_bytes(), &[]);
    assert!(events.len() > play(recording, b"", &[]).len());
    check(&events);
    events
}

fn a_recording() -> impl Strategy<Value = String> {
    prop::sample::select(GOLDEN.to_vec()).prop_map(golden)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn p14_events_are_independent_of_chunking(
        recording in a_recording(), cuts in prop::collection::vec(0..500_usize, 0..200),
    ) {
        let whole = play_whole(&recording);
        prop_assert_eq!(play(&recording, recording.as_bytes(), &cuts), whole);
    }

    #[test]
    fn p1c_a_carriage_return_before_the_line_feed_changes_no_event(recording in a_recording()) {
        let whole = play_whole(&recording);
        let returns = recording.replace('\n', "\r\n");
        prop_assert_eq!(play(&recording, returns.as_bytes(), &[]), whole);
    }

    #[test]
    fn p25b_death_at_any_byte_gives_one_turn_end_and_no_open_item(recording in a_recording(), at: usize) {
        let bytes = recording.as_bytes();
        let events = play(&recording, &bytes[..at % (bytes.len() + 1)], &[]);
        check(&events);
        prop_assert!(matches!(events.last(), Some(Event::Exited(_) | Event::TurnCompleted(_))));
    }

    #[test]
    fn p13a_lines_of_another_version_are_harmless(
        recording in a_recording(),
        changes in prop::collection::vec((any::<usize>(), 0..60_usize, a_value(&WORDS)), 1..12),
    ) {
        let mut lines: Vec<Value> = recording.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for (line, mut n, new) in changes {
            let line = line % lines.len();
            mutate(&mut lines[line], &mut n, &new);
        }
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        check(&play(&recording, text.as_bytes(), &[]));
    }

    #[test]
    fn p20b_lines_in_any_order_give_one_turn_end_and_no_open_item(
        recording in a_recording(), swaps in prop::collection::vec((any::<usize>(), any::<usize>()), 1..40),
    ) {
        let mut lines: Vec<&str> = recording.lines().collect();
        for (one, other) in swaps {
            let count = lines.len();
            lines.swap(one % count, other % count);
        }
        check(&play(&recording, lines.join("\n").as_bytes(), &[]));
    }

    #[test]
    fn p4a_noise_is_ignored(recording in a_recording(), noise: Vec<u8>, at: usize) {
        let mut lines: Vec<&[u8]> = recording.as_bytes().split_inclusive(|b| *b == b'\n').collect();
        let noise = [b"<".to_vec(), noise.into_iter().filter(|b| *b != b'\n').collect(), b"\n".to_vec()].concat();
        lines.insert(at % (lines.len() + 1), &noise);
        let whole = play_whole(&recording);
        prop_assert_eq!(play(&recording, &lines.concat(), &[]), whole);
    }

    #[test]
    fn p4d_a_text_with_raw_line_breaks_is_one_message(words in prop::collection::vec("[a-z{}:, ]{0,12}", 1..20)) {
        let delta = words.join("\n");
        let message = json!({"method": "item/agentMessage/delta", "params": {"delta": delta}});
        let broken = message.to_string().replace("\\n", "\n");
        let mut framing = Framing::default();
        let (mut found, mut lost) = (Vec::new(), false);
        for line in broken.split('\n') {
            let (value, gave_up) = framing.take(line.as_bytes());
            found.extend(value);
            lost |= gave_up;
        }
        prop_assert_eq!(found, vec![message]);
        prop_assert!(!lost);
    }
}

#[test]
fn p13a_p4b_unknown_lines_are_ignored() {
    let mut session = session(&SessionChoice::Fresh, Permissions::All);
    for line in [
        json!({"method": "tomorrow"}),
        json!({"method": "turn/started"}),
        json!({"method": "turn/completed", "params": {"turn": 1}}),
        json!({"method": "item/completed", "params": []}),
        json!({"no": "method"}),
        json!([1]),
        json!("text"),
        json!({"id": 1, "result": {}}),
        json!({"id": "x", "error": {}}),
    ] {
        let outcome = hear(&mut session, &line);
        assert!(
            outcome.events.is_empty() && outcome.lines.is_empty(),
            "{line}: {outcome:?}"
        );
    }
    for line in [&b""[..], b" ", b"\xff", b"not json"] {
        assert!(session.handle_line(line).events.is_empty());
    }
}

#[test]
fn p4d_unfinished_message_loses_no_other() {
    let mut framing = Framing::default();
    assert_eq!(framing.take(br#"{"method": "a"#), (None, false));
    assert_eq!(framing.take(b"more"), (None, false));
    let (value, lost) = framing.take(br#"{"method":"b"}"#);
    assert!(value.is_some() && lost);
    assert_eq!(framing.take(br#"{"method": "a"#), (None, false));
    let lost = (0..1000).filter(|_| framing.take(b"x").1).count();
    assert_eq!(lost, 1, "the limit is reported once");
}

#[test]
fn p13a_lone_surrogate_does_not_lose_its_message() {
    let mut framing = Framing::default();
    let (value, lost) = framing.take(br#"{"method":"a","params":"x\ud83d"}"#);
    assert_eq!(value.unwrap()["params"], "x\u{fffd}");
    assert!(!lost);
    // The same holds if the message is spread over several lines.
    assert_eq!(
        framing.take(br#"{"method":"a","params":"x\ud83d"#),
        (None, false)
    );
    let (value, lost) = framing.take(br#"y"}"#);
    assert_eq!(value.unwrap()["params"], "x\u{fffd}\ny");
    assert!(!lost);
}
