//! The parts of a message after its text. The files are checked and read here, when a driver sends the message, so that the protocols stay pure.

use agent_duplex::{Capabilities, Error, Message, Part};
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The largest image file, in bytes.
pub(crate) const MAX_IMAGE: u64 = 5 << 20;
/// The largest size of all images of one message together, in bytes. As base64 they need a third more, and the queue of a program's standard input
/// has 32 MiB.
const MAX_IMAGES: u64 = 16 << 20;

/// A part whose file was checked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CheckedPart {
    Text(String),
    Image(Image),
    /// The absolute path of a file.
    File(PathBuf),
}

/// An image that was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// The absolute path.
    pub(crate) path: PathBuf,
    pub(crate) media_type: &'static str,
    pub(crate) bytes: Vec<u8>,
}

/// Checks the parts of a message for an agent with these capabilities, and reads its images, each of at most `max_image` bytes.
///
/// # Errors
/// [`Error::is_unsupported`] if the agent can't take a part; [`Error::is_invalid`] if a file can't be sent.
///
/// # Cancel safety
/// Cancel safe: a read that has begun ends in the background.
pub(crate) async fn check(
    message: &Message,
    agent: &str,
    capabilities: Capabilities,
    max_image: u64,
) -> Result<Vec<CheckedPart>, Error> {
    message.check_parts(agent, capabilities)?;
    if message.parts.is_empty() {
        return Ok(Vec::new());
    }
    let (agent, parts) = (agent.to_owned(), message.parts.clone());
    // A read can take long, for example from a network file system, and a stop must not wait for it.
    let read = tokio::task::spawn_blocking(move || read_all(&agent, &parts, max_image));
    read.await
        .unwrap_or_else(|_| Err(Error::agent_gone("the program is shutting down")))
}

/// Returns the size of the texts and paths in bytes.
pub(crate) fn text_size(parts: &[CheckedPart]) -> usize {
    let sizes = parts.iter().map(|part| match part {
        CheckedPart::Text(text) => text.len(),
        CheckedPart::Image(Image { path, .. }) | CheckedPart::File(path) => path.as_os_str().len(),
    });
    sizes.sum()
}

/// Checks the paths of the images, for an agent that gets them in JSON.
///
/// # Errors
/// [`Error::is_invalid`] if a path is not UTF-8.
pub(crate) fn check_utf8(parts: &[CheckedPart]) -> Result<(), Error> {
    for part in parts {
        if let CheckedPart::Image(Image { path, .. }) = part
            && path.to_str().is_none()
        {
            return Err(unsendable(path, "its path is not UTF-8; rename it"));
        }
    }
    Ok(())
}

fn read_all(agent: &str, parts: &[Part], max_image: u64) -> Result<Vec<CheckedPart>, Error> {
    let mut left = MAX_IMAGES;
    let mut checked = Vec::with_capacity(parts.len());
    for part in parts {
        checked.push(match part {
            Part::Text(text) => CheckedPart::Text(text.clone()),
            Part::Image(path) => {
                let image = read_image(path, max_image)?;
                let size = image.bytes.len() as u64;
                left = left.checked_sub(size).ok_or_else(|| {
                    let limit = MAX_IMAGES >> 20;
                    let why = format!("the images of the input have more than {limit} MiB together; send several inputs");
                    unsendable(path, &why)
                })?;
                CheckedPart::Image(image)
            }
            Part::File(path) => {
                let path = absolute(path)?;
                open(&path)?;
                CheckedPart::File(path)
            }
            _ => return Err(Error::unsupported(agent, "take this part", "send only the text")),
        });
    }
    Ok(checked)
}

fn read_image(path: &Path, max: u64) -> Result<Image, Error> {
    let path = absolute(path)?;
    let (file, size) = open(&path)?;
    let too_large = |size: u64| {
        let why = format!("it has {size} bytes, more than {max}; make the image smaller");
        unsendable(&path, &why)
    };
    if size > max {
        return Err(too_large(size));
    }
    let mut bytes = Vec::new();
    // The file can grow meanwhile.
    { file.take(max + 1).read_to_end(&mut bytes) }.map_err(|e| unreadable(&path, &e))?;
    if bytes.len() as u64 > max {
        return Err(too_large(bytes.len() as u64));
    }
    let media_type = media_type(&bytes).ok_or_else(|| {
        let why = "it is not a PNG, JPEG, GIF or WebP image; convert it";
        unsendable(&path, why)
    })?;
    Ok(Image {
        path,
        media_type,
        bytes,
    })
}

/// Opens a file that is not empty, and returns its size.
fn open(path: &Path) -> Result<(File, u64), Error> {
    let check = |kind, size| match kind {
        FileType::RegularFile if size == 0 => Err(unsendable(path, "the file is empty")),
        FileType::RegularFile => Ok(()),
        FileType::Directory => {
            let why = "it is a directory; name a file in it";
            Err(unsendable(path, why))
        }
        _ => Err(unsendable(path, "it is not a regular file")),
    };
    // The check comes first, because opening a device or a pipe can have effects.
    let stat = rustix::fs::stat(path).map_err(|e| unreadable(path, &e.into()))?;
    check(FileType::from_raw_mode(stat.st_mode), stat.st_size)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    let opened = opened.map_err(|e| unreadable(path, &e.into()))?;
    let stat = rustix::fs::fstat(&opened).map_err(|e| unreadable(path, &e.into()))?;
    check(FileType::from_raw_mode(stat.st_mode), stat.st_size)?;
    Ok((opened.into(), stat.st_size.unsigned_abs()))
}

fn absolute(path: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(path).map_err(|e| unreadable(path, &e))
}

fn unreadable(path: &Path, e: &io::Error) -> Error {
    unsendable(path, &format!("{e}; check the path and its permissions"))
}

fn unsendable(path: &Path, why: &str) -> Error {
    Error::invalid(format!("{} can't be sent: {why}", path.display()))
}

/// Returns the media type of an image by its first bytes.
fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

/// Encodes bytes as base64, with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |n: usize| u32::from(chunk.get(n).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = bits >> (18 - 6 * digit) & 63;
            text.push(match digit <= chunk.len() {
                true => char::from(DIGITS[value as usize]),
                false => '=',
            });
        }
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use agent_duplex::{Capability, Input};
    use tempfile::TempDir;

    /// The beginning of an image of each type.
    pub(crate) const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
    const JPEG: &[u8] = b"\xff\xd8\xff\xe0";
    const GIF: &[u8] = b"GIF89a";
    const WEBP: &[u8] = b"RIFF\0\0\0\0WEBPVP8 ";

    /// Returns an image, a text and another image.
    pub(crate) fn two_images() -> Vec<CheckedPart> {
        let image = |path: &str, media_type, bytes: &[u8]| {
            let (path, bytes) = (path.into(), bytes.to_vec());
            CheckedPart::Image(Image {
                path,
                media_type,
                bytes,
            })
        };
        vec![
            image("/a.png", "image/png", PNG),
            CheckedPart::Text("like".to_owned()),
            image("/b.jpg", "image/jpeg", JPEG),
        ]
    }

    fn message(input: Input) -> Message {
        let mut message = Message::new(input.text);
        message.parts = input.parts;
        message
    }

    async fn checked(input: Input, max_image: u64) -> Result<Vec<CheckedPart>, Error> {
        let all = Capabilities::none()
            .with(Capability::Images)
            .with(Capability::Files);
        check(&message(input), "test", all, max_image).await
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    #[tokio::test]
    async fn images_are_read_and_their_type_comes_from_their_content() {
        let directory = TempDir::new().unwrap();
        for (bytes, media_type) in [
            (PNG, "image/png"),
            (JPEG, "image/jpeg"),
            (GIF, "image/gif"),
            (WEBP, "image/webp"),
        ] {
            let path = directory.path().join("image.txt");
            std::fs::write(&path, bytes).unwrap();
            let parts = checked(Input::new("").with_image(&path), MAX_IMAGE).await;
            let image = Image {
                path,
                media_type,
                bytes: bytes.to_vec(),
            };
            assert_eq!(parts.unwrap(), [CheckedPart::Image(image)]);
        }
    }

    #[tokio::test]
    async fn file_that_cannot_be_sent_is_an_error_with_its_reason() {
        let directory = TempDir::new().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let png = |size: usize| [PNG, &vec![0; size - PNG.len()]].concat();
        let inputs = [
            Input::new("").with_image(directory.path().join("missing.png")),
            Input::new("").with_file(directory.path().join("missing.txt")),
            Input::new("").with_image(write("empty.png", b"")),
            Input::new("").with_file(write("empty.txt", b"")),
            Input::new("").with_image(directory.path()),
            Input::new("").with_file(directory.path()),
            Input::new("").with_file(&pipe),
            Input::new("").with_image(write("text.png", b"GIF is a text here")),
            Input::new("").with_image(write("large.png", &png(101))),
            Input::new("").with_image(Path::new("")),
        ];
        let mut errors = Vec::new();
        for input in inputs {
            let error = checked(input, 100).await.unwrap_err();
            assert!(error.is_invalid());
            let place = directory.path().display().to_string();
            errors.push(error.to_string().replace(&place, "DIR"));
        }
        insta::assert_snapshot!(errors.join("\n"));
        let fits = Input::new("").with_image(write("fits.png", &png(100)));
        assert_eq!(checked(fits, 100).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn images_of_one_message_have_a_limit_together() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("large.png");
        let five = usize::try_from(MAX_IMAGE).unwrap();
        std::fs::write(&path, [PNG, &vec![0; five - PNG.len()]].concat()).unwrap();
        let input = |images| (0..images).fold(Input::new(""), |input, _| input.with_image(&path));
        assert_eq!(checked(input(3), MAX_IMAGE).await.unwrap().len(), 3);
        let error = checked(input(4), MAX_IMAGE).await.unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().contains("16 MiB"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn unsupported_part_is_refused_before_its_file_is_touched() {
        let input = message(Input::new("").with_image("/no/such.png"));
        let error = check(&input, "test", Capabilities::none(), MAX_IMAGE).await;
        assert!(error.unwrap_err().is_unsupported());
    }
}
