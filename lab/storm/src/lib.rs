//! Kills, freezes, terminates and cuts off the workers of a fleet, kills its servers, and judges the result from the outside.
//!
//! This is the program behind `cargo xtask fleet-storm`. The workers are real processes of `rlm fleet worker`, and the servers are real NATS servers on
//! loopback: one, or a cluster of three.
//!
//! # Theory of operation
//!
//! Many short runs go through a fleet at the same time. Their agents do one line of work in each iteration, and append their start and their end to a
//! file outside ([`AgentEvent`]). Meanwhile the storm causes faults ([`Fault`]) at random moments. A fault counts only after it was seen to land: the
//! worker died by the signal and another worker's agent started for its run, the kernel reported that the worker is stopped, a socket was closed.
//!
//! Afterwards [`judge()`] compares the lines of the agents with the branch of each run, as `rlm fleet fetch` brings it: no committed iteration is lost, none
//! is done twice, two agents of a run are never alive at the same time, and each run ends. At last no process is left.
//!
//! # Non-goals
//!
//! It loses no power: a killed server loses nothing that the kernel has. The seed repeats the choices, but not the timing of the processes.
//!
//! # Platform
//!
//! Linux, with git and a NATS server (`cargo xtask tools --install`).

// The modules in reading order; each uses only those above it:
//   random, evidence     random numbers; the lines of the agents
//   judge                the judgement of a run, pure
//   plan                 the faults and the numbers of a storm
//   fleet                servers, workers and commands
//   storm                the storm itself
//   score                the result of all storms, as a table and as JSON
mod evidence;
mod fleet;
mod judge;
mod plan;
mod random;
mod score;
mod storm;

pub use evidence::AgentEvent;
pub use judge::{Finding, RunResult, judge};
pub use plan::{Fault, MISTAKES, Plan};
pub use score::Score;
pub use storm::{StormResult, run};
