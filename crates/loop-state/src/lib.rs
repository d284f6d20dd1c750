//! The rules of an agent loop as a pure state machine: inputs in, effects out.
//!
//! A loop around a coding agent must survive stops, kills and resumes. So it must save facts and do actions in the right order. This crate
//! contains the rules of the loop and nothing else. [`Machine::step`] takes one input and returns the actions that the caller must do now, in order.
//! *Save* is one of these actions: the machine, not its caller, decides what must be durable before the next action.
//!
//! ```rust
//! use loop_state::{CheckResult, Effect, Machine, MachineInput, PhaseRules, ProcessTreeOutcome, Rules, TimedInput, Timestamp, TurnOutcome};
//!
//! fn main() -> Result<(), loop_state::RulesError> {
//!     let phase = PhaseRules { name: "main".into(), has_check: true, ..PhaseRules::default() };
//!     let mut machine = Machine::new(Rules { phases: vec![phase], ..Rules::default() })?;
//!     let mut next = Some(MachineInput::Started);
//!     while let Some(what) = next.take() {
//!         let at = Timestamp::from_millis(0); // a real program: SystemTime::now().into()
//!         for effect in machine.step(TimedInput { at, what }) {
//!             match effect { // do it, then pass its result to the machine
//!                 Effect::Save => println!("save machine.head()"),
//!                 Effect::StartAttempt(prompt) => {
//!                     println!("run the agent: iteration {}", prompt.iteration);
//!                     next = Some(MachineInput::TurnEnded(TurnOutcome::Completed));
//!                 }
//!                 Effect::RunCheck => next = Some(MachineInput::CheckEnded(CheckResult::Passed)),
//!                 Effect::EndLeftovers => next = Some(MachineInput::LeftoversEnded(ProcessTreeOutcome::default())),
//!                 Effect::EndRun => println!("{}", machine.head().stop_reason().unwrap()),
//!                 _ => {}
//!             }
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! [`simulate`] plays whole runs with a simulated agent, for example to compare budgets.
//!
//! # Non-goals
//!
//! The crate does no I/O, reads no clock, starts no process and knows no agent, command line or file. It doesn't interpret the texts that it carries,
//! such as the tail of a failed check, a steer or the result of a phase. It is not a general workflow engine: a run is one sequence of phases, and
//! one agent works at a time.
//!
//! # Theory of operation
//!
//! A *run* consists of *phases*, a phase of *iterations*, an iteration of one or more *attempts*. An attempt is one turn of the agent, then the
//! required checks, then the check, then the end of all leftovers:
//!
//! ```text
//!            ┌──────────────────────────── a person continues ────────── Interrupted
//!            ▼                                                                ▲
//!  Ready ─► Turn ───────────────────────── a person interrupts ───────────────┘
//!            │ ├─ rate limit or transient failure ──► Waiting ─► Turn: the same iteration, the next attempt
//!            │ └─ stop, or time or budget used up ──► end: the attempt is unfinished, and a resume redoes the iteration
//!            ▼
//!        required checks ─► Check ─► end of ──┬─► Sleeping ─► Turn: the next iteration
//!                                  leftovers  ├─► Paused ─► Turn: when a person continues the run
//!                                             ├─► Review ─► Turn: when a person has reviewed a batch or a phase
//!                                             ├─► boundary: save the finished phase, then Sleeping, Paused or Review as above
//!                                             └─► end, with its stop reason
//! ```
//!
//! [`IterationStep`] has a variant for each of these steps. If a run with a check resumes in an unfinished iteration, it enters `Recheck` first: the
//! work may already be complete.
//!
//! The [`Head`] is the whole state: small, serialisable, written again by each save. The inputs are the history: a test shows that applying all of
//! them to the first head gives the current one. Facts that only the live process needs, such as the time of the agent's last output, are not in the
//! head, and their inputs are not in the journal ([`MachineInput::is_transient`]).
//!
//! - *Unfinished.* A turn is unfinished if something ended it before it was complete. A new attempt redoes its iteration. No pair of iteration number
//!   and attempt number occurs twice, even if a phase counts its iterations from 1 again.
//! - *Phases.* Each phase has its own rules and numbers and starts with its own session. At the boundary the machine returns [`Effect::SavePhase`]
//!   before anything of the next phase begins. The result of the phase ([`MachineInput::ResultReported`]) is part of the prompt context of the next
//!   phase; its failures stay in [`Head::finished_phases`]. If the last planned iteration of a phase failed, the run ends there and the next phase
//!   does not start.
//! - *Autonomy.* [`Autonomy`] sets where the run asks a person; [`ReviewDecision`] is the answer. The run asks only if somebody can answer. Each
//!   process reports whether somebody can ([`ResumeOptions::attended`], [`MachineInput::Attended`]); if nobody can, the run continues. The end of the
//!   last phase is the end of the run and needs no review.
//! - *Budgets* apply within a turn: the [`MachineInput::UsageReported`] that uses up a budget ends the turn, and no attempt begins while nothing is
//!   left. [`Rules::validate`] refuses a budget if the agent doesn't report the usage that it limits.
//! - *Rate limits.* The run waits by the caller's clock, up to [`RunLimits::wait_on_limit`] for all waits in a row. If the agent names no time, the
//!   first wait is 5 s and each later wait is twice as long as the one before, up to 15 min. A random part of up to a fifth is added to each wait,
//!   so that many runs do not retry at once. A wait is not a failure: the iteration keeps its number, and only a new attempt begins.
//! - *Retries.* After [`TurnOutcome::Transient`] the machine tries again after 1, 4 and 16 s; the fourth failure of an iteration counts as one
//!   failure.
//! - *Attempts.* The details of an attempt are not saved: an agent's process dies with its host, and the [`Machine`] then starts a new attempt.
//!   Requests can only move [`StopDeadline`] earlier.
//! - *Durable sessions.* If the rules say that the agent's session continues after a crash without a repeated effect, a further attempt of an iteration
//!   continues it, unless a person requested a redo. The machine chooses the id and saves it before the start, so that no crash loses the session.
//! - *Another agent.* A resume can name the previous agent ([`ResumeOptions::previous_agent`]). The new agent gets a new session and all steers
//!   again. Prompts name the previous agent until the new agent has finished a turn with such a prompt.
//! - *Live rules.* [`Request::Set`] changes a rule. Work that the new rule forbids ends at once or does not begin.
//!
//! `examples/shell.rs` is a minimal program around the machine; it is killed in the middle of a turn and resumes.
//!
//! # Saved form
//!
//! The types above are the saved form: a [`Head`], which starts with its [`Version`], and [`TimedInput`]s beside it. Saved state is untrusted input:
//! deserialising a head also validates it. An unknown key of a map is skipped; a missing key is an error unless it has a default.
//!
//! # Limits
//!
//! Text in the head is bounded: [`MAX_TEXT`] bytes for each text, [`MAX_STEERS`] steers with [`MAX_STEER_BYTES`] together, [`MAX_PHASES`] phases with
//! [`MAX_ERRORS`] failures each. Clocks are trusted: a clock that jumps forward ends waits early, one that jumps back makes them longer.

// The modules in reading order; each uses only those above it:
//   time, text, counters            the small types: times, limits of texts, counters, usage, a used-up budget
//   stop, rules                     why a run ends, and its rules
//   steer, review, iteration_step   steers, reviews and finished phases, the step of an iteration
//   head, saved                     the whole state of a run, and the validation of a saved one
//   request, input, effect          the inputs and the outputs of the machine
//   inbox                           the order of the inputs
//   resumable                       which runs may be resumed, by whom, and from where
//   random                          random numbers that can be repeated
//   machine                         the rules of a run
//   rehearsal, simulate             the preview of a resume, and whole runs with a simulated agent
//   times, deadline                 the times of a stop, and its deadline
//   answer, limit, judge            what the agent's output means: a promise, a result, the end of a limit, the outcome of a turn
//   agent, attempt                  the machines of an agent's process and of one attempt; they are not saved
mod agent;
mod answer;
mod attempt;
mod counters;
mod deadline;
mod effect;
mod head;
mod inbox;
mod input;
mod iteration_step;
mod judge;
mod limit;
mod machine;
mod random;
mod rehearsal;
mod request;
mod resumable;
mod review;
mod rules;
mod saved;
pub mod simulate;
mod steer;
mod stop;
mod text;
mod time;
#[doc(hidden)] // `loop-runner`, `rlm-store` and `rlm` use these times; they are no part of the API
pub mod times;

#[doc(hidden)] // `loop-runner` drives an agent's process with it; it is no part of the API
pub use agent::{AgentEffect, AgentInput, AgentState};
#[doc(hidden)] // `loop-runner` drives an attempt with it; it is no part of the API
pub use attempt::{
    AskAnswer, AskPolicy, AttemptEffect, AttemptInput, AttemptMachine, AttemptOptions, Denial,
    StepContext,
};
pub use counters::{Counts, Retries, SpentBudget, Streaks, UsageTotal};
pub use deadline::StopDeadline;
pub use effect::{Effect, PromptContext, Reminder, RunUpdate, Warning};
pub use head::{
    CheckOutcome, Feedback, ForkedSession, Handover, Head, LastCheck, LastIteration, Lineage,
    ResumePoint, RunEnd,
};
#[doc(hidden)] // only `loop-runner` needs it
pub use inbox::{Attendance, Inbox};
pub use input::{
    CheckResult, MachineInput, ProcessTreeOutcome, ResumeOptions, TimedInput, Timer, TurnOutcome,
};
pub use iteration_step::{
    AfterLeftovers, IterationStep, RedoScope, UnfinishedAttempt, UnfinishedCause, WaitCause,
};
#[doc(hidden)] // an input of the hidden `AttemptMachine`
pub use judge::AgentTurnEnd;
pub use machine::Machine;
#[doc(hidden)] // only the hidden methods of `Machine` need them
pub use machine::{AgentSilence, GitStatusWait, SaveKind};
pub use rehearsal::{FeedbackRefusal, NoAttempt, Rehearsal};
pub use request::{PauseAfter, Request};
pub use resumable::ResumeRefusal;
pub use review::{FinishedPhase, IterationFailure, ReviewDecision, ReviewPoint};
pub use rules::{
    Autonomy, LoopCommand, PhaseLimits, PhaseRules, RuleChange, Rules, RulesError, RunLimits,
    SessionPolicy,
};
pub use saved::{HeadError, Version};
pub use steer::{Steer, SteerState};
pub use stop::{Evidence, StopCause, StopReason, StopRequest, StopTiming, Streak};
pub use text::{
    MAX_ERRORS, MAX_PHASES, MAX_STEER_BYTES, MAX_STEERS, MAX_TEXT, first_bytes, last_bytes,
};
pub use time::Timestamp;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
