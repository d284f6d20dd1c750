//! The download of a run: the output of `rlm checkpoints export`, as it is written. The run stays where it is.
//!
//! The exporter holds locks of the project, so a browser that takes no bytes must not keep it. An export that ends early rolls back: a killed exporter
//! would leave a copy of the run in the project.

use std::io::{self, Read as _};
use std::pin::Pin;
use std::process::{Child, ChildStderr, ChildStdout};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use futures_core::Stream;
use rlm_store::{Project, RunId};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::program::Program;

/// The bytes of one read, and the reads that wait for a slow browser.
const CHUNK: usize = 64 << 10;
const QUEUE: usize = 4;
/// The largest number of bytes of an error message.
const MAX_ERROR: u64 = 16 << 10;
/// The largest number of exports at once.
pub(crate) const MAX_EXPORTS: usize = 2;
/// The time in which a browser must take the next bytes.
const SLOWEST: Duration = Duration::from_secs(30);
/// The time in which an exporter must roll back.
const ROLLBACK: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// A program that writes an archive.
struct Exporter {
    program: Arc<dyn Program>,
    child: Mutex<Child>,
    interrupted: Once,
}

impl Exporter {
    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a rollback, unless the program has ended. Once, because a second signal would end the program without a rollback.
    fn interrupt(&self) {
        self.interrupted.call_once(|| {
            let mut child = self.child();
            if matches!(child.try_wait(), Ok(None)) {
                self.program.interrupt(&child);
            }
        });
    }

    /// Waits until the program has ended, and returns whether it succeeded. Kills the program after `limit`. Blocks.
    fn has_succeeded(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            match self.child().try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) => {}
                Err(_) => break,
            }
            std::thread::park_timeout(POLL);
        }
        let mut child = self.child();
        // It may have ended meanwhile.
        let _ended = child.kill();
        let _reaped = child.wait();
        false
    }
}

/// A part of a download.
enum Part {
    Bytes(Bytes),
    /// The archive is complete.
    End,
    /// The archive is incomplete, for this reason.
    Failed(String),
}

/// A download. Dropping it ends the exporter.
pub(crate) struct Download {
    first: Option<Bytes>,
    /// `None` after the last part.
    parts: Option<mpsc::Receiver<Part>>,
    exporter: Arc<Exporter>,
}

impl Drop for Download {
    fn drop(&mut self) {
        self.exporter.interrupt();
    }
}

/// Starts the export of a copy of a run. The export ends early when `is_allowed` returns false. Blocks until the program is started.
///
/// # Errors
///
/// The reason in words if the program can't be started.
pub(crate) fn export(
    program: Arc<dyn Program>,
    project: &Project,
    run: &RunId,
    with_uncommitted: bool,
    permit: OwnedSemaphorePermit,
    is_allowed: impl Fn() -> bool + Send + 'static,
) -> Result<Download, String> {
    let mut words = vec!["checkpoints", "export", run.as_str(), "--copy", "-o", "-"];
    if with_uncommitted {
        words.push("--allow-dirty");
    }
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    let started = program.start(project, &words);
    let child = started.map_err(|e| format!("can't start rlm: {e}"))?;
    download(program, child, SLOWEST, ROLLBACK, move || {
        // The permit is held until the export has ended.
        let _held = &permit;
        is_allowed()
    })
}

/// Returns the download of the bytes that `child` writes. The browser must take the next bytes within `slowest`, and the program must roll back within
/// `rollback`. Must be called in a tokio runtime.
fn download(
    program: Arc<dyn Program>,
    mut child: Child,
    slowest: Duration,
    rollback: Duration,
    is_allowed: impl Fn() -> bool + Send + 'static,
) -> Result<Download, String> {
    let (from, messages) = (child.stdout.take(), child.stderr.take());
    let exporter = Arc::new(Exporter {
        program,
        child: Mutex::new(child),
        interrupted: Once::new(),
    });
    let (to, parts) = mpsc::channel(QUEUE);
    let download = Download {
        first: None,
        parts: Some(parts),
        exporter: Arc::clone(&exporter),
    };
    let (Some(mut from), Some(messages)) = (from, messages) else {
        return Err("the output of rlm can't be read".into());
    };
    let messages = read_messages(messages);
    let runtime = Handle::current();
    spawn_blocking(move || {
        let send = |part| {
            let taken = timeout(slowest, to.send(part));
            is_allowed() && matches!(runtime.block_on(taken), Ok(Ok(())))
        };
        let is_sent = loop {
            let Ok(bytes) = read(&mut from) else {
                break false;
            };
            if bytes.is_empty() {
                break true;
            }
            if !send(Part::Bytes(bytes)) {
                break false;
            }
        };
        // Without a reader, the program can't write the rest.
        drop(from);
        if !is_sent {
            exporter.interrupt();
        }
        let has_succeeded = exporter.has_succeeded(rollback);
        if is_sent {
            send(match has_succeeded {
                true => Part::End,
                false => Part::Failed(messages.recv_timeout(rollback).unwrap_or_default()),
            });
        }
    });
    Ok(download)
}

/// Reads the next part of an archive; it is empty at the end.
fn read(from: &mut ChildStdout) -> io::Result<Bytes> {
    let mut bytes = vec![0; CHUNK];
    let count = from.read(&mut bytes)?;
    bytes.truncate(count);
    Ok(bytes.into())
}

/// Reads the messages of a program on a thread of its own. Reads messages beyond the limit too, so that the program never waits for a reader.
fn read_messages(mut from: ChildStderr) -> std::sync::mpsc::Receiver<String> {
    let (to, messages) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = (&mut from).take(MAX_ERROR).read_to_end(&mut text);
        let _rest = read.and_then(|_| io::copy(&mut from, &mut io::sink()));
        // A complete archive needs no message.
        let _unread = to.send(String::from_utf8_lossy(&text).trim().to_owned());
    });
    messages
}

impl Download {
    /// Returns the archive once its first bytes are there.
    ///
    /// # Errors
    ///
    /// The reason in words if the run can't be exported.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the exporter.
    pub(crate) async fn begin(mut self) -> Result<Body, String> {
        let first = match &mut self.parts {
            Some(parts) => parts.recv().await,
            None => None,
        };
        match first {
            Some(Part::Bytes(first)) => {
                self.first = Some(first);
                Ok(Body::from_stream(self))
            }
            Some(Part::Failed(why)) if !why.is_empty() => Err(why),
            _ => Err("rlm wrote no archive".into()),
        }
    }
}

impl Stream for Download {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let Some(parts) = &mut self.parts else {
            return Poll::Ready(None);
        };
        let item = match std::task::ready!(parts.poll_recv(cx)) {
            Some(Part::Bytes(bytes)) => return Poll::Ready(Some(Ok(bytes))),
            Some(Part::End) => None,
            // An archive that is not complete must not look complete.
            Some(Part::Failed(_)) | None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        };
        self.parts = None;
        Poll::Ready(item)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};

    use loop_runner::control::ProcessHealth;
    use rlm_report::CommandLineTerms;
    use rlm_store::{RunEntry, Timeline};

    use super::*;
    use crate::program::{AgentChoice, CommandResult, RunTexts};

    const LONG: Duration = Duration::from_secs(100);
    const SHORT: Duration = Duration::from_millis(20);

    /// A program that can only be interrupted.
    struct Interrupts;

    impl Program for Interrupts {
        fn describe(&self, _: &Project, _: &RunEntry, _: Option<&ProcessHealth>) -> RunTexts {
            unreachable!()
        }

        fn report_terms(&self, _: &Project, _: &Timeline) -> CommandLineTerms {
            unreachable!()
        }

        fn run(&self, _: &Project, _: &[String]) -> CommandResult {
            unreachable!()
        }

        fn start(&self, _: &Project, _: &[String]) -> io::Result<Child> {
            unreachable!()
        }

        fn interrupt(&self, child: &Child) {
            let pid = child.id().to_string();
            let status = Command::new("sh").args(["-c", "kill $0", &pid]).status();
            assert!(status.unwrap().success());
        }

        fn limits(&self) -> Vec<&'static str> {
            unreachable!()
        }

        fn command(&self, _: Option<&Project>) -> String {
            unreachable!()
        }

        fn quoted(&self, _: &str) -> String {
            unreachable!()
        }

        fn agents(&self) -> Vec<AgentChoice> {
            unreachable!()
        }

        fn run_command(&self, _: &Project, _: &[String], _: Option<&str>) -> String {
            unreachable!()
        }

        fn start_run(&self, _: &Project, _: &[String], _: Option<&str>) -> Result<RunId, String> {
            unreachable!()
        }
    }

    /// Starts the download of the output of a script.
    fn start(
        script: &str,
        limits: [Duration; 2],
        is_allowed: impl Fn() -> bool + Send + 'static,
    ) -> (Download, Arc<Exporter>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let [slowest, rollback] = limits;
        let download = download(Arc::new(Interrupts), child, slowest, rollback, is_allowed);
        let download = download.unwrap();
        let exporter = Arc::clone(&download.exporter);
        (download, exporter)
    }

    async fn expect_end(exporter: &Exporter) {
        let until = Instant::now() + LONG;
        while exporter.child().try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "the exporter still runs");
            tokio::task::yield_now().await;
        }
    }

    /// Returns the number of bytes of an archive, or its error.
    async fn all(archive: Body) -> Result<usize, String> {
        let bytes = axum::body::to_bytes(archive, 64 << 20).await;
        let result = bytes.map(|it| it.len()).map_err(|e| e.to_string());
        // An archive without end is not an error of the archive.
        assert!(result != Err("length limit exceeded".into()), "no end");
        result
    }

    #[tokio::test]
    async fn complete_archive_ends_and_a_failed_one_does_not_look_complete() {
        let run = |script| start(script, [LONG, LONG], || true).0.begin();
        let million = "head -c 1000000 /dev/zero";
        assert_eq!(all(run(million).await.unwrap()).await, Ok(1_000_000));
        let failed = format!("{million}; exit 1");
        assert!(all(run(&failed).await.unwrap()).await.is_err());
        let why = run("echo the reason >&2; exit 1").await.unwrap_err();
        assert_eq!(why, "the reason");
        let why = run("exit 0").await.unwrap_err();
        assert_eq!(why, "rlm wrote no archive");
    }

    #[tokio::test]
    async fn paused_download_ends_its_exporter() {
        let (download, exporter) = start("exec yes", [SHORT, LONG], || true);
        let archive = download.begin().await.unwrap();
        expect_end(&exporter).await;
        assert!(all(archive).await.is_err());
    }

    #[tokio::test]
    async fn logged_out_browser_gets_no_more_bytes() {
        let is_allowed = Arc::new(AtomicBool::new(true));
        let allowed = Arc::clone(&is_allowed);
        let check = move || allowed.load(Ordering::Relaxed);
        let (download, exporter) = start("exec yes", [LONG, LONG], check);
        let archive = download.begin().await.unwrap();
        is_allowed.store(false, Ordering::Relaxed);
        assert!(all(archive).await.is_err());
        expect_end(&exporter).await;
    }

    #[tokio::test]
    async fn dropped_download_ends_an_exporter_that_has_written_nothing() {
        let (download, exporter) = start("exec sleep 1000", [LONG, LONG], || true);
        let mut begin = Box::pin(download.begin());
        poll_fn(|cx| {
            assert!(begin.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        drop(begin);
        expect_end(&exporter).await;
    }

    #[tokio::test]
    async fn exporter_that_does_not_roll_back_is_killed() {
        let script = "trap '' TERM; echo begin; exec 1>&-; while :; do sleep 0.01; done";
        let (download, exporter) = start(script, [LONG, SHORT], || true);
        let archive = download.begin().await.unwrap();
        drop(archive);
        expect_end(&exporter).await;
    }
}
