//! Code that all benches share and that imports none of them: definitions, rounds, child processes, statistics, output.

mod bench;
mod child;
mod machine;
mod outcome;
mod progress;
mod random;
mod report;
mod rounds;
mod stats;

pub(crate) use bench::{Bench, MEASURED, Plan, Result, Scale};
pub(crate) use child::{
    Child, Process, end_with_parent, now, one_thread, park, pause, readable_by, workers,
};
pub(crate) use machine::Machine;
pub(crate) use outcome::{Contender, Outcome, Role, Series, find, join};
pub(crate) use progress::Progress;
pub(crate) use random::Random;
pub(crate) use report::{print, write_json};
pub(crate) use rounds::{Turn, in_turn, in_turn_beside};
pub(crate) use stats::{Sample, paired_ratio, slope, summarise};
