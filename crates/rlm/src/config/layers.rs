//! The layers of configuration, the upper ones first: options, the environment, a phase, the project, the user, defaults.

use std::path::{Path, PathBuf};

use toml::Value;

use super::file::{self, File, Whose};
use super::tree::{Origin, Tree};
use crate::agents::AgentKind;
use crate::args::{LoopArgs, PermissionsArg, RunArgs};
use crate::duration;
use crate::exit::Failure;
use crate::resolve;

/// The variables that are configuration, and the keys that they set. All others are none, those that tell an agent which run it belongs to above all.
const VARIABLES: [(&str, &str); 2] = [("RLM_AGENT", "agent"), ("RLM_PERMISSIONS", "permissions")];

/// What was said and where, but for the defaults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layers {
    flags: Tree,
    environment: Tree,
    project: File,
    user: File,
}

/// What counts for one phase.
#[derive(Clone, Debug)]
pub(crate) struct Phase {
    pub(crate) name: String,
    pub(crate) tree: Tree,
}

impl Layers {
    /// Reads the files of a project and of the user.
    pub(crate) fn read(root: &Path) -> Result<Self, Failure> {
        let user = file::of_user().map(|path| File::read(&path, Whose::User));
        Ok(Self {
            project: File::read(&file::of_project(root), Whose::Project)?,
            user: user.transpose()?.unwrap_or_default(),
            ..Self::default()
        })
    }

    /// Reads the files again; `None` when they say what they said.
    pub(super) fn read_again(&self) -> Result<Option<Self>, Failure> {
        let read = |file: &File, whose| match file.path.as_os_str().is_empty() {
            true => Ok(File::default()),
            false => File::read(&file.path, whose),
        };
        let project = read(&self.project, Whose::Project)?;
        let user = read(&self.user, Whose::User)?;
        let is_same = project.text == self.project.text && user.text == self.user.text;
        Ok((!is_same).then(|| Self {
            project,
            user,
            ..self.clone()
        }))
    }

    /// Returns the files that are looked at, whether they are there or not.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let paths = [self.project.path.clone(), self.user.path.clone()];
        paths.into_iter().filter(|path| path.is_absolute())
    }

    /// Puts the documented variables of the environment over the files.
    pub(crate) fn with_environment(
        mut self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Failure> {
        for (name, key) in VARIABLES {
            // One that is empty is not set.
            let Some(text) = variable(name).filter(|text| !text.is_empty()) else {
                continue;
            };
            let known = match key {
                "agent" => words::<AgentKind>(),
                _ => words::<PermissionsArg>(),
            };
            if !known.contains(&text) {
                let text = text.escape_debug();
                let what = format!("{name}: `{text}` is none of {}", known.join(", "));
                return Err(Failure::usage(what));
            }
            self.environment
                .insert(&[key], text.into(), Origin::Variable(name));
        }
        Ok(self)
    }

    /// Puts the options of a new run over all else.
    pub(crate) fn with_flags(self, args: &RunArgs) -> Result<Self, Failure> {
        let mut this = self.with_options(&args.what)?;
        let mut insert = |key: &str, name: &str, value: Value| {
            let origin = Origin::Flag(name.into());
            this.flags.insert(&[key], value, origin);
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

    /// Puts the options that a run and a resume have over all else.
    pub(crate) fn with_options(mut self, args: &LoopArgs) -> Result<Self, Failure> {
        let said = toml::Table::try_from(args);
        let said = said.map_err(|e| Failure::usage(format!("an option can't be taken: {e}")))?;
        let origin = |path: &[&str]| Origin::Flag(flag(path[0]));
        self.flags.insert_all(&[], said, &origin);
        Ok(self)
    }

    /// Returns whether the project has a pipeline.
    pub(crate) fn has_phases(&self) -> bool {
        !self.project.phases.is_empty()
    }

    fn merged(&self, phase: Option<&Tree>) -> Tree {
        let flags = self.flags.clone().over(self.environment.clone());
        let mut project = self.project.tree.clone();
        let ends = ["until", "completion-promise"];
        // The check of one phase is none of another's promise: a phase that says when it is done says all of it.
        if phase.is_some_and(|phase| ends.iter().any(|end| phase.leaf(end).is_some())) {
            project.remove(&ends);
        }
        let phase = flags.over(phase.cloned().unwrap_or_default());
        phase.over(project).over(self.user.tree.clone())
    }

    /// Returns what counts for the whole run, and for a phase of which nothing is said.
    pub(crate) fn run(&self) -> Tree {
        self.merged(None)
    }

    /// Returns what counts for each phase; without a pipeline there is one, `main`.
    pub(crate) fn phases(&self) -> Vec<Phase> {
        if !self.has_phases() {
            return vec![Phase {
                name: "main".into(),
                tree: self.run(),
            }];
        }
        let phases = self.project.phases.iter();
        let phase = |(name, tree): &(String, Tree)| Phase {
            name: name.clone(),
            tree: self.merged(Some(tree)),
        };
        phases.map(phase).collect()
    }

    /// Returns what counts for a phase of a run that exists; for one that the file does not know, what counts for all.
    pub(crate) fn phase(&self, name: &str) -> Tree {
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

fn words<T: clap::ValueEnum>() -> Vec<String> {
    let words = T::value_variants().iter().filter_map(T::to_possible_value);
    words.map(|word| word.get_name().to_owned()).collect()
}

/// Returns what counts where nothing is said.
pub(crate) fn defaults(driven: bool) -> Tree {
    let time = |time| Value::from(duration::show(time));
    let all = [
        ("prompt-file", resolve::DEFAULT_PROMPT.into()),
        ("max-iterations", resolve::DEFAULT_ITERATIONS.into()),
        (
            "iteration-timeout",
            time(resolve::DEFAULT_ITERATION_TIMEOUT),
        ),
        ("check-timeout", time(resolve::DEFAULT_CHECK_TIMEOUT)),
        (
            "background-wait",
            time(loop_runner::PhaseSettings::BACKGROUND_WAIT),
        ),
        ("max-failures", resolve::DEFAULT_FAILURES.into()),
        ("sleep", time(resolve::DEFAULT_SLEEP)),
        ("wait-on-limit", time(resolve::DEFAULT_WAIT)),
        ("leftovers", "end".into()),
        ("commit", false.into()),
        ("worktree", false.into()),
    ];
    let of_driven = [
        ("permissions", "edits".into()),
        ("session", "fresh".into()),
        ("idle-timeout", time(resolve::DEFAULT_IDLE_TIMEOUT)),
    ];
    let mut tree = Tree::default();
    let of_driven = of_driven.into_iter().filter(|_| driven);
    for (key, value) in all.into_iter().chain(of_driven) {
        tree.insert(&[key], value, Origin::Default);
    }
    tree
}

#[cfg(test)]
impl Layers {
    /// Makes the layers of a project with this file.
    pub(crate) fn of(root: &Path, text: &str) -> Self {
        let path = file::of_project(root);
        let project = File::parse(&path, text, Whose::Project).unwrap();
        Self {
            project,
            ..Self::default()
        }
    }
}
