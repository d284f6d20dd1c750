//! A client's connection at the run's side: passes the request to the run, and sends the responses.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_subprocess::ProcessId;
use agent_subprocess::ancestry;
use loop_state::{Request, Step};
use rlm_store::RunId;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::control::caller;
use crate::control::peer::{Over, Peer, left, may_ask, own_uid, read_line};
use crate::control::progress::{Taken, already, first};
use crate::control::protocol::{self, Answer, Message, Query};
use crate::control::status::show;
use crate::control::status::standing;
use crate::control::wishes::{Reply, Wish};
use crate::heartbeat::Pulse;
use crate::recent::Recent;
use crate::{Control, View};

/// The longest time for which the run reports the progress of a request.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The most refusals that are reported in the run's events.
const REFUSALS: usize = 20;

/// The state that all connections share.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) run: RunId,
    pub(super) process: ProcessId,
    pub(super) stop_budget: Duration,
    pub(super) to_run: mpsc::Sender<Wish>,
    pub(super) view: watch::Receiver<Arc<View>>,
    pub(super) pulse: Pulse,
    pub(super) recent: Arc<Recent>,
    pub(super) over: Over,
    pub(super) slots: Arc<Semaphore>,
    pub(super) watchers: Semaphore,
    /// Whether the run's own process can ask a person.
    pub(super) interactive: bool,
    /// The number of attached viewers with a person.
    pub(super) persons: AtomicUsize,
    /// Reports refused requests to the run, and counts them.
    pub(super) to_refusals: mpsc::Sender<String>,
    pub(super) refused: AtomicUsize,
}

/// A request, and the peer that sent it.
#[derive(Debug)]
pub(super) struct Asked {
    message: Message,
    caller: io::Result<ancestry::Peer>,
    from: BufReader<OwnedReadHalf>,
    to: OwnedWriteHalf,
}

impl Asked {
    /// Sends a response without doing anything else.
    pub(super) async fn refuse(mut self, answer: &Answer) {
        // Sending fails if the peer is gone, which is fine.
        let _gone = Peer::new(&mut self.to).tell(answer).await;
    }
}

impl Desk {
    /// Reads the request of a peer. Returns `None` for a peer that may not send one, or sends none in time; an invalid request gets a response.
    pub(super) async fn read(&self, stream: UnixStream) -> Option<Asked> {
        if !may_ask(stream.peer_cred().ok()?.uid(), own_uid()) {
            return None;
        }
        // Look up the process at once: if it ends, it can't be found later.
        let caller = ancestry::Peer::of(stream.as_fd());
        let (from, mut to) = stream.into_split();
        let mut from = BufReader::new(from);
        let mut over = self.over.clone();
        let line = tokio::select! {
            line = read_line(&mut from) => line.ok()?,
            _ = over.changed() => return None,
        };
        match protocol::message(&line) {
            Ok(message) => Some(Asked {
                message,
                caller,
                from,
                to,
            }),
            Err(refusal) => {
                // Sending fails if the peer is gone, which is fine.
                let _gone = Peer::new(&mut to).tell(&refusal).await;
                None
            }
        }
    }

    pub(super) async fn serve(&self, asked: Asked) -> io::Result<()> {
        let Asked {
            message,
            caller,
            mut from,
            mut to,
        } = asked;
        let over = self.over.clone();
        let mut peer = Peer::new(&mut to);
        if message != Message::Query(Query::Status)
            && let Err(why) = self.check(caller, &message).await
        {
            return peer.tell(&Answer::Refused { why }).await;
        }
        let request = match message {
            Message::Query(Query::Status) => return peer.tell(&self.standing()).await,
            Message::Query(Query::Attach { attended }) => {
                return self.attach(attended, over, &mut from, &mut peer).await;
            }
            Message::Request(request) => request,
        };
        // If the peer sends more or closes the connection, stop responding; the request stays in force.
        tokio::select! {
            biased;
            told = timeout(LONGEST, self.follow(request, &mut peer)) => told?,
            () = left(&mut from) => Ok(()),
        }
    }

    /// Shows the run until it ends or the viewer detaches.
    async fn attach(
        &self,
        attended: bool,
        over: Over,
        from: &mut BufReader<OwnedReadHalf>,
        peer: &mut Peer<'_>,
    ) -> io::Result<()> {
        let Ok(place) = self.watchers.try_acquire() else {
            return peer.tell(&Answer::Busy).await;
        };
        let asked = attended && !self.interactive;
        if asked && self.persons.fetch_add(1, Ordering::SeqCst) == 0 {
            self.attended(true).await;
        }
        let shown = tokio::select! {
            shown = show(self.view.clone(), over, &self.recent, peer) => shown,
            () = left(from) => Ok(()),
        };
        drop(place);
        if asked && self.persons.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.left_alone().await;
        }
        shown
    }

    /// Refuses the request of a process that an agent started, and reports the refusal in the run's events.
    async fn check(
        &self,
        caller: io::Result<ancestry::Peer>,
        message: &Message,
    ) -> Result<(), String> {
        let owner = self.process;
        let checked = spawn_blocking(move || caller::check(caller, owner)).await;
        let Err(refusal) = checked.expect("the check does not panic") else {
            return Ok(());
        };
        let mut text = refusal.report(&message.name());
        let before = self.refused.fetch_add(1, Ordering::Relaxed);
        if before + 1 == REFUSALS {
            text += "; further refusals are not reported";
        }
        if before < REFUSALS {
            // If the queue of reports is full, enough of them wait already.
            let _full = self.to_refusals.try_send(text);
        }
        Err(refusal.answer())
    }

    /// Reports to the run whether a person is attached; an ended run ignores it.
    async fn attended(&self, attended: bool) {
        let wish = Wish::from(Control::Attended(attended));
        let _over = self.to_run.send(wish).await;
    }

    /// Waits until the run asks for no review, then reports that no person is attached: a person who detaches has not approved a phase or a batch.
    async fn left_alone(&self) {
        let (mut view, mut over) = (self.view.clone(), self.over.clone());
        let asks = |view: &View| matches!(view.head.step, Step::Review { .. });
        while asks(&view.borrow_and_update()) {
            let goes_on = tokio::select! {
                changed = view.changed() => changed.is_ok(),
                _ = over.changed() => false,
            };
            if !goes_on {
                return;
            }
        }
        if self.persons.load(Ordering::SeqCst) == 0 {
            self.attended(false).await;
        }
    }

    /// Passes the request to the run, and reports its progress until the last response.
    async fn follow(&self, request: Request, peer: &mut Peer<'_>) -> io::Result<()> {
        let (mut view, mut over) = (self.view.clone(), self.over.clone());
        let (reply, verdict) = Reply::awaited();
        let what = Control::from(request.clone());
        if self.to_run.send(Wish { what, reply }).await.is_err() {
            return peer.tell_end(&mut over).await;
        }
        let Ok(verdict) = verdict.await else {
            return peer.tell_end(&mut over).await;
        };
        let mark = verdict.as_ref().copied().unwrap_or_default();
        let mut told = match verdict {
            Ok(mark) => first(&request, mark, self.stop_budget),
            Err(why) => {
                let so_already = already(&request, &view.borrow().head);
                so_already.unwrap_or_else(|| Answer::Rejected {
                    why: why.into_owned(),
                })
            }
        };
        peer.tell(&told).await?;
        let taken = Taken::of(&request, mark);
        while !told.is_last() {
            let now = taken.progress(&view.borrow_and_update());
            if std::mem::discriminant(&now) != std::mem::discriminant(&told) {
                peer.tell(&now).await?;
                told = now;
                continue;
            }
            let ended = over.borrow_and_update().clone();
            if let Some(ended) = ended {
                return peer.tell(&Answer::Ended(ended)).await;
            }
            tokio::select! {
                changed = view.changed() => if changed.is_err() {
                    return peer.tell_end(&mut over).await;
                },
                changed = over.changed() => if changed.is_err() {
                    return Ok(());
                },
            }
        }
        Ok(())
    }

    fn standing(&self) -> Answer {
        let (view, turned) = (Arc::clone(&self.view.borrow()), self.pulse.age());
        Answer::Status(Box::new(standing(&self.run, self.process, &view, turned)))
    }
}
