//! Whether the agent promised that it is done.

/// The most bytes of a plain agent's last line that are kept.
pub(crate) const MAX_LINE: usize = 4096;

/// Returns whether the last line of `text` makes the promise: it is the promise, bare or in its tag, or it ends with the tag.
///
/// Only the end counts, so that a promise that is quoted, planned or read in a file is none.
pub(crate) fn is_made(text: &str, promise: &str) -> bool {
    let promise = promise.trim();
    let Some(last) = text.lines().map(str::trim).rfind(|line| !line.is_empty()) else {
        return false;
    };
    if last == promise {
        return true;
    }
    let tagged = last
        .strip_suffix("</promise>")
        .and_then(|rest| rest.rsplit_once("<promise>"));
    tagged.is_some_and(|(_, said)| said.trim() == promise)
}

#[cfg(test)]
mod tests {
    use super::is_made;

    #[test]
    fn x106d_a_promise_stands_at_the_end() {
        for text in [
            "DONE",
            "all tests pass\n\n  DONE  \n",
            "<promise>DONE</promise>",
            "All is well. <promise> DONE </promise>\n\n",
        ] {
            assert!(is_made(text, "DONE"), "{text:?}");
        }
    }

    #[test]
    fn x106c_a_promise_in_the_middle_is_none() {
        for text in [
            "",
            "I will say <promise>DONE</promise> when all tests pass",
            "<promise>DONE</promise>\nwas what I was told to say, but a test fails",
            "DONE is not what I am",
            "almost DONE",
            "<promise>NOT DONE</promise>",
            "> DONE",
        ] {
            assert!(!is_made(text, "DONE"), "{text:?}");
        }
    }
}
