//! A run before it begins, or before it is taken up again: its state, and what its next attempt would be told.

use loop_state::{Brief, Command, Head, NoAttempt, Notice};
use rlm_store::{Loss, Place, Project, PromptSource, RunHead, RunId, Settings, runs};

use crate::clock::Clock;
use crate::runner::Runner;
use crate::runner::parts::beginning;
use crate::{Error, prompt};

/// What stands in a prompt for the output of a command that didn't run.
const NOT_RUN_YET: &str = "(its output is known only when it has run)";

/// What a resume would begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resumption {
    /// What is saved, with the settings that would hold.
    pub head: RunHead,
    /// The number of the save from which it would go on.
    pub save: u64,
    /// The notices of the first moment, in order: what an attempt is begun for, what is waited for, why it ends at once.
    pub notices: Vec<Notice>,
    /// The index of the phase in which it would go on, and the number of the iteration.
    pub phase: u32,
    /// See [`phase`](Self::phase).
    pub iteration: u32,
    /// The gate, by its index, with which it would go on.
    pub gate: Option<u32>,
    /// Whether it would go on with the check.
    pub check: bool,
    /// What the next attempt would be told, if one begins.
    pub prompt: Option<String>,
    /// The number of the iteration of that attempt.
    pub prompt_iteration: u32,
    /// What is assumed for that prompt, or why there is none; `None` where the next attempt begins at once.
    pub unknown: Option<String>,
    /// What it would warn of.
    pub warnings: Vec<String>,
}

impl Runner {
    /// Returns the state that a new run would begin with, and for each of its phases what its first attempt would be told.
    ///
    /// Reads the prompt files and asks git, as [`create`](Self::create) does; makes, starts and locks nothing. A later phase is also told what came
    /// of the one before it, which is not there yet.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), but for what taking the working tree and saving come to.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future leaves nothing behind.
    pub async fn preview(
        project: &Project,
        run: RunId,
        settings: Settings,
    ) -> Result<(RunHead, Vec<String>), Error> {
        let machine = Head::new(settings.rules()).map_err(rlm_store::Error::rules)?;
        settings.check_names()?;
        if runs::exists(project, &run) {
            return Err(rlm_store::Error::run_exists(run).into());
        }
        Self::refuse_unfit(project, &settings).await?;
        let texts = beginning::first_prompts(&run, &settings)?;
        let mut told = Vec::new();
        for (phase, text) in settings.phases.iter().zip(texts) {
            let brief = Brief {
                phase: 0,
                iteration: 1,
                attempt: 1,
                cut: None,
                feedback: None,
                steers: Vec::new(),
                result: None,
                predecessor: None,
                session: None,
                prompted: false,
            };
            told.push(prompt::compose(&brief, phase, None, &text, None));
        }
        Ok((RunHead::new(run, machine, settings), told))
    }

    /// Returns what taking up a saved run would come to, by the same arguments as [`open`](Self::open) and
    /// [`with_feedback`](Self::with_feedback).
    ///
    /// Reads what is saved and the prompt files and asks git; makes, changes, starts and locks nothing.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), but for what taking the working tree and saving come to.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future leaves nothing behind.
    pub async fn rehearse(
        project: &Project,
        run: &RunId,
        settings: Option<Settings>,
        from: Option<u32>,
        feedback: Option<String>,
        attended: bool,
    ) -> Result<Resumption, Error> {
        let state = project.state_at(run, Place::Newest)?;
        let mut saved = state.head;
        let unsaid = Self::refuse_unfit_again(project, &mut saved, settings.as_ref()).await?;
        let mut first = beginning::first(project, &mut saved, settings, from, attended)?;
        if let Some(text) = feedback {
            beginning::with_feedback(&mut first, &saved.machine, text)?;
        }
        let run_dir = project.run_dir(run);
        let lost = Loss::of(&run_dir, &saved.machine, state.save, &state.report);
        let lost = lost.map(|loss| format!("the state is damaged: {loss}"));
        let mut found = Resumption {
            save: state.save.get(),
            notices: Vec::new(),
            phase: 0,
            iteration: 0,
            gate: None,
            check: false,
            prompt: None,
            prompt_iteration: 0,
            unknown: None,
            warnings: lost.into_iter().chain(unsaid).collect(),
            head: saved,
        };
        let head = &found.head.machine;
        let rehearsed = head.rehearse(first, NOT_RUN_YET, Clock::default().now());
        found.notices = rehearsed.notices;
        (found.phase, found.iteration) = (rehearsed.phase, rehearsed.iteration);
        let assumed = rehearsed.command.map(|command| match command {
            Command::Gate(index) => format!("gate {} fails", index + 1),
            Command::Check => "the check fails".to_owned(),
        });
        match rehearsed.command {
            Some(Command::Gate(index)) => found.gate = Some(index),
            Some(Command::Check) => found.check = true,
            None => {}
        }
        let brief = match rehearsed.next {
            Ok(brief) => brief,
            Err(why) => {
                found.unknown = Some(no_prompt(&why, assumed));
                return Ok(found);
            }
        };
        found.unknown = assumed;
        let at = brief.phase as usize;
        let phases = &found.head.settings.phases;
        let before = at.checked_sub(1).map(|it| phases[it].name.as_str());
        let text = text(project, &found.head, at)?;
        let changed = match brief.cut {
            Some(_) => project.git().changed().await,
            None => None,
        };
        let told = prompt::compose(&brief, &phases[at], before, &text, changed.as_deref());
        found.prompt = Some(told);
        found.prompt_iteration = brief.iteration;
        Ok(found)
    }
}

/// Says why no next prompt is known.
fn no_prompt(why: &NoAttempt, assumed: Option<String>) -> String {
    let why = match why {
        NoAttempt::Ends(reason) => format!("the run ends: {reason}"),
        NoAttempt::Review => "it waits for your review".to_owned(),
        NoAttempt::Paused => "it is paused".to_owned(),
        NoAttempt::Waiting => "it waits for the service of its agent".to_owned(),
        _ => "it depends on what comes before".to_owned(),
    };
    match assumed {
        Some(assumed) => format!("also if {assumed}: {why}"),
        None => why,
    }
}

/// Returns what the prompt of a phase says now.
fn text(project: &Project, saved: &RunHead, at: usize) -> Result<String, Error> {
    let now = match &saved.settings.phases[at].prompt {
        PromptSource::Text(text) => return Ok(text.clone()),
        PromptSource::File(path) => rlm_store::read_prompt(path).ok(),
        PromptSource::Kept(_) => None,
    };
    match now {
        Some(text) => Ok(text),
        None => Ok(project.prompts(saved)?.swap_remove(at)),
    }
}
