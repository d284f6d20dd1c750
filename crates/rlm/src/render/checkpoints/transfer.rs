//! The output of `rlm checkpoints export`, `import` and `fork`: the place of the run, its needs, and the next command.

use std::fmt;
use std::path::Path;

use rlm_store::transfer::{Exported, FilesLocation, Forked, Imported};
use rlm_store::{Program, Worktree};
use rlm_terminal::style::{WARNING_STYLE, styled};
use rlm_text::bytes::show as size;
use rlm_text::escape::plain;
use serde::Serialize;

use crate::hint::{extend_hint, program_command, quoted};
use crate::render::programs::line;

/// An exported run, for text and JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Export {
    run: String,
    /// `null` for standard output.
    file: Option<String>,
    bytes: u64,
    /// Whether the run was transferred, so that it ends here.
    transferred: bool,
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
            transferred: !exported.copy,
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
        match self.transferred {
            true => writeln!(
                f,
                "  here    transferred; to continue here instead: {} resume {run} --force",
                program_command()
            )?,
            false => writeln!(f, "  here    unchanged; the copy gets another run id")?,
        }
        write!(f, "  next: on the other machine: {}", plain(&self.next))
    }
}

/// An imported run, for text and JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Import {
    run: String,
    /// The run that it is a copy of.
    copy_of: Option<String>,
    arrival: FilesLocation,
    directory: String,
    git_commit: Option<String>,
    branch: Option<String>,
    /// All programs that a resume starts.
    programs: Vec<Program>,
    /// The other programs that a new run in the same place starts, because the `rlm.toml` there names them.
    programs_of_file: Vec<Program>,
    /// The programs that are missing on this machine.
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
            Some(reason) => extend_hint(&head.run, reason),
            None => Some(format!("{} resume {}", program_command(), head.run)),
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
            next: next.unwrap_or_else(|| "nothing: the run is finished".into()),
        }
    }
}

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let where_it_is = match self.arrival {
            FilesLocation::NewRepository => "a new repository",
            FilesLocation::WorkingTree => "the existing working tree",
            FilesLocation::Worktree => "its own worktree",
            FilesLocation::None => "this directory",
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
            writeln!(
                f,
                "  {} {}",
                styled(WARNING_STYLE, "missing"),
                plain(missing)
            )?;
        }
        for note in &self.notes {
            writeln!(f, "  note    {}", plain(note))?;
        }
        let look = match self.is_over {
            true => "",
            false => "check the programs above, then: ",
        };
        write!(f, "  next: {look}{}", plain(&self.next))
    }
}

/// A forked run, for text and JSON.
#[derive(Debug, Serialize)]
pub(crate) struct Fork {
    run: String,
    parent: String,
    phase: String,
    iteration: u32,
    /// The save of the parent run.
    save: u64,
    git_commit: String,
    worktree: Worktree,
    directory: String,
    notes: Vec<String>,
    next: String,
}

impl Fork {
    pub(crate) fn of(forked: &Forked) -> Self {
        let head = &forked.head;
        let parent = head.machine.parent.clone();
        let parent = parent.expect("a fork has a parent");
        // If the parent run ended at a limit, the fork needs a higher limit.
        let ended = forked.ended.as_ref();
        let more = ended.and_then(|reason| extend_hint(&head.run, reason));
        Self {
            run: head.run.to_string(),
            parent: parent.run,
            phase: forked.phase.clone(),
            iteration: parent.iteration,
            save: parent.seq,
            git_commit: forked.commit.clone(),
            worktree: forked.worktree.clone(),
            directory: head.settings.directory.display().to_string(),
            notes: forked.notes.clone(),
            next: more.unwrap_or_else(|| format!("{} resume {}", program_command(), head.run)),
        }
    }
}

impl fmt::Display for Fork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = self.git_commit.get(..12).unwrap_or(&self.git_commit);
        let tree = self.worktree.path.display().to_string();
        writeln!(
            f,
            "run {} continues after iteration {} of {} ({}), from commit {short}",
            plain(&self.run),
            self.iteration,
            plain(&self.parent),
            plain(&self.phase),
        )?;
        writeln!(
            f,
            "  tree    {}, branch {}",
            plain(&tree),
            plain(&self.worktree.branch)
        )?;
        for note in &self.notes {
            writeln!(f, "  note    {}", plain(note))?;
        }
        write!(f, "  next: {}", plain(&self.next))
    }
}
