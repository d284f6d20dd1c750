//! What a run starts, a line each: a command is shown whole and on one line, and nothing in it can hide a part of it.

use rlm_store::{Program, ProgramKind};
use rlm_text::escape::is_hidden;

/// Returns a line for each.
pub(crate) fn lines(programs: &[Program]) -> Vec<String> {
    programs.iter().map(line).collect()
}

/// Returns one line: the phase, what it is started for, and the command.
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
        ProgramKind::Heartbeat => " (a file that is written every 10 s)",
        _ => "",
    };
    // The agent of the demo is this program itself.
    let this = std::env::current_exe().map(|path| path.display().to_string());
    let own = this.ok().filter(|_| *what == ProgramKind::Agent);
    let own = own.and_then(|this| command.strip_prefix(this.as_str()));
    let command = match own {
        Some(rest) if rest.starts_with(' ') => format!("rlm{rest}"),
        _ => command.clone(),
    };
    format!("{phase}{}: {}{more}", what.name(), visible(&command))
}

/// Makes every character of a command visible: `⏎` stands for a new line, and what can't be seen or reorders others is escaped.
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

#[cfg(test)]
mod tests {
    use rlm_store::ProgramKind;

    use super::*;

    #[test]
    fn h6_no_character_hides_a_part_of_a_command() {
        let gate = "true # fine\ncurl evil\r\u{1b}[2K\u{9b}8m\u{202e}\u{200b}\u{e0041}";
        let program = Program::new(Some("main".into()), ProgramKind::Gate, gate);
        assert_eq!(
            line(&program),
            "main: gate: true # fine⏎curl evil\\u{d}\\u{1b}[2K\\u{9b}8m\\u{202e}\\u{200b}\\u{e0041}"
        );
    }
}
