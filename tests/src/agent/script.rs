//! The script language of a fake agent: one action per line.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use signal_hook::consts as sig;

/// The names of signals in scripts and records.
pub(super) const SIGNALS: [(&str, i32); 14] = [
    ("HUP", sig::SIGHUP),
    ("INT", sig::SIGINT),
    ("QUIT", sig::SIGQUIT),
    ("ABRT", sig::SIGABRT),
    ("KILL", sig::SIGKILL),
    ("USR1", sig::SIGUSR1),
    ("SEGV", sig::SIGSEGV),
    ("USR2", sig::SIGUSR2),
    ("PIPE", sig::SIGPIPE),
    ("ALRM", sig::SIGALRM),
    ("TERM", sig::SIGTERM),
    ("CONT", sig::SIGCONT),
    ("STOP", sig::SIGSTOP),
    ("TSTP", sig::SIGTSTP),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Stdin,
    Stdout,
    Stderr,
}

/// The relation of a child to the fake agent.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum ChildKind {
    /// An ordinary child in the agent's session and group.
    Plain,
    /// A child in its own session, as agents start their shell tools.
    Setsid,
    /// A double-forked daemon: it has its own session, and its parent is gone.
    Daemon,
    /// A grandchild whose parent is gone, and that keeps the agent's stdout and stderr open.
    Holder,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Delay(Duration),
    Print {
        to: Stream,
        text: Vec<u8>,
    },
    Flood {
        to: Stream,
        bytes: u64,
        unbroken: bool,
    },
    Garbage,
    Echo,
    Write {
        path: PathBuf,
        text: Vec<u8>,
        append: bool,
    },
    Await(PathBuf),
    Exit(u8),
    Die(i32),
    Hang,
    Close(Stream),
    Child {
        kind: ChildKind,
        ignore: Vec<i32>,
    },
    /// This action and those below are only for conversations.
    Say {
        pause: Duration,
        text: String,
    },
    /// This number of bytes in one line.
    Big(u64),
    /// Prints everything that the session ever received.
    Recall,
    Tool {
        name: String,
        summary: String,
    },
    ToolEnd(String),
    Run(String),
    Ask {
        tool: String,
        summary: String,
    },
    ExpectSteer,
    Retry {
        status: u16,
        times: u32,
        pause: Option<Duration>,
    },
    NotLoggedIn,
    Event(Value),
}

/// The actions of one start of the agent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Has at least one element.
    pub(super) turns: Vec<Vec<Action>>,
    /// Whether the last turn repeats for all later turns.
    pub(super) goes_on: bool,
    /// The messages that it ignores in a conversation.
    pub(super) deaf: Vec<String>,
    pub(super) unknown_session: bool,
    /// Whether its permission requests have numbers as ids, from 1 in each process.
    pub(super) numbers_asks: bool,
    /// If set, it does not start, and prints this text.
    pub(super) refusal: Option<String>,
    /// Signals to ignore before the start is recorded, whatever the position of the line.
    pub(super) ignore: Vec<i32>,
    pub(super) reads_stdin: bool,
}

impl Plan {
    /// Parses the lines of `text` that apply to start number `start`.
    pub(super) fn parse(text: &str, start: u32) -> Result<Self, String> {
        let mut plan = Self {
            reads_stdin: true,
            turns: vec![Vec::new()],
            ..Self::default()
        };
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let line = match line.strip_prefix('@') {
                None => line,
                Some(rest) => {
                    let (starts, line) = rest.split_once(' ').unwrap_or((rest, ""));
                    if !selects(starts, start)
                        .ok_or_else(|| format!("line {}: bad starts @{starts}", number + 1))?
                    {
                        continue;
                    }
                    line.trim_start()
                }
            };
            plan.add(line, start)
                .map_err(|why| format!("line {}: {why}: {line}", number + 1))?;
        }
        Ok(plan)
    }

    fn add(&mut self, line: &str, start: u32) -> Result<(), String> {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let bytes = |text: &str| unescape(text, start);
        let words = |text: &str| String::from_utf8_lossy(&unescape(text, start)).into_owned();
        let action = match name {
            "no-stdin" => {
                self.reads_stdin = false;
                return Ok(());
            }
            "ignore" => {
                self.ignore.extend(signals(rest)?);
                return Ok(());
            }
            "deaf" => {
                self.deaf.extend(rest.split_whitespace().map(Into::into));
                return Ok(());
            }
            "unknown-session" => {
                self.unknown_session = true;
                return Ok(());
            }
            "number-asks" => {
                self.numbers_asks = true;
                return Ok(());
            }
            "refuse" => {
                self.refusal = Some(words(rest));
                return Ok(());
            }
            "turn" => {
                self.goes_on = rest == "..";
                if !(self.turns == [[]] && self.goes_on) {
                    self.turns.push(Vec::new());
                }
                return Ok(());
            }
            "say" => {
                let (first, others) = rest.split_once(' ').unwrap_or((rest, ""));
                let (pause, text) = match first.parse() {
                    Ok(pause) => (pause, others),
                    Err(_) => (0, rest),
                };
                Action::Say {
                    pause: Duration::from_millis(pause),
                    text: words(text),
                }
            }
            "big" => Action::Big(size(rest)?),
            "recall" => Action::Recall,
            "tool" | "ask" => {
                let (tool, summary) = rest.split_once(' ').unwrap_or((rest, ""));
                let (tool, summary) = (tool.to_owned(), words(summary));
                match name {
                    "ask" => Action::Ask { tool, summary },
                    _ => Action::Tool {
                        name: tool,
                        summary,
                    },
                }
            }
            "tool-end" => Action::ToolEnd(words(rest)),
            "run" => Action::Run(rest.into()),
            "expect-steer" => Action::ExpectSteer,
            "retry" => {
                let mut numbers = rest.split_whitespace();
                let mut next = || numbers.next().map(number).transpose();
                let needs = || "needs a status and a number of times".to_owned();
                Action::Retry {
                    status: next()?.and_then(|n| n.try_into().ok()).ok_or_else(needs)?,
                    times: next()?.and_then(|n| n.try_into().ok()).ok_or_else(needs)?,
                    pause: next()?.map(Duration::from_millis),
                }
            }
            "not-logged-in" => Action::NotLoggedIn,
            "event" => Action::Event(serde_json::from_str(rest).map_err(|e| e.to_string())?),
            "unknown-event" => {
                Action::Event(json!({"type": "of_a_later_version", "detail": {"n": [1]}}))
            }
            "delay" => Action::Delay(Duration::from_millis(number(rest)?)),
            "print" | "noise" => Action::Print {
                to: Stream::Stdout,
                text: [bytes(rest), b"\n".to_vec()].concat(),
            },
            "part" => Action::Print {
                to: Stream::Stdout,
                text: bytes(rest),
            },
            "warn" => Action::Print {
                to: Stream::Stderr,
                text: [bytes(rest), b"\n".to_vec()].concat(),
            },
            "flood" => {
                let mut words = rest.split_whitespace();
                let bytes = size(words.next().unwrap_or_default())?;
                let words: Vec<_> = words.collect();
                let to = if words.contains(&"stderr") {
                    Stream::Stderr
                } else {
                    Stream::Stdout
                };
                Action::Flood {
                    to,
                    bytes,
                    unbroken: words.contains(&"unbroken"),
                }
            }
            "garbage" => Action::Garbage,
            "echo" => Action::Echo,
            "write" | "append" => {
                let (path, text) = rest.split_once(' ').ok_or("needs a file and a text")?;
                let text = [bytes(text), b"\n".to_vec()].concat();
                Action::Write {
                    path: path.into(),
                    text,
                    append: name == "append",
                }
            }
            "touch" => Action::Write {
                path: rest.into(),
                text: Vec::new(),
                append: true,
            },
            "await" => Action::Await(rest.into()),
            "exit" => Action::Exit(
                number(rest)?
                    .try_into()
                    .map_err(|_| "exit codes end at 255")?,
            ),
            "die" => Action::Die(signal(rest)?),
            "hang" => Action::Hang,
            "close" => Action::Close(match rest {
                "stdin" => Stream::Stdin,
                "stdout" => Stream::Stdout,
                "stderr" => Stream::Stderr,
                _ => return Err("close what?".into()),
            }),
            "child" => {
                let (kind, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                let kind = clap::ValueEnum::from_str(kind, false)?;
                let ignore = rest
                    .strip_prefix("ignore ")
                    .map(signals)
                    .transpose()?
                    .unwrap_or_default();
                Action::Child { kind, ignore }
            }
            _ => return Err("no such action".into()),
        };
        let turn = self.turns.last_mut().expect("there is always a turn");
        turn.push(action);
        Ok(())
    }
}

/// Parses `3`, `2..` and `2..4` (both ends included); returns `None` for anything else.
fn selects(starts: &str, start: u32) -> Option<bool> {
    let Some((from, to)) = starts.split_once("..") else {
        return Some(starts.parse::<u32>().ok()? == start);
    };
    let to = if to.is_empty() {
        u32::MAX
    } else {
        to.parse().ok()?
    };
    Some((from.parse().ok()?..=to).contains(&start))
}

fn number(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| "needs a number".into())
}

/// Parses a size in bytes: `10`, `64K`, `5M`, `1G`.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(['K', 'M', 'G']);
    let shift = match &text[digits.len()..] {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => 0,
    };
    Ok(number(digits)? << shift)
}

pub(super) fn signal(name: &str) -> Result<i32, String> {
    let name = name.trim();
    SIGNALS
        .iter()
        .find(|known| known.0 == name)
        .map(|known| known.1)
        .ok_or_else(|| format!("no signal {name:?}"))
}

fn signals(names: &str) -> Result<Vec<i32>, String> {
    names.split_whitespace().map(signal).collect()
}

/// Resolves `\n`, `\t`, `\r`, `\e`, `\\`, `\xNN`, `{start}` and `{VARIABLE}`.
fn unescape(text: &str, start: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['\\', '{']) {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let (special, after) = rest[at..].split_at(1);
        rest = after;
        if special == "{" {
            let Some((name, after)) = rest.split_once('}') else {
                out.push(b'{');
                continue;
            };
            let value = if name == "start" {
                start.to_string()
            } else {
                env::var(name).unwrap_or_default()
            };
            out.extend_from_slice(value.as_bytes());
            rest = after;
            continue;
        }
        let escaped = rest.chars().next();
        rest = rest.strip_prefix(|_: char| true).unwrap_or_default();
        match escaped {
            Some('n') => out.push(b'\n'),
            Some('t') => out.push(b'\t'),
            Some('r') => out.push(b'\r'),
            Some('e') => out.push(0x1b),
            Some('x') => {
                let byte = rest
                    .get(..2)
                    .and_then(|hex| u8::from_str_radix(hex, 16).ok());
                out.push(byte.unwrap_or(b'?'));
                rest = rest.get(2..).unwrap_or_default();
            }
            Some(other) => out.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            None => out.push(b'\\'),
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_uses_only_its_own_script_lines() {
        let script =
            "@1 exit 1\n# a remark\n@2..3 print {start}\n@4.. die KILL\nignore TERM INT\nno-stdin";
        let actions = |start| Plan::parse(script, start).unwrap().turns.remove(0);
        assert_eq!(actions(1), [Action::Exit(1)]);
        assert_eq!(
            actions(3),
            [Action::Print {
                to: Stream::Stdout,
                text: b"3\n".to_vec()
            }]
        );
        assert_eq!(actions(9), [Action::Die(sig::SIGKILL)]);
        let plan = Plan::parse(script, 1).unwrap();
        assert_eq!(
            (plan.ignore, plan.reads_stdin),
            (vec![sig::SIGTERM, sig::SIGINT], false)
        );
    }

    #[test]
    fn turns_run_in_order_and_the_last_one_repeats() {
        let say = |text: &str| Action::Say {
            pause: Duration::ZERO,
            text: text.into(),
        };
        let plan = Plan::parse("say a b\nsay 5 c\nturn\nturn ..\nsay d", 1).unwrap();
        let slow = Action::Say {
            pause: Duration::from_millis(5),
            text: "c".into(),
        };
        assert_eq!(plan.turns, [vec![say("a b"), slow], vec![], vec![say("d")]]);
        assert!(plan.goes_on);
        let plan = Plan::parse("turn ..\nsay a", 1).unwrap();
        assert_eq!((plan.turns, plan.goes_on), (vec![vec![say("a")]], true));
    }

    #[test]
    fn text_can_contain_any_byte() {
        assert_eq!(unescape(r"a\n\xff\e[0m\\{no}", 1), b"a\n\xff\x1b[0m\\");
        assert_eq!(size("64K"), Ok(65_536));
    }

    #[test]
    fn error_names_its_line() {
        assert_eq!(
            Plan::parse("print a\nfly", 1).unwrap_err(),
            "line 2: no such action: fly"
        );
        assert!(Plan::parse("@x exit 1", 1).is_err());
    }
}
