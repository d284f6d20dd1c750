//! A viewer's connection to a run: its events and its view, line by line.

use std::io::{self, BufRead, BufReader, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use agent_subprocess::ProcessId;
use loop_state::Timestamp;
use tokio::sync::watch;

use crate::control::client;
use crate::control::protocol::{self, AttachMessage, ControlQuery, EndReport, MAX_LINE, Response};
use crate::event_channel::{self, RunEventReceiver};
use crate::{Error, View};

/// The time limit for the first view.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The connection to a run of another process. Dropping it detaches, which does not affect the run.
#[derive(Debug)]
pub struct AttachedRun {
    view: watch::Receiver<Arc<View>>,
    events: Option<RunEventReceiver>,
    stream: UnixStream,
    reader: Option<JoinHandle<Option<EndReport>>>,
    /// The time of the first event.
    first: mpsc::Receiver<Timestamp>,
    /// The time of the last event so far.
    last: Arc<AtomicU64>,
}

/// Attaches to the run in this directory; the path is absolute. The run sends its last stored events again, if they are later than `seen`.
///
/// If `attended` is true, a person is present: the run asks for reviews and permissions as in its own terminal, until the last such viewer detaches.
///
/// Blocks until the run has sent its view.
///
/// # Errors
///
/// [`Error::is_not_running`] when no process works on the run, [`Error::is_unresponsive`] when the process doesn't respond,
/// [`Error::is_other_version`] when it has another version and its responses are not known here.
pub(crate) fn attach(
    run_dir: &Path,
    attended: bool,
    seen: Timestamp,
) -> Result<AttachedRun, Error> {
    let responses = client::send(run_dir, ControlQuery::Attach { attended })?;
    let (path, peer, from) = responses.into_parts();
    AttachedRun::new(&path, peer, from, seen)
}

impl AttachedRun {
    /// Shows a run of another machine. `stream` is connected to the one who passes the lines that the run returns for
    /// [`attach_line`](crate::control::attach_line). `name` is the name of the run in errors. Blocks until the first view has arrived.
    ///
    /// # Errors
    ///
    /// As for [`LiveRun::attach`](crate::control::LiveRun::attach).
    pub fn remote(name: &str, stream: UnixStream) -> Result<Self, Error> {
        let seen = Timestamp::default();
        Self::new(Path::new(name), None, BufReader::new(stream), seen)
    }

    /// Reads the first view, and begins to read what follows.
    fn new(
        path: &Path,
        peer: Option<ProcessId>,
        mut from: BufReader<UnixStream>,
        seen: Timestamp,
    ) -> Result<Self, Error> {
        let view = first_view(path, peer, &mut from)?;
        let failed = |e| rlm_store::Error::io("can't communicate with", path, e);
        let stream = from.get_ref().try_clone().map_err(failed)?;
        let (to_view, view) = watch::channel(Arc::from(view));
        let (mut to_events, events) = event_channel::channel();
        let (to_first, first) = mpsc::sync_channel(1);
        let last = Arc::new(AtomicU64::new(seen.as_millis()));
        let newest = Arc::clone(&last);
        let reader = std::thread::spawn(move || {
            loop {
                let line = line(&mut from).ok().flatten()?;
                match serde_json::from_slice(&line) {
                    Ok(AttachMessage::View(view)) => drop(to_view.send_replace(Arc::from(view))),
                    Ok(AttachMessage::Event { at, .. }) if at <= seen => {}
                    Ok(AttachMessage::Event { at, event }) => {
                        // The channel has room for one timestamp, so only the first send succeeds.
                        let _later = to_first.try_send(at);
                        newest.fetch_max(at.as_millis(), Ordering::Relaxed);
                        to_events.send(at, *event);
                    }
                    Err(_) => {
                        if let Ok(Response::RunEnded(ended)) = protocol::parse_response(&line) {
                            return Some(ended);
                        }
                    }
                }
            }
        });
        Ok(Self {
            view,
            events: Some(events),
            stream,
            reader: Some(reader),
            first,
            last,
        })
    }

    /// Returns a view of the run that stays up to date.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }

    /// Returns the events; `None` after the first call.
    pub fn events(&mut self) -> Option<RunEventReceiver> {
        self.events.take()
    }

    /// Returns the time of the first event; `None` if none arrived within `timeout`.
    #[must_use]
    pub fn first_event_at(&self, timeout: Duration) -> Option<Timestamp> {
        self.first.recv_timeout(timeout).ok()
    }

    /// Returns the time of the newest event that arrived.
    #[must_use]
    pub fn last_event_at(&self) -> Timestamp {
        Timestamp::from_millis(self.last.load(Ordering::Relaxed))
    }

    /// Waits for the end, and returns the report of the run's process; `None` if the process sent none, or dropped this viewer.
    #[must_use]
    pub fn wait_for_end(mut self) -> Option<EndReport> {
        self.reader.take()?.join().ok().flatten()
    }

    /// Detaches: the events end, and the run continues.
    pub fn detach(&self) {
        // The connection is possibly closed already.
        let _gone = self.stream.shutdown(Shutdown::Both);
    }
}

impl Drop for AttachedRun {
    fn drop(&mut self) {
        self.detach();
    }
}

/// Reads the first line, which has the view of the run, or the reason why there is none.
fn first_view(
    path: &Path,
    peer: Option<ProcessId>,
    from: &mut BufReader<UnixStream>,
) -> Result<Box<View>, Error> {
    let failed = |e| rlm_store::Error::io("can't communicate with", path, e);
    from.get_ref()
        .set_read_timeout(Some(TIMEOUT))
        .map_err(failed)?;
    let first = line(from).map_err(|e| match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::unresponsive(path.to_owned()),
        _ => failed(e).into(),
    })?;
    let first = first.ok_or_else(|| Error::not_running(path.to_owned()))?;
    if let Ok(AttachMessage::View(view)) = serde_json::from_slice(&first) {
        from.get_ref().set_read_timeout(None).map_err(failed)?;
        return Ok(view);
    }
    let why = match protocol::parse_response(&first) {
        Ok(Response::Refused { reason: why }) => {
            return Err(Error::refused(format!(
                "the run refused the request: {why}"
            )));
        }
        Ok(Response::Busy) => "too many viewers are attached".to_owned(),
        Ok(Response::RunEnded(_)) => return Err(Error::not_running(path.to_owned())),
        other => match protocol::other_version(&first) {
            Some(version) => return Err(client::other_version(&version, path, peer)),
            None => format!("unexpected response: {other:?}"),
        },
    };
    Err(Error::bad_response(path.to_owned(), why))
}

/// Reads one complete line; `None` at the end.
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
