//! What would mend an error, apart from its text: a program knows how that is asked of it, and this crate does not.

use crate::RunId;

/// What would mend an [`Error`](crate::Error). Its text says it in words to which a program can add its command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mend {
    /// To choose one of the runs that are there; see [`Project::runs`](crate::Project::runs).
    ChooseRun,
    /// To choose from what is on record of the run; see [`Project::checkpoints`](crate::Project::checkpoints).
    ChooseState(RunId),
    /// To look at this save of the run; see [`Project::state_at`](crate::Project::state_at).
    Look {
        /// The run.
        run: RunId,
        /// The number of the save.
        save: u64,
    },
    /// To see what is damaged of the run, and what is safe to do; see [`Project::verify`](crate::Project::verify).
    Verify(RunId),
    /// To stop the run, which is at work; see `Control::Stop` of `loop-runner`.
    Stop(RunId),
    /// To take up the run; see `Runner::open` of `loop-runner`.
    Resume(RunId),
    /// To take up the run, though it goes on elsewhere; see `Options::take_back` of `loop-runner`.
    TakeBack(RunId),
    /// To have the run commit what it does from now on; see [`Settings::commit`](field@crate::Settings::commit).
    Commit(RunId),
    /// To fork the run that made the iteration; see [`Project::fork`](crate::Project::fork).
    Fork {
        /// The run.
        run: RunId,
        /// The iteration.
        iteration: u32,
    },
}
