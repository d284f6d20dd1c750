//! The registry that crates go to, as cargo sees it: crates.io, or one that cargo's configuration names.

use std::path::{Path, PathBuf};
use std::process::Command;

use fs_err as fs;
use semver::Version;

use crate::command::{self, Show};

/// Where crates are published.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Target {
    /// The registry, as cargo's configuration names it [default: crates.io].
    #[arg(long, value_name = "NAME")]
    registry: Option<String>,
    /// Configuration for cargo beside its own, such as the file that `registry serve` names.
    #[arg(long, value_name = "FILE", value_parser = crate::bench::absolute)]
    config: Option<PathBuf>,
    /// Where this cargo keeps what it fetched; a rehearsal leaves the maintainer's alone.
    #[arg(skip)]
    home: Option<PathBuf>,
}

impl Target {
    /// The registry `local` that a file of cargo's configuration describes, beside a home of its own.
    pub(crate) fn local(config: PathBuf, home: PathBuf) -> Self {
        Self {
            registry: Some("local".into()),
            config: Some(config),
            home: Some(home),
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.registry.as_deref().unwrap_or("crates-io")
    }

    /// A command of cargo that knows of the registry.
    pub(crate) fn cargo(&self, subcommand: &str) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.arg(subcommand);
        if let Some(config) = &self.config {
            cargo.arg("--config").arg(config);
        }
        if let Some(home) = &self.home {
            cargo.env("CARGO_HOME", home);
        }
        cargo
    }

    /// Asks the registry's index whether it has this version, or any, of a crate.
    ///
    /// # Errors
    ///
    /// When the index does not answer.
    pub(crate) fn has(&self, name: &str, version: Option<&Version>) -> Result<bool, String> {
        let spec = version.map_or_else(|| name.to_owned(), |version| format!("{name}@{version}"));
        let mut cargo = self.cargo("info");
        cargo.args(["--color=never", "--registry", self.name(), &spec]);
        // In a workspace cargo would tell of its member instead.
        cargo.current_dir(std::env::temp_dir());
        let ended = command::finish(&mut cargo, Show::Never);
        answer(ended.success, &ended.output)
    }

    /// Takes a package from the registry into a home of cargo's that has nothing of it yet, and returns the folder into which cargo unpacked it; `None`
    /// where the registry does not have it. What cargo kept from before may be of another registry that stood at the same address.
    ///
    /// # Errors
    ///
    /// When the index does not answer, or the package can't be had.
    pub(crate) fn take(
        &self,
        home: &Path,
        name: &str,
        version: &Version,
    ) -> Result<Option<PathBuf>, String> {
        let fresh = Self {
            home: Some(home.into()),
            ..self.clone()
        };
        // Cargo reads the package for what it tells of it.
        if !fresh.has(name, Some(version))? {
            return Ok(None);
        }
        let sources = fs::read_dir(home.join("registry/src")).map_err(|error| error.to_string())?;
        let mut folders =
            { sources.flatten() }.map(|it| it.path().join(format!("{name}-{version}")));
        let folder = folders.find(|it| it.is_dir());
        folder.map(Some).ok_or_else(|| {
            format!("cargo told of {name} {version} and did not unpack it: another cargo may")
        })
    }
}

/// An index that was not asked, since cargo is offline, knows nothing either.
fn answer(success: bool, output: &str) -> Result<bool, String> {
    if success {
        return Ok(true);
    }
    if output.contains("could not find") && output.contains("Updating") {
        return Ok(false);
    }
    let mut lines = output
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    let error = lines.find(|line| line.starts_with("error"));
    let error = error.unwrap_or("cargo says no word");
    // Each `Caused by:` goes a step back; the last is where it began.
    let why = lines
        .next_back()
        .map_or(error.to_owned(), |cause| format!("{error}: {cause}"));
    Err(format!("the index does not answer: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_was_not_asked_has_not_answered() {
        let absent =
            "    Updating crates.io index\nerror: could not find `x@0.1.0` in registry `y`\n";
        assert_eq!(answer(false, absent), Ok(false));
        assert_eq!(answer(true, "x\n"), Ok(true));
        for silent in [
            "error: could not find `x@0.1.0` in registry `y`\n",
            "    Updating crates.io index\nwarning: spurious network error (1 try remaining)\nerror: download of config.json failed\n\nCaused by:\n  no such host\n",
        ] {
            let why = answer(false, silent).unwrap_err();
            assert!(
                why.starts_with("the index does not answer: error: "),
                "{why}"
            );
            assert!(
                !why.contains("spurious")
                    && (!silent.contains("host") || why.ends_with(": no such host")),
                "{why}"
            );
        }
    }
}
