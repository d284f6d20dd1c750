//! The page that starts a run.

use std::path::PathBuf;

use maud::{Markup, html};
use serde::Deserialize;

use super::{PageContext, secret_field};
use crate::program::AgentChoice;

/// The fields of the page.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NewRunForm {
    pub(crate) csrf: String,
    pub(crate) action: String,
    /// The top of the project.
    pub(crate) project: String,
    /// Without a prompt, the run reads the file that its project names.
    pub(crate) prompt: String,
    title: String,
    agent: String,
    model: String,
    until: String,
    iterations: String,
    cost: String,
    duration: String,
}

impl NewRunForm {
    /// Returns the arguments of the command that starts the run, without its prompt.
    ///
    /// Each value is in the word of its option, so that none can be taken for another option.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let options = [
            ("--title", &self.title),
            ("--agent", &self.agent),
            ("--model", &self.model),
            ("--until", &self.until),
            ("--max-iterations", &self.iterations),
            ("--max-cost", &self.cost),
            ("--max-duration", &self.duration),
        ];
        let given = options.into_iter().filter(|it| !it.1.trim().is_empty());
        let given = given.map(|(name, value)| format!("{name}={}", value.trim()));
        ["run".into(), "--detach".into()]
            .into_iter()
            .chain(given)
            .collect()
    }

    /// Returns the prompt, with the line ends of a file.
    pub(crate) fn prompt(&self) -> Option<String> {
        let prompt = self.prompt.replace("\r\n", "\n");
        (!prompt.trim().is_empty()).then_some(prompt)
    }
}

/// The remark of the page about the run that its fields describe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NewRunNote {
    /// The command that starts the run.
    Command(String),
    Rejected(String),
}

/// Returns the page.
pub(crate) fn new_run(
    context: &PageContext,
    form: &NewRunForm,
    projects: &[PathBuf],
    agents: &[AgentChoice],
    note: Option<&NewRunNote>,
) -> Markup {
    html! {
        div class="head" { h1 { "New run" } }
        @if projects.is_empty() {
            p class="empty" { "No project has a run yet. Start the first run in the directory of a project: " code { "rlm run" } }
        } @else {
            form class="new" method="post" action="/new" {
                (secret_field(context))
                (project_field(form, projects))
                label for="prompt" { "Prompt" }
                textarea id="prompt" name="prompt" rows="10" placeholder="The task, and how to recognise that it is finished. Without a text, the run reads the prompt file of its project." {
                    // A browser drops the first newline.
                    "\n" (form.prompt)
                }
                div class="fields" {
                    (agent_field(form, agents))
                    (field("model", "Model", &form.model, "the agent's choice"))
                    (field("title", "Title", &form.title, "the first line of the prompt"))
                    (field("until", "Finished when this command succeeds", &form.until, "no check"))
                    (field("iterations", "Iterations at most", &form.iterations, "as the project's rlm.toml, or 100"))
                    (field("cost", "Cost at most, in US dollars", &form.cost, "no limit"))
                    (field("duration", "Duration at most, such as 8h", &form.duration, "no limit"))
                }
                @match note {
                    Some(NewRunNote::Command(command)) => section aria-label="Command" {
                        h2 { "This command starts the same run" }
                        pre { "\n" (command) }
                    },
                    Some(NewRunNote::Rejected(why)) => pre class="warn" role="alert" { "\n" (why) },
                    None => {}
                }
                div class="actions" {
                    // Enter in a field presses the first button.
                    button name="action" value="show" { "Show the command" }
                    button class="main" name="action" value="start" { "Start the run" }
                }
            }
        }
    }
}

fn project_field(form: &NewRunForm, projects: &[PathBuf]) -> Markup {
    html! {
        label for="project" { "Project" }
        select id="project" name="project" {
            // A form can send only text, so a path of other bytes needs the command line.
            @for root in projects.iter().filter_map(|project| project.to_str()) {
                option value=(root) selected[root == form.project] { (root) }
            }
        }
    }
}

fn agent_field(form: &NewRunForm, agents: &[AgentChoice]) -> Markup {
    html! {
        div {
            label for="agent" { "Agent" }
            select id="agent" name="agent" {
                option value="" { "as the project's rlm.toml, or the installed one" }
                @for agent in agents {
                    option value=(agent.name) selected[agent.name == form.agent] {
                        (agent.name) @if !agent.is_installed { " (not installed)" }
                    }
                }
            }
        }
    }
}

fn field(name: &str, label: &str, value: &str, otherwise: &str) -> Markup {
    html! {
        div {
            label for=(name) { (label) }
            input id=(name) name=(name) value=(value) placeholder=(otherwise);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_stays_in_the_word_of_its_option() {
        let form = NewRunForm {
            title: " --help ".into(),
            until: "make test && true".into(),
            iterations: "3".into(),
            ..NewRunForm::default()
        };
        assert_eq!(
            form.arguments(),
            [
                "run",
                "--detach",
                "--title=--help",
                "--until=make test && true",
                "--max-iterations=3"
            ]
        );
    }

    #[test]
    fn blank_prompt_is_none_and_line_ends_are_those_of_a_file() {
        let prompt = |text: &str| {
            let form = NewRunForm {
                prompt: text.into(),
                ..NewRunForm::default()
            };
            form.prompt()
        };
        assert_eq!(prompt(" \r\n"), None);
        assert_eq!(prompt("a\r\n\r\nb").as_deref(), Some("a\n\nb"));
    }
}
