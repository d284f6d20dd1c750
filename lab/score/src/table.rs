//! The report as text. This module does no I/O.

use crate::{Report, Score, Verdict};

/// The width of the column of names.
const NAME: usize = 26;

impl Report {
    /// Returns a line for each score.
    #[must_use]
    pub fn summary(&self) -> String {
        let lines = self.scores.iter().map(|score| {
            let name = score.score.name();
            format!("{name:<8} {}\n", score.summary())
        });
        lines.collect::<String>().trim_end().to_owned()
    }
}

impl Score {
    /// Returns the table: a line for each cell.
    #[must_use]
    pub fn table(&self, coloured: bool) -> String {
        let mut text = format!("{}\n", self.score.name());
        for cell in &self.cells {
            let verdict = format!("{:<9}", cell.verdict.name());
            let verdict = painted(verdict, cell.verdict, coloured);
            let line = format!("  {verdict}  {:<NAME$}  {}", cell.cell, cell.why);
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    /// Returns the number of kept cells, and the number of cells without a result.
    fn summary(&self) -> String {
        let count = |verdict| {
            let cells = self.cells.iter();
            cells.filter(|cell| cell.verdict == verdict).count()
        };
        let (kept, broken) = (count(Verdict::Kept), count(Verdict::Broken));
        let mut text = format!("{kept} of {} kept", kept + broken);
        for verdict in [Verdict::NotShown, Verdict::Skipped] {
            if let number @ 1.. = count(verdict) {
                text += &format!(", {number} {}", verdict.name());
            }
        }
        text
    }
}

/// Colours a cell, which must already be padded, because escape sequences would count as width.
fn painted(cell: String, verdict: Verdict, coloured: bool) -> String {
    let colour = match verdict {
        Verdict::Kept => 32,
        Verdict::Broken => 31,
        Verdict::NotShown => 33,
        Verdict::Skipped => return cell,
    };
    match coloured {
        true => format!("\x1b[{colour}m{cell}\x1b[0m"),
        false => cell,
    }
}

#[cfg(test)]
mod tests {
    use crate::{Cell, Circumstances, Report, Score, ScoreName, Tool};

    fn report() -> Report {
        let circumstances = Circumstances {
            system: "Linux x86_64".into(),
            cores: 2,
            seed: 1,
            seconds: 1.5,
        };
        let cells = vec![
            Cell::judged("one", 1, true, ""),
            Cell::judged("two", 1, false, "exit 0 without work"),
            Cell::not_shown("three", "the agent did not start"),
            Cell::skipped("four", "the tool has no check"),
        ];
        let score = Score {
            score: ScoreName::Done,
            cells,
        };
        let tool = Tool::of_command("x", "x {agent}", None).expect("it is valid");
        Report::new(tool, circumstances, vec![score])
    }

    #[test]
    fn table_has_a_line_for_each_cell_and_a_summary() {
        let expected = "done
  kept       one
  broken     two                         exit 0 without work
  not shown  three                       the agent did not start
  skipped    four                        the tool has no check
";
        let report = report();
        let score = &report.scores[0];
        assert_eq!(score.table(false), expected);
        assert!(score.table(true).contains("\x1b[31mbroken   \x1b[0m"));
        assert!(!report.kept);
        assert_eq!(
            report.summary(),
            "done     1 of 2 kept, 1 not shown, 1 skipped"
        );
    }
}
