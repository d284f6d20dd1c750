//! The configuration: the project's `rlm.toml` and the user's own file, below the command line and the environment.

mod agent;
mod file;
mod keys;
mod layers;
mod schema;
mod settings;
mod show;
mod tree;
mod values;
mod watch;

pub(crate) use agent::agent;
pub(crate) use file::{FILE_NAME, api_server, nearest, read_mcp, trust_safe_directories, variable};
pub(crate) use layers::{Layers, Phase, defaults};
pub(crate) use schema::schema;
pub(crate) use settings::{
    Config, DEFAULT_IDLE_TIMEOUT, DEFAULT_PROMPT, LIMITS, SHUTDOWN_TIMEOUT, limit_names,
};
pub(crate) use show::{EffectiveValue, SettingsGroup, groups};
pub(crate) use tree::{SettingsTree, ValueOrigin};
pub(crate) use values::{NotifyChannel, NotifyEvent, Webhook, WebhookPreset, one_of};
pub(crate) use watch::WatchedConfig;
#[cfg(test)]
pub(crate) use {keys::ValueKind, settings::KEYS};

/// The file that `rlm init` writes.
pub(crate) const TEMPLATE: &str = r#"# Settings of `rlm run` in this project. Options override them; `rlm config show --explain` prints each source.
# After each turn and each wait, a live run reads this file again; the file can only lower its limits.

# prompt-file = "PROMPT.md"        # read again for each iteration
# agent = "claude"                 # the agent
# permissions = "edits"            # or "ask", "all", "deny": what the agent may do
# session = "fresh"                # or "continue": the agent's session of the last iteration
# model = "opus"
# agent-bin = "/usr/local/bin/claude"
# claude = { tools = ["Bash", "Edit", "Read"], max-turns = 50, append-system-prompt = "Write tests first." }
#                                  # also: fallback-model, effort, allowed-tools, disallowed-tools, system-prompt,
#                                  # setting-sources, settings, hooks (off by default), add-dirs, strict-mcp, env, env-allow
# codex = { effort = "high", append-system-prompt = "Write tests first." }
#                                  # also: system-prompt, config, analytics (off by default), env, env-allow
# api = { context-window = 32768, append-system-prompt = "Write tests first." }   # for agent = "api", the agent of rlm itself
#                                  # also: max-output-tokens, effort, system-prompt, tools, report-cost, mcp-timeout, env;
#                                  # its server: docs/agents/api.md
# gemini = { env = { GEMINI_CLI_TRUST_WORKSPACE = "true" } }   # also: auth-method, env-allow; opencode has the same
# acp = { program = ["claude-agent-acp"] }   # for agent = "acp": any agent that speaks the protocol; also: auth-method, env, env-allow
# mcp-config = ".mcp.json"         # more MCP servers; rlm replaces ${VARIABLE} when the agent starts
# mcp-servers.tracker = { type = "stdio", command = "tracker-mcp", env = { TOKEN = "${TRACKER_TOKEN:-}" } }
# mcp-servers.docs = { type = "http", url = "http://localhost:8000/mcp" }
# command = ["my-agent", "run"]    # any program as the agent; it gets the prompt on standard input
# title = "fix the parser"         # a short name of the run, which rlm status and rlm ps show
# until = "cargo test"             # the check: finished when it exits with 0
# completion-promise = "DONE"      # finished when the agent promises this; with until, the check then decides
# gates = ["cargo fmt --check"]    # required checks: must pass before an iteration counts
# no-first-check = false           # true: no check before the first iteration
# max-iterations = 100
# max-duration = "8h"
# iteration-timeout = "1h"
# idle-timeout = "15m"
# check-timeout = "15m"
# background-wait = "30s"          # for background tasks that show no progress after a turn
# max-failures = 3
# max-cost = 5.00                  # US dollars, as reported by the agent
# max-tokens = "2M"                # input and output, as reported by the agent
# wait-on-limit = "6h"             # for rate limits and outages; 0 ends the run instead
# sleep = "10s"
# autonomy = "checkpoint"          # a review between phases; or "batch:5" (after each 5 iterations), "full" (never)
#                                  # for pipelines in [[phase]] tables: `rlm init --preset plan-then-build` writes one
# leftovers = "end"                # or "keep": processes that the agent leaves running
# max-transcripts = "2GB"          # a limit for a run's older transcripts; above it, the oldest lose content
# commit = true                    # a commit for each iteration that changed something
# worktree = true                  # each run in its own worktree and branch
# notify = ["desktop", "bell", "command:mail -s \"$RLM_TEXT\" me"]   # also: webhook, which your own file defines
# notify-on = ["review", "permission", "limit", "done", "stuck", "stopped", "failed"]
#                                  # also: started, resumed, iteration, iteration-failed, phase, retry, paused
# heartbeat = ".rlm/heartbeat"     # rlm writes this file every 10 s as long as the loop works
# keep-awake = true                # the computer doesn't go to sleep while a run lives
# shutdown-timeout = "8s"          # the stop budget: the time for a whole stop
# cooldown = "2s"                  # how long an unanswered Ctrl-C counts: another one within it stops
# debounce = "30ms"                # Ctrl-C several times within this time is one; at most 1 s
# on-press = { default = "prompt", sleep = "stop" }   # what Ctrl-C does in spawn, turn, gate, save, sleep, wait:
#                                  # prompt (the menu), continue, steer, stop, abort; without a terminal, stop
"#;

#[cfg(test)]
mod tests {
    use super::file::File;
    use super::keys::{FileOwner, KeyScope};
    use super::*;
    use std::path::Path;
    use std::time::Duration;

    fn error(text: &str) -> String {
        File::parse(Path::new("rlm.toml"), text, FileOwner::Project).unwrap_err()
    }

    /// The template without its comment signs.
    pub(super) fn template_on() -> String {
        let on = |line: &str| {
            let line = line.strip_prefix("# ").filter(|line| line.contains('='));
            format!("{}\n", line.unwrap_or_default())
        };
        TEMPLATE.lines().map(on).collect()
    }

    #[test]
    fn template_is_valid_with_and_without_its_commented_settings() {
        toml::from_str::<Config>(TEMPLATE).unwrap();
        let on = template_on();
        let config: Config = toml::from_str(&on).unwrap();
        assert_eq!(config.sleep, Some(Duration::from_secs(10).into()));
        assert_eq!(config.gates, Some(vec!["cargo fmt --check".into()]));
        assert_eq!(config.mcp_servers.unwrap().names().count(), 2);
        assert_eq!(config.claude.unwrap().tools.unwrap().len(), 3);
    }

    #[test]
    fn the_template_names_every_setting_of_a_project() {
        // The template has `prompt-file` instead of `prompt`. It omits `opencode`, whose options are those of `gemini`.
        let elsewhere = ["prompt", "opencode"];
        let named = |key: &str| {
            let mut lines = TEMPLATE.lines().filter_map(|line| line.strip_prefix("# "));
            lines
                .any(|line| { line.strip_prefix(key) }.is_some_and(|it| it.starts_with([' ', '.'])))
        };
        let of_projects =
            { KEYS.iter() }.filter(|key| matches!(key.scope, KeyScope::Run | KeyScope::Phase));
        let missing = { of_projects.map(|key| key.name) }.filter(|key| !named(key));
        assert_eq!(missing.collect::<Vec<_>>(), elsewhere);
    }

    /// A file of a project can set the debounce, so its limit keeps Ctrl-C working.
    #[test]
    fn too_long_debounce_is_refused() {
        let refused = error("debounce = '1001ms'\n");
        assert!(refused.contains("a debounce is at most 1s"), "{refused}");
        let accepted: Config = toml::from_str("debounce = 1\n").unwrap();
        let debounce = accepted.debounce.map(Duration::from);
        assert_eq!(debounce, Some(Duration::from_secs(1)));
    }

    #[test]
    fn x117a_error_names_its_place() {
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
    fn x118e_error_shows_no_value_at_any_place() {
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
    fn error_about_a_webhook_shows_no_value() {
        for text in [
            "[[webhook]]\nurl = 5318008\n",
            "webhook = \"https://5318008/\"\n",
            "webhook = [\"https://5318008/\"]\n",
            "[[webhook]]\nurl = \"https://5318008/\"\ntoken = \"5318008\"\n",
            "[[webhook]]\nurl = \"https://5318008/\"\ntoken-variable = 5318008\n",
            "[webhook]\nurl = \"https://5318008/\"\n",
        ] {
            let path = Path::new("config.toml");
            let error = File::parse(path, text, FileOwner::User).unwrap_err();
            assert!(
                !error.contains("5318008") && error.contains(", line "),
                "{text}{error}"
            );
        }
    }

    #[test]
    fn l95b_servers_keep_their_order() {
        let text = "[mcp-servers.zeta]\ncommand = \"z\"\n[mcp-servers.alpha]\ncommand = \"a\"\n";
        let config: Config = toml::from_str(text).unwrap();
        assert_eq!(
            config.mcp_servers.unwrap().names().collect::<Vec<_>>(),
            ["zeta", "alpha"]
        );
    }
}
