//! One who asks the run through its socket: what they want is handed to the run, and they are told how far it has come.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_subprocess::ProcessId;
use loop_state::Step;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;

use crate::control::peer::{Peer, left, may_ask, own_uid, read_line};
use crate::control::progress::{Taken, already, first};
use crate::control::protocol::{self, Answer, Ended, Request};
use crate::control::recent::Recent;
use crate::control::show::show;
use crate::control::standing::standing;
use crate::control::ways::control;
use crate::control::wishes::{Reply, Wish};
use crate::runner::Pulse;
use crate::{Control, RunId, View};

/// How long a request is followed.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// How the run ended, when it has.
pub(super) type Over = watch::Receiver<Option<Ended>>;

/// What every connection needs.
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
    /// How many look on who can be asked.
    pub(super) persons: AtomicUsize,
}

impl Desk {
    pub(super) async fn serve(&self, stream: UnixStream) -> io::Result<()> {
        if !may_ask(stream.peer_cred()?.uid(), own_uid()) {
            return Ok(());
        }
        let (from, mut to) = stream.into_split();
        let mut from = BufReader::new(from);
        let mut over = self.over.clone();
        let line = tokio::select! {
            line = read_line(&mut from) => line?,
            _ = over.changed() => return Ok(()),
        };
        let mut peer = Peer::new(&mut to);
        let request = match protocol::request(&line) {
            Ok(request) => request,
            Err(refusal) => return peer.tell(&refusal).await,
        };
        if let Request::Attach { attended } = request {
            let Ok(place) = self.watchers.try_acquire() else {
                return peer.tell(&Answer::Busy).await;
            };
            let asked = attended && !self.interactive;
            if asked && self.persons.fetch_add(1, Ordering::SeqCst) == 0 {
                self.attended(true).await;
            }
            let shown = tokio::select! {
                shown = show(self.view.clone(), over, &self.recent, &mut peer) => shown,
                () = left(&mut from) => Ok(()),
            };
            drop(place);
            if asked && self.persons.fetch_sub(1, Ordering::SeqCst) == 1 {
                self.left_alone().await;
            }
            return shown;
        }
        let Some(what) = control(&request) else {
            return peer.tell(&self.standing()).await;
        };
        // One that says more or hangs up is not told any further; what it wanted stays wanted.
        tokio::select! {
            biased;
            told = timeout(LONGEST, self.follow(request, what, &mut peer)) => told?,
            () = left(&mut from) => Ok(()),
        }
    }

    /// Tells the run whether somebody is there who can be asked; one that is over asks nobody.
    async fn attended(&self, attended: bool) {
        let wish = Wish::from(Control::Attended(attended));
        let _over = self.to_run.send(wish).await;
    }

    /// Tells the run that nobody is there any more, once it asks nobody: who leaves without a word on a phase or a batch has not agreed to it.
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

    /// Has the run do it, and tells how far it has come until nothing more comes.
    async fn follow(&self, request: Request, what: Control, peer: &mut Peer<'_>) -> io::Result<()> {
        let (mut view, mut over) = (self.view.clone(), self.over.clone());
        let (reply, verdict) = Reply::awaited();
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
