//! A run as one file, to go on elsewhere.
//!
//! # Why the order is what it is
//!
//! A run must be neither lost nor go on in two places. The archive is complete and durable under a name that nobody looks for, then the seal is
//! saved, then the archive gets its name. Killed before the seal, the run goes on here, and there is no archive. Killed behind it, the run is here,
//! sealed, and the seal can be lifted by a person; the archive has a name that says that it is none. With standard output in place of a file, the end
//! of the archive is held back until the seal is saved: without it nobody takes the archive.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cancellable_sleep::SleepGate;
use checkpoint_store::Writer;
use loop_state::Event;
use uuid::Uuid;

use super::archive;
use super::manifest::{self, BUNDLE, Entry, FORMAT, Manifest, Tip};
use super::work::{Halt, Meter, halting, refuse_damaged};
use super::work::{Incoming, lock_left};
use crate::runs::options;
use crate::timestamp;
use crate::{
    Error, Mend, Moved, Project, RunHead, RunId, RunState, WorkTree, runs, state_dir, survivors,
    transcript,
};

/// How much of an archive that is printed is held back until the run is sealed.
const HELD_BACK: u64 = 64;
/// How an archive is called that is being written: this, something unique, and that.
const PARTIAL: &str = ".rlm-export-";
const UNFINISHED: &str = ".partial";

/// How a run is exported.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// The run goes on here, and what is made of it there is a fork.
    pub copy: bool,
    /// What is not committed goes along, and is not committed there.
    pub allow_dirty: bool,
    /// The history of the project does not go along: it is there already, or its files are copied otherwise.
    pub state_only: bool,
    /// It is exported although it was before.
    pub again: bool,
}

/// Where an archive goes.
pub enum To {
    /// A file that is not there yet.
    File(PathBuf),
    /// Whatever takes it, such as standard output.
    Stream(Box<dyn Write + Send>),
}

impl fmt::Debug for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Stream(_) => f.write_str("Stream(..)"),
        }
    }
}

/// A run that was exported.
#[derive(Debug)]
pub struct Exported {
    /// Its name.
    pub run: RunId,
    /// Whether it goes on here.
    pub copy: bool,
    /// The size of the archive in bytes.
    pub bytes: u64,
    /// The commit that its files are based on; `None` where no files went along.
    pub commit: Option<String>,
    /// The branch of that.
    pub branch: Option<String>,
    /// What should be known.
    pub notes: Vec<String>,
}

impl Project {
    /// Writes a run, and the history that it stands on, into one file, and seals it here as moved: nothing resumes it then but by force.
    ///
    /// What the run's last process left alive is ended first. The archive holds the values of variables and the like, and is as private as the state.
    ///
    /// # Errors
    ///
    /// [`Error::is_held`] when a process has the run or its working tree, [`Error::is_usage`] when something would be lost, or was moved before; others
    /// when the archive can't be written. Then there is none, and the run is as before.
    ///
    /// # Cancel safety
    ///
    /// Once begun it is carried out even if the future is dropped. It ends early, and leaves nothing, when the gate's token is cancelled.
    pub async fn export(
        &self,
        run: &RunId,
        to: To,
        how: ExportOptions,
        gate: &SleepGate,
        meter: Meter,
    ) -> Result<Exported, Error> {
        let entry = self.run(run)?;
        if matches!(entry.state, RunState::Running | RunState::Paused) {
            return Err(Error::at_work(run));
        }
        let head = match entry.head {
            Ok(head) => head,
            Err(why) if entry.state == RunState::Damaged => {
                let problem = format!("is damaged ({why}); look what is safe to do");
                return Err(Error::unfit(run, problem).mended_by(Mend::Verify(run.clone())));
            }
            Err(_) => return Err(Error::nothing_saved(run.clone())),
        };
        refuse_moved(&head, &how)?;
        if let To::File(path) = &to {
            refuse_existing(path)?;
        }
        if let Some(loss) = entry.loss {
            let problem = format!(
                "has lost work ({loss}), and would not say so elsewhere: take it up here first"
            );
            return Err(Error::unfit(run, problem).mended_by(Mend::Resume(run.clone())));
        }
        let project = match &head.settings.worktree {
            Some(own) => self.in_worktree(own)?,
            None => self.clone().in_root(),
        };
        let work_tree = WorkTree::take(&project, run, gate).await?;
        let scope = survivors::scope_in(project.tree(), &head.scope);
        let swept = survivors::sweep(scope).await;
        if let Some(left) = swept.survivors.first() {
            return Err(Error::unfit(
                run,
                format!(
                    "has left `{}` (pid {}) alive, which could not be ended: end it",
                    left.name, left.pid
                ),
            ));
        }
        survivors::remove_scratch(&project, run);
        let run = run.clone();
        halting(&project, gate, move |project, halt| {
            let _held = work_tree;
            export(project, run, to, &how, halt, &meter)
        })
        .await
    }
}

fn refuse_moved(head: &RunHead, how: &ExportOptions) -> Result<(), Error> {
    match &head.moved {
        Some(moved) if !how.again => Err(Error::moved(&head.run, &moved.to)),
        _ => Ok(()),
    }
}

fn refuse_existing(path: &Path) -> Result<(), Error> {
    let why = "is there already: choose another name, or remove it";
    match state_dir::metadata(path) {
        Ok(_) => Err(Error::archive(path, why.into())),
        Err(_) => Ok(()),
    }
}

fn export(
    project: &Project,
    run: RunId,
    to: To,
    how: &ExportOptions,
    halt: &Halt,
    meter: &Meter,
) -> Result<Exported, Error> {
    let dir = project.run_dir(&run);
    let store = |e| Error::store(&run, "exported", e);
    refuse_damaged(&dir).map_err(|why| {
        let problem = format!(
            "is damaged ({why}), and could not be taken in elsewhere: look what is safe to do"
        );
        Error::unfit(&run, problem).mended_by(Mend::Verify(run.clone()))
    })?;
    let (mut writer, loaded) =
        Writer::<RunHead, Event>::open(&dir, options(false)).map_err(store)?;
    let mut head = loaded
        .head
        .ok_or_else(|| runs::nothing_saved(project, &run))?;
    refuse_moved(&head, how)?;
    let mut notes: Vec<String> = loaded
        .report
        .skipped
        .iter()
        .map(ToString::to_string)
        .collect();
    let scratch = Incoming::new(project)?;
    let bundle = scratch.path().join(BUNDLE);
    let git = match project.git().top().is_none() && how.state_only {
        true => None,
        false => Some(take_along(project, &scratch, &bundle, how, &mut notes)?),
    };
    halt.check()?;
    // Once more is the same move: nothing was done here in between.
    let moves = head.moves + u32::from(!how.copy && head.moved.is_none());
    let manifest = Manifest {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").into(),
        run: run.clone(),
        created: timestamp(SystemTime::now()),
        moves,
        copy: how.copy,
        root: project.root().display().to_string(),
        tree: project.tree().display().to_string(),
        git,
        files: files(&dir, &bundle, halt)?,
    };
    let find = |entry: &Entry| match entry.name.as_str() {
        BUNDLE => bundle.clone(),
        name => dir.join(manifest::place(name).expect("only what has a place is listed")),
    };
    meter.expect(manifest.total());
    let path = match &to {
        To::File(path) => Some(path.clone()),
        To::Stream(_) => None,
    };
    let (beside, name) = match &path {
        Some(path) => {
            let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
            (parent.unwrap_or(Path::new(".")), path.as_path())
        }
        None => (scratch.path(), Path::new("-")),
    };
    let (partial, file) = Partial::new(beside)?;
    let fail = |e| {
        halt.check()
            .err()
            .unwrap_or_else(|| Error::io("can't write", &partial.0, e))
    };
    let mut file = archive::write(file, &manifest, find, halt, meter, &partial.0)?;
    file.sync_all().map_err(fail)?;
    let bytes = file.metadata().map_err(fail)?.len();
    let before = (head.moves, head.moved.clone());
    let mut seal = |is_sealed: bool| {
        if how.copy {
            return Ok(());
        }
        let (at, to) = (manifest.created, shown(name));
        (head.moves, head.moved) = match is_sealed {
            true => (moves, Some(Moved { at, to })),
            false => before.clone(),
        };
        writer.append(&head, &[]).map(drop).map_err(store)
    };
    let announced = match to {
        To::File(path) => {
            halt.check()?;
            refuse_existing(&path)?;
            seal(true)?;
            let named = state_dir::rename_new(&partial.0, &path);
            // Its name is there; should that not be durable, the seal says what was meant.
            named
                .map(|()| drop(state_dir::sync(beside)))
                .map_err(|e| Error::io("can't make", &path, e))
        }
        To::Stream(mut stream) => {
            let fail = |e| Error::io("can't write to", "standard output", e);
            file.seek(SeekFrom::Start(0)).map_err(fail)?;
            let held_back = bytes.min(HELD_BACK);
            let mut most = io::Read::by_ref(&mut file).take(bytes - held_back);
            io::copy(&mut most, &mut stream).map_err(fail)?;
            stream.flush().map_err(fail)?;
            halt.check()?;
            seal(true)?;
            let rest = io::copy(&mut file, &mut stream).and_then(|_| stream.flush());
            rest.map_err(fail)
        }
    };
    if let Err(e) = announced {
        // Nobody has a whole archive, so that the run goes on where it went on before.
        seal(false)?;
        return Err(e);
    }
    let root = project.clone().in_root();
    if let Some(path) = path.filter(|path| root.git().sees(path)) {
        let name = path.file_name().unwrap_or_default().display();
        notes.push(format!(
            "{name} lies in the working tree, and git does not ignore it: a run's commits leave it out, others may not"
        ));
    }
    let (commit, branch) = manifest.git.map(|git| (git.commit, git.branch)).unzip();
    Ok(Exported {
        run,
        copy: how.copy,
        bytes,
        commit,
        branch: branch.flatten(),
        notes,
    })
}

/// Has git's part ready; says what can't be taken along.
fn take_along(
    project: &Project,
    scratch: &Incoming,
    bundle: &Path,
    how: &ExportOptions,
    notes: &mut Vec<String>,
) -> Result<Tip, Error> {
    let refuse = |why: String| Error::git(project.tree(), why);
    let git = project.git();
    let stand = git.stand().map_err(refuse)?;
    let mut dirty = None;
    match stand.uncommitted {
        Some(what) if !how.allow_dirty => {
            return Err(refuse(format!(
                "{what}, and would not travel: commit that, or take it along as it is with --allow-dirty"
            )));
        }
        Some(what) if how.state_only => notes.push(format!("{what}, which does not travel")),
        Some(_) => {
            let index = scratch.path().join("index");
            dirty = Some(git.snapshot(&stand.commit, &index).map_err(refuse)?);
        }
        None => {}
    }
    if stand.has_submodules {
        notes.push("submodules do not travel: they are fetched from where they are".into());
    }
    let refs = scratch.id().to_owned();
    if !how.state_only {
        git.bundle(&refs, &stand.commit, dirty.as_deref(), bundle)
            .map_err(refuse)?;
    }
    Ok(Tip {
        commit: stand.commit,
        branch: stand.branch,
        dirty,
        refs,
    })
}

/// Lists what is in the directory of a run and belongs to it.
fn files(dir: &Path, bundle: &Path, halt: &Halt) -> Result<Vec<Entry>, Error> {
    let mut all = Vec::new();
    for (folder, prefix) in [
        ("", "store/"),
        ("blobs", "store/blobs/"),
        (transcript::FOLDER, "transcripts/"),
    ] {
        let folder = dir.join(folder);
        let fail = |e| Error::io("can't read", &folder, e);
        let entries = state_dir::entries_if_any(&folder).map_err(fail)?;
        for path in entries {
            let file = path.file_name().and_then(|file| file.to_str());
            let name = file.map(|file| format!("{prefix}{file}"));
            let is_file = state_dir::metadata(&path).map_err(fail)?.is_file();
            let name = name.filter(|name| is_file && manifest::place(name).is_some());
            if let Some(name) = name.filter(|name| name != BUNDLE) {
                all.push((name, path));
            }
        }
    }
    if state_dir::is_file(bundle) {
        all.push((BUNDLE.into(), bundle.to_owned()));
    }
    all.sort();
    let entries = all
        .into_iter()
        .map(|(name, path)| archive::entry(name, &path, halt));
    entries.collect()
}

/// How the seal calls the archive.
fn shown(name: &Path) -> String {
    match name == Path::new("-") {
        true => "-".into(),
        false => std::path::absolute(name)
            .unwrap_or_else(|_| name.into())
            .display()
            .to_string(),
    }
}

/// An archive that is being written. Its drop removes it, unless it has its name.
struct Partial(PathBuf);

impl Partial {
    fn new(beside: &Path) -> Result<(Self, File), Error> {
        Self::sweep(beside);
        let name = format!("{PARTIAL}{}{UNFINISHED}", Uuid::new_v4().simple());
        let path = beside.join(name);
        let file = state_dir::create_new(&path).map_err(|e| Error::io("can't make", &path, e))?;
        // As long as it is locked, nobody takes it for one that is left. Where nothing can be locked, nobody does either.
        let _locked = file.try_lock();
        Ok((Self(path), file))
    }

    /// Removes what exports have left there that were killed.
    fn sweep(beside: &Path) {
        for path in state_dir::entries(beside).unwrap_or_default() {
            let name = path.file_name().and_then(|name| name.to_str());
            let is_partial = name
                .and_then(|name| name.strip_prefix(PARTIAL)?.strip_suffix(UNFINISHED))
                .is_some_and(|id| Uuid::try_parse(id).is_ok());
            if is_partial && lock_left(&path).is_some() {
                // The next one tries again.
                let _stays = state_dir::remove_file(&path);
            }
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // It has its name by now, as a rule.
        let _named = state_dir::remove_file(&self.0);
    }
}
