//! The workspace from `cargo metadata`, without dependency resolution: this works offline and with an outdated lock file.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The members and their directories.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// The target directory of cargo.
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// One member.
#[derive(Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    /// Whether it is a library for other packages.
    pub(crate) is_library: bool,
    /// Whether crates.io gets it.
    pub(crate) is_published: bool,
    /// The features, and the features of `default`.
    pub(crate) features: Vec<String>,
    pub(crate) default_features: Vec<String>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) roots: Vec<Root>,
    /// The programs, except one with the name of the library.
    pub(crate) programs: Vec<String>,
}

/// The first file of a target.
#[derive(Debug, Clone)]
pub(crate) struct Root {
    pub(crate) file: PathBuf,
    /// Whether it is a test, a bench or an example, which no release contains.
    pub(crate) is_test: bool,
}

/// One line of a `[dependencies]` table.
#[derive(Debug, Clone)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) dev: bool,
    /// Whether it is also a member.
    pub(crate) inner: bool,
}

impl Workspace {
    /// Finds the workspace of the working directory, and changes the working directory to its root.
    pub(crate) fn find() -> Result<Self, String> {
        let workspace = Self::read(&metadata()?);
        std::env::set_current_dir(&workspace.root).map_err(|error| error.to_string())?;
        Ok(workspace)
    }

    fn read(metadata: &Value) -> Self {
        let root = text(&metadata["workspace_root"]);
        let packages = array(&metadata["packages"])
            .map(|package| Package::read(package, &root))
            .collect();
        Self {
            packages,
            target: text(&metadata["target_directory"]).into(),
            root: root.into(),
        }
    }

    pub(crate) fn libraries(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.is_library)
    }

    /// Returns the programs of all packages.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &str> {
        let programs = self.packages.iter().flat_map(|package| &package.programs);
        programs.map(String::as_str)
    }

    pub(crate) fn published(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.is_published)
    }
}

impl Package {
    fn read(package: &Value, root: &str) -> Self {
        let name = text(&package["name"]);
        let dependencies = array(&package["dependencies"]).map(|dependency| Dependency {
            name: text(&dependency["name"]),
            dev: dependency["kind"] == "dev",
            inner: dependency["path"].is_string(),
        });
        let manifest = text(&package["manifest_path"]);
        let in_crates = manifest.starts_with(&format!("{root}/crates/"));
        let targets = |kind: &'static str| {
            let targets = array(&package["targets"]);
            targets
                .filter(move |target| target["kind"][0] == kind)
                .map(|target| &target["name"])
        };
        let all = targets("bin").map(text);
        let (with_library, programs): (Vec<String>, Vec<String>) =
            all.partition(|program| targets("lib").any(|library| library == program));
        let all = package["features"].as_object().into_iter().flatten();
        let features = all
            .map(|(name, _)| name.clone())
            .filter(|name| name != "default");
        let roots = array(&package["targets"]).map(|target| Root {
            file: text(&target["src_path"]).into(),
            is_test: ["test", "bench", "example"]
                .iter()
                .any(|kind| target["kind"][0] == **kind),
        });
        Self {
            roots: roots.collect(),
            // A library can also have a helper program, such as the guard. A program's own library has the name of the program.
            is_library: in_crates && with_library.is_empty(),
            programs,
            features: features.collect(),
            default_features: array(&package["features"]["default"]).map(text).collect(),
            // `publish = false` is the empty list of registries.
            is_published: array(&package["publish"]).next().is_some()
                || package["publish"].is_null(),
            folder: PathBuf::from(manifest)
                .parent()
                .unwrap_or(Path::new(""))
                .into(),
            dependencies: dependencies.collect(),
            name,
        }
    }
}

/// Returns the output of `cargo metadata` for the members only.
pub(crate) fn metadata() -> Result<Value, String> {
    let metadata = crate::command::run(
        "cargo",
        &["metadata", "--format-version=1", "--no-deps"],
        crate::command::Show::Never,
    );
    match metadata.success {
        true => serde_json::from_str(&metadata.stdout).map_err(|error| error.to_string()),
        false => Err(metadata.output.trim().to_owned()),
    }
}

/// Removes a directory with its content, if it exists.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    match fs_err::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(crate) fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_with_a_helper_program_counts_as_library() {
        let package = |lib: &str, bin: &str| {
            let package = serde_json::json!({
                "name": "a",
                "manifest_path": "/w/crates/a/Cargo.toml",
                "targets": [{ "name": lib, "kind": ["lib"] }, { "name": bin, "kind": ["bin"] }],
                "publish": null,
            });
            Package::read(&package, "/w")
        };
        let guard = package("agent_subprocess", "agent-guard");
        assert!(guard.is_library);
        assert_eq!(guard.programs, ["agent-guard"]);
        assert!(!package("rlm", "rlm").is_library);
        assert!(package("rlm", "rlm").programs.is_empty());
        assert!(package("rlm", "rlm").is_published);
    }
}
