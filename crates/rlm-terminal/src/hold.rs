//! Output that waits while the person is asked something.

use std::collections::VecDeque;

const MAX_LINES: usize = 500;
const MAX_BYTES: usize = 256 << 10;

/// The newest of what was to be printed.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    lines: VecDeque<String>,
    bytes: usize,
    left_out: u64,
}

impl Hold {
    /// Keeps lines for later; the oldest go when there is no room.
    pub(crate) fn push(&mut self, text: &str) {
        for line in text.split_terminator('\n') {
            self.bytes += line.len();
            self.lines.push_back(line.to_owned());
            while self.lines.len() > MAX_LINES || (self.bytes > MAX_BYTES && self.lines.len() > 1) {
                let oldest = self.lines.pop_front().unwrap_or_default();
                self.bytes -= oldest.len();
                self.left_out += 1;
            }
        }
    }

    /// Gives up what waits, and how many lines before it were left out.
    pub(crate) fn release(&mut self) -> (u64, String) {
        let held = std::mem::take(self);
        let mut text = String::with_capacity(held.bytes + held.lines.len());
        for line in held.lines {
            text.push_str(&line);
            text.push('\n');
        }
        (held.left_out, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn s8b_held_output_comes_whole_and_in_order() {
        let mut hold = Hold::default();
        hold.push("one\ntwo\n");
        hold.push("\n");
        hold.push("three");
        assert_eq!(hold.release(), (0, "one\ntwo\n\nthree\n".into()));
        assert_eq!(hold.release(), (0, String::new()));
    }

    proptest! {
        /// It is bounded, keeps the newest, and counts the rest.
        #[test]
        fn the_newest_are_kept(count in 0usize..5000, length in 0usize..1500) {
            let mut hold = Hold::default();
            for n in 0..count {
                hold.push(&format!("{n}{}\n", "x".repeat(length)));
            }
            prop_assert!(hold.lines.len() <= MAX_LINES && hold.bytes <= MAX_BYTES);
            let kept = hold.lines.len();
            let (left_out, text) = hold.release();
            prop_assert_eq!(kept as u64 + left_out, count as u64);
            let last = text.lines().last().map(|line| line.trim_end_matches('x'));
            prop_assert_eq!(last.map(str::to_owned), count.checked_sub(1).map(|n| n.to_string()));
        }
    }
}
