//! A whole release against a registry on loopback: it fails half-way, is gone on with, and each crate is then taken into an empty project and built
//! there. The uploads and their order are those of `release publish`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use fs_err as fs;

use super::crates::Crate;
use super::publish::{self, Manner};
use super::target::Target;
use crate::command::{self, Show};
use crate::registry::{self, Registry};
use crate::tally::Tally;
use crate::workspace::{self, Workspace};

/// The upload that the registry refuses at first, as crates.io does of many new crates.
const FAILS_AT: usize = 3;

/// Whom cargo is sent to for what the registry does not have; its errors name it.
const UPSTREAM: &str = "index.crates.io";

/// How much is rehearsed.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Only publishes; builds nothing.
    #[arg(long)]
    no_build: bool,
    /// Also installs the program from the registry and runs it.
    #[arg(long, conflicts_with = "no_build")]
    install: bool,
    /// Takes the tree with its changes.
    #[arg(long)]
    allow_dirty: bool,
}

/// Where a rehearsal keeps its things. They are gone when it is, or, if it was interrupted, when the next begins.
struct Place {
    /// For the registry, a home of cargo's, and what is built: up to a gigabyte, below `target`.
    large: PathBuf,
    /// Not below the workspace, of which cargo would take the projects for members.
    projects: tempfile::TempDir,
    _one_at_a_time: fs::File,
}

impl Place {
    fn take(target: &Path) -> io::Result<Self> {
        fs::create_dir_all(target)?;
        let lock = fs::File::create(target.join("rehearsal.lock"))?;
        if lock.file().try_lock().is_err() {
            println!(
                "another rehearsal goes on in {}: waiting for its end",
                target.display()
            );
            lock.file().lock()?;
        }
        let large = target.join("rehearsal");
        workspace::remove(&large)?;
        fs::create_dir_all(&large)?;
        Ok(Self {
            large,
            projects: tempfile::tempdir()?,
            _one_at_a_time: lock,
        })
    }

    /// Where cargo puts what it builds.
    fn target(&self) -> PathBuf {
        self.large.join("target")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _left_to_the_next = workspace::remove(&self.large);
    }
}

impl Arguments {
    /// What fits into minutes, of the tree as it is.
    pub(crate) fn quick() -> Self {
        Self {
            no_build: true,
            allow_dirty: true,
            ..Self::default()
        }
    }
}

pub(crate) fn run(workspace: &Workspace, crates: &[Crate], arguments: &Arguments) -> Tally {
    match try_run(workspace, crates, arguments) {
        Ok(tally) => tally,
        Err(why) => Tally::failed(format!("release rehearse: {why}")),
    }
}

fn try_run(
    workspace: &Workspace,
    crates: &[Crate],
    arguments: &Arguments,
) -> Result<Tally, String> {
    let place = Place::take(&workspace.target).map_err(|error| error.to_string())?;
    let (config, home) = (place.large.join("config.toml"), place.large.join("home"));
    let own = crates.iter().map(|it| it.name.clone()).collect();
    let mut options = registry::options(&workspace.root, place.large.join("registry"), own)?;
    options.room = Some(FAILS_AT);
    let registry = Registry::serve(0, options)?;
    registry.configure(&config)?;
    let target = Target::local(config, home);
    let manner = Manner {
        no_verify: true,
        allow_dirty: arguments.allow_dirty,
    };
    let mut tally = publications(&registry, crates, &target, manner);
    if tally.is_red() || tally.passed == 0 || arguments.no_build {
        return Ok(tally);
    }
    println!("each is taken into an empty project, and the first with a runtime takes a minute");
    for found in crates {
        tally += judged(&found.name, "an empty project", || {
            take(&place, found, &target)
        });
    }
    if arguments.install {
        // A program that another crate needs is no program for people.
        let is_needed = |name| crates.iter().any(|it| it.siblings.contains_key(name));
        let programs = crates.iter().filter(|it| !it.programs.is_empty());
        for found in programs.filter(|it| !is_needed(&it.name)) {
            tally += judged(&found.name, "installed", || install(&place, found, &target));
        }
    }
    Ok(tally)
}

/// Publishes three times: up to a failure, from there on, and for nothing.
fn publications(registry: &Registry, crates: &[Crate], target: &Target, manner: Manner) -> Tally {
    let first = publish::run(crates, target, manner);
    if first.failures.iter().any(|why| why.contains(UPSTREAM)) {
        let why = "crates.io does not answer, and cargo has kept no index of it here";
        return Tally::skipped(format!("rehearsal: {why}"));
    }
    let mut tally = Tally::default();
    let mut expect = |what: &str, is_so: bool, found: &Tally| match is_so {
        true => tally.passed += 1,
        false => tally
            .failures
            .push(format!("rehearsal: {what}: {found}: {:?}", found.failures)),
    };
    let fails = crates.len() > FAILS_AT;
    if fails {
        first
            .failures
            .iter()
            .for_each(|why| println!("as expected: {why}"));
    }
    let is_refused = first.failures.iter().any(|why| why.contains("429"));
    expect("the fourth upload is refused", is_refused == fails, &first);
    registry.make_room();
    let second = publish::run(crates, target, manner);
    let missing = crates.len().saturating_sub(FAILS_AT);
    expect(
        "it goes on from there",
        !second.is_red() && second.passed == missing,
        &second,
    );
    let third = publish::run(crates, target, manner);
    expect(
        "then nothing is left to do",
        !third.is_red() && third.passed == 0,
        &third,
    );
    tally
}

fn judged(name: &str, what: &str, work: impl FnOnce() -> Result<(), String>) -> Tally {
    let begun = Instant::now();
    match work() {
        Ok(()) => {
            println!("{name}: {what}: ok, {:.0} s", begun.elapsed().as_secs_f64());
            Tally::passed(1)
        }
        Err(why) => Tally::failed(format!("rehearsal: {name}: {what}: {why}")),
    }
}

/// Makes an empty project, adds the crate as anybody does, uses it, and checks that this compiles.
fn take(place: &Place, found: &Crate, target: &Target) -> Result<(), String> {
    let project = place.projects.path().join(&found.name);
    fs::create_dir_all(&project).map_err(|error| error.to_string())?;
    let run = |mut cargo: Command| {
        cargo
            .current_dir(&project)
            .env("CARGO_TARGET_DIR", place.target());
        finished(&mut cargo)
    };
    let mut init = target.cargo("init");
    init.args(["--quiet", "--vcs=none", "--lib", "--name=stranger"]);
    run(init)?;
    let mut add = target.cargo("add");
    add.args(["--quiet", &found.name]);
    run(add)?;
    if let Some(lib) = &found.lib {
        let text = format!("pub use {lib} as it;\n");
        fs::write(project.join("src/lib.rs"), text).map_err(|error| error.to_string())?;
    }
    let mut check = target.cargo("check");
    check.args(["--quiet", "--color=never"]);
    run(check)
}

fn install(place: &Place, found: &Crate, target: &Target) -> Result<(), String> {
    let root = place.large.join("installed");
    let mut cargo = target.cargo("install");
    cargo.args([
        "--quiet",
        "--color=never",
        "--locked",
        "--debug",
        &found.name,
        "--root",
    ]);
    cargo.arg(&root).env("CARGO_TARGET_DIR", place.target());
    finished(cargo.current_dir(place.projects.path()))?;
    for program in &found.programs {
        let ended = command::finish(
            Command::new(root.join("bin").join(program)).arg("--version"),
            Show::Never,
        );
        print!("{}", ended.output);
        if !ended.success || !ended.output.contains(&found.version.to_string()) {
            return Err(format!("{program} --version: {}", ended.output));
        }
    }
    Ok(())
}

fn finished(cargo: &mut Command) -> Result<(), String> {
    let ended = command::finish(cargo, Show::Never);
    match ended.success {
        true => Ok(()),
        false => Err(ended.output.trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_interrupted_rehearsal_left_is_gone_and_two_do_not_meet() {
        let target = tempfile::tempdir().unwrap();
        let left = target.path().join("rehearsal/home/left");
        fs::create_dir_all(&left).unwrap();
        let place = Place::take(target.path()).unwrap();
        assert!(!left.exists() && place.large.is_dir());
        let other = fs::File::open(target.path().join("rehearsal.lock")).unwrap();
        assert!(other.file().try_lock().is_err());
        drop(place);
        assert!(!target.path().join("rehearsal").exists());
        other.file().try_lock().unwrap();
    }
}
