//! The configuration: the project's `rlm.toml` and the user's own file, below the command line and the environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::Read as _;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_drivers::mcp::McpServers;
use loop_state::Autonomy;
use rlm_store::{AcpOptions, ClaudeOptions, CodexOptions, Hidden, state_dir};
use rlm_terminal::PressActions;
use rlm_text::{bytes, duration, money};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

use crate::agents::AgentKind;
use crate::args::{LeftoversArg, PermissionsArg, SessionArg};
use crate::exit::Failure;
use crate::occasion::Occasion;

mod file;
mod keys;
mod layers;
mod schema;
mod show;
mod tree;
mod watch;

pub(crate) use file::{nearest, trust_safe_directories};
#[cfg(test)]
pub(crate) use keys::{KEYS, Kind};
pub(crate) use layers::{Layers, Phase, SHUTDOWN_TIMEOUT, defaults};
pub(crate) use schema::schema;
pub(crate) use show::{Group, Row, groups};
pub(crate) use tree::{Origin, Tree};
pub(crate) use watch::Watched;

pub(crate) const FILE_NAME: &str = "rlm.toml";
const MAX_MCP_BYTES: u64 = 1 << 20;

/// What `rlm init` writes.
pub(crate) const TEMPLATE: &str = r#"# Settings of `rlm run` in this project. Options on the command line win; `rlm config show --explain` says what counts.
# While a run goes on, its limits follow this file between iterations.

# prompt-file = "PROMPT.md"        # read anew for each iteration
# agent = "claude"                 # the agent that rlm drives
# permissions = "edits"            # or "ask", "all", "deny": what it may do
# session = "fresh"                # or "continue": its conversation from one iteration to the next
# model = "opus"
# agent-bin = "/usr/local/bin/claude"
# claude = { tools = ["Bash", "Edit", "Read"], max-turns = 50, append-system-prompt = "Write tests first." }
#                                  # also: fallback-model, effort, allowed-tools, disallowed-tools, system-prompt,
#                                  # setting-sources, settings, hooks (off: none runs), add-dirs, strict-mcp, env, env-allow
# codex = { effort = "high", append-system-prompt = "Write tests first." }
#                                  # also: system-prompt, config, analytics (off), env, env-allow
# gemini = { env = { GEMINI_CLI_TRUST_WORKSPACE = "true" } }   # also: auth-method, env-allow; opencode has the same
# acp = { program = ["claude-agent-acp"] }   # for agent = "acp": any that speaks it; also: auth-method, env, env-allow
# mcp-config = ".mcp.json"         # MCP servers of the project, and others; ${VARIABLE} is filled in at the start
# mcp-servers.tracker = { type = "stdio", command = "tracker-mcp", env = { TOKEN = "${TRACKER_TOKEN:-}" } }
# mcp-servers.docs = { type = "http", url = "http://localhost:8000/mcp" }
# command = ["my-agent", "run"]    # or any program; it gets the prompt on standard input
# until = "cargo test"             # done when this exits with 0
# completion-promise = "DONE"      # done when the agent says so; with until, that is asked then
# gates = ["cargo fmt --check"]    # must pass before an iteration counts
# max-iterations = 100
# max-duration = "8h"
# iteration-timeout = "1h"
# idle-timeout = "15m"
# check-timeout = "15m"
# background-wait = "30s"          # for what the agent has in the background, as long as something comes of it
# max-failures = 3
# max-cost = 5.00                  # US dollars, by the agent's own reckoning; for agents that say what they cost
# max-tokens = "2M"                # read and written; for agents that count them
# wait-on-limit = "6h"             # for rate limits; 0 ends the run instead
# sleep = "10s"
# autonomy = "checkpoint"          # your word between phases; or "batch:5" (iterations), "full" (never)
#                                  # of a pipeline in [[phase]] tables: `rlm init --preset plan-then-build` writes one
# leftovers = "end"                # or "keep": what the agent leaves running
# max-transcripts = "2GB"          # of disk for a run's older transcripts; beyond it the oldest lose something
# commit = true                    # a commit for each iteration that changed something
# worktree = true                  # each run in a tree and on a branch of its own
# notify = "notify-send \"$RLM_TEXT\""   # run when something happens; RLM_EVENT says what, standard input all of it in JSON
# notify-on = ["review", "question", "limit", "ended"]   # also: started, resumed, iteration, failure, phase, retry, paused
# heartbeat = ".rlm/heartbeat"     # a file that is written every 10 s as long as the loop turns
# bell = true                      # the terminal's bell when you are needed and at the end
# shutdown-timeout = "8s"          # how long a stop may take, all of it
# cooldown = "2s"                  # how long a Ctrl-C that nobody answered counts: another one within it stops
# on-press = { default = "prompt", sleep = "stop" }   # what Ctrl-C does in spawn, turn, gate, save, sleep, wait:
#                                  # prompt (the menu), continue, steer, stop, abort; without a terminal, stop
"#;

/// What one layer says, or all of them together; what is absent is `None`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Config {
    /// The name of a phase.
    pub(crate) name: Option<PhaseName>,
    pub(crate) prompt: Option<String>,
    pub(crate) prompt_file: Option<PathBuf>,
    pub(crate) agent: Option<AgentKind>,
    pub(crate) command: Option<Vec<String>>,
    pub(crate) agent_bin: Option<PathBuf>,
    pub(crate) permissions: Option<PermissionsArg>,
    pub(crate) session: Option<SessionArg>,
    pub(crate) model: Option<String>,
    pub(crate) completion_promise: Option<String>,
    pub(crate) until: Option<String>,
    pub(crate) gates: Option<Vec<String>>,
    pub(crate) max_iterations: Option<NonZeroU32>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) max_duration: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) iteration_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) idle_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) check_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) background_wait: Option<Duration>,
    pub(crate) max_failures: Option<u32>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) sleep: Option<Duration>,
    #[serde(default, deserialize_with = "money::cost_of_file")]
    pub(crate) max_cost: Option<u64>,
    #[serde(default, deserialize_with = "money::tokens_of_file")]
    pub(crate) max_tokens: Option<u64>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) wait_on_limit: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) shutdown_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    pub(crate) cooldown: Option<Duration>,
    pub(crate) autonomy: Option<Autonomy>,
    pub(crate) leftovers: Option<LeftoversArg>,
    #[serde(default, deserialize_with = "bytes::of_file")]
    pub(crate) max_transcripts: Option<u64>,
    pub(crate) commit: Option<bool>,
    pub(crate) worktree: Option<bool>,
    pub(crate) notify: Option<String>,
    pub(crate) notify_on: Option<Vec<Occasion>>,
    pub(crate) heartbeat: Option<PathBuf>,
    pub(crate) bell: Option<bool>,
    /// Of the user's own file only.
    #[serde(default)]
    pub(crate) safe_directories: Vec<PathBuf>,
    pub(crate) claude: Option<ClaudeOptions>,
    pub(crate) codex: Option<CodexOptions>,
    pub(crate) gemini: Option<AcpOptions>,
    pub(crate) opencode: Option<AcpOptions>,
    pub(crate) acp: Option<AcpSection>,
    pub(crate) mcp_config: Option<PathBuf>,
    #[serde(default)]
    pub(crate) mcp_servers: McpServers,
    #[serde(default)]
    pub(crate) on_press: PressActions,
}

impl Config {
    /// Returns whether the file's `model` and `agent-bin` are meant for this agent: it names no other.
    pub(crate) fn speaks_of(&self, kind: AgentKind) -> bool {
        self.agent.is_none_or(|named| named == kind)
    }

    pub(crate) fn command(&self) -> Option<Vec<OsString>> {
        let words = self.command.as_ref()?;
        Some(words.iter().map(Into::into).collect())
    }
}

/// The name of a phase: short, and plain enough to be shown and to be a part of a file's name.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct PhaseName(pub(crate) String);

impl TryFrom<String> for PhaseName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        match begins && text.len() <= 32 && text.chars().all(is_plain) {
            true => Ok(Self(text)),
            false => Err(
                "a phase's name has 1 to 32 letters, digits, `.`, `_` and `-`, and begins with a letter or digit",
            ),
        }
    }
}

/// An agent that is known by its program only.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct AcpSection {
    program: Vec<String>,
    auth_method: Option<String>,
    env: Hidden<BTreeMap<String, String>>,
    env_allow: Option<Vec<String>>,
}

impl AcpSection {
    /// Returns the program and the arguments that make it speak the protocol; empty if the file does not say.
    pub(crate) fn program(&self, root: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = self.program.iter().map(Into::into).collect();
        if let Some(first) = words.first_mut()
            && Path::new(first).components().count() > 1
        {
            *first = root.join(&*first).into();
        }
        words
    }

    pub(crate) fn options(self) -> AcpOptions {
        AcpOptions {
            auth_method: self.auth_method,
            env: self.env,
            env_allow: self.env_allow,
        }
    }
}

/// A duration is text as on the command line, or a whole number of seconds.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    struct Time;
    impl Visitor<'_> for Time {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration such as \"90s\" or \"1h30m\", or a whole number of seconds")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
            duration::parse(text).map_err(E::custom)
        }

        fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Duration, E> {
            self.visit_str(&seconds.to_string())
        }
    }
    deserializer.deserialize_any(Time).map(Some)
}

/// Reads a variable of the environment.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|text| text.to_string_lossy().into_owned())
}

/// Reads the MCP servers of a project.
pub(crate) fn read_mcp(path: &Path) -> Result<McpServers, Failure> {
    let shown = path.display();
    let Some(text) = content(path, MAX_MCP_BYTES)? else {
        let what =
            format!("`{shown}` is not there; write it, or take mcp-config out of {FILE_NAME}");
        return Err(Failure::usage(what));
    };
    McpServers::from_json(&text).map_err(|e| Failure::usage(format!("`{shown}`, {e}")))
}

/// Reads a whole file; `None` if there is none.
fn content(path: &Path, most: u64) -> Result<Option<String>, Failure> {
    let refuse = |why: String| Err(Failure::usage(format!("`{}` {why}", path.display())));
    let file = match state_dir::open_named(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Ok(None) => return refuse("is not a file; move it away".into()),
        Ok(Some(file)) => Ok(file),
        Err(e) => Err(e),
    };
    let read = file.and_then(|file| {
        let bytes = file.metadata()?.len();
        let mut text = String::new();
        if bytes > most {
            return Ok((bytes, text));
        }
        let read = file.take(most + 1).read_to_string(&mut text)?;
        Ok((read as u64, text))
    });
    match read {
        Ok((bytes, _)) if bytes > most => {
            refuse(format!("has {bytes} bytes; at most {most} are read"))
        }
        Ok((_, text)) => Ok(Some(text)),
        Err(e) => refuse(format!(
            "can't be read: {}; mend it or move it away",
            e.kind()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::file::{File, Whose};
    use super::*;

    fn error(text: &str) -> String {
        File::parse(Path::new("rlm.toml"), text, Whose::Project).unwrap_err()
    }

    /// The template with its settings on.
    pub(super) fn template_on() -> String {
        let on = |line: &str| {
            let line = line.strip_prefix("# ").filter(|line| line.contains('='));
            format!("{}\n", line.unwrap_or_default())
        };
        TEMPLATE.lines().map(on).collect()
    }

    #[test]
    fn the_template_is_valid_as_it_is_and_with_its_settings_on() {
        toml::from_str::<Config>(TEMPLATE).unwrap();
        let on = template_on();
        let config: Config = toml::from_str(&on).unwrap();
        assert_eq!(config.sleep, Some(Duration::from_secs(10)));
        assert_eq!(config.gates, Some(vec!["cargo fmt --check".into()]));
        assert_eq!(config.mcp_servers.names().count(), 2);
        assert_eq!(config.claude.unwrap().tools.unwrap().len(), 3);
    }

    #[test]
    fn x117a_a_mistake_is_named_with_its_place() {
        let errors = [
            error("until = \"make\"\nsleeep = 3\n"),
            error("sleep = \"soon\"\n"),
            error("sleep = 1.5\n"),
            error("max-iterations = 0\n"),
            error("\nmax-iterations = -1\n"),
            error("until = \n"),
            error("agent = \"gpt\"\n"),
            error("agent = \"cluade\"\n"),
            error("[claude]\nmax_turns = 3\n"),
            error("[on-press]\nturns = \"stop\"\n"),
            error("weather = \"fine\"\n"),
        ];
        insta::assert_snapshot!(errors.join("\n"));
    }

    #[test]
    fn x118e_a_mistake_shows_no_value_wherever_it_stands() {
        for text in [
            "mcp-servers.a.args = [\n  \"x\",\n  5318008,\n]\n",
            "['mcp-servers'.a]\ncommand = 5318008\n",
            "[ \"mcp-servers\" . a ]\ncommand = 5318008\n",
            "['claude']\neffort = 5318008\n",
            "\"claude\".env.A = 5318008\n",
            "claude = { env = { A = 5318008 } }\n",
            "[claude]\nsettings = { a = [\n  '[x]' ] }\neffort = [\n \"5318008\"]\n",
            "[claude.env]\nA = 'x'\nB = \"\"\"\n[x]\n\"\"\"\nC = 5318008\n",
            "\"mcp\\u002dservers\".a.command = 5318008\n",
            "[claude]\nenv = { A = \"5318008 }\n",
            "[claude]\nenv = { A = 5318008x }\n",
            "[claude]\nmax-turns = 0x5318008FFFFFFFFFFFFFF\n",
            "[codex]\nconfig = 5318008\n",
            "codex = { env = { A = 5318008 } }\n",
            "[gemini.env]\nA = 5318008\n",
            "[acp]\nprogram = 5318008\n",
        ] {
            let error = error(text);
            assert!(
                !error.contains("5318008") && error.contains(", line "),
                "{text}{error}"
            );
        }
        let other = error("[claude]\nhooks = true\n[on-press]\ndefault = 7\n");
        assert!(other.contains("line 4"), "{other}");
    }

    #[test]
    fn l95b_servers_keep_their_order() {
        let text = "[mcp-servers.zeta]\ncommand = \"z\"\n[mcp-servers.alpha]\ncommand = \"a\"\n";
        let config: Config = toml::from_str(text).unwrap();
        assert_eq!(
            config.mcp_servers.names().collect::<Vec<_>>(),
            ["zeta", "alpha"]
        );
    }
}
