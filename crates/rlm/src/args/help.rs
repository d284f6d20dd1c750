//! What stands below the options of those commands whose own files don't say it.

use crate::exit::Code;

const EXAMPLES: &str = "\
Examples:
  rlm demo                      see it work: no account, no network
  rlm doctor                    the agents that are here, and what they can
  rlm init                      write rlm.toml, PROMPT.md; --preset: a pipeline
  rlm run --until 'cargo test'  the installed agent, until the tests pass
  rlm run --until 'cargo test' --agent claude --permissions all --max-cost 20
  rlm run --until 'cargo test' --detach    in the background; then: rlm attach
  rlm run -n 5 -p 'Improve the docs' -- codex exec -    any command
  rlm status                    where it stands
  rlm checkpoints list          what is saved, and whether it is sound
  rlm resume                    go on after Ctrl-C, a crash, a reboot or a pause
  rlm steer 'use tabs'          say something to it; also: pause, set, stop

While it runs: Ctrl-C opens a menu, Enter lets you say something to the agent, /help lists the rest.";

pub(super) const STATUS: &str = "\
Exit codes: 0 shown, or alive; 1 the state of the one RUN that was asked for is damaged, or it is not alive; 10 no such run.

Examples:
  rlm status
  rlm status RUN
  rlm status RUN --alive       as a liveness probe asks
  rlm status --json | jq -r 'select(.state == \"stopped\") | .run'";

pub(super) const LOGS: &str = "\
Examples:
  rlm logs                     all of the newest run
  rlm logs -f --since 10m      the last minutes, and what comes
  rlm logs RUN --iteration 3
  rlm logs --json | jq -r 'select(.kind == \"prompt\") | .text'";

pub(super) const INIT: &str = "\
A file that is there is kept as it is.

Examples:
  rlm init
  rlm init --preset plan-then-build       a plan, your word, then the work
  rlm -C ../other init";

pub(super) const DEMO: &str = "\
Examples:
  rlm demo                press Ctrl-C in it, or Enter and say something
  rlm demo --dir /tmp/roman";

const ENVIRONMENT: &str = "\
Environment, below options and above rlm.toml:
  RLM_AGENT, RLM_PERMISSIONS  as --agent and --permissions
  RLM_SHUTDOWN_TIMEOUT        as --shutdown-timeout
  XDG_CONFIG_HOME             where rlm/config.toml lies, your own settings [default: ~/.config]
  XDG_STATE_HOME              where the index of live runs lies [default: ~/.local/state]
  VISUAL, EDITOR              what edits the prompt from the menu
  NO_COLOR, CLICOLOR_FORCE    no colours; colours also where there is no terminal";

/// Returns the examples, the variables and the exit codes.
pub(super) fn after() -> String {
    let code = |(code, meaning): (Code, &str)| format!("\n  {:2}  {meaning}", code as u8);
    let codes: String = Code::ALL.into_iter().map(code).collect();
    format!(
        "{EXAMPLES}\n\n{ENVIRONMENT}\n\nExit codes:{codes}\nA run that a signal stopped dies by that signal (130, 143, 129)."
    )
}
