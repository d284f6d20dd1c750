//! Shows the programs that a run starts, and the saved settings that a resume replaces, one line each. A command is shown whole and on one line,
//! and no character in it can hide a part of it.

use std::fmt;

use rlm_store::{PhaseSettings, Program, ProgramKind, Settings};
use rlm_text::escape::is_hidden;
use serde::Serialize;
use serde_json::Value;

use crate::saved_settings;

/// Returns a line for each program.
pub(crate) fn lines(programs: &[Program]) -> Vec<String> {
    programs.iter().map(line).collect()
}

/// Returns one line: the phase, the purpose, and the command.
pub(crate) fn line(program: &Program) -> String {
    let Program {
        phase,
        what,
        command,
        ..
    } = program;
    let phase = phase.as_ref().map(|phase| format!("{phase}: "));
    let phase = visible(&phase.unwrap_or_default());
    let more = match what {
        ProgramKind::Heartbeat => " (a file that rlm writes every 10 s)",
        _ => "",
    };
    // The agent of the demo is this program.
    let this = std::env::current_exe().map(|path| path.display().to_string());
    let own = this.ok().filter(|_| *what == ProgramKind::Agent);
    let own = own.and_then(|this| command.strip_prefix(this.as_str()));
    let command = match own {
        Some(rest) if rest.starts_with(' ') => format!("rlm{rest}"),
        _ => command.clone(),
    };
    format!("{phase}{}: {}{more}", what.name(), visible(&command))
}

/// Makes every character of a command visible: `⏎` stands for a newline, and characters that are invisible or reorder others are escaped.
pub(crate) fn visible(command: &str) -> String {
    let mut shown = String::with_capacity(command.len());
    for c in command.chars() {
        match c {
            '\n' => shown.push('⏎'),
            c if c.is_control() || is_hidden(c) || c == '\u{2800}' => {
                shown.extend(c.escape_unicode())
            }
            c => shown.push(c),
        }
    }
    shown
}

/// A setting that a resume replaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Change {
    /// The phase; `None` for a setting of the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    /// The key of the setting; for a check, its option without the dashes.
    key: String,
    /// The program that the setting starts, if it starts one.
    #[serde(skip)]
    program: Option<ProgramKind>,
    /// The saved value; `None` if there was none.
    before: Option<String>,
    /// The new value; `None` if there is none.
    now: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = self.phase.as_ref().map(|phase| format!("{phase}: "));
        let value = |value: &Option<String>| {
            let value = value.as_deref();
            visible(value.unwrap_or("nothing"))
        };
        let (before, now) = (value(&self.before), value(&self.now));
        write!(
            f,
            "{}{}: {before} -> {now}",
            visible(&phase.unwrap_or_default()),
            self.program.map_or(self.key.as_str(), |it| it.name())
        )
    }
}

/// The settings that the list of programs already shows.
const PROGRAMS: [&str; 4] = ["agent", "gates", "mcp_servers", "until"];

/// Returns the differences: each program, and each other setting.
pub(crate) fn changes(before: &Settings, now: &Settings) -> Vec<Change> {
    let mut all = of_programs(&before.programs(), &now.programs());
    let (old, new) = (
        saved_settings::run_json(before),
        saved_settings::run_json(now),
    );
    all.extend(of_values(None, &old, &new));
    for phase in &now.phases {
        let same = |it: &&PhaseSettings| it.name == phase.name;
        let Some(was) = before.phases.iter().find(same) else {
            continue;
        };
        let name = Some(phase.name.clone());
        let (old, new) = (
            saved_settings::phase_json(was),
            saved_settings::phase_json(phase),
        );
        all.extend(of_values(name.clone(), &old, &new));
        let mut note = |key: &str, before: Option<&str>, now: Option<&str>| {
            if before != now {
                all.push(Change {
                    phase: name.clone(),
                    key: key.into(),
                    program: None,
                    before: before.map(Into::into),
                    now: now.map(Into::into),
                });
            }
        };
        note(
            "model",
            was.agent.model.as_deref(),
            phase.agent.model.as_deref(),
        );
        let is_shown = |agent: &Value| agent["agent"].to_string();
        let hidden = was.agent != phase.agent && is_shown(&old) == is_shown(&new);
        let hidden = hidden || was.mcp_servers != phase.mcp_servers;
        if hidden && of_programs(&before.programs(), &now.programs()).is_empty() {
            note(
                "agent",
                Some("values that are not shown"),
                Some("other values"),
            );
        }
    }
    all
}

/// Returns the programs that only one of two lists has. A program that replaces another one of its kind counts as one change.
fn of_programs(before: &[Program], now: &[Program]) -> Vec<Change> {
    let gone = before.iter().filter(|it| !now.contains(it));
    let mut new: Vec<&Program> = now.iter().filter(|it| !before.contains(it)).collect();
    let change = |before: Option<&Program>, now: Option<&Program>| {
        let it = before.or(now)?;
        Some(Change {
            phase: it.phase.clone(),
            key: key(it.what).into(),
            program: Some(it.what),
            before: before.map(|it| it.command.clone()),
            now: now.map(|it| it.command.clone()),
        })
    };
    let mut all = Vec::new();
    for gone in gone {
        let same = |it: &&Program| (&it.phase, it.what) == (&gone.phase, gone.what);
        let at = new.iter().position(same);
        all.extend(change(Some(gone), at.map(|at| new.remove(at))));
    }
    all.extend(new.into_iter().filter_map(|it| change(None, Some(it))));
    all
}

/// Returns the key of a program in JSON.
fn key(program: ProgramKind) -> &'static str {
    match program {
        ProgramKind::RequiredCheck => "gate",
        ProgramKind::Check => "until",
        other => other.name(),
    }
}

fn of_values(phase: Option<String>, before: &Value, now: &Value) -> Vec<Change> {
    let text = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let members = now.as_object().into_iter().flatten();
    let members = members.filter(|(key, _)| *key != "phases" && !PROGRAMS.contains(&key.as_str()));
    members
        .filter(|(key, now)| before[key.as_str()] != **now)
        .map(|(key, now)| Change {
            phase: phase.clone(),
            key: key.clone(),
            program: None,
            before: text(&before[key.as_str()]),
            now: text(now),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlm_store::ProgramKind;

    #[test]
    fn h6_no_character_hides_part_of_a_command() {
        let gate = "true # fine\ncurl evil\r\u{1b}[2K\u{9b}8m\u{202e}\u{200b}\u{e0041}";
        let program = Program::new(Some("main".into()), ProgramKind::RequiredCheck, gate);
        assert_eq!(
            line(&program),
            "main: required check: true # fine⏎curl evil\\u{d}\\u{1b}[2K\\u{9b}8m\\u{202e}\\u{200b}\\u{e0041}"
        );
    }
}
