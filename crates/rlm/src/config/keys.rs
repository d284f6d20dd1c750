//! All keys that settings can have, once: the schema, the lists that people see and the refusals come from here.

/// Where a key may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// Above the phases only: it is of the whole run.
    Run,
    /// In a phase too, or above the phases for all of them.
    Phase,
    /// In a phase only.
    PhaseOnly,
    /// In the user's own file only: a project has no say in it.
    User,
}

/// Whose file a key is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// What it names by a path counts from where it lies, as its reader does it.
    Project,
    User,
}

/// What a value can be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Text,
    Texts,
    Switch,
    /// A whole number from this one on.
    Count(u32),
    /// A duration.
    Time,
    /// A number, or text of this form.
    Amount(&'static str),
    /// Text of this form.
    Like(&'static str),
    OneOf(&'static [&'static str]),
    SomeOf(&'static [&'static str]),
    /// Texts by name.
    Named,
    /// Anything, in words of the agent's own.
    Free,
    Table(&'static [Key]),
    Servers,
}

/// A key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) of: Of,
    /// Whether only a project can have it: it says what is to be done there, and when that is done.
    pub(crate) project: bool,
    /// What it is, for people.
    pub(crate) what: &'static str,
}

const fn run(name: &'static str, kind: Kind, what: &'static str) -> Key {
    Key {
        name,
        kind,
        of: Of::Run,
        project: false,
        what,
    }
}

const fn phase(name: &'static str, kind: Kind, what: &'static str) -> Key {
    Key {
        of: Of::Phase,
        ..run(name, kind, what)
    }
}

const fn project(name: &'static str, kind: Kind, what: &'static str) -> Key {
    Key {
        project: true,
        ..phase(name, kind, what)
    }
}

use Kind::{
    Amount, Count, Free, Like, Named, OneOf, Servers, SomeOf, Switch, Table, Text, Texts, Time,
};

/// The keys at the top and of a phase.
pub(crate) const KEYS: &[Key] = &[
    Key {
        of: Of::PhaseOnly,
        ..project("name", Text, "The name of the phase.")
    },
    project("prompt", Text, "The prompt, in place of a file."),
    project(
        "prompt-file",
        Text,
        "The file with the prompt, read anew for each iteration.",
    ),
    phase(
        "agent",
        OneOf(&["command", "claude", "codex", "gemini", "opencode", "acp"]),
        "The agent.",
    ),
    phase(
        "command",
        Texts,
        "A program and its arguments as the agent; it gets the prompt on standard input.",
    ),
    phase(
        "agent-bin",
        Text,
        "The agent's program: a name that is on PATH, or a path that counts from this file.",
    ),
    phase("model", Text, "The model, by the agent's own names for it."),
    phase(
        "permissions",
        OneOf(&["ask", "edits", "all", "deny"]),
        "What the agent may do.",
    ),
    phase(
        "session",
        OneOf(&["fresh", "continue"]),
        "The agent's conversation: a fresh one for each iteration, or one that goes on.",
    ),
    project(
        "completion-promise",
        Text,
        "Done when the agent says so; with `until`, that is asked only then.",
    ),
    project(
        "until",
        Text,
        "Done when this command exits with 0; asked after each iteration.",
    ),
    project(
        "gates",
        Texts,
        "Commands that must pass before an iteration counts.",
    ),
    phase(
        "max-iterations",
        Count(1),
        "The number of iterations: the plan, or with another end the limit.",
    ),
    phase(
        "iteration-timeout",
        Time,
        "How long one turn of the agent may take.",
    ),
    phase(
        "idle-timeout",
        Time,
        "How long the agent may be silent; a running tool is no silence.",
    ),
    phase(
        "check-timeout",
        Time,
        "How long a gate or the check may take.",
    ),
    phase(
        "background-wait",
        Time,
        "How long nothing may come of what the agent has in the background when its turn is over.",
    ),
    run("max-duration", Time, "How long the run may be active."),
    run(
        "max-failures",
        Count(0),
        "How many failures in a row end the run, 0 for no limit.",
    ),
    run("sleep", Time, "The pause between iterations."),
    run(
        "max-cost",
        Amount(r"^\$?[0-9]+(\.[0-9]{1,6})?( ?USD)?$"),
        "What the run may cost by the agent's own reckoning, in US dollars.",
    ),
    run(
        "max-tokens",
        Amount("^[0-9]+[kKmM]?$"),
        "How many tokens the run may use, those read and those written.",
    ),
    run(
        "max-transcripts",
        Amount(r"^[0-9]+ ?([kKmMgGtT]?[bB]|[kKmMgG][iI][bB])?$"),
        "How much disk the transcripts of a run may take, but for its newest eight; beyond it the oldest lose something.",
    ),
    run(
        "wait-on-limit",
        Time,
        "How long to wait for rate limits and outages, all waits in a row together; 0 ends the run instead.",
    ),
    run(
        "shutdown-timeout",
        Time,
        "How long a stop may take, all of it; 0 waits for nothing.",
    ),
    run(
        "cooldown",
        Time,
        "How long a press of Ctrl-C that nobody answered stays counted: another one within it stops the run.",
    ),
    run(
        "autonomy",
        Like("^(checkpoint|full|batch:[1-9][0-9]*)$"),
        "Where the run waits for a person's word.",
    ),
    run(
        "leftovers",
        OneOf(&["end", "keep"]),
        "What becomes of processes that the agent leaves running.",
    ),
    run(
        "commit",
        Switch,
        "Whether each iteration that changed something is committed when it is over, a failed one too.",
    ),
    run(
        "worktree",
        Switch,
        "Whether each run has a working tree and a branch of its own.",
    ),
    run(
        "notify",
        Text,
        "A command that is run when something happens to the run.",
    ),
    run(
        "notify-on",
        SomeOf(&[
            "started",
            "resumed",
            "iteration",
            "failure",
            "phase",
            "limit",
            "retry",
            "paused",
            "review",
            "question",
            "ended",
        ]),
        "What that command is told of.",
    ),
    Key {
        project: true,
        ..run(
            "heartbeat",
            Text,
            "A file that is written every 10 s as long as the loop turns.",
        )
    },
    run(
        "bell",
        Switch,
        "Whether the terminal's bell rings when a person is needed and at the end.",
    ),
    Key {
        of: Of::User,
        ..run(
            "safe-directories",
            Texts,
            "Projects whose files may belong to another user: a path, `PATH/*` for all below it, or `*`.",
        )
    },
    phase("claude", Table(CLAUDE), "What else Claude Code is told."),
    phase("codex", Table(CODEX), "What else Codex is told."),
    phase("gemini", Table(ACP), "What else the Gemini CLI is told."),
    phase("opencode", Table(ACP), "What else OpenCode is told."),
    phase(
        "acp",
        Table(ANY_ACP),
        "An agent that speaks the Agent Client Protocol.",
    ),
    project(
        "mcp-config",
        Text,
        "A file with MCP servers, such as .mcp.json.",
    ),
    phase(
        "mcp-servers",
        Servers,
        "MCP servers by name; ${VARIABLE} is filled in when the agent starts.",
    ),
    run("on-press", Table(PRESSES), "What Ctrl-C does."),
];

const ENV: Key = phase("env", Named, "Variables of its environment.");
const ENV_ALLOW: Key = phase(
    "env-allow",
    Texts,
    "The only variables that it inherits, besides those that it needs.",
);
const EFFORT: Key = phase(
    "effort",
    Text,
    "How hard the model shall think, in the agent's words.",
);
const SYSTEM: Key = phase(
    "system-prompt",
    Text,
    "A text in place of its own instructions.",
);
const APPEND: Key = phase(
    "append-system-prompt",
    Text,
    "A text behind its own instructions.",
);
const AUTH: Key = phase(
    "auth-method",
    Text,
    "The agent's id of the way in which it logs in.",
);

const CLAUDE: &[Key] = &[
    phase(
        "fallback-model",
        Text,
        "The model while the first one is overloaded.",
    ),
    EFFORT,
    phase(
        "max-turns",
        Count(1),
        "The most requests to the model in one turn.",
    ),
    phase("tools", Texts, "The only tools of its own that it has."),
    phase(
        "allowed-tools",
        Texts,
        "Rules for calls that need no permission.",
    ),
    phase(
        "disallowed-tools",
        Texts,
        "Rules for calls that are never permitted.",
    ),
    SYSTEM,
    APPEND,
    phase(
        "setting-sources",
        Texts,
        "The settings that it reads, of user, project and local.",
    ),
    phase("settings", Free, "Settings over those, in its own words."),
    phase("hooks", Switch, "Whether the hooks of its settings run."),
    phase(
        "add-dirs",
        Texts,
        "Directories that it may work in besides its own.",
    ),
    phase(
        "strict-mcp",
        Switch,
        "Whether it has no MCP servers but those that it is handed.",
    ),
    ENV,
    ENV_ALLOW,
];

const CODEX: &[Key] = &[
    EFFORT,
    SYSTEM,
    APPEND,
    phase(
        "config",
        Free,
        "Settings over those of its config.toml, in its own words.",
    ),
    phase(
        "analytics",
        Switch,
        "Whether it tells its makers what it does, if its settings want that.",
    ),
    ENV,
    ENV_ALLOW,
];

const ACP: &[Key] = &[AUTH, ENV, ENV_ALLOW];

const ANY_ACP: &[Key] = &[
    phase(
        "program",
        Texts,
        "The program, and the arguments that make it speak the protocol.",
    ),
    AUTH,
    ENV,
    ENV_ALLOW,
];

const PRESS: Kind = OneOf(&["prompt", "continue", "steer", "stop", "abort"]);

const PRESSES: &[Key] = &[
    run("default", PRESS, "Wherever nothing else is said."),
    run("spawn", PRESS, "While the agent is being started."),
    run("turn", PRESS, "In a turn of the agent."),
    run("gate", PRESS, "While gates or the check run."),
    run(
        "save",
        PRESS,
        "Between an iteration's work and the next one.",
    ),
    run("sleep", PRESS, "In the pause between iterations."),
    run("wait", PRESS, "While a rate limit is waited for."),
];

/// Returns what the value at this path can be; `None` for a path that has no key of its own.
pub(super) fn kind_of(path: &[&str]) -> Option<Kind> {
    let find = |keys: &[Key], name| keys.iter().find(|key| key.name == name).map(|key| key.kind);
    match path {
        [name] => find(KEYS, *name),
        [table, name] => match find(KEYS, *table)? {
            Table(keys) => find(keys, *name),
            _ => None,
        },
        _ => None,
    }
}

/// Says why a key may not stand where it stands; a name that is none is for others to refuse.
pub(super) fn refuses(name: &str, place: Of, whose: Whose) -> Option<String> {
    let key = KEYS.iter().find(|key| key.name == name)?;
    match (key.of, place) {
        (Of::Run, Of::Phase) => Some(format!(
            "`{name}` is of the whole run: write it above the first [[phase]]"
        )),
        (Of::PhaseOnly, Of::Run) => Some(format!(
            "`{name}` is of a phase: write it below a [[phase]]"
        )),
        (Of::User, _) if whose == Whose::Project => Some(format!(
            "`{name}` is for your own file only: write it into ~/.config/rlm/config.toml"
        )),
        _ if key.project && whose == Whose::User => Some(of_projects(name)),
        _ => None,
    }
}

/// Says that a key is none of the user's.
pub(super) fn of_projects(name: &str) -> String {
    format!("`{name}` says what is to be done in one project: write it into its rlm.toml")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::values::{AcpSection, Config};
    use agent_drivers::{acp::AcpOptions, claude::ClaudeOptions, codex::CodexOptions};
    use rlm_terminal::PressActions;
    use serde::de::DeserializeOwned;

    /// All that a table can have, as the reader itself says it.
    fn read<T: DeserializeOwned>() -> Vec<String> {
        let Err(e) = toml::from_str::<T>("no-such-key = 1") else {
            panic!("it takes any key")
        };
        let mut names: Vec<_> = e
            .message()
            .split('`')
            .skip(1)
            .step_by(2)
            .skip(1)
            .map(str::to_owned)
            .collect();
        names.sort();
        names
    }

    fn listed(keys: &[Key]) -> Vec<&str> {
        let mut names: Vec<_> = keys.iter().map(|key| key.name).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_read_is_listed_and_nothing_else() {
        assert_eq!(listed(KEYS), read::<Config>());
        assert_eq!(listed(CLAUDE), read::<ClaudeOptions>());
        assert_eq!(listed(CODEX), read::<CodexOptions>());
        assert_eq!(listed(ACP), read::<AcpOptions>());
        assert_eq!(listed(ANY_ACP), read::<AcpSection>());
        assert_eq!(listed(PRESSES), read::<PressActions>());
    }

    #[test]
    fn the_words_of_a_choice_are_those_that_are_read() {
        for key in KEYS.iter().chain(PRESSES) {
            let (words, open, close) = match key.kind {
                OneOf(words) => (words, "", ""),
                SomeOf(words) => (words, "[", "]"),
                _ => continue,
            };
            let section = PRESSES.iter().any(|press| std::ptr::eq(press, key));
            let line = |word: &str| match section {
                true => format!("on-press.{} = \"{word}\"", key.name),
                false => format!("{} = {open}\"{word}\"{close}", key.name),
            };
            for word in words {
                toml::from_str::<Config>(&line(word)).unwrap();
            }
            let e = toml::from_str::<Config>(&line("no-such-word")).unwrap_err();
            let read: Vec<_> = e.message().split('`').skip(1).step_by(2).skip(1).collect();
            assert_eq!(read, *words, "{}", key.name);
        }
    }
}
