//! Runs the example to its end.

#[expect(dead_code, reason = "its `main` creates its own runtime")]
#[path = "../../examples/restart.rs"]
mod restart;

#[tokio::test(start_paused = true)]
async fn an_agent_that_dies_has_a_successor() {
    restart::run().await.unwrap();
}
