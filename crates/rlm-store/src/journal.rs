//! The run's store as the loop uses it: collects events, and saves in order on a separate thread.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use checkpoint_store::{Folded, PhaseMeta, Repaired, ReplicaError, Writer};
use loop_state::TimedInput;
use tokio::task::JoinHandle;

use crate::phase_facts::PhaseFacts;
use crate::replica::{ClaimMark, RunReplica, SharedReplica};
use crate::runs::options;
use crate::{Error, Project, RunHead, RunId};

/// The run's store, and the events that are not saved yet.
#[derive(Debug)]
pub struct Journal {
    run: RunId,
    path: PathBuf,
    /// `None` during a save, and forever if a save panicked.
    writer: Option<Writer<RunHead, TimedInput>>,
    /// The thread that has the writer during a save, even if nothing waits for the thread any more.
    saving: Option<JoinHandle<SaveResult>>,
    epoch: u64,
    /// The replica of a run that belongs to a fleet.
    replica: Option<SharedReplica>,
    unsaved: Vec<TimedInput>,
    /// The last repair, until somebody takes it.
    repaired: Option<Repaired>,
}

/// The result of the thread that saves.
#[derive(Debug)]
struct SaveResult {
    writer: Writer<RunHead, TimedInput>,
    /// The number of unsaved events that this save contains.
    events: usize,
    repaired: Option<Repaired>,
    result: Result<(), SaveError>,
}

/// The reason why a save failed: in the store, or in the replica before the store had the save.
#[derive(Debug)]
enum SaveError {
    Store(checkpoint_store::Error),
    Replica(ReplicaError),
}

impl From<checkpoint_store::Error> for SaveError {
    fn from(e: checkpoint_store::Error) -> Self {
        Self::Store(e)
    }
}

impl Journal {
    /// Opens the store of a run and loads its head. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::is_held`] if another process works on the run, [`Error::is_usage`] if the run belongs to a fleet; other errors if its files can't be
    /// read.
    pub fn open(
        project: &Project,
        run: &RunId,
        create: bool,
    ) -> Result<(Self, Folded<RunHead, ()>), Error> {
        refuse_claimed(project, run)?;
        let place = project.run_dir(run);
        let (writer, loaded) = Writer::open_head(&place, options(create))
            .map_err(|e| Error::store(run, "opened", e))?;
        Ok((Self::new(run, place, writer), loaded))
    }

    /// Opens the store of a run of a fleet, in the directory that [`Project::unpack_claimed`] made for this claim. Each later save is also in the
    /// replica before the call returns. Blocks, also while the replica gets the blobs of the store.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); also if the directory belongs to another claim, or the replica and the store end at different saves.
    pub fn open_replicated(
        project: &Project,
        run: &RunId,
        to: Arc<Mutex<dyn RunReplica>>,
    ) -> Result<(Self, Folded<RunHead, ()>), Error> {
        let replica = SharedReplica::new(to);
        let place = project.run_dir(run);
        let mark = ClaimMark::read(&place).and_then(Result::ok);
        if mark.is_none_or(|mark| mark.epoch != replica.epoch()) {
            return Err(Error::other_claim(run, replica.epoch()));
        }
        let store = |e| Error::store(run, "opened", e);
        let (mut writer, loaded) = Writer::open_head(&place, options(false)).map_err(store)?;
        writer
            .set_replica(Box::new(replica.clone()))
            .map_err(store)?;
        let mut journal = Self::new(run, place, writer);
        journal.epoch = replica.epoch();
        journal.replica = Some(replica);
        Ok((journal, loaded))
    }

    fn new(run: &RunId, path: PathBuf, writer: Writer<RunHead, TimedInput>) -> Self {
        Self {
            run: run.clone(),
            path,
            epoch: writer.fencing_token(),
            writer: Some(writer),
            saving: None,
            replica: None,
            unsaved: Vec::new(),
            repaired: None,
        }
    }

    /// Returns the epoch of this writer, which increases with each process that takes over the run. For a run of a fleet, this is the epoch of the
    /// claim.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns the last repair, once. A repair writes the state to a new file, because the old one failed or was removed.
    pub fn take_repaired(&mut self) -> Option<Repaired> {
        self.repaired.take()
    }

    /// Adds an event to the next save.
    pub fn note(&mut self, event: TimedInput) {
        self.unsaved.push(event);
    }

    /// Makes the head and all noted events durable.
    ///
    /// # Errors
    ///
    /// An error if they can't be written. The events then stay queued, and the next save tries again. Also the error of an earlier save whose future
    /// was dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future of this method, or of another one that saves, does not cancel a save that has begun. The next save waits for it, saves
    /// nothing twice, and returns its error.
    pub async fn save(&mut self, head: &RunHead) -> Result<(), Error> {
        self.wait_for_writer().await?;
        // The events stay until they are saved: after a save on a full disk, a later one may succeed.
        let (head, events) = (head.clone(), self.unsaved.clone());
        let replica = self.replica.clone();
        self.on_thread(events.len(), move |writer| {
            if let Some(replica) = replica {
                replica.prepare(&head).map_err(SaveError::Replica)?;
            }
            writer.append(&head, &events)?;
            Ok(())
        })
        .await
    }

    /// Makes the head durable as the end of a phase. Returns whether the phase has its own file: on a full disk it is saved without one.
    pub async fn save_phase(
        &mut self,
        phase: String,
        head: &RunHead,
        changed: Option<Vec<String>>,
    ) -> Result<bool, Error> {
        self.save(head).await?;
        let head = head.clone();
        let meta = phase_meta(&head, changed);
        let saved = self.on_thread(0, move |writer| {
            writer.save_phase(&phase, &head, meta)?;
            Ok(())
        });
        match saved.await {
            // The phase is in the journal, and the writer can still save. If the disk stays full, a later save returns its own error.
            Err(e) if e.is_full() => Ok(false),
            saved => saved.map(|()| true),
        }
    }

    /// Stores a text in the run under a name.
    ///
    /// # Errors
    ///
    /// An error if it can't be written; also the error of an earlier save whose future was dropped.
    pub async fn put_blob(&mut self, name: &str, text: &str) -> Result<(), Error> {
        let (name, bytes) = (name.to_owned(), text.as_bytes().to_vec());
        self.on_thread(0, move |writer| Ok(writer.put_blob(&name, &bytes)?))
            .await
    }

    /// Runs `work` on a thread that may block, because a sync takes milliseconds. Only one call runs at a time.
    async fn on_thread<F>(&mut self, events: usize, work: F) -> Result<(), Error>
    where
        F: FnOnce(&mut Writer<RunHead, TimedInput>) -> Result<(), SaveError> + Send + 'static,
    {
        self.wait_for_writer().await?;
        let Some(mut writer) = self.writer.take() else {
            return Err(self.thread_died(io::Error::other("the thread died in an earlier save")));
        };
        self.saving = Some(tokio::task::spawn_blocking(move || {
            let before = writer.last_repair().map(|repair| repair.epoch);
            let result = work(&mut writer);
            let repair = writer.last_repair().filter(|it| Some(it.epoch) != before);
            SaveResult {
                repaired: repair.cloned(),
                writer,
                events,
                result,
            }
        }));
        self.wait_for_writer().await
    }

    /// Waits for the writer during a save, and returns the error of the save.
    async fn wait_for_writer(&mut self) -> Result<(), Error> {
        let Some(saving) = &mut self.saving else {
            return Ok(());
        };
        let saved = saving.await;
        self.saving = None;
        let saved = saved.map_err(|e| self.thread_died(e.into()))?;
        if self.replica.is_none() {
            // A repair raises it.
            self.epoch = saved.writer.fencing_token();
        }
        self.writer = Some(saved.writer);
        self.repaired = saved.repaired.or(self.repaired.take());
        saved.result.map_err(|e| match e {
            SaveError::Store(e) => Error::store(&self.run, "saved", e),
            SaveError::Replica(e) => Error::replica(&self.run, e),
        })?;
        self.unsaved.drain(..saved.events);
        Ok(())
    }

    fn thread_died(&self, why: io::Error) -> Error {
        Error::io("thread failed while saving in", &self.path, why)
    }
}

/// Returns an error if the directory of a run belongs to a claim of a fleet. Only the holder of that claim may save the run.
pub(crate) fn refuse_claimed(project: &Project, run: &RunId) -> Result<(), Error> {
    match ClaimMark::read(&project.run_dir(run)) {
        // A mark that can't be read counts too.
        Some(_) => Err(Error::claimed(run)),
        None => Ok(()),
    }
}

/// Returns the information for people about a finished phase.
fn phase_meta(head: &RunHead, changed: Option<Vec<String>>) -> PhaseMeta {
    let end = head.machine.end.as_ref();
    PhaseMeta {
        finished: end.is_some_and(|end| end.reason.is_final()),
        extra: PhaseFacts::of(head, changed).to_extra(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PhaseSettings, PromptSource, Settings};
    use agent_drivers::AgentConfig;
    use checkpoint_store::{Loaded, reader};
    use loop_state::{Head, MachineInput, Timestamp};

    fn event(at: u64) -> TimedInput {
        let (at, what) = (Timestamp::from_millis(at), MachineInput::Started);
        TimedInput { at, what }
    }

    /// A journal in a directory of its own, and a head to save.
    fn journal() -> (tempfile::TempDir, Project, Journal, RunHead) {
        let dir = tempfile::tempdir().unwrap();
        let project = Project::find(dir.path()).unwrap();
        let (journal, _) = Journal::open(&project, &"r1".parse().unwrap(), true).unwrap();
        let agent = AgentConfig::command(vec!["agent".into()]);
        let mut phase = PhaseSettings::new("main", PromptSource::Stored("prompt-1".into()), agent);
        phase.check = Some("true".into());
        let settings = Settings::new("/srv/project", vec![phase]);
        let machine = Head::new(settings.rules()).unwrap();
        let head = RunHead::new("r1".parse().unwrap(), machine, settings);
        (dir, project, journal, head)
    }

    /// Loads the saves of the run, as another process reads them.
    fn saved(project: &Project) -> Loaded<RunHead, TimedInput> {
        let place = project.run_dir(&"r1".parse().unwrap());
        reader::load_with(place, &options(false)).unwrap()
    }

    /// Polls a future at most `times` times, and drops it.
    async fn poll<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
        let mut future = std::pin::pin!(future);
        for _ in 0..times {
            tokio::select! {
                biased;
                done = &mut future => return Some(done),
                () = std::future::ready(()) => tokio::task::yield_now().await,
            }
        }
        None
    }

    #[tokio::test]
    async fn d11_queued_save_completes_in_order() {
        let (_dir, project, mut journal, mut head) = journal();
        for polls in 0..20 {
            journal.note(event(polls));
            head.git_changed = Some(polls.try_into().unwrap());
            let saved = poll(journal.save(&head), polls.try_into().unwrap()).await;
            saved.transpose().unwrap();
        }
        let epoch = journal.epoch();
        assert!(epoch > 0, "during a save too");
        journal.note(event(20));
        head.pause_reason = Some("last".into());
        journal.save(&head).await.unwrap();
        drop(journal);
        let loaded = saved(&project);
        let (again, _) = Journal::open(&project, &"r1".parse().unwrap(), false).unwrap();
        assert_eq!(loaded.events, (0..=20).map(event).collect::<Vec<_>>());
        assert_eq!(loaded.head.unwrap().pause_reason.unwrap(), "last");
        assert!(again.epoch() > epoch);
    }

    #[tokio::test]
    async fn d11_failure_survives_its_dropped_future_and_leaves_no_gap() {
        let (_dir, project, mut journal, head) = journal();
        journal.note(event(1));
        journal.save(&head).await.unwrap();
        let (go, is_dropped) = std::sync::mpsc::channel();
        let fails = move |writer: &mut Writer<RunHead, TimedInput>| {
            is_dropped.recv().unwrap();
            let never_saved = checkpoint_store::Seq::new(9999);
            writer.truncate_to(never_saved)?;
            Ok(())
        };
        // The failing save has an event, which stays unsaved.
        journal.note(event(2));
        assert!(poll(journal.on_thread(1, fails), 1).await.is_none());
        go.send(()).unwrap();
        journal.note(event(3));
        let failed = journal.save(&head).await.unwrap_err().to_string();
        assert!(failed.contains("9999"), "{failed}");
        journal.save(&head).await.unwrap();
        drop(journal);
        let loaded = saved(&project);
        assert_eq!(loaded.events, [event(1), event(2), event(3)]);
    }

    #[tokio::test]
    async fn d11_a_failed_append_is_reported_by_the_next_call_and_leaves_no_gap() {
        let (_dir, project, mut journal, head) = journal();
        let run: RunId = "r1".parse().unwrap();
        journal.note(event(1));
        journal.save(&head).await.unwrap();
        // A file replaces the run's directory, so that nothing can be appended there.
        let place = project.run_dir(&run);
        let away = place.with_extension("away");
        fs_err::rename(&place, &away).unwrap();
        fs_err::write(&place, "").unwrap();
        journal.note(event(2));
        let dropped = poll(journal.save(&head), 1).await;
        assert!(dropped.is_none(), "the call has begun, and is not done");
        journal.note(event(3));
        let reported = journal.put_blob("b", "behind it").await.unwrap_err();
        let why = "was replaced by another directory";
        assert!(reported.to_string().contains(why), "{reported}");
        // An append now could leave a gap, even if the directory exists again.
        fs_err::remove_file(&place).unwrap();
        fs_err::rename(&away, &place).unwrap();
        for _ in 0..2 {
            let refused = journal.save(&head).await.unwrap_err();
            assert!(refused.to_string().contains(why), "{refused}");
        }
        drop(journal);
        let blob = checkpoint_store::reader::blob(&place, "b", u64::MAX).unwrap_err();
        assert!(blob.is_not_found(), "{blob}");
        // The failed save may be on disk; nothing after it is.
        let loaded = saved(&project);
        let events = loaded.events;
        assert!(events == [event(1)] || events == [event(1), event(2)]);
    }

    #[tokio::test]
    async fn d11_dropped_phase_or_blob_is_whole_or_absent_and_never_late() {
        // 0, 1, 2, 4 … polls, so that the drop happens at each point of waiting, however long the syncs take.
        for polls in (0..14).map(|power| (1 << power) / 2) {
            let (_dir, project, mut journal, mut head) = journal();
            let run: RunId = "r1".parse().unwrap();
            journal.note(event(1));
            head.pause_reason = Some("phase".into());
            let sealed = poll(journal.save_phase("p".into(), &head, None), polls).await;
            sealed.transpose().unwrap();
            let kept = poll(journal.put_blob("b", "a text"), polls).await;
            let is_kept = kept.transpose().unwrap().is_some();
            journal.note(event(2));
            head.pause_reason = Some("last".into());
            journal.save(&head).await.unwrap();
            drop(journal);
            let loaded = saved(&project);
            assert_eq!(loaded.events, [event(1), event(2)], "{polls} polls");
            assert_eq!(
                loaded.head.unwrap().pause_reason.unwrap(),
                "last",
                "{polls} polls"
            );
            let place = project.run_dir(&run);
            match checkpoint_store::reader::blob(&place, "b", u64::MAX) {
                Ok(bytes) => assert_eq!(bytes, b"a text"),
                Err(error) => assert!(error.is_not_found() && !is_kept, "{error}"),
            }
            for phase in checkpoint_store::reader::phases(&place).unwrap() {
                let found = checkpoint_store::reader::load_phase::<RunHead, TimedInput>(
                    &place,
                    &phase.phase,
                    &options(false),
                );
                found.unwrap();
            }
        }
    }

    /// Removes all keys of a map except these.
    fn keep(map: &mut serde_json::Value, keys: &[&str]) {
        let map = map.as_object_mut().unwrap();
        map.retain(|key, _| keys.contains(&key.as_str()));
        assert_eq!(map.len(), keys.len(), "all of {keys:?} are saved");
    }

    /// A store with only the keys that the first version writes: a key that is added after its release needs a default.
    #[tokio::test]
    async fn c64b_run_saved_without_a_newer_key_is_read_and_saved_again() {
        let (_dir, project, journal, head) = journal();
        drop(journal);
        let mut old = serde_json::to_value(&head).unwrap();
        keep(
            &mut old,
            &["run", "machine", "settings", "scope", "prompts"],
        );
        let settings = &mut old["settings"];
        keep(
            settings,
            &["directory", "phases", "limits", "commit", "leftovers"],
        );
        keep(
            &mut settings["phases"][0],
            &[
                "name",
                "prompt",
                "agent",
                "permissions",
                "session",
                "promise",
                "required_checks",
                "check",
                "background_task_timeout",
                "limits",
            ],
        );
        let run: RunId = "r1".parse().unwrap();
        let place = project.run_dir(&run);
        let (mut writer, _) =
            Writer::<serde_json::Value, TimedInput>::open(&place, options(false)).unwrap();
        writer.append(&old, &[event(1)]).unwrap();
        drop(writer);
        let events = saved(&project).events;
        let (mut journal, loaded) = Journal::open(&project, &run, false).unwrap();
        let read = loaded.head.unwrap();
        assert_eq!((&read, events), (&head, vec![event(1)]));
        journal.note(event(2));
        journal.save(&read).await.unwrap();
        drop(journal);
        let loaded = saved(&project);
        assert_eq!(loaded.head, Some(head));
        assert_eq!(loaded.events, [event(1), event(2)]);
    }

    /// The runtime ends during saves.
    #[test]
    fn d11_acknowledged_saves_survive_the_end_of_the_runtime() {
        let (_dir, project, mut journal, mut head) = journal();
        let (tell, acknowledged) = std::sync::mpsc::channel();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.spawn(async move {
            for n in 1.. {
                journal.note(event(n));
                head.pause_reason = Some(n.to_string());
                journal.save(&head).await.unwrap();
                if tell.send(n).is_err() {
                    break;
                }
            }
        });
        acknowledged.iter().find(|n| *n > 20).unwrap();
        drop(runtime);
        let last = acknowledged.iter().last().unwrap_or(20);
        let loaded = saved(&project);
        let saved = loaded.head.unwrap().pause_reason.unwrap();
        let saved: u64 = saved.parse().unwrap();
        assert!(saved >= last, "{saved} of {last}");
        assert_eq!(loaded.events, (1..=saved).map(event).collect::<Vec<_>>());
    }

    /// The executor's only thread continues while a large value is encoded, compressed and synced.
    #[tokio::test]
    async fn c68_a_large_save_does_not_block_the_executor() {
        let (_dir, _project, mut journal, mut head) = journal();
        let line = "a line of a transcript\n";
        head.pause_reason = Some(line.repeat(50_000_000 / line.len()));
        let mut save = std::pin::pin!(journal.save(&head));
        let mut turns = 0;
        loop {
            tokio::select! {
                biased;
                saved = &mut save => break saved.unwrap(),
                () = std::future::ready(()) => turns += 1,
            }
            tokio::task::yield_now().await;
        }
        assert!(turns > 100, "the executor got {turns} turns meanwhile");
    }

    #[tokio::test]
    async fn death_of_the_save_thread_fails_this_save_and_the_next() {
        let (_dir, _project, mut journal, head) = journal();
        let died = journal.on_thread(0, |_| panic!("a store that panics"));
        let died = died.await.unwrap_err().to_string();
        assert!(died.contains("thread failed while saving in"), "{died}");
        let next = journal.save(&head).await.unwrap_err().to_string();
        assert!(
            next.contains("the thread died in an earlier save"),
            "{next}"
        );
    }
}
