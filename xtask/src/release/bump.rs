//! Decides which crates a release contains, at which versions, and the resulting manifests and changelogs. This module reads and writes no file.

use std::fmt;

use semver::{Comparator, Op, Version, VersionReq};
use toml_edit::DocumentMut;

use super::crates::Crate;

/// The part of a version that increases. Below 1.0.0 a breaking change is `minor`, as cargo reads versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Bump {
    Patch,
    Minor,
    Major,
}

impl Bump {
    fn of(self, version: &Version) -> Version {
        let Version {
            major,
            minor,
            patch,
            ..
        } = *version;
        match self {
            Self::Patch => Version::new(major, minor, patch + 1),
            Self::Minor => Version::new(major, minor + 1, 0),
            Self::Major => Version::new(major + 1, 0, 0),
        }
    }
}

/// `CRATE=VERSION`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) name: String,
    pub(crate) version: Version,
}

impl std::str::FromStr for Pick {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, version) = text.split_once('=').ok_or("not CRATE=VERSION")?;
        Ok(Self {
            name: name.into(),
            version: Version::parse(version).map_err(|error| error.to_string())?,
        })
    }
}

/// A crate and its new version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CrateVersion {
    pub(crate) name: String,
    pub(crate) version: Version,
    /// Lines for its changelog, about siblings that it needs at an incompatible new version.
    pub(crate) notes: Vec<String>,
}

impl fmt::Display for CrateVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// The data about a crate besides its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct History {
    /// Whether its current version has a tag.
    pub(crate) is_tagged: bool,
    /// Whether the section Unreleased has entries.
    pub(crate) is_changed: bool,
}

/// Decides which crates the release contains. A crate with changes gets its picked version; without one, the version of its manifest if it was never
/// released, or else `bump`. A crate that excludes the new version of a sibling is released too.
pub(crate) fn decide(
    crates: &[(Crate, History)],
    bump: Option<Bump>,
    picks: &[Pick],
) -> Result<Vec<CrateVersion>, String> {
    let known = |name: &str| crates.iter().any(|(found, _)| found.name == name);
    if let Some(pick) = picks.iter().find(|pick| !known(&pick.name)) {
        return Err(format!("{} is not a published crate", pick.name));
    }
    let mut cuts: Vec<CrateVersion> = Vec::new();
    // The order ensures that the dependencies of a crate are decided before the crate.
    for (found, history) in crates {
        let new = |name: &String| cuts.iter().find(|cut| cut.name == *name);
        let shut_out = found.siblings.iter().filter_map(|(name, requirement)| {
            let cut = new(name)?;
            (!requirement.matches(&cut.version)).then(|| format!("- `{}` {}.", name, cut.version))
        });
        let notes: Vec<String> = shut_out.collect();
        let pick = picks.iter().find(|pick| pick.name == found.name);
        if pick.is_none() && !history.is_changed && notes.is_empty() {
            continue;
        }
        let version = match (pick, history.is_tagged, bump) {
            (Some(pick), ..) => pick.version.clone(),
            (None, false, _) => found.version.clone(),
            (None, true, Some(bump)) => bump.of(&found.version),
            (None, true, None) => {
                return Err(format!(
                    "{} {} is already released: give --bump patch|minor|major, or {}=VERSION",
                    found.name, found.version, found.name
                ));
            }
        };
        if version < found.version || (history.is_tagged && version == found.version) {
            return Err(format!(
                "{} is at {}: can't change it to {version}",
                found.name, found.version
            ));
        }
        cuts.push(CrateVersion {
            name: found.name.clone(),
            version,
            notes,
        });
    }
    Ok(cuts)
}

/// Sets `package.version`. The rest of the manifest, with its comments, is unchanged.
pub(crate) fn set_version(manifest: &str, version: &Version) -> Result<String, String> {
    let mut manifest: DocumentMut = parsed(manifest)?;
    let package = manifest.get_mut("package").and_then(|it| it.as_table_mut());
    set(package.ok_or("no [package]")?, version);
    Ok(manifest.to_string())
}

/// Updates `workspace.dependencies` to require the new versions.
pub(crate) fn set_requirements(manifest: &str, cuts: &[CrateVersion]) -> Result<String, String> {
    let mut manifest: DocumentMut = parsed(manifest)?;
    let dependencies = &mut manifest["workspace"]["dependencies"];
    for cut in cuts {
        if let Some(dependency) = dependencies
            .get_mut(&cut.name)
            .and_then(|it| it.as_table_like_mut())
        {
            set(dependency, &cut.version);
        }
    }
    Ok(manifest.to_string())
}

fn parsed(manifest: &str) -> Result<DocumentMut, String> {
    manifest
        .parse()
        .map_err(|error: toml_edit::TomlError| error.to_string())
}

fn set(table: &mut dyn toml_edit::TableLike, version: &Version) {
    if let Some(value) = table.get_mut("version").and_then(|it| it.as_value_mut()) {
        let decor = value.decor().clone();
        *value = version.to_string().into();
        *value.decor_mut() = decor;
    }
}

/// Updates a README's `NAME = "0.1"` and `NAME = { version = "0.1", …` if they exclude the new version.
pub(crate) fn set_readme(readme: &str, name: &str, version: &Version) -> String {
    let line = |line: &str| match stale(line, name, version) {
        Some(old) => line.replacen(&format!("\"{old}\""), &format!("\"{}\"", short(version)), 1),
        None => line.to_owned(),
    };
    readme.split_inclusive('\n').map(line).collect()
}

/// Returns the requirement of `name` in this line, if it excludes `version`.
pub(crate) fn stale(line: &str, name: &str, version: &Version) -> Option<String> {
    let rest = line.trim_start().strip_prefix(name)?.trim_start();
    let rest = rest.strip_prefix('=')?.trim_start();
    let rest = match rest.strip_prefix('{') {
        Some(table) => table.split_once("version = ")?.1,
        None => rest,
    };
    let requirement = rest.strip_prefix('"')?.split('"').next()?;
    let takes = VersionReq::parse(requirement).ok()?.matches(version);
    (!takes).then(|| requirement.to_owned())
}

/// Returns the version as a user writes it: `0.1` for `0.1.3`, `1` for `1.2.3`.
fn short(version: &Version) -> String {
    let is_first = version.major > 0;
    let comparator = Comparator {
        op: Op::Caret,
        major: version.major,
        minor: (!is_first || !version.pre.is_empty()).then_some(version.minor),
        patch: (!version.pre.is_empty()).then_some(version.patch),
        pre: version.pre.clone(),
    };
    comparator.to_string().trim_start_matches('^').to_owned()
}

#[cfg(test)]
#[path = "bump_tests.rs"]
mod tests;
