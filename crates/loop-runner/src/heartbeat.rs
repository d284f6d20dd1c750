//! The file by which other programs see that a run's loop works.

use std::mem::{Discriminant, discriminant};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use loop_state::{Head, IterationStep, Timestamp, times};
use rlm_store::state_dir::Identity;
use rlm_store::{RunId, state_dir};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// The interval between two writes if nothing changes.
const INTERVAL: Duration = Duration::from_secs(10);
/// The longest valid heartbeat, in bytes.
const MAX_SIZE: u64 = 64 << 10;

/// The values that a heartbeat is made of.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HeartbeatContext<'a> {
    /// The run.
    pub run: &'a RunId,
    /// The state of the run.
    pub head: &'a Head,
    /// The current time.
    pub at: Timestamp,
    /// The time of the run's next action if nothing comes from outside; `None` while the run only waits for something outside.
    pub due: Option<Timestamp>,
    /// Why this process stopped working on the run, if it did.
    pub ended: Option<&'a str>,
}

/// A function that returns the content of the file.
pub(crate) type Render = Box<dyn Fn(&HeartbeatContext<'_>) -> String + Send + Sync>;

/// The content of the file, and the thread that writes it.
pub(crate) struct Heartbeat {
    path: PathBuf,
    text: Render,
    last: Option<(Instant, StatusKey)>,
    /// A thread that can block writes the file, so that a hanging disk does not delay the run.
    writing: Option<JoinHandle<io::Result<()>>>,
    /// Whether the last write failed; a failure is reported once.
    is_broken: bool,
    written: Arc<LastFile>,
}

/// The identity of the file that was written last.
type LastFile = Mutex<Option<Identity>>;

/// The values whose change causes a write at once.
type StatusKey = (u32, u32, u32, Discriminant<IterationStep>, bool);

impl Heartbeat {
    pub(crate) fn new(path: PathBuf, text: Render) -> Self {
        Self {
            path,
            text,
            last: None,
            writing: None,
            is_broken: false,
            written: Arc::default(),
        }
    }

    /// Returns the time until the next write if nothing changes; `None` while a write is in progress.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        let since = self.last.map_or(INTERVAL, |(at, _)| at.elapsed());
        self.writing
            .is_none()
            .then(|| INTERVAL.saturating_sub(since))
    }

    /// Writes the file if it is due. Returns the cause of a failure once.
    pub(crate) async fn write_heartbeat(&mut self, beat: &HeartbeatContext<'_>) -> Option<String> {
        let failure = match self.writing.take_if(|writing| writing.is_finished()) {
            Some(written) => self.written(written.await),
            None => None,
        };
        let head = beat.head;
        let step = discriminant(&head.step);
        let key = (head.phase, head.iteration, head.attempt, step, head.pausing);
        let is_same = self.last.is_some_and(|(_, last)| last == key);
        let is_due = !is_same || self.due_in().is_some_and(|left| left.is_zero());
        if is_due && self.writing.is_none() {
            self.last = Some((Instant::now(), key));
            self.write(beat);
        }
        failure
    }

    /// Writes the end of the run, with a short time limit.
    pub(crate) async fn end(mut self, beat: &HeartbeatContext<'_>) -> Option<String> {
        for last in [false, true] {
            if last {
                self.write(beat);
            }
            if let Some(writing) = self.writing.take() {
                // Don't wait longer for a thread that hangs.
                let written = timeout(times::HEARTBEAT_END, writing).await.ok()?;
                if let failure @ Some(_) = self.written(written) {
                    return failure;
                }
            }
        }
        None
    }

    fn write(&mut self, beat: &HeartbeatContext<'_>) {
        let (path, text) = (self.path.clone(), (self.text)(beat));
        let written = Arc::clone(&self.written);
        let write = move || replace(&path, &text, &written);
        self.writing = Some(tokio::task::spawn_blocking(write));
    }

    fn written(
        &mut self,
        result: Result<io::Result<()>, tokio::task::JoinError>,
    ) -> Option<String> {
        let failed = match result {
            Ok(Ok(())) => None,
            Ok(Err(e)) => Some(e.to_string()),
            Err(e) => Some(e.to_string()),
        };
        let was_broken = std::mem::replace(&mut self.is_broken, failed.is_some());
        let why = failed.filter(|_| !was_broken)?;
        Some(format!(
            "can't write the heartbeat: {why}; the run continues without it and tries again"
        ))
    }
}

impl fmt::Debug for Heartbeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Heartbeat").field(&self.path).finish()
    }
}

/// Replaces the file, so that a reader sees either the old or the new one, complete.
fn replace(path: &Path, text: &str, written: &LastFile) -> io::Result<()> {
    let named = |why: &str| io::Error::other(format!("`{}` {why}", path.display()));
    let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
    if let Ok(there) = state_dir::metadata(path) {
        // Replacing a device or a link would remove it.
        if !there.is_file() {
            return Err(named("is not a regular file; choose another path"));
        }
        let is_ours = there.is_empty() || *written == Some(there.identity());
        if !is_ours && !is_heartbeat(path, text) {
            return Err(named(
                "is not a heartbeat file; choose another path, or remove the file",
            ));
        }
    }
    state_dir::replace(path, text.as_bytes())
        .map_err(|e| named(&format!("can't be written: {e}")))?;
    *written = Some(state_dir::metadata(path)?.identity());
    Ok(())
}

/// Returns whether the file is a heartbeat, perhaps of an earlier process: an object with the same keys.
fn is_heartbeat(path: &Path, text: &str) -> bool {
    let keys = |text: &[u8]| -> Option<Vec<String>> {
        let value: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(text).ok()?;
        Some(value.into_iter().map(|(key, _)| key).collect())
    };
    let old = state_dir::read(path, MAX_SIZE)
        .ok()
        .and_then(|old| keys(&old));
    old.is_some() && old == keys(text.as_bytes())
}

/// The time of the last pass of the loop, for clients of the control socket.
#[derive(Clone, Debug)]
pub(crate) struct LastTick {
    since: Instant,
    ticked: Arc<AtomicU64>,
}

impl Default for LastTick {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            ticked: Arc::default(),
        }
    }
}

impl LastTick {
    pub(crate) fn record(&self) {
        self.ticked.store(self.now(), Ordering::Relaxed);
    }

    /// Returns the time since the last pass of the loop.
    pub(crate) fn age(&self) -> Duration {
        let ticked = self.ticked.load(Ordering::Relaxed);
        Duration::from_millis(self.now().saturating_sub(ticked))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    use loop_state::{PhaseRules, Rules};
    use rlm_store::timestamp;

    fn head() -> Head {
        let phase = PhaseRules {
            name: "main".into(),
            has_check: true,
            ..PhaseRules::default()
        };
        let phases = vec![phase];
        let rules = Rules::default();
        Head::new(Rules { phases, ..rules }).unwrap()
    }

    async fn finish_write(heartbeat: &mut Heartbeat) {
        let writing = heartbeat.writing.take();
        if let Some(writing) = writing {
            let written = writing.await;
            heartbeat.writing = Some(tokio::spawn(async { written.unwrap() }));
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn x113d_heartbeat_is_written_every_ten_seconds_and_at_each_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("beat");
        let text: Render = Box::new(|beat| format!("{} {:?}", beat.head.iteration, beat.ended));
        let mut heartbeat = Heartbeat::new(path.clone(), text);
        let (run, mut head) = ("r1".parse().unwrap(), head());
        let at = timestamp(SystemTime::UNIX_EPOCH);
        let mut seen = Vec::new();
        for (seconds, iteration) in [(0, 0), (9, 0), (1, 0), (1, 1), (1, 1), (10, 1)] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            // Remove the file, to see whether the next write creates it again.
            let _none = fs_err::remove_file(&path);
            head.iteration = iteration;
            let beat = HeartbeatContext {
                run: &run,
                head: &head,
                at,
                due: None,
                ended: None,
            };
            assert_eq!(heartbeat.write_heartbeat(&beat).await, None);
            finish_write(&mut heartbeat).await;
            seen.push(fs_err::read_to_string(&path).is_ok());
        }
        assert_eq!(seen, [true, false, true, true, false, true]);
        let ended = Some("done");
        let beat = HeartbeatContext {
            run: &run,
            head: &head,
            at,
            due: None,
            ended,
        };
        assert_eq!(heartbeat.end(&beat).await, None);
        assert_eq!(fs_err::read_to_string(&path).unwrap(), "1 Some(\"done\")");
        assert_eq!(fs_err::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn x113d_failed_heartbeat_is_reported_once_and_retried() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none/beat");
        let mut heartbeat = Heartbeat::new(path.clone(), Box::new(|_| "x".into()));
        let (run, head) = ("r1".parse().unwrap(), head());
        let at = timestamp(SystemTime::UNIX_EPOCH);
        let beat = HeartbeatContext {
            run: &run,
            head: &head,
            at,
            due: None,
            ended: None,
        };
        let mut failures = Vec::new();
        for round in 0..4 {
            if round == 3 {
                fs_err::create_dir(dir.path().join("none")).unwrap();
            }
            failures.extend(heartbeat.write_heartbeat(&beat).await);
            finish_write(&mut heartbeat).await;
            tokio::time::advance(INTERVAL).await;
        }
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert!(failures[0].contains("none/beat"), "{failures:?}");
        assert!(path.exists());
        // Without the check, the write would replace a device of the machine.
        let socket = dir.path().join("socket");
        let _listens = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let refused = replace(&socket, "x", &LastFile::default()).unwrap_err();
        assert!(
            refused.to_string().contains("not a regular file"),
            "{refused}"
        );
    }

    #[test]
    fn w13_file_that_is_no_heartbeat_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes.json");
        let beat = r#"{"run": "r1", "pid": 1}"#;
        for precious in ["my notes", r#"{"run": "r1"}"#, "[]"] {
            fs_err::write(&path, precious).unwrap();
            let refused = replace(&path, beat, &LastFile::default()).unwrap_err();
            assert!(
                refused.to_string().contains("is not a heartbeat file"),
                "{refused}"
            );
            assert_eq!(fs_err::read_to_string(&path).unwrap(), precious);
        }
        for ours in ["", r#"{"pid": 2, "run": "r0"}"#] {
            fs_err::write(&path, ours).unwrap();
            replace(&path, beat, &LastFile::default()).unwrap();
            assert_eq!(fs_err::read_to_string(&path).unwrap(), beat);
        }
    }
}
