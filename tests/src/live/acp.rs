//! What is shown with the CLIs that speak the Agent Client Protocol.

mod runs;
mod services;
mod sessions;
mod stops;

use super::real::Real;
use super::scene::{Check, Scene};

/// What the scripted model says when a prompt has no script of its own.
const DEFAULT: &str = "[[text It goes on.]]";

/// One check for each of the agents, by the agent's program and by name.
macro_rules! of_each {
    ($($name:literal => $check:path,)*) => {
        [$(
            of_each!("gemini", Gemini, $name, $check),
            of_each!("opencode", Opencode, $name, $check),
            of_each!("claude-agent-acp", ClaudeAcp, $name, $check),
        )*]
    };
    ($program:literal, $real:ident, $name:literal, $check:path) => {
        ($program, concat!($program, ": ", $name), |rlm, agent| $check(&Scene::of(Real::$real, rlm, agent, DEFAULT)))
    };
}

/// By the agent's program and by name; a check is handed a scene of its own.
pub(super) const CHECKS: [(&str, &str, Check); 60] = of_each! {
    "one session over three iterations" => runs::continued,
    "three iterations" => runs::iterations,
    "an interrupt in its text, then a word" => runs::interrupted,
    "an interrupt in its tool, then a word" => runs::interrupted_in_a_tool,
    "a word at once while its text streams" => runs::at_once,
    "a word while its tool runs" => runs::word,
    "what it may do, by --permissions" => runs::permissions,
    "a question of its own, answered by a person" => runs::asked,
    "kill -9 of rlm in its tool, then a resume" => sessions::killed,
    "a session that does not exist any more" => sessions::lost,
    "another agent goes on with a run that was cut" => sessions::handed_over,
    "SIGTERM to rlm in a stubborn tool" => stops::stopped,
    "kill -9 of it alone in its tool" => stops::agent_killed,
    "SIGTERM to it alone in its text" => stops::agent_ended,
    "a process that its tool left behind" => stops::leftover,
    "429 once" => services::limited_once,
    "429 for ever" => services::limited,
    "401: its key is not accepted" => services::refused,
    "nobody is logged in" => services::not_logged_in,
    "an MCP server that is a program" => services::mcp,
};
