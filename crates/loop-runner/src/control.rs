//! What a run can be told: by the program that carries it out, and through its control socket by any other of the same user.
//!
//! The socket lies in the run's directory as `control.sock` (mode 0600, its directory 0700) as long as a process has the run. A request is one line, a JSON
//! object with its version (`{"v":1,"request":"interrupt"}`); the answers are such lines too, and each says more of what became of it: *recorded*
//! (on disk), *delivered* (the agent was given it), *in effect*. [`ask`] does that; where nobody listens it says so at once.
//!
//! [`attach`] looks at a run: one request, upon which come its last news, what it tells from then on, how it stands, and its end. Who lags misses some and is told
//! how many; nobody is waited for.
//!
//! A process that an agent started may ask for the status, and for nothing else: see `caller`.
//!
//! A line has at most 1 MiB, 32 are answered at once, and a peer that is slow to ask or to read is dropped after 5 s; of 33 that have not asked yet, the
//! oldest is dropped.

// The modules in reading order; each takes from those above it:
//   wishes                    what can be requested of a run, and how the run answers
//   protocol                  the lines of the socket
//   status, progress          how a run is, for one who asks or attaches; how far a request has come
//   place, caller, peer       where the socket is, who may ask, the connection
//   desk, server              the run's side
//   client, attached          the other side, one connection
//   live_run, force           a run and its process, as the other side asks, awaits and ends it
//   life                      whether a live run works
mod attached;
mod caller;
mod client;
mod desk;
mod force;
mod life;
mod live_run;
mod peer;
mod place;
mod progress;
mod protocol;
mod server;
mod status;
#[cfg(test)]
mod tests;
mod wishes;

pub use attached::{Attached, attach, attach_after};
pub use client::{Answers, ask};
pub use force::{ForceCause, Forced, StopOrForce};
pub use life::Life;
pub use live_run::{Asked, LiveRun, Patience, Reached};
pub use protocol::{Answer, Doing, Ended, Message, Query, Standing};
pub(crate) use server::Socket;
pub use wishes::Control;
pub(crate) use wishes::{Mark, Reply, Wish, Wishes};
