//! What would mend an error, as the command that a person types: the crates below know what would, and not how it is typed.

use rlm_store::Mend;

/// Says an error with the command that mends it, where there is one.
pub(crate) fn mended(error: &dyn std::error::Error, mend: Option<Mend>) -> String {
    match mend {
        Some(mend) => format!("{error}: {}", command(super::rlm(), &mend)),
        None => error.to_string(),
    }
}

fn command(rlm: &str, mend: &Mend) -> String {
    match mend {
        Mend::ChooseRun => format!("{rlm} status, or -C DIR"),
        Mend::ChooseState(run) => format!("{rlm} checkpoints list {run}"),
        Mend::Look { run, save } => format!("{rlm} checkpoints show {run} --save {save}"),
        Mend::Verify(run) => format!("{rlm} checkpoints verify {run}"),
        Mend::Stop(run) => format!("{rlm} stop {run}"),
        Mend::Resume(run) => format!("{rlm} resume {run}"),
        Mend::TakeBack(run) => format!("{rlm} resume {run} --force"),
        Mend::Commit(run) => format!("{rlm} resume {run} --commit"),
        Mend::Fork { run, iteration } => {
            format!("{rlm} checkpoints fork {run} --at {iteration}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::Parser;
    use rlm_store::RunId;

    #[test]
    fn each_mend_is_a_command_that_there_is() {
        let run: RunId = "r1".parse().unwrap();
        let mends = [
            Mend::ChooseRun,
            Mend::ChooseState(run.clone()),
            Mend::Look {
                run: run.clone(),
                save: 7,
            },
            Mend::Verify(run.clone()),
            Mend::Stop(run.clone()),
            Mend::Resume(run.clone()),
            Mend::TakeBack(run.clone()),
            Mend::Commit(run.clone()),
            Mend::Fork { run, iteration: 3 },
        ];
        let commands = mends.map(|mend| command("rlm -C ../there", &mend));
        for line in &commands {
            let line = line.split(',').next().unwrap();
            let parsed = Args::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}");
        }
        insta::assert_snapshot!(commands.join("\n"), @r"
        rlm -C ../there status, or -C DIR
        rlm -C ../there checkpoints list r1
        rlm -C ../there checkpoints show r1 --save 7
        rlm -C ../there checkpoints verify r1
        rlm -C ../there stop r1
        rlm -C ../there resume r1
        rlm -C ../there resume r1 --force
        rlm -C ../there resume r1 --commit
        rlm -C ../there checkpoints fork r1 --at 3
        ");
    }
}
