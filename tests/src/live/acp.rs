//! Checks of the CLIs that speak the Agent Client Protocol.

pub(super) mod runs;
pub(super) mod services;
pub(super) mod sessions;
pub(super) mod stops;

use super::real::RealAgent;
use super::scene::{Check, LiveScene};

/// The reply of the scripted model to a prompt without a script.
pub(super) const DEFAULT: &str = "[[text It goes on.]]";

/// Defines one check for each of the agents, by the agent's program and by name.
macro_rules! of_each {
    ($($name:literal => $check:path,)*) => {
        [$(
            of_each!("gemini", Gemini, $name, $check),
            of_each!("opencode", Opencode, $name, $check),
            of_each!("claude-agent-acp", ClaudeAcp, $name, $check),
        )*]
    };
    ($program:literal, $real:ident, $name:literal, $check:path) => {
        ($program, concat!($program, ": ", $name), |rlm, agent| $check(&LiveScene::of(RealAgent::$real, rlm, agent, DEFAULT)))
    };
}

/// The checks by the agent's program and by name. Each check gets its own scene.
pub(super) const CHECKS: [(&str, &str, Check); 60] = of_each! {
    "one session over three iterations" => runs::continued,
    "three iterations" => runs::iterations,
    "an interrupt in its text, then a message" => runs::interrupted,
    "an interrupt in its tool, then a message" => runs::interrupted_in_a_tool,
    "a steer --now while its text streams" => runs::at_once,
    "a steer while its tool runs" => runs::word,
    "its permissions, by --permissions" => runs::permissions,
    "a permission request, answered by a person" => runs::asked,
    "kill -9 of rlm in its tool, then a resume" => sessions::killed,
    "a session that no longer exists" => sessions::lost,
    "another agent continues an unfinished run" => sessions::handed_over,
    "SIGTERM to rlm in a stubborn tool" => stops::stopped,
    "kill -9 of it alone in its tool" => stops::agent_killed,
    "SIGTERM to it alone in its text" => stops::agent_ended,
    "a leftover of its tool" => stops::leftover,
    "429 once" => services::limited_once,
    "an endless 429" => services::limited,
    "401: its key is refused" => services::refused,
    "not logged in" => services::not_logged_in,
    "an MCP server that is a program" => services::mcp,
};
