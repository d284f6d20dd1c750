//! Stops an agent by a shared deadline that can move earlier meanwhile.

use agent_duplex::{Conversation, StopReport};
use rlm_store::deadline::{Hurried, left};
use tokio::time::Instant;

/// Stops an agent by `by`, or earlier if the shared deadline moves earlier.
pub(crate) async fn stop(
    hurried: &mut Hurried,
    agent: &Conversation,
    mut by: Instant,
) -> StopReport {
    loop {
        tokio::select! {
            biased;
            sooner = hurried.sooner(by) => by = sooner,
            report = agent.stop(left(by)) => return report,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use agent_duplex::scripted::{Gate, Script, ScriptedDriver};
    use agent_duplex::{Capabilities, Input, SessionChoice, StopStage};
    use rlm_store::deadline::Hurry;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[tokio::test(start_paused = true)]
    async fn l90g_a_stop_of_a_day_is_over_in_a_second_after_a_second_stop() {
        let script = Script::new().message().begin().stopping(&Gate::new());
        let driver = ScriptedDriver::new(Capabilities::none()).plays(script);
        let (conversation, _primary) = Conversation::new(Box::new(driver), Default::default());
        conversation.start(SessionChoice::Fresh).await.unwrap();
        conversation.send(Input::new("go")).unwrap();
        let (hurry, began) = (Hurry::default(), Instant::now());
        let mut hurried = hurry.hurried();
        hurry.within(DAY);
        let by = hurried.told().await.unwrap();
        let end = tokio::spawn(async move { stop(&mut hurried, &conversation, by).await });
        tokio::time::advance(Duration::from_secs(1)).await;
        hurry.within(Duration::from_secs(1));
        // The deadline never moves later.
        hurry.within(DAY);
        assert_eq!(end.await.unwrap().stage, StopStage::Kill);
        assert!(began.elapsed() < 60 * Duration::from_secs(1));
    }
}
