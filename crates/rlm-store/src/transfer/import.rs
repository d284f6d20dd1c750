//! Imports a run from one file.
//!
//! An import executes nothing from the archive, and overwrites no existing file. It unpacks the archive beside the final place, verifies it with the
//! archive's and the store's checksums, checks out the files, and finally gives the run its name.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use cancellable_sleep::SleepGate;
use checkpoint_store::{Writer, reader};
use loop_state::{ForkedSession, Lineage, TimedInput};
use uuid::Uuid;

use super::archive;
use super::manifest::{BUNDLE, Manifest};
use super::path_map::{self, PathMap};
use super::place_files::{FilesLocation, PlacedFiles, place_files};
use super::progress::{Cancel, StagingDirectory, TransferProgress, run_cancellable};
use crate::run_head::Origin;
use crate::runs::{options, refuse_damaged};
use crate::sessions;
use crate::{Error, Hint, Project, RunHead, RunId, state_dir};

/// The name of an imported run.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The name that a person chose; only a copy can have another name.
    pub run: Option<RunId>,
    /// The name of a copy without a chosen name.
    pub default_run: RunId,
}

/// An imported run.
#[derive(Debug)]
pub struct Imported {
    /// The saved head.
    pub head: RunHead,
    /// The name of the run at its origin.
    pub from: RunId,
    /// Whether it is a copy, which is independent of the other run.
    pub copy: bool,
    /// The place of its files.
    pub arrival: FilesLocation,
    /// The branch of its files.
    pub branch: Option<String>,
    /// The files that it needs and that are missing here, with the fix.
    pub missing: Vec<String>,
    /// Other notes for the user.
    pub notes: Vec<String>,
}

impl Project {
    /// Imports an exported run with its files. The files go into the working tree if that is at the commit of the run, otherwise into the run's own
    /// worktree. An empty directory becomes a repository. `name` is the archive's name in messages.
    ///
    /// A run that was transferred away and returns replaces its marked state here.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] if the run already exists here, or there is no place for its files; others if the archive is damaged or has no exported
    /// run. In these cases nothing is left behind.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not cancel an import that has begun. A cancelled token of the gate ends it early, and it leaves nothing behind.
    pub async fn import(
        &self,
        from: Box<dyn Read + Send>,
        name: &Path,
        how: ImportOptions,
        gate: &SleepGate,
        progress: TransferProgress,
    ) -> Result<Imported, Error> {
        let name = name.to_owned();
        run_cancellable(self, gate, move |project, cancel| {
            let _state = NewStateDir::of(project);
            import(project, from, &name, how, cancel, &progress)
        })
        .await
    }
}

fn import(
    project: &Project,
    from: Box<dyn Read + Send>,
    name: &Path,
    how: ImportOptions,
    cancel: &Cancel,
    progress: &TransferProgress,
) -> Result<Imported, Error> {
    let bad = |why: String| Error::archive(name, why);
    let incoming = StagingDirectory::new(project)?;
    let room = |manifest: &Manifest| {
        progress.expect(manifest.total());
        let free = rustix::fs::statvfs(incoming.path());
        let free = free.map(|it| it.f_bavail.saturating_mul(it.f_frsize));
        match free {
            Ok(free) if free < manifest.total() => Err(bad(format!(
                "the archive needs {} bytes, and {free} are free here",
                manifest.total()
            ))),
            _ => Ok(()),
        }
    };
    let manifest = archive::read(from, incoming.path(), room, cancel, progress)?.map_err(bad)?;
    let mut head = read_store(incoming.path(), &manifest).map_err(bad)?;
    let run = match (manifest.copy, how.run) {
        (true, named) => named.unwrap_or(how.default_run),
        (false, Some(other)) if other != manifest.run => {
            return Err(bad(format!(
                "run `{}` in the archive is not a copy, so it keeps its name; only a run exported with --copy gets another name",
                manifest.run
            )));
        }
        (false, _) => manifest.run.clone(),
    };
    let before = before(project, &run, &head, &manifest, name)?;
    cancel.check()?;
    let bundle = incoming.path().join(BUNDLE);
    let PlacedFiles {
        tree,
        worktree,
        arrival,
        branch,
        mut notes,
        undo,
        held: _held,
    } = place_files(project, &manifest, &run, &head, before.as_ref(), &incoming)
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
    let places = PathMap {
        pairs: pairs.collect(),
    };
    places.relocate(&mut head.settings);
    let directory = &mut head.settings.directory;
    if !directory.starts_with(&tree) || !directory.is_dir() {
        if *directory != tree {
            notes.push(format!(
                "`{}` is missing here: the run works in `{}`",
                directory.display(),
                tree.display()
            ));
        }
        directory.clone_from(&tree);
    }
    head.settings.worktree = worktree;
    let store = |e| Error::store(&run, "imported", e);
    let (mut writer, loaded) =
        Writer::<RunHead, TimedInput>::open(incoming.path(), options(false)).map_err(store)?;
    let has_session = sessions::has_session(incoming.path(), &head.machine);
    let has_session = has_session.unwrap_or_else(|why| {
        // If this fails, no head names the rest.
        let _stays = state_dir::remove_tree(&incoming.path().join(sessions::FOLDER));
        notes.push(format!(
            "the session of the agent is damaged ({why}): the next attempt begins a new one"
        ));
        false
    });
    match manifest.copy {
        true => {
            let lineage = Lineage {
                run: manifest.run.to_string(),
                iteration: head.machine.iteration,
                seq: loaded.seq.get(),
            };
            let session = match has_session {
                true => ForkedSession::Copied {
                    position: head.machine.session_position,
                },
                false => ForkedSession::None,
            };
            head.machine = head.machine.fork(lineage, session);
            head.origin = Some(Box::new(Origin {
                events: loaded.events.len() as u64,
                head: head.machine.clone(),
            }));
            head.scope = Uuid::new_v4().simple().to_string();
            head.run.clone_from(&run);
            head.transfers = 0;
        }
        false => {
            if !has_session {
                head.machine = head.machine.without_session();
            }
            head.transfers = manifest.transfers;
        }
    }
    head.transfer = None;
    if let Some(git) = &manifest.git {
        head.git_commit = Some(git.commit.clone());
        head.git_changed = git.dirty.is_none().then_some(0);
    }
    writer.append(&head, &[]).map_err(store)?;
    drop(writer);
    cancel.check()?;
    match before {
        Some(_) => incoming.replace(project, &run)?,
        None => incoming.promote(project, &run)?,
    }
    undo.disarm();
    let exists = |path: &Path| path.exists();
    Ok(Imported {
        missing: path_map::missing(&head.settings, exists),
        from: manifest.run,
        copy: manifest.copy,
        head,
        arrival,
        branch,
        notes,
    })
}

/// Reads the unpacked files as a store, and returns its head if the run can continue.
fn read_store(dir: &Path, manifest: &Manifest) -> Result<RunHead, String> {
    let bad = |why: &dyn std::fmt::Display| format!("the archived run can't be resumed: {why}");
    refuse_damaged(dir).map_err(|why| bad(&why))?;
    let loaded =
        reader::load_with::<RunHead, TimedInput>(dir, &options(false)).map_err(|e| bad(&e))?;
    let head = loaded.head.ok_or_else(|| bad(&"its store is empty"))?;
    if head.run != manifest.run {
        return Err(bad(&format_args!("its state is of run `{}`", head.run)));
    }
    // The ids of sessions are predictable, so another session could become the one of a later iteration.
    let named = head.machine.session.as_deref();
    if let Some(other) = { manifest.sessions() }.find(|id| Some(*id) != named) {
        return Err(bad(&format_args!(
            "the archive has the session `{other}`, which its state doesn't name; export the run again with this version"
        )));
    }
    Ok(head)
}

/// Returns the marked state of a run that was transferred away and returns. Returns an error if the run exists here in any other case.
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
        return Err(Error::run_in_progress(run));
    }
    let here = here.head.ok().filter(|_| !manifest.copy);
    match here.filter(|here| here.scope == head.scope) {
        Some(here) if here.transfer.is_some() && here.transfers < manifest.transfers => {
            Ok(Some(here))
        }
        Some(here) if here.transfer.is_some() => {
            let problem = "the run was exported from here and did not continue elsewhere; to continue it here, take it back";
            Err(Error::archive(name, problem.into()).with_hint(Hint::TakeBack(run.clone())))
        }
        _ if manifest.copy => Err(Error::run_exists(run.clone())),
        // Only a copy gets another name.
        _ => {
            let problem = "already exists, and only a run exported with --copy gets another name: import it in another directory, or resume \
                the existing run";
            Err(Error::not_transferable(run, problem).with_hint(Hint::Resume(run.clone())))
        }
    }
}

/// The state directory of a project that had none. Dropping it removes the directory if it has no runs.
struct NewStateDir(Option<PathBuf>);

impl NewStateDir {
    fn of(project: &Project) -> Self {
        let state = project.state_dir();
        Self((!state_dir::exists(&state)).then_some(state))
    }
}

impl Drop for NewStateDir {
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
            // If this fails, an empty directory stays, which git ignores.
            let _stays: io::Result<()> = state_dir::remove_tree(state);
        }
    }
}
