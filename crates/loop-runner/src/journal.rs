use checkpoint_store::{Loaded, Meta, Options, Writer};
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
            },
            loaded,
        ))
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::epoch)
    }

    pub(crate) fn note(&mut self, event: Event) {
        self.unsaved.push(event);
    }

    /// Makes the head and all noted events durable.
    pub(crate) async fn save(&mut self, head: &RunHead) -> Result<(), Error> {
        let events = std::mem::take(&mut self.unsaved);
        let head = head.clone();
        self.on_thread(move |writer| writer.append(&head, &events).map(|_| ()))
            .await
    }

    /// Makes the head durable as the end of a phase.
    pub(crate) async fn save_phase(
        &mut self,
        phase: String,
        head: &RunHead,
        changed: Option<Vec<String>>,
    ) -> Result<(), Error> {
        let events = std::mem::take(&mut self.unsaved);
        let head = head.clone();
        self.on_thread(move |writer| {
            writer.append(&head, &events)?;
            let meta = Meta {
                git_commit: head.git_commit.clone(),
                git_dirty: changed.map(|paths| !paths.is_empty()),
                ..Meta::default()
            };
            writer.save_phase(&phase, &head, meta).map(|_| ())
        })
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
        let (writer, result) = tokio::task::spawn_blocking(move || {
            let result = work(&mut writer);
            (writer, result)
        })
        .await
        .expect("the store does not panic");
        self.writer = Some(writer);
        result.map_err(|e| Error::store(&self.run, "saved", e))
    }
}
