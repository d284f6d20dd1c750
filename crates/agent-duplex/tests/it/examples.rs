//! Runs the examples to their end.

#[expect(dead_code, reason = "its `main` creates its own runtime")]
#[path = "../../examples/driver.rs"]
pub(crate) mod driver;

#[expect(dead_code, reason = "its `main` creates its own runtime")]
#[path = "../../examples/restart.rs"]
mod restart;

#[tokio::test(start_paused = true)]
async fn dead_agent_is_replaced() {
    restart::run().await.unwrap();
}

#[tokio::test]
async fn agent_without_abilities_answers() {
    driver::run().await.unwrap();
}
