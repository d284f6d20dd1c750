//! What a run starts, a line each: a command is shown whole and on one line, and nothing in it can hide a part of it.

use loop_runner::{Program, ProgramKind};

use super::text::is_bidi;

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
            c if c.is_control() || is_bidi(c) || is_unseen(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

/// Characters that take no room, or look like a blank and are none.
fn is_unseen(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use loop_runner::ProgramKind;

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
