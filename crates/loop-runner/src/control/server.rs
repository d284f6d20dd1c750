//! The control socket of a run that this process works on: creates and repairs the socket, and accepts connections; `connection` serves them.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use agent_subprocess::ProcessId;
use loop_state::times;
use rlm_store::deadline::sleep_until;
use rlm_store::{RemoteMessage, RunId, state_dir};
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle, yield_now};
use tokio::time::{Instant, timeout};

use crate::control::connection::{ControlService, ReceivedRequest};
use crate::control::protocol::{EndReport, Response};
use crate::control::remote;
use crate::control::request_queue::QueuedRequest;
use crate::control::socket_path::{self, Identity};
use crate::heartbeat::LastTick;
use crate::recent_events::RecentEvents;
use crate::{RunnerOptions, View};

/// The most connections that are served at once.
const MAX_CONNECTIONS: u32 = 32;
/// The most connections without a request. A further connection replaces the oldest one, so silent clients don't lock others out.
const MAX_WITHOUT_REQUEST: usize = 32;
/// The most attached viewers at once.
const MAX_VIEWERS: usize = 8;
/// The most messages of other machines that are served at once.
const MAX_REMOTE: u32 = 256;
/// The most requests that wait while the run is saving.
pub(crate) const WAITING: usize = 16;
/// The pause after a failed accept.
const RECOVERY: Duration = Duration::from_millis(200);

/// The control socket of a run that this process works on. Dropping it removes the socket and closes its connections without a response.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    run_dir: PathBuf,
    connection: Arc<ControlService>,
    over: watch::Sender<Option<EndReport>>,
    bound: Option<(Identity, JoinHandle<()>)>,
    /// Whether a failure to create the socket was reported.
    is_reported: bool,
    refusals: mpsc::Receiver<String>,
}

impl ControlSocket {
    /// Prepares a socket; [`ensure`](Self::ensure) creates it.
    pub(crate) fn new(
        run: RunId,
        run_dir: PathBuf,
        options: &RunnerOptions,
        view: watch::Receiver<Arc<View>>,
        last_tick: LastTick,
        recent: Arc<RecentEvents>,
    ) -> (Self, mpsc::Receiver<QueuedRequest>) {
        let (to_run, requests) = mpsc::channel(WAITING);
        let (over, is_over) = watch::channel(None);
        let (to_refusals, refusals) = mpsc::channel(WAITING);
        let connection = Arc::new(ControlService {
            run,
            process: ProcessId::current(),
            stop_budget: options.stop_budget,
            to_run,
            view,
            last_tick,
            recent,
            end: is_over,
            slots: Arc::new(Semaphore::new(MAX_CONNECTIONS as usize)),
            viewers: Semaphore::new(MAX_VIEWERS),
            interactive: options.interactive,
            attended_viewers: AtomicUsize::new(0),
            to_refusals,
            refused: AtomicUsize::new(0),
            remote_places: Arc::new(Semaphore::new(MAX_REMOTE as usize)),
        });
        let socket = Self {
            run_dir,
            connection,
            over,
            bound: None,
            is_reported: false,
            refusals,
        };
        (socket, requests)
    }

    /// Creates the socket, also after somebody removed it. Open connections stay open.
    ///
    /// Returns an error once: the run continues without a socket, and each call tries again.
    pub(crate) fn ensure(&mut self) -> io::Result<()> {
        if self.bound.is_some() && !self.is_missing() {
            return Ok(());
        }
        self.unbind();
        match socket_path::bind_socket(&self.run_dir)
            .and_then(|(l, id)| Ok((UnixListener::from_std(l)?, id)))
        {
            Ok((listener, identity)) => {
                let accepting = tokio::spawn(accept(listener, Arc::clone(&self.connection)));
                self.bound = Some((identity, accepting));
                self.is_reported = false;
                Ok(())
            }
            Err(_) if self.is_reported => Ok(()),
            Err(e) => {
                self.is_reported = true;
                Err(e)
            }
        }
    }

    /// Serves the messages of other machines, until their channel is closed.
    pub(crate) fn serve_remote(&self, messages: mpsc::Receiver<RemoteMessage>) {
        tokio::spawn(remote::serve(Arc::clone(&self.connection), messages));
    }

    /// Waits until the run refuses a request of a process, and returns the report. Cancel safe.
    pub(crate) async fn refused(&mut self) -> String {
        match self.refusals.recv().await {
            Some(refusal) => refusal,
            None => std::future::pending().await,
        }
    }

    /// Returns whether the socket was created and is missing now.
    pub(crate) fn is_missing(&self) -> bool {
        let there = socket_path::identity(&self.run_dir).ok();
        { self.bound.as_ref() }.is_some_and(|(identity, _)| there != Some(*identity))
    }

    fn unbind(&mut self) {
        if let Some((identity, accepting)) = self.bound.take() {
            accepting.abort();
            if socket_path::identity(&self.run_dir).is_ok_and(|there| there == identity) {
                // If the file stays, it looks like the socket of a dead process, as after a crash.
                let _stays = state_dir::remove_file(&socket_path::socket(&self.run_dir));
            }
        }
    }

    /// Removes the socket and sends the end of the run to the waiting clients, with a short time limit.
    pub(crate) async fn close(mut self, ended: EndReport) {
        self.unbind();
        self.over.send_replace(Some(ended));
        // All slots are free when every client has received the end.
        let all = async {
            let _local = self.connection.slots.acquire_many(MAX_CONNECTIONS).await;
            let _remote = self.connection.remote_places.acquire_many(MAX_REMOTE).await;
        };
        let _slow = timeout(times::CONTROL_END, all).await;
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.unbind();
    }
}

async fn accept(listener: UnixListener, connection: Arc<ControlService>) {
    let mut unread = VecDeque::<AbortHandle>::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                unread.retain(|it| !it.is_finished());
                if unread.len() >= MAX_WITHOUT_REQUEST
                    && let Some(oldest) = unread.pop_front()
                {
                    oldest.abort();
                }
                let connection = Arc::clone(&connection);
                let reading = tokio::spawn(async move {
                    // A separate task serves the request, so a connection whose request was read is no longer dropped.
                    if let Some(received) = connection.read(stream).await {
                        tokio::spawn(serve(connection, received));
                    }
                });
                unread.push_back(reading.abort_handle());
                // Yield, so that each connection can be read during a flood of connections.
                yield_now().await;
            }
            Err(_) => sleep_until(Instant::now() + RECOVERY).await,
        }
    }
}

/// Serves a request, if there is a free slot.
async fn serve(connection: Arc<ControlService>, received: ReceivedRequest) {
    match Arc::clone(&connection.slots).try_acquire_owned() {
        Ok(slot) => {
            // Serving fails if the peer is gone, which is fine.
            let _gone = connection.serve(received).await;
            drop(slot);
        }
        Err(_) => received.reject(&Response::Busy).await,
    }
}
