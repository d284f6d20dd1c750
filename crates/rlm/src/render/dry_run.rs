//! The output of a dry run.

use std::fmt;
use std::time::Duration;

use jiff::tz::TimeZone;
use loop_runner::{ResumePreview, RunEvent};
use rlm_store::{Program, Project, RunHead};
use rlm_terminal::style::{BOLD, DIM, styled};
use rlm_text::escape::{plain, safe};
use rlm_text::{bytes, duration};
use serde::Serialize;
use serde_json::Value;

use crate::render::banner::{self, Control, RunStart};
use crate::render::event;
use crate::render::programs::{self, visible};
use crate::render::{Configuration, RedoQuestion};

/// A run that doesn't start.
#[derive(Debug, Serialize)]
pub(crate) struct DryRun {
    event: &'static str,
    run: String,
    directory: String,
    #[serde(skip)]
    banner: Vec<String>,
    settings: Value,
    /// All programs that it would start.
    programs: Vec<Program>,
    /// The settings, as `rlm config show` prints them.
    #[serde(skip)]
    configuration: Option<Configuration>,
    /// The save from which it would continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    save: Option<u64>,
    /// The first steps, as text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    next: Vec<String>,
    prompts: Vec<Prompt>,
    /// The assumption on which the prompt is based, or the reason why there is no prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
    #[serde(skip)]
    iteration: u32,
}

#[derive(Debug, Serialize)]
struct Prompt {
    phase: String,
    text: String,
}

impl DryRun {
    pub(crate) fn of(
        project: &Project,
        head: &RunHead,
        configuration: Configuration,
        programs: Vec<Program>,
        prompts: Vec<String>,
    ) -> Self {
        let phases = head.settings.phases.iter();
        let prompts = phases.zip(prompts).map(|(phase, text)| Prompt {
            phase: phase.name.clone(),
            text,
        });
        Self {
            event: "dry_run",
            run: head.run.to_string(),
            directory: head.settings.directory.display().to_string(),
            banner: banner::lines(&RunStart::new(Vec::new()), project, head, Control::DryRun),
            settings: banner::settings(head),
            programs,
            configuration: Some(configuration),
            save: None,
            next: Vec::new(),
            prompts: prompts.collect(),
            unknown: None,
            iteration: 1,
        }
    }

    /// Creates the dry run of a resume.
    pub(crate) fn resumed(
        project: &Project,
        would: &ResumePreview,
        beginning: &RunStart,
        programs: Vec<Program>,
        asks: Option<&RedoQuestion>,
    ) -> Self {
        let zone = TimeZone::system();
        let phase = |at: u32| &would.head.settings.phases[at as usize];
        let notices = would.updates.iter().cloned();
        let notices = notices
            .map(|notice| event::text(&RunEvent::Update(notice), &zone))
            .map(|text| plain(&anstream::adapter::strip_str(&text).to_string()));
        let question = asks.map(|redo| plain(&redo.next()));
        let mut next: Vec<String> = question.into_iter().chain(notices).collect();
        if let Some(gate) = would.required_check {
            let text = &phase(would.phase).required_checks[gate as usize];
            next.push(format!(
                "required check {} runs: {}",
                gate + 1,
                visible(text)
            ));
        }
        if let (true, Some(text)) = (would.check, &phase(would.phase).check) {
            next.push(format!("the check runs: {}", visible(text)));
        }
        let warnings = would.warnings.iter();
        next.extend(warnings.map(|warning| format!("warning: {}", plain(warning))));
        let unknown = would.unknown.as_deref();
        let unknown = match (&would.prompt, unknown) {
            (Some(_), Some(assumed)) => Some(format!(
                "the prompt below assumes that {assumed}; the output of that command is not known before it runs"
            )),
            (None, Some(why)) => Some(format!("no next prompt: {why}")),
            (_, None) => None,
        };
        next.extend(unknown.as_deref().map(plain));
        let prompt = would.prompt.iter().map(|text| Prompt {
            phase: phase(would.phase).name.clone(),
            text: text.clone(),
        });
        Self {
            event: "dry_run",
            run: would.head.run.to_string(),
            directory: would.head.settings.directory.display().to_string(),
            banner: banner::lines(beginning, project, &would.head, Control::DryRun),
            settings: banner::settings(&would.head),
            programs,
            configuration: None,
            save: Some(would.save),
            next,
            prompts: prompt.collect(),
            unknown,
            iteration: would.prompt_iteration,
        }
    }
}

impl fmt::Display for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = match self.save {
            None => "dry run: nothing is created or started".to_owned(),
            Some(save) => {
                format!("dry run: nothing is changed or started; from save {save}")
            }
        };
        writeln!(f, "{}", styled(BOLD, title))?;
        for line in &self.banner {
            writeln!(f, "{}", styled(DIM, line))?;
        }
        if !self.next.is_empty() {
            writeln!(f, "\n{}", styled(BOLD, "first steps"))?;
        }
        for line in &self.next {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "\n{}", styled(BOLD, "programs"))?;
        for line in programs::lines(&self.programs) {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "\n{}", styled(BOLD, "settings"))?;
        match &self.configuration {
            Some(configuration) => write!(f, "{configuration}")?,
            None => show(f, &self.settings)?,
        }
        for prompt in &self.prompts {
            let (phase, iteration) = (plain(&prompt.phase), self.iteration);
            let title = format!("prompt of phase {phase}, iteration {iteration}");
            write!(
                f,
                "\n{}\n{}\n",
                styled(BOLD, title),
                safe(prompt.text.trim_end())
            )?;
        }
        Ok(())
    }
}

/// Writes the saved settings of the current phase and of the run, with the keys of `rlm.toml`. The other parts of the output have the rest: the
/// other phases, the agent, the prompt and the programs.
fn show(f: &mut fmt::Formatter<'_>, settings: &Value) -> fmt::Result {
    const ELSEWHERE: [&str; 7] = [
        "agent",
        "first_check",
        "mcp_servers",
        "name",
        "phases",
        "prompt",
        "title",
    ];
    for (key, value) in settings.as_object().into_iter().flatten() {
        let text = match value {
            Value::Null | Value::Object(_) => continue,
            Value::Array(all) if all.is_empty() => continue,
            Value::Array(all) => all.iter().map(word).collect::<Vec<_>>().join(", "),
            value => word(value),
        };
        if ELSEWHERE.contains(&key.as_str()) {
            continue;
        }
        let (key, text) = match (key.strip_suffix("_ms"), value.as_u64()) {
            (Some(key), Some(millis)) => (key, duration::show(Duration::from_millis(millis))),
            (None, Some(count)) if key == "max_transcripts" => (key.as_str(), bytes::show(count)),
            _ => (key.strip_suffix("_usd").unwrap_or(key), text),
        };
        writeln!(f, "{:<24} {}", key.replace('_', "-"), plain(&text))?;
    }
    Ok(())
}

/// Returns a value as a person writes it.
fn word(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
