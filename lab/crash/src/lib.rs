//! The harness that shows that `checkpoint-store` keeps its promises.
//!
//! It has five invariants and searches for a counterexample. **D**: after save k was acknowledged, every later load returns save k or a later one.
//! **A**: every load returns exactly one state that was passed to a save. **L**: if a save was acknowledged, a load succeeds or names a real media
//! error. **F**: the saves of all writers form one sequence, which never splits into two branches. **B**: time and memory are bounded.
//!
//! [`disk`] is a model that keeps only the promises of POSIX. [`choice`] lists the possible outcomes of a power cut. [`computer`] counts calls, makes
//! them fail and loses its power. The other layers use real programs, system calls and file systems: a [`saver`] reports its calls, and a [`ledger`]
//! knows which states may be loaded afterwards.
//!
//! Modules in reading order: [`step`] and [`workloads`] (the actions of programs), [`mod@reference`] (the right contents of a store), [`disk`],
//! [`choice`], [`computer`] and [`sim_disk`] (the model), [`session`] (a program on the model); the layers D0 to D9: [`sim`], [`race`], [`replica`] and [`fleet`], [`fault`],
//! [`machine`], [`strace`], [`blocklog`], [`storm`], [`writers`], [`fulldisk`], [`bytes`], [`sabotages`]; and [`outcome`], the report of a layer.

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
pub mod file_systems;
pub mod fingerprints;
pub mod fleet;
pub mod fulldisk;
pub mod fuzzing;
pub mod ledger;
pub mod machine;
pub mod memory;
pub mod mistake;
pub mod outcome;
pub mod parallel;
pub mod program;
pub mod race;
pub mod reference;
pub mod rename_saver;
pub mod replica;
pub mod rng;
pub mod sabotages;
pub mod saver;
pub mod session;
pub mod sim;
pub mod sim_disk;
pub mod step;
pub mod storm;
pub mod strace;
pub mod workloads;
pub mod writers;
