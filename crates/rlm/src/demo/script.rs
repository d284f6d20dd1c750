//! The script of the demo's agent: functions from the state of the working tree to steps. No I/O.
//!
//! Like a real agent, it remembers nothing between two sessions: the files alone show the progress of the work. So it also does the right thing
//! after an interruption, or after a person changed its files.

use serde_json::{Value, json};

/// The program that the agent writes.
pub(super) const PROGRAM: &str = "roman.sh";
/// The file in which it notes messages.
pub(super) const NOTES: &str = "NOTES.md";
/// The beginning of [`PROMPT`]; notes come before it.
const TASK: &str = "Make `sh check.sh` pass.";
/// The mark that the loop puts before a person's message.
pub(super) const PERSON: &str = "Note from the person who runs the loop: ";
/// The number of characters of a message that the agent repeats.
const QUOTED: usize = 80;

pub(super) const PROMPT: &str = "\
Make `sh check.sh` pass.

roman.sh prints a number as a Roman numeral.
- Do one step, commit it and end your turn: another session continues after you.
- Follow NOTES.md, if it exists.
";

pub(super) const CHECK: &str = r#"#!/bin/sh
# Passes if roman.sh works.

[ -e roman.sh ] || { echo "FAIL there is no roman.sh"; exit 1; }

prints() {
    got=$(sh roman.sh "$1" 2>&1)
    [ "$got" = "$2" ] || { echo "FAIL roman.sh $1 printed '$got' instead of '$2'"; exit 1; }
}

refuses() {
    if sh roman.sh "$1" >/dev/null 2>&1; then echo "FAIL roman.sh $1 was not refused"; exit 1; fi
}

prints 3 III
prints 28 XXVIII
prints 4 IV
prints 1994 MCMXCIV
refuses 0
refuses 4000
refuses four
echo "all tests pass"
"#;

const ADDITIVE: &str = "1000:M 500:D 100:C 50:L 10:X 5:V 1:I";
const SUBTRACTIVE: &str =
    "1000:M 900:CM 500:D 400:CD 100:C 90:XC 50:L 40:XL 10:X 9:IX 5:V 4:IV 1:I";
const UNGUARDED: &str = "n=$1\n";
const GUARDED: &str = r#"n=$1
case $n in
    [1-9] | [1-9][0-9] | [1-9][0-9][0-9] | [1-3][0-9][0-9][0-9]) ;;
    *) echo "roman.sh: '$n' is not a number from 1 to 3999" >&2; exit 1 ;;
esac
"#;

/// Returns the first version of the program, which doesn't subtract.
fn first_version() -> String {
    format!(
        r#"#!/bin/sh
# Prints a number as a Roman numeral.
{UNGUARDED}numeral=
for pair in {ADDITIVE}; do
    while [ "$n" -ge "${{pair%:*}}" ]; do
        numeral=$numeral${{pair#*:}}
        n=$((n - ${{pair%:*}}))
    done
done
echo "$numeral"
"#
    )
}

/// One step of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ScriptStep {
    Say(String),
    Use(Tool),
}

/// A tool, with the name that the imitated agents use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    Bash {
        command: String,
    },
    Write {
        path: &'static str,
        content: String,
    },
    Edit {
        path: &'static str,
        old: &'static str,
        new: &'static str,
    },
}

impl Tool {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Bash { .. } => "Bash",
            Self::Write { .. } => "Write",
            Self::Edit { .. } => "Edit",
        }
    }

    pub(super) fn input(&self) -> Value {
        match self {
            Self::Bash { command } => json!({"command": command}),
            Self::Write { path, content } => json!({"file_path": path, "content": content}),
            Self::Edit { path, old, new } => {
                json!({"file_path": path, "old_string": old, "new_string": new})
            }
        }
    }
}

/// The state of the working tree at the beginning of a turn.
#[derive(Clone, Debug, Default)]
pub(super) struct ProjectState {
    /// The text of [`PROGRAM`], if it exists.
    pub(super) program: Option<String>,
    /// Whether it differs from the last commit.
    pub(super) uncommitted: bool,
    /// The text of [`NOTES`], if it exists and was not written in this turn.
    pub(super) notes: String,
    /// Whether an earlier turn of this session began the same step.
    pub(super) begun: bool,
}

/// The meaning of a message for the agent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UserMessage<'a> {
    /// Whether the loop requests a step of the work.
    pub(super) work: bool,
    /// The messages of a person.
    pub(super) words: Vec<&'a str>,
}

/// Separates the loop's prompt from a person's messages, which the loop marks.
pub(super) fn read(message: &str) -> UserMessage<'_> {
    let task = message.find(TASK);
    let only_a_person = task.is_none() && message.starts_with(PERSON);
    let words = message[..task.unwrap_or(message.len())]
        .split(PERSON)
        .skip(1);
    // If an unknown prompt follows, a person's message ends at the first empty line, because nothing else shows its end.
    let words = words.map(|words| match task.is_some() || only_a_person {
        true => words.trim(),
        false => words.split("\n\n").next().unwrap_or_default().trim(),
    });
    UserMessage {
        work: !only_a_person,
        words: words.collect(),
    }
}

/// Returns the steps that note a person's message.
pub(super) fn note_message(words: &str, notes: &str) -> Vec<ScriptStep> {
    let note = format!("- {}\n", words.replace('\n', "\n  "));
    if notes.contains(&note) {
        return vec![say(format!("{NOTES} already says “{}”.", quoted(words)))];
    }
    vec![
        say(format!(
            "You wrote: “{}” I add it to {NOTES}, so later sessions see it too.",
            quoted(words)
        )),
        ScriptStep::Use(Tool::Write {
            path: NOTES,
            content: format!("{notes}{note}"),
        }),
    ]
}

/// Returns the next steps of the work.
pub(super) fn work(tree: &ProjectState) -> Vec<ScriptStep> {
    if tree.uncommitted {
        return vec![
            say("I was interrupted before I could commit. I check the files."),
            bash("git status --short"),
            say("That work is good. I commit it, so that nothing is repeated."),
            commit("Keep the work of an unfinished attempt"),
        ];
    }
    let mut steps = match tree.program.as_deref() {
        None => vec![
            say(
                "I have read PROMPT.md: I need to write roman.sh, and check.sh tests whether it works.",
            ),
            bash("sh check.sh"),
            say("There is no roman.sh yet. I take the largest numeral that fits, again and again."),
            ScriptStep::Use(Tool::Write {
                path: PROGRAM,
                content: first_version(),
            }),
            commit("Print Roman numerals"),
            say("That should be all."),
        ],
        Some(text) if text.contains(ADDITIVE) => vec![
            say("This is a new session: I know only what the prompt and the files say."),
            bash("sh check.sh"),
            say("4 gave IIII instead of IV. I add such pairs to the table."),
            ScriptStep::Use(Tool::Edit {
                path: PROGRAM,
                old: ADDITIVE,
                new: SUBTRACTIVE,
            }),
            commit("Add the subtractive pairs"),
            say("Now it should pass."),
        ],
        Some(text) if !text.contains(GUARDED) && text.contains(UNGUARDED) => vec![
            say("Another new session. I begin with the check again."),
            bash("sh check.sh"),
            say("There is no numeral for 0. I reject anything outside 1–3999."),
            ScriptStep::Use(Tool::Edit {
                path: PROGRAM,
                old: UNGUARDED,
                new: GUARDED,
            }),
            bash("sh check.sh"),
            commit("Reject numbers without a Roman numeral"),
            say("Everything passes here. The loop's own check decides."),
        ],
        Some(_) => vec![
            say("There is nothing left to do, so I change nothing."),
            bash("sh check.sh"),
        ],
    };
    if tree.begun {
        steps[0] = say("Back to the work.");
    }
    let note = tree.notes.lines().rev().find_map(|l| l.strip_prefix("- "));
    if let Some(note) = note {
        let reminder = format!("{NOTES} says “{}”, and I follow it.", quoted(note));
        steps.insert(0, say(reminder));
    }
    steps
}

/// Returns the command that commits everything, with its own author, because git may have none configured.
pub(super) fn commit_command(message: &str) -> String {
    format!("git add . && git -c user.name=demo -c user.email=demo@localhost commit -m '{message}'")
}

pub(super) fn commit(message: &str) -> ScriptStep {
    bash(commit_command(message))
}

fn say(text: impl Into<String>) -> ScriptStep {
    ScriptStep::Say(text.into())
}

fn bash(command: impl Into<String>) -> ScriptStep {
    ScriptStep::Use(Tool::Bash {
        command: command.into(),
    })
}

fn quoted(words: &str) -> String {
    let line = words.lines().next().unwrap_or_default();
    match line.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None if line.len() < words.len() => format!("{line} …"),
        None => line.to_owned(),
    }
}
