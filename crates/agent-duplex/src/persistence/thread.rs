//! The persistence thread: a store blocks, and neither the actor nor a caller of `send` may block.

#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;

use tokio::sync::oneshot;

use super::record::{PersistedRecord, Persistence, RecoveredConversation};
use crate::Error;

/// Passes records to a [`Persistence`] on a thread of its own.
///
/// The thread stores all waiting records in one append. After the first error, every later post gets the same error. When this is dropped, the thread
/// stores the posted records and ends.
#[derive(Debug)]
pub(crate) struct PersistenceThread(mpsc::Sender<Post>);

struct Post {
    records: Vec<PersistedRecord>,
    then: Box<dyn FnOnce(Result<(), Error>) + Send>,
}

impl fmt::Debug for Post {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Post").field(&self.records).finish()
    }
}

impl PersistenceThread {
    /// Starts the thread and recovers the stored conversation.
    ///
    /// If the future is dropped, the thread ends after the recovery.
    pub(crate) async fn open(
        mut persistence: Box<dyn Persistence>,
    ) -> Result<(Arc<Self>, RecoveredConversation), Error> {
        let (posts, posted) = mpsc::channel();
        let (done, recovered) = oneshot::channel();
        let thread = thread::Builder::new().name("persistence".into());
        let running = thread.spawn(move || {
            let recovered = persistence.recover();
            let goes_on = recovered.is_ok();
            if done.send(recovered).is_ok() && goes_on {
                work(&mut *persistence, &posted);
            }
        });
        running.map_err(|e| {
            let text = "the persistence thread can't be started; end other programs";
            Error::persistence(text, Some(e.into()))
        })?;
        let recovered = recovered.await.map_err(|_| gone())??;
        Ok((Arc::new(Self(posts)), recovered))
    }

    /// Stores records and then calls `then` once, on the persistence thread. Never waits; the callers limit the number of waiting records.
    ///
    /// Without records, `then` is called after everything that was posted before is stored.
    pub(crate) fn post(
        &self,
        records: Vec<PersistedRecord>,
        then: impl FnOnce(Result<(), Error>) + Send + 'static,
    ) {
        let then = Box::new(then);
        if let Err(mpsc::SendError(post)) = self.0.send(Post { records, then }) {
            // Call `then` on another thread: the caller can hold a lock that `then` needs.
            let _none = thread::Builder::new().spawn(move || (post.then)(Err(gone())));
        }
    }
}

fn gone() -> Error {
    let text = "the persistence thread panicked; open the conversation again";
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
            // The waiting callers must get an answer, even after a panic of the store.
            let kept = catch_unwind(AssertUnwindSafe(|| persistence.append(&records)));
            fault = kept.unwrap_or_else(|_| Err(gone())).err();
        }
        for then in thens {
            then(fault.as_ref().map_or(Ok(()), |fault| Err(fault.clone())));
        }
    }
}
