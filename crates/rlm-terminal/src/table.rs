//! Tables: rows in columns below a heading, fitted to the terminal or complete for another program.

use anstyle::Style;

use crate::rows::{cut, width};
use crate::style::{DIM, styled};

/// The least width of the last column.
const LEAST: usize = 12;
/// The text of an empty cell.
const NOTHING: &str = "-";

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// On a narrow terminal, the column with the highest number is left out first; a column with 0 always stays.
    pub spare: u8,
}

/// A cell of a table. Except in the last column a cell is one word, so programs can split a row at spaces.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// Creates a cell from a text without control characters. An empty cell shows a dash.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        let text: String = text.into();
        let style = Style::new();
        match text.is_empty() {
            true => Self {
                text: NOTHING.into(),
                style,
            },
            false => Self { text, style },
        }
    }

    /// Creates a cell in a style.
    #[must_use]
    pub fn styled(text: impl Into<String>, style: Style) -> Self {
        Self {
            style,
            ..Self::new(text)
        }
    }
}

/// Lays out rows; each row has one cell per column. On a terminal with `columns` columns, columns are left out and the last column is cut, so that
/// most lines fit; for a program, nothing is cut.
#[must_use]
pub fn table(heads: &[Column], rows: &[Vec<Cell>], columns: Option<usize>) -> String {
    let wide = |index: usize| {
        let cells = rows.iter().map(|row| width(&row[index].text));
        cells.chain([heads[index].name.len()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..heads.len()).map(wide).collect();
    let last = heads.len() - 1;
    let is_said = |index: usize| rows.iter().any(|row| row[index].text != NOTHING);
    let mut shown: Vec<_> = (0..heads.len()).collect();
    // Programs rely on a fixed number of columns; a person doesn't need an empty column.
    shown.retain(|index| columns.is_none() || heads[*index].spare == 0 || is_said(*index));
    let taken = |shown: &[usize]| -> usize {
        let before = { shown.iter() }.filter(|index| **index != last);
        before.map(|index| widths[*index] + 2).sum()
    };
    while let Some(columns) = columns
        && taken(&shown) + widths[last].min(LEAST) > columns
        && let Some(spare) = { shown.iter().copied() }
            .filter(|it| heads[*it].spare > 0)
            .max_by_key(|it| heads[*it].spare)
    {
        shown.retain(|index| *index != spare);
    }
    let line = |cells: &dyn Fn(usize) -> (String, Style)| {
        let mut line = String::new();
        let mut left = columns.unwrap_or(usize::MAX);
        for index in &shown {
            let (text, style) = cells(*index);
            // Don't cut a name, because a person copies it: a line that wraps is better.
            let text = match *index == last {
                true => cut(&text, left.max(LEAST)),
                false => text,
            };
            let wide = width(&text);
            line += &styled(style, text);
            if *index != last {
                let pad = (widths[*index] + 2).saturating_sub(wide);
                line.extend(std::iter::repeat_n(' ', pad));
                left = left.saturating_sub(wide + pad);
            }
        }
        line.trim_end().to_owned()
    };
    let heading = line(&|index| (heads[index].name.to_owned(), DIM));
    let rows = rows
        .iter()
        .map(|row| line(&|index| (row[index].text.clone(), row[index].style)));
    let lines: Vec<_> = std::iter::once(heading).chain(rows).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s19c_columns_shrink_on_narrow_terminals_but_not_in_pipes() {
        let column = |name, spare| Column { name, spare };
        let heads = [
            column("RUN", 0),
            column("STATE", 0),
            column("AGE", 1),
            column("PID", 2),
            column("NOW", 0),
        ];
        let row = |run: &str, state: &str, age: &str, now: &str| {
            [run, state, age, "4711", now].map(Cell::new).to_vec()
        };
        let rows = [
            row(
                "night",
                "running",
                "2h14m",
                "Bash: cargo test --workspace --all-features",
            ),
            row(
                "a-name-that-somebody-chose-for-ci",
                "paused",
                "",
                "it waits for you: rlm resume a-name-that-somebody-chose-for-ci",
            ),
            row("夜", "stopped", "3d", ""),
        ];
        let shown = [Some(40), Some(60), Some(80), Some(120), None].map(|columns| {
            let text = table(&heads, &rows, columns);
            let text = anstream::adapter::strip_str(&text).to_string();
            format!("{columns:?}\n{text}")
        });
        insta::assert_snapshot!(shown.join("\n\n"));
    }
}
