//! The append-only conversation. `History::append` enforces the rules that every dialect needs: each tool call has exactly one result, and nothing else
//! comes before that result. `close_open_calls` adds only results of open calls.

mod item;

use std::collections::{BTreeMap, BTreeSet};

pub use item::{
    Arguments, AssistantMessage, AssistantPart, AssistantText, CallProblem, Completeness,
    FileIntent, Item, Summary, Thinking, ThinkingProof, ToolCall, ToolOutcome, ToolResult,
    ToolStarted, UserMessage,
};

use crate::error::Error;

/// A conversation that is valid in every dialect.
///
/// After each change, save the new items: `&history.items()[saved..]`. [`from_items`](Self::from_items) restores the history. After a crash,
/// [`close_calls_after_crash`](Self::close_calls_after_crash) gives each call without a saved result a result.
///
/// ```
/// use agent_api::{History, Item};
///
/// let mut history = History::new();
/// history.push_user("What is in this directory?")?;
/// assert!(history.push_user("  ").is_err());
/// history.check_ready()?; // the model may be called
/// assert!(matches!(history.items(), [Item::User(_)]));
/// # Ok::<(), agent_api::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    items: Vec<Item>,
    /// The calls without a result.
    open: BTreeMap<String, CallState>,
    /// The ids of all calls.
    ids: BTreeSet<String>,
}

/// The state of a call without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallState {
    /// The model requested it.
    Requested,
    /// Its intent is in the history, so the tool may run.
    Started,
}

/// The longest id that all dialects accept.
const MAX_ID: usize = 64;

impl History {
    /// Creates an empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Restores a history from its saved items.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::History`](crate::ErrorKind::History) if an item doesn't fit the items before it.
    pub fn from_items(items: impl IntoIterator<Item = Item>) -> Result<Self, Error> {
        let mut history = Self::new();
        for item in items {
            history.append(item)?;
        }
        Ok(history)
    }

    /// Returns all items, the oldest first.
    #[must_use]
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Appends an item. The `push_*` methods call this one.
    ///
    /// `append` replaces the id of a call if the id is empty, was used before, has more than 64 characters, or has other characters than letters,
    /// digits, `_` and `-`: every dialect refuses a whole conversation because of such an id. Take the calls from the history, not from the message that you appended.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::History`](crate::ErrorKind::History) if the item doesn't fit: a user message while a call has no result, a result without an open call,
    /// a message of the model before a message of the user, an empty message. The history is unchanged then.
    pub fn append(&mut self, item: Item) -> Result<(), Error> {
        let item = match item {
            Item::User(user) => {
                self.check_no_open_call("a user message")?;
                if user.text.trim().is_empty() {
                    return Err(Error::history("the user message is empty"));
                }
                Item::User(user)
            }
            Item::Summary(summary) => {
                self.check_no_open_call("a summary")?;
                Item::Summary(summary)
            }
            Item::Assistant(message) => {
                self.check_no_open_call("a message of the model")?;
                self.check_ready()?;
                Item::Assistant(self.with_valid_ids(message))
            }
            Item::ToolStarted(started) => {
                match self.open.get_mut(&started.call_id) {
                    Some(state @ CallState::Requested) => *state = CallState::Started,
                    Some(CallState::Started) => return Err(wrong_call("was already started")),
                    None => return Err(wrong_call("is not open, so it can't start")),
                }
                Item::ToolStarted(started)
            }
            Item::ToolResult(result) => {
                if self.open.remove(&result.call_id).is_none() {
                    return Err(wrong_call("is not open, so it can't get a result"));
                }
                Item::ToolResult(result)
            }
        };
        self.items.push(item);
        Ok(())
    }

    /// Appends a message of the user.
    ///
    /// # Errors
    ///
    /// As for [`append`](Self::append).
    pub fn push_user(&mut self, text: impl Into<String>) -> Result<(), Error> {
        let text = text.into();
        self.append(Item::User(UserMessage { text }))
    }

    /// Appends a message of the model. [`open_calls`](Self::open_calls) then has its calls.
    ///
    /// # Errors
    ///
    /// As for [`append`](Self::append).
    pub fn push_assistant(&mut self, message: AssistantMessage) -> Result<(), Error> {
        self.append(Item::Assistant(message))
    }

    /// Appends the intent to run the tool of a call. Save it before the tool runs.
    ///
    /// # Errors
    ///
    /// As for [`append`](Self::append).
    pub fn push_started(&mut self, call_id: impl Into<String>) -> Result<(), Error> {
        let call_id = call_id.into();
        let change = None;
        self.append(Item::ToolStarted(ToolStarted { call_id, change }))
    }

    /// Appends the result of a call.
    ///
    /// # Errors
    ///
    /// As for [`append`](Self::append).
    pub fn push_result(&mut self, result: ToolResult) -> Result<(), Error> {
        self.append(Item::ToolResult(result))
    }

    /// Returns the calls without a result, in the order of the model.
    pub fn open_calls(&self) -> impl Iterator<Item = (&ToolCall, CallState)> {
        let last = self.items.iter().rev().find_map(|item| match item {
            Item::Assistant(message) => Some(message),
            _ => None,
        });
        let calls = last.into_iter().flat_map(AssistantMessage::calls);
        calls.filter_map(|call| Some((call, *self.open.get(&call.id)?)))
    }

    /// Gives each open call the result "interrupted by the user", so that the next message of the user can follow. The result of a call with a saved intent says
    /// that it may have had its effect.
    pub fn close_calls_after_interrupt(&mut self) {
        self.close_open_calls(|id, state| match state {
            CallState::Started => ToolResult::interrupted_in_run(id),
            CallState::Requested => ToolResult::interrupted(id),
        });
    }

    /// Gives each open call a result after a crash: a call with a saved intent has an unknown outcome, and any other call was not run.
    ///
    /// Before this, a caller can run again the open calls of read-only tools, and append their results.
    pub fn close_calls_after_crash(&mut self) {
        self.close_open_calls(|id, state| match state {
            CallState::Started => ToolResult::unknown(id),
            CallState::Requested => ToolResult::not_run(id),
        });
    }

    /// Checks that the model may be called now.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::History`](crate::ErrorKind::History) if a call has no result, or if the last item needs no response.
    pub fn check_ready(&self) -> Result<(), Error> {
        self.check_no_open_call("a model call")?;
        match self.items.last() {
            Some(Item::User(_) | Item::ToolResult(_) | Item::Summary(_)) => Ok(()),
            Some(Item::Assistant(_) | Item::ToolStarted(_)) | None => Err(Error::history(
                "there is no message for the model; append a user message",
            )),
        }
    }

    fn close_open_calls(&mut self, result: impl Fn(String, CallState) -> ToolResult) {
        let results: Vec<ToolResult> = { self.open_calls() }
            .map(|(call, state)| result(call.id.clone(), state))
            .collect();
        for result in results {
            self.open.remove(&result.call_id);
            self.items.push(Item::ToolResult(result));
        }
    }

    fn check_no_open_call(&self, what: &str) -> Result<(), Error> {
        match self.open.len() {
            0 => Ok(()),
            open => Err(Error::history(format!(
                "{what} must wait: {open} of the last tool calls have no result"
            ))),
        }
    }

    /// Registers the calls of a message, with ids that are valid and unique.
    fn with_valid_ids(&mut self, mut message: AssistantMessage) -> AssistantMessage {
        let at = self.items.len();
        let mut number = 0_usize;
        for part in &mut message.parts {
            let AssistantPart::ToolCall(call) = part else {
                continue;
            };
            while !is_valid_id(&call.id) || self.ids.contains(&call.id) {
                call.id = format!("call_{at}_{number}");
                number += 1;
            }
            self.ids.insert(call.id.clone());
            self.open.insert(call.id.clone(), CallState::Requested);
        }
        message
    }
}

fn is_valid_id(id: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=MAX_ID).contains(&id.len()) && id.bytes().all(is_valid)
}

fn wrong_call(why: &str) -> Error {
    Error::history(format!("the tool call {why}"))
}
