//! What `rlm checkpoints import` says when it is done: what a resume would run, and what it needs that is not here.

use std::fmt;

use rlm_store::Program;
use rlm_store::moving::{Arrival, Imported};
use rlm_terminal::style::{MIND, styled};
use rlm_text::escape::plain;
use serde::Serialize;

use crate::hint::go_further;
use crate::hint::rlm;
use crate::render::programs::line;

/// A run that was imported; the text and the JSON say the same.
#[derive(Debug, Serialize)]
pub(crate) struct Import {
    run: String,
    /// The run that it is a copy of.
    copy_of: Option<String>,
    arrival: Arrival,
    directory: String,
    git_commit: Option<String>,
    branch: Option<String>,
    /// All that a resume starts.
    programs: Vec<Program>,
    /// What a new run in the same place would start besides, because the `rlm.toml` there names it.
    programs_of_file: Vec<Program>,
    /// What it needs and is not here.
    missing: Vec<String>,
    notes: Vec<String>,
    next: String,
    #[serde(skip)]
    is_over: bool,
}

impl Import {
    pub(crate) fn of(
        imported: &Imported,
        programs: Vec<Program>,
        programs_of_file: Vec<Program>,
        unread: Option<String>,
    ) -> Self {
        let head = &imported.head;
        let end = head.machine.end.as_ref().map(|end| &end.reason);
        let next = match end {
            Some(reason) => go_further(&head.run, reason),
            None => Some(format!("{} resume {}", rlm(), head.run)),
        };
        Self {
            run: head.run.to_string(),
            copy_of: imported.copy.then(|| imported.from.to_string()),
            arrival: imported.arrival,
            directory: head.settings.directory.display().to_string(),
            git_commit: head.git_commit.clone(),
            branch: imported.branch.clone(),
            programs,
            programs_of_file,
            missing: imported.missing.clone(),
            notes: imported.notes.iter().cloned().chain(unread).collect(),
            is_over: next.is_none(),
            next: next.unwrap_or_else(|| "nothing: it is over".into()),
        }
    }
}

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let where_it_is = match self.arrival {
            Arrival::Made => "a repository that was made for it",
            Arrival::InPlace => "the working tree as it stood",
            Arrival::Worktree => "a working tree of its own",
            Arrival::None => "this directory",
        };
        write!(f, "run {}", plain(&self.run))?;
        if let Some(other) = &self.copy_of {
            write!(f, ", a copy of {},", plain(other))?;
        }
        writeln!(f, " is here, in {where_it_is}")?;
        let branch = self.branch.as_deref();
        let branch = branch.map_or_else(String::new, |it| format!(", branch {}", plain(it)));
        writeln!(f, "  in      {}{branch}", plain(&self.directory))?;
        for program in &self.programs {
            writeln!(f, "  starts  {}", line(program))?;
        }
        for program in &self.programs_of_file {
            writeln!(f, "  new run {}", line(program))?;
        }
        for missing in &self.missing {
            writeln!(f, "  {} {}", styled(MIND, "missing"), plain(missing))?;
        }
        for note in &self.notes {
            writeln!(f, "  note    {}", plain(note))?;
        }
        let look = match self.is_over {
            true => "",
            false => "look at what it starts, then: ",
        };
        write!(f, "  next: {look}{}", plain(&self.next))
    }
}
