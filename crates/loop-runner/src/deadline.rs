//! Stops an agent before a shared deadline, which can move earlier during the stop.

use agent_duplex::{Conversation, StopReport};
use rlm_store::deadline::{DeadlineReceiver, remaining};
use tokio::time::Instant;

/// Stops an agent before the instant `by`, or sooner if the shared deadline moves earlier.
pub(crate) async fn stop(
    deadline: &mut DeadlineReceiver,
    agent: &Conversation,
    mut by: Instant,
) -> StopReport {
    loop {
        tokio::select! {
            biased;
            sooner = deadline.earlier_than(by) => by = sooner,
            report = agent.stop(remaining(by)) => return report,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use agent_duplex::scripted::{Latch, Script, ScriptedDriver};
    use agent_duplex::{Capabilities, Input, SessionChoice, StopStage};
    use rlm_store::deadline::Deadline;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[tokio::test(start_paused = true)]
    async fn l90g_second_stop_shortens_a_stop_of_a_day_to_a_second() {
        let script = Script::new().message().begin().delays_stop(&Latch::new());
        let driver = ScriptedDriver::new(Capabilities::none()).with_script(script);
        let (conversation, _primary) = Conversation::with_primary(
            Box::new(driver),
            agent_duplex::ConversationOptions::default().with_manual_start(),
        );
        conversation.start(SessionChoice::Fresh).await.unwrap();
        conversation.send(Input::new("go")).unwrap();
        let (sender, began) = (Deadline::default(), Instant::now());
        let mut deadline = sender.subscribe();
        sender.tighten_to(DAY);
        let by = deadline.wait_for_deadline().await.unwrap();
        let end = tokio::spawn(async move { stop(&mut deadline, &conversation, by).await });
        tokio::time::advance(Duration::from_secs(1)).await;
        sender.tighten_to(Duration::from_secs(1));
        // The deadline never moves later.
        sender.tighten_to(DAY);
        assert_eq!(end.await.unwrap().stage, StopStage::Kill);
        assert!(began.elapsed() < 60 * Duration::from_secs(1));
    }
}
