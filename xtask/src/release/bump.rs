//! Which crates a release is made of, at which versions, and what that changes in manifests and changelogs. Decides; touches no file.

use std::fmt;

use semver::{Comparator, Op, Version, VersionReq};
use toml_edit::DocumentMut;

use super::crates::Crate;

/// The part of a version that grows. Below 1.0.0 a break is `minor`, as cargo reads versions.
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

/// A crate and the version that it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) name: String,
    pub(crate) version: Version,
    /// Lines for its changelog, of siblings that it needs at a version that breaks with the last one.
    pub(crate) notes: Vec<String>,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// What is known of a crate beside its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct History {
    /// Whether its present version has a tag.
    pub(crate) is_tagged: bool,
    /// Whether something stands under Unreleased.
    pub(crate) is_changed: bool,
}

/// Decides which crates are cut. Those with changes get what is picked for them, else the version that stands there if it was never released, else
/// `bump`; those that a sibling's new version shuts out follow it.
pub(crate) fn decide(
    crates: &[(Crate, History)],
    bump: Option<Bump>,
    picks: &[Pick],
) -> Result<Vec<Cut>, String> {
    let known = |name: &str| crates.iter().any(|(found, _)| found.name == name);
    if let Some(pick) = picks.iter().find(|pick| !known(&pick.name)) {
        return Err(format!("{} is not a crate that is published", pick.name));
    }
    let mut cuts: Vec<Cut> = Vec::new();
    // In their order, so that what a crate depends on is decided before it.
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
                    "{} {} is released: say --bump patch|minor|major, or {}=VERSION",
                    found.name, found.version, found.name
                ));
            }
        };
        if version < found.version || (history.is_tagged && version == found.version) {
            return Err(format!(
                "{} is at {}, and can't become {version}",
                found.name, found.version
            ));
        }
        cuts.push(Cut {
            name: found.name.clone(),
            version,
            notes,
        });
    }
    Ok(cuts)
}

/// Sets `package.version`; the rest of the manifest, with its comments, stays as it is.
pub(crate) fn set_version(manifest: &str, version: &Version) -> Result<String, String> {
    let mut manifest: DocumentMut = parsed(manifest)?;
    let package = manifest.get_mut("package").and_then(|it| it.as_table_mut());
    set(package.ok_or("no [package]")?, version);
    Ok(manifest.to_string())
}

/// Lets `workspace.dependencies` require the new versions.
pub(crate) fn set_requirements(manifest: &str, cuts: &[Cut]) -> Result<String, String> {
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

/// Lets a README's `NAME = "0.1"` and `NAME = { version = "0.1", …` require the new version where they shut it out.
pub(crate) fn set_readme(readme: &str, name: &str, version: &Version) -> String {
    let line = |line: &str| match stale(line, name, version) {
        Some(old) => line.replacen(&format!("\"{old}\""), &format!("\"{}\"", short(version)), 1),
        None => line.to_owned(),
    };
    readme.split_inclusive('\n').map(line).collect()
}

/// Returns the requirement of `name` in this line, if it does not take `version`.
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

/// `0.1` of `0.1.3`, `1` of `1.2.3`: what a user writes.
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
