//! An agent loop as a pure state machine: events in, effects out.
//!
//! A loop around a coding agent looks simple until it has to be stopped, killed and resumed: then what matters is which facts were recorded before
//! which deeds. This crate holds those rules and nothing else. [`Machine::step`] takes what happened and answers with what must be done now, in
//! order, and *save* is one of the things to do: the machine, not its caller, says what must be durable before what.
//!
//! # What it is not for
//!
//! It does no I/O, reads no clock, spawns nothing and knows no agent, no command line and no file. Text that it carries (the tail of a failed
//! check, a steer, what a phase came to) is opaque to it. It is no general workflow engine: a run is one line of phases, and one agent works at a
//! time.
//!
//! # Theory of operation
//!
//! A *run* goes through *phases*, a phase through *iterations*, an iteration through one or more *attempts*. An attempt is one agent turn, then the
//! gates, then the check, then the end of whatever the agent left running:
//!
//! ```text
//!            ┌──────────────────────────── a person's word ───────────── Interrupted
//!            ▼                                                                ▲
//!  Ready ─► Turn ───────────────────────── a person's interrupt ──────────────┘
//!            │ ├─ rate limit, or what may not come again ─► Waiting ─► Turn: the same iteration, the next attempt
//!            │ └─ stop, time or budget used up ───────────► the end: the iteration is cut, and done again after a resume
//!            ▼
//!        Gate 0 … n ─► Check ─► Settling ─┬─► Sleeping ─► Turn: the next iteration
//!                                         ├─► Paused ─► Turn: when a person lets it go on
//!                                         ├─► Review ─► Turn: when a person has looked at a batch, or at a phase
//!                                         ├─► the boundary: the phase is sealed, then Sleeping, Paused or Review as above
//!                                         └─► the end, with its reason
//! ```
//!
//! [`Step`] names these places. After a resume with a check, a cut iteration goes through `Recheck` first: what it did may have been enough.
//!
//! The [`Head`] is the whole state: small, serialisable, rewritten at each save. Events are history: folding them over the first head gives the
//! present one, and a test says so. What is true only of the live process (when the agent last gave a sign of life) stays out of the head, and its
//! events out of the journal ([`Happening::is_transient`]).
//!
//! - *Cut.* A turn that did not come to its end is cut. Its iteration is done again as a new attempt; the number of an attempt is never used twice
//!   for one iteration number, also when numbers begin anew with a phase.
//! - *Phases.* Each has its own rules and numbers and begins with a session of its own. At the boundary the machine asks for
//!   [`Effect::SealPhase`] while nothing of the next phase has begun; what the phase came to ([`Happening::Said`]) is in the briefs of the next one,
//!   and what went wrong in it stays in [`Head::finished`]. A phase whose last planned iteration went wrong hands nothing over: the run ends there.
//! - *Autonomy.* [`Autonomy`] says where a person is asked; [`Verdict`] is what they can answer. A question is only asked where somebody can
//!   answer: the shell says so for each process ([`Resume::attended`], [`Happening::Attended`]), and without that the run goes on. The end of the
//!   last phase is the end of the run and asks nobody.
//! - *Budgets* act within the turn: the [`Happening::Used`] that uses one up ends the turn, and nothing is begun while nothing is left.
//!   [`Rules::validate`] refuses a budget that an agent does not report on.
//! - *Rate limits* are waited for on the caller's clock, up to [`RunLimits::wait_on_limit`] for all waits in a row; without a time, 30 s, then twice as
//!   long each time, up to 15 min. Each wait is up to a fifth longer than that, by chance, so that many runs do not ask at once. The iteration is refunded: its number stays, nothing counts as failed, only the attempt is another one.
//! - *Tries.* [`TurnOutcome::Transient`] is tried again after 1, 4 and 16 s; the fourth failure of an iteration counts, as one.
//! - *Attempts.* [`AttemptMachine`] goes from the prompt of an attempt to the outcome of its turn, and [`AgentState`] from the start of a process to the end
//!   of its tree. They are not saved: a process dies with its host, and the [`Machine`] knows what that costs. [`StopDeadline`] only moves earlier; the
//!   times that shape a stop are in [`times`].
//! - *Another agent.* A resume may name the one before it ([`Resume::predecessor`]): its session is left behind, all that people said is told again,
//!   and the briefs name it until a turn is over that had that before its eyes.
//! - *Live rules.* [`Request::Set`] changes a rule; what the new one forbids ends at once, or is not begun.
//!
//! `examples/shell.rs` is the smallest shell around the machine, killed in the middle of a turn and gone on with.
//!
//! # What is saved
//!
//! The types above are what is written: a [`Head`] with its [`Version`] first, and [`Event`]s beside it. State is hostile input: a head is checked whenever
//! it is deserialised. An unknown key of a map is skipped; a missing one is an error where it has no default.
//!
//! # Limits
//!
//! Text in the head is bounded: [`MAX_TEXT`] bytes for each piece, [`MAX_STEERS`] steers of [`MAX_STEER_BYTES`] together, [`MAX_PHASES`] phases with
//! [`MAX_ERRORS`] errors each. Clocks are trusted: one that jumps forward ends waits early, one that jumps back makes them longer.

// The modules in reading order; each takes from those above it:
//   time, text, counts             the small types: times, bounds of texts, counters, what an agent used, a budget used up
//   stop, rules                    what bounds a run, and why it ends
//   steer, pipeline, step          what people said, phases, where in its iteration a run is
//   head, saved                    the whole state of a run, and what a saved one has to satisfy
//   request, event, effect         what goes into the machine, and what comes out
//   inbox                          the order in which it goes in
//   resumable                      which runs may be resumed, by whom, and from where
//   machine                        the rules of a run
//   rehearsal                      how a process would begin that takes a run
//   times, deadline                the times of a stop, and its one deadline
//   answer, limit, judge           what an agent's words mean: a promise, a result, the end of a limit, the outcome of a turn
//   agent, attempt                 the machines of an agent's process and of one attempt; they are not saved
mod agent;
mod answer;
mod attempt;
mod counts;
mod deadline;
mod effect;
mod event;
mod head;
mod inbox;
mod judge;
mod limit;
mod machine;
mod pipeline;
mod rehearsal;
mod request;
mod resumable;
mod rules;
mod saved;
mod steer;
mod step;
mod stop;
mod text;
mod time;
pub mod times;

pub use agent::{AgentEffect, AgentInput, AgentState};
pub use attempt::{
    AskAnswer, AskPolicy, AttemptEffect, AttemptInput, AttemptMachine, AttemptOptions, Denial,
    Moment,
};
pub use counts::{Budget, Counts, Streaks, Usage, Waits};
pub use deadline::StopDeadline;
pub use effect::{Brief, Effect, Notice, Reminder, Warning};
pub use event::{CheckResult, Event, Happening, Resume, Timer, Tree, TurnOutcome};
pub use head::{CheckOutcome, Command, End, Feedback, Handover, Head, Last, LastCheck, Lineage};
pub use inbox::Inbox;
pub use judge::{TurnEndKind, TurnReport, judge};
pub use machine::{Glance, Machine, Silence};
pub use pipeline::{Failure, Finished, Occasion, Verdict};
pub use rehearsal::{FeedbackRefusal, NoAttempt, Rehearsal};
pub use request::{PauseAfter, Request};
pub use resumable::ResumeRefusal;
pub use rules::{
    Autonomy, Limits, PhaseRules, RuleChange, Rules, RulesError, RunLimits, SessionPolicy,
};
pub use saved::{HeadError, Version};
pub use steer::{Steer, SteerState};
pub use step::{Again, Cut, CutCause, Step, Then, Wait};
pub use stop::{Evidence, StopCause, StopReason, StopRequest, Streak, When};
pub use text::{
    MAX_ERRORS, MAX_PHASES, MAX_STEER_BYTES, MAX_STEERS, MAX_TEXT, first_bytes, last_bytes,
};
pub use time::Timestamp;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
