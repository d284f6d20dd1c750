//! The observations of a replayed recording.

use agent_duplex::{Event, ExitStatus, Line, Observation, Stream};

/// Returns the observation of a line of standard output.
pub(crate) fn recorded_line(line: &str, events: Vec<Event>) -> Observation {
    let line = Line {
        bytes: line.to_owned().into(),
        omitted: 0,
    };
    Observation {
        events,
        ..Observation::output(Stream::Stdout, line)
    }
}

/// Returns the observation of events without a line.
pub(crate) fn recorded_events(events: Vec<Event>) -> Observation {
    Observation { raw: None, events }
}

/// Returns the observation of an agent that ended in its turn, as the recording does.
pub(crate) fn recorded_death(exited: impl FnOnce(ExitStatus) -> Vec<Event>) -> Observation {
    recorded_events(exited(ExitStatus::Code(0)))
}
