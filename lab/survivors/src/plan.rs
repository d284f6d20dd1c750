//! What is scored, when it is stopped, and how long is waited.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Way;

/// Where the agent's program is put in a command.
const PLACE: &str = "{agent}";
const PATIENCE: Duration = Duration::from_secs(12);

/// What the loop is at when it is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Moment {
    /// The agent works, with a child of each kind alive.
    Turn,
    /// It has just been started: somewhere in the first 300 ms. Nothing is known to be alive.
    Start,
    /// The agent's program runs as a gate of `rlm`.
    Gate,
    /// The agent has left its children behind, and `rlm` sleeps before the next iteration.
    Sleep,
}

/// How a tool is scored.
#[derive(Debug, Clone)]
pub struct Plan {
    /// A command for bash, with `{agent}` where the agent's program belongs.
    pub command: String,
    /// What the agent's program is called; it is also found by that name on the `PATH`.
    pub agent_name: String,
    /// The program that stands in for the agent.
    pub agent: PathBuf,
    /// When the tool is stopped.
    pub moment: Moment,
    /// Whether the agent and its children ignore SIGINT, SIGTERM and SIGHUP.
    pub stubborn: bool,
    /// In which ways the tool is stopped.
    pub ways: Vec<Way>,
    /// How often for each way.
    pub runs: usize,
    /// How long the agent may take to come to work.
    pub ready: Duration,
    /// How long after a stop something may be alive.
    pub patience: Duration,
}

impl Plan {
    /// Makes one for a tool and the agent's program beside it; twenty runs, half a minute to come to work.
    ///
    /// The patience is 12 s: the ten that container engines give a program, and time for a busy machine.
    #[must_use]
    pub fn new(command: String, agent: PathBuf) -> Self {
        Self {
            command,
            agent_name: "agent".into(),
            agent,
            moment: Moment::Turn,
            stubborn: false,
            ways: Way::ALL.into(),
            runs: 20,
            ready: Duration::from_secs(30),
            patience: PATIENCE,
        }
    }

    /// Two runs for each way, and no more than eight seconds to come to work.
    #[must_use]
    pub fn quick(self) -> Self {
        Self {
            runs: 2,
            ready: Duration::from_secs(8),
            ..self
        }
    }

    /// Whether the agent's program is anywhere in `command`.
    #[must_use]
    pub fn names_agent(command: &str) -> bool {
        command.contains(PLACE)
    }

    /// How `rlm` is started to be stopped at a moment.
    #[must_use]
    pub fn ours(rlm: &Path, moment: Moment) -> String {
        let rlm = quoted(rlm);
        let run = format!("{rlm} run --no-input -n 100 --prompt 'Do the next step.'");
        match moment {
            Moment::Turn | Moment::Start => format!("{run} --sleep 0 -- {PLACE}"),
            Moment::Gate => format!("{run} --sleep 0 --gate {PLACE} -- true"),
            Moment::Sleep => format!("{run} --sleep 10m -- {PLACE}"),
        }
    }

    /// The agent's script: a child of each kind, then work without end.
    pub(crate) fn script(&self) -> String {
        let deaf = if self.stubborn {
            "ignore INT TERM HUP"
        } else {
            ""
        };
        let children =
            ["plain", "setsid", "daemon", "holder"].map(|kind| format!("child {kind} {deaf}\n"));
        let rest = match self.moment {
            Moment::Sleep => "",
            _ => "hang\n",
        };
        format!("no-stdin\n{deaf}\n{}{rest}", children.concat())
    }

    pub(crate) fn command_for(&self, program: &Path) -> String {
        self.command.replace(PLACE, &quoted(program))
    }

    /// All runs, so ordered that no way has the quiet moments of the machine for itself.
    #[must_use]
    pub fn all(&self) -> Vec<(Way, usize)> {
        let ways = |number| self.ways.iter().map(move |way| (*way, number));
        (0..self.runs).flat_map(ways).collect()
    }

    /// How long after its start run `number` is stopped that does not wait for an agent.
    pub(crate) fn early(&self, number: usize) -> Duration {
        let step = u32::try_from(number % self.runs.max(1)).unwrap_or(0);
        let runs = u32::try_from(self.runs.max(1)).unwrap_or(u32::MAX);
        Duration::from_millis(300) * step / runs
    }
}

/// As one word of a shell; left alone where nothing has to be quoted, so that it can stand in somebody's quotes.
fn quoted(path: &Path) -> String {
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
    fn a_path_is_quoted_only_where_it_must_be() {
        assert_eq!(quoted(Path::new("/tmp/a-b.c/agent")), "/tmp/a-b.c/agent");
        assert_eq!(quoted(Path::new("/my tools/it's")), r"'/my tools/it'\''s'");
    }

    #[test]
    fn stops_at_the_start_are_spread() {
        let plan = Plan {
            moment: Moment::Start,
            ways: Way::PLAIN.into(),
            ..Plan::new("{agent}".into(), "/agent".into())
        };
        assert_eq!(plan.early(0), Duration::ZERO);
        assert_eq!(plan.early(10), Duration::from_millis(150));
        assert_eq!(plan.all().len(), 100);
    }
}
