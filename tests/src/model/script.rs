//! Directives: the scripted replies of the model.

use std::time::Duration;

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Text(String),
    /// A text of this number of bytes.
    Big(usize),
    /// The text that arrived during the turn.
    Steered,
    /// The first message of the conversation.
    Recall,
    /// After this time, the next reply of the last script in the conversation. A call that was not run is made again.
    Continue(Duration),
    Shell(String),
    Tool {
        name: String,
        input: Value,
    },
    Slow {
        pause: Duration,
        time: Duration,
    },
    Hang(Duration),
    /// Some tokens, then silence in the middle of the stream.
    Stall {
        tokens: usize,
        time: Duration,
    },
    Status {
        code: u16,
        retry_after: Option<String>,
        times: u32,
    },
    Drop {
        tokens: usize,
        times: u32,
    },
}

impl Step {
    /// Returns the number of requests that fail before the next step; `None` for a normal reply.
    pub(super) fn times(&self) -> Option<u32> {
        match self {
            Self::Status { times, .. } | Self::Drop { times, .. } => Some(*times),
            _ => None,
        }
    }

    /// Returns its name in the log.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Big(_) => "big",
            Self::Steered => "steered",
            Self::Recall => "recall",
            Self::Continue(_) => "continue",
            Self::Shell(_) => "sh",
            Self::Tool { .. } => "tool",
            Self::Slow { .. } => "slow",
            Self::Hang(_) => "hang",
            Self::Stall { .. } => "stall",
            Self::Status { .. } => "status",
            Self::Drop { .. } => "drop",
        }
    }
}

/// Parses the directives in `text`. An invalid directive becomes a text with the error.
pub(super) fn parse(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("[[") {
        let Some(mut end) = after.find("]]") else {
            break;
        };
        // In `]]]` the first bracket belongs to the body.
        while after[end + 2..].starts_with(']') {
            end += 1;
        }
        let body = after[..end].trim();
        steps.push(step(body).unwrap_or_else(|| Step::Text(format!("no such directive: {body}"))));
        rest = &after[end + 2..];
    }
    steps
}

fn step(body: &str) -> Option<Step> {
    let (name, rest) = body.split_once(' ').unwrap_or((body, ""));
    let rest = rest.trim();
    let mut words = rest.split_whitespace();
    let step = match name {
        "text" => Step::Text(rest.into()),
        "big" => Step::Big(words.next()?.parse().ok()?),
        "steered" => Step::Steered,
        "recall" => Step::Recall,
        "continue" => Step::Continue(Duration::from_millis(words.next()?.parse().ok()?)),
        "sh" => Step::Shell(rest.into()),
        "tool" => {
            let (name, input) = rest.split_once(' ').unwrap_or((rest, "{}"));
            Step::Tool {
                name: name.into(),
                input: serde_json::from_str(input).ok()?,
            }
        }
        "slow" => Step::Slow {
            pause: Duration::from_millis(words.next()?.parse().ok().filter(|pause| *pause > 0)?),
            time: seconds(words.next()?)?,
        },
        "hang" => Step::Hang(seconds(words.next()?)?),
        "stall" => Step::Stall {
            tokens: words.next()?.parse().ok()?,
            time: seconds(words.next()?)?,
        },
        "status" => Step::Status {
            code: words.next()?.parse().ok()?,
            retry_after: words.next().filter(|word| *word != "-").map(Into::into),
            times: words.next().map_or(Some(1), |word| word.parse().ok())?,
        },
        "drop" => Step::Drop {
            tokens: words.next()?.parse().ok()?,
            times: words.next().map_or(Some(1), |word| word.parse().ok())?,
        },
        _ => return None,
    };
    Some(step)
}

fn seconds(word: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(word.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn directives_are_found_anywhere_in_a_text() {
        let text = r#"Work. [[sh test -e a || echo "]" >> a]] then [[status 429 2 3]] [[tool Read {"list": [[1]]}]] [[slow 5 0.5]] [[fly]] ["#;
        assert_eq!(
            parse(text),
            [
                Step::Shell(r#"test -e a || echo "]" >> a"#.into()),
                Step::Status {
                    code: 429,
                    retry_after: Some("2".into()),
                    times: 3
                },
                Step::Text(r#"no such directive: tool Read {"list": [[1"#.into()),
                Step::Slow {
                    pause: Duration::from_millis(5),
                    time: Duration::from_millis(500)
                },
                Step::Text("no such directive: fly".into()),
            ]
        );
        assert_eq!(
            parse(r#"[[tool Read {"list": [1]}]]"#),
            [Step::Tool {
                name: "Read".into(),
                input: json!({"list": [1]})
            }]
        );
        assert_eq!(parse("nothing"), []);
    }
}
