//! The records of a transcript as HTML.

use jiff::tz::TimeZone;
use maud::{Markup, html};
use rlm_report::{middle_out, visible};
use rlm_store::{Record, TranscriptWindow};
use rlm_text::time::instant;

/// The largest text of a record on the page, in bytes.
const MAX_TEXT: usize = 32 << 10;

/// Returns the records of a window as HTML.
pub(crate) fn records(window: &TranscriptWindow) -> String {
    let all = &window.records;
    let html = html! {
        @for (index, (at, record)) in all.iter().enumerate() {
            @if !is_repeated(record, all[index + 1..].iter().map(|(_, it)| it)) {
                (element(*at, record)) "\n"
            }
        }
    };
    visible(&html.into_string())
}

/// Returns whether a later message repeats this piece of streamed text.
fn is_repeated<'a>(record: &Record, mut later: impl Iterator<Item = &'a Record>) -> bool {
    record.kind == "text" && {
        let next = later.find(|it| !matches!(it.kind.as_str(), "text" | "raw"));
        next.is_some_and(|it| it.kind == "message")
    }
}

fn element(at: u64, record: &Record) -> Markup {
    let (text, left_out) = middle_out(&record.text, MAX_TEXT);
    let kind = record.kind.as_str();
    let left_out = left_out + record.omitted;
    let more = html! {
        @if left_out > 0 {
            span class="left" { (rlm_text::bytes::show(left_out)) " left out; the transcript has them" }
        }
    };
    match kind {
        "raw" => html! {},
        "text" => html! { div class="rec text" data-at=(at) { (text) } },
        "message" => {
            html! { div class="rec message" data-at=(at) { (time(record)) (text) (more) } }
        }
        "tool" => {
            html! { div class="rec tool" data-at=(at) { (time(record)) code { (text) } (more) } }
        }
        "steer" => {
            html! { div class="rec steer" data-at=(at) { (time(record)) b { "You: " } (text) (more) } }
        }
        "prompt" => folded(at, record, "Prompt", &text, &more),
        "result" => folded(at, record, "Result", &text, &more),
        "changes" if text.is_empty() => {
            html! { div class="rec note" data-at=(at) { (time(record)) b { "Changes" } " none" } }
        }
        "changes" => folded(at, record, "Changes", &text, &more),
        "stdout" => html! { pre class="rec out" data-at=(at) { "\n" (text) (more) } },
        "stderr" => html! { pre class="rec err" data-at=(at) { "\n" (text) (more) } },
        "end" => html! {
            div class="rec end" data-at=(at) { (time(record)) "End of the attempt" @if !text.is_empty() { ": " (text) } (more) }
        },
        _ => {
            html! { div class="rec note" data-at=(at) { (time(record)) b { (kind) } " " (text) (more) } }
        }
    }
}

fn folded(at: u64, record: &Record, name: &str, text: &str, more: &Markup) -> Markup {
    let first = text.lines().find(|line| !line.trim().is_empty());
    let first: String = first.unwrap_or_default().chars().take(160).collect();
    let status = first.split(':').next();
    let has_failed = record.kind == "result" && matches!(status, Some("failed" | "denied"));
    html! {
        details class={ "rec " (record.kind) @if has_failed { " failed" } } data-at=(at) {
            summary { (time(record)) b { (name) } " " span class="first" { (first) } }
            pre { "\n" (text) (more) }
        }
    }
}

fn time(record: &Record) -> Markup {
    let zoned = instant(record.at).to_zoned(TimeZone::system());
    html! { time { (zoned.strftime("%H:%M:%S").to_string()) } " " }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loop_state::Timestamp;

    fn window(all: &[(&str, &str)]) -> TranscriptWindow {
        let record = |(at, (kind, text)): (usize, &(&str, &str))| {
            let record = Record {
                at: Timestamp::from_millis(0),
                kind: (*kind).into(),
                text: (*text).into(),
                omitted: 0,
            };
            (at as u64, record)
        };
        TranscriptWindow {
            from: 0,
            to: 1,
            records: all.iter().enumerate().map(record).collect(),
        }
    }

    #[test]
    fn message_replaces_its_streamed_text() {
        let all = [
            ("text", "one "),
            ("raw", "{}"),
            ("text", "two"),
            ("message", "one two"),
            ("text", "three"),
        ];
        let html = records(&window(&all));
        assert!(
            !html.contains("one <") && html.matches("two").count() == 1,
            "{html}"
        );
        assert!(
            html.contains(r#"<div class="rec text" data-at="4">three</div>"#),
            "{html}"
        );
    }

    #[test]
    fn failed_result_is_marked() {
        for (text, is_marked) in [
            ("failed: exit 1", true),
            ("denied: not here", true),
            ("failed", true),
            ("ok: failed once", false),
            ("", false),
        ] {
            let html = records(&window(&[("result", text), ("prompt", text)]));
            assert_eq!(
                html.matches("result failed").count(),
                usize::from(is_marked),
                "{text}"
            );
            assert!(!html.contains("prompt failed"), "{text}");
        }
    }

    #[test]
    fn v9_colours_are_removed_and_other_sequences_are_visible() {
        let html = records(&window(&[(
            "stdout",
            "a\u{1b}[1;31mred\u{1b}[0mb\u{1b}[2Kc",
        )]));
        assert!(html.contains("aredb\u{241b}[2Kc"), "{html}");
        // Wherever the middle of a long text is left out, no half of a sequence stays.
        for before in 0..6 {
            let coloured = "\u{1b}[31mx".repeat(2 * MAX_TEXT);
            let text = format!("{}{coloured}", "y".repeat(before));
            for kind in ["message", "stdout", "result"] {
                let html = records(&window(&[(kind, &text)]));
                assert!(html.contains("left out") && html.len() < 2 * MAX_TEXT);
                assert!(
                    !html.contains('\u{241b}') && !html.contains("[3"),
                    "{before}"
                );
            }
        }
    }

    #[test]
    fn v9_text_of_an_agent_is_never_markup() {
        let hostile = "<script>alert(1)</script>\"' onload=x </pre>\u{1b}[31mred\u{1b}[0m\u{202e}\u{1b}]8;;x\u{7}";
        let kinds = [
            "text",
            "message",
            "tool",
            "steer",
            "prompt",
            "result",
            "changes",
            "stdout",
            "stderr",
            "end",
            "other\"><b>",
        ];
        for kind in kinds {
            let html = records(&window(&[(kind, hostile)]));
            assert!(
                !html.contains("<script") && !html.contains("</pre>\u{1b}"),
                "{html}"
            );
            assert!(
                !html.contains('\u{1b}') && !html.contains('\u{202e}'),
                "{html}"
            );
            assert!(
                !html.contains("<b>\"") && !html.contains("other\"><b>"),
                "{html}"
            );
        }
    }
}
