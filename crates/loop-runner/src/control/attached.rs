//! A run that is looked at from elsewhere: what it tells and how it stands, line by line.

use std::io::{self, BufRead, BufReader, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use loop_state::Timestamp;
use tokio::sync::watch;

use crate::control::client;
use crate::control::protocol::Told;
use crate::control::protocol::{self, Answer, Ended, MAX_LINE, Query};
use crate::feed::{self, NewsReceiver};
use crate::{Error, View};

/// How long the first look may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A run that is looked at from another process. Dropping it looks away, which makes no difference to the run.
#[derive(Debug)]
pub struct Attached {
    view: watch::Receiver<Arc<View>>,
    news: Option<NewsReceiver>,
    stream: UnixStream,
    reader: Option<JoinHandle<Option<Ended>>>,
    /// The time of the first piece of news.
    first: mpsc::Receiver<Timestamp>,
    /// That of the last one so far.
    last: Arc<AtomicU64>,
}

/// Shows the run in this directory, which is absolute. The last news are told again, as far as the run keeps them.
///
/// Where it is `attended` by a person, the run asks them as if this were its own terminal, until the last such one has left.
///
/// Blocks until the run has said how it stands.
///
/// # Errors
///
/// [`Error::is_nobody`] when no process has it, [`Error::is_silent`] when it does not answer.
pub fn attach(run_dir: &Path, attended: bool) -> Result<Attached, Error> {
    attach_after(run_dir, attended, Timestamp::default())
}

/// The same again, for somebody who has seen what happened up to `seen`: that is not told another time.
///
/// # Errors
///
/// As [`attach`].
pub fn attach_after(run_dir: &Path, attended: bool, seen: Timestamp) -> Result<Attached, Error> {
    let answers = client::ask(run_dir, Query::Attach { attended })?;
    let (path, mut from) = answers.into_parts();
    let failed = |e| rlm_store::Error::io("can't talk to", &path, e);
    from.get_ref()
        .set_read_timeout(Some(PATIENCE))
        .map_err(failed)?;
    let first = line(&mut from).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::silent(path.clone()),
        _ => failed(e).into(),
    })?;
    let first = first.ok_or_else(|| Error::nobody(path.clone()))?;
    let Ok(Told::View(view)) = serde_json::from_slice(&first) else {
        let why = match protocol::answer(&first) {
            Ok(Answer::Refused { why }) => {
                return Err(Error::refused(format!("the run refuses this: {why}")));
            }
            Ok(Answer::Busy) => "too many watch it at once".to_owned(),
            Ok(Answer::Ended(_)) => return Err(Error::nobody(path)),
            Ok(Answer::Unsupported { what } | Answer::Malformed { why: what }) => {
                format!("the program of the run is another version: {what}")
            }
            other => format!("an answer to something else: {other:?}"),
        };
        return Err(Error::babble(path, why));
    };
    from.get_ref().set_read_timeout(None).map_err(failed)?;
    let stream = from.get_ref().try_clone().map_err(failed)?;
    let (to_view, view) = watch::channel(Arc::from(view));
    let (mut to_news, news) = feed::channel();
    let (to_first, first) = mpsc::sync_channel(1);
    let last = Arc::new(AtomicU64::new(seen.0));
    let newest = Arc::clone(&last);
    let reader = std::thread::spawn(move || {
        loop {
            let line = line(&mut from).ok().flatten()?;
            match serde_json::from_slice(&line) {
                Ok(Told::View(view)) => drop(to_view.send_replace(Arc::from(view))),
                Ok(Told::News { at, .. }) if at <= seen => {}
                Ok(Told::News { at, news }) => {
                    // Only the first is asked for.
                    let _later = to_first.try_send(at);
                    newest.fetch_max(at.0, Ordering::Relaxed);
                    to_news.send(at, *news);
                }
                Err(_) => {
                    if let Ok(Answer::Ended(ended)) = protocol::answer(&line) {
                        return Some(ended);
                    }
                }
            }
        }
    });
    Ok(Attached {
        view,
        news: Some(news),
        stream,
        reader: Some(reader),
        first,
        last,
    })
}

impl Attached {
    /// Returns a look at the run that stays up to date.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }

    /// Returns the news; `None` for all but the first who asks.
    pub fn news(&mut self) -> Option<NewsReceiver> {
        self.news.take()
    }

    /// Returns from when on the news are told; `None` when none came within `patience`.
    #[must_use]
    pub fn tells_from(&self, patience: Duration) -> Option<Timestamp> {
        self.first.recv_timeout(patience).ok()
    }

    /// Returns when the newest piece of news happened that came so far.
    #[must_use]
    pub fn seen(&self) -> Timestamp {
        Timestamp(self.last.load(Ordering::Relaxed))
    }

    /// Waits for the end, and returns what the run's process said of it; `None` when it said nothing, or did not want to be watched any longer.
    #[must_use]
    pub fn ended(mut self) -> Option<Ended> {
        self.reader.take()?.join().ok().flatten()
    }

    /// Looks away: the news end, and the run goes on.
    pub fn leave(&self) {
        // One that is gone needs no goodbye.
        let _gone = self.stream.shutdown(Shutdown::Both);
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Reads one whole line; `None` at the end.
fn line(from: &mut BufReader<UnixStream>) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let room = (MAX_LINE - line.len()) as u64;
        match from.take(room).read_until(b'\n', &mut line) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(e) => return Err(e),
            Ok(_) if line.ends_with(b"\n") => return Ok(Some(line)),
            Ok(0) => return Ok(None),
            Ok(_) => {}
        }
    }
}
