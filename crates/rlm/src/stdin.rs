//! Bounded reads of standard input, for a prompt or a message.

use std::io::Read as _;

use crate::exit::Failure;

/// Reads `what` to its end, at most `most` bytes.
pub(crate) fn text(what: &str, most: u64) -> Result<String, Failure> {
    read(std::io::stdin(), what, most)
}

fn read(from: impl std::io::Read, what: &str, most: u64) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = from.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|e| Failure::usage(format!("can't read {what} from standard input: {e}")))?;
    if bytes.len() as u64 > most {
        return Err(Failure::usage(format!(
            "standard input is longer than {most} bytes, the limit for {what}"
        )));
    }
    String::from_utf8(bytes)
        .map_err(|_| Failure::usage(format!("standard input is not UTF-8 text ({what})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_bounded_and_utf8() {
        let text = "é".repeat(4);
        assert_eq!(read(text.as_bytes(), "it", 8).unwrap(), text);
        let error = |bytes: &[u8]| read(bytes, "it", 7).unwrap_err().message;
        assert!(error(text.as_bytes()).contains("longer than 7 bytes"));
        assert!(error(b"\xff").contains("not UTF-8"));
    }
}
