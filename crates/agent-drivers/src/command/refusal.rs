//! The last words of a program that can't work now.
//!
//! A program in its print mode reports a limit only as text. So this module knows the texts of some agents: Claude Code 2.1.329, Codex 0.169.0 and
//! Gemini CLI 0.61.0, and the form of older Claude Code with the end of the limit. Only the last line of a failed program counts, and only if it
//! begins with such a text, so that words of the model or of a file don't look like a limit. A full disk counts in the same way, wherever the line names
//! it.
//!
//! Claude Code and Codex printed the texts with 429 and 529 to a scripted model that refused. The other texts are in the programs.

use crate::convert::one_line;
use agent_duplex::EndReason;
use agent_subprocess::{Line, Output, Stream};
use std::time::{Duration, SystemTime};

/// The exit code with which a program asks for another try later: `EX_TEMPFAIL` in `sysexits.h`.
const TRY_LATER: i32 = 75;
/// The longest line that can be a refusal, in bytes.
const MAX_LINE: usize = 8 << 10;
/// The longest text of a refusal for a person, in characters.
const DETAIL: usize = 2000;
/// The latest end of a limit that counts: a later one is no time of a service.
const LATEST: Duration = Duration::from_secs(14 * 86_400);

/// The text before the end of a limit in seconds since 1970.
const LIMIT_UNTIL: &str = "Claude AI usage limit reached";

/// The texts before the HTTP status with which a service refused.
const STATUS: [&str; 4] = [
    "API Error: Request rejected (",
    "API Error: ",
    "exceeded retry limit, last status: ",
    "unexpected status ",
];
/// The texts of the system for a full disk and a full quota.
const FULL: [&str; 2] = ["No space left on device", "Disk quota exceeded"];

/// A reason to try again later.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// [`EndReason::RateLimited`], [`EndReason::ServiceFailed`] or [`EndReason::TemporaryFailure`].
    pub(super) reason: EndReason,
    /// The line that says so; empty if only the exit code does.
    pub(super) detail: String,
    /// The end of the limit.
    pub(super) until: Option<SystemTime>,
}

/// The last line of each stream.
#[derive(Debug, Default)]
pub(super) struct LastLines {
    stdout: Option<Line>,
    stderr: Option<Line>,
}

impl LastLines {
    /// Notes a line. An empty line says nothing.
    pub(super) fn note(&mut self, output: &Output) {
        let line = &output.line;
        if !line.bytes.trim_ascii().is_empty() {
            let last = match output.stream {
                Stream::Stdout => &mut self.stdout,
                Stream::Stderr => &mut self.stderr,
            };
            *last = (line.bytes.len() <= MAX_LINE).then(|| line.clone());
        }
    }

    /// Returns the refusal that the lines or the exit code of a failed program name.
    pub(super) fn refusal(&self, code: i32, now: SystemTime) -> Option<Refusal> {
        let lines = self.stdout.iter().chain(&self.stderr);
        let mut named = lines.filter_map(|line| {
            let detail = one_line(&line.text(), DETAIL);
            Some(Refusal {
                reason: reason(&detail)?,
                until: end_of_limit(&detail, now),
                detail,
            })
        });
        let asks = Refusal {
            reason: EndReason::TemporaryFailure,
            until: None,
            detail: String::new(),
        };
        named.next().or_else(|| (code == TRY_LATER).then_some(asks))
    }
}

fn reason(line: &str) -> Option<EndReason> {
    if FULL.iter().any(|text| line.contains(text)) {
        return Some(EndReason::TemporaryFailure);
    }
    let text = line.strip_prefix("ERROR: ").unwrap_or(line);
    let is_limit = text.starts_with(LIMIT_UNTIL)
        || (text.starts_with("You've hit your ") && text.contains("limit"))
        || text.starts_with("API Error: Server is temporarily limiting requests");
    if is_limit {
        return Some(EndReason::RateLimited);
    }
    if text.starts_with("API Error: Repeated 529")
        || text.starts_with("Selected model is at capacity")
    {
        return Some(EndReason::ServiceFailed);
    }
    if let Some(text) = text.strip_prefix("[API Error: ") {
        return match text.rsplit_once("(Status: ")?.1 {
            "RESOURCE_EXHAUSTED)]" => Some(EndReason::RateLimited),
            "UNAVAILABLE)]" | "INTERNAL)]" => Some(EndReason::ServiceFailed),
            _ => None,
        };
    }
    let status = STATUS.iter().find_map(|before| text.strip_prefix(before))?;
    match status.split([' ', ')']).next()?.parse() {
        Ok(429) => Some(EndReason::RateLimited),
        Ok(500..=599) => Some(EndReason::ServiceFailed),
        _ => None,
    }
}

/// Returns the time in a line such as `Claude AI usage limit reached|1760000000`.
fn end_of_limit(line: &str, now: SystemTime) -> Option<SystemTime> {
    let seconds = line.strip_prefix(LIMIT_UNTIL)?.strip_prefix('|')?;
    let until = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.parse().ok()?))?;
    (until <= now + LATEST).then_some(until)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_760_000_000;

    fn output(stream: Stream, line: &str) -> Output {
        let bytes = line.to_owned().into();
        Output {
            stream,
            line: Line {
                bytes,
                truncated: None,
                terminated: true,
            },
        }
    }

    fn refusal(code: i32, lines: &[&str]) -> Option<(EndReason, Option<u64>)> {
        let mut last = LastLines::default();
        for line in lines {
            last.note(&output(Stream::Stdout, line));
        }
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let refusal = last.refusal(code, at(NOW))?;
        let since = |until: SystemTime| until.duration_since(at(0)).unwrap().as_secs();
        Some((refusal.reason, refusal.until.map(since)))
    }

    #[test]
    fn x107a_texts_of_known_agents_are_limits_or_failures_of_the_service() {
        use EndReason::{RateLimited, ServiceFailed};
        for (line, reason) in [
            ("Claude AI usage limit reached", RateLimited),
            (
                "You've hit your session limit · resets 3pm (Europe/Berlin)",
                RateLimited,
            ),
            (
                "ERROR: You've hit your usage limit. Try again in 2 hours.",
                RateLimited,
            ),
            (
                "API Error: Request rejected (429) · scripted 429",
                RateLimited,
            ),
            ("API Error: 429 {\"type\":\"error\"}", RateLimited),
            (
                "API Error: Server is temporarily limiting requests (not your usage limit)",
                RateLimited,
            ),
            (
                "ERROR: exceeded retry limit, last status: 429 Too Many Requests",
                RateLimited,
            ),
            (
                "[API Error: You have no quota. (Status: RESOURCE_EXHAUSTED)]",
                RateLimited,
            ),
            (
                "API Error: 529 {\"type\":\"overloaded_error\"}",
                ServiceFailed,
            ),
            ("API Error: 500", ServiceFailed),
            (
                "ERROR: unexpected status 529 <unknown status code>: scripted 529",
                ServiceFailed,
            ),
            (
                "API Error: Repeated 529 Overloaded errors. The API is at capacity",
                ServiceFailed,
            ),
            (
                "exceeded retry limit, last status: 503 Service Unavailable",
                ServiceFailed,
            ),
            (
                "[API Error: The model is overloaded. (Status: UNAVAILABLE)]",
                ServiceFailed,
            ),
            (
                "Selected model is at capacity. Please try a different model.",
                ServiceFailed,
            ),
        ] {
            assert_eq!(
                refusal(1, &["work", line, " "]),
                Some((reason, None)),
                "{line}"
            );
        }
    }

    #[test]
    fn x107a_end_of_the_limit_is_read_unless_it_is_absurd() {
        let until = |seconds: &str| {
            refusal(1, &[&format!("Claude AI usage limit reached|{seconds}")])
                .unwrap()
                .1
        };
        assert_eq!(until("1760000060"), Some(NOW + 60));
        // The loop decides what a time in the past means.
        assert_eq!(until("1759999999"), Some(NOW - 1));
        for absurd in ["9999999999", "18446744073709551615", "-1", "soon", ""] {
            assert_eq!(until(absurd), None, "{absurd}");
        }
    }

    #[test]
    fn x107h_other_words_about_limits_are_no_refusal() {
        let long = format!("API Error: 429 {}", "x".repeat(MAX_LINE));
        for lines in [
            &["API Error: 429", "the test of the limit failed"][..],
            &["the service said: API Error: 429"],
            &["You've hit your head"],
            &["API Error: 400 orphaned tool_result"],
            &["API Error: 4290"],
            &["API Error: Request rejected (400)"],
            &["unexpected status quo"],
            &["[API Error: bad request (Status: INVALID_ARGUMENT)]"],
            &["[API Error: no status]"],
            &[&long],
            &[],
        ] {
            assert_eq!(refusal(1, lines), None, "{lines:?}");
        }
    }

    #[test]
    fn last_line_of_either_stream_counts() {
        let mut last = LastLines::default();
        last.note(&output(Stream::Stderr, "API Error: 429"));
        last.note(&output(Stream::Stdout, "some work"));
        let refusal = last.refusal(1, SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(
            (refusal.reason, refusal.detail.as_str()),
            (EndReason::RateLimited, "API Error: 429")
        );
    }

    #[test]
    fn full_disk_is_worth_another_try() {
        for line in [
            "sh: 1: cannot create a: No space left on device",
            "Disk quota exceeded (os error 122)",
        ] {
            let failed = Some((EndReason::TemporaryFailure, None));
            assert_eq!(refusal(1, &[line]), failed, "{line}");
        }
    }

    #[test]
    fn exit_code_75_asks_for_another_try() {
        let failed = Some((EndReason::TemporaryFailure, None));
        assert_eq!(refusal(75, &["mail server is down"]), failed);
        assert_eq!(refusal(74, &["mail server is down"]), None);
    }
}
