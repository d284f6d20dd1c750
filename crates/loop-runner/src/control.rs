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

mod attached;
mod caller;
mod change;
mod client;
mod desk;
mod doing;
mod fit;
mod force;
mod peer;
mod place;
mod progress;
mod protocol;
mod recent;
mod reviewed;
mod server;
mod show;
mod standing;
#[cfg(test)]
mod tests;
mod ways;
mod wishes;

use agent_duplex::Decision;
use loop_state::{Again, StopRequest, Verdict};
use tokio::sync::oneshot;

pub use attached::{Attached, attach, attach_after};
pub use change::Change;
pub use client::{Answers, ask};
pub use doing::Doing;
pub use force::{Forced, end_by_force};
pub use protocol::{Answer, Ended, PauseAfter, Redo, Request, Standing, StopAfter};
pub(crate) use recent::Recent;
pub use reviewed::Reviewed;
pub(crate) use server::Socket;
pub(crate) use wishes::{Coming, Mark, Wish, Wishes};

/// A message to the run. What becomes of it comes as [`News`](crate::News); one that makes no sense now is answered with
/// [`News::Rejected`](crate::News::Rejected).
#[derive(Debug)]
#[non_exhaustive]
pub enum Control {
    /// The run shall stop, within [`Options::stop_budget`](crate::Options::stop_budget) where that is now. A second one can only make it sooner.
    Stop(StopRequest),
    /// The run shall stop now, for a person who has no patience with the agent: all that runs has a second to end, also where a stop is under way.
    Abort,
    /// A person has something to say to the agent. Where a phase or a batch waits for their word, that is [`Verdict::Revise`].
    Steer {
        /// What.
        text: String,
        /// Whether the turn that runs is to be interrupted for it, and gone on with in the same session.
        now: bool,
    },
    /// The turn shall end and its session wait; the run goes on with [`Continue`](Self::Continue) or a steer.
    Interrupt,
    /// The run shall wait.
    Pause {
        /// Why, for whoever finds it waiting.
        reason: Option<String>,
        /// At which boundary.
        after: PauseAfter,
    },
    /// A rule shall be another one.
    Set(Change),
    /// A waiting run shall go on, or one that would wait shall not.
    Continue,
    /// A person has looked at a phase or a batch that waits for their word.
    Review(Verdict),
    /// Whether somebody is there, from now on, who can be asked what they think of a phase or a batch. When nobody is, none waits for that.
    Attended(bool),
    /// What is slept or waited for shall begin now.
    SkipSleep,
    /// The iteration or the phase shall be done again, in a fresh session.
    Again(Again),
    /// The next attempt shall get a fresh session.
    FreshSession,
    /// The answer to a question of the agent's.
    Answer {
        /// The question's id.
        ask: String,
        /// The answer.
        decision: Decision,
    },
    /// The new text of a prompt that comes from no file.
    Prompt {
        /// The index of the phase whose prompt it is.
        phase: u32,
        /// The text.
        text: String,
    },
    /// Everything that runs shall stand still, or go on.
    Freeze {
        /// Which of the two.
        frozen: bool,
        /// Told when it is so.
        done: oneshot::Sender<()>,
    },
}
