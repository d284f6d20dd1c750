//! A sequence of commands and screens as stable text: times, ids and process ids are replaced.

use std::fmt::Write as _;

/// The typed commands and their output, in order.
#[derive(Debug, Default)]
#[must_use]
pub struct Story {
    told: String,
}

impl Story {
    /// Adds a command and its output.
    pub fn add(&mut self, command: &[&str], shown: &str) {
        let quoted = command.iter().map(|word| match word.contains(' ') {
            true => format!("'{word}'"),
            false => (*word).to_owned(),
        });
        let quoted: Vec<String> = quoted.collect();
        let shown = shown.trim_end();
        writeln!(self.told, "$ rlm {}\n{shown}\n", quoted.join(" "))
            .expect("writing to a string can't fail");
    }

    /// Returns the text without its variable parts; `names` are other texts to replace.
    #[must_use]
    pub fn stable(&self, names: &[(&str, &str)]) -> String {
        let named = |text: String, (name, stands): &(&str, &str)| text.replace(name, stands);
        let told = names.iter().fold(self.told.clone(), named);
        told.lines().map(|line| stable(line) + "\n").collect()
    }
}

/// Compares a story with the recorded one, in which `…` matches any text within a line.
///
/// # Errors
///
/// The first line that differs.
pub fn fits(kept: &str, told: &str) -> Result<(), String> {
    let (mut kept, mut told) = (kept.trim_end().lines(), told.trim_end().lines());
    loop {
        match (kept.next(), told.next()) {
            (None, None) => return Ok(()),
            (Some(kept), Some(told)) if is_like(kept, told) => {}
            (kept, told) => return Err(format!("expected {kept:?}, found {told:?}")),
        }
    }
}

fn is_like(kept: &str, told: &str) -> bool {
    let Some((head, mut rest)) = kept.split_once('…') else {
        return kept == told;
    };
    let Some(mut told) = told.strip_prefix(head) else {
        return false;
    };
    while let Some((part, behind)) = rest.split_once('…') {
        let Some((_, after)) = told.split_once(part) else {
            return false;
        };
        (told, rest) = (after, behind);
    }
    told.ends_with(rest)
}

/// Replaces times, durations, ids and process ids.
fn stable(line: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || ".:-".contains(c);
    let (mut out, mut rest) = (String::new(), line);
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_part(c) != is_part(first));
        let (piece, behind) = rest.split_at(end.unwrap_or(rest.len()));
        let bare = piece.trim_end_matches(|c: char| !c.is_alphanumeric());
        let is_name = behind.starts_with(" (") && bare.bytes().all(|c| c.is_ascii_digit());
        out.push_str(match stands_for(bare) {
            _ if is_name || out.ends_with("pid ") => "PID",
            // In a table, where the pid is the first number of several digits.
            _ if out.ends_with("  ")
                && !out.contains("PID")
                && bare.len() > 2
                && bare.bytes().all(|c| c.is_ascii_digit()) =>
            {
                "PID"
            }
            Some(stands) => stands,
            None if behind.starts_with(" s)") => "0.0",
            None => bare,
        });
        out.push_str(&piece[bare.len()..]);
        rest = behind;
    }
    match out.starts_with("RUN  ") {
        // The column width depends on the replaced values.
        true => {
            let columns = out.split("  ").filter(|text| !text.trim().is_empty());
            columns.map(str::trim).collect::<Vec<_>>().join("  ")
        }
        false => out.trim_end().to_owned(),
    }
}

fn stands_for(word: &str) -> Option<&'static str> {
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let is_span = digits > 0 && digits + 1 == word.len() && word.ends_with('s');
    match (word.len(), word.matches('-').count()) {
        (20, 2) if digits > 12 => Some("RUN"),
        (36, 4) => Some("SESSION"),
        (40, 0) if digits > 5 => Some("COMMIT"),
        _ if word.contains(':') && digits >= 5 => Some("TIME"),
        _ => is_span.then_some("0s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ellipsis_matches_any_text_within_a_line() {
        assert_eq!(
            fits("a\nended … processes: …\n", "a\nended 4 processes: sh, cat"),
            Ok(())
        );
        assert!(fits("a … c", "a b d").is_err() && fits("a", "a\nb").is_err());
    }

    #[test]
    fn times_and_ids_are_replaced() {
        let mut story = Story::default();
        story.add(
            &["run", "-p", "a b"],
            "runs/20261121-094512-7f3a/t (pid 4711), 12s, saved 2026-11-21T09:45:12.000Z: 12 (sh)\niteration 3",
        );
        assert_eq!(
            story.stable(&[]),
            "$ rlm run -p 'a b'\nruns/RUN/t (pid PID), 0s, saved TIME: PID (sh)\niteration 3\n\n"
        );
    }
}
