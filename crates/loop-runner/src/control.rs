use agent_duplex::Decision;
use loop_state::{Again, StopRequest};
use tokio::sync::oneshot;

/// A message to the run. What becomes of it comes as [`News`](crate::News); one that makes no sense now is answered with
/// [`News::Rejected`](crate::News::Rejected).
#[derive(Debug)]
#[non_exhaustive]
pub enum Control {
    /// The run shall stop.
    Stop(StopRequest),
    /// The run shall stop now, for a person who has no patience with the agent.
    Abort,
    /// A person has something to say to the agent.
    Steer {
        /// What.
        text: String,
        /// Whether the turn that runs is to be interrupted for it, and gone on with in the same session.
        now: bool,
    },
    /// The turn shall end and its session wait; the run goes on with [`Continue`](Self::Continue) or a steer.
    Interrupt,
    /// The run shall wait when the iteration is complete.
    Pause,
    /// A waiting run shall go on, or one that would wait shall not.
    Continue,
    /// The next iteration shall begin now.
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
    Prompt(String),
    /// Everything that runs shall stand still, or go on.
    Freeze {
        /// Which of the two.
        frozen: bool,
        /// Told when it is so.
        done: oneshot::Sender<()>,
    },
}
