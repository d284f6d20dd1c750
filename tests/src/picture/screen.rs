//! A screen as styled cells, without the parts that vary between recordings.

/// The style of a character.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CharStyle {
    pub(super) bold: bool,
    pub(super) dim: bool,
    /// The number of the colour, if it is not the default.
    pub(super) color: Option<u8>,
}

pub(super) type Row = Vec<(char, CharStyle)>;

/// Styled characters, and the position of the cursor during input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Screen {
    pub(super) rows: Vec<Row>,
    pub(super) cursor: Option<(u16, u16)>,
}

const PLACE: &str = "rlm-demo-";
/// The end of each directory's name in the picture.
const NAME: &str = "1a9e7919";
const RUN: &str = "20261122-091500-7f3a";

impl Screen {
    /// Takes the last `height` visible rows; `clock` has the seconds to show in the status line.
    pub(super) fn take(screen: &vt100::Screen, height: u16, clock: [u32; 2]) -> Self {
        let columns = screen.size().1;
        let top = u16::try_from(used(screen).len())
            .unwrap_or(u16::MAX)
            .saturating_sub(height);
        let row = |row| {
            let cells = (0..columns.get()).filter_map(|column| screen.cell(row, column));
            let mut cells: Row = cells.map(|cell| (character(cell), ink(cell))).collect();
            let end = cells.iter().rposition(|(c, _)| *c != ' ');
            cells.truncate(end.map_or(0, |end| end + 1));
            stable(&cells, clock)
        };
        let rows: Vec<Row> = (top..top + height).map(row).collect();
        let (row, column) = screen.cursor_position();
        let row = row.saturating_sub(top);
        let typed = rows.get(usize::from(row)).map(|row| text(row));
        let is_typed = typed.is_some_and(|t| t.starts_with('$') || t.starts_with("steer>"));
        Self {
            cursor: is_typed.then_some((row, column)),
            rows,
        }
    }
}

/// Returns the rows down to the last non-empty one.
pub(super) fn used(screen: &vt100::Screen) -> Vec<String> {
    let mut rows: Vec<String> = screen.rows(0, screen.size().1.get()).collect();
    let end = rows.iter().rposition(|row| !row.trim().is_empty());
    rows.truncate(end.map_or(0, |end| end + 1));
    rows
}

/// Shows a progress bar as empty.
fn character(cell: &vt100::Cell) -> char {
    match cell.contents().chars().next() {
        Some('█') => '░',
        character => character.unwrap_or(' '),
    }
}

fn ink(cell: &vt100::Cell) -> CharStyle {
    CharStyle {
        bold: cell.bold(),
        dim: cell.dim(),
        color: match cell.fgcolor() {
            vt100::Color::Idx(color) => Some(color),
            _ => None,
        },
    }
}

pub(super) fn text(row: &[(char, CharStyle)]) -> String {
    row.iter().map(|(c, _)| c).collect()
}

/// Replaces variable words. A replacement has the style of the word.
fn stable(row: &[(char, CharStyle)], clock: [u32; 2]) -> Row {
    let row = without_duration(row);
    let is_part = |c: char| c.is_ascii_alphanumeric() || ".:-".contains(c);
    let whole = text(&row);
    let mut out = Row::new();
    let mut rest = row.as_slice();
    while let [(first, ink), ..] = rest {
        let end = rest
            .iter()
            .position(|(c, _)| is_part(*c) != is_part(*first));
        let (piece, behind) = rest.split_at(end.unwrap_or(rest.len()));
        // Punctuation at the end is not a part of the word.
        let end = piece.iter().rposition(|(c, _)| c.is_alphanumeric());
        let (word, tail) = piece.split_at(end.map_or(0, |end| end + 1));
        match stands_for(&text(word), &text(&out), &text(behind), &whole, clock) {
            None => out.extend_from_slice(word),
            Some(stands) => out.extend(stands.chars().map(|c| (c, *ink))),
        }
        out.extend_from_slice(tail);
        rest = behind;
    }
    out
}

/// Removes the duration of an iteration: the program shows it from 10 seconds on, which a slow machine may take.
fn without_duration(row: &[(char, CharStyle)]) -> Row {
    let whole: Vec<char> = row.iter().map(|(c, _)| *c).collect();
    let mut row = row.to_vec();
    let begin = text(&row).contains(" complete (");
    let begin = whole.iter().position(|c| *c == '(').filter(|_| begin);
    let end = whole.windows(2).position(|two| two == ['s', ';']);
    if let (Some(begin), Some(end)) = (begin, end) {
        let duration = whole.get(begin + 1..end).unwrap_or_default();
        if duration.iter().all(|c| c.is_ascii_digit() || *c == 'm') {
            row.drain(begin + 1..end + 3);
        }
    }
    row
}

fn stands_for(
    word: &str,
    before: &str,
    behind: &str,
    whole: &str,
    [of_this, of_all]: [u32; 2],
) -> Option<String> {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let is_status = whole.starts_with("iteration ") && whole.ends_with("menu");
    let is_span = word.ends_with('s')
        && word.trim_end_matches('s').replacen('m', "", 1).len() == digits
        && digits > 0;
    if let Some(name) = word.strip_prefix(PLACE).filter(|name| !name.is_empty()) {
        Some(format!("{PLACE}{}", NAME.get(..name.len()).unwrap_or(NAME)))
    } else if before.is_empty() && behind.starts_with(" resume ") {
        // The row begins with the end of a wrapped name.
        NAME.get(NAME.len().saturating_sub(word.len())..)
            .map(str::to_owned)
    } else if word.len() == RUN.len() && word.matches('-').count() == 2 && digits > 12 {
        Some(RUN.to_owned())
    } else if before.ends_with("pid ") {
        Some("4711".to_owned())
    } else if before.ends_with("[main ") {
        Some(hash(behind))
    } else if before.ends_with("next iteration at ") {
        Some("09:15:12".to_owned())
    } else if before.ends_with("--pace=") {
        Some("60ms".to_owned())
    } else if behind.starts_with(" s)") {
        Some("0.1".to_owned())
    } else if is_status && is_span {
        let is_all = behind.starts_with(" in all");
        Some(format!("{}s", if is_all { of_all } else { of_this }))
    } else {
        None
    }
}

/// Returns a commit hash that depends only on its message.
fn hash(text: &str) -> String {
    let fnv = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    format!("{:07x}", text.bytes().fold(0x811c_9dc5, fnv) >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> Row {
        text.chars().map(|c| (c, CharStyle::default())).collect()
    }

    #[track_caller]
    fn expect(shown: &str, stays: &str) {
        assert_eq!(text(&stable(&row(shown), [3, 14])), stays);
    }

    #[test]
    fn varying_text_is_replaced() {
        expect(
            "in /tmp/rlm-demo-aB3xYz90: none",
            "in /tmp/rlm-demo-1a9e7919: none",
        );
        expect("agent runs (pid 99)", "agent runs (pid 4711)");
        expect(
            "log     /tmp/rlm-demo-aB3xYz90/.rlm/runs/20250101-000000-abcd/transcripts",
            "log     /tmp/rlm-demo-1a9e7919/.rlm/runs/20261122-091500-7f3a/transcripts",
        );
        expect("check passed (12.3 s)", "check passed (0.1 s)");
        expect(
            "__demo-agent --pace=300ms --",
            "__demo-agent --pace=60ms --",
        );
        expect(
            "iteration 1 complete (1m12s; check passed; 98 tokens)",
            "iteration 1 complete (check passed; 98 tokens)",
        );
        expect(
            "iteration 1/20 · agent works 61s · 1m8s in all · Ctrl-C: menu",
            "iteration 1/20 · agent works 3s · 14s in all · Ctrl-C: menu",
        );
        expect("prints 1994 MCMXCIV in 8s", "prints 1994 MCMXCIV in 8s");
    }
}
