//! Programs that save as most programs do: they rename a new file over the old one, and omit a sync. They are controls: a layer that cuts the power
//! must find lost saves in them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use crate::ledger::{Ledger, Note, fingerprint};
use crate::program;
use crate::reference::{CheckResult, State, broken};
use crate::saver::{NoteSink, Stop};

/// The time between two saves.
const APART: Duration = Duration::from_millis(2);

/// The syncs that such a program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenameSaver {
    /// Whether it syncs the file before the rename.
    pub file_sync: bool,
    /// Whether it syncs the directory after the rename.
    pub dir_sync: bool,
}

fn state(number: u32) -> State {
    State {
        head: Some(number),
        events: Vec::new(),
    }
}

impl RenameSaver {
    /// Saves `steps` times.
    ///
    /// # Errors
    /// If `say` fails.
    pub fn work(self, dir: &Path, steps: u32, say: &mut NoteSink<'_>) -> Result<(), Stop> {
        for number in 1..=steps {
            say(Note::Try(fingerprint(&state(number)), number))?;
            if self.save(dir, number).is_ok() {
                say(Note::Ack)?;
            }
            program::pause(APART);
        }
        say(Note::End)
    }

    fn save(self, dir: &Path, number: u32) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        let temp = dir.join("state.tmp");
        let mut file = File::create(&temp)?;
        file.write_all(number.to_string().as_bytes())?;
        if self.file_sync {
            file.sync_all()?;
        }
        fs::rename(temp, dir.join("state"))?;
        if self.dir_sync {
            File::open(dir)?.sync_all()?;
            // The directory itself is new.
            File::open(dir.parent().unwrap_or(dir))?.sync_all()?;
        }
        Ok(())
    }
}

/// Loads as such a program does, and fails unless the ledger allows the loaded state.
///
/// # Errors
/// If the ledger does not allow it.
pub fn check_load(dir: &Path, ledger: &mut Ledger) -> CheckResult {
    match fs::read_to_string(dir.join("state")) {
        Ok(text) => match text.parse() {
            Ok(number) => ledger.check(&state(number)),
            Err(_) => broken('A', format!("the file contains {text:?}")),
        },
        Err(_) => ledger.check(&State::default()),
    }
}
