//! Installs the agent CLI at its pinned version, once.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use fs_err as fs;

use crate::wait::poll_until;

const PACKAGE: &str = "@anthropic-ai/claude-code";
const VERSION: &str = "2.1.329";
const PATIENCE: Duration = Duration::from_secs(300);

/// Gives the folder in which the program `claude` lies, or why there is none.
pub(super) fn agent() -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = this
        .ancestors()
        .nth(2)
        .ok_or("this program lies in no target folder")?;
    let home = target.join("agents").join(format!("claude-code-{VERSION}"));
    if let Some(found) = program(&home) {
        return Ok(found);
    }
    println!("installing {PACKAGE}@{VERSION}");
    // Beside its place first, so that an install that was cut short is not taken for one.
    let beside = target
        .join("agents")
        .join(format!(".installing-{}", std::process::id()));
    fs::create_dir_all(&beside).map_err(|error| error.to_string())?;
    let installed = npm(&beside).and_then(|()| {
        program(&beside)
            .ok_or_else(|| "npm installed no native binary for this platform".to_owned())?;
        let _old = fs::remove_dir_all(&home);
        fs::rename(&beside, &home).map_err(|error| error.to_string())
    });
    if installed.is_err() {
        let _beside = fs::remove_dir_all(&beside);
    }
    installed.and_then(|()| program(&home).ok_or_else(|| "the installed binary is gone".to_owned()))
}

fn npm(folder: &std::path::Path) -> Result<(), String> {
    let log = folder.join("npm.log");
    let open = || {
        fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .map(|file| Stdio::from(file.into_file()))
    };
    let (out, err) = (
        open().map_err(|error| error.to_string())?,
        open().map_err(|error| error.to_string())?,
    );
    let mut command = Command::new("npm");
    command
        .args([
            "install",
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            "--fetch-retries=1",
            "--prefix",
        ])
        .arg(folder);
    command
        .arg(format!("{PACKAGE}@{VERSION}"))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err);
    let mut child = command
        .spawn()
        .map_err(|error| format!("npm cannot be started: {error}"))?;
    let ended = poll_until(PATIENCE, || child.try_wait().transpose());
    match ended {
        Some(Ok(status)) if status.success() => Ok(()),
        Some(Ok(status)) => {
            let log = fs::read_to_string(&log).unwrap_or_default();
            let line = log
                .lines()
                .find(|line| line.contains("npm error"))
                .unwrap_or("no error was printed");
            Err(format!("npm install ended with {status}: {line}"))
        }
        Some(Err(error)) => Err(error.to_string()),
        None => {
            let _killed = child.kill();
            let _status = child.wait();
            Err(format!("npm install took longer than {PATIENCE:?}"))
        }
    }
}

/// The native binary needs no script of the package: it lies ready in the package of its platform.
fn program(home: &std::path::Path) -> Option<PathBuf> {
    let scope = fs::read_dir(home.join("node_modules").join("@anthropic-ai")).ok()?;
    scope.flatten().map(|entry| entry.path()).find(|folder| {
        let platform = folder
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("claude-code-"));
        platform && folder.join("claude").is_file()
    })
}
