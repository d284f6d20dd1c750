//! The state machine of an agent's process, and the requests that are possible in each state.
//!
//! It knows no outcome of a turn, no deadline and no run: the attempt machine drives it. It is separate because a process can outlive its attempt:
//! background tasks and leftovers can continue after the attempt has been checked.
//!
//! Its states belong to the run and differ from those of `agent_duplex::Lifecycle`. An attempt needs the new state as soon as it requests an
//! interrupt, a close or an end, but the conversation publishes its own state only later. `Lifecycle` also has no state for a close that an attempt
//! waits for.

/// The state of an agent's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AgentState {
    /// No process runs: none was started yet, or the last one exited. Its child processes may still run.
    #[default]
    None,
    /// The process is being started.
    Starting,
    /// The process waits for an input.
    Idle,
    /// A turn runs.
    InTurn,
    /// A turn runs, and it is being interrupted.
    Interrupting,
    /// The process is being closed, and the attempt waits for the end.
    Closing,
    /// The whole process tree is being ended.
    Ending,
    /// The whole process tree is gone. The conversation with the agent is over.
    Gone,
}

/// An event of the agent's process, or a request to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AgentInput {
    /// The attempt needs a process.
    Start,
    /// The process runs.
    Started,
    /// The process could not be started.
    NotStarted,
    /// A turn began.
    TurnBegan,
    /// The turn is over.
    TurnEnded,
    /// The turn should end; the process should stay.
    Interrupt,
    /// The process should end now, and the attempt waits for that.
    Close,
    /// The close is complete.
    Closed,
    /// The whole process tree has to end.
    End,
    /// The process exited.
    Exited,
    /// The whole process tree is gone.
    TreeGone,
}

/// An action on the agent's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AgentEffect {
    /// Start the process; report [`AgentInput::Started`] or [`AgentInput::NotStarted`].
    Start,
    /// Ask the agent to end its turn; report [`AgentInput::TurnEnded`].
    Interrupt,
    /// Close the process; report [`AgentInput::Closed`].
    Close,
    /// End the process tree; report [`AgentInput::TreeGone`].
    End,
}

impl AgentState {
    /// Takes an input and returns the required action; `None` if the input needs no action.
    pub fn step(&mut self, input: AgentInput) -> Option<AgentEffect> {
        let (next, effect) = self.after(input);
        *self = next;
        effect
    }

    fn after(self, input: AgentInput) -> (Self, Option<AgentEffect>) {
        use AgentInput as Input;
        let next = match (self, input) {
            (Self::None | Self::Gone, Input::Start) => {
                return (Self::Starting, Some(AgentEffect::Start));
            }
            (Self::Starting, Input::Started)
            | (Self::InTurn | Self::Interrupting, Input::TurnEnded) => Self::Idle,
            (Self::Idle, Input::TurnBegan) => Self::InTurn,
            (Self::InTurn | Self::Interrupting, Input::Interrupt) => {
                return (Self::Interrupting, Some(AgentEffect::Interrupt));
            }
            (Self::Idle, Input::Close) => return (Self::Closing, Some(AgentEffect::Close)),
            (Self::Starting, Input::NotStarted) | (Self::Closing, Input::Closed) => Self::None,
            (Self::Ending | Self::Gone, Input::End) => self,
            // This also applies without a process, because child processes of an earlier process may still run.
            (_, Input::End) => return (Self::Ending, Some(AgentEffect::End)),
            (Self::Starting | Self::Idle | Self::InTurn | Self::Interrupting, Input::Exited) => {
                Self::None
            }
            (Self::Ending, Input::TreeGone) => Self::Gone,
            _ => self,
        };
        (next, None)
    }

    /// Returns whether a process of the agent exists or is being started.
    #[must_use]
    pub const fn is_alive(self) -> bool {
        !matches!(self, Self::None | Self::Gone)
    }

    /// Returns whether the whole process tree is being ended, or is gone.
    #[must_use]
    pub const fn is_ending_or_gone(self) -> bool {
        matches!(self, Self::Ending | Self::Gone)
    }
}
