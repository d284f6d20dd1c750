//! Runs the example to its end.

#[expect(dead_code, reason = "its `main` creates its own runtime")]
#[path = "../../examples/restart.rs"]
mod restart;

#[tokio::test(start_paused = true)]
async fn dead_agent_is_replaced() {
    restart::run().await.unwrap();
}
