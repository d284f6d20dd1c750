//! What a run was asked to do, and the text of its prompts: saved with it, so that a resume asks for nothing again.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_drivers::AgentConfig;
use agent_drivers::mcp::McpServers;
use agent_duplex::Permissions;
use loop_state::{Autonomy, Limits, PhaseRules, Rules, RunLimits, SessionPolicy};
use serde::{Deserialize, Serialize};

use crate::programs::{self, Program, ProgramKind};
use crate::{Error, Worktree, state_dir};

/// Everything that a run needs, saved with it: a resume asks for nothing again. [`Settings::new`] makes them with the defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Where the agent, the gates and the check work; absolute.
    pub directory: PathBuf,
    /// A short name of the run, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The pipeline; at least one phase.
    pub phases: Vec<PhaseSettings>,
    /// The limits of the whole run. Every agent of a run must report what a budget limits.
    pub limits: RunLimits,
    /// Where the run waits for a person's word; if nothing is said, between phases where there are several, and nowhere else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autonomy: Option<Autonomy>,
    /// Whether each iteration that changed something is committed to git when it is over, a failed one too.
    pub commit: bool,
    /// The working tree that the run has to itself; `None` where it works in that of the project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree: Option<Worktree>,
    /// What becomes of processes that an agent leaves running.
    pub leftovers: Leftovers,
    /// How many bytes of disk the transcripts may take, but for the newest eight; 2 GB if nothing is said. Beyond it the oldest lose something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_transcripts: Option<u64>,
}

/// What becomes of processes that are alive after their attempt ended normally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Leftovers {
    /// They are ended, and named, before the next attempt.
    #[default]
    End,
    /// They are carried to the end of the run, those of the last eight attempts at most.
    Keep,
}

/// What one phase does. [`PhaseSettings::new`] makes it with the defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseSettings {
    /// Its name.
    pub name: String,
    /// Where its prompt comes from.
    pub prompt: PromptSource,
    /// The agent.
    pub agent: AgentConfig,
    /// What the agent may do. Means nothing to a command.
    pub permissions: Permissions,
    /// The MCP servers that the agent is handed.
    #[serde(default, skip_serializing_if = "McpServers::is_empty")]
    pub mcp_servers: McpServers,
    /// Which of the agent's sessions an iteration gets.
    pub session: SessionPolicy,
    /// The text by which the agent promises that the phase is done.
    pub promise: Option<String>,
    /// Commands for `sh -c` that must pass before an iteration counts.
    pub gates: Vec<String>,
    /// The command for `sh -c` that decides that the phase is done.
    pub until: Option<String>,
    /// How long nothing may come of what the agent has running in the background when its turn is over, before it is ended and judged: no end of a
    /// task, no turn that the agent begins by itself. 30 s by default; 0 waits for nothing.
    pub background_wait: Duration,
    /// The limits of its iterations.
    pub limits: Limits,
}

/// Where a prompt comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PromptSource {
    /// A file, read anew for each iteration; by an absolute path, since a resume may come from another directory. The last text read is kept with the
    /// run and serves when the file is gone.
    File(PathBuf),
    /// A text. Whoever makes or takes up a run with it keeps it, which makes it [`Kept`](Self::Kept).
    Text(String),
    /// A text that is kept with the run under this name.
    Kept(String),
}

impl PhaseSettings {
    /// How long nothing may come of what runs in the background, by default.
    pub const BACKGROUND_WAIT: Duration = Duration::from_secs(30);

    /// Makes a phase that has no gates, no limits and no end yet: give it `until`, a `promise` or `max_iterations`.
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
            gates: Vec::new(),
            until: None,
            background_wait: Self::BACKGROUND_WAIT,
            limits: Limits::default(),
        }
    }

    /// Returns these settings as they may be shown to anybody: without the values of variables, headers and the like.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        let mut shown = self.clone();
        shown.mcp_servers = shown.mcp_servers.without_values();
        shown.agent.hide_values();
        shown
    }

    /// Lists the programs that this phase starts. It takes the settings apart field by field: a new one doesn't compile until somebody decides
    /// whether it makes a run start something.
    fn programs(&self) -> Vec<Program> {
        let Self {
            name,
            prompt: _,
            agent,
            permissions: _,
            mcp_servers,
            session: _,
            promise: _,
            gates,
            until,
            background_wait: _,
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
        for gate in gates {
            add(ProgramKind::Gate, gate.clone());
        }
        if let Some(until) = until {
            add(ProgramKind::Until, until.clone());
        }
        all
    }
}

impl Settings {
    /// How many bytes of disk the older transcripts of a run may take, by default.
    pub const MAX_TRANSCRIPTS: u64 = 2_000_000_000;

    /// Makes the settings of a run that works in this directory, an absolute path, without a limit of time or money.
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
    /// phase.until = Some("make test".into());
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
            commit: false,
            worktree: None,
            leftovers: Leftovers::default(),
            max_transcripts: None,
        }
    }

    /// Checks that a run by these settings can begin: its rules have an end, its phases have names, and its prompt files can be read.
    ///
    /// # Errors
    ///
    /// [`Error::is_usage`] with the first thing that is wrong.
    pub fn validate(&self) -> Result<(), Error> {
        self.check_rules()?;
        self.check_names()?;
        let handed = { self.phases.iter() }.filter(|phase| !phase.mcp_servers.is_empty());
        if let Some(phase) = { handed }.find(|phase| !phase.agent.is_driven()) {
            return Err(Error::no_mcp_servers(&phase.name));
        }
        self.phases
            .iter()
            .try_for_each(|phase| match &phase.prompt {
                PromptSource::File(path) => read_prompt(path).map(drop),
                PromptSource::Text(_) | PromptSource::Kept(_) => Ok(()),
            })
    }

    /// Refuses rules by which no run can be made.
    pub fn check_rules(&self) -> Result<(), Error> {
        self.rules().validate().map_err(Error::rules)
    }

    /// Refuses names of phases under which they could not be sealed, or told apart.
    pub fn check_names(&self) -> Result<(), Error> {
        for (index, PhaseSettings { name, .. }) in self.phases.iter().enumerate() {
            if let Some(why) = checkpoint_store::reject_name(name) {
                return Err(Error::phase_name(name, why));
            }
            if self.phases[..index].iter().any(|phase| phase.name == *name) {
                return Err(Error::phase_name(name, "another phase has it already"));
            }
        }
        Ok(())
    }

    /// Returns these settings as they may be shown to anybody; see [`PhaseSettings::without_secrets`].
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        let phases = self.phases.iter().map(PhaseSettings::without_secrets);
        Self {
            phases: phases.collect(),
            ..self.clone()
        }
    }

    /// Lists every program that a run by these settings starts, phase by phase.
    ///
    /// Values of variables and of headers, what an address has behind its host, and values of arguments that are named like secrets are
    /// replaced by `…`; nothing else is. What a person has beside the run's settings (a command to notify, a heartbeat) isn't here.
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
            max_transcripts: _,
        } = self;
        let mut all: Vec<Program> = phases.iter().flat_map(PhaseSettings::programs).collect();
        if *commit {
            let command = "the hooks of this repository, at each commit";
            all.push(Program::new(None, ProgramKind::GitHooks, command));
        }
        all
    }

    /// Returns how many bytes of disk the older transcripts may take.
    pub fn max_transcripts(&self) -> u64 {
        self.max_transcripts.unwrap_or(Self::MAX_TRANSCRIPTS)
    }

    /// Takes the rules that a run has now, some of which were changed while it went on.
    pub fn follow(&mut self, rules: &Rules) {
        let before = self.rules();
        for (phase, rules) in self.phases.iter_mut().zip(&rules.phases) {
            phase.limits = rules.limits.clone();
        }
        self.limits = rules.limits.clone();
        if before.autonomy != rules.autonomy {
            self.autonomy = Some(rules.autonomy);
        }
    }

    /// Returns what of these settings the machine must know.
    #[must_use]
    pub fn rules(&self) -> Rules {
        let phase = |phase: &PhaseSettings| PhaseRules {
            name: phase.name.clone(),
            gates: u32::try_from(phase.gates.len()).unwrap_or(u32::MAX),
            until: phase.until.is_some(),
            promise: phase.promise.is_some(),
            session: phase.session,
            limits: phase.limits.clone(),
            reports_cost: phase.agent.reports().0,
            reports_tokens: phase.agent.reports().1,
        };
        let is_pipeline = self.phases.len() > 1;
        let autonomy = is_pipeline.then_some(Autonomy::Checkpoint);
        Rules {
            phases: self.phases.iter().map(phase).collect(),
            limits: self.limits.clone(),
            autonomy: self.autonomy.or(autonomy).unwrap_or_default(),
        }
    }
}

/// The largest prompt file: a model reads no more, and a mistyped path may name anything.
pub const MAX_PROMPT: u64 = 4 << 20;

/// Reads a prompt file; missing, empty and huge ones are refused by name.
pub fn read_prompt(path: &Path) -> Result<String, Error> {
    let file = state_dir::open_named(path).map_err(|e| {
        let problem = match e.kind() {
            std::io::ErrorKind::NotFound => {
                "is missing; write it or name another one with --prompt-file".to_owned()
            }
            kind => unreadable(kind),
        };
        Error::prompt(path, problem)
    })?;
    let Some(file) = file else {
        return Err(Error::prompt(
            path,
            "is not a file; name a text file with --prompt-file",
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
                "has {length} bytes; at most {MAX_PROMPT} are taken: put the rest into files that it names"
            ),
        ));
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| Error::prompt(path, "is not UTF-8 text; save it as that"))?;
    if text.trim().is_empty() {
        return Err(Error::prompt(
            path,
            "is empty; write down what the agent shall do",
        ));
    }
    Ok(text)
}

fn unreadable(kind: std::io::ErrorKind) -> String {
    format!("can't be read: {kind}; mend that or name another one with --prompt-file")
}
