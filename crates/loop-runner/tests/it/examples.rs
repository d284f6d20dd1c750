//! The example runs to its end, with a group in the place of a guard: a test is no program that can be its own.

#[expect(dead_code, reason = "its `main` may become a guard")]
#[path = "../../examples/resume.rs"]
mod resume;

#[tokio::test]
async fn a_run_is_stopped_and_taken_up_again() {
    resume::run().await.unwrap();
}
