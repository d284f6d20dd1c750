//! Runs the person's editor on a prompt.

use std::io::{self, Read as _, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

use agent_subprocess::guard::OwnProgramScope;
use fs_err::os::unix::fs::OpenOptionsExt;
use loop_state::times;
use rlm_store::state_dir;
use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, kill_process_group, test_kill_process_group, waitpid,
};
use tokio::sync::oneshot;

use super::tty::Tty;

/// A shell script that waits until the terminal belongs to its process group, and then runs the editor.
const WAIT_THEN_EXEC_EDITOR: &str = r#"read -r _; exec </dev/tty >/dev/tty; eval "$1 \"\$2\"""#;
/// The maximum number of bytes of a prompt. Every reader of a prompt refuses more.
const MAX_PROMPT: u64 = 4 << 20;

/// The process group of the open editor; 0 for none. A static, because a panic and a hard exit have no access to the console.
static OPEN: AtomicI32 = AtomicI32::new(0);

/// Kills the open editor. Returns whether there was one.
pub(super) fn kill_open() -> bool {
    let open = Pid::from_raw(OPEN.swap(0, Ordering::SeqCst));
    open.is_some_and(|group| kill_process_group(group, Signal::KILL).is_ok())
}

/// The prompt that the person edits.
#[derive(Clone, Debug)]
pub enum EditTarget {
    /// A file, which each iteration reads again.
    File(PathBuf),
    /// A text without a file.
    Text(String),
}

/// The change to the prompt, or the reason why the prompt is unchanged.
pub(crate) type EditResult = Result<Edit, String>;

/// The change that a person made to a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// No change.
    None,
    /// The file has a new text.
    File,
    /// The new text of a prompt without a file.
    Text(String),
}

/// A running editor. Dropping this value doesn't end the editor.
#[derive(Debug)]
pub(crate) struct Editor {
    group: Pid,
    ended: oneshot::Receiver<EditResult>,
}

impl Editor {
    /// Opens the editor in the foreground of the terminal, in its own process group, so that it doesn't share our signals.
    pub(crate) fn open(tty: &Arc<Tty>, subject: EditTarget) -> Result<Self, String> {
        let name = ["VISUAL", "EDITOR"]
            .iter()
            .find_map(|name| {
                std::env::var(name)
                    .ok()
                    .filter(|value| !value.trim().is_empty())
            })
            .unwrap_or_else(|| "vi".to_owned());
        let failed = |e: io::Error| format!("can't open the editor `{name}`: {e}");
        let (path, is_copy, before) = match subject {
            EditTarget::File(path) => {
                let before = read_bounded(&path).ok();
                (path, false, before)
            }
            EditTarget::Text(text) => (copy(&text).map_err(failed)?, true, Some(text)),
        };
        // An editor may leave a server running, which a sweep must not treat as a process of an agent.
        let own = OwnProgramScope::new();
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
            // Take the terminal back: it belongs to the group of the editor, whose leader has ended.
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

    /// Waits until the editor has ended and the terminal is ours again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn ended(&mut self) -> EditResult {
        let result = (&mut self.ended).await;
        result.unwrap_or_else(|_| Err("the editor ended without a result".into()))
    }

    /// Asks the editor to end, with the signals of a closed terminal.
    pub(crate) fn hang_up(&self) {
        for signal in [Signal::HUP, Signal::CONT] {
            let _gone = kill_process_group(self.group, signal);
        }
    }

    /// Kills the editor.
    pub(crate) fn kill(&self) {
        let _gone = kill_process_group(self.group, Signal::KILL);
    }
}

fn start(tty: &Tty, name: &str, path: &Path) -> io::Result<Pid> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", WAIT_THEN_EXEC_EDITOR, "sh", name])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Tty::reopen()?)
        .stderr(Tty::reopen()?)
        .process_group(0)
        .spawn()?;
    let group = Pid::from_child(&child);
    let given = tty.give_to(group);
    if given.is_err() {
        let _gone = kill_process_group(group, Signal::KILL);
    }
    if let Some(mut hold) = child.stdin.take() {
        // If the shell is gone, `wait_for` reports it.
        let _gone = hold.write_all(b"\n");
    }
    given.map(|()| group)
}

/// Waits for the end of the group's leader. Continues a leader that suspends itself, because no shell here could do it later.
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
            Err(errno) => return Err(format!("can't be waited for: {errno}")),
        }
    }
}

/// Waits for the rest of the group after its leader failed. The rest can be the editor itself, if the shell that started it was killed first.
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

/// Writes the text to a private temporary file.
fn copy(text: &str) -> io::Result<PathBuf> {
    let name = format!("prompt-{}.md", uuid::Uuid::new_v4().simple());
    let path = std::env::temp_dir().join(name);
    let mut file = fs_err::OpenOptions::new();
    file.write(true).create_new(true).mode(0o600);
    file.open(&path)?.write_all(text.as_bytes())?;
    Ok(path)
}

fn read(path: &Path) -> Result<String, String> {
    let text = read_bounded(path).map_err(|e| format!("the prompt is unchanged: {e}"))?;
    match text.trim() {
        "" => Err("the prompt is unchanged: the new text is empty".into()),
        _ => Ok(text),
    }
}

/// Reads a file. The editor may have replaced it with another type of file or with a text of any length.
fn read_bounded(path: &Path) -> io::Result<String> {
    let Some(file) = state_dir::open_named(path)? else {
        return Err(io::Error::other("its file is no longer a regular file"));
    };
    let mut text = String::new();
    file.take(MAX_PROMPT + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MAX_PROMPT {
        true => Err(io::Error::other(format!(
            "the new text is too long; the limit is {MAX_PROMPT} bytes"
        ))),
        false => Ok(text),
    }
}

fn discard(path: &Path, is_copy: bool) {
    if is_copy {
        // If the removal fails, the file stays private in the temporary directory.
        let _left = fs_err::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s11b_edited_prompt_is_accepted_or_refused_with_a_reason() {
        let path = copy("text").unwrap();
        assert_eq!(read(&path).unwrap(), "text");
        fs_err::write(&path, " \n").unwrap();
        insta::assert_snapshot!(read(&path).unwrap_err(), @"the prompt is unchanged: the new text is empty");
        fs_err::File::create(&path)
            .unwrap()
            .set_len(MAX_PROMPT + 1)
            .unwrap();
        assert!(read(&path).unwrap_err().contains("the limit is"));
        discard(&path, true);
        assert!(read(&path).is_err());
    }
}
