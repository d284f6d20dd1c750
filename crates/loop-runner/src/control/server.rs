//! The owner's end of the control socket.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agent_subprocess::ProcessId;
use cancellable_sleep::SleepGate;
use loop_state::Step;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::control::Doing;
use crate::control::place::{self, Identity};
use crate::control::progress::{Taken, already};
use crate::control::protocol::{self, Answer, Ended, MAX_LINE, Request, Standing, StopAfter};
use crate::control::recent::Recent;
use crate::control::show::show;
use crate::control::ways::control;
use crate::control::wishes::{Mark, Reply, Wish};
use crate::runner::Pulse;
use crate::{Control, Options, RunId, RunState, View};

/// How many may ask at once.
const MOST: u32 = 32;
/// How many may look on at once.
const WATCHERS: usize = 8;
/// How many wishes wait for a run that is busy saving.
pub(crate) const WAITING: usize = 16;
/// How long a peer may take for its request, and to read an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a request is followed.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// How often a peer that says nothing more is looked at whether it is still there.
const LOOK: Duration = Duration::from_secs(1);
/// How long the run's end waits for peers to hear of it.
const GOODBYE: Duration = Duration::from_millis(500);
/// How long no connection is taken after one could not be taken.
const RECOVERY: Duration = Duration::from_millis(200);
/// How many tools and questions are told of, and how many characters of each.
const NAMED: usize = 16;
const SHORTENED: usize = 200;

/// The control socket of a run that this process holds. Dropping it removes the socket; who still waits is told nothing.
#[derive(Debug)]
pub(crate) struct Socket {
    run_dir: PathBuf,
    desk: Arc<Desk>,
    over: watch::Sender<Option<Ended>>,
    bound: Option<(Identity, JoinHandle<()>)>,
    /// Whether it was told that there is none.
    told: bool,
}

/// What every connection needs.
#[derive(Debug)]
struct Desk {
    run: RunId,
    process: ProcessId,
    stop_budget: Duration,
    to_run: mpsc::Sender<Wish>,
    view: watch::Receiver<Arc<View>>,
    pulse: Pulse,
    recent: Arc<Recent>,
    over: Over,
    slots: Arc<Semaphore>,
    watchers: Semaphore,
    /// Whether the run's own process can ask a person.
    interactive: bool,
    /// How many look on who can be asked.
    persons: AtomicUsize,
}

/// How the run ended, when it has.
pub(super) type Over = watch::Receiver<Option<Ended>>;

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
        });
        let socket = Self {
            run_dir,
            desk,
            over,
            bound: None,
            told: false,
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
                let _stays = fs_err::remove_file(place::socket(&self.run_dir));
            }
        }
    }

    /// Removes the socket and tells those who wait how the run ended, for a short time.
    pub(crate) async fn close(mut self, ended: Ended) {
        self.unbind();
        self.over.send_replace(Some(ended));
        // All slots are free when everybody was told.
        let _slow = timeout(GOODBYE, self.desk.slots.acquire_many(MOST)).await;
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.unbind();
    }
}

async fn accept(listener: UnixListener, desk: Arc<Desk>) {
    let gate = SleepGate::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match Arc::clone(&desk.slots).try_acquire_owned() {
                Ok(slot) => {
                    let desk = Arc::clone(&desk);
                    tokio::spawn(async move {
                        // One that can't be answered has gone.
                        let _gone = desk.serve(stream).await;
                        drop(slot);
                    });
                }
                // It goes into an empty buffer, or nobody reads it.
                Err(_) => drop(stream.try_write(&protocol::line(&Answer::Busy))),
            },
            Err(_) => drop(gate.sleep(RECOVERY).await),
        }
    }
}

impl Desk {
    async fn serve(&self, stream: UnixStream) -> io::Result<()> {
        if !may_ask(stream.peer_cred()?.uid(), own_uid()) {
            return Ok(());
        }
        let (from, mut to) = stream.into_split();
        let mut from = BufReader::new(from);
        let mut over = self.over.clone();
        let line = tokio::select! {
            line = timeout(PATIENCE, read_line(&mut from)) => line??,
            _ = over.changed() => return Ok(()),
        };
        let mut peer = Peer(&mut to);
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
            Ok(mark) => self.first_answer(&request, mark.steers),
            Err(why) => {
                let so_already = already(&request, &view.borrow().head);
                so_already.unwrap_or_else(|| Answer::Rejected {
                    why: why.into_owned(),
                })
            }
        };
        peer.tell(&told).await?;
        let taken = taken(&request, mark);
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

    fn first_answer(&self, request: &Request, steers: u32) -> Answer {
        let budget = self.stop_budget.as_millis();
        match request {
            Request::Interrupt => Answer::Delivered,
            Request::Steer { .. } => Answer::Recorded {
                steer: Some(steers),
                budget_ms: None,
            },
            Request::Stop {
                after: StopAfter::Now,
            }
            | Request::Abort => Answer::Recorded {
                steer: None,
                budget_ms: Some(u64::try_from(budget).unwrap_or(u64::MAX)),
            },
            Request::Stop { .. } | Request::Pause { .. } | Request::Set(_) => Answer::Recorded {
                steer: None,
                budget_ms: None,
            },
            _ => Answer::InEffect,
        }
    }

    fn standing(&self) -> Answer {
        let view = Arc::clone(&self.view.borrow());
        let (head, agent) = (&view.head, &view.agent);
        let short = |text: &String| text.chars().take(SHORTENED).collect();
        Answer::Status(Box::new(Standing {
            run: self.run.clone(),
            state: match head.is_waiting() {
                true => RunState::Paused,
                false => RunState::Running,
            },
            process: self.process,
            phase: short(&head.phase_rules().name),
            phase_number: head.phase + 1,
            phases: u32::try_from(head.rules.phases.len()).unwrap_or(u32::MAX),
            review: match head.step {
                Step::Review { of, .. } => Some(of.to_string()),
                _ => None,
            },
            iteration: head.iteration,
            attempt: head.attempt,
            iterations_complete: head.iterations_complete(),
            pausing: head.pausing,
            stopping: head.stopping.is_some(),
            steers_waiting: head.unseen_steers().count(),
            session: head.session.as_ref().map(short),
            turned_ms: Some(u64::try_from(self.pulse.age().as_millis()).unwrap_or(u64::MAX)),
            doing: Doing::of(head),
            agent_alive: agent.alive,
            held_for: agent.held_for,
            tools: agent.tools.iter().take(NAMED).map(short).collect(),
            asks: agent
                .asks
                .iter()
                .take(NAMED)
                .map(|ask| short(&format!("{}: {}", ask.tool, ask.summary)))
                .collect(),
        }))
    }
}

/// Who asks.
pub(super) struct Peer<'a>(&'a mut OwnedWriteHalf);

impl Peer<'_> {
    pub(super) async fn tell(&mut self, answer: &Answer) -> io::Result<()> {
        self.say(&protocol::line(answer)).await
    }

    pub(super) async fn say(&mut self, line: &[u8]) -> io::Result<()> {
        timeout(PATIENCE, self.0.write_all(line)).await?
    }

    /// Waits for the end of the run, which has come already but may not be told yet.
    async fn tell_end(&mut self, over: &mut Over) -> io::Result<()> {
        let ended = over.wait_for(Option::is_some).await;
        let ended = ended.ok().and_then(|ended| ended.clone());
        match ended {
            Some(ended) => self.tell(&Answer::Ended(ended)).await,
            None => Ok(()),
        }
    }
}

/// Waits until a peer says more or hangs up. One that only says that it has nothing more to say still listens.
async fn left(from: &mut BufReader<OwnedReadHalf>) {
    let mut more = [0];
    if !matches!(from.read(&mut more).await, Ok(0)) {
        return;
    }
    let gate = SleepGate::new();
    let stream: &UnixStream = from.get_ref().as_ref();
    while !has_hung_up(stream) {
        let _elapsed = gate.sleep(LOOK).await;
    }
}

fn has_hung_up(stream: &UnixStream) -> bool {
    let mut look = [PollFd::new(stream, PollFlags::empty())];
    let looked = poll(&mut look, Some(&Timespec::default()));
    looked.is_err() || !look[0].revents().is_empty()
}

/// Reads one line, or as much of a longer one as may be kept.
async fn read_line(from: &mut BufReader<OwnedReadHalf>) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut from = from.take(MAX_LINE as u64);
    from.read_until(b'\n', &mut line).await?;
    Ok(line)
}

/// The socket is private; this is for a descriptor or a directory that somebody opened too wide. Who may kill the run may also ask it.
fn may_ask(peer: u32, own: u32) -> bool {
    peer == own || peer == 0
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn taken(request: &Request, mark: Mark) -> Taken {
    match request {
        Request::Interrupt => Taken::Interrupt(mark),
        Request::Pause { .. } => Taken::Pause,
        Request::Steer { .. } => Taken::Steer(mark.steers),
        Request::Stop { .. } | Request::Abort => Taken::Stop,
        _ => Taken::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::may_ask;

    #[test]
    fn x118_only_its_user_and_root_may_ask() {
        assert!(may_ask(1000, 1000) && may_ask(0, 1000));
        assert!(!may_ask(1001, 1000) && !may_ask(1000, 0));
    }
}
