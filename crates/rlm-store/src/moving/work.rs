//! The parts that export, import and fork share: a thread that can be halted, its progress, and the store that none of them takes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cancellable_sleep::SleepGate;
use checkpoint_store::verify::{Condition, Next, verify};
use tokio_util::sync::CancellationToken;

use crate::git::looks::{Looks, OwnLooks};
use crate::{Error, Project};

/// How far an export or an import is: shared with whoever shows it.
#[derive(Clone, Debug, Default)]
pub struct Meter(Arc<[AtomicU64; 2]>);

impl Meter {
    pub(super) fn add(&self, bytes: u64) {
        self.0[0].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn expect(&self, bytes: u64) {
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
pub(super) struct Halt(CancellationToken);

impl Halt {
    pub(super) fn check(&self) -> Result<(), Error> {
        match self.0.is_cancelled() {
            true => Err(Error::stopped()),
            false => Ok(()),
        }
    }
}

/// Says why a store is not one that a run can travel with: in all of it nothing may be damaged.
pub(super) fn refuse_damaged(dir: &Path) -> Result<(), String> {
    let found = verify(dir).map_err(|e| e.to_string())?;
    let is_whole =
        |condition: &Condition| matches!(condition, Condition::Whole | Condition::Torn { .. });
    if let Some(file) = found.files.iter().find(|file| !is_whole(&file.condition)) {
        return Err(format!("{}: {}", file.name, file.condition));
    }
    match found.next {
        Next::Resume { .. } => Ok(()),
        other => Err(other.to_string()),
    }
}

/// Does something on a thread that may block. When the gate's token is cancelled its git is ended, and it undoes what it has begun.
pub(super) async fn halting<T: Send + 'static>(
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
        // Git's words about its end by a signal are ignored.
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
