//! The transfer of a run of a fleet: packs the saved state of a run, and makes the directory of a run for one claim.
//!
//! This differs from export and import because the run continues in the replica: nothing is marked or saved here, the files of the project travel by
//! git, and the directory belongs to one claim.

use std::error::Error as StdError;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use checkpoint_store::{Record, Seq, Writer, rebuild};
use loop_state::TimedInput;

use super::archive;
use super::export::{STORE_FOLDERS, list_files};
use super::manifest::{self, FORMAT, Manifest};
use super::path_map::PathMap;
use super::progress::{Cancel, StagingDirectory, TransferProgress};
use crate::replica::ClaimMark;
use crate::runs::{options, refuse_damaged};
use crate::{Error, Project, RunHead, RunId, Transfer, runs, timestamp};

/// The reason why a record could not be read, for [`Project::unpack_claimed`].
type BoxError = Box<dyn StdError + Send + Sync>;

/// The parts of a run in a replica, for [`Project::unpack_claimed`].
#[derive(Debug)]
pub struct ReplicatedRun<B, R> {
    /// The archive that [`Project::pack_state`] wrote.
    pub base: B,
    /// The records after the base, in order.
    pub records: R,
    /// The blobs that the replica has, with their names. Those of the base may be missing.
    pub blobs: Vec<(String, Vec<u8>)>,
}

/// Why a run is unpacked.
#[derive(Clone, Copy)]
enum UnpackedFor {
    /// For one claim. Only its process may open the directory.
    Claim { epoch: u64 },
    /// For this machine, with this export.
    Export { epoch: u64 },
}

/// A run that was unpacked.
#[derive(Debug)]
pub struct UnpackedRun {
    /// The newest saved head, as it was saved.
    pub head: RunHead,
    /// The number of the newest save.
    pub seq: Seq,
    /// The top of the project on the machine that saved the head; see [`RunHead::move_to`].
    pub root: PathBuf,
}

impl Project {
    /// Writes the saved state of a run to an archive, for [`unpack_claimed`](Self::unpack_claimed): its store and its prompts, and neither
    /// transcripts nor files of the project. The archive is as private as the state. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::is_held`] if a process works on the run, [`Error::is_usage`] if the state is damaged; others if the archive can't be written.
    pub fn pack_state<W: Write>(&self, run: &RunId, to: W) -> Result<W, Error> {
        let dir = self.existing(run)?;
        let store = |e| Error::store(run, "packed", e);
        refuse_damaged(&dir).map_err(|why| {
            Error::not_transferable(run, format!("is damaged ({why}); see the safe next steps"))
        })?;
        // Until the archive is complete, no process saves the run.
        let (_writer, loaded) =
            Writer::<RunHead, TimedInput>::open_head(&dir, options(false)).map_err(store)?;
        let head: RunHead = { loaded.head }.ok_or_else(|| runs::nothing_saved(self, run))?;
        let cancel = Cancel::never();
        let files = list_files(&dir, STORE_FOLDERS)?
            .into_iter()
            .map(|(name, path)| archive::entry(name, &path, &cancel));
        let manifest = Manifest {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").into(),
            run: run.clone(),
            created: timestamp(SystemTime::now()),
            transfers: head.transfers,
            copy: false,
            root: self.root().display().to_string(),
            tree: head.tree(self.root()).display().to_string(),
            git: None,
            files: files.collect::<Result<_, _>>()?,
        };
        let find = |entry: &manifest::ArchiveEntry| {
            dir.join(manifest::path_in_run(&entry.name).expect("each listed file has a path"))
        };
        let progress = TransferProgress::default();
        archive::write(to, &manifest, find, &cancel, &progress, Path::new("-"))
    }

    /// Makes the directory of a run for the claim `epoch`, from the parts in its replica. Only `Journal::open_replicated` with the same epoch can open
    /// it. All parts may come from an attacker. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] if the project has a run of that name; another error if a part is damaged, missing or of another run, or a newer version
    /// wrote it. In these cases nothing is left behind.
    pub fn unpack_claimed<B, R>(
        &self,
        run: &RunId,
        epoch: u64,
        from: ReplicatedRun<B, R>,
    ) -> Result<UnpackedRun, Error>
    where
        B: Read,
        R: IntoIterator<Item = Result<Record, BoxError>>,
    {
        self.unpack(run, UnpackedFor::Claim { epoch }, from)
    }

    /// Makes the directory of a run that leaves the fleet with the export `epoch`: a local run, adapted to this machine. All parts may come from an
    /// attacker. Blocks.
    ///
    /// # Errors
    ///
    /// As [`unpack_claimed`](Self::unpack_claimed).
    pub fn unpack_exported<B, R>(
        &self,
        run: &RunId,
        epoch: u64,
        from: ReplicatedRun<B, R>,
    ) -> Result<UnpackedRun, Error>
    where
        B: Read,
        R: IntoIterator<Item = Result<Record, BoxError>>,
    {
        self.unpack(run, UnpackedFor::Export { epoch }, from)
    }

    /// Marks a run that returns to the fleet as transferred, so that it is not resumed here. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::is_held`] if a process works on the run, [`Error::is_not_found`] if nothing is saved.
    pub fn mark_returned(&self, run: &RunId) -> Result<(), Error> {
        let dir = self.existing(run)?;
        let store = |e| Error::store(run, "marked", e);
        let (mut writer, loaded) =
            Writer::<RunHead, TimedInput>::open_head(&dir, options(false)).map_err(store)?;
        let mut head: RunHead = { loaded.head }.ok_or_else(|| runs::nothing_saved(self, run))?;
        if head.transfer.is_none() {
            head.transfer = Some(Transfer {
                at: SystemTime::now().into(),
                to: "the fleet".into(),
            });
            writer.append(&head, &[]).map_err(store)?;
        }
        Ok(())
    }

    fn unpack<B, R>(
        &self,
        run: &RunId,
        for_what: UnpackedFor,
        from: ReplicatedRun<B, R>,
    ) -> Result<UnpackedRun, Error>
    where
        B: Read,
        R: IntoIterator<Item = Result<Record, BoxError>>,
    {
        let bad = |e: BoxError| Error::rebuild(run, e);
        let store = |e| Error::store(run, "unpacked", e);
        let incoming = StagingDirectory::new(self)?;
        let place = incoming.path();
        let (cancel, progress) = (Cancel::never(), TransferProgress::default());
        let room = |_: &Manifest| Ok(());
        let manifest = archive::read(from.base, place, room, &cancel, &progress)?
            .map_err(|why| bad(why.into()))?;
        if manifest.run != *run {
            return Err(bad(format!("its base is of run `{}`", manifest.run).into()));
        }
        let is_state = |entry: &manifest::ArchiveEntry| entry.name.starts_with("store/");
        if let Some(other) = manifest.files.iter().find(|entry| !is_state(entry)) {
            return Err(bad(format!("its base has the file `{}`", other.name).into()));
        }
        refuse_damaged(place).map_err(|why| bad(why.into()))?;
        let seq = rebuild(place, &options(false), from.records).map_err(bad)?;
        let (mut writer, loaded) =
            Writer::<RunHead, TimedInput>::open_head(place, options(false)).map_err(store)?;
        let mut head: RunHead =
            { loaded.head }.ok_or_else(|| bad("nothing is saved in it".into()))?;
        if head.run != *run {
            return Err(bad(format!("its state is of run `{}`", head.run).into()));
        }
        for (name, bytes) in &from.blobs {
            writer.put_blob(name, bytes).map_err(store)?;
        }
        let root = { head.root.clone() }.unwrap_or_else(|| manifest.root.into());
        match for_what {
            UnpackedFor::Claim { epoch } => {
                let mark = ClaimMark { epoch };
                mark.write(place)
                    .map_err(|e| Error::io("can't write", place, e))?;
            }
            UnpackedFor::Export { epoch } => {
                head.move_to(self, &root);
                (head.transfer, head.exported) = (None, epoch);
                writer.append(&head, &[]).map_err(store)?;
            }
        }
        drop(writer);
        incoming.promote(self, run)?;
        Ok(UnpackedRun { head, seq, root })
    }
}

impl RunHead {
    /// Adapts the saved head of a run of a fleet to this machine: replaces the paths below `from`, the top of the project on the machine that saved
    /// the head, and forgets what exists only on that machine: the session of the agent, work that is not committed, the snapshot of the working tree,
    /// and the run's worktree.
    ///
    /// The next save contains the changes, so that a successor knows where the paths are.
    pub fn move_to(&mut self, project: &Project, from: &Path) {
        let tree = self.settings.worktree.take().map(|own| own.path);
        let places = PathMap {
            pairs: { tree.into_iter() }
                .map(|tree| (tree, project.tree()))
                .chain([(from.to_owned(), project.root())])
                .collect(),
        };
        places.relocate(&mut self.settings);
        let directory = &mut self.settings.directory;
        if !directory.starts_with(project.tree()) {
            project.tree().clone_into(directory);
        }
        let machine = self.machine.clone().without_session();
        self.machine = machine.without_uncommitted_work();
        self.snapshot = None;
        self.root = Some(project.root().to_owned());
    }
}
