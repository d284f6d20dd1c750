//! A run that comes from elsewhere as one file.
//!
//! Nothing of it is run, and nothing that is here is written over. It is unpacked beside where it will lie, held against its own checksums and those of
//! the store, then its files are checked out, and last the run gets its name.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use cancellable_sleep::SleepGate;
use checkpoint_store::{Writer, reader};
use loop_state::{Event, Lineage};
use uuid::Uuid;

use super::archive;
use super::arrive::{Arrival, Arrived, arrive};
use super::manifest::{BUNDLE, Manifest};
use super::paths::{self, Places};
use super::work::Incoming;
use super::work::{Halt, Meter, halting, refuse_damaged};
use crate::run_head::Origin;
use crate::runs::options;
use crate::{Error, Mend, Project, RunHead, RunId, state_dir};

/// What a run is called that is imported.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The name that a person chose; only a copy gets one.
    pub run: Option<RunId>,
    /// The name of a copy for which nobody chose one.
    pub fresh: RunId,
}

/// A run that was imported.
#[derive(Debug)]
pub struct Imported {
    /// What is saved of it.
    pub head: RunHead,
    /// Its name where it comes from.
    pub from: RunId,
    /// Whether it is a copy, which the other run knows nothing of.
    pub copy: bool,
    /// Where its files are.
    pub arrival: Arrival,
    /// The branch that it is on.
    pub branch: Option<String>,
    /// What it needs and is not here, and what to do.
    pub missing: Vec<String>,
    /// What else should be known.
    pub notes: Vec<String>,
}

impl Project {
    /// Takes a run in that was exported elsewhere, with its files: into the working tree if that stands at its commit, else into one of the run's own; an
    /// empty directory becomes a repository. `name` is what messages call the archive.
    ///
    /// A run that was moved away from here and comes back takes the place of what stayed.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] when the run is here already, or its files have no place; others when the archive is damaged or no run that was exported. Then
    /// nothing is left of it.
    ///
    /// # Cancel safety
    ///
    /// Once begun it is carried out even if the future is dropped. It ends early, and leaves nothing, when the gate's token is cancelled.
    pub async fn import(
        &self,
        from: Box<dyn Read + Send>,
        name: &Path,
        how: ImportOptions,
        gate: &SleepGate,
        meter: Meter,
    ) -> Result<Imported, Error> {
        let name = name.to_owned();
        halting(self, gate, move |project, halt| {
            let _state = State::of(project);
            import(project, from, &name, how, halt, &meter)
        })
        .await
    }
}

fn import(
    project: &Project,
    from: Box<dyn Read + Send>,
    name: &Path,
    how: ImportOptions,
    halt: &Halt,
    meter: &Meter,
) -> Result<Imported, Error> {
    let bad = |why: String| Error::archive(name, why);
    let incoming = Incoming::new(project)?;
    let room = |manifest: &Manifest| {
        meter.expect(manifest.total());
        let free = rustix::fs::statvfs(incoming.path());
        let free = free.map(|it| it.f_bavail.saturating_mul(it.f_frsize));
        match free {
            Ok(free) if free < manifest.total() => Err(bad(format!(
                "it needs {} bytes, and {free} are free here",
                manifest.total()
            ))),
            _ => Ok(()),
        }
    };
    let manifest = archive::read(from, incoming.path(), room, halt, meter)?.map_err(bad)?;
    let mut head = look(incoming.path(), &manifest).map_err(bad)?;
    let run = match (manifest.copy, how.run) {
        (true, named) => named.unwrap_or(how.fresh),
        (false, Some(other)) if other != manifest.run => {
            return Err(bad(format!(
                "it is run `{}` itself, which keeps its name; only what was exported with --copy gets another one",
                manifest.run
            )));
        }
        (false, _) => manifest.run.clone(),
    };
    let before = before(project, &run, &head, &manifest, name)?;
    halt.check()?;
    let bundle = incoming.path().join(BUNDLE);
    let Arrived {
        tree,
        worktree,
        arrival,
        branch,
        mut notes,
        undo,
        held: _held,
    } = arrive(project, &manifest, &run, &head, before.as_ref(), &incoming)
        .map_err(|why| Error::git(project.root(), why))?;
    if manifest.has_bundle() {
        state_dir::remove_file(&bundle).map_err(|e| Error::io("can't remove", &bundle, e))?;
    }
    let old = |path: &str| Some(PathBuf::from(path)).filter(|it| it.is_absolute());
    let pairs = [
        (old(&manifest.tree), tree.as_path()),
        (old(&manifest.root), project.root()),
    ];
    let pairs = pairs.into_iter().filter_map(|(old, new)| Some((old?, new)));
    let places = Places {
        pairs: pairs.collect(),
    };
    places.rebind(&mut head.settings);
    let directory = &mut head.settings.directory;
    if !directory.starts_with(&tree) || !directory.is_dir() {
        if *directory != tree {
            notes.push(format!(
                "`{}` is not here: it works in `{}`",
                directory.display(),
                tree.display()
            ));
        }
        directory.clone_from(&tree);
    }
    head.settings.worktree = worktree;
    let store = |e| Error::store(&run, "imported", e);
    let (mut writer, loaded) =
        Writer::<RunHead, Event>::open(incoming.path(), options(false)).map_err(store)?;
    match manifest.copy {
        true => {
            let lineage = Lineage {
                run: manifest.run.to_string(),
                iteration: head.machine.iteration,
                seq: loaded.seq.get(),
            };
            head.machine = head.machine.fork(lineage);
            head.origin = Some(Box::new(Origin {
                events: loaded.events.len() as u64,
                head: head.machine.clone(),
            }));
            head.scope = Uuid::new_v4().simple().to_string();
            head.run.clone_from(&run);
            head.moves = 0;
        }
        false => {
            head.machine = head.machine.elsewhere();
            head.moves = manifest.moves;
        }
    }
    head.moved = None;
    if let Some(git) = &manifest.git {
        head.git_commit = Some(git.commit.clone());
        head.git_changed = git.dirty.is_none().then_some(0);
    }
    writer.append(&head, &[]).map_err(store)?;
    drop(writer);
    halt.check()?;
    match before {
        Some(_) => incoming.replace(project, &run)?,
        None => incoming.settle(project, &run)?,
    }
    undo.keep();
    let exists = |path: &Path| path.exists();
    Ok(Imported {
        missing: paths::missing(&head.settings, exists),
        from: manifest.run,
        copy: manifest.copy,
        head,
        arrival,
        branch,
        notes,
    })
}

/// Reads what was unpacked as the store that it should be, and the head as one that can go on.
fn look(dir: &Path, manifest: &Manifest) -> Result<RunHead, String> {
    let bad = |why: &dyn std::fmt::Display| format!("the state in it can't be gone on from: {why}");
    refuse_damaged(dir).map_err(|why| bad(&why))?;
    let loaded = reader::load_with::<RunHead, Event>(dir, &options(false)).map_err(|e| bad(&e))?;
    let head = loaded.head.ok_or_else(|| bad(&"nothing is saved in it"))?;
    if head.run != manifest.run {
        return Err(bad(&format_args!("it is of run `{}`", head.run)));
    }
    Ok(head)
}

/// Returns what is here of a run that was moved away and comes back; refuses one that is here otherwise.
fn before(
    project: &Project,
    run: &RunId,
    head: &RunHead,
    manifest: &Manifest,
    name: &Path,
) -> Result<Option<RunHead>, Error> {
    let here = match project.run(run) {
        Err(e) if e.is_not_found() => return Ok(None),
        here => here?,
    };
    if reader::is_locked(project.run_dir(run)).unwrap_or(false) {
        return Err(Error::at_work(run));
    }
    let here = here.head.ok().filter(|_| !manifest.copy);
    match here.filter(|here| here.scope == head.scope) {
        Some(here) if here.moved.is_some() && here.moves < manifest.moves => Ok(Some(here)),
        Some(here) if here.moved.is_some() => {
            let problem = "it was exported from here, and no later; to go on here, take it back";
            Err(Error::archive(name, problem.into()).mended_by(Mend::TakeBack(run.clone())))
        }
        _ if manifest.copy => Err(Error::run_exists(run.clone())),
        // Only a copy is given another name.
        _ => {
            let problem = "exists already, and only what was exported as a copy (--copy) gets another name: import it in another directory, or go on \
                with the one that is here";
            Err(Error::unfit(run, problem).mended_by(Mend::Resume(run.clone())))
        }
    }
}

/// The state directory of a project that had none. Its drop removes it if nothing is in it.
struct State(Option<PathBuf>);

impl State {
    fn of(project: &Project) -> Self {
        let state = project.state_dir();
        Self((!state_dir::exists(&state)).then_some(state))
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let Some(state) = &self.0 else { return };
        let entries = |dir: &Path| state_dir::entries(dir).unwrap_or_default();
        let is_empty = |dir: &str| entries(&state.join(dir)).is_empty();
        let known = ["runs", "worktrees"];
        let is_known = |name: &OsStr| name == ".gitignore" || known.iter().any(|it| name == *it);
        let all = entries(state);
        if all.iter().filter_map(|path| path.file_name()).all(is_known)
            && known.iter().all(|dir| is_empty(dir))
        {
            // What stays is an empty directory that git does not see.
            let _stays: io::Result<()> = state_dir::remove_tree(state);
        }
    }
}
