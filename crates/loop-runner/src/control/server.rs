//! The control socket of a run that this process holds: making it, again if need be, and taking connections; `desk` serves them.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use agent_subprocess::ProcessId;
use loop_state::times;
use rlm_store::deadline::until;
use rlm_store::{RunId, state_dir};
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle, yield_now};
use tokio::time::{Instant, timeout};

use crate::control::desk::{Asked, Desk};
use crate::control::place::{self, Identity};
use crate::control::protocol::{Answer, Ended};
use crate::control::wishes::Wish;
use crate::heartbeat::Pulse;
use crate::recent::Recent;
use crate::{Options, View};

/// How many may be answered at once.
const MOST: u32 = 32;
/// How many may have connected without a request. One more takes the place of the oldest: who connects and is silent locks nobody out.
const UNREAD: usize = 32;
/// How many may look on at once.
const WATCHERS: usize = 8;
/// How many wishes wait for a run that is busy saving.
pub(crate) const WAITING: usize = 16;
/// How long no connection is taken after one could not be taken.
const RECOVERY: Duration = Duration::from_millis(200);

/// The control socket of a run that this process holds. Dropping it removes the socket; who still waits is told nothing.
#[derive(Debug)]
pub(crate) struct Socket {
    run_dir: PathBuf,
    desk: Arc<Desk>,
    over: watch::Sender<Option<Ended>>,
    bound: Option<(Identity, JoinHandle<()>)>,
    /// Whether it was told that there is none.
    told: bool,
    refusals: mpsc::Receiver<String>,
}

impl Socket {
    /// Prepares a socket; [`ensure`](Self::ensure) makes it.
    pub(crate) fn new(
        run: RunId,
        run_dir: PathBuf,
        options: &Options,
        view: watch::Receiver<Arc<View>>,
        pulse: Pulse,
        recent: Arc<Recent>,
    ) -> (Self, mpsc::Receiver<Wish>) {
        let (to_run, wishes) = mpsc::channel(WAITING);
        let (over, is_over) = watch::channel(None);
        let (to_refusals, refusals) = mpsc::channel(WAITING);
        let desk = Arc::new(Desk {
            run,
            process: ProcessId::current(),
            stop_budget: options.stop_budget,
            to_run,
            view,
            pulse,
            recent,
            over: is_over,
            slots: Arc::new(Semaphore::new(MOST as usize)),
            watchers: Semaphore::new(WATCHERS),
            interactive: options.interactive,
            persons: AtomicUsize::new(0),
            to_refusals,
            refused: AtomicUsize::new(0),
        });
        let socket = Self {
            run_dir,
            desk,
            over,
            bound: None,
            told: false,
            refusals,
        };
        (socket, wishes)
    }

    /// Makes the socket, also again when somebody removed it. Who is connected stays so.
    ///
    /// An error is returned once: the run goes on without, and it is tried again at each call.
    pub(crate) fn ensure(&mut self) -> io::Result<()> {
        if self.bound.is_some() && !self.was_removed() {
            return Ok(());
        }
        self.unbind();
        match place::bind(&self.run_dir).and_then(|(l, id)| Ok((UnixListener::from_std(l)?, id))) {
            Ok((listener, identity)) => {
                let accepting = tokio::spawn(accept(listener, Arc::clone(&self.desk)));
                self.bound = Some((identity, accepting));
                self.told = false;
                Ok(())
            }
            Err(_) if self.told => Ok(()),
            Err(e) => {
                self.told = true;
                Err(e)
            }
        }
    }

    /// Waits until a request is refused to a process, and says which and why. Cancel safe.
    pub(crate) async fn refused(&mut self) -> String {
        match self.refusals.recv().await {
            Some(refusal) => refusal,
            None => std::future::pending().await,
        }
    }

    /// Returns whether it was made and is not there any more.
    pub(crate) fn was_removed(&self) -> bool {
        let there = place::identity(&self.run_dir).ok();
        { self.bound.as_ref() }.is_some_and(|(identity, _)| there != Some(*identity))
    }

    fn unbind(&mut self) {
        if let Some((identity, accepting)) = self.bound.take() {
            accepting.abort();
            if place::identity(&self.run_dir).is_ok_and(|there| there == identity) {
                // One that stays is of a dead process, as after a crash.
                let _stays = state_dir::remove_file(&place::socket(&self.run_dir));
            }
        }
    }

    /// Removes the socket and tells those who wait how the run ended, for a short time.
    pub(crate) async fn close(mut self, ended: Ended) {
        self.unbind();
        self.over.send_replace(Some(ended));
        // All slots are free when everybody was told.
        let _slow = timeout(times::CONTROL_END, self.desk.slots.acquire_many(MOST)).await;
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.unbind();
    }
}

async fn accept(listener: UnixListener, desk: Arc<Desk>) {
    let mut unread = VecDeque::<AbortHandle>::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                unread.retain(|it| !it.is_finished());
                if unread.len() >= UNREAD
                    && let Some(oldest) = unread.pop_front()
                {
                    oldest.abort();
                }
                let desk = Arc::clone(&desk);
                let reading = tokio::spawn(async move {
                    // Whose request is read is not dropped any more.
                    if let Some(asked) = desk.read(stream).await {
                        tokio::spawn(serve(desk, asked));
                    }
                });
                unread.push_back(reading.abort_handle());
                // A flood of connections must leave each a chance to be read.
                yield_now().await;
            }
            Err(_) => until(Instant::now() + RECOVERY).await,
        }
    }
}

/// Answers a request, if there is a place.
async fn serve(desk: Arc<Desk>, asked: Asked) {
    match Arc::clone(&desk.slots).try_acquire_owned() {
        Ok(slot) => {
            // A peer that can't be answered has gone.
            let _gone = desk.serve(asked).await;
            drop(slot);
        }
        Err(_) => asked.refuse(&Answer::Busy).await,
    }
}
