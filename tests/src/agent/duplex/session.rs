//! The stored session of a fake agent, so that a later process can resume it.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fs_err as fs;
use serde::{Deserialize, Serialize};

/// One entry of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionEntry {
    /// Its working directory: a session is found only from the directory in which it began.
    Place(String),
    /// A message of a person.
    User(String),
    /// A text of the agent, whole or interrupted.
    Agent(String),
    /// A result of a tool.
    Tool(String),
    /// The note of an interrupt.
    Marker(String),
    /// The cost so far, written only at an orderly end.
    Cost(u64),
}

/// The current state of a session.
#[derive(Debug)]
pub(in crate::agent) struct Session {
    pub(in crate::agent) id: String,
    path: PathBuf,
    memories: Vec<SessionEntry>,
}

impl Session {
    pub(in crate::agent) fn new(record: &Path, id: &str) -> Self {
        let path = path(record, id);
        Self {
            memories: read(&path),
            path,
            id: id.into(),
        }
    }

    /// Whether this working directory has a session to resume.
    pub(in crate::agent) fn is_known(&self) -> bool {
        self.memories.first() == Some(&SessionEntry::Place(here()))
    }

    /// Whether its id has been used.
    pub(in crate::agent) fn is_used(&self) -> bool {
        !self.memories.is_empty()
    }

    /// Returns the cost so far in millionths of a dollar; 0 after a crash.
    pub(in crate::agent) fn cost(&self) -> u64 {
        match self.memories.last() {
            Some(SessionEntry::Cost(cost)) => *cost,
            _ => 0,
        }
    }

    /// Returns all messages of persons.
    pub(in crate::agent) fn messages(&self) -> Vec<&str> {
        let mut told = Vec::new();
        for memory in &self.memories {
            if let SessionEntry::User(text) = memory {
                told.push(text.as_str());
            }
        }
        told
    }

    pub(in crate::agent) fn remember(&mut self, memory: SessionEntry) -> io::Result<()> {
        if self.memories.is_empty() {
            self.write(SessionEntry::Place(here()))?;
        }
        self.write(memory)
    }

    fn write(&mut self, memory: SessionEntry) -> io::Result<()> {
        fs::create_dir_all(self.path.parent().expect("the file is in a directory"))?;
        let mut file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)?;
        file.write_all(format!("{}\n", serde_json::to_string(&memory)?).as_bytes())?;
        self.memories.push(memory);
        Ok(())
    }
}

/// Returns the entries of the session with this id.
pub(in crate::agent) fn memories(record: &Path, id: &str) -> Vec<SessionEntry> {
    read(&path(record, id))
}

fn path(record: &Path, id: &str) -> PathBuf {
    record.join("sessions").join(format!("{id}.ndjson"))
}

fn read(path: &Path) -> Vec<SessionEntry> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn here() -> String {
    std::env::current_dir().map_or_else(|_| String::new(), |path| path.display().to_string())
}
