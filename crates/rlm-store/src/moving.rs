//! Runs that begin from another one's past, or go on elsewhere.
//!
//! Everything here is made beside where it will lie and gets its name last, so that what is stopped or killed on the way leaves nothing that could be
//! taken for a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cancellable_sleep::SleepGate;
use tokio_util::sync::CancellationToken;

use crate::git::looks::{Looks, OwnLooks};
use crate::{Error, Project};

mod archive;
mod arrive;
mod export;
mod fork;
mod import;
mod incoming;
mod manifest;
mod paths;

pub use export::{ExportOptions, Exported, To};
pub use fork::{ForkPoint, Forked};
pub use import::{Arrival, ImportOptions, Imported};
pub(crate) use incoming::sweep;

/// How far an export or an import is: shared with whoever shows it.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<[AtomicU64; 2]>);

impl Meter {
    fn add(&self, bytes: u64) {
        self.0[0].fetch_add(bytes, Ordering::Relaxed);
    }

    fn expect(&self, bytes: u64) {
        self.0[1].store(bytes, Ordering::Relaxed);
    }

    /// Returns how many bytes are done, and how many there are; 0 while that is not known.
    #[must_use]
    pub fn read(&self) -> (u64, u64) {
        let [done, all] = &*self.0;
        (done.load(Ordering::Relaxed), all.load(Ordering::Relaxed))
    }
}

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
