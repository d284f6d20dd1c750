//! The lines that the agents write outside of the fleet: the evidence that nobody under test has touched.

use std::fmt;
use std::path::PathBuf;

/// One line of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentEvent {
    /// An agent began an iteration.
    Start {
        /// The run.
        run: String,
        /// The number of the iteration.
        iteration: u32,
        /// The number of this start, which no other start has.
        id: String,
        /// The process id of the agent.
        pid: i32,
        /// Whether no other agent of the run was alive.
        is_alone: bool,
        /// The start whose work is the last in the working tree; `-` if there is none.
        parent: String,
        /// The working tree.
        place: PathBuf,
    },
    /// The agent did the work of the iteration, and ends.
    End {
        /// The run.
        run: String,
        /// The number of the iteration.
        iteration: u32,
        /// The number of the start.
        id: String,
    },
}

impl AgentEvent {
    /// Returns the run.
    #[must_use]
    pub fn run(&self) -> &str {
        match self {
            Self::Start { run, .. } | Self::End { run, .. } => run,
        }
    }

    /// Parses a line; `None` if it has another form.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(8, ' ');
        let mut next = || words.next().map(ToOwned::to_owned);
        let (kind, run) = (next()?, next()?);
        let (iteration, id) = (next()?.parse().ok()?, next()?);
        match kind.as_str() {
            "start" => Some(Self::Start {
                run,
                iteration,
                id,
                pid: next()?.parse().ok()?,
                is_alone: next()?.parse().ok()?,
                parent: next()?,
                place: next()?.into(),
            }),
            "end" => Some(Self::End { run, iteration, id }),
            _ => None,
        }
    }

    /// Returns the name of the worker that has this working tree; `None` for an end.
    #[must_use]
    pub fn worker(&self) -> Option<&str> {
        match self {
            Self::Start { place, .. } => place.parent()?.file_name()?.to_str(),
            Self::End { .. } => None,
        }
    }

    /// Returns the number of the claim that has this working tree; `None` for an end.
    #[must_use]
    pub fn claim(&self) -> Option<u32> {
        match self {
            Self::Start { place, .. } => {
                let mut parts = place.file_name()?.to_str()?.rsplit('.');
                parts.nth(1)?.parse().ok()
            }
            Self::End { .. } => None,
        }
    }
}

impl fmt::Display for AgentEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start {
                run,
                iteration,
                id,
                pid,
                is_alone,
                parent,
                place,
            } => {
                let place = place.display();
                writeln!(
                    f,
                    "start {run} {iteration} {id} {pid} {is_alone} {parent} {place}"
                )
            }
            Self::End { run, iteration, id } => writeln!(f, "end {run} {iteration} {id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_an_agent_survives_its_text() {
        let start = AgentEvent::Start {
            run: "r1".into(),
            iteration: 3,
            id: "a-7".into(),
            pid: 7,
            is_alone: false,
            parent: "-".into(),
            place: "/a place/w2.1/r1.4.x".into(),
        };
        let end = AgentEvent::End {
            run: "r1".into(),
            iteration: 3,
            id: "a-7".into(),
        };
        for event in [start.clone(), end] {
            assert_eq!(AgentEvent::parse(event.to_string().trim_end()), Some(event));
        }
        assert_eq!((start.worker(), start.claim()), (Some("w2.1"), Some(4)));
        assert_eq!(AgentEvent::parse("start r1 3"), None);
    }
}
