//! The settings of a run and its prompts, saved so that a resume needs no other input.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_drivers::AgentConfig;
use agent_drivers::mcp::McpServers;
use agent_duplex::Permissions;
use loop_state::{Autonomy, PhaseLimits, PhaseRules, Rules, RunLimits, SessionPolicy};
use serde::{Deserialize, Serialize};

use crate::programs::{self, Program, ProgramKind};
use crate::{Error, Worktree, state_dir};

/// All settings of a run, saved with it, so that a resume needs no other input. [`Settings::new`] creates them with the defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The absolute directory in which the agent, the required checks and the check work.
    pub directory: PathBuf,
    /// A short name of the run, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The pipeline; at least one phase.
    pub phases: Vec<PhaseSettings>,
    /// The limits of the whole run. Every agent of a run with a budget must report the usage that the budget limits.
    pub limits: RunLimits,
    /// Where the run waits for a review. The default is between phases if there are several, and nowhere otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autonomy: Option<Autonomy>,
    /// Whether a new run starts with its required checks and its check; see [`Rules::first_check`]. The default is `false`.
    #[serde(default)]
    pub first_check: bool,
    /// Whether each ended iteration that changed something is committed to git, even a failed one.
    pub commit: bool,
    /// The run's own worktree; `None` if it works in the working tree of the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree: Option<Worktree>,
    /// How the run handles leftovers.
    pub leftovers: Leftovers,
    /// The largest number of bytes on disk for the transcripts, without the newest eight; 2 GB by default. Above this, the run reduces the oldest
    /// transcripts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_transcripts: Option<u64>,
}

/// How a run handles processes that are alive after their attempt ended normally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Leftovers {
    /// The run ends and names them before the next attempt.
    #[default]
    End,
    /// The run retains them until its end, those of the last eight attempts at most.
    #[serde(rename = "keep")]
    Retain,
}

/// The settings of one phase. [`PhaseSettings::new`] creates them with the defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseSettings {
    /// The name of the phase.
    pub name: String,
    /// The source of the prompt.
    pub prompt: PromptSource,
    /// The agent.
    pub agent: AgentConfig,
    /// The permissions of the agent. Ignored for a command.
    pub permissions: Permissions,
    /// The MCP servers of the agent.
    #[serde(default, skip_serializing_if = "McpServers::is_empty")]
    pub mcp_servers: McpServers,
    /// The session that each iteration gets.
    pub session: SessionPolicy,
    /// The completion promise.
    pub promise: Option<String>,
    /// The required checks: commands for `sh -c` that must pass before an iteration counts.
    pub required_checks: Vec<String>,
    /// The check: the command for `sh -c` that decides whether the phase is finished.
    pub check: Option<String>,
    /// How long the run waits after the turn for the agent's background tasks. The time counts from their last report: the end of a task, or a turn
    /// that the agent begins by itself. After that the run ends the agent and evaluates the turn. 30 s by default; 0 does not wait.
    pub background_task_timeout: Duration,
    /// The limits of the phase's iterations.
    pub limits: PhaseLimits,
}

/// The source of a prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PromptSource {
    /// A file, read again for each iteration; its path is absolute, because a resume may run in another directory. The run stores the last text, and
    /// uses it if the file is gone.
    File(PathBuf),
    /// A text. A created or resumed run stores it, and it becomes [`Stored`](Self::Stored).
    Text(String),
    /// A text that is stored in the run under this name.
    Stored(String),
}

impl PhaseSettings {
    /// The default time without a report of the background tasks.
    pub const BACKGROUND_WAIT: Duration = Duration::from_secs(30);

    /// Creates a phase without required checks, limits and stop condition: set `check`, a `promise` or `max_iterations`.
    #[must_use]
    pub fn new(name: impl Into<String>, prompt: PromptSource, agent: AgentConfig) -> Self {
        Self {
            name: name.into(),
            prompt,
            agent,
            permissions: Permissions::default(),
            mcp_servers: McpServers::default(),
            session: SessionPolicy::default(),
            promise: None,
            required_checks: Vec::new(),
            check: None,
            background_task_timeout: Self::BACKGROUND_WAIT,
            limits: PhaseLimits::default(),
        }
    }

    /// Returns these settings for display: without the values of variables, headers and similar secrets.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        let mut shown = self.clone();
        shown.mcp_servers = shown.mcp_servers.without_values();
        shown.agent.redact_values();
        shown
    }

    /// Lists the programs that this phase starts. Destructures the settings field by field, so that a new field doesn't compile until somebody
    /// decides whether it starts a program.
    fn programs(&self) -> Vec<Program> {
        let Self {
            name,
            prompt: _,
            agent,
            permissions: _,
            mcp_servers,
            session: _,
            promise: _,
            required_checks,
            check,
            background_task_timeout: _,
            limits: _,
        } = self;
        let mut all = Vec::new();
        let mut add = |what, command| all.push(Program::new(Some(name.clone()), what, command));
        programs::of_agent(agent, &mut add);
        let hidden = mcp_servers.clone().without_values();
        for ((name, server), (_, hidden)) in mcp_servers.iter().zip(hidden.iter()) {
            let shown = programs::of_server(server, hidden);
            add(ProgramKind::McpServer, format!("{name}: {shown}"));
        }
        for gate in required_checks {
            add(ProgramKind::RequiredCheck, gate.clone());
        }
        if let Some(check) = check {
            add(ProgramKind::Check, check.clone());
        }
        all
    }
}

impl Settings {
    /// The default limit of disk bytes for the older transcripts of a run.
    pub const MAX_TRANSCRIPTS: u64 = 2_000_000_000;

    /// Creates the settings of a run that works in this absolute directory, without limits of time or cost.
    ///
    /// # Examples
    ///
    /// ```
    /// use agent_drivers::AgentConfig;
    /// use rlm_store::{PhaseSettings, PromptSource, Settings};
    ///
    /// let agent = AgentConfig::command(vec!["my-agent".into()]);
    /// let prompt = PromptSource::Text("Do the next step of PLAN.md.".into());
    /// let mut phase = PhaseSettings::new("main", prompt, agent);
    /// phase.check = Some("make test".into());
    /// phase.limits.max_iterations = Some(20);
    /// let mut settings = Settings::new("/home/me/project", vec![phase]);
    /// settings.commit = true;
    /// settings.validate()?;
    /// # Ok::<(), rlm_store::Error>(())
    /// ```
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>, phases: Vec<PhaseSettings>) -> Self {
        Self {
            directory: directory.into(),
            title: None,
            phases,
            limits: RunLimits::default(),
            autonomy: None,
            first_check: false,
            commit: false,
            worktree: None,
            leftovers: Leftovers::default(),
            max_transcripts: None,
        }
    }

    /// Checks that a run with these settings can begin: its rules have a stop condition, its phases have valid names, and its prompt files can be
    /// read.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] for the first problem.
    pub fn validate(&self) -> Result<(), Error> {
        self.check_rules()?;
        self.check_names()?;
        let handed = { self.phases.iter() }.filter(|phase| !phase.mcp_servers.is_empty());
        if let Some(phase) = { handed }.find(|phase| !phase.agent.has_driver()) {
            return Err(Error::no_mcp_servers(&phase.name));
        }
        self.phases
            .iter()
            .try_for_each(|phase| match &phase.prompt {
                PromptSource::File(path) => read_prompt(path).map(drop),
                PromptSource::Text(_) | PromptSource::Stored(_) => Ok(()),
            })
    }

    /// Returns an error if the rules are invalid.
    pub fn check_rules(&self) -> Result<(), Error> {
        self.rules().validate().map_err(Error::rules)
    }

    /// Returns an error if phase names are equal or can't be saved.
    pub fn check_names(&self) -> Result<(), Error> {
        for (index, PhaseSettings { name, .. }) in self.phases.iter().enumerate() {
            if let Err(why) = checkpoint_store::check_name(name) {
                return Err(Error::phase_name(name, why));
            }
            if self.phases[..index].iter().any(|phase| phase.name == *name) {
                return Err(Error::phase_name(name, "another phase has it already"));
            }
        }
        Ok(())
    }

    /// Returns these settings for display; see [`PhaseSettings::without_secrets`].
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        let phases = self.phases.iter().map(PhaseSettings::without_secrets);
        Self {
            phases: phases.collect(),
            ..self.clone()
        }
    }

    /// Lists every program that a run with these settings starts, phase by phase.
    ///
    /// Redacts the values of variables and headers, the part of an address after its host, and the values of arguments with secret-like names, and
    /// nothing else. Leaves out programs that are not in the run's settings (the notify command, the heartbeat).
    #[must_use]
    pub fn programs(&self) -> Vec<Program> {
        let Self {
            directory: _,
            title: _,
            phases,
            limits: _,
            autonomy: _,
            commit,
            worktree: _,
            leftovers: _,
            first_check: _,
            max_transcripts: _,
        } = self;
        let mut all: Vec<Program> = phases.iter().flat_map(PhaseSettings::programs).collect();
        if *commit {
            let command = "the hooks of this repository, at each commit";
            all.push(Program::new(None, ProgramKind::GitHooks, command));
        }
        all
    }

    /// Returns the largest number of bytes on disk for the older transcripts.
    pub fn max_transcripts(&self) -> u64 {
        self.max_transcripts.unwrap_or(Self::MAX_TRANSCRIPTS)
    }

    /// Takes the current rules of a run, some of which were changed during the run.
    pub fn apply_rules(&mut self, rules: &Rules) {
        let before = self.rules();
        for (phase, rules) in self.phases.iter_mut().zip(&rules.phases) {
            phase.limits = rules.limits.clone();
        }
        self.limits = rules.limits.clone();
        if before.autonomy != rules.autonomy {
            self.autonomy = Some(rules.autonomy);
        }
    }

    /// Returns the rules for the machine.
    #[must_use]
    pub fn rules(&self) -> Rules {
        let phase = |phase: &PhaseSettings| PhaseRules {
            name: phase.name.clone(),
            required_checks: u32::try_from(phase.required_checks.len()).unwrap_or(u32::MAX),
            has_check: phase.check.is_some(),
            has_promise: phase.promise.is_some(),
            session: phase.session,
            durable_session: phase.agent.has_durable_sessions(),
            limits: phase.limits.clone(),
            reports_cost: phase.agent.usage_reporting().0,
            reports_tokens: phase.agent.usage_reporting().1,
        };
        let is_pipeline = self.phases.len() > 1;
        let autonomy = is_pipeline.then_some(Autonomy::Checkpoint);
        Rules {
            phases: self.phases.iter().map(phase).collect(),
            limits: self.limits.clone(),
            autonomy: self.autonomy.or(autonomy).unwrap_or_default(),
            first_check: self.first_check,
        }
    }
}

/// The largest size of a prompt file, in bytes: a model reads no more, and a mistyped path may name any file.
pub const MAX_PROMPT: u64 = 4 << 20;

/// Reads a prompt file; missing, empty and huge files are errors that name the file.
pub fn read_prompt(path: &Path) -> Result<String, Error> {
    let file = state_dir::open_named(path).map_err(|e| {
        let problem = match e.kind() {
            std::io::ErrorKind::NotFound => {
                "is missing; create it or choose another one with --prompt-file".to_owned()
            }
            kind => unreadable(kind),
        };
        Error::prompt(path, problem)
    })?;
    let Some(file) = file else {
        return Err(Error::prompt(
            path,
            "is not a file; choose a text file with --prompt-file",
        ));
    };
    let failed = |e: std::io::Error| Error::prompt(path, unreadable(e.kind()));
    let mut bytes = Vec::new();
    let mut length = file.metadata().map_err(failed)?.len();
    if length <= MAX_PROMPT {
        let read = file.take(MAX_PROMPT + 1).read_to_end(&mut bytes);
        length = read.map_err(failed)? as u64;
    }
    if length > MAX_PROMPT {
        return Err(Error::prompt(
            path,
            format!(
                "has {length} bytes, and the limit is {MAX_PROMPT}: move the rest to files that the prompt mentions"
            ),
        ));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| Error::prompt(path, "is not UTF-8 text; save it as UTF-8"))?;
    if text.trim().is_empty() {
        return Err(Error::prompt(
            path,
            "is empty; describe the task of the agent in it",
        ));
    }
    Ok(text)
}

fn unreadable(kind: std::io::ErrorKind) -> String {
    format!("can't be read: {kind}; fix that or choose another one with --prompt-file")
}
