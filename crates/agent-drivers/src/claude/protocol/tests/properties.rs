//! Properties that hold for every line and every end of the process.

use super::*;
use crate::dialogue::test_support::{a_value, check, mutate};
use agent_subprocess::Lines;
use proptest::prelude::*;

/// Strings with a meaning in the protocol.
const WORDS: [&str; 7] = ["", "user", "result", "started", "aborted", "text", "0"];

/// Feeds bytes in chunks, as a pipe delivers them, and then ends the process.
fn play(recording: &str, bytes: &[u8], cuts: &[usize]) -> Vec<Event> {
    let (mut replay, mut lines) = (Replay::new(recording), Lines::new(1 << 20));
    let mut events = Vec::new();
    let mut rest = bytes;
    for cut in cuts.iter().map(Some).chain([None]) {
        let (chunk, later) = rest.split_at(cut.map_or(rest.len(), |cut| cut % (rest.len() + 1)));
        rest = later;
        lines.push(chunk);
        while let Some(line) = lines.next_line() {
            events.extend(replay.line(&line.bytes));
        }
    }
    if let Some(line) = lines.finish() {
        events.extend(replay.line(&line.bytes));
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
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn p14_events_are_independent_of_chunking(
        recording in a_recording(), cuts in prop::collection::vec(any::<usize>(), 0..200),
    ) {
        let cuts: Vec<usize> = cuts.iter().map(|cut| cut % 500).collect();
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
    fn p4a_noise_is_ignored(recording in a_recording(), noise: Vec<u8>, at: usize) {
        let mut lines: Vec<&[u8]> = recording.as_bytes().split_inclusive(|b| *b == b'\n').collect();
        let noise = [b"<".to_vec(), noise, b"\n".to_vec()].concat();
        lines.insert(at % (lines.len() + 1), &noise);
        let whole = play_whole(&recording);
        prop_assert_eq!(play(&recording, &lines.concat(), &[]), whole);
    }
}

#[test]
fn p13a_p4b_unknown_lines_are_ignored() {
    let mut session = fresh();
    for line in [
        json!({"type": "tomorrow"}),
        json!({"type": "system", "subtype": "tomorrow"}),
        json!({"no": "type"}),
        json!([1]),
        json!("text"),
        json!({"type": ["user"]}),
        json!({"type": "control_response"}),
        json!({"type": "keep_alive"}),
    ] {
        let outcome = session.handle_line(line.to_string().as_bytes());
        assert!(
            outcome.events.is_empty() && outcome.lines.is_empty(),
            "{line}: {outcome:?}"
        );
    }
    for line in [&b""[..], b" ", b"{", b"\xff", b"not json"] {
        assert!(session.handle_line(line).events.is_empty());
    }
}
