//! Functions that read an agent: to the next event, to the end of a turn, to the exit, and until a change is answered.

use crate::scene::DEADLINE;
use agent_duplex::{Connection, Error, Event, Observation, PendingChange, TurnEnd};
use tokio::time::timeout;

/// Reads the agent until a change is answered.
pub(crate) async fn made(
    connection: &mut dyn Connection,
    mut changing: PendingChange,
) -> Result<(), Error> {
    loop {
        tokio::select! {
            changed = &mut changing => return changed,
            seen = connection.next() => if seen.is_none() {
                return changing.await;
            },
        }
    }
}

pub(crate) async fn next(connection: &mut dyn Connection) -> Option<Observation> {
    let next = timeout(DEADLINE, connection.next()).await;
    next.expect("the agent must write or end before the deadline")
}

/// Reads until an event for which `last` holds, and returns all events so far.
pub(crate) async fn until(
    connection: &mut dyn Connection,
    last: impl Fn(&Event) -> bool,
) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(seen) = next(connection).await {
        events.extend(seen.events);
        if events.iter().any(&last) {
            return events;
        }
    }
    panic!("the event never came: {events:?}");
}

/// Reads to the end of a turn.
pub(crate) async fn turn(connection: &mut dyn Connection) -> (Vec<Event>, TurnEnd) {
    let events = until(connection, |event| matches!(event, Event::TurnCompleted(_))).await;
    match events.last() {
        Some(Event::TurnCompleted(end)) => (events.clone(), end.clone()),
        other => panic!("the turn must end with its completion: {other:?}"),
    }
}

/// Reads until the agent has ended.
pub(crate) async fn rest(connection: &mut dyn Connection) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(seen) = next(connection).await {
        events.extend(seen.events);
    }
    events
}
