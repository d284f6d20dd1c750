//! The items that a program saves in an iteration.

use std::collections::BTreeMap;
use std::sync::Arc;

use rlm_store::ItemError;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};

use crate::RunControl;

/// The items of the current iteration: the progress of a program's own work, so that another attempt doesn't repeat it.
///
/// An iteration that works through many things, such as the files of a directory, saves an item for each one that is done. If the process is killed, the
/// resumed run has the items, and the next attempt of the iteration continues with the others. The items of an iteration are gone when the next one
/// begins, and when a person asks to run the iteration again. All items together have at most 256 KiB: large results belong in files.
///
/// Get it from [`Runner::items`](crate::Runner::items). Clones show the same items. A driver of the program's own gets a clone through the
/// [`DriverFactory`](crate::DriverFactory).
#[derive(Clone, Debug)]
pub struct IterationItems {
    control: mpsc::Sender<RunControl>,
    items: watch::Receiver<Arc<BTreeMap<String, Value>>>,
}

impl IterationItems {
    pub(crate) fn new(
        control: mpsc::Sender<RunControl>,
        items: watch::Receiver<Arc<BTreeMap<String, Value>>>,
    ) -> Self {
        Self { control, items }
    }

    /// Returns the items of the current iteration by their keys, with those of its earlier attempts. All of them are on disk.
    #[must_use]
    pub fn all(&self) -> Arc<BTreeMap<String, Value>> {
        self.items.borrow().clone()
    }

    /// Saves an item of the current iteration; replaces the item with the same key. When this returns `Ok`, the item is on disk.
    ///
    /// Each call costs a save of the run, a few milliseconds. Don't wait for a save in
    /// [`close`](agent_duplex::Connection::close) or [`stop`](agent_duplex::Connection::stop) of a driver: the run waits for the driver then, and handles no
    /// save until the driver returns.
    ///
    /// # Errors
    ///
    /// An error if the key is empty or longer than 200 bytes, if all items would be larger than 256 KiB, if no iteration is in progress, or if the
    /// run is stopping or has ended. If the run can't save, it ends, and [`Runner::run`](crate::Runner::run) returns the reason.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the item may be saved or not.
    pub async fn save(&self, key: impl Into<String>, value: Value) -> Result<(), ItemError> {
        let (saved, result) = oneshot::channel();
        let key = key.into();
        let request = RunControl::SaveItem { key, value, saved };
        let sent = self.control.send(request).await;
        sent.map_err(|_| ItemError::Ended)?;
        result.await.unwrap_or(Err(ItemError::Ended))
    }
}
