//! The download of a run: the output of `rlm checkpoints export`, as it is written. The run stays where it is.

use std::io::{self, Read as _};
use std::pin::Pin;
use std::process::{Child, ChildStdout};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use futures_core::Stream;
use rlm_store::{Project, RunId};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::spawn_blocking;

use crate::program::Program;

/// The bytes of one read, and the reads that wait for a slow browser.
const CHUNK: usize = 64 << 10;
const QUEUE: usize = 4;
/// The largest number of bytes of an error message.
const MAX_ERROR: u64 = 16 << 10;
/// The largest number of exports at once.
pub(crate) const MAX_EXPORTS: usize = 2;

/// A program that writes an archive. Dropping it kills the program, unless it has ended.
struct Exporter {
    child: Child,
    from: ChildStdout,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Exporter {
    /// Reads the next part of the archive; it is empty at the end.
    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; CHUNK];
        let count = self.from.read(&mut bytes)?;
        bytes.truncate(count);
        Ok(bytes)
    }
}

/// Starts the export of a copy of a run, and returns the archive once its first bytes are there. Blocks.
///
/// # Errors
///
/// The reason in words if the run can't be exported.
pub(crate) fn export(
    program: &dyn Program,
    project: &Project,
    run: &RunId,
    with_uncommitted: bool,
    permit: OwnedSemaphorePermit,
) -> Result<Body, String> {
    let mut words = vec!["checkpoints", "export", run.as_str(), "--copy", "-o", "-"];
    if with_uncommitted {
        words.push("--allow-dirty");
    }
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    let started = program.start(project, &words);
    let mut child = started.map_err(|e| format!("can't start rlm: {e}"))?;
    let (Some(from), Some(messages)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("the output of rlm can't be read".into());
    };
    // Messages beyond the limit are read too, so that the program never waits for a reader.
    let messages = std::thread::spawn(move || {
        let mut text = Vec::new();
        let mut messages = messages;
        let read = (&mut messages).take(MAX_ERROR).read_to_end(&mut text);
        let _rest = read.and_then(|_| io::copy(&mut messages, &mut io::sink()));
        String::from_utf8_lossy(&text).trim().to_owned()
    });
    let mut exporter = Exporter {
        child,
        from,
        _permit: permit,
    };
    let first = exporter.read().map_err(|e| e.to_string())?;
    if first.is_empty() {
        let text = messages.join().unwrap_or_default();
        return Err(match text.is_empty() {
            true => "rlm wrote no archive".into(),
            false => text,
        });
    }
    let (to, from) = mpsc::channel(QUEUE);
    spawn_blocking(move || {
        let mut next = Ok(first);
        loop {
            let (bytes, is_failed) = match next {
                Ok(bytes) if bytes.is_empty() => break,
                Ok(bytes) => (Ok(Bytes::from(bytes)), false),
                Err(e) => (Err(e), true),
            };
            // The browser may have cancelled the download.
            if to.blocking_send(bytes).is_err() || is_failed {
                return;
            }
            next = exporter.read();
        }
        // An archive that is not complete must not look complete.
        let is_whole = exporter.child.wait().is_ok_and(|status| status.success());
        if !is_whole {
            let _gone = to.blocking_send(Err(io::ErrorKind::UnexpectedEof.into()));
        }
    });
    Ok(Body::from_stream(Archive(from)))
}

/// The parts of an archive.
struct Archive(mpsc::Receiver<io::Result<Bytes>>);

impl Stream for Archive {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}
