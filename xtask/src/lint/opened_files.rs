//! Refuses calls that open files outside of the modules for hostile projects. Elsewhere, `rlm` would follow a link, wait for a FIFO or read a huge
//! file that an agent created.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::lint::opened_files::allowed::{ALLOWED, AllowedCalls};
use crate::lint::shipped::{self, ShippedNames};
use crate::sources::Source;
use crate::workspace::Workspace;

mod allowed;

/// The modules that open files safely; all other code uses them.
const MODULES: &[&str] = &[
    "crates/rlm-store/src/state_dir.rs",
    "crates/rlm-store/src/state_dir",
    "crates/agent-subprocess/src/plain_file.rs",
    "crates/checkpoint-store/src/disk/unix.rs",
];

/// The file with the exceptions.
const LIST: &str = "xtask/src/lint/opened_files/allowed.rs";

/// Functions of `rustix::fs` that take no path, or that read only permissions or free space.
const HARMLESS: [&str; 15] = [
    "access",
    "fallocate",
    "fchmod",
    "fchown",
    "fcntl_getfl",
    "fcntl_setfl",
    "fdatasync",
    "flock",
    "fstat",
    "fstatfs",
    "fstatvfs",
    "fsync",
    "ftruncate",
    "statfs",
    "statvfs",
];
/// Functions of `libc` and `nix` that take a path.
const BY_PATH: [&str; 22] = [
    "chmod", "chown", "creat", "fopen", "link", "linkat", "lstat", "mkdir", "mkdirat", "mkfifo",
    "open", "open64", "openat", "opendir", "rename", "renameat", "rmdir", "stat", "symlink",
    "truncate", "unlink", "unlinkat",
];
/// Methods of `Path` that read the file system. `exists`, `is_file` and similar ones only look up, and other types have methods of the same names.
const METHODS: [&str; 4] = ["canonicalize", "read_dir", "read_link", "symlink_metadata"];

/// A call in the source that opens, creates, renames, removes or looks up a file by its path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    /// `fs_err::read`, or `.read_dir()` for a method.
    name: String,
    line: usize,
}

/// Names each call that no entry of the list allows, and each unused entry.
pub(super) fn wrong(workspace: &Workspace) -> Vec<String> {
    let sources = shipped::sources(workspace);
    judge(&sources.iter().collect::<Vec<_>>(), ALLOWED)
}

fn judge(sources: &[&Source], allowed: &[AllowedCalls]) -> Vec<String> {
    let (read, mut wrong) = shipped::read(sources);
    let is_module = |path: &Path| MODULES.iter().any(|it| path.starts_with(it));
    let found = read.into_iter().filter(|(path, _)| !is_module(path));
    let found = found.map(|(path, seen)| (path, calls(&seen)));
    let mut used = BTreeSet::new();
    for (path, calls) in found {
        for call in calls {
            let entry = allowed.iter().find(|it| Path::new(it.file) == path);
            let permitted = entry.is_some_and(|it| it.calls.contains(&call.name.as_str()));
            if !permitted {
                let others =
                    entry.map(|it| format!(" (its other calls are allowed: {})", it.reason));
                wrong.push(format!(
                    "{}:{}: {} takes a path; use the crate's module for hostile files, or allow it in {LIST} with a reason{}",
                    path.display(),
                    call.line,
                    call.name,
                    others.unwrap_or_default()
                ));
            }
            used.insert((path.to_owned(), call.name));
        }
    }
    for AllowedCalls { file, calls, .. } in allowed {
        for call in *calls {
            if !used.contains(&(PathBuf::from(file), (*call).to_owned())) {
                wrong.push(format!(
                    "{file}: {call} is allowed but unused; remove it from {LIST}"
                ));
            }
        }
    }
    wrong
}

fn calls(seen: &ShippedNames) -> BTreeSet<Call> {
    let mut calls = BTreeSet::new();
    for (path, line) in &seen.paths {
        let full: Vec<Vec<String>> = match seen.imports.get(&path[0]) {
            Some(imports) => imports
                .iter()
                .map(|import| [import, &path[1..]].concat())
                .collect(),
            None => vec![path.clone()],
        };
        for path in full.iter().filter(|path| opens(path)) {
            calls.insert(Call {
                name: path.join("::"),
                line: *line,
            });
        }
    }
    for (method, line) in &seen.methods {
        if METHODS.contains(&method.as_str()) {
            calls.insert(Call {
                name: format!(".{method}()"),
                line: *line,
            });
        }
    }
    calls
}

/// Whether the item at this full path takes the path of a file.
fn opens(path: &[String]) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match path[..] {
        ["std" | "tokio", "fs", ref rest @ ..] | ["fs_err", "tokio", ref rest @ ..] => in_std(rest),
        ["std", "os", _, "fs", name, ..] => is_function(name),
        ["fs_err", ref rest @ ..] => in_std(rest),
        ["rustix", "fs", name, ..] => is_function(name) && !HARMLESS.contains(&name),
        ["libc" | "nix", .., name] => BY_PATH.contains(&name) || name == "*",
        ["tempfile", ..] => true,
        [.., "Path" | "PathBuf", name] => METHODS.contains(&name),
        _ => false,
    }
}

fn in_std(rest: &[&str]) -> bool {
    match rest {
        ["File", name, ..] => {
            name.starts_with("open") || name.starts_with("create") || *name == "options"
        }
        ["OpenOptions" | "DirBuilder", _, ..] | ["PathExt"] => true,
        [name, ..] => is_function(name),
        [] => false,
    }
}

/// Functions and modules are in lower case, types are not. `*` imports both.
fn is_function(name: &str) -> bool {
    name.starts_with(|it: char| it.is_ascii_lowercase() || it == '*')
}

#[cfg(test)]
mod tests;
