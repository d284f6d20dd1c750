//! What the demo's agent says and does: functions from what it finds in the working tree to steps. Pure.
//!
//! The agent remembers nothing between two sessions, as a real one doesn't: it knows how far the work is from the files alone. So it also does the
//! right thing when it was cut, or when a person has changed its files.

use serde_json::{Value, json};

/// What the agent works on.
pub(super) const PROGRAM: &str = "roman.sh";
/// Where it writes down what it was told.
pub(super) const NOTES: &str = "NOTES.md";
/// The beginning of [`PROMPT`]; notes stand before it.
const TASK: &str = "Make `sh check.sh` pass.";
/// How the loop marks what a person says.
pub(super) const PERSON: &str = "Note from the person who runs the loop: ";
/// How much of a person's word is repeated aloud.
const QUOTED: usize = 80;

pub(super) const PROMPT: &str = "\
Make `sh check.sh` pass.

roman.sh shall print a number as a Roman numeral.
- Do one step, commit it and end your turn: another session goes on after you.
- Keep to what NOTES.md says, if it is there.
";

pub(super) const CHECK: &str = r#"#!/bin/sh
# Passes when roman.sh does what it should.

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
echo "all of it passes"
"#;

const ADDITIVE: &str = "1000:M 500:D 100:C 50:L 10:X 5:V 1:I";
const SUBTRACTIVE: &str =
    "1000:M 900:CM 500:D 400:CD 100:C 90:XC 50:L 40:XL 10:X 9:IX 5:V 4:IV 1:I";
const UNGUARDED: &str = "n=$1\n";
const GUARDED: &str = r#"n=$1
case $n in
    [1-9] | [1-9][0-9] | [1-9][0-9][0-9] | [1-3][0-9][0-9][0-9]) ;;
    *) echo "roman.sh: '$n' is no number from 1 to 3999" >&2; exit 1 ;;
esac
"#;

/// Returns the first version of the program, which knows no subtraction.
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

/// One thing that the agent does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Say(String),
    Use(Tool),
}

/// A tool, named as the agents that this one stands for name theirs.
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

/// What the agent finds before it begins.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    /// The text of [`PROGRAM`], if it is there.
    pub(super) program: Option<String>,
    /// Whether it differs from the last commit.
    pub(super) uncommitted: bool,
    /// The text of [`NOTES`] if it is there and not from this very turn.
    pub(super) notes: String,
    /// Whether the same step was begun in this session before.
    pub(super) begun: bool,
}

/// What a message is to the agent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Order<'a> {
    /// Whether the loop asks for a step of the work.
    pub(super) work: bool,
    /// What a person said.
    pub(super) words: Vec<&'a str>,
}

/// Tells the loop's words from a person's, which the loop marks as such.
pub(super) fn read(message: &str) -> Order<'_> {
    let task = message.find(TASK);
    let only_a_person = task.is_none() && message.starts_with(PERSON);
    let words = message[..task.unwrap_or(message.len())]
        .split(PERSON)
        .skip(1);
    // Before words of the loop that we don't know, nobody can say where a person's end.
    let words = words.map(|words| match task.is_some() || only_a_person {
        true => words.trim(),
        false => words.split("\n\n").next().unwrap_or_default().trim(),
    });
    Order {
        work: !only_a_person,
        words: words.collect(),
    }
}

/// Writes down what a person said.
pub(super) fn obey(words: &str, notes: &str) -> Vec<Step> {
    let note = format!("- {}\n", words.replace('\n', "\n  "));
    if notes.contains(&note) {
        return vec![say(format!("{NOTES} says “{}” already.", quoted(words)))];
    }
    vec![
        say(format!(
            "You said: “{}” I write it into {NOTES}, for the sessions after this one too.",
            quoted(words)
        )),
        Step::Use(Tool::Write {
            path: NOTES,
            content: format!("{notes}{note}"),
        }),
    ]
}

/// The next step of the work.
pub(super) fn work(tree: &Tree) -> Vec<Step> {
    if tree.uncommitted {
        return vec![
            say("I was cut before I could commit. I look at what is there."),
            bash("git status --short"),
            say("That work is good. I commit it, so that nothing is done twice."),
            commit("Keep what a cut attempt left"),
        ];
    }
    let mut steps = match tree.program.as_deref() {
        None => vec![
            say(
                "I have read PROMPT.md: there shall be a roman.sh, and check.sh says what it must do.",
            ),
            bash("sh check.sh"),
            say("There is no roman.sh yet. I take the largest numeral that fits, again and again."),
            Step::Use(Tool::Write {
                path: PROGRAM,
                content: first_version(),
            }),
            commit("Print Roman numerals"),
            say("That should be all."),
        ],
        Some(text) if text.contains(ADDITIVE) => vec![
            say("This is a new session: I know what the prompt and the files tell me, no more."),
            bash("sh check.sh"),
            say("4 came out as IIII, but IV and IX subtract. I add such pairs to the table."),
            Step::Use(Tool::Edit {
                path: PROGRAM,
                old: ADDITIVE,
                new: SUBTRACTIVE,
            }),
            commit("Subtract where Roman numerals do"),
            say("Now it should pass."),
        ],
        Some(text) if !text.contains(GUARDED) && text.contains(UNGUARDED) => vec![
            say("Another new session. I begin with the check again."),
            bash("sh check.sh"),
            say("There is no numeral for 0. I refuse whatever is no number from 1 to 3999."),
            Step::Use(Tool::Edit {
                path: PROGRAM,
                old: UNGUARDED,
                new: GUARDED,
            }),
            bash("sh check.sh"),
            commit("Refuse what has no Roman numeral"),
            say("Everything passes here. The loop's own check has the last word."),
        ],
        Some(_) => vec![
            say("I find nothing left to do, and change nothing."),
            bash("sh check.sh"),
        ],
    };
    if tree.begun {
        steps[0] = say("Back to the work.");
    }
    let note = tree.notes.lines().rev().find_map(|l| l.strip_prefix("- "));
    if let Some(note) = note {
        let reminder = format!("{NOTES} says “{}”, and I keep to it.", quoted(note));
        steps.insert(0, say(reminder));
    }
    steps
}

/// Commits all there is, with an author of its own: a newcomer's git may know none.
pub(super) fn commit_command(message: &str) -> String {
    format!("git add . && git -c user.name=demo -c user.email=demo@localhost commit -m '{message}'")
}

pub(super) fn commit(message: &str) -> Step {
    bash(commit_command(message))
}

fn say(text: impl Into<String>) -> Step {
    Step::Say(text.into())
}

fn bash(command: impl Into<String>) -> Step {
    Step::Use(Tool::Bash {
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
