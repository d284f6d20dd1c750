//! The input of a caller, its receipt, and the message for a driver.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use uuid::Uuid;

use crate::{Capabilities, Capability, Error, TurnId};

/// The maximum number of parts of an input after its text.
const MAX_PARTS: usize = 20;

/// An input for the agent: a text, and possibly more [parts](Part) after it. A plain text converts into an input.
///
/// An input with parts is a message of its own: the conversation doesn't join it with other inputs. `send` refuses an
/// input with a part for which the driver has no [capability](Capability), with [`Error::is_unsupported`], and records nothing; the caller can send the
/// text alone. If the agent reports only after its start that it can't take the part, the conversation drops the input, with an event that names the
/// reason.
///
/// The conversation checks the file of a part, and reads an image, when the agent gets the input, not before. If that fails, the input is dropped, with an
/// event that names the reason, and [`Execution::refusal`](crate::Execution::refusal) returns it with [`Error::is_invalid`].
///
/// # Examples
///
/// ```
/// use agent_duplex::Input;
///
/// let input = Input::new("Which of the two is sharper?")
///     .with_image("first.png")
///     .with_text("or")
///     .with_image("second.png");
/// assert_eq!(input.parts.len(), 3);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Input {
    /// The caller's own id for this input. It need not be unique, but [`Conversation::accept`](crate::Conversation::accept) only delivers the first
    /// input with an id.
    pub id: String,
    /// The text.
    pub text: String,
    /// The parts that follow the text, in order; at most 20.
    pub parts: Vec<Part>,
    /// The turn that this input continues. `None` means the latest turn. The [`Assignment`](crate::Assignment) contains it, for a caller that stores a
    /// tree of turns. It does not choose the session of the agent: that happens at the start of the agent.
    pub parent: Option<TurnId>,
}

impl Input {
    /// Makes an input with a random id.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            id: Uuid::new_v4().to_string(),
            text: text.into(),
            parts: Vec::new(),
            parent: None,
        }
    }

    /// Returns this input with another id.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// Returns this input with one more text at its end.
    #[must_use]
    pub fn with_text(self, text: impl Into<String>) -> Self {
        self.with_part(Part::Text(text.into()))
    }

    /// Returns this input with an image at its end. A relative path is relative to the current directory of this program now.
    #[must_use]
    pub fn with_image(self, path: impl AsRef<Path>) -> Self {
        self.with_part(Part::Image(absolute(path.as_ref())))
    }

    /// Returns this input with a file at its end. A relative path is relative to the current directory of this program now.
    #[must_use]
    pub fn with_file(self, path: impl AsRef<Path>) -> Self {
        self.with_part(Part::File(absolute(path.as_ref())))
    }

    fn with_part(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Returns this input with the turn that it continues, in the text form of [`TurnId`]; an empty text means `None`.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid`] if it is not the number of a turn.
    pub fn continuing_turn(mut self, turn: &str) -> Result<Self, Error> {
        self.parent = match turn {
            "" => None,
            turn => Some(turn.parse()?),
        };
        Ok(self)
    }
}

impl From<&str> for Input {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<&String> for Input {
    fn from(text: &String) -> Self {
        Self::new(text)
    }
}

impl From<String> for Input {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// Returns the path from the root; the path itself if that is impossible, so that the later read reports the problem.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A part of an input, after its text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Part {
    /// A text. Every agent takes it.
    Text(String),
    /// The image in this file. Needs [`Capability::Images`].
    Image(PathBuf),
    /// This file: the agent gets a link to it, and reads it if it wants to. Needs [`Capability::Files`].
    File(PathBuf),
}

/// Returns an error if an agent with these capabilities can't take one of the parts.
pub(crate) fn check_parts(
    parts: &[Part],
    agent: &str,
    capabilities: Capabilities,
) -> Result<(), Error> {
    for part in parts {
        let (capability, what, hint) = match part {
            Part::Text(_) => continue,
            Part::Image(_) => (Capability::Images, "take images", "send only the text"),
            Part::File(_) => (
                Capability::Files,
                "take files",
                "send only the text, and write the path of the file in it",
            ),
        };
        if !capabilities.has(capability) {
            return Err(Error::unsupported(agent, what, hint));
        }
    }
    if parts.len() > MAX_PARTS {
        return Err(Error::invalid(format!(
            "an input has {} parts after its text, more than {MAX_PARTS}; send several inputs",
            parts.len()
        )));
    }
    Ok(())
}

/// Returns an error if a path can't be stored: a store contains texts.
pub(crate) fn check_storable(parts: &[Part]) -> Result<(), Error> {
    let paths = parts.iter().filter_map(|part| match part {
        Part::Text(_) => None,
        Part::Image(path) | Part::File(path) => Some(path),
    });
    match { paths }.find(|path| path.to_str().is_none()) {
        None => Ok(()),
        Some(path) => Err(Error::invalid(format!(
            "{} can't be stored, because its name is not UTF-8; rename it",
            path.display()
        ))),
    }
}

/// The proof that an input was accepted (not that the agent has read it).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// Unique for every acceptance, even if the id of the input repeats.
    pub id: Uuid,
    /// The id of the input.
    pub input_id: String,
    /// The time of the acceptance.
    pub at: SystemTime,
    /// Whether an earlier input has the same id, among the last 10,000. With [`send`](crate::Conversation::send) and
    /// [`execute`](crate::Conversation::execute) this is only information, and the input is delivered like any other. With
    /// [`accept`](crate::Conversation::accept) this is the receipt of the first input, and nothing is delivered.
    pub duplicate: bool,
    /// Whether the input is stored durably; otherwise it is only accepted in memory (so far).
    pub durable: bool,
}

impl Receipt {
    /// Makes the receipt of a stored input, for implementations of [`Persistence`](crate::Persistence).
    #[must_use]
    pub fn stored(id: Uuid, input_id: impl Into<String>, at: SystemTime, duplicate: bool) -> Self {
        Self {
            id,
            input_id: input_id.into(),
            at,
            duplicate,
            durable: true,
        }
    }
}

/// One input, or the texts of several, for a driver that sends them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// Unique. Agents that report the progress of a message use this id.
    pub id: Uuid,
    /// The text.
    pub text: String,
    /// The parts that follow the text. A conversation passes only parts whose [capability](Capability) the driver or its agent declares.
    pub parts: Vec<Part>,
    /// The callers' own [ids](Input::id) of the inputs.
    pub input_ids: Vec<String>,
}

impl Message {
    /// Makes a message with a random id.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            id: Uuid::new_v4(),
            text: text.into(),
            parts: Vec::new(),
            input_ids: Vec::new(),
        }
    }

    /// Returns this message with the ids of its inputs.
    #[must_use]
    pub fn with_input_ids(mut self, ids: Vec<String>) -> Self {
        self.input_ids = ids;
        self
    }

    /// Returns this message with another id.
    #[must_use]
    pub fn with_id(mut self, id: Uuid) -> Self {
        self.id = id;
        self
    }

    /// Checks, for a driver that is used without a conversation, that an agent with these capabilities can take the parts.
    ///
    /// # Errors
    ///
    /// [`Error::is_unsupported`] if it can't take one of them; [`Error::is_invalid`] if there are more than 20.
    pub fn check_parts(&self, agent: &str, capabilities: Capabilities) -> Result<(), Error> {
        check_parts(&self.parts, agent, capabilities)
    }
}

/// The treatment of waiting messages when the turn before them is interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueuedMessages {
    /// The agent answers them next.
    #[default]
    Keep,
    /// The agent forgets them.
    Drop,
}
