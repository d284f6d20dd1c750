//! Carrying out what the attempt machine decides.

use std::time::Duration;

use agent_duplex::Queued;
use loop_state::{
    AttemptEffect, AttemptInput, AttemptMachine, Happening, Moment, SteerState, TurnOutcome, times,
};
use tokio::time::Instant;

use crate::news::News;
use crate::runner::Runner;
use crate::runner::halt::failure;

impl Runner {
    /// Gives an input to the machine of the attempt and returns what it decides.
    pub(in crate::runner) fn decide(&mut self, input: AttemptInput) -> Vec<AttemptEffect> {
        let (at, budget) = (self.clock.now(), self.budget());
        let moment = Moment {
            head: self.machine.head(),
            now: Instant::now().into_std(),
            at,
            budget,
            frozen: self.machine.is_frozen(),
        };
        match &mut self.agent_io.attempt {
            Some(attempt) => attempt.machine.step(moment, input),
            None => AttemptMachine::absent(&input),
        }
    }

    /// Gives an input to the machine of the attempt and carries out what it decides.
    pub(in crate::runner) fn step_attempt(&mut self, input: AttemptInput) -> Vec<Happening> {
        let effects = self.decide(input).into_iter();
        effects.flat_map(|effect| self.carry_out(effect)).collect()
    }

    /// Carries out one effect, and returns what the run has to know of it.
    pub(in crate::runner) fn carry_out(&mut self, effect: AttemptEffect) -> Vec<Happening> {
        match effect {
            AttemptEffect::Prompted => return vec![Happening::Prompted],
            AttemptEffect::NothingDone => return vec![Happening::NothingDone],
            AttemptEffect::Said(result) => return vec![Happening::Said(result)],
            AttemptEffect::SteerDelivered(id) => {
                let state = SteerState::Delivered;
                return vec![Happening::SteerMoved { id, state }];
            }
            AttemptEffect::NextPrompt(steer) => self.tell(News::NextPrompt(steer)),
            AttemptEffect::Send {
                steer,
                again: false,
            } => {
                let input = match self.send_steer(steer) {
                    Ok(()) => AttemptInput::Sent {
                        steer,
                        again: false,
                    },
                    Err(_) => AttemptInput::Dropped(steer),
                };
                return self.step_attempt(input);
            }
            AttemptEffect::SteersSeen(steers) => {
                let state = SteerState::Seen;
                let moved = |id| Happening::SteerMoved { id, state };
                return steers.into_iter().map(moved).collect();
            }
            AttemptEffect::Report(outcome) => return vec![Happening::TurnEnded(outcome)],
            AttemptEffect::Interrupt { drop_queued } => {
                let queued = match drop_queued {
                    true => Queued::Drop,
                    false => Queued::Keep,
                };
                if let Some(attempt) = &self.agent_io.attempt {
                    drop(attempt.conversation.interrupt(queued));
                }
            }
            AttemptEffect::Release => self.release(),
            AttemptEffect::Close { tasks } => self.give_up_tasks(tasks),
            AttemptEffect::End { by } => self.begin_ending(Instant::from_std(by)),
            AttemptEffect::InterruptOverdue => {
                let limit = times::INTERRUPTED_TURN;
                self.tell(News::Warning(format!(
                    "the agent did not end its turn within {limit:?} of the interrupt and is ended itself; its session can be gone on with"
                )));
            }
            AttemptEffect::GoesOn => self.tell(News::GoesOn),
            AttemptEffect::Holding { tasks } => {
                let patience = self.phase().background_wait;
                self.tell(News::Holding { tasks, patience });
            }
            AttemptEffect::TurnOver { outcome, own, .. } => self.note_end(&outcome, own),
            // The continued turn and the end of a turn carry them out: they wait for what they do.
            AttemptEffect::Start { .. }
            | AttemptEffect::Send { again: true, .. }
            | AttemptEffect::SendContinue
            | AttemptEffect::Look => {}
        }
        Vec::new()
    }

    /// Has the agent closed: it is not needed any more. What it left running is looked at when gates and check are over.
    fn release(&self) {
        let patience = self.phase().background_wait;
        if let Some(attempt) = &self.agent_io.attempt {
            let conversation = attempt.conversation.clone();
            tokio::spawn(async move { conversation.close_within(patience).await });
        }
    }

    /// Has the agent closed whose tasks nothing came of: what is half done is no evidence, so gates and check wait for its end.
    fn give_up_tasks(&mut self, tasks: u32) {
        let patience = self.phase().background_wait;
        let Some(attempt) = &mut self.agent_io.attempt else {
            return;
        };
        let tasks = match tasks {
            1 => "1 task".to_owned(),
            several => format!("{several} tasks"),
        };
        let conversation = attempt.conversation.clone();
        let close = async move { conversation.close_within(Duration::ZERO).await };
        attempt.tasks.closing = Some(tokio::spawn(close));
        self.tell(News::Warning(format!(
            "nothing came of {tasks} in the background for {patience:?}; the agent is ended"
        )));
        self.refresh_view();
    }

    /// Begins to end the whole tree of the attempt, beside everything else.
    fn begin_ending(&mut self, by: Instant) {
        if let Some(attempt) = &mut self.agent_io.attempt {
            let conversation = attempt.conversation.clone();
            let mut hurried = attempt.hurry.hurried();
            attempt.tasks.ending = Some(tokio::spawn(async move {
                crate::hurry::stop(&mut hurried, &conversation, by).await
            }));
        }
    }

    fn note_end(&mut self, outcome: &TurnOutcome, own: bool) {
        let text = match outcome {
            TurnOutcome::Completed | TurnOutcome::Claimed => "completed",
            TurnOutcome::Interrupted => "interrupted",
            outcome => failure(outcome).unwrap_or("stopped"),
        };
        let at = self.clock.now();
        self.write_transcript(|transcript| {
            transcript.note(at, "end", text)?;
            transcript.flush()
        });
        if let (true, Some(why)) = (own, failure(outcome)) {
            self.tell(News::Warning(format!(
                "the turn that the agent began by itself failed ({why}); the one before it stands"
            )));
        }
    }
}
