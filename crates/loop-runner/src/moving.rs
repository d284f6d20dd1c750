//! Runs that begin from another one's past, or go on elsewhere.
//!
//! Everything here is made beside where it will lie and gets its name last, so that what is stopped or killed on the way leaves nothing that could be
//! taken for a run.

use cancellable_sleep::SleepGate;
use tokio_util::sync::CancellationToken;

use crate::git::looks::{Looks, OwnLooks};
use crate::{Error, Project};

mod fork;
mod incoming;

pub use fork::{ForkPoint, Forked};
pub(crate) use incoming::INCOMING;

/// Whether work is to end early.
#[derive(Clone, Debug)]
pub(crate) struct Halt(CancellationToken);

impl Halt {
    fn check(&self) -> Result<(), Error> {
        match self.0.is_cancelled() {
            true => Err(Error::stopped()),
            false => Ok(()),
        }
    }
}

/// Does something on a thread that may block. When the gate's token is cancelled its git is ended, and it undoes what it has begun.
async fn halting<T: Send + 'static>(
    project: &Project,
    gate: &SleepGate,
    work: impl FnOnce(&Project, &Halt) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let mut project = project.clone();
    let looks = Looks::of_work();
    project.git_mut().known_to(looks.clone());
    let halt = Halt(gate.token().clone());
    let is_halted = gate.token().clone();
    let mut task = tokio::task::spawn_blocking(move || {
        halt.check()?;
        let done = work(&project, &halt);
        // What git says of its end by a signal is no news.
        done.map_err(|e| halt.check().err().unwrap_or(e))
    });
    let done = tokio::select! {
        biased;
        done = &mut task => done,
        () = is_halted.cancelled() => {
            drop(OwnLooks(looks));
            task.await
        }
    };
    done.expect("it does not panic")
}
