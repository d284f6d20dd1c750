//! The example runs to its end with a process group instead of a guard, because a test binary can't be its own guard.

#[expect(dead_code, reason = "its `main` can become a guard")]
#[path = "../../examples/resume.rs"]
mod resume;

#[tokio::test]
async fn run_is_stopped_and_resumed() {
    resume::run().await.unwrap();
}
