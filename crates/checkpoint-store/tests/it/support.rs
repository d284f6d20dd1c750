//! Helpers of the tests: stores in their own directories, and children that are killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use checkpoint_store::{Loaded, Options, PhaseMeta, Seq, Writer};
use rustix::fs::{CWD, FileType, Mode};

/// The types of most tests: the n-th save has head n and events that end in n.
pub(crate) type Log = Writer<u64, u64>;

pub(crate) struct Dir {
    _root: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

impl Dir {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("store");
        Self { _root: root, path }
    }

    pub(crate) fn open(&self) -> (Log, Loaded<u64, u64>) {
        Log::open(&self.path, Options::default()).unwrap()
    }

    /// Makes seven saves: one is undone, and one is a phase. A second writer makes the last save; this function returns that writer.
    pub(crate) fn with_history(&self) -> Log {
        let (mut writer, _) = self.open();
        writer.append(&1, &[1]).unwrap();
        writer.append(&2, &[2]).unwrap();
        writer.truncate_to(Seq::new(1)).unwrap();
        writer.append(&4, &[4]).unwrap();
        writer.save_phase("p", &5, PhaseMeta::default()).unwrap();
        writer.append(&6, &[6]).unwrap();
        drop(writer);
        let (mut writer, _) = self.open();
        writer.append(&7, &[7]).unwrap();
        writer
    }

    pub(crate) fn load(&self) -> Loaded<u64, u64> {
        checkpoint_store::reader::load(&self.path).unwrap()
    }

    /// Returns the only file that begins with `prefix`.
    pub(crate) fn only(&self, prefix: &str) -> PathBuf {
        let mut found = files(&self.path)
            .into_keys()
            .filter(|name| name.starts_with(prefix));
        let name = found.next().unwrap_or_else(|| panic!("no {prefix}"));
        assert_eq!(found.next(), None);
        self.path.join(name)
    }
}

/// Removes the reserved room of a journal, so that a test sees its last byte.
pub(crate) fn cut_room(path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    std::fs::write(path, without_room(&bytes)).unwrap();
}

/// Returns the bytes up to the end of the last frame, as far as their lengths are right.
pub(crate) fn without_room(bytes: &[u8]) -> &[u8] {
    let mut end = 32;
    while let Some(header) = bytes.get(end..end + 32)
        && header.starts_with(b"CKF1")
    {
        end += 32 + u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
    }
    &bytes[..end.min(bytes.len())]
}

/// Returns the number of bytes without the zeros at the end.
pub(crate) fn torn_len(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .rposition(|&byte| byte != 0)
        .map_or(0, |last| last + 1)
}

/// Returns the regular files of a directory with their contents.
pub(crate) fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect()
}

pub(crate) fn pipe(path: &Path) {
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0).unwrap();
}

const CHILD: &str = "CHECKPOINT_STORE_TEST_DIR";

/// Returns the directory to work in, if this process is a child that [`spawn`] started.
pub(crate) fn child_dir() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

/// Prints a line for the parent in one write.
pub(crate) fn print_line(text: &str) {
    std::io::stdout()
        .write_all(format!("@ {text}\n").as_bytes())
        .unwrap();
}

/// Returns a command that starts this test program again as a child, for the one test `name`; `wrap` goes before it.
pub(crate) fn command(wrap: &[&str], name: &str, dir: &Path) -> Command {
    let exe = std::env::current_exe().unwrap();
    let mut command = match wrap.split_first() {
        None => Command::new(exe),
        Some((program, args)) => {
            let mut command = Command::new(program);
            command.args(args).arg(exe);
            command
        }
    };
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command
        .env(CHILD, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    command
}

pub(crate) struct Running {
    pub(crate) child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    /// Returns the next line that the child printed, or `None` at its end.
    pub(crate) fn next(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            // The test harness writes to the same pipe, also at the start of a line.
            if let Some((_, lines)) = line.trim_end().split_once("@ ") {
                return Some(lines.to_owned());
            }
            line.clear();
        }
        None
    }

    /// Kills the child with SIGKILL and returns all lines that it printed.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.rest()
    }

    /// Waits for the end of the child and returns all lines that it printed.
    pub(crate) fn rest(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        let lines = std::iter::from_fn(|| self.next()).collect();
        self.child.wait().unwrap();
        lines
    }
}

pub(crate) fn spawn(mut command: Command) -> Running {
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap());
    Running { child, lines }
}

/// A generator of small numbers. Their values don't matter, but they must vary.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}
