//! The presets of `rlm init --preset`: pipelines, and prompts for common kinds of work.

use clap::ValueEnum;

/// A ready-made way of working.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// A plan, your review, then the work until its check passes
    PlanThenBuild,
    /// Research, a plan, then the work until its check passes, with your review between them
    ResearchPlanBuild,
    /// Failing tests, your review, then the work until they pass
    Tdd,
    /// One loop that repairs what CI reports
    FixCi,
    /// One iteration that reviews the branch, and changes no code
    Review,
    /// One loop of small refactorings, each with passing tests
    Refactor,
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

const TESTS: &str = "\
The task is in PROMPT.md. Write tests for it, and change no other code.

- Write the smallest set of tests that shows when the task is finished, in the style of the tests that exist.
- Run them. Each new test must fail because the work is missing, and not because of a mistake in the test.
- Name each new test and its reason in TESTS.md.

If a person sent the tests back, do what they ask. End with a summary of ten lines at most: the prompt of the next phase includes it.
";

const PASS: &str = "\
The task is in PROMPT.md, and TESTS.md names the tests for it. Make them pass.

- Before you begin, read the results of earlier iterations in the working tree and in git's log.
- Take one failing test at a time. Write the simplest code that passes it, then clean that code up.
- Don't weaken, skip or delete a test. If a test is wrong, say why in TESTS.md, and fix the test.
";

const FIX_CI: &str = "\
CI fails on this branch. Repair the causes, one at a time.

- Find the commands that CI runs (for example in .github/workflows or .gitlab-ci.yml), and run them here.
- Take the first failure. Find its cause before you change anything; don't hide it: no skipped test, no ignored warning, no higher limit.
- Run the command again, and write down what the next iteration needs to know.

Describe here what CI reports, if the commands alone don't show it.
";

const REVIEW: &str = "\
Review the changes of this branch against the main branch. Don't change any code.

- Read each changed file in full, not only the difference. Run the tests.
- Look for errors, missing tests, unclear names, and behaviour at the edges: empty, huge, concurrent, interrupted.
- Write your results into REVIEW.md, the most serious one first: the place (file and line), what happens, and how to show it. Leave out matters of taste.
";

const REFACTOR: &str = "\
Make this code easier to change, without changing what it does.

- Before you begin, read the results of earlier iterations in the working tree and in git's log.
- Choose the one change that helps most: a name, a duplicate, a long function, a wrong dependency. Make only this change.
- Run all tests before and after it. Don't change a test, except for a name that you changed.
- Write down what you would do next.

Say here what is not to be touched, and what must become easier.
";

const ONE_PHASE: &str = "\
# The prompt is in PROMPT.md. These settings apply to each run here; options of `rlm run` override them.

# agent = \"claude\"
# max-duration = \"8h\"
# commit = true
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

/// The stop condition of work whose only evidence are tests that must not break.
const WHILE_TESTS_PASS: &str = "\
max-iterations = 10
# gates = [\"cargo test\"]           # required checks: must pass before an iteration counts
";

/// The content of a preset.
enum Content {
    /// Phases with their own prompts, for a task that the user describes.
    Pipeline(&'static [Part]),
    /// One prompt, and its stop condition.
    Prompt(&'static str, &'static str),
}

impl Preset {
    fn content(self) -> Content {
        const ALL: [Part; 3] = [
            ("research", RESEARCH, ONCE),
            ("plan", PLAN, ONCE),
            ("build", BUILD, UNTIL_DONE),
        ];
        const TDD: [Part; 2] = [("tests", TESTS, ONCE), ("build", PASS, UNTIL_DONE)];
        match self {
            Self::ResearchPlanBuild => Content::Pipeline(&ALL),
            Self::PlanThenBuild => Content::Pipeline(&ALL[1..]),
            Self::Tdd => Content::Pipeline(&TDD),
            Self::FixCi => Content::Prompt(FIX_CI, UNTIL_DONE),
            Self::Review => Content::Prompt(REVIEW, ONCE),
            Self::Refactor => Content::Prompt(REFACTOR, WHILE_TESTS_PASS),
        }
    }

    /// Returns the content of `rlm.toml`.
    pub(crate) fn settings(self) -> String {
        let phase = |(name, _, ends): &Part| {
            format!("\n[[phase]]\nname = \"{name}\"\nprompt-file = \"prompts/{name}.md\"\n{ends}")
        };
        match self.content() {
            Content::Pipeline(parts) => {
                let phases: String = parts.iter().map(phase).collect();
                format!("{HEAD}{phases}")
            }
            Content::Prompt(_, ends) => format!("{ONE_PHASE}\n{ends}"),
        }
    }

    /// Returns the files with the task and the prompts.
    pub(crate) fn prompts(self) -> Vec<(String, &'static str)> {
        let (task, parts) = match self.content() {
            Content::Pipeline(parts) => (TASK, parts),
            Content::Prompt(prompt, _) => (prompt, &[][..]),
        };
        let prompts = parts.iter();
        let prompts = prompts.map(|(name, prompt, _)| (format!("prompts/{name}.md"), *prompt));
        std::iter::once(("PROMPT.md".to_owned(), task))
            .chain(prompts)
            .collect()
    }

    /// Returns what the user does next.
    pub(crate) fn next(self, rlm: &str) -> String {
        let first = match self {
            Self::Review => "read PROMPT.md",
            Self::Refactor => "edit PROMPT.md, and put your tests into rlm.toml (gates = …)",
            Self::FixCi => "edit PROMPT.md, and put your check into rlm.toml (until = …)",
            _ => "write the task into PROMPT.md and your check into rlm.toml (until = …)",
        };
        format!("{first}, then: {rlm} run")
    }
}
