//! The list of all programs that a run starts. Import, resume, the dry runs, the start of a run and `rlm config show` use it.
//!
//! [`Settings::programs`] lists those in the saved settings, [`RunObservers::programs`] the others. Both functions destructure all fields: code with
//! a new field doesn't compile until these functions say whether a run starts a program because of the field.

use std::ffi::OsString;

use rlm_store::{Program, Project, Settings};

use crate::config::Layers;
use crate::observers::RunObservers;
use crate::resolve;

/// Lists all programs that a run starts.
pub(crate) fn all(settings: &Settings, watchers: &RunObservers) -> Vec<Program> {
    let mut all = settings.programs();
    all.extend(watchers.programs());
    all
}

/// Lists all programs that a new run with these layers would start, even if it can't start; `words` is the command after `--`.
pub(crate) fn of_layers(layers: &Layers, words: &[OsString], project: &Project) -> Vec<Program> {
    let (root, directory) = (project.root(), project.directory());
    let settings = resolve::preview_settings(layers, words, root, directory);
    all(&settings, &RunObservers::of(&layers.run(), root, directory))
}

/// Lists the programs that a run starts only because the project's own file names them.
pub(crate) fn of_project(layers: &Layers, words: &[OsString], project: &Project) -> Vec<Program> {
    let others = of_layers(&layers.without_project(), words, project);
    let mut own = of_layers(layers, words, project);
    own.retain(|program| !others.contains(program));
    own
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{KEYS, ValueKind};
    use agent_drivers::OptionKind;

    /// The keys that have a text as their value and start no program. A new key with a text belongs here or in the list of programs.
    const STARTS_NOTHING: [&str; 10] = [
        "name",
        "title",
        "prompt",
        "prompt-file",
        "model",
        "completion-promise",
        "safe-directories",
        // The events for the channels of `notify`; the list of programs has their commands.
        "notify-on",
        "view-url",
        // Only names from a fixed list.
        "permissions",
    ];

    /// The same for the sections of agents.
    const SECTION_STARTS_NOTHING: [&str; 12] = [
        "fallback-model",
        "effort",
        "tools",
        "allowed-tools",
        "disallowed-tools",
        "system-prompt",
        "append-system-prompt",
        "setting-sources",
        "add-dirs",
        "env-allow",
        "auth-method",
        "analytics",
    ];

    fn listed(text: &str) -> String {
        let place = tempfile::tempdir().unwrap();
        let servers = r#"{"mcpServers": {"c": {"command": "canary-of-mcp-config"}}}"#;
        fs_err::write(place.path().join("canary"), servers).unwrap();
        let layers = Layers::of(place.path(), text);
        let project = Project::find(place.path()).unwrap();
        let all = of_layers(&layers, &[], &project);
        let all: Vec<_> = all.iter().map(|it| format!("{it:?}")).collect();
        all.join("\n")
    }

    #[test]
    fn h6_every_key_that_can_carry_a_command_is_in_the_list() {
        for key in KEYS {
            let text = match key.kind {
                ValueKind::Plain(OptionKind::Text) => format!("{} = 'canary'", key.name),
                ValueKind::Plain(OptionKind::Texts) => {
                    format!("{} = ['canary', 'canary']", key.name)
                }
                ValueKind::ListLike(_) => format!("{} = ['command:canary']", key.name),
                ValueKind::Servers => "mcp-servers.a = { command = 'x', args = ['canary'] }".into(),
                ValueKind::Table(_) => {
                    section(key.name, key.kind);
                    continue;
                }
                // A switch, a number or one of a few words can't contain a stranger's command.
                _ => continue,
            };
            if STARTS_NOTHING.contains(&key.name) {
                continue;
            }
            let agent = match key.name {
                "command" => "",
                _ => "agent = 'claude'\n",
            };
            let listed = listed(&format!("{agent}{text}\n"));
            assert!(listed.contains("canary"), "{}: {listed}", key.name);
        }
        assert!(listed("agent = 'claude'\ncommit = true").contains("GitHooks"));
    }

    fn section(name: &str, kind: ValueKind) {
        let ValueKind::Table(keys) = kind else { return };
        // The second one is refused in a file of a project.
        if ["on-press", "api-server"].contains(&name) {
            return;
        }
        for key in keys {
            let value = match (key.name, key.kind) {
                ("program", _) => "['canary']",
                ("hooks", _) => "true",
                (_, ValueKind::Plain(OptionKind::Named)) => "{ canary = 'x' }",
                (_, ValueKind::Plain(OptionKind::Free)) => "{ canary = 'x' }",
                (known, kind) => {
                    let is_text =
                        matches!(kind, ValueKind::Plain(OptionKind::Text | OptionKind::Texts));
                    let is_known = SECTION_STARTS_NOTHING.contains(&known);
                    assert!(!is_text || is_known, "{name}.{known} is in neither list");
                    continue;
                }
            };
            let listed = listed(&format!(
                "agent = '{name}'\n{name}.{} = {value}\n",
                key.name
            ));
            let is_listed = listed.contains("canary") || listed.contains("AgentHooks");
            // An acp agent needs a program. Without one, no program starts that could get a variable.
            let needs_program = name == "acp" && key.name != "program";
            assert!(is_listed || needs_program, "{name}.{}: {listed}", key.name);
        }
    }

    #[test]
    fn h6_project_programs_are_distinguished_from_user_programs() {
        let place = tempfile::tempdir().unwrap();
        let text =
            "until = 'theirs'\nnotify = ['command:theirs too', 'desktop']\ngates = ['mine']\n";
        let user = "notify = ['command:mine']\n";
        let layers = Layers::of(place.path(), text).with_user(user);
        let project = Project::find(place.path()).unwrap();
        let own = of_project(&layers, &["my-agent".into()], &project);
        let own: Vec<_> = own.iter().map(|it| it.command.as_str()).collect();
        assert_eq!(own, ["mine", "theirs", "theirs too"]);
    }
}
