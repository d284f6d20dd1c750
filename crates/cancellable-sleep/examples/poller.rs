//! A service that polls a server. A signal can end each of its waits, to poll now or to shut down.
//!
//! `cargo run -p cancellable-sleep --example poller --features backon`, then `kill -USR1 PID` (poll now), and `kill PID` or Ctrl-C
//! (end). Try each in a back-off and between two polls.
#![expect(clippy::print_stdout, reason = "the example shows what happens")]

use std::{io, process, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder, Retryable};
use cancellable_sleep::{SleepGate, Wake};
use tokio::signal::unix::{SignalKind, signal};

const BACK_OFF: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(500))
    .without_max_times();

#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    let gate = SleepGate::new(); // each task gets a clone, which is the same gate
    listen(gate.clone())?;

    // When the reason of a wake-up doesn't matter, `backon` can run the whole retry, with the gate as its sleeper. After a shutdown, `when` ends the
    // retry. `backon` calls `when` after a try, so a shutdown during a wait costs one more try.
    let mut tries = 0..;
    let connected = (|| request(tries.next() >= Some(2)))
        .retry(BACK_OFF.with_max_times(5))
        .when(|_| !gate.is_shutdown())
        .notify(|error, delay| println!("connect: {error}, waiting {delay:?}"))
        .sleep(gate.clone())
        .await;
    println!("connect: {connected:?}, shutdown: {}", gate.is_shutdown());

    // A heartbeat at a child gate: shutdown reaches it, `wake_all` ("poll now") doesn't.
    let mut heart = gate.child().interval(Duration::from_secs(2));
    let alive = tokio::spawn(async move {
        while heart.tick().await != Wake::Shutdown {
            println!("alive");
        }
    });
    let mut beat = gate.interval(Duration::from_secs(3)); // its first tick is one period away
    let mut number = 0;
    while !gate.is_shutdown() {
        number += 1;
        poll(&gate, number).await;
        println!("after poll {number}: {:?}", beat.tick().await);
    }
    alive.await.map_err(io::Error::other)
}

/// Polls until a poll succeeds or the service ends. Each reason of a wake-up needs a different reaction, so the function has its own loop, and
/// `backon` computes only the delays.
pub(crate) async fn poll(gate: &SleepGate, number: usize) {
    let (mut delays, mut tries) = (BACK_OFF.build(), 0..);
    while let Err(error) = request(number % 2 == 1 || tries.next() >= Some(4)).await {
        let delay = delays.next().expect("this back-off has no end");
        println!("poll {number}: {error}, waiting {delay:?}");
        let why = gate.sleep(delay).await;
        println!("poll {number}: {why:?}");
        match why {
            Wake::Elapsed => {}
            Wake::Woken => delays = BACK_OFF.build(), // "poll now": begin with short waits again
            Wake::Shutdown => return,
        }
    }
    println!("poll {number}: done");
}

/// Turns signals into `wake_all` and `shutdown`. `wake_all` ends only the present sleeps; during a request it ends none.
fn listen(gate: SleepGate) -> io::Result<()> {
    let mut now = signal(SignalKind::user_defined1())?; // before the task starts, so that no signal is lost
    let mut terminate = signal(SignalKind::terminate())?;
    let mut ctrl_c = signal(SignalKind::interrupt())?;
    println!("process {}", process::id());
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = now.recv() => println!("poll now: {} woken", gate.wake_all()),
                _ = terminate.recv() => break,
                _ = ctrl_c.recv() => break,
            }
        }
        gate.shutdown();
    });
    Ok(())
}

/// Simulates a request over the network.
async fn request(works: bool) -> Result<(), &'static str> {
    if works { Ok(()) } else { Err("no answer") }
}
