//! The fleet on a NATS server with JetStream: executes the decisions of this crate, and stores runs in streams.
//!
//! `rlm` uses this module to submit runs and to work on them. It needs the feature `nats`, and a server of version 2.12 or later.
//!
//! # The assets on the server
//!
//! [`Fleet::init`] creates these assets; `NS` is the namespace of the fleet.
//!
//! | asset | contains |
//! |---|---|
//! | stream `NS-runs`, subjects `NS.run.RUN` | the records of each run, in order; each append states the number that the last record of its run must have |
//! | stream `NS-work`, subjects `NS.work.POOL.RUN` | one message for each run that needs a worker; its delivery is the lease of a worker |
//! | consumer `pool-POOL` of `NS-work` | delivers the runs of a pool; its `ack_wait` is the lease |
//! | object store `NS-blobs` | everything that is larger than a message: bases, code, large records; the name of an object is its SHA-256 |
//! | stream `NS-settings`, subject `NS.settings.budget` | the budget of the fleet |
//! | stream `NS-spent`, subjects `NS.spent.total` and `NS.spent.day-N` | counters of what all runs spent, in millionths of a US dollar; `N` is the number of days since 1970 |
//! | subject `NS.signal.budget-spent` | no stream: a run announces there that the budget is spent |
//! | stream `NS-requests`, subjects `NS.req.RUN` | the requests of people to each run, in order; its owner applies each once |
//! | stream `NS-transcripts`, subjects `NS.transcript.RUN` | the transcripts of each run, in parts: at most the last 4,096 of 128 KiB |
//! | subject `NS.ctl.RUN` | no stream: the owner of a run answers probes there |
//! | subject `NS.live.RUN` | no stream: the process of a run answers queries there, and reads its requests when a message announces one |
//! | subject `NS.reply.ID` | no stream: the process of a run sends its responses there |
//! | subject `NS.worker.WORKER` | no stream: a worker gets the request to drain there |
//!
//! All reads go to the leader of a stream (`allow_direct=false`), because another replica can lack the newest records.
//!
//! # Limits
//!
//! - A message has at most the `max_payload` of the server, 1 MiB by default. The body of a larger record is an object, and the record names it.
//! - A rebuild reads the records of a run one by one, about 3,000 a second on loopback, and has all of them in memory: at most 1,000,000 records and
//!   2 GiB.
//! - Only [`Fleet::remove`] removes records and objects. It reads the headers of all records of the fleet.
//! - A user logs in with a password. The login by an nkey or a credentials file is not built: it would need about twenty more crates.
//! - A worker that dies between a request to the model and its next message to the server does not count the cost of this request.

// The modules in reading order; each uses only those above it:
//   error                the error of all operations
//   clock                the present moment
//   names                names of streams and subjects
//   fleet                the connection
//   objects              blobs by their hash
//   record               a record as a message
//   journal              reads and appends of one run's records
//   assets               the creation of the streams
//   budget               the budget of all runs together
//   submit               new runs, and the list of all
//   remove               the removal of an ended run
//   rebuild              the parts from which a worker makes the directory of a run
//   requests             the requests of people to a run
//   replica              the saves of a run
//   lease                renewals
//   claim                the delivery of a run, up to the claim
//   transcripts          the transcripts of a run
//   resume               the end of a run without an owner, and the resume of an ended one
//   export               the export of a run, and its return
//   drain                the end of a worker from another machine
//   supervise            the work on a claimed run
mod assets;
mod budget;
mod claim;
mod clock;
mod drain;
mod error;
mod export;
mod fleet;
mod journal;
mod lease;
mod names;
mod objects;
mod rebuild;
mod record;
mod remove;
mod replica;
mod requests;
mod resume;
mod submit;
mod supervise;
mod transcripts;

#[cfg(test)]
mod tests;

pub use assets::{Asset, AssetState, FleetOptions, MIN_LEASE};
pub use budget::{Budget, BudgetChanges, BudgetPeriod};
pub use claim::{ClaimDecision, Claimed, Delivery};
pub use clock::now;
pub use drain::DrainRequests;
pub use error::Error;
pub use export::{ExportedRun, ReturnedRun};
pub use fleet::{Fleet, FleetAddress};
pub use names::Pool;
pub use objects::ObjectId;
pub use rebuild::{RunCode, RunParts};
pub use record::{RunSummary, StoredRecord};
pub use remove::Removed;
pub use replica::{BundleCode, NatsReplica, ReplicaStart};
pub use requests::{OwnerState, RecordedRequest, Responses};
pub use resume::QueuedStop;
pub use submit::{NewRun, RunRow, Submitted};
pub use supervise::{RunProcess, SupervisionEnd};
pub use transcripts::{StoredPart, StoredTranscripts, TranscriptUpload};
