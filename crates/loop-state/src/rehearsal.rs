//! A preview of how a process would take over a run: its first input, and its first effects up to the next prompt.

use std::fmt;

use crate::{
    CheckResult, Effect, Head, IterationStep, LoopCommand, MAX_STEER_BYTES, MAX_STEERS, Machine,
    MachineInput, ProcessTreeOutcome, PromptContext, Request, ResumeOptions, RunUpdate, StopReason,
    TimedInput, Timestamp,
};

/// The maximum number of inputs that a rehearsal simulates: the next prompt comes within the first few, or not at all.
const STEPS: usize = 64;

/// A preview of how a process would begin.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rehearsal {
    /// The updates before the first command, in order.
    pub updates: Vec<RunUpdate>,
    /// The first command that runs. Its result is unknown, so the rehearsal assumes that this command and each later one fails.
    pub command: Option<LoopCommand>,
    /// The index of the phase in which that command runs; without a command, the phase after the last simulated input.
    pub phase: u32,
    /// The iteration in which that command runs; without a command, the iteration after the last simulated input.
    pub iteration: u32,
    /// The context of the next prompt, or why no attempt begins.
    pub next: Result<PromptContext, NoAttempt>,
}

/// Why a rehearsal ends without an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoAttempt {
    /// The run ends.
    Ends(StopReason),
    /// The run waits for a review.
    Review,
    /// The run is paused.
    Paused,
    /// The run waits for the service of its agent.
    Waiting,
    /// The rehearsal found neither an attempt nor a reason.
    Unknown,
}

/// Why the feedback of a resume is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FeedbackRefusal {
    /// The feedback is empty.
    Empty,
    /// The feedback and the waiting steers together exceed the limit of all steers.
    TooMuch,
    /// The run has not begun.
    NotBegun,
}

impl fmt::Display for FeedbackRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the text is empty",
            Self::TooMuch => "the text is too long; put it into a file and name the file",
            Self::NotBegun => "the run has not begun; put the text into the prompt",
        })
    }
}

impl std::error::Error for FeedbackRefusal {}

impl Head {
    /// Returns the first input of a process that takes over this run. If no process has begun the run, the input starts it instead of resuming it.
    #[must_use]
    pub fn first_input(&self, resume: ResumeOptions) -> MachineInput {
        match self.counts.processes {
            0 => MachineInput::Started,
            _ => MachineInput::Resumed(resume),
        }
    }

    /// Adds the feedback of the person who resumes the run to its first input.
    ///
    /// # Errors
    ///
    /// Returns the reason if the text is refused.
    pub fn add_feedback(
        &self,
        first: &mut MachineInput,
        text: String,
    ) -> Result<(), FeedbackRefusal> {
        let waiting: usize = self.steers.iter().map(|steer| steer.text.len()).sum();
        if text.trim().is_empty() {
            return Err(FeedbackRefusal::Empty);
        }
        if self.steers.len() >= MAX_STEERS || waiting + text.len() > MAX_STEER_BYTES {
            return Err(FeedbackRefusal::TooMuch);
        }
        match first {
            MachineInput::Resumed(resume) => resume.feedback = Some(text),
            _ => return Err(FeedbackRefusal::NotBegun),
        }
        Ok(())
    }

    /// Returns a preview of how a process begins if it takes over this run at the time `at` with the input `first`.
    ///
    /// Up to the first command, the inputs are the real ones. After it, each command is assumed to fail with this `output`, and sleeps between
    /// iterations are skipped.
    #[must_use]
    pub fn rehearse(&self, first: MachineInput, output: &str, at: Timestamp) -> Rehearsal {
        let mut machine = Machine::from(self.clone());
        let (mut updates, mut started) = (Vec::new(), None);
        let mut first_command = None;
        let failed = || CheckResult::Failed(output.to_owned());
        let mut next = Some(first);
        for _ in 0..STEPS {
            let Some(what) = next.take() else { break };
            for effect in machine.step(TimedInput { at, what }) {
                let command = match &effect {
                    Effect::RunRequiredCheck(index) => Some(LoopCommand::RequiredCheck(*index)),
                    Effect::RunCheck => Some(LoopCommand::Check),
                    _ => None,
                };
                if let (Some(command), None) = (command, first_command) {
                    first_command = Some((command, machine.head().phase, machine.head().iteration));
                }
                let is_assumed = first_command.is_some();
                match effect {
                    Effect::RunRequiredCheck(_) => {
                        next = Some(MachineInput::RequiredCheckEnded(failed()))
                    }
                    Effect::RunCheck => next = Some(MachineInput::CheckEnded(failed())),
                    Effect::Emit(RunUpdate::Sleeping { .. }) if is_assumed => {
                        next = Some(MachineInput::Requested(Request::Skip));
                    }
                    Effect::Emit(update) if !is_assumed => updates.push(update),
                    // A real process starts without leftovers: the leftovers of earlier processes are ended first.
                    Effect::EndLeftovers => {
                        next = Some(MachineInput::LeftoversEnded(ProcessTreeOutcome::default()))
                    }
                    Effect::StartAttempt(brief) => started = Some(brief),
                    _ => {}
                }
            }
        }
        let head = machine.head();
        let (phase, iteration) =
            first_command.map_or((head.phase, head.iteration), |it| (it.1, it.2));
        Rehearsal {
            updates,
            command: first_command.map(|it| it.0),
            phase,
            iteration,
            next: started.ok_or_else(|| no_attempt(head)),
        }
    }
}

fn no_attempt(head: &Head) -> NoAttempt {
    match (&head.end, &head.step) {
        (Some(end), _) => NoAttempt::Ends(end.reason.clone()),
        (None, IterationStep::Review { .. }) => NoAttempt::Review,
        (None, IterationStep::Paused { .. }) => NoAttempt::Paused,
        (None, IterationStep::Waiting { .. }) => NoAttempt::Waiting,
        _ => NoAttempt::Unknown,
    }
}
