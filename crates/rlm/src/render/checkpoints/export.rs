//! What `rlm checkpoints export` says when it is done: where the run is now, and how it goes on elsewhere.

use std::fmt;
use std::path::Path;

use rlm_store::moving::Exported;
use rlm_text::escape::plain;
use serde::Serialize;

use super::units::size;
use crate::hint::quoted;
use crate::hint::rlm;

/// A run that was exported; the text and the JSON say the same.
#[derive(Debug, Serialize)]
pub(crate) struct Export {
    run: String,
    /// `null` for standard output.
    file: Option<String>,
    bytes: u64,
    /// Whether the run is sealed here.
    moved: bool,
    git_commit: Option<String>,
    branch: Option<String>,
    notes: Vec<String>,
    /// The command for the other machine.
    next: String,
}

impl Export {
    pub(crate) fn of(exported: &Exported, file: Option<&Path>) -> Self {
        let file = file.map(|file| file.display().to_string());
        let name = file.as_deref().map_or_else(|| "-".into(), quoted);
        Self {
            run: exported.run.to_string(),
            bytes: exported.bytes,
            moved: !exported.copy,
            git_commit: exported.commit.clone(),
            branch: exported.branch.clone(),
            notes: exported.notes.clone(),
            next: format!("rlm checkpoints import {name}"),
            file,
        }
    }
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = plain(&self.run);
        let file = self.file.as_deref().unwrap_or("standard output");
        writeln!(f, "run {run} is in {}, {}", plain(file), size(self.bytes))?;
        if let Some(commit) = &self.git_commit {
            let short = commit.get(..12).unwrap_or(commit);
            let branch = self.branch.as_deref().unwrap_or("no branch");
            writeln!(f, "  git     {short}, {}", plain(branch))?;
        }
        for note in &self.notes {
            writeln!(f, "  note    {}", plain(note))?;
        }
        match self.moved {
            true => writeln!(
                f,
                "  here    sealed as moved; to go on here all the same: {} resume {run} --force",
                rlm()
            )?,
            false => writeln!(
                f,
                "  here    it goes on as it was; the copy gets another name"
            )?,
        }
        write!(f, "  next: on the other machine: {}", plain(&self.next))
    }
}
