//! The person's editor, on the prompt.

use std::io::{self, Read as _, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

use agent_subprocess::guard::OwnProgram;
use fs_err::os::unix::fs::OpenOptionsExt;
use loop_state::times;
use rlm_store::state_dir;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, kill_process_group, test_kill_process_group, waitpid,
};
use tokio::sync::oneshot;

use super::tty::Tty;

/// Holds the editor back until the terminal is its own, and then becomes it.
const BEHIND_A_LINE: &str = r#"read -r _; exec </dev/tty >/dev/tty; eval "$1 \"\$2\"""#;
/// A longer prompt is refused by whoever reads it.
const MAX_PROMPT: u64 = 4 << 20;

/// The process group of the editor that is open; 0 for none. For the ends of the process that pass nobody who would know.
static OPEN: AtomicI32 = AtomicI32::new(0);

/// Kills the editor that is open; says whether there was one.
pub(super) fn kill_open() -> bool {
    let open = Pid::from_raw(OPEN.swap(0, Ordering::SeqCst));
    open.is_some_and(|group| kill_process_group(group, Signal::KILL).is_ok())
}

/// What is edited.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A file, which is read anew for each iteration.
    File(PathBuf),
    /// A text that stands in no file.
    Text(String),
}

/// How editing ended: what became of the prompt, or why it was not taken.
pub(crate) type Edited = Result<Edit, String>;

/// What a person did to a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Nothing.
    None,
    /// The file has another text.
    File,
    /// This is the new text.
    Text(String),
}

/// A running editor. Dropping it leaves the editor alone.
#[derive(Debug)]
pub(crate) struct Editor {
    group: Pid,
    ended: oneshot::Receiver<Edited>,
}

impl Editor {
    /// Opens the editor in the foreground of the terminal, in a process group of its own: its signals are not ours.
    pub(crate) fn open(tty: &Arc<Tty>, subject: Subject) -> Result<Self, String> {
        let name = ["VISUAL", "EDITOR"]
            .iter()
            .find_map(|name| {
                std::env::var(name)
                    .ok()
                    .filter(|value| !value.trim().is_empty())
            })
            .unwrap_or_else(|| "vi".to_owned());
        let failed = |e: io::Error| format!("the editor `{name}` can't be opened: {e}");
        let (path, is_copy, before) = match subject {
            Subject::File(path) => {
                let before = read_bounded(&path).ok();
                (path, false, before)
            }
            Subject::Text(text) => (copy(&text).map_err(failed)?, true, Some(text)),
        };
        // An editor may leave a server running, which belongs to no agent.
        let own = OwnProgram::new();
        let group = start(tty, &name, &path).map_err(|e| {
            discard(&path, is_copy);
            failed(e)
        })?;
        OPEN.store(group.as_raw_nonzero().get(), Ordering::SeqCst);
        let (told, ended) = oneshot::channel();
        let tty = Arc::clone(tty);
        std::thread::spawn(move || {
            let result = wait_for(group);
            if result.is_err() {
                wait_for_rest(group);
            }
            OPEN.store(0, Ordering::SeqCst);
            drop(own);
            // The editor's group is gone, and nobody else has taken the terminal.
            let _gone = tty.give_to(getpgrp());
            let result = result.map_err(|how| format!("the editor `{name}` {how}"));
            let result = result.and_then(|()| match is_copy {
                true => read(&path).map(Edit::Text),
                false => Ok(Edit::File),
            });
            let result = result.map(|edit| {
                let after = match &edit {
                    Edit::Text(text) => Some(text.clone()),
                    _ => read_bounded(&path).ok(),
                };
                if after == before { Edit::None } else { edit }
            });
            discard(&path, is_copy);
            let _shut = told.send(result);
        });
        Ok(Self { group, ended })
    }

    /// Waits until it has ended and the terminal is ours again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn ended(&mut self) -> Edited {
        let result = (&mut self.ended).await;
        result.unwrap_or_else(|_| Err("the editor was lost".into()))
    }

    /// Tells it to end, as a terminal that is closed would.
    pub(crate) fn hang_up(&self) {
        for signal in [Signal::HUP, Signal::CONT] {
            let _gone = kill_process_group(self.group, signal);
        }
    }

    /// Ends it.
    pub(crate) fn kill(&self) {
        let _gone = kill_process_group(self.group, Signal::KILL);
    }
}

fn start(tty: &Tty, name: &str, path: &Path) -> io::Result<Pid> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", BEHIND_A_LINE, "sh", name])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Tty::again()?)
        .stderr(Tty::again()?)
        .process_group(0)
        .spawn()?;
    let group = Pid::from_child(&child);
    let given = tty.give_to(group);
    if given.is_err() {
        let _gone = kill_process_group(group, Signal::KILL);
    }
    if let Some(mut hold) = child.stdin.take() {
        // A shell that is gone says so by its end.
        let _gone = hold.write_all(b"\n");
    }
    given.map(|()| group)
}

/// Waits for the end of the group's leader. One that stops itself is let go on: there is no shell here that could do it later.
fn wait_for(group: Pid) -> Result<(), String> {
    loop {
        match waitpid(Some(group), WaitOptions::UNTRACED) {
            Ok(Some((_, status))) if status.stopped() => {
                let _gone = kill_process_group(group, Signal::CONT);
            }
            Ok(Some((_, status))) => {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(0), _) => Ok(()),
                    (Some(code), _) => Err(format!("ended with exit status {code}")),
                    (None, signal) => Err(format!("was killed by signal {}", signal.unwrap_or(0))),
                };
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(format!("was lost: {errno}")),
        }
    }
}

/// Waits for what the leader of an editor that failed left in its group: the editor itself, when the shell before it was killed first.
fn wait_for_rest(group: Pid) {
    let by = Instant::now() + times::EDITOR_ENDING;
    while test_kill_process_group(group).is_ok() {
        if Instant::now() >= by {
            let _gone = kill_process_group(group, Signal::KILL);
            return;
        }
        std::thread::park_timeout(times::EDITOR_ENDING / 50);
    }
}

/// Writes a private copy.
fn copy(text: &str) -> io::Result<PathBuf> {
    let name = format!("prompt-{}.md", uuid::Uuid::new_v4().simple());
    let path = std::env::temp_dir().join(name);
    let mut file = fs_err::OpenOptions::new();
    file.write(true).create_new(true).mode(0o600);
    file.open(&path)?.write_all(text.as_bytes())?;
    Ok(path)
}

fn read(path: &Path) -> Result<String, String> {
    let text = read_bounded(path).map_err(|e| format!("the prompt was not taken: {e}"))?;
    match text.trim() {
        "" => Err("the prompt is empty now; it was not taken".into()),
        _ => Ok(text),
    }
}

/// Reads a file that the editor may have replaced by anything.
fn read_bounded(path: &Path) -> io::Result<String> {
    let Some(file) = state_dir::open_named(path)? else {
        return Err(io::Error::other("it is not a regular file now"));
    };
    let mut text = String::new();
    file.take(MAX_PROMPT + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MAX_PROMPT {
        true => Err(io::Error::other(format!(
            "it is too long now; at most {MAX_PROMPT} bytes are taken"
        ))),
        false => Ok(text),
    }
}

fn discard(path: &Path, is_copy: bool) {
    if is_copy {
        // What can't be removed is private and in the directory for such things.
        let _left = fs_err::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s11b_an_edited_prompt_is_taken_or_refused_with_a_reason() {
        let path = copy("text").unwrap();
        assert_eq!(read(&path).unwrap(), "text");
        fs_err::write(&path, " \n").unwrap();
        insta::assert_snapshot!(read(&path).unwrap_err(), @"the prompt is empty now; it was not taken");
        fs_err::File::create(&path)
            .unwrap()
            .set_len(MAX_PROMPT + 1)
            .unwrap();
        assert!(read(&path).unwrap_err().contains("at most"));
        discard(&path, true);
        assert!(read(&path).is_err());
    }
}
