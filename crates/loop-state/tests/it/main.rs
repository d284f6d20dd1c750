//! What the machine promises, seen from outside.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod person;
mod properties;
mod traces;

use loop_state::{Event, Happening, Limits, PhaseRules, Rules, SessionPolicy, Timestamp};
use std::time::Duration;

/// One phase with a check, three failures allowed, no sleep.
fn rules(change: impl FnOnce(&mut Rules)) -> Rules {
    let mut rules = Rules {
        phases: vec![PhaseRules {
            name: "main".into(),
            gates: 0,
            until: true,
            promise: false,
            session: SessionPolicy::Fresh,
            limits: Limits::default(),
        }],
        max_duration: None,
        max_failures: 3,
        sleep: Duration::ZERO,
    };
    change(&mut rules);
    rules
}

fn at(millis: u64, what: Happening) -> Event {
    Event {
        at: Timestamp(millis),
        what,
    }
}
