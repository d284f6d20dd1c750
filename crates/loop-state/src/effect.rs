//! What the machine answers with: what has to be done, in order, and what people are told of it.

use std::borrow::Cow;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    Again, Command, Cut, Feedback, Occasion, PauseAfter, RuleChange, Steer, SteerState,
    StopDeadline, StopReason, Timestamp, Tree, Usage, Verdict, Wait,
};

/// Something that must be done now.
///
/// Effects are done in the order in which they are returned, each one finished before the next one is begun.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// Make the head durable, and the events since the last save. If that fails, do none of the effects behind it.
    Save,
    /// Make the head durable as a checkpoint of its own, which later saves don't replace: the named phase is over, and the head stands before
    /// whatever comes next. Takes the place of a [`Save`](Self::Save).
    SealPhase {
        /// The phase's name.
        phase: String,
    },
    /// Everything that has to end has to be gone by this deadline. Comes with each request to stop now, also when the deadline stays.
    StopBy(StopDeadline),
    /// Start the agent; report [`Happening::TurnEnded`](crate::Happening::TurnEnded). Where a request to stop waits, or the program shuts down, nothing is
    /// started or reported: [`StopAttempt`](Self::StopAttempt) follows.
    StartAttempt(Brief),
    /// End the turn and the whole tree of the attempt; report [`Happening::TurnEnded`](crate::Happening::TurnEnded), at once where nothing was started.
    StopAttempt {
        /// Why, to be told; `None` where a person requested it.
        why: Option<String>,
        /// Whether the agent is not asked first.
        at_once: bool,
    },
    /// Wait this long for a request to stop, and let nothing else happen meanwhile; if none comes, report that
    /// [`Timer::Shutdown`](crate::Timer::Shutdown) ran out.
    AwaitStop(Duration),
    /// Give the steer with this number to the turn that runs, if its agent can take one; report [`Happening::SteerMoved`](crate::Happening::SteerMoved).
    Deliver(u32),
    /// End the turn and keep the session; report [`Happening::TurnEnded`](crate::Happening::TurnEnded) unless the agent has more to answer.
    InterruptTurn,
    /// Go on in the session of an interrupted turn, with the steers that were not delivered.
    GoOn,
    /// Run the gate with this index; report [`Happening::GateEnded`](crate::Happening::GateEnded).
    RunGate(u32),
    /// Run the check; report [`Happening::CheckEnded`](crate::Happening::CheckEnded).
    RunCheck,
    /// End the gate or check that runs; its end is still to be reported.
    StopCheck,
    /// End the gate or check that runs, since it took this long; its end is still to be reported, as a failure that says so.
    TimeOutCheck(Duration),
    /// End what the attempt left running; report [`Happening::Settled`](crate::Happening::Settled).
    EndLeftovers,
    /// Wait at this boundary, where the run is to pause. It changes nothing that is saved.
    PauseAt(PauseAfter),
    /// Keep why the run is to wait; the save behind this makes it durable.
    PauseReason(String),
    /// Tell the person whose request changed nothing why. Nothing is done then but [`PauseAt`](Self::PauseAt).
    Refuse(Cow<'static, str>),
    /// Tell whoever watches. What is told is durable.
    Announce(Notice),
    /// Tell whoever watches that something lasts. Nothing of it is saved.
    Remind(Reminder),
    /// Warn people. Nothing of it is saved.
    Warn(Warning),
    /// The run is over for this process; [`Head::stop_reason`](crate::Head::stop_reason) says why. It is the last effect.
    Finish,
}

/// Something that lasts, and is reported while it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reminder {
    /// The agent gives no sign of life.
    Silent {
        /// For how long.
        silent: Duration,
        /// The time after which it counts as hung.
        of: Duration,
    },
    /// The run waits for the service of its agent.
    Waiting {
        /// Until when.
        until: Timestamp,
        /// How long that is from now on.
        left: Duration,
    },
}

/// What people have to know that the run itself can't fix.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A gate or the check can't be run, and the last time it could: the agent can't fix a slip in a command line.
    CommandNotRun {
        /// Which command.
        command: Command,
        /// Why it can't be run.
        said: String,
        /// After how many such failures in a row the run is stuck; `None` where it never is.
        stuck_after: Option<u32>,
    },
    /// The run is over, and no agent is known to have seen these steers.
    SteersUnseen {
        /// How many.
        count: usize,
    },
}

/// What an attempt is about: everything that its prompt needs beside the phase's own text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Brief {
    /// The index of the phase.
    pub phase: u32,
    /// The number of the iteration within its phase, from 1.
    pub iteration: u32,
    /// The number of the attempt.
    pub attempt: u32,
    /// The attempt before it, if that was cut.
    pub cut: Option<Cut>,
    /// What a failed gate or check printed.
    pub feedback: Option<Feedback>,
    /// What people said since the last turn.
    pub steers: Vec<Steer>,
    /// What the phase before this one came to, in its agent's words.
    pub result: Option<String>,
    /// The agent that worked before this one, which has not been told that yet.
    pub predecessor: Option<String>,
    /// The session to go on with; `None` for a fresh one.
    pub session: Option<String>,
    /// Whether that session is known to have the prompt of this iteration, which must not be sent again then.
    pub prompted: bool,
}

/// News of the run. It is serialised for those who look at a run from another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Notice {
    /// An attempt begins; nothing was started yet.
    AttemptStarted {
        /// The number of the iteration within its phase, from 1.
        iteration: u32,
        /// The number of the attempt.
        attempt: u32,
        /// Whether it is not the first one of its iteration.
        again: bool,
    },
    /// An iteration is complete.
    IterationEnded {
        /// Its number.
        iteration: u32,
        /// How it ended; `None` if nothing went wrong.
        failure: Option<String>,
        /// What its agent had left running.
        leftovers: Tree,
        /// What it used, all its attempts together.
        usage: Usage,
    },
    /// A phase is done and another one begins.
    PhaseEnded {
        /// Its name.
        name: String,
        /// What it used.
        usage: Usage,
    },
    /// The next iteration begins later.
    Sleeping {
        /// When it begins.
        until: Timestamp,
    },
    /// The iteration goes on later, as another attempt; that is no failure.
    Waiting {
        /// What is waited for.
        why: Wait,
        /// Until when.
        until: Timestamp,
        /// What the agent said; `None` when a wait goes on in another process.
        what: Option<String>,
    },
    /// The run waits for a person's word on what was done.
    Review(Occasion),
    /// A person has given it.
    Reviewed(Verdict),
    /// A rule is another one now.
    RuleSet(RuleChange),
    /// A rule of one of several phases is.
    PhaseRuleSet {
        /// The phase's name.
        phase: String,
        /// The rule.
        change: RuleChange,
    },
    /// A steer came further.
    Steer {
        /// Its number.
        id: u32,
        /// How far.
        state: SteerState,
    },
    /// The turn did nothing that could be seen; so did this many in a row.
    NothingDone {
        /// How many, this one included.
        in_a_row: u32,
    },
    /// The session that was to be gone on with is not there any more; a fresh one is begun.
    SessionLost,
    /// The turn was interrupted and waits for a word.
    Interrupted,
    /// The run will pause when the iteration is complete.
    Pausing,
    /// The run waits until a person lets it go on.
    Paused,
    /// The run goes on.
    Continued,
    /// What runs is ended, to be done again.
    Again(Again),
    /// The next attempt gets a fresh session.
    Fresh,
    /// The run will be stopped when the iteration is complete.
    StoppingLater,
    /// The run is being stopped: what runs is about to be ended.
    Stopping,
    /// The run is over for this process.
    Ended(StopReason),
}
