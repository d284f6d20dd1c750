//! Peers in Python: a script reads one delta a line and says how many nanoseconds its save took.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use super::Keeper;
use crate::harness::{Child, Result};
use crate::peers;
use crate::transcript::Delta;

/// The whole state as compressed JSON, renamed over the last one.
pub(super) const JSON_GZIP: &str = include_str!("../../peers/json_gzip.py");
/// The transcript as one channel, the common use.
pub(super) const LANGGRAPH: &str = include_str!("../../peers/langgraph.py");

const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Python(Child);

impl Python {
    pub(super) fn begin(script: &str, dir: &Path, base: &[Delta]) -> Result<Self> {
        let mut command = peers::python(script, &dir.join("home"))?;
        command.arg(dir);
        let mut child = Child::spawn(command).map_err(|error| format!("Python: {error}"))?;
        match child.read_line(LIMIT)?.as_str() {
            "ready" => {}
            why => return Err(why.into()),
        }
        {
            let mut input = BufWriter::new(child.input());
            writeln!(input, "{}", base.len())?;
            for delta in base {
                serde_json::to_writer(&mut input, delta)?;
                input.write_all(b"\n")?;
            }
            input.flush()?;
        }
        child.read_line(LIMIT)?;
        Ok(Self(child))
    }
}

impl Keeper for Python {
    fn save(&mut self, delta: &Delta) -> Result<Duration> {
        let mut line = serde_json::to_vec(delta)?;
        line.push(b'\n');
        self.0.input().write_all(&line)?;
        let nanoseconds = self.0.read_line(LIMIT)?.parse()?;
        Ok(Duration::from_nanos(nanoseconds))
    }

    fn process(&self) -> u32 {
        self.0.id()
    }
}
