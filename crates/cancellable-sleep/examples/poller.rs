//! A service that polls something, and whose every wait can be cut short or ended.
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

    // Where it doesn't matter why a wait ended, `backon` may do it all, with the gate as its sleeper. It is told to stop by `when`,
    // which it asks after a try: shutdown in a wait costs one try more.
    let mut tries = 0..;
    let connected = (|| request(tries.next() >= Some(2)))
        .retry(BACK_OFF.with_max_times(5))
        .when(|_| !gate.is_shutdown())
        .notify(|error, delay| println!("connect: {error}, waiting {delay:?}"))
        .sleep(gate.clone())
        .await;
    println!("connect: {connected:?}, shutdown: {}", gate.is_shutdown());

    // A beat at a child gate: shutdown reaches it, a kick ("poll now") doesn't.
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

/// Polls until it works or the service ends. Each reason means something else here, so the loop is our own, and `backon` only says how
/// long to wait.
pub(crate) async fn poll(gate: &SleepGate, number: usize) {
    let (mut delays, mut tries) = (BACK_OFF.build(), 0..);
    while let Err(error) = request(number % 2 == 1 || tries.next() >= Some(4)).await {
        let delay = delays.next().expect("this back-off has no end");
        println!("poll {number}: {error}, waiting {delay:?}");
        let why = gate.sleep(delay).await;
        println!("poll {number}: {why:?}");
        match why {
            Wake::Elapsed => {}
            Wake::Kicked => delays = BACK_OFF.build(), // there is hope: begin with short waits again
            Wake::Shutdown => return,
        }
    }
    println!("poll {number}: news");
}

/// Makes kicks and shutdown of signals. A kick reaches those who sleep now: in the middle of a request it finds nobody.
fn listen(gate: SleepGate) -> io::Result<()> {
    let mut now = signal(SignalKind::user_defined1())?; // before the task, so that none is missed
    let mut terminate = signal(SignalKind::terminate())?;
    let mut ctrl_c = signal(SignalKind::interrupt())?;
    println!("process {}", process::id());
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = now.recv() => println!("kick: {} woken", gate.wake_all()),
                _ = terminate.recv() => break,
                _ = ctrl_c.recv() => break,
            }
        }
        gate.shutdown();
    });
    Ok(())
}

/// Stands for a request over the network.
async fn request(works: bool) -> Result<(), &'static str> {
    if works { Ok(()) } else { Err("no answer") }
}
