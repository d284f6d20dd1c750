//! Durable, incremental, atomic checkpoints with one fenced writer.
//!
//! This crate is for a program that works for hours, may be killed at any moment, and must continue from its last acknowledged save.
//!
//! A *head* is the small current state of the program, and each save writes all of it; *events* are its history, and a save only adds new ones. A
//! *phase* is a checkpoint of the head and all events, with a name, in a file that never changes.
//!
//! ```
//! use checkpoint_store::{Options, Writer};
//!
//! fn main() -> checkpoint_store::Result<()> {
//!     let dir = "counter";
//! #   let root = tempfile::tempdir().unwrap();
//! #   let dir = root.path().join(dir);
//! #   for start in 1..=2 {
//!     // Makes the directory with mode 0700, takes its lock, and loads the last save.
//!     let (mut writer, loaded) = Writer::<u64, String>::open(&dir, Options::default())?;
//!     let head = loaded.head.unwrap_or(0) + 1;
//!     let event = format!("start number {head}");
//!     writer.append(&head, &[event])?; // one write and one sync, however long the history is; durable when it returns
//!     println!("start {head}, after {} earlier events", loaded.events.len());
//! #   assert_eq!((head, loaded.events.len() as u64), (start, start - 1));
//! #   }
//!     Ok(())
//! }
//! ```
//!
//! [`Store`] is simpler: it has one value and no history, and each save replaces the value as a whole. [`reader`] needs no lock, and reads also while
//! a writer works.
//!
//! This crate is not a database: it has no queries, no transactions over several stores, and one writer for each store. It does not protect against a
//! person who can write to the directory: checksums detect accidents only.
//!
//! `examples/diary.rs` continues where it stopped, also after `kill -9`. The README compares this crate with others.
//!
//! # Theory of operation
//!
//! A directory is one store. Its writer holds a lock and an *epoch*, a number that only grows. Each save is a frame of CBOR with a CRC32C and a
//! sequence number. The writer appends it to a *journal* that belongs to one epoch, with one write and one `fdatasync`, before it acknowledges the
//! save. A new writer never appends after a torn frame: it copies the last good frames to its own journal, which continues the older journal before
//! them. `src/chain.rs` shows why this is as safe as a copy of the whole journal. A *phase* is a whole state in a file that never changes. The writer makes that file in four steps: temporary file, sync, rename to a free name, sync of the directory. A journal names the phase
//! that it continues, and is stale as soon as a newer phase exists. So the writer can write a phase and remove the older progress in two separate
//! steps.
//!
//! A load takes the newest valid file. If a file is damaged, the load reports the file and returns the good state before the damage; a writer also
//! sets the file aside. A load never returns a wrong state. If no file has a valid state, the load returns an error, not an empty state. A writer
//! checks its epoch before each acknowledgement. So a writer whose lock was broken learns that another writer took the store over. It does not
//! acknowledge a save that later loads would not return.
//!
//! After a failed sync, the kernel's cached pages of the file prove nothing; only the bytes of an earlier successful sync are durable. The writer
//! therefore keeps its newest frames in memory, and keeps open the journals that contain all frames. After a failure it takes the next epoch and
//! writes all frames to a new file. It does the same if its files or the whole directory were removed.
//!
//! A [`Replica`] gets each save after the files have it and before the acknowledgement. So it has every acknowledged save, and at most one more. It
//! gets a *record* of each save, and [`rebuild`](fn@rebuild) makes a store from the records: with the same states, numbers and phases, but with other files.
//!
//! The last frame of a phase counts the frames and bytes before it. Each frame has a checksum seeded with the random salt of the file, and
//! consecutive frames have consecutive numbers. Together these checks detect every accident that a digest of the contents detects, so there is no
//! digest.
//!
//! # Limits
//!
//! A save takes at most 128 MiB (64 MiB compressed), a file 1 GiB, the events of one state 4 GiB. Values nest at most 128 levels deep. Plain serde
//! writes a `Vec<u8>` as a list of numbers, most of them two bytes long; `serde_bytes` writes the bytes. A writer holds about 64 KiB of its journal
//! in memory. To open a store and to write a phase, a writer needs memory for the whole state. Old phases stay until the caller removes them; only
//! [`Store`] removes its own. Saves are as durable as `fsync` on the file system: network and memory file systems promise less. Blobs have no
//! checksum.
#![cfg_attr(docsrs, feature(doc_cfg))]

// The modules in reading order; each uses only those above it:
//   sabotage, disk, name               mistakes that tests switch on; the system calls; names of files
//   frame, codec, error                frames, CBOR and compression, all errors
//   dir                                a directory that follows no link
//   saves                              one save, and the saves since the last phase
//   id, replay                         from frames to a state
//   options, meta, file_builder, report  how to open a store, the metadata of a file, whole files in memory, the report of a load
//   lock                               one writer at a time
//   chain, load, newest_head, history  what is on disk: a journal with those that it continues, the newest state, only its head, all saves
//   retention, blob, import            removal of old files, blobs, files of other programs
//   replica                            a second place for all saves, and the record of one save
//   journal, compact                   the file that a writer appends to, and the first contents of the next one
//   raw_writer, repair, generation, phase  the writer without types: opening, repair after a failure, journals, phases
//   rebuild                            a store from the records of a replica
//   fold, writer, store, fork, reader, list, verify  the same with types, and the read-only calls
mod blob;
#[cfg(test)]
mod bomb_tests;
mod chain;
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
mod file_builder;
mod fold;
mod fork;
mod frame;
#[cfg(test)]
mod full_tests;
mod history;
mod id;
#[cfg(feature = "import")]
pub mod import;
mod journal;
mod list;
mod load;
mod lock;
mod meta;
mod name;
mod newest_head;
mod next_journal;
mod options;
mod phase;
mod raw_writer;
pub mod reader;
mod rebuild;
mod repair;
mod replay;
mod replica;
mod report;
pub mod retention;
#[cfg(not(feature = "test-util"))]
mod sabotage;
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub mod sabotage;
mod saves;
mod store;
#[cfg(test)]
mod test_disk;
pub mod verify;
mod writer;

#[doc(hidden)] // only `rlm-store` needs it
pub use dir::accept_any_owner;
pub use error::{Error, Result};
pub use fold::Folded;
pub use fork::fork;
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub use fork::fork_on;
pub use id::{PhaseId, Seq};
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub use list::entry_on;
pub use meta::{ParentSave, PhaseInfo, PhaseMeta};
pub use name::check_name;
pub use options::{Migrations, Options};
pub use rebuild::rebuild;
#[cfg(feature = "test-util")]
#[doc(hidden)]
pub use rebuild::rebuild_on;
pub use repair::Repaired;
pub use replica::{Record, Replica, ReplicaError};
pub use report::{LoadReport, Skipped};
pub use store::Store;
pub use writer::{Loaded, Writer};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
