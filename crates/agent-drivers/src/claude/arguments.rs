//! The command line of an agent, made from its options. No argument contains a user's text or a secret: private files hold those.

use super::options::ClaudeOptions;
use super::protocol::mode;
use crate::choices::Choices;
use crate::convert::not_started;
use agent_duplex::{Error, Permissions, SessionChoice};
use agent_subprocess::ScratchFile;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The longest argument that Linux accepts, with its final zero byte.
const MAX_ARG: usize = 128 << 10;

/// The arguments that the driver sets itself. If the caller repeated one, the agent would decide which of the two applies.
const DRIVER_FLAGS: [&str; 8] = [
    "--session-id",
    "--resume",
    "-r",
    "--continue",
    "-c",
    "--fork-session",
    "--input-format",
    "--output-format",
];

/// The arguments for permissions. They are refused, because they would silently override the option `permissions`.
const PERMISSIONS: [&str; 5] = [
    "--dangerously-skip-permissions",
    "--allow-dangerously-skip-permissions",
    "--permission-mode",
    "--permission-prompt-tool",
    "--permission-prompts",
];

/// The variables of the host's environment that this agent needs besides those that every agent needs.
pub(super) const REQUIRED_ENV: [&str; 3] = ["ANTHROPIC_*", "CLAUDE_*", "IS_SANDBOX"];

/// The driver's arguments, and the files that they name.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) words: Vec<OsString>,
    pub(super) files: Vec<ScratchFile>,
}

impl Arguments {
    /// Composes the arguments, and writes the files into `scratch`. `variable` looks up the environment variables of MCP servers.
    pub(super) fn compose(
        options: &ClaudeOptions,
        choices: &Choices,
        session: &SessionChoice,
        id: &str,
        scratch: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        options.check()?;
        let mut all = Arguments::default();
        for word in ["-p", "--input-format", "stream-json", "--output-format"] {
            all.push_arg(word);
        }
        for word in ["stream-json", "--verbose", "--include-partial-messages"] {
            all.push_arg(word);
        }
        all.push_arg("--replay-user-messages");
        match session {
            SessionChoice::Resume(id) => all.push_flag_value("--resume", id),
            SessionChoice::Fork(from) => {
                all.push_flag_value("--resume", from);
                all.push_arg("--fork-session");
                all.push_flag_value("--session-id", id);
            }
            _ => all.push_flag_value("--session-id", id),
        }
        all.push_arg("--permission-prompt-tool");
        all.push_arg("stdio");
        if choices.permissions == Permissions::All {
            all.push_arg("--dangerously-skip-permissions");
        } else {
            all.push_arg("--permission-mode");
            all.push_arg(mode(choices.permissions));
        }
        let turns = options.max_turns.map(|turns| turns.to_string());
        let named = [
            ("--model", &choices.model),
            ("--fallback-model", &options.fallback_model),
            ("--effort", &options.effort),
            ("--max-turns", &turns),
        ];
        for (flag, value) in named {
            value
                .iter()
                .for_each(|value| all.push_flag_value(flag, value));
        }
        let lists = [
            ("--tools", options.tools.as_deref()),
            ("--allowedTools", some(&options.allowed_tools)),
            ("--disallowedTools", some(&options.disallowed_tools)),
            ("--setting-sources", options.setting_sources.as_deref()),
        ];
        for (flag, list) in lists {
            list.iter()
                .for_each(|list| all.push_flag_value(flag, list.join(",")));
        }
        for directory in &options.add_dirs {
            all.push_flag_value("--add-dir", directory);
        }
        all.files(options, choices, scratch, variable)?;
        all.append_args(&choices.args)?;
        Ok(all)
    }

    fn files(
        &mut self,
        options: &ClaudeOptions,
        choices: &Choices,
        scratch: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<(), Error> {
        let mut settings = options.settings.0.clone();
        if !options.hooks {
            settings.insert("disableAllHooks".to_owned(), Value::Bool(true));
        }
        if !settings.is_empty() {
            let json = Value::Object(settings).to_string();
            self.file("--settings", scratch, "settings", "json", &json)?;
        }
        let prompts = [
            ("--system-prompt-file", &options.system_prompt),
            ("--append-system-prompt-file", &options.append_system_prompt),
        ];
        for (flag, text) in prompts {
            if let Some(text) = text {
                self.file(flag, scratch, "system-prompt", "md", text)?;
            }
        }
        if options.strict_mcp {
            self.push_arg("--strict-mcp-config");
        }
        if !choices.mcp_servers.is_empty() {
            let servers = choices
                .mcp_servers
                .expanded(variable)
                .map_err(not_started)?;
            let json = servers.to_json().map_err(not_started)?;
            self.file("--mcp-config", scratch, "mcp", "json", &json)?;
        }
        Ok(())
    }

    /// Appends the caller's own arguments, unless one repeats an argument of the driver.
    fn append_args(&mut self, args: &[OsString]) -> Result<(), Error> {
        let own_flags: Vec<String> = { self.words.iter() }
            .filter_map(|word| flag(word))
            .collect();
        for arg in args {
            let given = flag(arg).unwrap_or_default();
            let hint = if PERMISSIONS.contains(&given.as_str()) {
                "use --permissions instead"
            } else if given == "--settings" && own_flags.contains(&given) {
                "use the `settings` option, or enable hooks"
            } else if DRIVER_FLAGS.contains(&given.as_str()) || own_flags.contains(&given) {
                "remove it from the agent's extra arguments"
            } else {
                continue;
            };
            let arg = given.escape_debug();
            let what = format!("the driver sets `{arg}` itself: {hint}");
            return Err(Error::start(what, None));
        }
        self.words.extend_from_slice(args);
        match self.words.iter().find(|word| word.len() >= MAX_ARG) {
            None => Ok(()),
            Some(word) => {
                let name = flag(word).unwrap_or_else(|| "an argument".to_owned());
                let what = format!("{name} of the agent is {} bytes long", word.len());
                let hint = "one argument must be shorter than 128 KiB; pass it in a file";
                Err(Error::start(format!("{what}: {hint}"), None))
            }
        }
    }

    fn push_arg(&mut self, word: &str) {
        self.words.push(word.into());
    }

    /// Joins a value to its flag with `=`, so that the agent never reads the value as another flag.
    fn push_flag_value(&mut self, flag: &str, value: impl AsRef<OsStr>) {
        let mut word = OsString::from(flag);
        word.push("=");
        word.push(value);
        self.words.push(word);
    }

    fn file(
        &mut self,
        flag: &str,
        scratch: &Path,
        what: &str,
        extension: &str,
        text: &str,
    ) -> Result<(), Error> {
        let file = ScratchFile::write(scratch, what, extension, text.as_bytes());
        let file = file.map_err(|e| {
            let place = scratch.display();
            let what = format!("can't write the agent's {what} to {place}: {e}");
            let hint = "free space there or fix its permissions";
            Error::start(format!("{what}; {hint}"), Some(e.into()))
        })?;
        self.push_flag_value(flag, file.path());
        self.files.push(file);
        Ok(())
    }
}

fn some(list: &[String]) -> Option<&[String]> {
    (!list.is_empty()).then_some(list)
}

/// Returns the name of the flag, if the argument is a flag.
fn flag(word: &OsStr) -> Option<String> {
    let word = word.to_string_lossy();
    let flag = word.split('=').next().unwrap_or_default();
    flag.starts_with('-').then(|| flag.to_owned())
}

impl ClaudeOptions {
    /// Refuses tools, rules and other names that the agent would split at commas and spaces, and variable names that the system would split.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.environment().check()?;
        let rules = [
            ("allowed tool", &self.allowed_tools),
            ("disallowed tool", &self.disallowed_tools),
        ];
        let tools = self.tools.iter().flatten().find(|tool| !is_name(tool));
        let bad_rule = rules.iter().find_map(|(what, rules)| {
            let rule = rules.iter().find(|rule| !is_rule(rule))?;
            Some((*what, rule))
        });
        let is_source = |source: &&String| ["user", "project", "local"].contains(&source.as_str());
        let source = { self.setting_sources.iter().flatten() }.find(|source| !is_source(source));
        let effort = self.effort.as_ref().filter(|effort| !is_name(effort));
        let (what, text, hint) = if let Some(tool) = tools {
            ("tool", tool, "name one tool, such as Bash")
        } else if let Some((what, rule)) = bad_rule {
            (
                what,
                rule,
                "name one tool, or a rule such as Bash(git log:*)",
            )
        } else if let Some(source) = source {
            ("setting source", source, "use user, project or local")
        } else if let Some(effort) = effort {
            (
                "effort",
                effort,
                "use one of the agent's levels, such as high",
            )
        } else {
            return Ok(());
        };
        let text = text.escape_debug();
        Err(Error::start(
            format!("`{text}` is not a valid {what}: {hint}"),
            None,
        ))
    }
}

fn is_name(text: &str) -> bool {
    let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !text.is_empty() && !text.starts_with('-') && text.chars().all(is_good)
}

/// Whether `text` is a tool's name, perhaps with a pattern for its arguments in parentheses.
fn is_rule(text: &str) -> bool {
    let (name, inside) = match text.split_once('(') {
        Some((name, rest)) => (name, rest.strip_suffix(')')),
        None => (text, Some("")),
    };
    let is_plain =
        |inside: &str| !inside.contains(['(', ')']) && !inside.contains(char::is_control);
    is_name(name.trim_end_matches('*')) && inside.is_some_and(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claude::ClaudeDriver;
    use agent_subprocess::ProcessContext;
    use proptest::prelude::*;

    fn composed(driver: &ClaudeDriver) -> Result<Vec<String>, String> {
        let scratch = tempfile::tempdir().unwrap();
        let fresh = SessionChoice::Fresh;
        let all = Arguments::compose(
            &driver.options,
            &driver.choices,
            &fresh,
            "id",
            scratch.path(),
            |_| None,
        );
        let words = all.map_err(|e| e.to_string())?.words;
        Ok(words
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect())
    }

    fn unnamed() -> ClaudeDriver {
        ClaudeDriver::new(Vec::new(), ProcessContext::new("", ""))
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn p31c_p31d_p31e_values_that_would_split_are_refused() {
        let with = |change: &dyn Fn(&mut ClaudeDriver)| {
            let mut driver = unnamed();
            change(&mut driver);
            composed(&driver).unwrap_err()
        };
        let errors = [
            with(&|o| o.options.tools = Some(texts(&["Bash", "Edit,Write"]))),
            with(&|o| o.options.tools = Some(texts(&[""]))),
            with(&|o| o.options.tools = Some(texts(&["--dangerously-skip-permissions"]))),
            with(&|o| o.options.allowed_tools = texts(&["Bash(ls) Bash"])),
            with(&|o| o.options.disallowed_tools = texts(&["Bash(a),Write(b)"])),
            with(&|o| o.options.allowed_tools = texts(&["Bash(ls"])),
            with(&|o| o.options.setting_sources = Some(texts(&["usr"]))),
            with(&|o| o.options.effort = Some("high low".to_owned())),
            with(&|o| o.choices.args = vec!["--settings=x".into()]),
            with(&|o| o.choices.args = vec![format!("--betas={}", "x".repeat(MAX_ARG)).into()]),
            with(&|o| {
                o.options.tools = Some(texts(&["Bash"]));
                o.choices.args = texts(&["--tools", "Write"])
                    .into_iter()
                    .map(Into::into)
                    .collect();
            }),
        ];
        insta::assert_snapshot!(errors.join("\n"), @r"
        `Edit,Write` is not a valid tool: name one tool, such as Bash
        `` is not a valid tool: name one tool, such as Bash
        `--dangerously-skip-permissions` is not a valid tool: name one tool, such as Bash
        `Bash(ls) Bash` is not a valid allowed tool: name one tool, or a rule such as Bash(git log:*)
        `Bash(a),Write(b)` is not a valid disallowed tool: name one tool, or a rule such as Bash(git log:*)
        `Bash(ls` is not a valid allowed tool: name one tool, or a rule such as Bash(git log:*)
        `usr` is not a valid setting source: use user, project or local
        `high low` is not a valid effort: use one of the agent's levels, such as high
        the driver sets `--settings` itself: use the `settings` option, or enable hooks
        --betas of the agent is 131080 bytes long: one argument must be shorter than 128 KiB; pass it in a file
        the driver sets `--tools` itself: remove it from the agent's extra arguments
        ");
    }

    #[test]
    fn p31a_allowed_names_are_accepted() {
        let mut driver = unnamed().options(ClaudeOptions {
            tools: Some(Vec::new()),
            allowed_tools: texts(&["Bash(git log:*)", "mcp__docs__*", "Read"]),
            setting_sources: Some(texts(&["project", "local"])),
            hooks: true,
            ..ClaudeOptions::default()
        });
        let words = composed(&driver).unwrap();
        let tail = words[words.len() - 3..].join(" | ");
        insta::assert_snapshot!(tail, @"--tools= | --allowedTools=Bash(git log:*),mcp__docs__*,Read | --setting-sources=project,local");
        driver.options.hooks = false;
        let words = composed(&driver).unwrap();
        assert!(
            words.last().unwrap().starts_with("--settings=/"),
            "{words:?}"
        );
    }

    proptest! {
        #[test]
        fn p31c_accepted_rule_is_one_rule_for_the_agent(rule: String) {
            // The agent splits at commas and spaces outside of parentheses.
            let mut depth = 0_i32;
            let parts = rule.split(|c: char| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                depth <= 0 && (c == ',' || c.is_whitespace())
            });
            if is_rule(&rule) {
                prop_assert_eq!(parts.count(), 1);
                prop_assert!(!rule.starts_with('-'));
            }
        }
    }
}
