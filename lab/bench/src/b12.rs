//! B12: the time from a message to the first event of its turn, and from an interrupt to the end of a turn, with an agent that answers at once.

mod clients;

use std::cell::RefCell;
use std::time::Duration;

use crate::harness::{
    Bench, Outcome, Plan, Progress, Result, Role, Series, Turn, in_turn, one_thread, workers,
};
use clients::{Bare, BareAsync, Client, Direct, Sdk, Talk};

pub(crate) const BENCH: Bench = Bench {
    id: "b12",
    title: "a turn with an agent of no latency",
    run,
    measured: None,
};

/// A driver in tokio can't be nearer than this to a client that blocks in `read`.
const FLOOR: &str = "bare client, tokio";
const BLOCKING: &str = "bare client, blocking";
const CONNECTION: &str = "claude driver";
const CONVERSATION: &str = "conversation";
const MULTI: &str = "conversation, workers";
const SDK: &str = "claude-agent-sdk (Python)";

type Measure = fn(&mut dyn Client) -> Result<Duration>;

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let rounds = plan.scale.pick(2000, 200, 3);
    let mut clients: Vec<(&str, Role, Box<dyn Client>)> = vec![
        (BLOCKING, Role::Peer, Box::new(Bare::start()?)),
        (
            FLOOR,
            Role::Floor,
            Box::new(BareAsync::start(one_thread()?)?),
        ),
        (
            CONNECTION,
            Role::Ours,
            Box::new(Direct::start(one_thread()?)?),
        ),
        (
            CONVERSATION,
            Role::Ours,
            Box::new(Talk::start(one_thread()?)?),
        ),
        (MULTI, Role::Ours, Box::new(Talk::start(workers()?)?)),
    ];
    match Sdk::start(&plan.scratch) {
        Ok(sdk) => clients.push((SDK, Role::Peer, Box::new(sdk))),
        Err(why) => outcome.skip(SDK, &why),
    }
    let clients: Vec<_> = clients
        .into_iter()
        .map(|(name, role, client)| (name, role, RefCell::new(client)))
        .collect();
    // Each with the limits of our contenders.
    let quantities: [(&str, Measure, [f64; 2]); 2] = [
        ("message to first event", |client| client.turn(), [1.3, 1.8]),
        (
            "interrupt to the turn's end",
            |client| client.interrupt(),
            [1.5, 1.5],
        ),
    ];
    for (quantity, measure, limits) in quantities {
        let progress = Progress::of(format!("b12 {quantity}"));
        let turns = clients.iter().map(|(name, role, client)| {
            Turn::new(name, *role, move |_| {
                let took = measure(client.borrow_mut().as_mut())?;
                Ok(Some(took.as_secs_f64() * 1e6))
            })
        });
        let series = Series::new(
            quantity,
            "µs",
            in_turn(0..rounds, turns.collect(), &progress)?,
        );
        for (name, limit) in [CONNECTION, CONVERSATION].into_iter().zip(limits) {
            let over = series.paired(name, FLOOR);
            outcome
                .at_most(&format!("{quantity}, {name}"), over, limit, "× floor")
                .about(series.title(), name);
        }
        outcome.series.push(series);
    }
    outcome.notes.push(
        "the event is the first piece of the answer, in the fourth line of the agent; all clients use the same agent program; unless the row says \
         `workers`, ours runs on one thread, as in `rlm`"
            .into(),
    );
    Ok(())
}
