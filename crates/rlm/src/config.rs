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
pub(crate) use file::{FILE_NAME, nearest, read_mcp, trust_safe_directories, variable};
pub(crate) use layers::{Layers, Phase, defaults};
pub(crate) use schema::schema;
pub(crate) use settings::{
    Config, DEFAULT_IDLE_TIMEOUT, DEFAULT_PROMPT, LIMITS, SHUTDOWN_TIMEOUT, limit_names,
};
pub(crate) use show::{Group, Row, groups};
pub(crate) use tree::{Origin, Tree};
pub(crate) use values::{Occasion, one_of};
pub(crate) use watch::Watched;
#[cfg(test)]
pub(crate) use {keys::Kind, settings::KEYS};

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
# title = "fix the parser"         # a short name of the run, which rlm status and rlm ps show
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

#[cfg(test)]
mod tests {
    use super::file::File;
    use super::keys::{Of, Whose};
    use super::*;
    use std::path::Path;
    use std::time::Duration;

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
        assert_eq!(config.sleep, Some(Duration::from_secs(10).into()));
        assert_eq!(config.gates, Some(vec!["cargo fmt --check".into()]));
        assert_eq!(config.mcp_servers.unwrap().names().count(), 2);
        assert_eq!(config.claude.unwrap().tools.unwrap().len(), 3);
    }

    #[test]
    fn the_template_names_every_setting_of_a_project() {
        // A text in place of the file that the template names, and an agent with the options of the one before it.
        let elsewhere = ["prompt", "opencode"];
        let named = |key: &str| {
            let mut lines = TEMPLATE.lines().filter_map(|line| line.strip_prefix("# "));
            lines
                .any(|line| { line.strip_prefix(key) }.is_some_and(|it| it.starts_with([' ', '.'])))
        };
        let of_projects = { KEYS.iter() }.filter(|key| matches!(key.of, Of::Run | Of::Phase));
        let missing = { of_projects.map(|key| key.name) }.filter(|key| !named(key));
        assert_eq!(missing.collect::<Vec<_>>(), elsewhere);
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
            config.mcp_servers.unwrap().names().collect::<Vec<_>>(),
            ["zeta", "alpha"]
        );
    }
}
