//! `rlm init`: writes the first files of a project, and overwrites nothing.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use rlm_store::Project;

use crate::args::InitArgs;
use crate::config;
use crate::exit::{Code, Failure};
use crate::hint;
use crate::output;

const PROMPT: &str = "\
Work on this repository until the check passes.

- Before you begin, read the results of earlier iterations in the working tree and in git's log.
- Do the one most useful next step, and leave the code better than you found it.
- Write down what the next iteration needs to know.
";

pub(crate) fn execute(directory: &Path, args: &InitArgs) -> Result<ExitCode, Failure> {
    let project = Project::find(directory)?;
    let root = project.root();
    let rlm = hint::program_command();
    let (settings, prompts, next) = match args.preset {
        None => (
            config::TEMPLATE.to_owned(),
            vec![("PROMPT.md".to_owned(), PROMPT)],
            format!(
                "edit PROMPT.md, then: {rlm} run --until 'YOUR CHECK' (with the installed agent, or add -- YOUR-AGENT)"
            ),
        ),
        Some(preset) => (preset.settings(), preset.prompts(), preset.next(rlm)),
    };
    let say = |made: bool, name: &str| {
        output::line(&format!("{} {name}", if made { "wrote" } else { "kept " }));
    };
    let made = write_new(&root.join(config::FILE_NAME), &settings)?;
    if !made && args.preset.is_some() {
        return Err(Failure::usage(format!(
            "`{}` exists and is kept, so the preset can't write its phases; move the file away, or write the preset into another directory with -C, and copy the phases",
            root.join(config::FILE_NAME).display()
        )));
    }
    say(made, config::FILE_NAME);
    for (name, text) in prompts {
        let path = root.join(&name);
        if let Some(parent) = path.parent() {
            fs_err::create_dir_all(parent).map_err(|e| Failure::failed(e.to_string()))?;
        }
        say(write_new(&path, text)?, &name);
    }
    output::line(&format!("next: {next}"));
    Ok(Code::Done.into())
}

/// Writes a new file; returns `false` if the file exists.
fn write_new(path: &Path, text: &str) -> Result<bool, Failure> {
    let file = fs_err::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path);
    match file.and_then(|mut file| file.write_all(text.as_bytes())) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(Failure::failed(format!(
            "`{}` can't be written: {}; fix that, or choose another directory with -C",
            path.display(),
            e.kind()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use rlm_store::PromptSource;

    use super::*;
    use crate::preset::Preset;

    #[test]
    fn x119e_preset_is_a_runnable_pipeline() {
        for preset in Preset::value_variants() {
            let run = "rlm run --agent claude --agent-bin sh";
            let settings = crate::resolve::tests::resolve_line(run, &preset.settings()).unwrap();
            settings.rules().validate().unwrap();
            let written: Vec<_> = preset.prompts().into_iter().map(|(name, _)| name).collect();
            let read = settings.phases.iter().map(|phase| match &phase.prompt {
                PromptSource::File(path) => path.strip_prefix("/tmp").unwrap(),
                other => panic!("{other:?}"),
            });
            let of_phases = match written.as_slice() {
                [only] => std::slice::from_ref(only),
                [_task, phases @ ..] => phases,
                [] => panic!("{preset:?} writes no prompt"),
            };
            assert!(read.eq(of_phases.iter().map(Path::new)), "{written:?}");
            let dir = tempfile::tempdir().unwrap();
            let args = InitArgs {
                preset: Some(*preset),
            };
            execute(dir.path(), &args).unwrap();
            assert!(written.iter().all(|name| dir.path().join(name).is_file()));
            let again = execute(dir.path(), &args).unwrap_err();
            assert!(again.message.contains("is kept"), "{}", again.message);
        }
        insta::assert_snapshot!(Preset::PlanThenBuild.settings());
    }
}
