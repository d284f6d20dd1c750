//! Peers in Python: a script reads one delta from each line and prints the nanoseconds of its save.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use super::keeper::Keeper;
use crate::harness::Result;
use crate::peers::{self, Script};
use crate::transcript::Delta;

/// The whole state as compressed JSON, renamed over the previous file.
pub(super) const JSON_GZIP: &str = include_str!("../../peers/json_gzip.py");
/// The transcript as one channel, which is the common use.
pub(super) const LANGGRAPH: &str = include_str!("../../peers/langgraph.py");

pub(crate) struct Python(Script);

impl Python {
    pub(super) fn begin(script: &str, dir: &Path, base: &[Delta]) -> Result<Self> {
        let mut command = peers::python(script, &dir.join("home"))?;
        command.arg(dir);
        let mut script = Script::start(command)?;
        {
            let mut input = BufWriter::new(script.input());
            writeln!(input, "{}", base.len())?;
            for delta in base {
                serde_json::to_writer(&mut input, delta)?;
                input.write_all(b"\n")?;
            }
            input.flush()?;
        }
        script.answer()?;
        Ok(Self(script))
    }
}

impl Keeper for Python {
    fn save(&mut self, delta: &Delta) -> Result<Duration> {
        let mut line = serde_json::to_vec(delta)?;
        line.push(b'\n');
        self.0.time(&line)
    }

    fn process(&self) -> u32 {
        self.0.id()
    }
}
