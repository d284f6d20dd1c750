//! The work on older transcripts that goes on beside everything else.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rlm_store::transcript::{Room, Tended};
use tokio::task::JoinHandle;

/// The tending of older transcripts, at most one at a time. Dropping it has that stop at the next piece.
#[derive(Debug)]
pub(crate) struct Tidying {
    /// Not here while it is tended.
    pub(crate) room: Option<Room>,
    pub(crate) work: Option<JoinHandle<(Room, Tended)>>,
    pub(crate) stop: Arc<AtomicBool>,
    /// The attempts that began meanwhile.
    pub(crate) begun: VecDeque<(u32, u32)>,
    /// Whether it was told that something went wrong, and that something was left out: once is enough.
    pub(crate) told: [bool; 2],
}

impl Tidying {
    pub(crate) fn new(run_dir: PathBuf, most: u64, resumed: bool) -> Self {
        Self {
            room: Some(Room::new(run_dir, most, resumed)),
            work: None,
            stop: Arc::default(),
            begun: VecDeque::new(),
            told: [false; 2],
        }
    }
}

impl Drop for Tidying {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
