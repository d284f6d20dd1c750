//! Waiting for what an agent still has to do by itself when its turn is over: tasks in the background, and the turns that follow their ends.

use std::time::Duration;

use loop_state::{Happening, TurnOutcome};
use tokio::time::Instant;

use crate::news::News;
use crate::runner::Runner;
use crate::runner::attempt::Attempt;

impl Attempt {
    /// Returns whether the end of its turn waits for what the agent does by itself.
    pub(super) fn holds(&self) -> bool {
        let is_there = !self.stopped && !self.gone && !self.over && self.halting.is_none();
        self.hold_by.is_some() && is_there && (self.in_turn || self.background > 0)
    }

    /// Returns how many tasks are waited for; `None` when none is, or a turn runs.
    pub(super) fn tasks_held_for(&self) -> Option<u32> {
        (self.holds() && !self.in_turn).then_some(self.background)
    }

    /// Returns when tasks of which nothing comes are given up.
    pub(super) fn hold_by(&self) -> Option<Instant> {
        self.hold_by.filter(|_| self.tasks_held_for().is_some())
    }

    /// Notes how many tasks the agent has in the background; one that ends gives the others time.
    pub(super) fn has_background(&mut self, tasks: u32, patience: Duration) {
        if tasks < std::mem::replace(&mut self.background, tasks) {
            self.hold_by = self.hold_by.map(|_| Instant::now() + patience);
        }
    }
}

/// Returns what a turn came to after which the agent began another one by itself.
///
/// The turn stands, however that other one ended: its promise stays made, and may still be made. Only a person's interrupt leaves it open.
pub(super) fn both(turn: TurnOutcome, own: &TurnOutcome) -> TurnOutcome {
    match (turn, own) {
        (_, TurnOutcome::Interrupted) => TurnOutcome::Interrupted,
        (TurnOutcome::Completed, TurnOutcome::Claimed) => TurnOutcome::Claimed,
        (turn, _) => turn,
    }
}

impl Runner {
    /// Waits for what the agent does by itself, if it does anything; says how long.
    pub(super) fn hold(&mut self) {
        let patience = self.phase().background_wait;
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        let (tasks, is_first) = (attempt.background, attempt.hold_by.is_none());
        attempt.hold_by = Some(Instant::now() + patience);
        if !attempt.holds() || patience.is_zero() {
            attempt.hold_by = None;
        } else if is_first {
            self.tell(News::Holding { tasks, patience });
        }
        self.note_busy();
    }

    /// Has the agent closed, and returns how its turn ended, once nothing that it does by itself is waited for any more.
    pub(super) fn held(&mut self) -> Option<Happening> {
        let attempt = self.attempt.as_mut()?;
        if attempt.holds() || attempt.halting.is_some() || attempt.hold_by.take().is_none() {
            return None;
        }
        self.close_agent();
        self.turn_ended()
    }

    /// Has the agent closed: it is not needed any more. What it left running is looked at when gates and check are over.
    pub(super) fn close_agent(&mut self) {
        let patience = self.phase().background_wait;
        if let Some(attempt) = &self.attempt {
            let conversation = attempt.conversation.clone();
            tokio::spawn(async move { conversation.close_within(patience).await });
        }
    }

    /// Has the agent closed whose tasks nothing came of: what is half done is no evidence, so gates and check wait for its end.
    pub(super) fn give_up_hold(&mut self) {
        let patience = self.phase().background_wait;
        let Some(attempt) = &mut self.attempt else {
            return;
        };
        let tasks = match attempt.background {
            1 => "1 task".to_owned(),
            several => format!("{several} tasks"),
        };
        attempt.hold_by = None;
        let conversation = attempt.conversation.clone();
        let close = async move { conversation.close_within(Duration::ZERO).await };
        attempt.closing = Some(tokio::spawn(close));
        self.tell(News::Warning(format!(
            "nothing came of {tasks} in the background for {patience:?}; the agent is ended"
        )));
        self.refresh_view();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_duplex::scripted::ScriptedDriver;
    use agent_duplex::{Capabilities, Conversation};

    const PATIENCE: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn x114c_a_task_that_ends_gives_the_others_time() {
        let driver = Box::new(ScriptedDriver::new(Capabilities::none()));
        let (conversation, primary) = Conversation::new(driver, Default::default());
        let mut attempt = Attempt::new(conversation, primary, None);
        attempt.in_turn = false;
        attempt.background = 2;
        assert!(!attempt.holds(), "its turn is not over");
        let long_ago = Instant::now();
        attempt.hold_by = Some(long_ago);
        attempt.has_background(3, PATIENCE);
        assert_eq!(attempt.hold_by(), Some(long_ago), "one more is no progress");
        attempt.has_background(2, PATIENCE);
        assert!(attempt.hold_by() > Some(long_ago + PATIENCE));
        assert_eq!(attempt.tasks_held_for(), Some(2));
        attempt.in_turn = true;
        assert_eq!((attempt.holds(), attempt.hold_by()), (true, None));
        attempt.in_turn = false;
        attempt.has_background(0, PATIENCE);
        assert!(!attempt.holds());
        attempt.has_background(1, PATIENCE);
        attempt.gone = true;
        assert!(!attempt.holds(), "nobody is left who could do anything");
    }
}
