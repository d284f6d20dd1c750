//! Bytes that come and go while a person may press Ctrl-C, and how many.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use cancellable_sleep::SleepGate;
use rlm_store::moving::Meter;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::exit::Failure;

/// How often is looked whether the work is to end.
const LOOK: Duration = Duration::from_millis(100);
/// What a pipe that takes anything takes at once.
const PIECE: usize = 4096;
/// From when on it is shown how far it is.
const SOON: u32 = 5;

/// Returns where a file is that is named in this directory.
pub(super) fn named(directory: &Path, file: &Path) -> PathBuf {
    match directory == Path::new(".") {
        true => file.to_owned(),
        false => directory.join(file),
    }
}

/// A file or a pipe that gives up when the work is to end.
pub(super) struct Piped {
    file: File,
    gate: SleepGate,
}

impl Piped {
    pub(super) fn input(gate: &SleepGate) -> Result<Self, Failure> {
        Self::of(io::stdin(), gate)
    }

    pub(super) fn output(gate: &SleepGate) -> Result<Self, Failure> {
        Self::of(io::stdout(), gate)
    }

    pub(super) fn file(path: &Path, gate: &SleepGate) -> Result<Self, Failure> {
        let is_file = fs_err::metadata(path).and_then(|meta| match meta.is_dir() {
            true => Err(io::Error::other(format!(
                "`{}` is a directory",
                path.display()
            ))),
            false => fs_err::File::open(path),
        });
        let file = is_file.map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Failure::not_found(e.to_string()),
            _ => Failure::failed(e.to_string()),
        })?;
        Ok(Self {
            file: file.into_parts().0,
            gate: gate.clone(),
        })
    }

    fn of(stream: impl AsFd, gate: &SleepGate) -> Result<Self, Failure> {
        let file = stream.as_fd().try_clone_to_owned();
        let file = file.map_err(|e| Failure::failed(format!("a pipe can't be had: {e}")))?;
        Ok(Self {
            file: file.into(),
            gate: gate.clone(),
        })
    }

    fn wait(&self, what: PollFlags) -> io::Result<()> {
        let look = Timespec::try_from(LOOK).expect("it is short");
        loop {
            if self.gate.token().is_cancelled() {
                return Err(io::Error::other("it was stopped"));
            }
            match poll(&mut [PollFd::new(&self.file, what)], Some(&look)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl Read for Piped {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait(PollFlags::IN)?;
        self.file.read(buffer)
    }
}

impl Write for Piped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(PollFlags::OUT)?;
        self.file.write(&bytes[..bytes.len().min(PIECE)])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line on a terminal that says how far it is. Its drop takes it away.
pub(super) struct Shown {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Shown {
    pub(super) fn new(what: &'static str, meter: Meter) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let show = move || {
            let mut looks = 0;
            while !over.load(Ordering::Acquire) {
                std::thread::park_timeout(LOOK);
                looks += 1;
                if looks > SOON {
                    let (done, all) = meter.read();
                    let [done, all] = [done, all].map(|bytes| bytes >> 20);
                    eprint_line(&format!("{what}: {done} of {all} MiB"));
                }
            }
            if looks > SOON {
                eprint_line("");
            }
        };
        let thread = io::stderr().is_terminal().then(|| std::thread::spawn(show));
        Self { is_over, thread }
    }
}

fn eprint_line(text: &str) {
    // That nobody sees it is no reason to stop.
    let _unseen = write!(io::stderr(), "\r{text}\x1b[K");
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _panicked = thread.join();
        }
    }
}
