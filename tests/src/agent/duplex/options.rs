//! The command line of the imitated CLI: as strict as the real one, so that a misspelt option of a driver fails.

use std::path::PathBuf;

const SWITCHES: [&str; 10] = [
    "-p",
    "--print",
    "--verbose",
    "--include-partial-messages",
    "--replay-user-messages",
    "--dangerously-skip-permissions",
    "--allow-dangerously-skip-permissions",
    "--strict-mcp-config",
    "--include-hook-events",
    "--fork-session",
];
const VALUES: [&str; 24] = [
    "--record",
    "--script",
    "--input-format",
    "--output-format",
    "--session-id",
    "--resume",
    "--permission-mode",
    "--permission-prompt-tool",
    "--model",
    "--fallback-model",
    "--effort",
    "--max-turns",
    "--max-budget-usd",
    "--append-system-prompt",
    "--system-prompt",
    "--allowedTools",
    "--disallowedTools",
    "--tools",
    "--mcp-config",
    "--settings",
    "--setting-sources",
    "--system-prompt-file",
    "--append-system-prompt-file",
    "--add-dir",
];
pub(super) const MODES: [&str; 6] = [
    "acceptEdits",
    "auto",
    "bypassPermissions",
    "default",
    "dontAsk",
    "plan",
];

/// The options of the command line.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) record: PathBuf,
    pub(super) script: PathBuf,
    pub(super) session: Option<String>,
    pub(super) resume: Option<String>,
    pub(super) mode: String,
    pub(super) model: String,
    /// Whether to send deltas.
    pub(super) partial: bool,
    /// Whether to echo messages when a turn takes them.
    pub(super) replay: bool,
    /// Whether permission requests go to the client.
    pub(super) asks: bool,
}

/// Returns whether this command line starts a conversation.
pub(super) fn are_for_a_conversation(argv: &[String]) -> bool {
    let joined = argv.iter().any(|word| word == "--input-format=stream-json");
    let pairs = argv.windows(2);
    joined
        || pairs
            .into_iter()
            .any(|pair| pair == ["--input-format", "stream-json"])
}

impl Options {
    /// Parses the arguments after the program's name.
    pub(super) fn parse(argv: &[String]) -> Result<Self, String> {
        let mut options = Self {
            record: std::env::var_os("FAKE_AGENT_RECORD")
                .unwrap_or_default()
                .into(),
            script: std::env::var_os("FAKE_AGENT_SCRIPT")
                .unwrap_or_default()
                .into(),
            mode: "default".into(),
            model: "claude-fake-1".into(),
            ..Self::default()
        };
        let (mut output, mut verbose) = (String::new(), false);
        let mut words = argv.iter();
        while let Some(word) = words.next() {
            let (name, joined) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (word.as_str(), None),
            };
            if SWITCHES.contains(&name) && joined.is_none() {
                match name {
                    "--verbose" => verbose = true,
                    "--include-partial-messages" => options.partial = true,
                    "--replay-user-messages" => options.replay = true,
                    "--dangerously-skip-permissions" => options.mode = "bypassPermissions".into(),
                    _ => {}
                }
                continue;
            }
            if !VALUES.contains(&name) {
                return Err(format!("error: unknown option '{word}'"));
            }
            let value = joined.or_else(|| words.next().cloned());
            let value = value.ok_or_else(|| format!("error: option '{name}' argument missing"))?;
            match name {
                "--record" => options.record = value.into(),
                "--script" => options.script = value.into(),
                "--output-format" => output = value,
                "--session-id" => options.session = Some(value),
                "--resume" => options.resume = Some(value),
                "--permission-mode" => options.mode = value,
                "--permission-prompt-tool" => options.asks = value == "stdio",
                "--model" => options.model = value,
                _ => {}
            }
        }
        options.check(&output, verbose)?;
        Ok(options)
    }

    fn check(&self, output: &str, verbose: bool) -> Result<(), String> {
        if output != "stream-json" || !verbose {
            return Err(
                "Error: When using --print, --output-format=stream-json requires --verbose".into(),
            );
        }
        if self.session.is_some() && self.resume.is_some() {
            return Err("Error: --session-id can only be used with --continue or --resume if --fork-session is also specified.".into());
        }
        if !MODES.contains(&self.mode.as_str()) {
            return Err(format!(
                "error: option '--permission-mode <mode>' argument '{}' is invalid.",
                self.mode
            ));
        }
        let ids = [&self.session, &self.resume];
        if ids
            .into_iter()
            .flatten()
            .any(|id| uuid::Uuid::parse_str(id).is_err())
        {
            return Err("Error: Invalid session ID. Must be a valid UUID.".into());
        }
        Ok(())
    }
}
