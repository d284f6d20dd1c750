//! The stops to try, their moments, and the time limits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::StopMethod;

/// The place of the agent's program in a command.
const PLACE: &str = "{agent}";
const TIME_LIMIT: Duration = Duration::from_secs(12);

/// The moment at which the loop is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum StopMoment {
    /// The agent works, and a child of each kind is alive.
    Turn,
    /// The tool has just been started, at most 300 ms ago. It is unknown which processes are alive.
    Start,
    /// The agent's program runs as a required check of `rlm`.
    Gate,
    /// The agent has ended, its children are alive, and `rlm` sleeps before the next iteration.
    Sleep,
}

/// The parameters of scoring a tool.
#[derive(Debug, Clone)]
pub struct Plan {
    /// A command for bash, with `{agent}` in place of the agent's program.
    pub command: String,
    /// The name of the agent's program; a tool can also find it under this name on the `PATH`.
    pub agent_name: String,
    /// The scripted agent.
    pub agent: PathBuf,
    /// The moment at which the tool is stopped.
    pub moment: StopMoment,
    /// Whether the agent and its children ignore SIGINT, SIGTERM and SIGHUP.
    pub stubborn: bool,
    /// The ways in which the tool is stopped.
    pub ways: Vec<StopMethod>,
    /// The number of stops in each way.
    pub runs: usize,
    /// The time limit until the agent works.
    pub ready: Duration,
    /// The time limit after a stop, until which processes may be alive.
    pub time_limit: Duration,
}

impl Plan {
    /// Makes a plan for a tool and a scripted agent: twenty runs, and half a minute for the agent to begin to work.
    ///
    /// `time_limit` is 12 s: the ten that container engines give a program, and time for a busy machine.
    #[must_use]
    pub fn new(command: String, agent: PathBuf) -> Self {
        Self {
            command,
            agent_name: "agent".into(),
            agent,
            moment: StopMoment::Turn,
            stubborn: false,
            ways: StopMethod::ALL.into(),
            runs: 20,
            ready: Duration::from_secs(30),
            time_limit: TIME_LIMIT,
        }
    }

    /// Returns the plan with two runs for each way, and eight seconds for the agent to begin to work.
    #[must_use]
    pub fn quick(self) -> Self {
        Self {
            runs: 2,
            ready: Duration::from_secs(8),
            ..self
        }
    }

    /// Returns whether `command` contains the place of the agent's program.
    #[must_use]
    pub fn names_agent(command: &str) -> bool {
        command.contains(PLACE)
    }

    /// Returns the command that starts `rlm` for a stop at this moment.
    #[must_use]
    pub fn ours(rlm: &Path, moment: StopMoment) -> String {
        let rlm = quoted(rlm);
        let run = format!("{rlm} run --no-input -n 100 --prompt 'Do the next step.'");
        match moment {
            StopMoment::Turn | StopMoment::Start => format!("{run} --sleep 0 -- {PLACE}"),
            StopMoment::Gate => format!("{run} --sleep 0 --gate {PLACE} -- true"),
            StopMoment::Sleep => format!("{run} --sleep 10m -- {PLACE}"),
        }
    }

    /// Returns the agent's script: a child of each kind, then endless work.
    pub(crate) fn script(&self) -> String {
        let deaf = if self.stubborn {
            "ignore INT TERM HUP"
        } else {
            ""
        };
        let children =
            ["plain", "setsid", "daemon", "holder"].map(|kind| format!("child {kind} {deaf}\n"));
        let rest = match self.moment {
            StopMoment::Sleep => "",
            _ => "hang\n",
        };
        format!("no-stdin\n{deaf}\n{}{rest}", children.concat())
    }

    pub(crate) fn command_for(&self, program: &Path) -> String {
        self.command.replace(PLACE, &quoted(program))
    }

    /// Returns all runs, with the ways interleaved, so that a quiet moment of the machine does not favour one way.
    #[must_use]
    pub fn all(&self) -> Vec<(StopMethod, usize)> {
        let ways = |number| self.ways.iter().map(move |way| (*way, number));
        (0..self.runs).flat_map(ways).collect()
    }

    /// Returns the time from the start to the stop of run `number`, for a run that does not wait for the agent.
    pub(crate) fn early(&self, number: usize) -> Duration {
        let step = u32::try_from(number % self.runs.max(1)).unwrap_or(0);
        let runs = u32::try_from(self.runs.max(1)).unwrap_or(u32::MAX);
        Duration::from_millis(300) * step / runs
    }
}

/// Quotes a path as one word of a shell. Without special characters it is unchanged, so that it also works inside quotes.
#[must_use]
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |character: char| character.is_ascii_alphanumeric() || "/._-+".contains(character);
    if text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_quoted_only_if_necessary() {
        assert_eq!(quoted(Path::new("/tmp/a-b.c/agent")), "/tmp/a-b.c/agent");
        assert_eq!(quoted(Path::new("/my tools/it's")), r"'/my tools/it'\''s'");
    }

    #[test]
    fn stops_during_the_start_are_spread_over_time() {
        let plan = Plan {
            moment: StopMoment::Start,
            ways: StopMethod::PLAIN.into(),
            ..Plan::new("{agent}".into(), "/agent".into())
        };
        assert_eq!(plan.early(0), Duration::ZERO);
        assert_eq!(plan.early(10), Duration::from_millis(150));
        assert_eq!(plan.all().len(), 100);
    }
}
