//! Runs a program to its end and collects its output, with the end of its whole process tree.

use crate::{
    Error, Exit, Line, OutputMode, StdinMode, StopPolicy, StopReport, Stream, TreeCommand,
};

/// The number of bytes to keep of each output.
const MAX_OUTPUT: usize = 64 << 20;

/// The result of a program that has ended, see [`TreeCommand::output`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompleteOutput {
    /// The exit of the program.
    pub exit: Exit,
    /// Standard output: at most 64 MiB, see [`dropped`](Self::dropped).
    pub stdout: Vec<u8>,
    /// Standard error: at most 64 MiB.
    pub stderr: Vec<u8>,
    /// The number of bytes that were dropped because an output was too long.
    pub dropped: u64,
    /// The end of the processes that the program left behind.
    pub report: StopReport,
}

impl TreeCommand {
    /// Runs the program to its end, then ends the processes that it left behind, with the default [`StopPolicy`]. Returns the output.
    ///
    /// Nothing could write to a standard input that is [`StdinMode::Piped`], so it is empty here. Outputs that are [`OutputMode::Bytes`] are collected as
    /// lines are.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    ///
    /// # Cancel safety
    /// Dropping the future ends the process tree.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn example() -> Result<(), agent_subprocess::Error> {
    /// let version = agent_subprocess::TreeCommand::new("git").arg("--version");
    /// let done = version.output().await?;
    /// println!("{}: {}", done.exit, String::from_utf8_lossy(&done.stdout));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn output(mut self) -> Result<CompleteOutput, Error> {
        if self.stdin == StdinMode::Piped {
            self.stdin = StdinMode::Null;
        }
        for mode in [&mut self.stdout, &mut self.stderr] {
            if *mode == OutputMode::Bytes {
                *mode = OutputMode::Lines;
            }
        }
        self.max_line = MAX_OUTPUT;
        self.stderr_waits = true;
        let mut tree = self.spawn().await?;
        let [mut stdout, mut stderr] = [Vec::new(), Vec::new()];
        let mut dropped = 0;
        while let Some(output) = tree.next_output().await {
            let bytes = match output.stream {
                Stream::Stdout => &mut stdout,
                Stream::Stderr => &mut stderr,
            };
            dropped += append(bytes, &output.line);
        }
        let exit = tree.wait().await;
        let report = tree.stop(&StopPolicy::default()).await;
        Ok(CompleteOutput {
            exit,
            stdout,
            stderr,
            dropped,
            report,
        })
    }
}

/// Appends a line, as far as there is room. Returns the number of bytes that are left out.
fn append(bytes: &mut Vec<u8>, line: &Line) -> u64 {
    let end: &[u8] = if line.terminated { b"\n" } else { b"" };
    let mut dropped = line.truncated.unwrap_or(0);
    for part in [&line.bytes[..], end] {
        let room = (MAX_OUTPUT - bytes.len()).min(part.len());
        bytes.extend_from_slice(&part[..room]);
        dropped += (part.len() - room) as u64;
    }
    dropped
}
