//! The parser of server-sent events.

use agent_api::{ErrorKind, SseEvent, SseParser};
use insta::assert_snapshot;
use proptest::prelude::*;

use crate::wire::{DIALECTS, recording, split};

fn parse(limit: usize, chunks: &[&[u8]]) -> (Vec<SseEvent>, bool) {
    let (mut parser, mut events) = (SseParser::new(limit), Vec::new());
    let ok = chunks
        .iter()
        .all(|chunk| parser.push(chunk, &mut events).is_ok());
    (events, ok)
}

fn shown(stream: &[u8]) -> String {
    let (events, ok) = parse(1_000, &[stream]);
    let lines = events
        .iter()
        .map(|it| format!("{:?} {:?}", it.name, it.data));
    let mut lines: Vec<_> = lines.collect();
    if !ok {
        lines.push("too large".into());
    }
    lines.join("\n")
}

#[test]
fn lines_fields_and_comments_follow_the_standard() {
    let all = b"\xef\xbb\xbfdata: after a byte order mark\n\n\
        : a comment\n\n\
        event: named\ndata:no space\ndata\ndata:  two spaces\nid: 1\nretry: 5\nunknown: x\n\n\
        event: without data\n\n\
        data: crlf\r\n\r\ndata: cr\r\rdata: mixed\r\n\ndata: \xff\n\n\
        data: \xef\xbb\xbfno mark here\n\ndata: cut";
    assert_snapshot!(shown(all), @r#"
    "" "after a byte order mark"
    "named" "no space\n\n two spaces"
    "" "crlf"
    "" "cr"
    "" "mixed"
    "" "�"
    "" "\u{feff}no mark here"
    "#);
}

#[test]
fn long_lines_and_events_are_refused() {
    let endless = vec![b'x'; 101];
    assert!(!parse(100, &[&endless]).1);
    let bytes: Vec<&[u8]> = vec![b"x"; 101];
    assert!(!parse(100, &bytes).1);
    // Each line is short, and the event isn't.
    let lines = "data: 0123456789\n".repeat(10);
    assert!(!parse(100, &[lines.as_bytes()]).1);
    assert!(!parse(100, &[&b"data\n".repeat(102)]).1);
    let mut parser = SseParser::new(100);
    let error = parser.push(&endless, &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    // The limit is for one event, not for the stream.
    assert!(parse(100, &[&b"data: 0123456789\n\n".repeat(100)]).1);
}

fn a_stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        &b"\n"[..],
        b"\r",
        b"\r\n",
        b"data: ",
        b"data:",
        b"event: ",
        b":",
        b"\xef\xbb\xbf",
        b"\xf0\x9f\x94\x8e",
        b"\xff",
        b"{}",
    ]);
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn events_are_independent_of_chunking(
        stream in a_stream(), cuts in prop::collection::vec(any::<usize>(), 0..40), limit in 1..40_usize,
    ) {
        let (whole, whole_ok) = parse(limit, &[&stream]);
        let (pieces, pieces_ok) = parse(limit, &split(&stream, &cuts));
        prop_assert_eq!((&whole, whole_ok), (&pieces, pieces_ok));
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        prop_assert_eq!((whole, whole_ok), parse(limit, &bytes));
    }
}

#[test]
fn line_ends_of_recordings_do_not_matter() {
    for dialect in DIALECTS {
        let stream = recording(dialect);
        let (events, _) = parse(1 << 20, &[stream.as_bytes()]);
        assert!(events.len() > 10);
        for end in ["\r\n", "\r"] {
            let other = stream.replace('\n', end);
            assert_eq!(parse(1 << 20, &[other.as_bytes()]).0, events);
        }
    }
}
