//! Durable, incremental, atomic checkpoints with one fenced writer.
//!
//! For programs that work for hours, may be killed at any moment, and must go on from
//! the last thing that they said was saved. [`Store`] keeps one value; [`Writer`] keeps a
//! small head and a history of events, and a save costs what is new.
//!
//! Not a database: no queries, no transactions over several stores, one writer. Not a
//! defence against someone who may write to the directory: checksums find accidents.
//!
//! `examples/diary.rs` goes on where it was, also after `kill -9`; the README says how this crate stands beside others.
//!
//! # Theory of operation
//!
//! A directory is one store. Its writer holds a lock and an *epoch*, a number that only
//! grows. Saves are frames of CBOR with a CRC32C and a sequence number, appended to a
//! *journal* that belongs to one epoch, each with one write and one `fdatasync` before it
//! is acknowledged. A new writer copies the good frames to a journal of its own instead of
//! appending after a torn one. A *phase* is a whole state, sealed in a file that never
//! changes: temporary file, sync, rename to a free name, sync of the directory. A journal
//! names the phase that it goes on from and is stale once a newer one exists, so sealing
//! a phase and forgetting the progress before it need not be one step.
//!
//! Loading takes the newest file that is whole. Damage is reported, the file is set
//! aside, and the good generation before is offered: never a wrong state, never silently
//! an empty one. The epoch is looked at before each acknowledgement, so that a writer
//! whose lock was broken learns that it was taken over instead of acknowledging a save
//! that nobody will see.
//!
//! What the kernel has of a file whose sync failed proves nothing, but for what an earlier
//! sync made durable. The writer therefore keeps its newest frames in memory and the journal
//! with all of them open, takes the next epoch and writes them to a new file, also when the
//! files, or the whole directory, were removed under it.
//!
//! The seal of a phase counts the frames and bytes before it, each frame has a checksum that
//! is seeded with the file's random salt, and their numbers follow each other. That finds
//! every accident that a digest of the contents would find, so there is none.
//!
//! # Limits
//!
//! A save takes at most 128 MiB (64 MiB compressed), a file 1 GiB, the events of one state
//! 4 GiB, the nesting of a value 128 levels. Plain serde writes a `Vec<u8>` as a list of numbers, most of them two bytes long; `serde_bytes`
//! writes the bytes. A writer holds some 100 KiB of its journal in
//! memory; to open a store and to seal a phase takes memory for the whole state.
//! Old phases are kept until someone removes them; only [`Store`] removes its own.
//! Durability is that of `fsync` on the file system: network and memory file systems promise
//! less. Blobs carry no checksum.
#![cfg_attr(docsrs, feature(doc_cfg))]

// The modules in reading order; each takes from those above it:
//   sabotage, disk, name               mistakes that tests switch on; the calls to the system; names of files
//   frame, codec, error                frames, CBOR and compression, what can be wrong
//   dir                                a directory that follows no link
//   saves                              one save, and those since the last phase
//   id, replay                         from frames to a state
//   options, meta, image, report       how a store is opened, what a file says of itself, whole files in memory
//   lock                               one writer at a time
//   load, history                      what is on disk
//   retention, blob, import            what goes, what stands beside, what is foreign
//   journal, compact                   what a writer appends to, and what it begins the next one with
//   raw_writer, heal, generation, seal the writer without types: opening, after a failure, its journals, its phases
//   writer, store, fork, reader, list, verify  the same with types, and what only reads
mod blob;
#[cfg(test)]
mod bomb_tests;
mod codec;
mod compact;
mod dir;
#[cfg(not(feature = "test-util"))]
mod disk;
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub mod disk;
mod error;
#[cfg(test)]
mod fault_tests;
mod fork;
mod frame;
#[cfg(test)]
mod full_tests;
mod generation;
mod heal;
mod history;
mod id;
mod image;
#[cfg(feature = "import")]
pub mod import;
mod journal;
mod list;
mod load;
mod lock;
mod meta;
mod name;
mod options;
mod raw_writer;
pub mod reader;
mod replay;
mod report;
pub mod retention;
#[cfg(not(feature = "test-util"))]
mod sabotage;
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub mod sabotage;
mod saves;
mod seal;
mod store;
#[cfg(test)]
mod test_disk;
pub mod verify;
mod writer;

pub use dir::accept_any_owner;
pub use error::{Error, Result};
pub use fork::fork;
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub use fork::fork_on;
pub use heal::Healed;
pub use id::{PhaseId, Seq};
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub use list::entry_on;
pub use meta::{Meta, Parent, PhaseInfo};
pub use name::reject as reject_name;
pub use options::{Migrations, Options};
pub use report::{LoadReport, Skipped};
pub use store::Store;
pub use writer::{Loaded, Writer};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
