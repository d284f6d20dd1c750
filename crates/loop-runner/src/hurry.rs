//! Telling what runs by when it has to have ended. Whoever loses patience tells it again.

use std::time::Duration;

use agent_duplex::{Conversation, StopReport};
use tokio::sync::watch;
use tokio::time::Instant;

/// Has something end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hurry(watch::Sender<Option<Instant>>);

impl Hurry {
    /// Returns what is told, now or later.
    pub(crate) fn hurried(&self) -> Hurried {
        Hurried(self.0.subscribe())
    }

    /// Has it end within `budget`, from now. What was told before stands if that is sooner.
    pub(crate) fn within(&self, budget: Duration) {
        let by = Instant::now() + budget;
        self.0.send_if_modified(|before| {
            let sooner = before.is_none_or(|before| by < before);
            if sooner {
                *before = Some(by);
            }
            sooner
        });
    }
}

/// Is to end when it is told.
#[derive(Clone, Debug)]
pub(crate) struct Hurried(watch::Receiver<Option<Instant>>);

impl Hurried {
    /// Waits until it is told by when; `None` when nobody is left who could. Cancel safe.
    pub(crate) async fn told(&mut self) -> Option<Instant> {
        let told = self.0.wait_for(Option::is_some).await;
        told.ok().and_then(|by| *by)
    }

    /// Waits until it is told to end sooner than by that time, for ever where nobody does. Cancel safe.
    pub(crate) async fn sooner(&mut self, than: Instant) -> Instant {
        let sooner = self.0.wait_for(|by| by.is_some_and(|by| by < than)).await;
        match sooner.ok().and_then(|by| *by) {
            Some(by) => by,
            None => std::future::pending().await,
        }
    }

    /// Stops an agent by that time, or sooner when it is told so.
    pub(crate) async fn stop(&mut self, agent: &Conversation, mut by: Instant) -> StopReport {
        loop {
            tokio::select! {
                biased;
                sooner = self.sooner(by) => by = sooner,
                report = agent.stop(left(by)) => return report,
            }
        }
    }
}

/// Returns how much is left until then.
pub(crate) fn left(by: Instant) -> Duration {
    by.saturating_duration_since(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_duplex::scripted::{Gate, Script, ScriptedDriver};
    use agent_duplex::{Capabilities, Input, SessionChoice, StopStage};

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
        let end = tokio::spawn(async move { hurried.stop(&conversation, by).await });
        tokio::time::advance(Duration::from_secs(1)).await;
        hurry.within(Duration::from_secs(1));
        // Patience does not come back.
        hurry.within(DAY);
        assert_eq!(end.await.unwrap().stage, StopStage::Kill);
        assert!(began.elapsed() < 60 * Duration::from_secs(1));
    }

    #[tokio::test]
    async fn who_is_dropped_hurries_nobody() {
        let hurry = Hurry::default();
        let mut hurried = hurry.hurried();
        drop(hurry);
        assert_eq!(hurried.told().await, None);
        let never = tokio::time::timeout(Duration::ZERO, hurried.sooner(Instant::now()));
        assert!(never.await.is_err());
    }
}
