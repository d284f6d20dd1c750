//! Tags the published versions, each at the commit that its package names. The checked-out commit may be another one by then.

use std::path::{Path, PathBuf};

use fs_err as fs;
use serde_json::Value;

use super::crates::Crate;
use super::{git, registry};
use crate::tally::Tally;

/// The file in a package in which cargo records the commit.
const NOTE: &str = ".cargo_vcs_info.json";

pub(crate) fn run(root: &Path, crates: &[Crate], execute: bool) -> Tally {
    let home = fresh_home().map_err(|error| error.to_string());
    match home.and_then(|home| tag(root, crates, home.path(), execute)) {
        Ok(tally) => tally,
        Err(why) => Tally::failed(format!("release tag: {why}")),
    }
}

fn tag(root: &Path, crates: &[Crate], home: &Path, execute: bool) -> Result<Tally, String> {
    git::whole(root)?;
    let head = git::git_in(root, &["rev-parse", "HEAD"])?;
    let mut tally = Tally::default();
    for found in crates {
        let tag = found.tag();
        if git::has_tag(root, &tag) {
            println!("keep {tag}");
            tally.passed += 1;
            continue;
        }
        let package = match registry::take(home, &found.name, &found.version) {
            Ok(Some(package)) => package,
            Ok(None) => {
                let why = format!("{tag}: not published yet");
                tally.skipped.push(why);
                continue;
            }
            Err(why) => {
                // The registry would not answer for the others either.
                tally.failures.push(format!("{tag}: {why}"));
                break;
            }
        };
        let made = origin(root, &package).and_then(|commit| {
            println!("tag  {tag} at {}", place(&commit, &head));
            match execute {
                true => set(root, found, &commit),
                false => Ok(()),
            }
        });
        match made {
            Ok(()) => tally.passed += 1,
            Err(why) => tally.failures.push(format!("{tag}: {why}")),
        }
    }
    match execute {
        true => println!("push the tags with `git push --follow-tags`"),
        false => println!("nothing was done; add --execute to do it"),
    }
    Ok(tally)
}

/// Names a commit, and the checked-out one if it differs.
fn place(commit: &str, head: &str) -> String {
    let short = |commit: &str| commit.chars().take(10).collect::<String>();
    match commit == head {
        true => short(commit),
        false => format!(
            "{}, the commit of the package; {} is checked out",
            short(commit),
            short(head)
        ),
    }
}

fn set(root: &Path, found: &Crate, commit: &str) -> Result<(), String> {
    let message = format!("{} {}", found.name, found.version);
    let tag = found.tag();
    let words = ["tag", "--annotate", "--message", &message, &tag, commit];
    git::git_in(root, &words).map(drop)
}

/// Returns an empty cargo home with the maintainer's configuration, which may name a mirror or a proxy.
fn fresh_home() -> std::io::Result<tempfile::TempDir> {
    let fresh = tempfile::tempdir()?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let config = home.map(|home| home.join("config.toml"));
    if let Some(config) = config.filter(|it| it.is_file()) {
        fs::copy(config, fresh.path().join("config.toml"))?;
    }
    Ok(fresh)
}

/// Returns the commit that a package was made from, if this clone has it.
fn origin(root: &Path, package: &Path) -> Result<String, String> {
    let commit = noted(&fs::read_to_string(package.join(NOTE)).unwrap_or_default())?;
    match git::git_in(root, &["cat-file", "-e", &format!("{commit}^{{commit}}")]) {
        Ok(_) => Ok(commit),
        Err(_) => Err(format!(
            "published from {commit}, which this clone does not have: run `git fetch` from the clone that published it"
        )),
    }
}

fn noted(note: &str) -> Result<String, String> {
    let note: Value = serde_json::from_str(note).unwrap_or_default();
    match (note["git"]["sha1"].as_str(), &note["git"]["dirty"]) {
        (Some(commit), Value::Bool(true)) => Err(format!(
            "published from {commit} with uncommitted changes, so no tag would be correct"
        )),
        (Some(commit), _) => Ok(commit.to_owned()),
        (None, _) => Err(format!(
            "the package has no {NOTE} with a commit: it was not published from a clone"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use semver::Version;
    use serde_json::json;

    use super::super::crates::tests::sample;
    use super::*;
    use crate::command::{self, Show};
    use crate::dist::digest;

    const NAME: &str = "leaf-of-a-test";

    /// A clone of one crate, and a registry of files in place of crates.io.
    struct ReleaseSandbox {
        folder: tempfile::TempDir,
    }

    impl ReleaseSandbox {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let place = Self { folder };
            for repository in [place.root(), place.index()] {
                git::git(&["init", "--quiet", &repository.to_string_lossy()]).unwrap();
            }
            place.git(&["config", "user.name", "a"]);
            place.git(&["config", "user.email", "a@b"]);
            fs::create_dir_all(place.root().join("src")).unwrap();
            place.write("src/lib.rs", "//! It.\n");
            place.set_version("0.1.0");
            place.cargo(&["generate-lockfile"]);
            place.commit();
            place
        }

        fn root(&self) -> PathBuf {
            self.folder.path().join("clone")
        }

        /// Creates the registry's index as a git repository for cargo.
        fn index(&self) -> PathBuf {
            self.folder.path().join("index")
        }

        fn git(&self, words: &[&str]) -> String {
            git::git_in(&self.root(), words).unwrap()
        }

        fn commit(&self) -> String {
            commit(&self.root())
        }

        fn write(&self, path: &str, text: &str) {
            fs::write(self.root().join(path), text).unwrap();
        }

        fn set_version(&self, version: &str) {
            let text = format!(
                "[package]\nname = \"{NAME}\"\nversion = \"{version}\"\nedition = \"2024\"\ndescription = \"x\"\nlicense = \"MIT\"\n\n[workspace]\n"
            );
            self.write("Cargo.toml", &text);
        }

        fn cargo(&self, words: &[&str]) {
            let mut cargo = Command::new("cargo");
            cargo.args(words).current_dir(self.root());
            cargo.env("CARGO_TARGET_DIR", self.folder.path().join("target"));
            let ended = command::finish(&mut cargo, Show::Never);
            assert!(ended.success, "{words:?}: {}", ended.output);
        }

        /// Packs the crate and adds it to the index.
        fn publish(&self, version: &str, more: &[&str]) {
            let words = ["package", "--no-verify", "--offline"];
            self.cargo(&[&words, more].concat());
            let packages = self.folder.path().join("target/package");
            let package = fs::read(packages.join(format!("{NAME}-{version}.crate"))).unwrap();
            let line = json!({
                "name": NAME, "vers": version, "deps": [], "cksum": digest(&package), "features": {}, "yanked": false,
            });
            let packages = packages.display();
            let config = json!({ "dl": format!("file://{packages}/{{crate}}-{{version}}.crate") });
            let folder = self.index().join("le/af");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(NAME), line.to_string()).unwrap();
            fs::write(self.index().join("config.json"), config.to_string()).unwrap();
            commit(&self.index());
        }

        fn tag(&self, root: &Path, version: &str, execute: bool) -> Tally {
            let mut found = sample(NAME, &[]);
            found.version = Version::parse(version).unwrap();
            let home = tempfile::tempdir().unwrap();
            let config = format!(
                "[source.crates-io]\nreplace-with = \"files\"\n[source.files]\nregistry = \"file://{}\"\n",
                self.index().display()
            );
            fs::write(home.path().join("config.toml"), config).unwrap();
            super::tag(root, &[found], home.path(), execute).unwrap()
        }
    }

    /// Commits all changes, and returns the commit.
    fn commit(root: &Path) -> String {
        let git = |words: &[&str]| git::git_in(root, words).unwrap();
        git(&["add", "--all"]);
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let words = ["commit", "--quiet", "--allow-empty", "--message", "x"];
        git(&[&who[..], &words].concat());
        git(&["rev-parse", "HEAD"])
    }

    #[test]
    fn tag_points_to_the_published_commit() {
        let place = ReleaseSandbox::new();
        let published = place.git(&["rev-parse", "HEAD"]);
        place.publish("0.1.0", &[]);
        let later = place.commit();
        assert_ne!(published, later);

        let root = place.root();
        assert_eq!(place.tag(&root, "0.1.0", false), Tally::passed(1));
        assert_eq!(place.git(&["tag"]), "");
        for _ in 0..2 {
            assert_eq!(place.tag(&root, "0.1.0", true), Tally::passed(1));
            let tag = format!("{NAME}-v0.1.0");
            assert_eq!(place.git(&["cat-file", "-t", &tag]), "tag");
            let commit = place.git(&["rev-parse", &format!("{tag}^{{commit}}")]);
            assert_eq!(commit, published);
        }
        let absent = place.tag(&root, "0.2.0", true);
        assert_eq!(
            absent,
            Tally::skipped(format!("{NAME}-v0.2.0: not published yet"))
        );
    }

    #[test]
    fn unmatched_version_has_no_tag() {
        let place = ReleaseSandbox::new();
        place.publish("0.1.0", &[]);
        let other = place.folder.path().join("other");
        let init = ["init", "--quiet", &other.to_string_lossy()];
        git::git(&init).unwrap();
        commit(&other);
        let foreign = place.tag(&other, "0.1.0", true);
        assert!(
            foreign.failures[0].contains("run `git fetch`"),
            "{foreign:?}"
        );

        place.set_version("0.2.0");
        place.publish("0.2.0", &["--allow-dirty"]);
        let dirty = place.tag(&place.root(), "0.2.0", true);
        assert!(
            dirty.failures[0].contains("uncommitted changes"),
            "{dirty:?}"
        );
        assert_eq!(place.git(&["tag"]), "");
    }

    #[test]
    fn package_without_vcs_info_has_no_commit() {
        let clean = r#"{ "git": { "sha1": "abc" }, "path_in_vcs": "" }"#;
        assert_eq!(noted(clean), Ok("abc".to_owned()));
        for none in ["", "{}", r#"{ "git": {} }"#] {
            assert!(noted(none).unwrap_err().contains(NOTE), "{none}");
        }
    }
}
