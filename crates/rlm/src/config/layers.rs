//! The layers of configuration, highest precedence first: options, the environment, a phase, the project, the user, defaults.

use std::path::{Path, PathBuf};

use agent_drivers::OptionKind;
use rlm_text::duration;
use toml::Value;

use super::file::{self, File};
use super::keys::{FileOwner, ValueKind};
use super::settings::{Config, KEYS};
use super::tree::{SettingsTree, ValueOrigin};
use crate::args::RunArgs;
use crate::exit::Failure;

/// The values of all layers with their sources, without the defaults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layers {
    flags: SettingsTree,
    /// Whether the command line has a command after `--`.
    has_command: bool,
    environment: SettingsTree,
    project: File,
    user: File,
}

/// The settings of one phase.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) name: String,
    pub(crate) tree: SettingsTree,
}

impl Layers {
    /// Reads the files of a project and of the user.
    pub(crate) fn read(root: &Path) -> Result<Self, Failure> {
        let user = file::of_user().map(|path| File::read(&path, FileOwner::User));
        Ok(Self {
            project: File::read(&file::of_project(root), FileOwner::Project)?,
            user: user.transpose()?.unwrap_or_default(),
            ..Self::default()
        })
    }

    /// Reads the files again; `None` if their text is the same.
    pub(super) fn read_again(&self) -> Result<Option<Self>, Failure> {
        let read = |file: &File, whose| match file.path.as_os_str().is_empty() {
            true => Ok(File::default()),
            false => File::read(&file.path, whose),
        };
        let project = read(&self.project, FileOwner::Project)?;
        let user = read(&self.user, FileOwner::User)?;
        let is_same = project.text == self.project.text && user.text == self.user.text;
        Ok((!is_same).then(|| Self {
            project,
            user,
            ..self.clone()
        }))
    }

    /// Returns the paths of the files, whether they exist or not.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let paths = [self.project.path.clone(), self.user.path.clone()];
        paths.into_iter().filter(|path| path.is_absolute())
    }

    /// Adds the documented environment variables above the files.
    pub(crate) fn with_environment(
        mut self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        for key in KEYS {
            let Some(name) = key.env else { continue };
            // An empty variable counts as not set.
            let Some(text) = variable(name).filter(|text| !text.is_empty()) else {
                continue;
            };
            let mut value = Value::from(text.as_str());
            match key.kind {
                ValueKind::Plain(OptionKind::Switch) => {
                    let is_on = text.parse::<bool>();
                    let bad = || format!("{name}: `{}` is not true or false", text.escape_debug());
                    value = is_on.map_err(|_| Failure::usage(bad()))?.into();
                }
                ValueKind::OneOf(known) if !known.contains(&text.as_str()) => {
                    let text = text.escape_debug();
                    let what = format!("{name}: `{text}` is not one of {}", known.join(", "));
                    return Err(Failure::usage(what));
                }
                ValueKind::Time => {
                    let why = |why| Failure::usage(format!("{name}: {why}"));
                    duration::parse(&text).map_err(why)?;
                }
                _ => {}
            }
            self.environment
                .insert(key.name, value, ValueOrigin::Variable(name));
        }
        Ok(self)
    }

    /// Adds the options of a new run above everything else.
    pub(crate) fn with_flags(self, args: &RunArgs) -> Result<Self, Failure> {
        let mut this = self.with_options(&args.config)?;
        this.has_command = !args.agent_command.is_empty();
        let mut insert = |key: &str, name: &str, value: Value| {
            let origin = ValueOrigin::Flag(name.into());
            this.flags.insert(key, value, origin);
        };
        if let Some(kind) = args.agent {
            insert("agent", "--agent", kind.name().into());
        }
        if args.once {
            insert("max-iterations", "--once", 1.into());
        }
        if args.worktree.is_some() {
            insert("worktree", "--worktree", true.into());
        }
        Ok(this)
    }

    /// Adds the options that a run and a resume share above everything else.
    pub(crate) fn with_options(mut self, args: &Config) -> Result<Self, Failure> {
        let given = toml::Table::try_from(args);
        let given = given.map_err(|e| Failure::usage(format!("wrong option: {e}")))?;
        let origin = |path: &[&str]| ValueOrigin::Flag(flag(path[0]));
        self.flags = SettingsTree::of(given, &origin);
        Ok(self)
    }

    /// Returns these layers without the project's file.
    pub(crate) fn without_project(&self) -> Self {
        Self {
            project: File::default(),
            ..self.clone()
        }
    }

    /// Returns whether the project has a pipeline.
    pub(crate) fn has_phases(&self) -> bool {
        !self.project.phases.is_empty()
    }

    fn merged(&self, phase: Option<&SettingsTree>) -> SettingsTree {
        let flags = self.flags.clone().merged_over(self.environment.clone());
        let mut project = self.project.tree.clone();
        let ends = ["until", "completion-promise"];
        // The check and the promise belong together: a phase that sets one of them inherits neither from above the phases.
        if phase.is_some_and(|phase| ends.iter().any(|end| phase.leaf(end).is_some())) {
            project.remove(&ends);
        }
        let phase = flags.merged_over(phase.cloned().unwrap_or_default());
        let (nearer, mut user) = (phase.merged_over(project), self.user.tree.clone());
        // The command after `--` is the agent; it replaces the agent of the user's own file.
        if self.has_command && nearer.leaf("agent").is_none() {
            user.remove(&["agent", "model", "agent-bin", "command"]);
        }
        nearer.merged_over(user)
    }

    /// Returns the settings of the whole run, and of a phase without its own settings.
    pub(crate) fn run(&self) -> SettingsTree {
        self.merged(None)
    }

    /// Returns the settings of each phase; without a pipeline there is one phase, `main`.
    pub(crate) fn phases(&self) -> Vec<Phase> {
        if !self.has_phases() {
            return vec![Phase {
                name: "main".into(),
                tree: self.run(),
            }];
        }
        let phases = self.project.phases.iter();
        let phase = |(name, tree): &(String, SettingsTree)| Phase {
            name: name.clone(),
            tree: self.merged(Some(tree)),
        };
        phases.map(phase).collect()
    }

    /// Returns the settings of a phase of an existing run; the settings of the run if the file doesn't have the phase.
    pub(crate) fn phase(&self, name: &str) -> SettingsTree {
        let phase = self.project.phases.iter().find(|(known, _)| known == name);
        self.merged(phase.map(|(_, tree)| tree))
    }
}

/// Returns the option that sets a key.
fn flag(key: &str) -> String {
    match key {
        "gates" => "--gate".into(),
        key => format!("--{key}"),
    }
}

/// Returns the default settings for an agent with a driver, or for a command agent.
pub(crate) fn defaults(driven: bool) -> SettingsTree {
    let mut tree = SettingsTree::default();
    for key in KEYS {
        if let Some(value) = key.default(driven) {
            tree.insert(key.name, value, ValueOrigin::Default);
        }
    }
    tree
}

#[cfg(test)]
impl Layers {
    /// Creates the layers of a project with this file.
    pub(crate) fn of(root: &Path, text: &str) -> Self {
        let path = file::of_project(root);
        let project = File::parse(&path, text, FileOwner::Project).unwrap();
        Self {
            project,
            ..Self::default()
        }
    }

    /// Adds the user's file below.
    pub(crate) fn with_user(mut self, text: &str) -> Self {
        let path = Path::new("/home/somebody/.config/rlm/config.toml");
        self.user = File::parse(path, text, FileOwner::User).unwrap();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents::AgentKind;
    use crate::args::{Args, Command};
    use crate::config::settings::SHUTDOWN_TIMEOUT;
    use crate::config::values::{Tokens, Usd};
    use clap::Parser;
    use std::time::Duration;

    fn run(line: &str, project: &str, user: &str) -> Config {
        let Ok(Args {
            command: Command::Run(args),
            ..
        }) = Args::try_parse_from(line.split(' '))
        else {
            unreachable!("the line is a run")
        };
        let layers = Layers::of(Path::new("/"), project).with_user(user);
        layers.with_flags(&args).unwrap().run().config()
    }

    #[test]
    fn command_after_options_ignores_the_agent_of_the_user_settings() {
        let user = "agent = 'claude'\nmodel = 'opus'\nsleep = 3\n";
        let config = run("rlm run -- my-agent", "", user);
        assert_eq!((config.agent, config.model), (None, None));
        assert!(config.sleep.is_some());
        let named = |config: Config| config.agent.map(AgentKind::name);
        assert_eq!(named(run("rlm run", "", user)), Some("claude"));
        let project = run("rlm run -- --verbose", "agent = 'claude'", user);
        assert_eq!((named(project)), Some("claude"));
        let given = run("rlm run --agent claude -- --verbose", "", user);
        assert_eq!(given.model.as_deref(), Some("opus"));
    }

    #[test]
    fn relative_path_starts_at_the_file_that_names_it() {
        let user = "agent-bin = 'bin/agent'\n[claude]\nadd-dirs = ['a/b', '/c']\n[acp]\nprogram = ['./adapter', 'x/y']\n";
        let config = run("rlm run", "", user);
        let home = Path::new("/home/somebody/.config/rlm");
        assert_eq!(config.agent_bin, Some(home.join("bin/agent")));
        assert_eq!(config.claude.unwrap().add_dirs[0], home.join("a/b"));
        let program = config.acp.unwrap().program(Path::new("/elsewhere"));
        assert_eq!(
            program,
            [home.join("./adapter").as_os_str(), "x/y".as_ref()]
        );
        let bare = run("rlm run", "", "agent-bin = 'agent'").agent_bin;
        assert_eq!(bare, Some("agent".into()));
    }

    #[test]
    fn w20_a_stop_and_a_press_have_keys_in_every_layer() {
        let (project, user) = (
            "shutdown-timeout = '3s'",
            "cooldown = '1s'\nshutdown-timeout = 4\ndebounce = '50ms'\n",
        );
        let seconds = |config: Config| {
            let times = [config.shutdown_timeout, config.cooldown];
            times.map(|time| time.map(|time| time.0.as_secs()))
        };
        assert_eq!(seconds(run("rlm run", project, user)), [Some(3), Some(1)]);
        assert_eq!(seconds(run("rlm run", "", user)), [Some(4), Some(1)]);
        let typed = "rlm run --shutdown-timeout 5 --cooldown 0";
        assert_eq!(seconds(run(typed, project, user)), [Some(5), Some(0)]);
        let debounce = |line| {
            let debounce: Option<Duration> = run(line, project, user).debounce.map(Into::into);
            debounce.map(|time| time.as_millis())
        };
        assert_eq!(debounce("rlm run"), Some(50));
        assert_eq!(debounce("rlm run --debounce 0"), Some(0));
        let layers = Layers::of(Path::new("/"), project);
        let variable = |text: &'static str| {
            let layers = layers.clone();
            layers.with_environment(move |name| (name == SHUTDOWN_TIMEOUT).then(|| text.into()))
        };
        let config = variable("6s").unwrap().run().config();
        assert_eq!(
            config.shutdown_timeout.map(|time| time.0.as_secs()),
            Some(6)
        );
        assert!(
            variable("soon")
                .unwrap_err()
                .message
                .contains("RLM_SHUTDOWN_TIMEOUT")
        );
    }

    #[test]
    fn every_option_is_a_key() {
        let line = "rlm run -p x --completion-promise x --until x --gate x -n 1 --max-duration 1 --iteration-timeout 1 --idle-timeout 1 \
            --check-timeout 1 --background-wait 1 --max-failures 1 --max-cost 0.000001 --max-tokens 2M --wait-on-limit 0 --shutdown-timeout 1s --cooldown 1ms --debounce 1ms --sleep 1ms \
            --permissions ask --session continue --model x --agent-bin a/b --leftovers keep --autonomy batch:2 --commit --worktree --notify bell --notify-on started,done --heartbeat x --keep-awake --agent acp";
        let config = run(
            &line.split_whitespace().collect::<Vec<_>>().join(" "),
            "",
            "",
        );
        assert_eq!(
            (config.max_cost, config.max_tokens),
            (Some(Usd(1)), Some(Tokens(2_000_000)))
        );
        let sleep = config.sleep.map(|it| it.0.as_millis());
        assert_eq!(sleep, Some(1));
        assert_eq!((config.commit, config.worktree), (Some(true), Some(true)));
    }
}
