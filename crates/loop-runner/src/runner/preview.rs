//! Shows how a run would begin or resume: its state, and the prompt of its next attempt.

use loop_state::{Head, LoopCommand, NoAttempt, PromptContext, RunUpdate};
use rlm_store::{DataLoss, Project, PromptSource, RunHead, RunId, Settings, StateSelector, runs};

use crate::clock::Clock;
use crate::runner::Runner;
use crate::runner::parts::first_input;
use crate::{Error, prompt};

/// The text in a prompt in place of the output of a command that didn't run.
const OUTPUT_PLACEHOLDER: &str = "(the output is not known before the command runs)";

/// The first step of a resume, as a preview.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResumePreview {
    /// The saved state, with the settings that would apply.
    pub head: RunHead,
    /// The number of the save from which the run would continue.
    pub save: u64,
    /// The run updates of the first step, in order: why an attempt begins, what the run waits for, or why it ends at once.
    pub updates: Vec<RunUpdate>,
    /// The index of the phase that would continue, and the number of the iteration.
    pub phase: u32,
    /// See [`phase`](Self::phase).
    pub iteration: u32,
    /// The index of the required check that would run first, if any.
    pub required_check: Option<u32>,
    /// Whether the check would run first.
    pub check: bool,
    /// The prompt of the next attempt, if one begins.
    pub prompt: Option<String>,
    /// The number of the iteration of that attempt.
    pub prompt_iteration: u32,
    /// The assumption behind that prompt, or the reason why there is no prompt; `None` if the next attempt begins at once.
    pub unknown: Option<String>,
    /// The warnings of a resume.
    pub warnings: Vec<String>,
}

impl Runner {
    /// Returns the state of a new run at its beginning, and for each phase the prompt of its first attempt.
    ///
    /// Reads the prompt files and runs git, as [`create`](Self::create) does; creates, starts and locks nothing. The prompt of a later phase will
    /// also contain the result of the phase before it, which doesn't exist yet.
    ///
    /// # Errors
    ///
    /// The errors of [`create`](Self::create), except those of locking the working tree and of saving.
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
        Self::refuse_uncommittable(project, &settings).await?;
        let texts = first_input::first_prompts(&run, &settings)?;
        let mut built = Vec::new();
        for (phase, text) in settings.phases.iter().zip(texts) {
            let brief = PromptContext {
                phase: 0,
                iteration: 1,
                attempt: 1,
                unfinished: None,
                feedback: None,
                steers: Vec::new(),
                result: None,
                previous_agent: None,
                session: None,
                new_session: None,
                has_prompt: false,
            };
            built.push(prompt::build_prompt(&brief, phase, None, &text, None));
        }
        Ok((RunHead::new(run, machine, settings), built))
    }

    /// Returns how a saved run would resume, with the same arguments as [`open`](Self::open) and [`with_feedback`](Self::with_feedback).
    ///
    /// Reads the saved state and the prompt files and runs git; creates, changes, starts and locks nothing.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open), except those of locking the working tree and of saving.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: dropping the future leaves nothing behind.
    pub async fn preview_resume(
        project: &Project,
        run: &RunId,
        settings: Option<Settings>,
        from: Option<u32>,
        feedback: Option<String>,
        attended: bool,
    ) -> Result<ResumePreview, Error> {
        let state = project.state_at(run, StateSelector::Newest)?;
        let mut saved = state.head;
        let uncommitted =
            Self::refuse_uncommittable_resume(project, &mut saved, settings.as_ref()).await?;
        let mut first = first_input::first(project, &mut saved, settings, from, attended)?;
        if let Some(text) = feedback {
            first_input::with_feedback(&mut first, &saved.machine, text)?;
        }
        let run_dir = project.run_dir(run);
        let lost = DataLoss::detect(&run_dir, &saved.machine, state.save, &state.report);
        let lost = lost.map(|loss| format!("the state is damaged: {loss}"));
        let mut found = ResumePreview {
            save: state.save.get(),
            updates: Vec::new(),
            phase: 0,
            iteration: 0,
            required_check: None,
            check: false,
            prompt: None,
            prompt_iteration: 0,
            unknown: None,
            warnings: lost.into_iter().chain(uncommitted).collect(),
            head: saved,
        };
        let head = &found.head.machine;
        let rehearsed = head.rehearse(first, OUTPUT_PLACEHOLDER, Clock::default().now());
        found.updates = rehearsed.updates;
        (found.phase, found.iteration) = (rehearsed.phase, rehearsed.iteration);
        let assumed = rehearsed.command.map(|command| match command {
            LoopCommand::RequiredCheck(index) => format!("required check {} fails", index + 1),
            LoopCommand::Check => "the check fails".to_owned(),
        });
        match rehearsed.command {
            Some(LoopCommand::RequiredCheck(index)) => found.required_check = Some(index),
            Some(LoopCommand::Check) => found.check = true,
            None => {}
        }
        let brief = match rehearsed.next {
            Ok(brief) => brief,
            Err(why) => {
                found.unknown = Some(why_no_prompt(&why, assumed));
                return Ok(found);
            }
        };
        found.unknown = assumed;
        let at = brief.phase as usize;
        let phases = &found.head.settings.phases;
        let before = at.checked_sub(1).map(|it| phases[it].name.as_str());
        let text = text(project, &found.head, at)?;
        let changed = match brief.unfinished {
            Some(_) => project.git().changed().await,
            None => None,
        };
        let built = prompt::build_prompt(&brief, &phases[at], before, &text, changed.as_deref());
        found.prompt = Some(built);
        found.prompt_iteration = brief.iteration;
        Ok(found)
    }
}

/// Returns why the next prompt is not known.
fn why_no_prompt(why: &NoAttempt, assumed: Option<String>) -> String {
    let why = match why {
        NoAttempt::Ends(reason) => format!("the run ends: {reason}"),
        NoAttempt::Review => "the run waits for your review".to_owned(),
        NoAttempt::Paused => "the run is paused".to_owned(),
        NoAttempt::Waiting => "the run waits for the service of its agent".to_owned(),
        _ => "the prompt depends on earlier results".to_owned(),
    };
    match assumed {
        Some(assumed) => format!("even if {assumed}: {why}"),
        None => why,
    }
}

/// Returns the current text of a phase's prompt.
fn text(project: &Project, saved: &RunHead, at: usize) -> Result<String, Error> {
    let now = match &saved.settings.phases[at].prompt {
        PromptSource::Text(text) => return Ok(text.clone()),
        PromptSource::File(path) => rlm_store::read_prompt(path).ok(),
        PromptSource::Stored(_) => None,
    };
    match now {
        Some(text) => Ok(text),
        None => Ok(project.prompts(saved)?.swap_remove(at)),
    }
}
