//! The project of the demo: a git repository that needs only `git` and `sh`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::script::{self, CHECK, PROMPT};
use crate::exit::Failure;

/// The variables that would make git use another repository.
const GIT_LOCATION_VARIABLES: [&str; 5] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
];

/// Creates the repository in `chosen`, or in a new temporary directory, and returns its path.
pub(super) fn make(chosen: Option<&Path>) -> Result<PathBuf, Failure> {
    if !git(Path::new("."), &["--version"]).is_ok_and(|output| output.status.success()) {
        return Err(Failure::usage(
            "the demo needs git, but `git --version` failed; install git and try again",
        ));
    }
    let directory = match chosen {
        Some(directory) => directory.to_owned(),
        None => {
            let random = uuid::Uuid::new_v4().simple().to_string();
            std::env::temp_dir().join(format!("rlm-demo-{}", &random[..8]))
        }
    };
    let made = match chosen {
        Some(_) => fs_err::create_dir_all(&directory),
        // An existing directory below the shared temporary directory belongs to somebody else.
        None => fs_err::create_dir(&directory),
    };
    let unusable = |what: &str| Failure::usage(format!("`{}` {what}", directory.display()));
    made.map_err(|e| unusable(&format!("can't be created: {}", e.kind())))?;
    let mut entries = fs_err::read_dir(&directory)
        .map_err(|e| unusable(&format!("can't be read: {}", e.kind())))?;
    if entries.next().is_some() {
        return Err(unusable("is not empty; choose an empty or a new directory"));
    }
    for (name, text) in [("PROMPT.md", PROMPT), ("check.sh", CHECK)] {
        fs_err::write(directory.join(name), text)
            .map_err(|e| unusable(&format!("can't be written to: {}", e.kind())))?;
    }
    let commit = script::commit_command("Describe the task");
    // Templates may contain hooks, and older git versions don't have `-b`.
    let begin = "git init -q --template= && git symbolic-ref HEAD refs/heads/main";
    run(&directory, "sh", &["-c", &format!("{begin} && {commit}")])?;
    fs_err::canonicalize(&directory).map_err(|e| unusable(&format!("can't be found: {}", e.kind())))
}

fn run(directory: &Path, program: &str, arguments: &[&str]) -> Result<(), Failure> {
    let failed = |why: &str| {
        Failure::failed(format!(
            "can't create a repository in `{}`: {}",
            directory.display(),
            why.trim()
        ))
    };
    match output(directory, program, arguments) {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(failed(&String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(failed(&format!("`{program}`: {error}"))),
    }
}

/// Returns whether a file differs from its last commit; `false` if git fails.
pub(super) fn differs(directory: &Path, file: &str) -> bool {
    git(directory, &["status", "--porcelain", "--", file])
        .is_ok_and(|output| !output.stdout.is_empty())
}

fn git(directory: &Path, arguments: &[&str]) -> std::io::Result<Output> {
    output(directory, "git", arguments)
}

fn output(directory: &Path, program: &str, arguments: &[&str]) -> std::io::Result<Output> {
    isolate_git(Command::new(program).args(arguments))
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
}

/// Makes git behave the same for every user: no hooks, no signing, no editor, and only this repository.
pub(super) fn isolate_git(command: &mut Command) -> &mut Command {
    for name in GIT_LOCATION_VARIABLES {
        command.env_remove(name);
    }
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
}
