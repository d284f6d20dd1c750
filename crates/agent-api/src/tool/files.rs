//! The parts that all tools for files share: what a path needs, work off the runtime, and what is wrong with a path.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::{
    Access, FileStamp, ResolvedPath, ToolContext, ToolOutput, WorkingDirectory, no_links,
    plain_file,
};

/// The directories that no search enters. Their files can start programs, or are the state of a run.
const CLOSED: [&str; 2] = [".git", ".rlm"];
/// The maximum number of names of a directory that are compared with a missing one.
const MAX_NAMES: usize = 2_000;
/// The maximum number of similar names in a result.
const MAX_SIMILAR: usize = 3;
/// How similar a name must be, from 0 to 1.
const SIMILAR: f32 = 0.6;

/// Judges a resolved path: what a call needs to use it.
pub(super) type Judge = fn(&ResolvedPath, &WorkingDirectory) -> Access;

/// Judges a path that a call reads.
pub(super) fn to_read(resolved: &ResolvedPath, _: &WorkingDirectory) -> Access {
    match resolved.is_inside {
        true => Access::Reads,
        false => outside(&resolved.path),
    }
}

/// Judges a path of a file that a call changes.
pub(super) fn to_change(resolved: &ResolvedPath, directory: &WorkingDirectory) -> Access {
    match resolved.is_inside {
        false => outside(&resolved.path),
        true if is_closed(&resolved.path, directory) => Access::Anything {
            reason: format!(
                "`{}` is a file of git or of a run",
                directory.shown(&resolved.path)
            ),
        },
        true => Access::Edits,
    }
}

/// Resolves a path again when a call runs. Refuses a path that the judged access does not cover: for example, a directory was replaced by a link
/// meanwhile.
pub(super) fn resolve(
    path: &str,
    context: &ToolContext,
    judge: Judge,
) -> Result<PathBuf, ToolOutput> {
    let directory = &context.directory;
    let resolved = directory.resolve(path).map_err(ToolOutput::failed)?;
    let access = judge(&resolved, directory);
    match &context.judged {
        Some(judged) if !judged.covers(&access) => Err(ToolOutput::failed(format!(
            "`{path}` leads to another place now than when the call was permitted; call the tool again"
        ))),
        _ => Ok(resolved.path),
    }
}

fn outside(path: &Path) -> Access {
    Access::Anything {
        reason: format!("`{}` is outside of the working directory", path.display()),
    }
}

/// Returns whether a path in the working directory leads through a directory that no search enters.
pub(super) fn is_closed(path: &Path, directory: &WorkingDirectory) -> bool {
    let below = path.strip_prefix(directory.path()).unwrap_or(path);
    below.components().any(|part| match part {
        Component::Normal(name) => CLOSED.iter().any(|closed| name == *closed),
        _ => false,
    })
}

/// Runs work that blocks. It ends soon after the call is cancelled or its future is dropped, if it looks at its token.
pub(super) async fn blocking<T: Send + 'static>(
    context: &ToolContext,
    work: impl FnOnce(&CancellationToken) -> Result<T, ToolOutput> + Send + 'static,
) -> Result<T, ToolOutput> {
    if context.cancel.is_cancelled() {
        return Err(interrupted());
    }
    let cancel = context.cancel.child_token();
    let _cancel_on_drop = cancel.clone().drop_guard();
    let work = tokio::task::spawn_blocking(move || work(&cancel));
    tokio::select! {
        biased;
        done = work => done.unwrap_or_else(|_panic| Err(ToolOutput::failed("the tool failed"))),
        // A file system that hangs must not hang the stop.
        () = context.cancel.cancelled() => Err(interrupted()),
    }
}

/// Returns the result of a call that was cancelled.
pub(super) fn interrupted() -> ToolOutput {
    ToolOutput::failed("the call was interrupted")
}

/// A file whose reads fail after a cancellation.
#[derive(Debug)]
pub(super) struct CancellableFile<'a> {
    pub(super) file: File,
    pub(super) cancel: &'a CancellationToken,
}

impl Read for CancellableFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.cancel.is_cancelled() {
            // `Interrupted` would be tried again.
            true => Err(io::Error::other("interrupted")),
            false => self.file.read(buffer),
        }
    }
}

/// A regular file and its state when it was opened.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) file: File,
    pub(super) stamp: FileStamp,
    pub(super) bytes: u64,
}

/// Opens a regular file; `None` if there is none. Explains why another path can't be used.
pub(super) fn open(path: &Path, shown: &str) -> Result<Option<OpenFile>, ToolOutput> {
    let explain = |error: &io::Error| {
        ToolOutput::failed(match error.kind() {
            io::ErrorKind::IsADirectory => {
                format!("`{shown}` is a directory; use `glob` to list its files")
            }
            io::ErrorKind::InvalidInput => {
                format!("`{shown}` is no regular file but a FIFO, a socket or a device")
            }
            io::ErrorKind::NotADirectory => format!("`{shown}` goes through a file or a link"),
            _ => format!("`{shown}` can't be opened: {error}"),
        })
    };
    let Some(file) = plain_file::open(path).map_err(|error| explain(&error))? else {
        return Ok(None);
    };
    let metadata = file.metadata().map_err(|error| explain(&error))?;
    Ok(Some(OpenFile {
        file,
        stamp: FileStamp::of(&metadata),
        bytes: metadata.len(),
    }))
}

/// Reads a file up to a size; `None` if it is larger.
fn contents(
    file: File,
    max: u64,
    shown: &str,
    cancel: &CancellationToken,
) -> Result<Option<Vec<u8>>, ToolOutput> {
    let mut bytes = Vec::new();
    let mut file = CancellableFile { file, cancel }.take(max + 1);
    match file.read_to_end(&mut bytes) {
        Ok(_) if file.limit() == 0 => Ok(None),
        Ok(_) => Ok(Some(bytes)),
        Err(error) => Err(unreadable(shown, &error)),
    }
}

/// A file that a call changes, as it is before the change.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) path: PathBuf,
    /// The path as the model should see it.
    pub(super) shown: String,
    /// The contents, or `None` if there is no file.
    pub(super) before: Option<Vec<u8>>,
    /// Whether the model has read or written this file.
    pub(super) is_known: bool,
}

/// Opens a file that a call changes, and reads it up to `max` bytes. Refuses a file that changed since the model read it.
pub(super) fn target(
    path: &str,
    max: u64,
    context: &ToolContext,
    cancel: &CancellationToken,
) -> Result<Target, ToolOutput> {
    let path = resolve(path, context, to_change)?;
    let shown = context.directory.shown(&path);
    let Some(OpenFile { file, stamp, .. }) = open(&path, &shown)? else {
        return Ok(Target {
            path,
            shown,
            before: None,
            is_known: false,
        });
    };
    let known = context.files.stamp(&path);
    if known.is_some_and(|known| known != stamp) {
        return Err(ToolOutput::failed(format!(
            "`{shown}` was changed since you read it; read it again"
        )));
    }
    let before = contents(file, max, &shown, cancel)?.ok_or_else(|| {
        ToolOutput::failed(format!(
            "`{shown}` is larger than {} MB; use `bash` to change it",
            max >> 20
        ))
    })?;
    Ok(Target {
        path,
        shown,
        before: Some(before),
        is_known: known.is_some(),
    })
}

/// Returns the result of a call whose file can't be read.
pub(super) fn unreadable(shown: &str, error: &io::Error) -> ToolOutput {
    ToolOutput::failed(format!("`{shown}` can't be read: {error}"))
}

/// Returns the result of a call whose file is missing, with similar names in its directory.
pub(super) fn missing(path: &Path, directory: &WorkingDirectory) -> ToolOutput {
    let shown = directory.shown(path);
    let parent = path.parent().unwrap_or(path);
    let Ok(entries) = no_links::list(parent) else {
        return ToolOutput::failed(format!(
            "`{shown}` doesn't exist, and neither does its directory"
        ));
    };
    let mut names: Vec<String> = { entries.iter().take(MAX_NAMES) }
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    let wanted = path.file_name().unwrap_or_default().to_string_lossy();
    let lower: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
    let possible: Vec<&str> = lower.iter().map(String::as_str).collect();
    let close = similar::get_close_matches(
        wanted.to_lowercase().as_str(),
        &possible,
        MAX_SIMILAR,
        SIMILAR,
    );
    let mut found: Vec<&str> = Vec::new();
    for (name, lower) in names.iter().zip(&lower) {
        if close.contains(&lower.as_str()) && found.len() < MAX_SIMILAR {
            found.push(name);
        }
    }
    ToolOutput::failed(match found.is_empty() {
        true => format!("`{shown}` doesn't exist; use `glob` to find it"),
        false => format!(
            "`{shown}` doesn't exist; similar names in `{}`: {}",
            directory.shown(parent),
            found.join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a12_missing_file_is_reported_with_similar_names() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["main.rs", "README.md", "mode.rs", "quite_other"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let directory = WorkingDirectory::new(dir.path()).unwrap();
        let answer = |name: &str| missing(&directory.path().join(name), &directory).text;
        assert_eq!(
            answer("mian.rs"),
            "`mian.rs` doesn't exist; similar names in `.`: main.rs"
        );
        assert_eq!(
            answer("readme.md"),
            "`readme.md` doesn't exist; similar names in `.`: README.md"
        );
        assert_eq!(answer("zzz"), "`zzz` doesn't exist; use `glob` to find it");
        assert_eq!(
            answer("src/a.rs"),
            "`src/a.rs` doesn't exist, and neither does its directory"
        );
    }

    #[test]
    fn a12_read_of_a_file_ends_with_a_cancellation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        let made = File::create(&path).unwrap();
        made.set_len(1 << 40).unwrap();
        let cancel = CancellationToken::new();
        let mut file = CancellableFile {
            file: File::open(&path).unwrap(),
            cancel: &cancel,
        };
        assert_eq!(file.read(&mut [1; 10]).unwrap(), 10);
        cancel.cancel();
        io::copy(&mut file, &mut io::sink()).unwrap_err();
    }

    #[tokio::test]
    async fn a12_work_ends_when_the_call_is_cancelled_or_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let context = ToolContext::new(WorkingDirectory::new(dir.path()).unwrap());
        for is_dropped in [true, false] {
            let (started, is_started) = std::sync::mpsc::channel();
            let (ended, is_ended) = std::sync::mpsc::channel();
            let work = blocking(&context, move |cancel| {
                started.send(()).unwrap();
                while !cancel.is_cancelled() {
                    std::thread::yield_now();
                }
                ended.send(()).unwrap();
                Ok(())
            });
            let mut work = Box::pin(work);
            let at_once = tokio::time::timeout(std::time::Duration::ZERO, &mut work).await;
            assert!(at_once.is_err(), "the work goes on");
            is_started.recv().unwrap();
            match is_dropped {
                true => drop(work),
                false => {
                    context.cancel.cancel();
                    work.await.unwrap_err();
                }
            }
            is_ended.recv().unwrap();
        }
    }

    #[test]
    fn a12_path_that_leads_out_of_the_directory_after_it_was_judged_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let [work, other] = ["work", "other"].map(|name| dir.path().join(name));
        for directory in [&work, &other] {
            std::fs::create_dir_all(directory.join("sub")).unwrap();
            std::fs::write(directory.join("sub/file"), "").unwrap();
        }
        let mut context = ToolContext::new(WorkingDirectory::new(&work).unwrap());
        let judges: [(Judge, Access); 2] = [(to_read, Access::Reads), (to_change, Access::Edits)];
        for (judge, least) in &judges {
            context.judged = Some(least.clone());
            resolve("sub/file", &context, *judge).unwrap();
        }
        std::fs::remove_dir_all(work.join("sub")).unwrap();
        std::os::unix::fs::symlink(other.join("sub"), work.join("sub")).unwrap();
        for (judge, least) in judges {
            context.judged = Some(least);
            let refused = resolve("sub/file", &context, judge).unwrap_err();
            assert!(refused.text.contains("leads to another place"));
        }
        // A tool of the caller can do anything, and so can a tool that it uses.
        context.judged = Some(Access::Anything {
            reason: String::new(),
        });
        resolve("sub/file", &context, to_change).unwrap();
        // Even after it was resolved, a link is not followed.
        let path = context.directory.path().join("sub/file");
        let refused = open(&path, "sub/file").unwrap_err();
        assert_eq!(refused.text, "`sub/file` goes through a file or a link");
        no_links::list(&context.directory.path().join("sub")).unwrap_err();
    }

    #[test]
    fn a12_change_of_git_or_of_a_run_is_more_than_an_edit() {
        let dir = tempfile::tempdir().unwrap();
        let directory = WorkingDirectory::new(dir.path()).unwrap();
        for path in [".git/hooks/pre-commit", "sub/../.rlm/state", "a/.git"] {
            std::fs::create_dir_all(dir.path().join("sub")).unwrap();
            let access = to_change(&directory.resolve(path).unwrap(), &directory);
            assert!(matches!(access, Access::Anything { .. }), "{path}");
        }
        for path in ["src/a.rs", ".github/x", ".gitignore"] {
            let access = to_change(&directory.resolve(path).unwrap(), &directory);
            assert_eq!(access, Access::Edits, "{path}");
        }
    }
}
