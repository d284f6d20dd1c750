//! The harness that shows that `checkpoint-store` keeps its promises.
//!
//! It states five invariants and looks for a counterexample: **D** after save k was
//! acknowledged, every later load gives k or a later one; **A** every load gives exactly one
//! state that was passed to a save; **L** if anything was acknowledged, a load succeeds or
//! names a real media error; **F** at most one line of writers grows; **B** time and memory
//! are bounded.
//!
//! The [`disk`] is a model that keeps what POSIX promises and nothing more; [`choice`] lists
//! the ways in which a power cut may come out; [`computer`] counts calls, fails them and loses
//! its power. The other layers have real programs, system calls and file systems: a [`saver`]
//! says what it does, and a [`ledger`] what may be loaded after it.
//!
//! Modules in reading order: [`step`] and [`workloads`] (what programs do), [`mod@reference`] (what
//! a store ought to hold), [`disk`], [`choice`], [`computer`] and [`seam`] (the model),
//! [`session`] (a program on it); the layers D0 to D9: [`sim`] and [`race`], [`fault`],
//! [`machine`], [`strace`], [`blocklog`], [`storm`], [`writers`], [`fulldisk`], [`bytes`],
//! [`sabotages`]; and [`outcome`], which a layer reports.

pub mod agents;
pub mod blocklog;
pub mod bytes;
pub mod cases;
pub mod child;
pub mod choice;
pub mod computer;
pub mod counting;
pub mod damage;
pub mod disk;
pub mod fault;
pub mod fulldisk;
pub mod fuzzing;
pub mod ledger;
pub mod machine;
pub mod memory;
pub mod mistake;
pub mod old;
pub mod outcome;
pub mod parallel;
pub mod place;
pub mod program;
pub mod race;
pub mod reference;
pub mod rng;
pub mod sabotages;
pub mod saver;
pub mod seam;
pub mod seen;
pub mod session;
pub mod sim;
pub mod step;
pub mod storm;
pub mod strace;
pub mod workloads;
pub mod writers;
