//! File names: those of the store's own files, and the names that callers may choose.

use std::fmt;

/// The directory for damaged files that were set aside.
pub(crate) const QUARANTINE: &str = "quarantine";

/// The name of a file that belongs to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileName {
    /// A finished phase. The name has only the sequence number, so that two writers of the same phase conflict.
    Phase { seq: u64 },
    /// The journal of one writer after the phase with sequence number `base`, or without a phase.
    Progress { epoch: u64, base: u64 },
    /// The marker of the writer that took `epoch`. The marker with the highest number is never removed.
    Marker { epoch: u64 },
    /// An unfinished file; only a writer of a higher epoch may remove it.
    Temp { epoch: u64, random: u64 },
}

impl FileName {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let name = if let Some(rest) = text.strip_prefix("phase-") {
            Self::Phase {
                seq: hex(rest.strip_suffix(".ckpt")?)?,
            }
        } else if let Some(rest) = text.strip_prefix("progress-") {
            let (epoch, base) = rest.strip_suffix(".ckj")?.split_once('-')?;
            Self::Progress {
                epoch: hex(epoch)?,
                base: hex(base)?,
            }
        } else if let Some(rest) = text.strip_prefix("epoch-") {
            Self::Marker { epoch: hex(rest)? }
        } else {
            let (epoch, random) = text.strip_prefix(".tmp-")?.split_once('-')?;
            Self::Temp {
                epoch: hex(epoch)?,
                random: hex(random)?,
            }
        };
        // Only one spelling is valid, so that no two files have the same meaning.
        (name.to_string() == text).then_some(name)
    }

    /// Returns the epoch that the name proves to be taken.
    pub(crate) fn epoch(self) -> Option<u64> {
        match self {
            Self::Progress { epoch, .. } | Self::Marker { epoch } => Some(epoch),
            Self::Phase { .. } | Self::Temp { .. } => None,
        }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Phase { seq } => write!(f, "phase-{seq:016x}.ckpt"),
            Self::Progress { epoch, base } => write!(f, "progress-{epoch:08x}-{base:016x}.ckj"),
            Self::Marker { epoch } => write!(f, "epoch-{epoch:08x}"),
            Self::Temp { epoch, random } => write!(f, ".tmp-{epoch:08x}-{random:016x}"),
        }
    }
}

/// Checks that a blob or a phase may have this name. Names are refused, never escaped: the name on disk is the name that the person typed.
///
/// # Errors
/// The reason why the name is not allowed, as a text for people.
///
/// # Examples
///
/// ```
/// assert!(checkpoint_store::check_name("plan").is_ok());
/// assert!(checkpoint_store::check_name("../plan").is_err());
/// ```
pub fn check_name(name: &str) -> Result<(), &'static str> {
    const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];
    let stem = name
        .split('.')
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let numbered = |port: &str| {
        stem.strip_prefix(port)
            .is_some_and(|n| n.len() == 1 && n.as_bytes()[0].is_ascii_digit())
    };
    if name.is_empty() || name.len() > 64 {
        Err("it must have 1 to 64 bytes")
    } else if !name.as_bytes()[0].is_ascii_alphanumeric()
        || !name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    {
        Err("use letters, digits, `.`, `_` and `-`; begin with a letter or a digit")
    } else if name.contains("..") {
        Err("it contains `..`")
    } else if DEVICES.contains(&stem.as_str()) || numbered("com") || numbered("lpt") {
        Err("it is the name of a device on Windows")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x117c_names_outside_the_directory_are_refused() {
        for bad in [
            "", "..", "../a", "a/b", "a\\b", "a\nb", ".a", "a..b", "NUL.txt", "com1", "ä",
        ] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        for good in ["plan", "prompt-1.md", "0", "com10", "a.b_c"] {
            assert_eq!(check_name(good), Ok(()), "{good:?}");
        }
    }

    #[test]
    fn own_file_names_have_one_spelling() {
        for name in [
            FileName::Phase { seq: 7 },
            FileName::Progress {
                epoch: 1,
                base: u64::MAX,
            },
            FileName::Marker { epoch: 1 << 40 },
            FileName::Temp {
                epoch: 3,
                random: 9,
            },
        ] {
            assert_eq!(FileName::parse(&name.to_string()), Some(name));
        }
        for other in [
            "phase-7.ckpt",
            "epoch-+0000001",
            "LOCK",
            "control.sock",
            "epoch-0000000A",
        ] {
            assert_eq!(FileName::parse(other), None, "{other}");
        }
    }
}
