//! Settings that change in a live run: the limits follow the files; other changes apply to the next run.

use std::collections::BTreeSet;

use loop_runner::Reloaded;
use loop_state::RuleChange;
use rlm_store::Settings;

use super::layers::{Layers, defaults};
use super::settings::{Config, LIMITS, follows_files};
use super::tree::SettingsTree;

/// The settings of a live run, as last read from the files.
#[derive(Debug)]
pub(crate) struct WatchedConfig {
    layers: Layers,
    phases: Vec<Phase>,
    /// The last error of the files, so that each error is reported once.
    read_error: Option<String>,
}

#[derive(Debug)]
struct Phase {
    name: String,
    /// The values for this phase and for the whole run, as last read from the files.
    from_file: FileRules,
    /// The values in effect.
    effective: FileRules,
}

/// The values of the [`LIMITS`] in the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileRules([Option<RuleChange>; LIMITS.len()]);

impl WatchedConfig {
    /// Creates the watch of a run from its layers and settings. A person may have raised limits before a resume, so only later changes apply.
    pub(crate) fn new(layers: Layers, settings: &Settings) -> Self {
        let phase = |phase: &rlm_store::PhaseSettings| {
            let (name, driven) = (phase.name.clone(), phase.agent.has_driver());
            let config = layers.phase(&name).merged_over(defaults(driven)).config();
            Phase {
                from_file: FileRules::of_phase(&layers, &name),
                effective: FileRules::of(&config),
                name,
            }
        };
        let phases = settings.phases.iter().map(phase).collect();
        Self {
            layers,
            phases,
            read_error: None,
        }
    }

    /// Reads the files again. A value above the phases applies to each phase that doesn't set it itself. A key that is gone keeps its value, because
    /// a file that was removed or is half written must not lift a limit.
    pub(crate) fn reload(&mut self) -> Reloaded {
        let mut reloaded = Reloaded::default();
        match self.layers.read_again() {
            Ok(None) => self.read_error = None,
            Ok(Some(new)) => {
                let others = others(&self.layers, &new);
                if !others.is_empty() {
                    reloaded.warnings.push(format!(
                        "the settings have changed: {} {} only to the next run",
                        quoted(&others),
                        if others.len() == 1 {
                            "applies"
                        } else {
                            "apply"
                        },
                    ));
                }
                (self.layers, self.read_error) = (new, None);
            }
            Err(why) if self.read_error.as_ref() == Some(&why.message) => {}
            Err(why) => {
                let message = &why.message;
                reloaded.warnings.push(format!(
                    "{message}; until you fix it, the previous settings stay"
                ));
                self.read_error = Some(why.message);
            }
        }
        let mut removed = BTreeSet::new();
        for (at, phase) in self.phases.iter_mut().enumerate() {
            let in_file = FileRules::of_phase(&self.layers, &phase.name);
            removed.extend(phase.from_file.lost(in_file));
            phase.from_file = in_file;
            let counts = in_file.merged_over(phase.effective);
            let changes = phase.effective.changes_to(counts);
            // A change of the whole run is reported once.
            let once = changes.filter(|it| at == 0 || it.is_phase_rule());
            reloaded.changes.extend(once.map(|change| (at, change)));
            phase.effective = counts;
        }
        if !removed.is_empty() {
            reloaded.warnings.push(format!(
                "the files no longer set {}; the previous values stay",
                quoted(&removed)
            ));
        }
        reloaded
    }
}

impl FileRules {
    /// Returns the values for a phase in the files, without defaults.
    fn of_phase(layers: &Layers, phase: &str) -> Self {
        Self::of(&layers.phase(phase).config())
    }

    fn of(config: &Config) -> Self {
        Self(std::array::from_fn(|at| (LIMITS[at].from_file)(config)))
    }

    /// Returns these values, and the other ones where these are missing.
    fn merged_over(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at].or(other.0[at])))
    }

    /// Returns the keys that had a value before and have none now.
    fn lost(self, now: Self) -> impl Iterator<Item = &'static str> {
        let each = LIMITS.iter().zip(self.0).zip(now.0);
        each.filter_map(|((limit, before), now)| {
            (before.is_some() && now.is_none()).then_some(limit.key)
        })
    }

    fn changes_to(self, new: Self) -> impl Iterator<Item = RuleChange> {
        let each = self.0.into_iter().zip(new.0);
        each.filter_map(|(before, new)| new.filter(|_| before != new))
    }
}

fn quoted(keys: &BTreeSet<impl std::fmt::Display>) -> String {
    let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    keys.join(", ")
}

/// Returns the keys that have changed and that can't change in a live run.
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
    let names = |trees: &[(String, SettingsTree)]| {
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
        let values = |tree: &SettingsTree| {
            let leaves = tree.leaves().into_iter();
            leaves
                .map(|(path, leaf)| (path.join("."), leaf.value.to_string()))
                .collect::<BTreeSet<_>>()
        };
        let (old, new) = (values(old), values(new));
        let changed = old.symmetric_difference(&new);
        let top = changed.map(|(key, _)| key.split('.').next().unwrap_or_default());
        others.extend(top.filter(|key| !follows_files(key)).map(str::to_owned));
    }
    others
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::time::Duration;

    fn write(root: &Path, text: &str) {
        fs_err::write(root.join("rlm.toml"), text).unwrap();
    }

    fn watched(root: &Path, text: &str, line: &str) -> WatchedConfig {
        write(root, text);
        let settings = crate::resolve::tests::resolve_line(line, text).unwrap();
        WatchedConfig::new(Layers::of(root, text), &settings)
    }

    #[test]
    fn each_file_change_is_applied_once() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let mut watched = watched(root, "sleep = 1\nuntil = 'x'\n", "rlm run -p text -- sh");
        assert_eq!(watched.reload(), Reloaded::default());
        write(
            root,
            "sleep = 2\nuntil = 'x'\nmax-duration = '1h'\nmax-iterations = 7\ncheck-timeout = '2m'\n",
        );
        let changes = watched.reload().changes;
        let hour = RuleChange::MaxDuration(Some(Duration::from_secs(3600)));
        let check = RuleChange::CheckTimeout(Duration::from_secs(120));
        let sleep = RuleChange::Sleep(Duration::from_secs(2));
        let seven = RuleChange::MaxIterations(Some(7));
        assert_eq!(changes, [seven, check, hour, sleep].map(|it| (0, it)));
        assert_eq!(watched.reload(), Reloaded::default());
        write(
            root,
            "until = 'x'\nmax-iterations = 7\ncheck-timeout = '2m'\n",
        );
        let reloaded = watched.reload();
        assert_eq!(reloaded.changes, [], "a removed key lifts no limit");
        insta::assert_snapshot!(reloaded.warnings.join("\n"), @"the files no longer set `max-duration`, `sleep`; the previous values stay");
        assert_eq!(watched.reload(), Reloaded::default());
        fs_err::remove_file(root.join("rlm.toml")).unwrap();
        let reloaded = watched.reload();
        assert_eq!((reloaded.changes.len(), reloaded.warnings.len()), (0, 2));
        write(root, "until = 'x'\nmax-iterations = 6\n");
        assert_eq!(
            watched.reload().changes,
            [(0, RuleChange::MaxIterations(Some(6)))]
        );
    }

    #[test]
    fn fixed_settings_are_named_and_broken_file_changes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let mut watched = watched(root, "sleep = 1\nuntil = 'x'\n", "rlm run -p text -- sh");
        write(
            root,
            "sleep = 1\nuntil = 'y'\ngates = ['x']\n[claude.env]\nA = 's3cret'\n",
        );
        let reloaded = watched.reload();
        assert_eq!(reloaded.changes, []);
        insta::assert_snapshot!(reloaded.warnings.join("\n"), @"the settings have changed: `claude`, `gates`, `until` apply only to the next run");
        assert_eq!(watched.reload(), Reloaded::default());
        write(root, "sleeep = 1\n");
        let reloaded = watched.reload();
        let warning = reloaded.warnings.join("\n");
        assert!(
            warning.contains("line 1: unknown key `sleeep`; did you mean `sleep`?; until you fix"),
            "{warning}"
        );
        assert_eq!(
            (reloaded.changes, watched.reload()),
            (Vec::new(), Reloaded::default())
        );
        write(
            root,
            "sleep = 2\nuntil = 'y'\ngates = ['x']\n[claude.env]\nA = 's3cret'\n",
        );
        let reloaded = watched.reload();
        assert_eq!((reloaded.changes.len(), reloaded.warnings), (1, Vec::new()));
    }

    #[test]
    fn top_level_setting_changes_phases_without_their_own() {
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
        let four = RuleChange::MaxIterations(Some(4));
        let idle = RuleChange::IdleTimeout(Some(Duration::from_secs(4)));
        let failures = RuleChange::MaxFailures(4);
        let changes = [(0, failures), (1, four), (2, four), (2, idle)];
        assert_eq!(watched.reload().changes, changes);
        assert_eq!(watched.reload(), Reloaded::default());
        write(root, "command = ['sh']\nprompt = 'x'\n");
        let reloaded = watched.reload();
        assert_eq!((reloaded.changes.len(), reloaded.warnings.len()), (0, 2));
    }
}
