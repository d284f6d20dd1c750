use checkpoint_store::{Healed, Loaded, Meta, Options, Writer};
use loop_state::Event;

use crate::{Error, Project, RunHead, RunId};

/// The schema of a run's head and events. A reader of another version refuses, naming both.
const SCHEMA: &str = "rlm-run";
const SCHEMA_VERSION: u32 = 1;

pub(crate) fn options(create: bool) -> Options {
    Options {
        schema: SCHEMA.into(),
        schema_version: SCHEMA_VERSION,
        create,
        ..Options::default()
    }
}

/// The run's store, and the events that it does not have yet.
#[derive(Debug)]
pub(crate) struct Journal {
    run: RunId,
    /// Away only while a save runs on its thread, or for good when that thread panicked.
    writer: Option<Writer<RunHead, Event>>,
    unsaved: Vec<Event>,
    /// What the last save had to write again and nobody was told of yet.
    healed: Option<Healed>,
}

impl Journal {
    pub(crate) fn open(
        project: &Project,
        run: &RunId,
        create: bool,
    ) -> Result<(Self, Loaded<RunHead, Event>), Error> {
        let (writer, loaded) = Writer::open(project.run_dir(run), options(create))
            .map_err(|e| Error::store(run, "opened", e))?;
        Ok((
            Self {
                run: run.clone(),
                writer: Some(writer),
                unsaved: Vec::new(),
                healed: None,
            },
            loaded,
        ))
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::epoch)
    }

    /// Returns, once, that the state had to be written to a new file: its own had failed, or was removed.
    pub(crate) fn take_healed(&mut self) -> Option<Healed> {
        self.healed.take()
    }

    pub(crate) fn note(&mut self, event: Event) {
        self.unsaved.push(event);
    }

    /// Makes the head and all noted events durable.
    pub(crate) async fn save(&mut self, head: &RunHead) -> Result<(), Error> {
        // They stay until they are saved: after a save that found the disk full, another one may succeed.
        let events = self.unsaved.clone();
        let head = head.clone();
        self.on_thread(move |writer| writer.append(&head, &events).map(|_| ()))
            .await?;
        self.unsaved.clear();
        Ok(())
    }

    /// Makes the head durable as the end of a phase.
    pub(crate) async fn save_phase(
        &mut self,
        phase: String,
        head: &RunHead,
        changed: Option<Vec<String>>,
    ) -> Result<(), Error> {
        self.save(head).await?;
        let head = head.clone();
        let meta = sealed(&head, changed);
        self.on_thread(move |writer| writer.save_phase(&phase, &head, meta).map(|_| ()))
            .await
    }

    pub(crate) async fn put_blob(&mut self, name: &str, text: &str) -> Result<(), Error> {
        let (name, bytes) = (name.to_owned(), text.as_bytes().to_vec());
        self.on_thread(move |writer| writer.put_blob(&name, &bytes))
            .await
    }

    /// Syncs take milliseconds: they are done on a thread that may block, one at a time.
    async fn on_thread<F>(&mut self, work: F) -> Result<(), Error>
    where
        F: FnOnce(&mut Writer<RunHead, Event>) -> Result<(), checkpoint_store::Error>
            + Send
            + 'static,
    {
        let mut writer = self.writer.take().expect("saves are awaited one at a time");
        let before = writer.last_heal().map(|healed| healed.epoch);
        let (writer, result) = tokio::task::spawn_blocking(move || {
            let result = work(&mut writer);
            (writer, result)
        })
        .await
        .expect("the store does not panic");
        if let Some(healed) = writer.last_heal().filter(|it| Some(it.epoch) != before) {
            self.healed = Some(healed.clone());
        }
        self.writer = Some(writer);
        result.map_err(|e| Error::store(&self.run, "saved", e))
    }
}

/// What is said about a phase that is over, for people.
fn sealed(head: &RunHead, changed: Option<Vec<String>>) -> Meta {
    let phase = head.machine.finished.last();
    let errors = phase.map(|phase| phase.errors.iter());
    let errors = errors.into_iter().flatten();
    let end = head.machine.end.as_ref();
    Meta {
        git_commit: head.git_commit.clone(),
        git_dirty: changed.map(|paths| !paths.is_empty()),
        errors: errors
            .map(|error| format!("iteration {}: {}", error.iteration, error.what))
            .collect(),
        finished: end.is_some_and(|end| end.reason.is_final()),
        ..Meta::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loop_state::{Happening, Head, Machine, Resume, Step, Timestamp};
    use serde_json::{Value, json};

    /// A run as it was written before the machine's state had a version.
    fn old_run() -> Value {
        let time = |secs: u64| json!({"secs": secs, "nanos": 0});
        let phase = json!({
            "name": "main", "gates": 0, "until": true, "promise": false, "session": "fresh",
            "limits": {"max_iterations": 100, "iteration_timeout": time(3600), "idle_timeout": null},
        });
        let machine = json!({
            "rules": {"phases": [phase], "max_duration": null, "max_failures": 3, "sleep": time(10)},
            "phase": 0, "iteration": 2, "attempt": 1, "highest_attempt": 1, "first_attempt": 1,
            "step": {"Turn": {"since": 5}}, "failure": null, "cut": null, "feedback": null, "steers": [],
            "counts": {"iterations": 1, "attempts": 2, "failed": 0, "cuts": 0, "processes": 1},
            "started_at": 1, "taken_at": 1, "last_at": 5, "end": null,
        });
        let phase = json!({
            "name": "main", "prompt": {"Kept": "prompt-1"}, "agent": {"Command": {"argv": ["agent"]}},
            "gates": [], "until": "true", "check_timeout": time(900),
            "limits": {"max_iterations": 100, "iteration_timeout": time(3600), "idle_timeout": null},
        });
        json!({
            "run": "r1", "machine": machine, "scope": "s", "prompt": "prompt-1", "git_commit": null,
            "settings": {"directory": "/srv/project", "phases": [phase], "max_failures": 3, "sleep": time(10)},
        })
    }

    #[test]
    fn a_run_that_was_saved_before_the_state_had_a_version_goes_on_and_has_one_then() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("r1");
        let started = json!({"at": 1, "what": "Started"});
        let (mut writer, _) = Writer::<Value, Value>::open(&dir, options(true)).unwrap();
        writer.append(&old_run(), &[started]).unwrap();
        drop(writer);

        let (mut writer, loaded) = Writer::<RunHead, Event>::open(&dir, options(false)).unwrap();
        let mut head = loaded.head.unwrap();
        assert_eq!(loaded.events[0].what, Happening::Started);
        assert_eq!(
            head.machine.step,
            Step::Turn {
                since: Timestamp(5)
            }
        );
        let mut machine = Machine::from(head.machine.clone());
        let at = Timestamp(100);
        let what = Happening::Resumed(Resume::default());
        let resumed = Event { at, what };
        machine.step(resumed.clone());
        head.machine = machine.head().clone();
        writer.append(&head, &[resumed]).unwrap();
        drop(writer);

        let (_writer, loaded) = Writer::<Value, Value>::open(&dir, options(false)).unwrap();
        let saved = loaded.head.unwrap();
        assert_eq!(saved["machine"]["version"], 1);
        let machine: Head = serde_json::from_value(saved["machine"].clone()).unwrap();
        assert_eq!(machine, head.machine);
    }
}
