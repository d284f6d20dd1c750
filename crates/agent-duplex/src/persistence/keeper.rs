//! The thread that keeps: persistence blocks, and neither the actor nor who sends may.

#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::sync::oneshot;

use super::record::{Persistence, Record, Recovered};
use crate::Error;

/// Hands records to a [`Persistence`] on a thread of its own.
///
/// What waits is kept in one append, however many posted it. The first fault is the answer to everything that comes after it. When this is dropped, the
/// thread keeps what was posted and ends.
#[derive(Debug)]
pub(crate) struct Keeper(mpsc::Sender<Post>);

struct Post {
    records: Vec<Record>,
    then: Box<dyn FnOnce(Result<(), Error>) + Send>,
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Post").field(&self.records).finish()
    }
}

impl Keeper {
    /// Starts the thread and recovers what was kept.
    ///
    /// Dropping the future leaves nothing behind once the thread is through with the recovery.
    pub(crate) async fn open(
        mut persistence: Box<dyn Persistence>,
    ) -> Result<(Arc<Self>, Recovered), Error> {
        let (posts, posted) = mpsc::channel();
        let (done, recovered) = oneshot::channel();
        let thread = thread::Builder::new().name("keeper".into());
        let running = thread.spawn(move || {
            let recovered = persistence.recover();
            let goes_on = recovered.is_ok();
            if done.send(recovered).is_ok() && goes_on {
                work(&mut *persistence, &posted);
            }
        });
        running.map_err(|e| {
            let text = "the thread that keeps it can't be started; end other programs";
            Error::persistence(text, Some(e.into()))
        })?;
        let recovered = recovered.await.map_err(|_| gone())??;
        Ok((Arc::new(Self(posts)), recovered))
    }

    /// Keeps records and then calls `then` on the keeper's thread, once. Never waits; whoever posts bounds how much waits.
    ///
    /// Without records, `then` is called when all that was posted before is kept.
    pub(crate) fn post(
        &self,
        records: Vec<Record>,
        then: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let then = Box::new(then);
        if let Err(mpsc::SendError(post)) = self.0.send(Post { records, then }) {
            // Not on this thread: whoever posts may hold what `then` wants.
            let _none = thread::Builder::new().spawn(move || (post.then)(Err(gone())));
        }
    }
}

fn gone() -> Error {
    let text = "the thread that keeps it panicked; open the conversation again";
    Error::persistence(text, None)
}

fn work(persistence: &mut dyn Persistence, posted: &mpsc::Receiver<Post>) {
    let mut fault: Option<Error> = None;
    while let Ok(first) = posted.recv() {
        let mut records = first.records;
        let mut thens = vec![first.then];
        for mut post in posted.try_iter() {
            records.append(&mut post.records);
            thens.push(post.then);
        }
        if fault.is_none() && !records.is_empty() {
            // Those who wait are to hear of it, whoever is at fault.
            let kept = catch_unwind(AssertUnwindSafe(|| persistence.append(&records)));
            fault = kept.unwrap_or_else(|_| Err(gone())).err();
        }
        for then in thens {
            then(fault.as_ref().map_or(Ok(()), |fault| Err(fault.clone())));
        }
    }
}
