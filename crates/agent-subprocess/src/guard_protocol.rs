//! The protocol between host and guard: frames of a length and JSON, in order, over one UNIX stream socket.

use crate::{Exit, ProcessName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

/// Increases with each change of the messages, because `guard_program` can name a binary of another version.
pub(crate) const VERSION: u32 = 4;
/// The maximum size of one frame. On Linux the arguments and the environment of a program have a few MiB at most.
const MAX_FRAME: usize = 64 << 20;
/// The maximum number of descriptors that the guard keeps open for the host.
pub(crate) const MAX_HOLD: usize = 16;
/// The maximum number of process names in one report.
pub(crate) const MAX_NAMES: usize = 4096;

/// A text of the operating system. JSON contains a string if the text is UTF-8.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum OsText {
    Utf8(String),
    Bytes(Vec<u8>),
}

impl OsText {
    pub(crate) fn new(text: impl AsRef<OsStr>) -> Self {
        let text = text.as_ref();
        text.to_str().map_or_else(
            || OsText::Bytes(text.as_bytes().to_vec()),
            |text| OsText::Utf8(text.to_owned()),
        )
    }
}

impl From<OsText> for OsString {
    fn from(text: OsText) -> Self {
        match text {
            OsText::Utf8(text) => text.into(),
            OsText::Bytes(bytes) => OsString::from_vec(bytes),
        }
    }
}

/// The program that the guard spawns. The descriptors come with the first byte of this message: standard input if `stdin`, standard output, standard
/// error, then the descriptors to hold.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SpawnSpec {
    pub(crate) program: OsText,
    pub(crate) args: Vec<OsText>,
    /// The whole environment, one `NAME=value` for each variable. The guard adds nothing of its own.
    pub(crate) env: Vec<OsText>,
    pub(crate) directory: OsText,
    pub(crate) stdin: bool,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) survivors_file: Option<OsText>,
    /// When to kill the process tree, as in [`HostCommand::KillAt`].
    pub(crate) kill_at: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SignalTarget {
    /// The process group of the main process of the program.
    Group,
    /// Every descendant of the guard.
    Tree,
}

/// A message from the host to the guard.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum HostCommand {
    /// Record the name of every process from now on, for the report.
    RecordNames,
    Signal {
        signal: i32,
        target: SignalTarget,
    },
    /// Send SIGTERM to the process tree, SIGKILL after `grace`, and report the survivors `rounds` later. Both are in milliseconds.
    Stop {
        grace: u64,
        rounds: u64,
    },
    List {
        sequence: u64,
    },
    /// Kill the process tree at this time, unless a later command of this kind moves it. In milliseconds of `CLOCK_BOOTTIME`.
    KillAt {
        boottime: u64,
    },
}

/// A message from the guard to the host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum GuardMessage {
    Hello {
        version: u32,
        start_time: u64,
        refused: Option<String>,
    },
    /// The guard has read the whole spec and is about to spawn the program. A guard that ends without this message has spawned nothing.
    Accepted,
    Spawned {
        pid: u32,
    },
    SpawnFailed {
        errno: i32,
        in_directory: bool,
    },
    Exited(Exit),
    Listed {
        sequence: u64,
        processes: Vec<ProcessName>,
    },
    /// The last message: `wait` reported that there are no children, or the time ended.
    Ended(TreeEnd),
}

/// The result of ending a process tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TreeEnd {
    pub(crate) ended: Vec<ProcessName>,
    /// The number of ended processes that `ended` doesn't name.
    pub(crate) unlisted: u64,
    pub(crate) survivors: Vec<ProcessName>,
    /// Whether SIGTERM was sent to any process.
    pub(crate) terminated: bool,
    /// Whether SIGKILL was sent to any process.
    pub(crate) killed: bool,
    /// Whether the guard died without a report, so the host swept by the marker. Only the host sets it.
    #[serde(skip)]
    pub(crate) guard_lost: bool,
}

/// Returns a time in the unit of the messages.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn frame<T: Serialize>(message: &T) -> Vec<u8> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)
        .expect("the messages have string keys, and writing to memory does not fail");
    let length = u32::try_from(frame.len() - 4).expect("messages are far below 4 GiB");
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame
}

/// Assembles frames from pieces of any size.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Vec<u8>);

impl Inbox {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let Some(header) = self.0.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*header) as usize;
        if length > MAX_FRAME {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the frame is larger than the limit",
            ));
        }
        let Some(body) = self.0.get(4..4 + length) else {
            return Ok(None);
        };
        let message = serde_json::from_slice(body)?;
        self.0.drain(..4 + length);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn texts_and_frames_round_trip_with_any_bytes_and_chunking(bytes: Vec<u8>, pieces in 1_usize..9) {
            let text = OsText::new(OsString::from_vec(bytes.clone()));
            let mut inbox = Inbox::default();
            let mut seen = None;
            for piece in frame(&text).chunks(pieces) {
                prop_assert!(seen.is_none());
                inbox.push(piece);
                seen = inbox.next::<OsText>().expect("well formed");
            }
            prop_assert_eq!(OsString::from(seen.expect("complete")).into_vec(), bytes);
        }
    }

    #[test]
    fn a_frame_beyond_the_limit_is_refused_before_it_is_stored() {
        let mut inbox = Inbox::default();
        inbox.push(&u32::MAX.to_le_bytes());
        assert!(inbox.next::<HostCommand>().is_err());
    }
}
