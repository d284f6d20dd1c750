//! Runs the loop of the example, without its signals.

use cancellable_sleep::SleepGate;

#[expect(dead_code, reason = "its `main` catches the signals of a process")]
#[path = "../../examples/poller.rs"]
mod poller;

#[tokio::test(start_paused = true)]
async fn a_poller_polls_until_it_is_shut_down() {
    let gate = SleepGate::new();
    poller::poll(&gate, 1).await;
    poller::poll(&gate, 2).await;
    let polls = tokio::spawn({
        let gate = gate.clone();
        async move { poller::poll(&gate, 2).await }
    });
    tokio::task::yield_now().await;
    gate.shutdown();
    polls.await.unwrap();
}
