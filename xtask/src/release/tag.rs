//! Tags what a registry has, each at the commit that its package says it was made of: what is checked out by then may be another one.

use std::path::Path;

use fs_err as fs;
use serde_json::Value;

use super::crates::Crate;
use super::git;
use super::target::Target;
use crate::registry;
use crate::tally::Tally;

/// Where cargo notes in a package what it was made of.
const NOTE: &str = ".cargo_vcs_info.json";

pub(crate) fn run(root: &Path, crates: &[Crate], target: &Target, execute: bool) -> Tally {
    match try_run(root, crates, target, execute) {
        Ok(tally) => tally,
        Err(why) => Tally::failed(format!("release tag: {why}")),
    }
}

fn try_run(root: &Path, crates: &[Crate], target: &Target, execute: bool) -> Result<Tally, String> {
    git::whole(root)?;
    let head = git::git_in(root, &["rev-parse", "HEAD"])?;
    let home = fresh_home().map_err(|error| error.to_string())?;
    let mut tally = Tally::default();
    for found in crates {
        let tag = found.tag();
        if git::has_tag(root, &tag) {
            println!("keep {tag}");
            tally.passed += 1;
            continue;
        }
        let package = match target.take(home.path(), &found.name, &found.version) {
            Ok(Some(package)) => package,
            Ok(None) => {
                let why = format!("{tag}: it is not published yet");
                tally.skipped.push(why);
                continue;
            }
            Err(why) => {
                // It would not answer for the others either.
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
        true => println!("git push --follow-tags takes them to the others"),
        false => println!("nothing was done: --execute does it"),
    }
    Ok(tally)
}

/// Names a commit, and the one that is checked out where that is another.
fn place(commit: &str, head: &str) -> String {
    let short = |commit: &str| commit.chars().take(10).collect::<String>();
    match commit == head {
        true => short(commit),
        false => format!(
            "{}, of which it was published; {} is checked out",
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

/// An empty home for cargo that knows its way to the registry as the maintainer's does.
fn fresh_home() -> std::io::Result<tempfile::TempDir> {
    let fresh = tempfile::tempdir()?;
    let known = registry::home().map(|home| home.join("config.toml"));
    if let Some(known) = known.ok().filter(|it| it.is_file()) {
        fs::copy(known, fresh.path().join("config.toml"))?;
    }
    Ok(fresh)
}

/// The commit that a package was made of, if this clone has it.
fn origin(root: &Path, package: &Path) -> Result<String, String> {
    let commit = noted(&fs::read_to_string(package.join(NOTE)).unwrap_or_default())?;
    match git::git_in(root, &["cat-file", "-e", &format!("{commit}^{{commit}}")]) {
        Ok(_) => Ok(commit),
        Err(_) => Err(format!(
            "it was published of {commit}, which this clone does not have: `git fetch` it from where that was done"
        )),
    }
}

fn noted(note: &str) -> Result<String, String> {
    let note: Value = serde_json::from_str(note).unwrap_or_default();
    match (note["git"]["sha1"].as_str(), &note["git"]["dirty"]) {
        (Some(commit), Value::Bool(true)) => Err(format!(
            "it was published of {commit} with changes that no commit has, so that no tag is true"
        )),
        (Some(commit), _) => Ok(commit.to_owned()),
        (None, _) => Err(format!(
            "its package has no {NOTE} that names a commit: it was not published of a clone"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use semver::Version;

    use super::super::crates::tests::sample;
    use super::*;
    use crate::command::{self, Show};
    use crate::registry::Registry;

    const NAME: &str = "leaf-of-a-test";

    /// A clone of one crate, and a registry that it is published to.
    struct Place {
        folder: tempfile::TempDir,
        target: Target,
        _registry: Registry,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path();
            let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            let own = [NAME.to_owned()].into();
            let options = registry::options(&workspace, root.join("registry"), own).unwrap();
            let registry = Registry::serve(0, options).unwrap();
            let config = root.join("config.toml");
            registry.configure(&config).unwrap();
            let target = Target::local(config, root.join("home"));
            let place = Self {
                target,
                _registry: registry,
                folder,
            };
            fs::create_dir_all(place.root().join("src")).unwrap();
            git::git(&["init", "--quiet", &place.root().to_string_lossy()]).unwrap();
            place.git(&["config", "user.name", "a"]);
            place.git(&["config", "user.email", "a@b"]);
            place.write("src/lib.rs", "//! It.\n");
            place.set_version("0.1.0");
            place.cargo(&["generate-lockfile"]);
            place.commit();
            place
        }

        fn root(&self) -> PathBuf {
            self.folder.path().join("clone")
        }

        fn git(&self, words: &[&str]) -> String {
            git::git_in(&self.root(), words).unwrap()
        }

        /// Commits all that there is, and returns the commit.
        fn commit(&self) -> String {
            self.git(&["add", "--all"]);
            self.git(&["commit", "--quiet", "--allow-empty", "--message", "x"]);
            self.git(&["rev-parse", "HEAD"])
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
            let mut cargo = self.target.cargo(words[0]);
            cargo.args(&words[1..]).current_dir(self.root());
            cargo.env("CARGO_TARGET_DIR", self.folder.path().join("target"));
            let ended = command::finish(&mut cargo, Show::Never);
            assert!(ended.success, "{words:?}: {}", ended.output);
        }

        fn publish(&self, more: &[&str]) {
            let words = ["publish", "--registry", "local", "--no-verify"];
            self.cargo(&[&words, more].concat());
        }

        fn tag(&self, root: &Path, version: &str, execute: bool) -> Tally {
            let mut found = sample(NAME, &[]);
            found.version = Version::parse(version).unwrap();
            run(root, &[found], &self.target, execute)
        }
    }

    #[test]
    fn a_tag_stands_at_what_was_published_whatever_is_checked_out() {
        let place = Place::new();
        let published = place.git(&["rev-parse", "HEAD"]);
        place.publish(&[]);
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
            Tally::skipped(format!("{NAME}-v0.2.0: it is not published yet"))
        );
    }

    #[test]
    fn what_no_commit_here_is_true_for_has_no_tag() {
        let place = Place::new();
        place.publish(&[]);
        let other = place.folder.path().join("other");
        let init = ["init", "--quiet", &other.to_string_lossy()];
        git::git(&init).unwrap();
        let who = ["-c", "user.name=a", "-c", "user.email=a@b"];
        let commit = ["commit", "--quiet", "--allow-empty", "--message", "x"];
        git::git_in(&other, &[&who[..], &commit].concat()).unwrap();
        let foreign = place.tag(&other, "0.1.0", true);
        assert!(
            foreign.failures[0].contains("`git fetch` it"),
            "{foreign:?}"
        );

        place.set_version("0.2.0");
        place.publish(&["--allow-dirty"]);
        let dirty = place.tag(&place.root(), "0.2.0", true);
        assert!(
            dirty.failures[0].contains("changes that no commit has"),
            "{dirty:?}"
        );
        assert_eq!(place.git(&["tag"]), "");
    }

    #[test]
    fn a_package_that_names_no_commit_has_none() {
        let clean = r#"{ "git": { "sha1": "abc" }, "path_in_vcs": "" }"#;
        assert_eq!(noted(clean), Ok("abc".to_owned()));
        for none in ["", "{}", r#"{ "git": {} }"#] {
            assert!(noted(none).unwrap_err().contains(NOTE), "{none}");
        }
    }
}
