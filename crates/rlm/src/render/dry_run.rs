//! What a run would do, for `rlm run --dry-run`.

use std::fmt;

use loop_runner::{Project, RunHead};
use serde::Serialize;
use serde_json::Value;

use crate::render::banner::{self, Beginning};
use crate::render::text::{plain, safe};
use crate::render::{BOLD, Configuration, DIM, styled};

/// A run that does not begin.
#[derive(Debug, Serialize)]
pub(crate) struct DryRun {
    event: &'static str,
    run: String,
    directory: String,
    #[serde(skip)]
    banner: Vec<String>,
    settings: Value,
    /// The same, as `rlm config show` has it.
    #[serde(skip)]
    said: Configuration,
    prompts: Vec<Prompt>,
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
        said: Configuration,
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
            banner: banner::lines(&Beginning::new(Vec::new()), project, head, false, false),
            settings: banner::settings(head),
            said,
            prompts: prompts.collect(),
        }
    }
}

impl fmt::Display for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = "dry run: nothing is made and nothing is started";
        writeln!(f, "{}", styled(BOLD, title))?;
        for line in &self.banner {
            writeln!(f, "{}", styled(DIM, line))?;
        }
        writeln!(f, "\n{}", styled(BOLD, "settings"))?;
        write!(f, "{}", self.said)?;
        for prompt in &self.prompts {
            let title = format!("prompt of phase {}, iteration 1", plain(&prompt.phase));
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
