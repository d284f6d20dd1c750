//! The decisions of a fleet of workers as pure state machines: who owns a run, for how long, and what was saved. The feature `nats` adds the adapter
//! that executes them.
//!
//! A fleet runs the loops of `rlm` on many machines. Each run has a stream of records on a server, and a message whose delivery is the lease of the
//! run's owner. Workers die, freeze and lose their connection; servers restart; messages are lost, late and repeated. This crate contains the decisions
//! of a worker. Each type takes inputs and returns what its caller must do now. The crate is a part of `rlm` and makes no promise to
//! other programs.
//!
//! # Non-goals
//!
//! The decisions do no I/O, read no clock and have no async code: each input comes with its time. They know no message server, no content of a record
//! and no process. They elect no leader: the server orders the records. All of that is in the module `nats`, which exists only with its feature.
//!
//! # Theory of operation
//!
//! - *An append is the proof.* Each record is published with the number that the last record of the run must have. A claim of a run is such a record,
//!   so after a claim each append of the earlier owner is refused. [`Appender`] finds out whether a record is in the stream, even if answers are lost.
//! - *A lease limits overlap.* A fence protects the stream, but not the files and services that an agent changes. So the agent must be dead before
//!   another worker can start one. [`LeaseClock`] ends the agent at half of the lease.
//! - *A claimant asks first.* [`Claim`] decides what a worker does with a delivered run: it probes the earlier owner, claims the run, parks a run that
//!   stalled three times, or acknowledges a run that has ended.
//! - *A failure has evidence.* [`give_back`] decides what a worker does with a run that it can't continue: another worker gets it, or it is parked
//!   with its [`FailedClaim`]s. A worker that can't start runs does not park them alone.
//! - *A release comes after the end.* [`Handover`] gives a run back within two seconds; the release is appended only when the processes are gone.
//! - *A spent budget is a wait.* [`BudgetShare`] adds the cost of a run to that of the fleet, and pauses the run until the budget is raised.
//!
//! A worker passes the loss of a lease to the other decisions: [`AppendInput::GiveUp`], [`ClaimInput::LeaseLost`] and [`HandoverInput::LeaseLost`].
//!
//! # Limits
//!
//! Two agents of one run never run at the same time if these assumptions hold; the tests explore them exhaustively for two workers.
//!
//! - The clocks of a worker and the server don't drift apart by much during one lease; see [`LeaseClock`].
//! - The process tree of an agent is gone before its lease ends if its kill deadline is half of the lease. The process that enforces the deadline
//!   must not depend on the worker, because a worker can freeze.
//! - The server delivers a run again only if a lease ended after its last renewal, or the owner returned the run. A server that restarts can break
//!   this. Then an owner with a running agent must be connected again within three seconds, and answer the probe.
//!
//! If an assumption fails, agents can overlap, but the stream stays correct: a worker that was fenced appends nothing.

// The modules in reading order; each uses only those above it:
//   moment, times       points in time, and the times of a hand-over
//   record              the facts about a record that the decisions need
//   sabotage            mistakes that the tests switch on
//   append              one append at a time
//   lease               renewals and the kill deadline
//   claim               a delivered run
//   failure             a run that a worker can't continue
//   handover            SIGTERM
//   budget              the budget of all runs together
//   nats                executes the decisions on a server
mod append;
mod budget;
mod claim;
mod failure;
mod handover;
mod lease;
mod moment;
#[cfg(feature = "nats")]
pub mod nats;
mod record;
#[cfg(not(feature = "test-util"))]
mod sabotage;
#[cfg(feature = "test-util")]
#[doc(hidden)] // the crash tests switch these mistakes on; they are no part of the API
pub mod sabotage;
#[cfg(test)]
mod tests;
#[doc(hidden)] // `rlm` uses these times; they are no part of the API
pub mod times;

pub use append::{AppendAnswer, AppendEnd, AppendInput, AppendOutput, Appender};
pub use budget::{BUDGET_INTERVAL, BudgetInput, BudgetOutput, BudgetShare, BudgetState, RunWait};
pub use claim::{Claim, ClaimInput, ClaimOutput, ClaimRecord, MAX_STALLED, ProbeResult};
pub use failure::{
    FailedClaim, FailureCause, MAX_FAILED, MAX_FAILURE_TEXT, add_failed, give_back,
    pause_after_failed_starts,
};
pub use handover::{Handover, HandoverInput, HandoverOutput, RunEnding};
pub use lease::{LeaseClock, LeaseInput, LeaseOutput};
pub use moment::Moment;
pub use record::{LastRecord, Progress, RecordId, RecordKind};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
