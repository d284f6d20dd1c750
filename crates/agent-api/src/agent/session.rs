//! The durable session: a history in a store on disk. After a crash it contains everything that `save` confirmed.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use agent_duplex::{Message, SessionChoice};
use checkpoint_store::{Options, Writer, reader};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::budget::Budget;
use crate::compaction::CompactionPlan;
use crate::dialect::StopReason;
use crate::error::Error;
use crate::history::{AssistantMessage, History, Item, ToolOutcome, ToolResult, UserMessage};
use crate::tool::{ChangeState, WorkingDirectory, change_state};

/// The kind of value in the store of a session.
const SCHEMA: &str = "agent-api session";

/// The longest id of a session, in bytes.
const MAX_ID: usize = 64;

/// The state that each save writes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Head {
    /// The limits of the session, and its spending.
    budget: Budget,
    /// Why the model stopped its last message.
    #[serde(default)]
    stop: Option<StopReason>,
}

/// A part of the history on disk, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    /// A message of the caller, with its id and those of its inputs. The caller reads them after a crash.
    Message {
        id: String,
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        inputs: Vec<String>,
    },
    /// Any other item.
    Item(Item),
    /// A compaction of the history before it.
    Compaction {
        plan: CompactionPlan,
        summary: Option<String>,
    },
}

/// An open session. While it lives, no other process can open it.
#[derive(Debug)]
pub(crate) struct Session {
    id: String,
    history: History,
    /// The items of the history that are saved, or in `unsaved`.
    recorded: usize,
    unsaved: Vec<Entry>,
    /// The ids of all messages, so that no message counts twice.
    messages: HashSet<String>,
    budget: Budget,
    /// The budget as it is on disk.
    saved_budget: Budget,
    /// Why the model stopped its last message; `None` if that is unknown, or if the message is not whole.
    stop: Option<StopReason>,
    /// Why the memory has more than the disk can get. Then only a new opening helps.
    broken: Option<String>,
    writer: SessionLock,
}

/// The writer of a session. While a clone of it lives, no other process can open the session.
type SessionLock = Arc<Mutex<Writer<Head, Entry>>>;

/// Why a session can't be opened.
#[derive(Debug)]
pub(crate) enum NotOpened {
    /// There is no session with this id, or only a damaged one. The text is the reason.
    Lost(String),
    /// Another process has opened it.
    InUse(checkpoint_store::Error),
    /// It can't be read or written.
    Failed(String),
}

/// The state that a load makes from the entries.
#[derive(Default)]
struct Loading {
    history: History,
    messages: HashSet<String>,
    error: Option<Error>,
}

impl Loading {
    fn apply(&mut self, entry: Entry) -> Result<(), Error> {
        match entry {
            Entry::Message { id, text, .. } => {
                self.messages.insert(id);
                self.history.push_user(text)
            }
            Entry::Item(item) => self.history.append(item),
            Entry::Compaction { plan, summary } => {
                self.history = plan.apply(&self.history, summary.as_deref())?;
                Ok(())
            }
        }
    }
}

impl Session {
    /// Opens the session in its directory below `root`. `budget` has the limits; what the session has spent is loaded.
    ///
    /// Blocks on the disk.
    pub(crate) fn open(
        root: &Path,
        choice: &SessionChoice,
        budget: &Budget,
    ) -> Result<Self, NotOpened> {
        let (id, is_new) = match choice {
            SessionChoice::Resume(id) => (id.clone(), false),
            SessionChoice::Create(id) => (id.clone(), true),
            SessionChoice::Fork(from) => (fork(root, from)?, false),
            _ => (Uuid::new_v4().to_string(), true),
        };
        let options = Options {
            create: is_new,
            ..options()
        };
        let apply = |mut loading: Loading, entry| {
            if loading.error.is_none() {
                loading.error = loading.apply(entry).err();
            }
            loading
        };
        let opened = path(root, &id).and_then(|directory| {
            let opened = Writer::open_folded(directory, options, Loading::default(), apply);
            opened.map_err(not_opened)
        });
        let (writer, loaded) = opened.map_err(|error| match error {
            NotOpened::Lost(why) if is_new => cant_create(&id, &why),
            error => error,
        })?;
        if is_new && loaded.report.used.is_some() {
            // Somebody else wrote it, so its messages are not of this conversation.
            return Err(cant_create(&id, "it exists already"));
        }
        let Loading {
            history,
            messages,
            error,
        } = loaded.value;
        if let Some(error) = error {
            return Err(NotOpened::Lost(format!("its history is invalid: {error}")));
        }
        let (budget, stop) = match loaded.head {
            Some(Head {
                budget: earlier,
                stop,
            }) => (budget.clone().after(&earlier), stop),
            None => (budget.clone(), None),
        };
        Ok(Self {
            id,
            recorded: history.items().len(),
            history,
            unsaved: Vec::new(),
            messages,
            saved_budget: budget.clone(),
            budget,
            stop,
            broken: None,
            writer: Arc::new(Mutex::new(writer)),
        })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Returns the last message of the model, and why the model stopped it, if the history ends with it and no call is open.
    pub(crate) fn final_message(&self) -> Option<(&AssistantMessage, Option<&StopReason>)> {
        match self.history.items().last() {
            Some(Item::Assistant(message)) if self.history.open_calls().next().is_none() => {
                Some((message, self.stop.as_ref()))
            }
            _ => None,
        }
    }

    /// Appends a message of the model; `stop` says why the model stopped, if it did.
    pub(crate) fn push_assistant(
        &mut self,
        message: AssistantMessage,
        stop: Option<StopReason>,
    ) -> Result<(), Error> {
        self.stop = stop;
        self.change(|history| history.push_assistant(message))
    }

    /// Returns the number of the last save. [`fork`](checkpoint_store::fork) can copy the session as of it.
    pub(crate) fn position(&self) -> u64 {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.seq().get()
    }

    /// Returns what keeps the session locked, also if the session is dropped.
    pub(crate) fn lock(&self) -> impl Send + 'static {
        Arc::clone(&self.writer)
    }

    /// Lets every further save fail: the memory has an item that the caller was told is not recorded.
    pub(crate) fn give_up(&mut self, why: &str) {
        self.broken = Some(why.to_owned());
    }

    /// Returns the limits of the session and what it has spent.
    pub(crate) fn limits(&self) -> &Budget {
        &self.budget
    }

    pub(crate) fn budget(&mut self) -> &mut Budget {
        &mut self.budget
    }

    /// Gives each call that a crash left without a result a result. Returns the ids and names of those whose outcome is unknown.
    pub(crate) fn recover(
        &mut self,
        directory: &WorkingDirectory,
        only_reads: impl Fn(&str) -> bool,
    ) -> Vec<String> {
        let mut unknown = Vec::new();
        let open: Vec<_> = { self.history.open_calls() }
            .map(|(call, state)| (call.id.clone(), call.name.clone(), state))
            .collect();
        for (id, name, state) in open {
            let change = self
                .history
                .items()
                .iter()
                .rev()
                .find_map(|item| match item {
                    Item::ToolStarted(started) if started.call_id == id => started.change.as_ref(),
                    _ => None,
                });
            let result = match (state, change.map(|change| change_state(change, directory))) {
                (crate::history::CallState::Requested, _) => ToolResult::not_run(id),
                (_, Some(ChangeState::Made)) => ToolResult {
                    call_id: id,
                    outcome: ToolOutcome::Ok,
                    text: "the change was made; then the agent was restarted".to_owned(),
                },
                (_, Some(ChangeState::NotMade)) => ToolResult::not_run(id),
                _ if only_reads(&name) => ToolResult::not_run(id),
                _ => {
                    unknown.push(name);
                    ToolResult::unknown(id)
                }
            };
            let answered = self.change(|history| history.push_result(result));
            debug_assert_eq!(answered, Ok(()), "an open call takes a result");
        }
        unknown
    }

    /// Changes the history. The next [`save`](Self::save) saves the new items.
    pub(crate) fn change(
        &mut self,
        change: impl FnOnce(&mut History) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let changed = change(&mut self.history);
        let new = self.history.items()[self.recorded..].iter();
        self.unsaved.extend(new.cloned().map(Entry::Item));
        self.recorded = self.history.items().len();
        changed
    }

    /// Appends a message of the caller, unless it is in the history already: a caller that didn't see its save sends it again.
    pub(crate) fn message(&mut self, message: Message) -> Result<(), Error> {
        let (id, text) = (message.id.to_string(), message.text);
        if self.messages.contains(&id) {
            return Ok(());
        }
        let item = Item::User(UserMessage { text: text.clone() });
        self.history.append(item)?;
        self.recorded += 1;
        self.unsaved.push(Entry::Message {
            id: id.clone(),
            text,
            inputs: message.input_ids,
        });
        self.messages.insert(id);
        Ok(())
    }

    /// Replaces the history by its compacted form.
    pub(crate) fn compact(
        &mut self,
        plan: CompactionPlan,
        summary: Option<String>,
    ) -> Result<(), Error> {
        self.history = plan.apply(&self.history, summary.as_deref())?;
        self.recorded = self.history.items().len();
        self.unsaved.push(Entry::Compaction { plan, summary });
        Ok(())
    }

    /// Saves what is new. It is on disk when this returns.
    ///
    /// # Errors
    ///
    /// A message for people. The next save tries again.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: after a drop the session must be opened again.
    pub(crate) async fn save(&mut self) -> Result<(), String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        if self.unsaved.is_empty() && self.budget == self.saved_budget {
            return Ok(());
        }
        let head = Head {
            budget: self.budget.clone(),
            stop: self.stop.clone(),
        };
        let entries = std::mem::take(&mut self.unsaved);
        let writer = Arc::clone(&self.writer);
        let saved = tokio::task::spawn_blocking(move || {
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            let saved = writer.append(&head, &entries).map_err(|e| e.to_string());
            saved.map(drop).map_err(|error| (error, entries))
        });
        match saved.await {
            Ok(Ok(())) => {
                self.saved_budget = self.budget.clone();
                Ok(())
            }
            Ok(Err((error, entries))) => {
                self.unsaved = entries;
                Err(format!("the session can't be saved: {error}"))
            }
            Err(error) => {
                // The entries are lost, so a later save would leave a hole.
                let why = format!("the session can't be saved: {error}");
                self.give_up(&why);
                Err(why)
            }
        }
    }
}

fn options() -> Options {
    Options {
        schema: SCHEMA.to_owned(),
        ..Options::default()
    }
}

/// Returns the directory of a session. Accepts only a plain name, so that an id can't be another path.
fn path(root: &Path, id: &str) -> Result<PathBuf, NotOpened> {
    let is_plain = |byte: u8| byte.is_ascii_digit() || byte.is_ascii_lowercase() || byte == b'-';
    match (1..=MAX_ID).contains(&id.len()) && id.bytes().all(is_plain) {
        true => Ok(root.join(id)),
        false => Err(NotOpened::Lost("its id is invalid".to_owned())),
    }
}

/// Copies a session, which may be open, and returns the id of the copy.
fn fork(root: &Path, from: &str) -> Result<String, NotOpened> {
    let from = path(root, from)?;
    let last = reader::fold::<Head, Entry, ()>(&from, &options(), (), |(), _| ());
    let last = last.map_err(not_opened)?.seq;
    let id = Uuid::new_v4().to_string();
    checkpoint_store::fork(&from, last, path(root, &id)?, &options()).map_err(not_opened)?;
    Ok(id)
}

fn cant_create(id: &str, why: &str) -> NotOpened {
    NotOpened::Failed(format!("session {id} can't be created: {why}"))
}

fn not_opened(error: checkpoint_store::Error) -> NotOpened {
    if error.is_locked() {
        NotOpened::InUse(error)
    } else if error.is_not_found() {
        NotOpened::Lost("there is no such session".to_owned())
    } else if error.is_corrupt() {
        NotOpened::Lost(error.to_string())
    } else {
        NotOpened::Failed(format!("the session can't be opened: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a6_save_after_a_lost_save_fails_and_leaves_no_hole() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = || {
            tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap()
        };
        let open = |choice| Session::open(dir.path(), &choice, &Budget::default()).unwrap();
        let mut session = open(SessionChoice::Fresh);
        let resumed = SessionChoice::Resume(session.id().to_owned());
        session.message(Message::new("saved")).unwrap();
        runtime().block_on(session.save()).unwrap();

        session.message(Message::new("lost")).unwrap();
        // A runtime that has ended drops the save.
        let ended = runtime().handle().clone();
        let why = ended.block_on(session.save()).unwrap_err();
        assert!(why.starts_with("the session can't be saved: "), "{why}");
        session.message(Message::new("later")).unwrap();
        assert_eq!(runtime().block_on(session.save()), Err(why));

        drop(session);
        let saved = Item::User(UserMessage {
            text: "saved".to_owned(),
        });
        assert_eq!(open(resumed).history().items(), [saved]);
    }
}
