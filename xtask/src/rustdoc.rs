//! A stand-in for rustdoc, for the stage `doctests`: when cargo runs the examples of a library, it also builds the documentation of the library.
//! rustdoc then reads the libraries that the stage `build` compiled. `cargo doc` would compile all of them once more for rustdoc alone.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::command;

/// The variable with the real rustdoc. Cargo and its stand-ins have it.
const REAL: &str = "XTASK_RUSTDOC";
/// The directory of the documentation, which nobody reads.
const DIRECTORY: &str = "XTASK_RUSTDOC_DIRECTORY";

/// The options of cargo that are only for tests, and whether each has a value.
const FOR_TESTS: [(&str, bool); 7] = [
    ("--test", false),
    ("--no-run", false),
    ("--test-args", true),
    ("--test-run-directory", true),
    ("--test-runtool", true),
    ("--test-runtool-arg", true),
    ("--doctest-build-arg", true),
];

/// Makes cargo start this program as its rustdoc.
pub(crate) fn also_document(cargo: &mut Command, directory: &OsStr) -> Result<(), String> {
    let this = env::current_exe().map_err(|error| format!("can't find this program: {error}"))?;
    let sysroot = command::run("rustc", &["--print", "sysroot"], command::Show::Never);
    let real = Path::new(sysroot.stdout.trim()).join("bin/rustdoc");
    cargo.env("RUSTDOC", this).env(REAL, real);
    cargo.env(DIRECTORY, directory);
    Ok(())
}

/// Does the work of rustdoc if cargo started this process for it.
pub(crate) fn run_if_stand_in() -> Option<ExitCode> {
    let real = env::var_os(REAL)?;
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let directory = env::var_os(DIRECTORY).unwrap_or_default();
    let rustdoc = || {
        let mut rustdoc = Command::new(&real);
        rustdoc.env_remove(REAL).env_remove(DIRECTORY);
        rustdoc
    };
    let documentation = documentation(&arguments).map(|arguments| {
        let mut rustdoc = rustdoc();
        rustdoc.args(arguments);
        // Private items have links too. rustdoc still reports a public page that links to a private item.
        rustdoc.args(["--document-private-items", "-Dwarnings", "--out-dir"]);
        rustdoc.arg(&directory);
        std::thread::spawn(move || command::finish(&mut rustdoc, command::Show::Never))
    });
    let tests = rustdoc().args(&arguments).status();
    let mut success = tests.is_ok_and(|status| status.success());
    if let Some(ended) = documentation.map(|it| it.join().expect("a command does not panic")) {
        success &= ended.success;
        if !ended.success {
            let _closed = std::io::stderr().write_all(ended.output.as_bytes());
        }
    }
    Some(if success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns the arguments that document a library, from those that run its examples. `None` if they run no examples: cargo asks for the version.
fn documentation(arguments: &[OsString]) -> Option<Vec<OsString>> {
    if !arguments.iter().any(|argument| argument == "--test") {
        return None;
    }
    let mut kept = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match FOR_TESTS.iter().find(|(option, _)| argument == option) {
            Some((_, true)) => drop(arguments.next()),
            Some((_, false)) => {}
            None => kept.push(argument.clone()),
        }
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_keeps_all_arguments_but_those_for_tests() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let kept = documentation(&words(
            "--edition=2024 --crate-name a --test src/lib.rs --test-run-directory /a --extern b=/b.rlib --no-run --test-args --test",
        ));
        assert_eq!(
            kept,
            Some(words(
                "--edition=2024 --crate-name a src/lib.rs --extern b=/b.rlib"
            ))
        );
        assert_eq!(documentation(&words("--version --verbose")), None);
    }
}
