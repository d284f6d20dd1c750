//! A client's connection at the run's side: passes the request to the run, and sends the responses.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_subprocess::ProcessId;
use agent_subprocess::ancestry;
use loop_state::{IterationStep, Request};
use rlm_store::RunId;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::control::caller;
use crate::control::peer::{
    Peer, RunEndWatch, current_uid, is_same_user, read_line, wait_until_closed,
};
use crate::control::progress::{AcceptedRequest, first_response, response_without_change};
use crate::control::protocol::{self, ControlMessage, ControlQuery, Response};
use crate::control::request_queue::{QueuedRequest, ReplySender, RequestResult};
use crate::control::status::{build_status, show};
use crate::heartbeat::LastTick;
use crate::recent_events::RecentEvents;
use crate::{RunControl, View};

/// The longest time for which the run reports the progress of a request.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The most refusals that are reported in the run's events.
const MAX_REPORTED_REFUSALS: usize = 20;

/// The state that all connections share.
#[derive(Debug)]
pub(super) struct ControlService {
    pub(super) run: RunId,
    pub(super) process: ProcessId,
    pub(super) stop_budget: Duration,
    pub(super) to_run: mpsc::Sender<QueuedRequest>,
    pub(super) view: watch::Receiver<Arc<View>>,
    pub(super) last_tick: LastTick,
    pub(super) recent: Arc<RecentEvents>,
    pub(super) end: RunEndWatch,
    pub(super) slots: Arc<Semaphore>,
    pub(super) viewers: Semaphore,
    /// Whether the run's own process can ask a person.
    pub(super) interactive: bool,
    /// The number of attached viewers with a person.
    pub(super) attended_viewers: AtomicUsize,
    /// Reports refused requests to the run, and counts them.
    pub(super) to_refusals: mpsc::Sender<String>,
    pub(super) refused: AtomicUsize,
    /// The places of the messages of other machines.
    pub(super) remote_places: Arc<Semaphore>,
}

/// A request, and the peer that sent it.
#[derive(Debug)]
pub(super) struct ReceivedRequest {
    message: ControlMessage,
    caller: io::Result<ancestry::Peer>,
    from: BufReader<OwnedReadHalf>,
    to: OwnedWriteHalf,
}

impl ReceivedRequest {
    /// Sends a response without doing anything else.
    pub(super) async fn reject(mut self, response: &Response) {
        // Sending fails if the peer is gone, which is fine.
        let _gone = Peer::new(&mut self.to).send(response).await;
    }
}

impl ControlService {
    /// Reads the request of a peer. Returns `None` for a peer that may not send one, or sends none in time; an invalid request gets a response.
    pub(super) async fn read(&self, stream: UnixStream) -> Option<ReceivedRequest> {
        if !is_same_user(stream.peer_cred().ok()?.uid(), current_uid()) {
            return None;
        }
        // Look up the process at once: if it ends, it can't be found later.
        let caller = ancestry::Peer::of(stream.as_fd());
        let (from, mut to) = stream.into_split();
        let mut from = BufReader::new(from);
        let mut over = self.end.clone();
        let line = tokio::select! {
            line = read_line(&mut from) => line.ok()?,
            _ = over.changed() => return None,
        };
        match protocol::parse_message(&line) {
            Ok(message) => Some(ReceivedRequest {
                message,
                caller,
                from,
                to,
            }),
            Err(refusal) => {
                // Sending fails if the peer is gone, which is fine.
                let _gone = Peer::new(&mut to).send(&refusal).await;
                None
            }
        }
    }

    pub(super) async fn serve(&self, received: ReceivedRequest) -> io::Result<()> {
        let ReceivedRequest {
            message,
            caller,
            mut from,
            mut to,
        } = received;
        let over = self.end.clone();
        let mut peer = Peer::new(&mut to);
        if message != ControlMessage::Query(ControlQuery::Status)
            && let Err(why) = self.check(caller, &message).await
        {
            return peer.send(&Response::Refused { reason: why }).await;
        }
        let request = match message {
            ControlMessage::Query(ControlQuery::Status) => return peer.send(&self.status()).await,
            ControlMessage::Query(ControlQuery::Attach { attended }) => {
                let gone = wait_until_closed(&mut from);
                return self.attach(attended, over, gone, &mut peer).await;
            }
            ControlMessage::Request(request) => request,
        };
        // If the peer sends more or closes the connection, stop responding; the request stays in force.
        tokio::select! {
            biased;
            result = timeout(LONGEST, self.follow(request, &mut peer)) => result?,
            () = wait_until_closed(&mut from) => Ok(()),
        }
    }

    /// Shows the run until it ends or the viewer is `gone`.
    pub(super) async fn attach(
        &self,
        attended: bool,
        over: RunEndWatch,
        gone: impl Future<Output = ()>,
        peer: &mut Peer<'_>,
    ) -> io::Result<()> {
        let Ok(place) = self.viewers.try_acquire() else {
            return peer.send(&Response::Busy).await;
        };
        let counts_as_person = attended && !self.interactive;
        if counts_as_person && self.attended_viewers.fetch_add(1, Ordering::SeqCst) == 0 {
            self.attended(true).await;
        }
        let shown = tokio::select! {
            shown = show(self.view.clone(), over, &self.recent, peer) => shown,
            () = gone => Ok(()),
        };
        drop(place);
        if counts_as_person && self.attended_viewers.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.report_unattended().await;
        }
        shown
    }

    /// Refuses the request of a process that an agent started, and reports the refusal in the run's events.
    async fn check(
        &self,
        caller: io::Result<ancestry::Peer>,
        message: &ControlMessage,
    ) -> Result<(), String> {
        let owner = self.process;
        let checked = spawn_blocking(move || caller::check(caller, owner)).await;
        let Err(refusal) = checked.expect("the check does not panic") else {
            return Ok(());
        };
        let mut text = refusal.refusal_report(&message.name());
        let before = self.refused.fetch_add(1, Ordering::Relaxed);
        if before + 1 == MAX_REPORTED_REFUSALS {
            text += "; further refusals are not reported";
        }
        if before < MAX_REPORTED_REFUSALS {
            // If the queue of reports is full, enough of them wait already.
            let _full = self.to_refusals.try_send(text);
        }
        Err(refusal.message())
    }

    /// Reports to the run whether a person is attached; an ended run ignores it.
    async fn attended(&self, attended: bool) {
        let message = QueuedRequest::from(RunControl::Attended(attended));
        let _over = self.to_run.send(message).await;
    }

    /// Waits until the run asks for no review, then reports that no person is attached: a person who detaches has not approved a phase or a batch.
    async fn report_unattended(&self) {
        let (mut view, mut over) = (self.view.clone(), self.end.clone());
        let asks = |view: &View| matches!(view.head.step, IterationStep::Review { .. });
        while asks(&view.borrow_and_update()) {
            let is_live = tokio::select! {
                changed = view.changed() => changed.is_ok(),
                _ = over.changed() => false,
            };
            if !is_live {
                return;
            }
        }
        if self.attended_viewers.load(Ordering::SeqCst) == 0 {
            self.attended(false).await;
        }
    }

    /// Passes the request to the run, and reports its progress until the last response.
    async fn follow(&self, request: Request, peer: &mut Peer<'_>) -> io::Result<()> {
        let result = self.apply(&request, None).await;
        self.report(&request, result, peer).await
    }

    /// Passes the request to the run, and returns its result; `None` if the run ended first. A fleet records a request under a number.
    pub(super) async fn apply(
        &self,
        request: &Request,
        number: Option<u64>,
    ) -> Option<RequestResult> {
        let (reply, result) = ReplySender::channel(number);
        let control = RunControl::from(request.clone());
        let passed = self.to_run.send(QueuedRequest { control, reply }).await;
        passed.ok()?;
        result.await.ok()
    }

    /// Reports the progress of a request with this result until the last response.
    pub(super) async fn report(
        &self,
        request: &Request,
        result: Option<RequestResult>,
        peer: &mut Peer<'_>,
    ) -> io::Result<()> {
        let (mut view, mut over) = (self.view.clone(), self.end.clone());
        let Some(result) = result else {
            return peer.send_end(&mut over).await;
        };
        let position = result.as_ref().copied().unwrap_or_default();
        let mut last = match result {
            Ok(position) => first_response(request, position, self.stop_budget),
            Err(why) => {
                let unchanged = response_without_change(request, &view.borrow().head);
                unchanged.unwrap_or_else(|| Response::Rejected {
                    reason: why.into_owned(),
                })
            }
        };
        peer.send(&last).await?;
        let accepted = AcceptedRequest::of(request, position);
        while !last.is_last() {
            let progress = accepted.progress(&view.borrow_and_update());
            if std::mem::discriminant(&progress) != std::mem::discriminant(&last) {
                peer.send(&progress).await?;
                last = progress;
                continue;
            }
            let ended = over.borrow_and_update().clone();
            if let Some(ended) = ended {
                return peer.send(&Response::RunEnded(ended)).await;
            }
            tokio::select! {
                changed = view.changed() => if changed.is_err() {
                    return peer.send_end(&mut over).await;
                },
                changed = over.changed() => if changed.is_err() {
                    return Ok(());
                },
            }
        }
        Ok(())
    }

    pub(super) fn status(&self) -> Response {
        let (view, age) = (Arc::clone(&self.view.borrow()), self.last_tick.age());
        Response::Status(Box::new(build_status(&self.run, self.process, &view, age)))
    }
}
