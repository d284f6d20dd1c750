//! A writer for async code, on a thread of its own: the queue, its order, and who hears of a failure.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};

use crate::error::{Error, Kind, Result};
use crate::heal::Healed;
use crate::id::{PhaseId, Seq};
use crate::meta::Meta;
use crate::options::Options;
use crate::raw_writer::RawWriter;
use crate::retention::{Item, Policy};
use crate::writer::{Loaded, Writer, encode_save};

/// How many calls may wait for the thread. Callers beyond that wait before they encode.
const QUEUE: usize = 16;
/// Most bytes of queued saves that are written together as one.
const TOGETHER: usize = 4 << 20;

/// Saves heads and events from async code: a [`Writer`] on a thread of its own.
///
/// All calls go through one bounded queue to one thread, so they take effect in the order
/// in which they were queued, and saves that wait while the disk is busy become one: the
/// head of the last with the events of all. Any runtime will do, and none is needed.
///
/// # Cancel safety
/// A future that is dropped before its call is queued has done nothing. Once queued, a call
/// takes effect whether or not anyone still waits for it, so an older state can never come
/// to replace a newer one; [`last_durable`](Self::last_durable) tells how far it is. If a
/// call fails, those that were queued behind it are refused unseen, because saves with a gap
/// between them would not be the state of the program. If nobody waited for it any more,
/// the next call returns that failure instead of doing anything. After a failure was
/// returned, calls are accepted again: save what failed once more.
///
/// Dropping the writer waits for the thread, which finishes what is queued; prefer
/// [`close`](Self::close), which does not block.
#[derive(Debug)]
pub struct AsyncWriter<H, E> {
    /// Gone once the writer closes.
    jobs: Option<mpsc::Sender<Job>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    ended: Option<oneshot::Receiver<()>>,
    types: PhantomData<fn(&H, &E)>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    epoch: u64,
    status: Mutex<Status>,
}

#[derive(Debug)]
struct Status {
    durable: Seq,
    healed: Option<Healed>,
    /// Grows with each failure; calls that were queued before it are refused.
    failures: u64,
    /// A failure that no caller was told yet.
    untold: Option<String>,
}

struct Job {
    failures: u64,
    work: Work,
}

enum Work {
    Save {
        raw: Vec<u8>,
        head_len: usize,
        ack: Ack<Seq>,
    },
    Other(Call),
}

/// Does something, or is refused, and answers its caller.
type Call = Box<dyn FnOnce(Result<&mut RawWriter>) + Send>;

/// Answers a caller; with how many failures there were by then.
type Ack<T> = oneshot::Sender<(Result<T>, u64)>;

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").finish_non_exhaustive()
    }
}

impl Shared {
    fn status(&self) -> MutexGuard<'_, Status> {
        self.status
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Publishes how far the writer is; before anyone is answered.
    fn note(&self, writer: &RawWriter) {
        let mut status = self.status();
        status.durable = Seq::new(writer.seq());
        status.healed = writer.healed().cloned();
    }

    fn error(&self, kind: Kind) -> Error {
        Error::new(&self.path, kind)
    }

    /// Notes a failure, also before anyone is answered.
    fn failed(&self, text: String) {
        let mut status = self.status();
        status.failures += 1;
        status.untold.get_or_insert(text);
    }

    fn answer<T>(&self, ack: Ack<T>, done: Result<T>) {
        let failures = self.status().failures;
        drop(ack.send((done, failures)));
    }
}

impl<H, E> AsyncWriter<H, E>
where
    H: Serialize + DeserializeOwned + Send + 'static,
    E: Serialize + DeserializeOwned + Send + 'static,
{
    /// Opens the store in the directory `dir` on a thread of its own, and loads its state.
    ///
    /// # Errors
    /// As [`Writer::open`]; also if no thread can be started.
    ///
    /// # Cancel safety
    /// If the future is dropped, the thread lets the store go as soon as it has it.
    pub async fn open(dir: impl Into<PathBuf>, options: Options) -> Result<(Self, Loaded<H, E>)> {
        let dir = dir.into();
        let path = dir.clone();
        Self::start(path, move || Writer::open(dir, options)).await
    }

    /// Opens the store in a directory of any disk; messages call it `dir`.
    #[cfg(any(test, feature = "test-util"))]
    #[doc(hidden)]
    pub async fn open_on(
        disk: Box<dyn crate::disk::Directory>,
        dir: PathBuf,
        options: Options,
    ) -> Result<(Self, Loaded<H, E>)> {
        let path = dir.clone();
        Self::start(path, move || Writer::open_on(disk, &dir, options)).await
    }

    async fn start(
        path: PathBuf,
        open: impl FnOnce() -> Result<(Writer<H, E>, Loaded<H, E>)> + Send + 'static,
    ) -> Result<(Self, Loaded<H, E>)> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (tell, told) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let root = path.clone();
        let run = move || {
            match open() {
                Err(err) => drop(tell.send(Err(err))),
                Ok((writer, loaded)) => {
                    let shared = Arc::new(Shared {
                        path: root,
                        epoch: writer.epoch(),
                        status: Mutex::new(Status {
                            durable: writer.seq(),
                            healed: None,
                            failures: 0,
                            untold: None,
                        }),
                    });
                    if tell.send(Ok((shared.clone(), loaded))).is_ok() {
                        work(&mut writer.into_raw(), queue, &shared);
                    }
                }
            }
            end.send(()).ok();
        };
        let thread = std::thread::Builder::new()
            .name("checkpoint-store".into())
            .spawn(run)
            .map_err(|err| Error::io(&path, "start a thread", err))?;
        let opened = told.await;
        let (shared, loaded) = opened.map_err(|_| Error::new(&path, Kind::Stopped))??;
        let writer = Self {
            jobs: Some(jobs),
            shared,
            thread: Some(thread),
            ended: Some(ended),
            types: PhantomData,
        };
        Ok((writer, loaded))
    }

    /// Saves `head` and `events`. Encodes them in the calling task, once there is room in the
    /// queue, so it borrows them for an instant and clones nothing.
    ///
    /// # Errors
    /// As [`Writer::append`]; also the failure of an earlier call that nobody was told.
    ///
    /// # Cancel safety
    /// See [`AsyncWriter`]: queued at most once, and then done.
    pub async fn append(&self, head: &H, events: &[E]) -> Result<Seq> {
        let (ack, acked) = oneshot::channel();
        self.enqueue(|| {
            let (raw, head_len) = encode_save(&self.shared.path, head, events)?;
            Ok(Work::Save { raw, head_len, ack })
        })
        .await?;
        self.answer(acked).await
    }

    /// Saves a head and events that are large: encodes them on the writer's thread, so that
    /// the task that saves is not held up by that either.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    ///
    /// # Cancel safety
    /// See [`AsyncWriter`]: queued at most once, and then done.
    pub async fn append_owned(&self, head: H, events: Vec<E>) -> Result<Seq> {
        self.run(move |writer| {
            let (raw, head_len) = encode_save(writer.dir().path(), &head, &events)?;
            writer.append(raw, head_len).map(Seq::new)
        })
        .await
    }

    /// Returns to the state of the save `seq`; see [`Writer::truncate_to`].
    ///
    /// # Errors
    /// As [`append`](Self::append); also if there is no such save.
    ///
    /// # Cancel safety
    /// See [`AsyncWriter`]: queued at most once, and then done.
    pub async fn truncate_to(&self, seq: Seq) -> Result<Seq> {
        self.run(move |raw| raw.truncate_to(seq.get()).map(Seq::new))
            .await
    }

    /// Seals `head` and all events so far under the name of a phase; see
    /// [`Writer::save_phase`].
    ///
    /// # Errors
    /// As [`append`](Self::append), and as [`Writer::save_phase`].
    ///
    /// # Cancel safety
    /// See [`AsyncWriter`]: queued at most once, and then done.
    pub async fn save_phase(&self, phase: &str, head: &H, meta: Meta) -> Result<PhaseId> {
        let (raw, _) = encode_save::<H, E>(&self.shared.path, head, &[])?;
        let phase = phase.to_owned();
        self.run(move |writer| writer.save_phase(&phase, raw, meta))
            .await
    }

    /// Stores bytes under a name in `blobs/`; see [`Writer::put_blob`].
    ///
    /// # Errors
    /// As [`append`](Self::append), and as [`Writer::put_blob`].
    ///
    /// # Cancel safety
    /// See [`AsyncWriter`]: queued at most once, and then done.
    pub async fn put_blob(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let name = name.to_owned();
        self.run(move |writer| writer.put_blob(&name, &bytes)).await
    }

    /// Removes old phases and what was set aside; see [`Writer::clean`].
    ///
    /// # Errors
    /// As [`append`](Self::append), and as [`Writer::clean`].
    ///
    /// # Cancel safety
    /// See [`AsyncWriter`]: queued at most once, and then done.
    pub async fn clean(&self, policy: Policy) -> Result<Vec<Item>> {
        self.run(move |writer| writer.clean(policy)).await
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut RawWriter) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (ack, acked) = oneshot::channel();
        let shared = self.shared.clone();
        let job = move |writer: Result<&mut RawWriter>| {
            let done = writer.and_then(|writer| {
                let done = work(writer);
                shared.note(writer);
                done.inspect_err(|err| shared.failed(err.to_string()))
            });
            shared.answer(ack, done);
        };
        self.enqueue(|| Ok(Work::Other(Box::new(job)))).await?;
        self.answer(acked).await
    }

    /// Waits for room, then makes and queues the call, all at once.
    async fn enqueue(&self, work: impl FnOnce() -> Result<Work>) -> Result<()> {
        let jobs = self.jobs.as_ref().expect("it closes by value");
        let permit = jobs.reserve().await;
        let permit = permit.map_err(|_| self.shared.error(Kind::Stopped))?;
        let work = work()?;
        let mut status = self.shared.status();
        if let Some(first) = status.untold.take() {
            return Err(self.shared.error(Kind::Earlier { first }));
        }
        let failures = status.failures;
        permit.send(Job { failures, work });
        Ok(())
    }

    async fn answer<T>(&self, acked: oneshot::Receiver<(Result<T>, u64)>) -> Result<T> {
        let (done, failures) = acked.await.map_err(|_| self.shared.error(Kind::Stopped))?;
        done.inspect_err(|_| {
            let mut status = self.shared.status();
            // A failure since then is another caller's to be told.
            if status.failures == failures {
                status.untold = None;
            }
        })
    }

    /// Returns the number of the newest acknowledged save, also of those whose future was
    /// dropped.
    pub fn last_durable(&self) -> Seq {
        self.shared.status().durable
    }

    /// Returns what the writer last had to write again to a new file; see
    /// [`Writer::last_heal`].
    pub fn last_heal(&self) -> Option<Healed> {
        self.shared.status().healed.clone()
    }

    /// Returns the number that this writer had when it was opened.
    pub fn epoch(&self) -> u64 {
        self.shared.epoch
    }

    /// Finishes what is queued and lets the store go.
    ///
    /// # Errors
    /// The failure of an earlier call that nobody was told.
    ///
    /// # Cancel safety
    /// Dropping the future drops the writer, which waits for the same on this thread.
    pub async fn close(mut self) -> Result<()> {
        self.jobs = None;
        if let Some(ended) = self.ended.take()
            && ended.await.is_err()
        {
            return Err(self.shared.error(Kind::Stopped));
        }
        match self.shared.status().untold.take() {
            Some(first) => Err(self.shared.error(Kind::Earlier { first })),
            None => Ok(()),
        }
    }
}

impl<H, E> Drop for AsyncWriter<H, E> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was told to the callers that waited for it.
            drop(thread.join());
        }
    }
}

/// Does the calls in their order until all senders are gone.
fn work(writer: &mut RawWriter, mut queue: mpsc::Receiver<Job>, shared: &Shared) {
    let mut next = VecDeque::new();
    while let Some(job) = next.pop_front().or_else(|| queue.blocking_recv()) {
        let refusal = refusal(shared, job.failures);
        match job.work {
            Work::Other(call) => call(refusal.map_or(Ok(writer), Err)),
            Work::Save { ack, .. } if refusal.is_some() => {
                shared.answer(ack, refusal.map_or(Ok(Seq::ZERO), Err));
            }
            Work::Save { raw, head_len, ack } => {
                let mut saves = Together::new(raw, head_len, ack);
                while saves.acks.len() < QUEUE
                    && let Ok(job) = queue.try_recv()
                {
                    if let Err(other) = saves.add(job) {
                        next.push_back(other);
                        break;
                    }
                }
                saves.write(writer, shared);
            }
        }
    }
}

fn refusal(shared: &Shared, failures: u64) -> Option<Error> {
    let status = shared.status();
    let first = status.untold.clone();
    (failures != status.failures).then(|| {
        let first = first.unwrap_or_else(|| "its caller was told".into());
        shared.error(Kind::Earlier { first })
    })
}

/// Saves that become one.
struct Together {
    head: Vec<u8>,
    events: Vec<u8>,
    acks: Vec<Ack<Seq>>,
}

impl Together {
    fn new(mut raw: Vec<u8>, head_len: usize, ack: Ack<Seq>) -> Self {
        let events = raw.split_off(head_len);
        Self {
            head: raw,
            events,
            acks: vec![ack],
        }
    }

    /// Adds a save that was queued behind the others; gives back what is none or too large.
    fn add(&mut self, job: Job) -> std::result::Result<(), Job> {
        match job.work {
            Work::Save { raw, head_len, ack } if self.events.len() + raw.len() <= TOGETHER => {
                self.head = raw[..head_len].to_vec();
                self.events.extend_from_slice(&raw[head_len..]);
                self.acks.push(ack);
                Ok(())
            }
            _ => Err(job),
        }
    }

    fn write(mut self, writer: &mut RawWriter, shared: &Shared) {
        let head_len = self.head.len();
        self.head.append(&mut self.events);
        let acks = self.acks.into_iter();
        let saved = writer.append(self.head, head_len);
        shared.note(writer);
        match saved {
            Ok(seq) => {
                acks.for_each(|ack| shared.answer(ack, Ok(Seq::new(seq))));
            }
            Err(err) => {
                let first = err.to_string();
                shared.failed(first.clone());
                let mut err = Some(err);
                acks.for_each(|ack| {
                    let same = || {
                        shared.error(Kind::Earlier {
                            first: first.clone(),
                        })
                    };
                    shared.answer(ack, Err(err.take().unwrap_or_else(same)));
                });
            }
        }
    }
}

#[cfg(test)]
#[path = "async_tests.rs"]
mod tests;
