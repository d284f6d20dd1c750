//! Decides the order and the deadlines in which a worker gives a run back after SIGTERM. It is separate because the successor of a released run sends no
//! probe: the release must come after the end of the run's processes.

use std::time::Duration;

use crate::Moment;
use crate::append::AppendOutput;
use crate::sabotage::{self, Sabotage};
use crate::times::{HANDOVER, HANDOVER_STOP};

/// Gives one run back: stops its process, appends a release, and returns the delivery, within two seconds.
///
/// If a step fails or takes too long, the worker leaves the delivery alone. Another worker then takes the run over when the lease ends.
///
/// # Examples
///
/// ```
/// use rlm_fleet::{Handover, HandoverInput, HandoverOutput, Moment, RunEnding};
/// use std::time::Duration;
///
/// let at = Moment::from_millis;
/// let (mut handover, outputs) = Handover::begin(at(0));
/// let within = Duration::from_millis(1500);
/// assert_eq!(outputs, [HandoverOutput::StopRun { within }, HandoverOutput::WakeAt(at(1500))]);
/// let gone = HandoverInput::RunGone(RunEnding::Stopped);
/// assert_eq!(handover.step(gone, at(300)), [HandoverOutput::AppendRelease, HandoverOutput::WakeAt(at(2000))]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Handover {
    began: Moment,
    state: HandoverState,
}

/// The state of a [`Handover`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum HandoverState {
    Stopping,
    Killing,
    Releasing,
    Returning,
    Over,
}

/// The state in which the process of a run left the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunEnding {
    /// The run can continue on another worker.
    Stopped,
    /// The run has ended, and its last record says so.
    Ended,
}

/// An input of a [`Handover`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandoverInput {
    /// The process of the run and the process tree of its agent are gone.
    RunGone(RunEnding),
    /// The appender of the release returned this output.
    Append(AppendOutput),
    /// The server confirmed that it received the return or the acknowledgement of the delivery.
    Returned,
    /// The lease of the run is lost.
    LeaseLost,
    /// Time passed.
    Time,
}

/// An action for the caller of a [`Handover`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandoverOutput {
    /// Ask the process of the run to stop.
    StopRun {
        /// The time that the run has to stop.
        within: Duration,
    },
    /// Kill the process of the run. Its guards then end the process tree of the agent.
    KillRun,
    /// Append a record of the kind [`Release`](crate::RecordKind::Release), after the record that the appender is working on.
    AppendRelease,
    /// Return the delivery, so that the server delivers the run to another worker at once.
    Return,
    /// Acknowledge the delivery, so that the server does not deliver the run again.
    Acknowledge,
    /// Pass [`HandoverInput::Time`] at this moment.
    WakeAt(Moment),
    /// The hand-over is over. Send nothing more about the delivery.
    Over,
}

impl Handover {
    /// Begins to give a run back, and returns what the caller must do now.
    #[must_use]
    pub fn begin(now: Moment) -> (Self, Vec<HandoverOutput>) {
        let state = HandoverState::Stopping;
        let handover = Self { began: now, state };
        let within = HANDOVER_STOP;
        let outputs = vec![
            HandoverOutput::StopRun { within },
            HandoverOutput::WakeAt(now + within),
        ];
        (handover, outputs)
    }

    /// Takes one input, and returns what the caller must do now, in order. An input that does not fit the state has no effect.
    #[must_use]
    pub fn step(&mut self, input: HandoverInput, now: Moment) -> Vec<HandoverOutput> {
        let end = self.began + HANDOVER;
        let is_over = self.state == HandoverState::Over;
        if !is_over && (now >= end || input == HandoverInput::LeaseLost) {
            let is_alive = !matches!(input, HandoverInput::RunGone(_))
                && matches!(self.state, HandoverState::Stopping | HandoverState::Killing);
            self.state = HandoverState::Over;
            return match is_alive {
                true => vec![HandoverOutput::KillRun, HandoverOutput::Over],
                false => vec![HandoverOutput::Over],
            };
        }
        let (state, output) = match (self.state, input) {
            (HandoverState::Stopping, HandoverInput::Time)
                if sabotage::is_on(Sabotage::ReleaseTooEarly) =>
            {
                (HandoverState::Releasing, HandoverOutput::AppendRelease)
            }
            (HandoverState::Stopping, HandoverInput::Time) if now >= self.began + HANDOVER_STOP => {
                (HandoverState::Killing, HandoverOutput::KillRun)
            }
            (
                HandoverState::Stopping | HandoverState::Killing,
                HandoverInput::RunGone(RunEnding::Stopped),
            ) => (HandoverState::Releasing, HandoverOutput::AppendRelease),
            (
                HandoverState::Stopping | HandoverState::Killing,
                HandoverInput::RunGone(RunEnding::Ended),
            ) => (HandoverState::Returning, HandoverOutput::Acknowledge),
            (HandoverState::Releasing, HandoverInput::Append(AppendOutput::Done { .. })) => {
                (HandoverState::Returning, HandoverOutput::Return)
            }
            (HandoverState::Releasing, HandoverInput::Append(AppendOutput::Ended(_)))
            | (HandoverState::Returning, HandoverInput::Returned) => {
                self.state = HandoverState::Over;
                return vec![HandoverOutput::Over];
            }
            _ => return Vec::new(),
        };
        self.state = state;
        vec![output, HandoverOutput::WakeAt(end)]
    }
}
