//! The pipelines of `rlm init --preset`.

use clap::ValueEnum;

/// A ready-made pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// A plan, your review, then the work until its check passes
    PlanThenBuild,
    /// Research, a plan, then the work until its check passes, with your review between them
    ResearchPlanBuild,
}

const TASK: &str = "\
Describe the task here, and how to recognise that it is finished: what must work, and what must not change.
";

const RESEARCH: &str = "\
The task is in PROMPT.md. Don't change any code. Find out what is needed to plan the task.

- Read the code that the task concerns, its tests, and the documentation of the project.
- Look for existing code that does a part of the task, and for things that may break.
- Write your results into RESEARCH.md: facts with their places (file and line), open questions, risks.

End with a summary of ten lines at most: the prompt of the next phase includes it.
";

const PLAN: &str = "\
The task is in PROMPT.md. If there is a RESEARCH.md, it has the results of the research. Don't change any code: write a plan into PLAN.md.

- List the steps as checkboxes, in order. Each step must be small enough for one iteration.
- Say for each step what changes, where, and how to recognise that it works.
- Say what is not part of the task.

If a person sent the plan back, do what they ask. End with a summary of ten lines at most: the prompt of the next phase includes it.
";

const BUILD: &str = "\
The task is in PROMPT.md and the plan in PLAN.md.

- Before you begin, read the results of earlier iterations in the working tree and in git's log.
- Do the next open step of PLAN.md, with its tests, and check it off.
- If the plan is wrong, fix PLAN.md and say why there.
- Leave the code better than you found it.
";

const HEAD: &str = "\
# A pipeline: each phase begins when the phase before it is finished, and its prompt includes the previous phase's final message. Between two
# phases rlm asks you for a review: continue, revise, start over, exit. Without a terminal it doesn't ask. The settings above the first
# [[phase]] apply to all phases; each phase can override agent, model, permissions, session, until, completion-promise, gates, max-iterations
# and the time limits.

# agent = \"claude\"
# autonomy = \"checkpoint\"          # or \"batch:5\" (a review after each 5 iterations), \"full\" (never)
# max-duration = \"8h\"
# commit = true
";

/// A phase of a preset: its name, its prompt, and its stop condition.
type Part = (&'static str, &'static str, &'static str);

const ONCE: &str = "max-iterations = 1\n";
const UNTIL_DONE: &str = "\
completion-promise = \"DONE\"        # the agent promises this; with until, your check then decides
# until = \"cargo test\"             # your check: finished when it passes
# gates = [\"cargo fmt --check\"]    # required checks: must pass before an iteration counts
max-iterations = 50
";

impl Preset {
    fn parts(self) -> &'static [Part] {
        const ALL: [Part; 3] = [
            ("research", RESEARCH, ONCE),
            ("plan", PLAN, ONCE),
            ("build", BUILD, UNTIL_DONE),
        ];
        match self {
            Self::ResearchPlanBuild => &ALL,
            Self::PlanThenBuild => &ALL[1..],
        }
    }

    /// Returns the content of `rlm.toml`.
    pub(crate) fn settings(self) -> String {
        let phase = |(name, _, ends): &Part| {
            format!("\n[[phase]]\nname = \"{name}\"\nprompt-file = \"prompts/{name}.md\"\n{ends}")
        };
        let phases: String = self.parts().iter().map(phase).collect();
        format!("{HEAD}{phases}")
    }

    /// Returns the files with the task and the prompts.
    pub(crate) fn prompts(self) -> Vec<(String, &'static str)> {
        let parts = self.parts().iter();
        let prompts = parts.map(|(name, prompt, _)| (format!("prompts/{name}.md"), *prompt));
        std::iter::once(("PROMPT.md".to_owned(), TASK))
            .chain(prompts)
            .collect()
    }
}
