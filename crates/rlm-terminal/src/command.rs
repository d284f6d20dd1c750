//! Parses lines that begin with `/` into commands; for an unknown command, suggests the nearest one.

/// A command that a person types while a run is live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Pause,
    Continue,
    Status,
    Interrupt,
    /// A message to the agent, and whether it interrupts the turn. An empty message opens `steer>`, or `now>` if it interrupts.
    Steer(String, bool),
    FreshSession,
    Skip,
    StopAfterIteration,
    Stop,
    Help,
}

/// The commands with their descriptions, in the order of `/help`.
const COMMANDS: [(&str, &str); 11] = [
    ("pause", "pause when this iteration is complete"),
    ("continue", "resume the run, or cancel a requested pause"),
    ("status", "show the status of the run"),
    (
        "interrupt",
        "interrupt the turn and keep the session; then /continue or /steer",
    ),
    (
        "steer TEXT",
        "send the agent a message; Enter alone opens steer>",
    ),
    ("now TEXT", "interrupt the turn and send this message"),
    ("skip", "end the sleep or the wait now"),
    ("new", "start the next attempt with a fresh session"),
    ("stop", "stop when this iteration is complete"),
    ("exit", "save and stop now"),
    ("help", "show this help"),
];

/// Parses a typed line. Returns a command, an error message, or `None` if the line is a message to the agent.
///
/// A line that begins with a path is a message.
pub(crate) fn parse(line: &str) -> Option<Result<Command, String>> {
    let line = line.trim();
    let (word, rest) = match line.strip_prefix('/')?.split_once(char::is_whitespace) {
        Some((word, rest)) => (word, rest.trim()),
        None => (line.trim_start_matches('/'), ""),
    };
    if word.contains(['/', '.']) {
        return None;
    }
    let command = match word.to_lowercase().as_str() {
        "pause" => Command::Pause,
        "continue" => Command::Continue,
        "status" => Command::Status,
        "interrupt" => Command::Interrupt,
        "steer" => return Some(Ok(Command::Steer(rest.into(), false))),
        "now" => return Some(Ok(Command::Steer(rest.into(), true))),
        "new" => Command::FreshSession,
        "skip" => Command::Skip,
        "stop" => Command::StopAfterIteration,
        "exit" | "quit" => Command::Stop,
        "help" | "?" | "" => Command::Help,
        other => return Some(Err(unknown(other))),
    };
    if rest.is_empty() {
        Some(Ok(command))
    } else {
        Some(Err(format!("/{word} takes no argument; nothing was done")))
    }
}

fn unknown(word: &str) -> String {
    let names = || {
        COMMANDS
            .iter()
            .filter_map(|(name, _)| name.split(' ').next())
    };
    let begun = names().find(|name| word.len() > 1 && name.starts_with(word));
    let near = || names().map(|name| (distance(word, name), name)).min();
    let nearest = begun.or_else(|| {
        near()
            .filter(|(far, _)| *far <= (word.len() / 2).min(2))
            .map(|(_, name)| name)
    });
    let word: String = word.chars().take(30).collect();
    match nearest {
        Some(name) => format!("unknown command /{word}; did you mean /{name}? see /help"),
        None => format!("unknown command /{word}; see /help"),
    }
}

/// Returns the edit distance of two words (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().take(30).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Returns the lines of `/help`.
pub(crate) fn help() -> Vec<String> {
    let mut lines = vec!["Enter opens steer>, Ctrl-C opens the menu. Commands:".to_owned()];
    lines.extend(
        COMMANDS
            .iter()
            .map(|(name, what)| format!("  /{name:<11} {what}")),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn x121h_lines_are_commands_or_messages() {
        assert_eq!(parse("/pause"), Some(Ok(Command::Pause)));
        assert_eq!(parse("  /EXIT "), Some(Ok(Command::Stop)));
        assert_eq!(parse("/"), Some(Ok(Command::Help)));
        let now = Command::Steer("update the docs".into(), true);
        assert_eq!(parse("/now  update the docs"), Some(Ok(now)));
        assert_eq!(parse("pause"), None);
        assert_eq!(parse("/etc/hosts is wrong"), None);
        assert_eq!(parse("/src.rs too"), None);
        assert!(matches!(parse("/stop now"), Some(Err(_))));
    }

    #[test]
    fn x121g_an_unknown_command_names_the_nearest() {
        let errors = ["/puase", "/inter", "/frobnicate", "/stpo", "/foo"]
            .map(|line| parse(line).unwrap().unwrap_err());
        insta::assert_snapshot!(errors.join("\n"), @"
        unknown command /puase; did you mean /pause? see /help
        unknown command /inter; did you mean /interrupt? see /help
        unknown command /frobnicate; see /help
        unknown command /stpo; did you mean /stop? see /help
        unknown command /foo; see /help
        ");
    }

    #[test]
    fn the_help_names_every_command() {
        insta::assert_snapshot!(help().join("\n"), @"
        Enter opens steer>, Ctrl-C opens the menu. Commands:
          /pause       pause when this iteration is complete
          /continue    resume the run, or cancel a requested pause
          /status      show the status of the run
          /interrupt   interrupt the turn and keep the session; then /continue or /steer
          /steer TEXT  send the agent a message; Enter alone opens steer>
          /now TEXT    interrupt the turn and send this message
          /skip        end the sleep or the wait now
          /new         start the next attempt with a fresh session
          /stop        stop when this iteration is complete
          /exit        save and stop now
          /help        show this help
        ");
        for (name, _) in COMMANDS {
            let line = format!("/{}", name.split(' ').next().unwrap());
            assert!(parse(&line).unwrap().is_ok(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_parsed_or_refused(line in "/?\\PC{0,40}") {
            let parsed = parse(&line);
            if !line.trim().starts_with('/') {
                prop_assert_eq!(parsed, None);
            }
        }
    }
}
