//! Installs the agent CLIs at their pinned versions, once.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fs_err as fs;

use super::real::API;
use crate::wait::poll_until;

const INSTALL_LIMIT: Duration = Duration::from_secs(300);

/// An agent CLI: the program, the package with its pinned version, and the program's location in the package.
struct Package {
    program: &'static str,
    name: &'static str,
    version: &'static str,
    place: PackageLayout,
}

/// The location of a program. No script of a package runs: the package of each platform contains native binaries.
enum PackageLayout {
    /// At `node_modules/SCOPE/PREFIX…/PATH/PROGRAM`, where a `*` in the path is any one directory.
    Native {
        scope: &'static str,
        prefix: &'static str,
        path: &'static str,
    },
    /// As a script for `node`.
    Script,
}

const PACKAGES: [Package; 5] = [
    Package {
        program: "claude",
        name: "@anthropic-ai/claude-code",
        version: "2.1.329",
        place: PackageLayout::Native {
            scope: "@anthropic-ai",
            prefix: "claude-code-",
            path: "",
        },
    },
    Package {
        program: "codex",
        name: "@openai/codex",
        version: "0.169.0",
        place: PackageLayout::Native {
            scope: "@openai",
            prefix: "codex-",
            path: "vendor/*/bin",
        },
    },
    Package {
        program: "gemini",
        name: "@google/gemini-cli",
        version: "0.61.0",
        place: PackageLayout::Script,
    },
    Package {
        program: "opencode",
        name: "opencode-ai",
        version: "1.18.33",
        place: PackageLayout::Native {
            scope: "",
            prefix: "opencode-",
            path: "bin",
        },
    },
    Package {
        program: "claude-agent-acp",
        name: "@agentclientprotocol/claude-agent-acp",
        version: "0.49.0",
        place: PackageLayout::Script,
    },
];

pub(super) fn versions() -> Vec<(&'static str, &'static str)> {
    let packages = PACKAGES.iter();
    packages
        .map(|package| (package.program, package.version))
        .collect()
}

/// Returns the directory of this agent's program. The caller has already reported why it is missing.
pub(super) fn present(program: &str) -> Result<PathBuf, String> {
    agent(program, false)
}

/// Returns the directory of the agent's program, and installs it there if `install` is set. The error is the reason why it is missing.
///
/// The agent of `rlm` itself is always there.
pub(super) fn agent(program: &str, install: bool) -> Result<PathBuf, String> {
    if program == API {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        return Ok(this.with_file_name(""));
    }
    let package = { PACKAGES.iter() }.find(|package| package.program == program);
    let package = package.ok_or_else(|| format!("unknown package of {program}"))?;
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let agents = agents_of(&this, std::env::home_dir().as_deref())?;
    let Package { name, version, .. } = package;
    let short = name.rsplit('/').next().unwrap_or(name);
    let home = agents.join(format!("{short}-{version}"));
    if let Some(found) = package.folder(&home) {
        return Ok(found);
    }
    if !install {
        return Err(format!("{name}@{version} is not installed"));
    }
    println!("installing {name}@{version}");
    // Installed beside its final path first, so that an interrupted install doesn't look complete.
    let beside = agents.join(format!(".installing-{program}-{}", std::process::id()));
    fs::create_dir_all(&beside).map_err(|error| error.to_string())?;
    let installed = npm(&beside, &format!("{name}@{version}")).and_then(|()| {
        { package.folder(&beside) }
            .ok_or_else(|| format!("npm installed no {program} for this platform"))?;
        let _old = fs::remove_dir_all(&home);
        fs::rename(&beside, &home).map_err(|error| error.to_string())
    });
    if installed.is_err() {
        let _beside = fs::remove_dir_all(&beside);
    }
    installed.and_then(|()| {
        { package.folder(&home) }.ok_or_else(|| format!("the installed {program} is missing"))
    })
}

/// Returns the directory of all agents: in the target directory for a program that cargo built there, and in the user's cache for the lab elsewhere.
fn agents_of(this: &Path, home: Option<&Path>) -> Result<PathBuf, String> {
    let is_target = |folder: &&Path| folder.join("CACHEDIR.TAG").is_file();
    match (this.ancestors().find(is_target), home) {
        (Some(target), _) => Ok(target.join("agents")),
        (None, Some(home)) => Ok(home.join(".cache/rlm-lab/agents")),
        (None, None) => Err("no home directory: an agent can't be installed".into()),
    }
}

fn npm(folder: &Path, package: &str) -> Result<(), String> {
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
        .arg(package)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err);
    let mut child = command
        .spawn()
        .map_err(|error| format!("can't start npm: {error}"))?;
    let ended = poll_until(INSTALL_LIMIT, || child.try_wait().transpose());
    match ended {
        Some(Ok(status)) if status.success() => Ok(()),
        Some(Ok(status)) => {
            let log = fs::read_to_string(&log).unwrap_or_default();
            let line = log
                .lines()
                .find(|line| line.contains("npm error"))
                .unwrap_or("no error was printed");
            Err(format!("npm install exited with {status}: {line}"))
        }
        Some(Err(error)) => Err(error.to_string()),
        None => {
            let _killed = child.kill();
            let _status = child.wait();
            Err(format!("npm install took longer than {INSTALL_LIMIT:?}"))
        }
    }
}

impl Package {
    /// Returns the directory of the program in an install.
    fn folder(&self, home: &Path) -> Option<PathBuf> {
        let modules = home.join("node_modules");
        let found = match self.place {
            PackageLayout::Script => vec![modules.join(".bin")],
            PackageLayout::Native {
                scope,
                prefix,
                path,
            } => path
                .split('/')
                .fold(
                    entries(&modules.join(scope), prefix),
                    |folders, word| match word {
                        "*" => folders
                            .iter()
                            .flat_map(|folder| entries(folder, ""))
                            .collect(),
                        word => folders.iter().map(|folder| folder.join(word)).collect(),
                    },
                ),
        };
        { found.into_iter() }.find(|folder| folder.join(self.program).is_file())
    }
}

/// Returns the entries of a directory with this prefix, in a stable order.
fn entries(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with(prefix)
    };
    let listed = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut entries: Vec<_> = listed.map(|entry| entry.path()).filter(named).collect();
    // The longest name comes first: the build for any processor, if there is one.
    entries.sort_by_key(|path| (std::cmp::Reverse(path.as_os_str().len()), path.clone()));
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_are_in_the_target_directory_or_in_the_users_cache() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("work/target");
        fs::create_dir_all(&target).unwrap();
        fs::write(target.join("CACHEDIR.TAG"), "").unwrap();
        for (this, expected) in [
            ("work/target/debug/live", "work/target/agents"),
            ("work/target/release/deps/it", "work/target/agents"),
            ("work/lab", ".cache/rlm-lab/agents"),
        ] {
            let found = agents_of(&home.path().join(this), Some(home.path()));
            assert_eq!(found, Ok(home.path().join(expected)), "{this}");
        }
        agents_of(&home.path().join("work/lab"), None).unwrap_err();
    }

    #[test]
    fn programs_are_found_at_the_paths_of_their_packages() {
        let places = [
            "@anthropic-ai/claude-code-linux-x64/claude",
            "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
            ".bin/gemini",
            "opencode-linux-x64-baseline/bin/opencode",
            ".bin/claude-agent-acp",
        ];
        for (package, place) in PACKAGES.iter().zip(places) {
            let home = tempfile::tempdir().unwrap();
            assert_eq!(package.folder(home.path()), None);
            let program = home.path().join("node_modules").join(place);
            fs::create_dir_all(program.parent().unwrap()).unwrap();
            fs::create_dir_all(home.path().join("node_modules/opencode-linux-x64/bin")).unwrap();
            fs::write(&program, "").unwrap();
            let folder = package.folder(home.path());
            assert_eq!(folder.as_deref(), program.parent(), "{}", package.name);
        }
    }
}
