//! Pipelines that `rlm init` can begin a project with.

use clap::ValueEnum;

/// A pipeline that is ready to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// A plan, your word on it, then the work until its check passes
    PlanThenBuild,
    /// Research, a plan, then the work until its check passes, with your word between them
    ResearchPlanBuild,
}

const TASK: &str = "\
Write here what is to be done, and how one can tell that it is: what must work, what must stay as it is.
";

const RESEARCH: &str = "\
The task is in PROMPT.md. Don't change any code: find out what one must know to plan it.

- Read the code that the task concerns, its tests, and what the project says of itself.
- Look for what is there already that does a part of it, and for what may break.
- Write what you found into RESEARCH.md: facts with their places (file and line), open questions, risks.

End with a summary of ten lines at most: the next phase is told it.
";

const PLAN: &str = "\
The task is in PROMPT.md; where there is a RESEARCH.md, it says what was found out. Don't change any code: write a plan into PLAN.md.

- Steps that are small enough for one iteration each, in the order in which they can be done, as a list to be ticked off.
- For each what changes, where, and how one can tell that it works.
- What is not part of it.

If a person has sent the plan back, do what they say. End with a summary of ten lines at most: the next phase is told it.
";

const BUILD: &str = "\
The task is in PROMPT.md and the plan in PLAN.md.

- Read what earlier iterations left in the working tree and in git's log before you begin.
- Do the next step of PLAN.md that is not ticked off, with its tests, and tick it off.
- If the plan turns out to be wrong, mend it in PLAN.md and say why there.
- Leave the tree better than you found it.
";

const HEAD: &str = "\
# A pipeline: each phase begins when the one before it is done, and has in its prompt what that came to. Between two phases you are asked
# whether it is good: continue, revise, start over, exit. Without a terminal nothing is asked. What stands here is for all phases; each
# can say otherwise: agent, model, permissions, session, until, completion-promise, gates, max-iterations and the time limits.

# agent = \"claude\"
# autonomy = \"checkpoint\"          # or \"batch:5\" (your word after each 5 iterations), \"full\" (never)
# max-duration = \"8h\"
# commit = true
";

/// A phase of a preset: its name, its prompt, and what ends it.
type Part = (&'static str, &'static str, &'static str);

const ONCE: &str = "max-iterations = 1\n";
const UNTIL_DONE: &str = "\
completion-promise = \"DONE\"        # the agent says so; with until, your check is asked then
# until = \"cargo test\"             # your check: what passes here is done
# gates = [\"cargo fmt --check\"]    # must pass before an iteration counts
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

    /// Returns what `rlm.toml` says.
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
