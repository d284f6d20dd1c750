//! Settings that change while a run goes on: its limits follow them, all else is for the next run.

use std::collections::BTreeSet;
use std::time::Duration;

use loop_runner::control::Change;
use loop_runner::{Reloaded, Settings};
use loop_state::RuleChange;

use super::Config;
use super::layers::{Layers, defaults};
use super::tree::Tree;

/// The keys that can change while a run goes on.
pub(crate) const LIVE: [&str; 10] = [
    // In the order of the fields of `Limits`.
    "max-iterations",
    "iteration-timeout",
    "idle-timeout",
    "check-timeout",
    "max-duration",
    "max-failures",
    "sleep",
    "max-cost",
    "max-tokens",
    "wait-on-limit",
];

/// The settings of a run that goes on, as they were said last.
#[derive(Debug)]
pub(crate) struct Watched {
    layers: Layers,
    phases: Vec<Phase>,
    /// Why the files can't be read, so that it is told once.
    wrong: Option<String>,
}

#[derive(Debug)]
struct Phase {
    name: String,
    /// What was said of it and of the run when it was last looked at.
    said: Limits,
    /// What counts.
    limits: Limits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    max_iterations: Option<u32>,
    iteration_timeout: Option<Duration>,
    idle_timeout: Option<Duration>,
    check_timeout: Option<Duration>,
    max_duration: Option<Duration>,
    max_failures: Option<u32>,
    sleep: Option<Duration>,
    max_cost: Option<u64>,
    max_tokens: Option<u64>,
    wait_on_limit: Option<Duration>,
}

impl Watched {
    /// Takes what a run was made of. It can have been given more than that before it was resumed, so only what changes from now on counts.
    pub(crate) fn new(layers: Layers, settings: &Settings) -> Self {
        let phase = |phase: &loop_runner::PhaseSettings| {
            let (name, driven) = (phase.name.clone(), phase.agent.is_driven());
            let config = layers.phase(&name).over(defaults(driven)).config();
            Phase {
                said: Limits::said(&layers, &name),
                limits: Limits::of(&config),
                name,
            }
        };
        let phases = settings.phases.iter().map(phase).collect();
        Self {
            layers,
            phases,
            wrong: None,
        }
    }

    /// Looks at the files. What they say above the phases is for each that says nothing else. What they don't say any more stays as it was: a file that
    /// somebody removed, or is just writing, must lift no limit.
    pub(crate) fn look(&mut self) -> Reloaded {
        let mut reloaded = Reloaded::default();
        match self.layers.read_again() {
            Ok(None) => self.wrong = None,
            Ok(Some(new)) => {
                let others = others(&self.layers, &new);
                if !others.is_empty() {
                    reloaded.warnings.push(format!(
                        "the settings have changed: {} {} for the next run, not for this one",
                        quoted(&others),
                        if others.len() == 1 { "counts" } else { "count" },
                    ));
                }
                (self.layers, self.wrong) = (new, None);
            }
            Err(why) if self.wrong.as_ref() == Some(&why.message) => {}
            Err(why) => {
                let message = &why.message;
                reloaded.warnings.push(format!(
                    "{message}; until that is mended, what was said before counts"
                ));
                self.wrong = Some(why.message);
            }
        }
        let mut unsaid = BTreeSet::new();
        for (at, phase) in self.phases.iter_mut().enumerate() {
            let limits = Limits::said(&self.layers, &phase.name);
            unsaid.extend(phase.said.lost(&limits));
            phase.said = limits;
            let limits = limits.over(phase.limits);
            let changes = phase.limits.changes_to(limits).into_iter();
            // What is of the whole run is said once.
            let once = changes.filter(|it| at == 0 || RuleChange::from(*it).is_of_phase());
            reloaded.changes.extend(once.map(|change| (at, change)));
            phase.limits = limits;
        }
        if !unsaid.is_empty() {
            reloaded.warnings.push(format!(
                "the settings say nothing any more of {}; what was said before counts",
                quoted(&unsaid)
            ));
        }
        reloaded
    }
}

impl Limits {
    /// Returns what is said of a phase, without defaults.
    fn said(layers: &Layers, phase: &str) -> Self {
        Self::of(&layers.phase(phase).config())
    }

    fn of(config: &Config) -> Self {
        Self {
            max_iterations: config.max_iterations.map(Into::into),
            iteration_timeout: config.iteration_timeout,
            idle_timeout: config.idle_timeout,
            check_timeout: config.check_timeout,
            max_duration: config.max_duration,
            max_failures: config.max_failures,
            sleep: config.sleep,
            max_cost: config.max_cost,
            max_tokens: config.max_tokens,
            wait_on_limit: config.wait_on_limit,
        }
    }

    /// Returns these where something is said, and else the others.
    fn over(self, others: Self) -> Self {
        Self {
            max_iterations: self.max_iterations.or(others.max_iterations),
            iteration_timeout: self.iteration_timeout.or(others.iteration_timeout),
            idle_timeout: self.idle_timeout.or(others.idle_timeout),
            check_timeout: self.check_timeout.or(others.check_timeout),
            max_duration: self.max_duration.or(others.max_duration),
            max_failures: self.max_failures.or(others.max_failures),
            sleep: self.sleep.or(others.sleep),
            max_cost: self.max_cost.or(others.max_cost),
            max_tokens: self.max_tokens.or(others.max_tokens),
            wait_on_limit: self.wait_on_limit.or(others.wait_on_limit),
        }
    }

    /// Names the keys of which something was said, and now nothing is.
    fn lost(&self, now: &Self) -> impl Iterator<Item = &'static str> {
        let said = |limits: &Self| {
            [
                limits.max_iterations.is_some(),
                limits.iteration_timeout.is_some(),
                limits.idle_timeout.is_some(),
                limits.check_timeout.is_some(),
                limits.max_duration.is_some(),
                limits.max_failures.is_some(),
                limits.sleep.is_some(),
                limits.max_cost.is_some(),
                limits.max_tokens.is_some(),
                limits.wait_on_limit.is_some(),
            ]
        };
        let lost = said(self).into_iter().zip(said(now));
        let lost = LIVE.into_iter().zip(lost);
        lost.filter_map(|(key, (before, now))| (before && !now).then_some(key))
    }

    fn changes_to(self, new: Self) -> Vec<Change> {
        let changes = [
            (self.max_iterations != new.max_iterations)
                .then_some(Change::MaxIterations(new.max_iterations)),
            (self.iteration_timeout != new.iteration_timeout)
                .then_some(Change::IterationTimeout(new.iteration_timeout)),
            (self.idle_timeout != new.idle_timeout)
                .then_some(Change::IdleTimeout(new.idle_timeout)),
            (self.max_duration != new.max_duration)
                .then_some(Change::MaxDuration(new.max_duration)),
            (self.max_cost != new.max_cost).then_some(Change::MaxCost(new.max_cost)),
            (self.max_tokens != new.max_tokens).then_some(Change::MaxTokens(new.max_tokens)),
            // These always have a default.
            new.check_timeout
                .filter(|_| self.check_timeout != new.check_timeout)
                .map(Change::CheckTimeout),
            new.max_failures
                .filter(|_| self.max_failures != new.max_failures)
                .map(Change::MaxFailures),
            new.sleep
                .filter(|_| self.sleep != new.sleep)
                .map(Change::Sleep),
            new.wait_on_limit
                .filter(|_| self.wait_on_limit != new.wait_on_limit)
                .map(Change::WaitOnLimit),
        ];
        changes.into_iter().flatten().collect()
    }
}

fn quoted(keys: &BTreeSet<impl std::fmt::Display>) -> String {
    let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    keys.join(", ")
}

/// Returns the keys of which something else is said, and which can't change while a run goes on.
fn others(old: &Layers, new: &Layers) -> BTreeSet<String> {
    let trees = |layers: &Layers| {
        let phases = layers
            .phases()
            .into_iter()
            .map(|phase| (phase.name, phase.tree));
        phases
            .chain([(String::new(), layers.run())])
            .collect::<Vec<_>>()
    };
    let (old, new) = (trees(old), trees(new));
    let names = |trees: &[(String, Tree)]| {
        trees
            .iter()
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>()
    };
    if names(&old) != names(&new) {
        return ["phase".to_owned()].into();
    }
    let mut others = BTreeSet::new();
    for ((_, old), (_, new)) in old.iter().zip(&new) {
        let said = |tree: &Tree| {
            let leaves = tree.leaves().into_iter();
            leaves
                .map(|(path, leaf)| (path.join("."), leaf.value.to_string()))
                .collect::<BTreeSet<_>>()
        };
        let (old, new) = (said(old), said(new));
        let changed = old.symmetric_difference(&new);
        let top = changed.map(|(key, _)| key.split('.').next().unwrap_or_default());
        others.extend(top.filter(|key| !LIVE.contains(key)).map(str::to_owned));
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn write(root: &Path, text: &str) {
        fs_err::write(root.join("rlm.toml"), text).unwrap();
    }

    fn watched(root: &Path, text: &str, line: &str) -> Watched {
        write(root, text);
        let settings = crate::resolve::tests::resolve_line(line, text).unwrap();
        Watched::new(Layers::of(root, text), &settings)
    }

    #[test]
    fn limits_follow_their_file_each_change_once() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let mut watched = watched(root, "sleep = 1\nuntil = 'x'\n", "rlm run -p text -- sh");
        assert_eq!(watched.look(), Reloaded::default());
        write(
            root,
            "sleep = 2\nuntil = 'x'\nmax-duration = '1h'\nmax-iterations = 7\ncheck-timeout = '2m'\n",
        );
        let changes = watched.look().changes;
        let hour = Change::MaxDuration(Some(Duration::from_secs(3600)));
        let check = Change::CheckTimeout(Duration::from_secs(120));
        let sleep = Change::Sleep(Duration::from_secs(2));
        let seven = Change::MaxIterations(Some(7));
        assert_eq!(changes, [seven, hour, check, sleep].map(|it| (0, it)));
        assert_eq!(watched.look(), Reloaded::default());
        write(
            root,
            "until = 'x'\nmax-iterations = 7\ncheck-timeout = '2m'\n",
        );
        let told = watched.look();
        assert_eq!(told.changes, [], "what is not said any more lifts nothing");
        insta::assert_snapshot!(told.warnings.join("\n"), @"the settings say nothing any more of `max-duration`, `sleep`; what was said before counts");
        assert_eq!(watched.look(), Reloaded::default());
        fs_err::remove_file(root.join("rlm.toml")).unwrap();
        let told = watched.look();
        assert_eq!((told.changes.len(), told.warnings.len()), (0, 2));
        write(root, "until = 'x'\nmax-iterations = 6\n");
        assert_eq!(
            watched.look().changes,
            [(0, Change::MaxIterations(Some(6)))]
        );
    }

    #[test]
    fn what_can_not_change_is_named_and_a_broken_file_changes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let mut watched = watched(root, "sleep = 1\nuntil = 'x'\n", "rlm run -p text -- sh");
        write(
            root,
            "sleep = 1\nuntil = 'y'\ngates = ['x']\n[claude.env]\nA = 's3cret'\n",
        );
        let told = watched.look();
        assert_eq!(told.changes, []);
        insta::assert_snapshot!(told.warnings.join("\n"), @"the settings have changed: `claude`, `gates`, `until` count for the next run, not for this one");
        assert_eq!(watched.look(), Reloaded::default());
        write(root, "sleeep = 1\n");
        let told = watched.look();
        let warning = told.warnings.join("\n");
        assert!(
            warning.contains("line 1: unknown key `sleeep`; did you mean `sleep`?; until that"),
            "{warning}"
        );
        assert_eq!(
            (told.changes, watched.look()),
            (Vec::new(), Reloaded::default())
        );
        write(
            root,
            "sleep = 2\nuntil = 'y'\ngates = ['x']\n[claude.env]\nA = 's3cret'\n",
        );
        let told = watched.look();
        assert_eq!((told.changes.len(), told.warnings), (1, Vec::new()));
    }

    #[test]
    fn what_is_above_the_phases_changes_for_each_that_says_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let phases = |n: u32| {
            format!(
                "max-failures = {n}\nmax-iterations = {n}\ncommand = ['sh']\nprompt = 'x'\n[[phase]]\nname = 'plan'\n\
                max-iterations = 1\n[[phase]]\nname = 'build'\n[[phase]]\nname = 'test'\nidle-timeout = {n}\n"
            )
        };
        let mut watched = watched(root, &phases(3), "rlm run");
        write(root, &phases(4));
        let four = Change::MaxIterations(Some(4));
        let idle = Change::IdleTimeout(Some(Duration::from_secs(4)));
        let failures = Change::MaxFailures(4);
        let changes = [(0, failures), (1, four), (2, four), (2, idle)];
        assert_eq!(watched.look().changes, changes);
        assert_eq!(watched.look(), Reloaded::default());
        write(root, "command = ['sh']\nprompt = 'x'\n");
        let told = watched.look();
        assert_eq!((told.changes.len(), told.warnings.len()), (0, 2));
    }
}
