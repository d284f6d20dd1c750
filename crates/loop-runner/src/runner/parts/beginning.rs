//! With what a saved run goes on.

use loop_state::{Happening, Head, MAX_STEER_BYTES, MAX_STEERS, Resume};
use rlm_store::{Project, RunHead, Settings, loss, transcript};

use crate::Error;

/// Returns with what a saved run goes on, by other settings if there are any; these are put in place of its own.
pub(crate) fn first(
    project: &Project,
    saved: &mut RunHead,
    settings: Option<Settings>,
    from: Option<u32>,
    attended: bool,
) -> Result<Happening, Error> {
    let (mut rules, mut predecessor) = (None, None);
    if let Some(settings) = settings {
        predecessor = handed_over(saved, &settings);
        settings.check_rules()?;
        let names = |settings: &Settings| -> Vec<_> {
            let phases = settings.phases.iter();
            phases
                .map(|it| (it.name.clone(), it.prompt.clone()))
                .collect()
        };
        if names(&settings) != names(&saved.settings) {
            settings.validate()?;
        }
        rules = Some(settings.rules());
        saved.settings = settings;
    }
    if saved.machine.counts.processes == 0 {
        // Its process ended before it began.
        saved.machine = Head::new(saved.settings.rules()).map_err(rlm_store::Error::rules)?;
        return Ok(Happening::Started);
    }
    let run_dir = project.run_dir(&saved.run);
    Ok(Happening::Resumed(Resume {
        rules,
        from,
        used_attempts: transcript::unknown(&run_dir, &saved.machine)
            .iter()
            .map(|(_, attempt)| *attempt)
            .max(),
        reached: loss::reached(&run_dir, &saved.machine),
        predecessor,
        attended,
        feedback: None,
    }))
}

/// Has a run that is taken up again begin with what a person says.
pub(crate) fn with_feedback(first: &mut Happening, head: &Head, text: String) -> Result<(), Error> {
    let waiting: usize = head.steers.iter().map(|steer| steer.text.len()).sum();
    let refusal = match first {
        _ if text.trim().is_empty() => "it is empty",
        _ if head.steers.len() >= MAX_STEERS || waiting + text.len() > MAX_STEER_BYTES => {
            "it is too much at once; put it into a file, and name that"
        }
        Happening::Resumed(resume) => {
            resume.feedback = Some(text);
            return Ok(());
        }
        _ => "the run has not begun yet; put it into the prompt",
    };
    Err(Error::feedback(refusal))
}

/// Returns the agent that has the phase at which the run stands, if `settings` give it to another one.
fn handed_over(saved: &RunHead, settings: &Settings) -> Option<String> {
    let at = saved.machine.phase as usize;
    let before = &saved.settings.phases.get(at)?.agent;
    let other = !settings.phases.get(at)?.agent.is_same(before);
    other.then(|| before.name().to_owned())
}
