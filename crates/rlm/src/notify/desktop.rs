//! Notifications of the desktop: over D-Bus, by a program of the system. The server of the desktop returns an id, which is the acknowledgement.

use loop_runner::HookTarget;
use which::which;

use crate::render::Notification;

/// A program that sends a notification to the desktop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    /// A part of systemd.
    Busctl,
    /// A part of GLib.
    Gdbus,
    /// A part of macOS. It reports no id.
    Osascript,
}

impl Sender {
    /// Returns the program of this system. If none is installed, a delivery names the first one.
    fn of_system() -> Self {
        match () {
            () if cfg!(target_os = "macos") => Self::Osascript,
            () if which("busctl").is_err() && which("gdbus").is_ok() => Self::Gdbus,
            () => Self::Busctl,
        }
    }

    /// Returns the program and the arguments before the texts.
    fn words(self) -> &'static [&'static str] {
        match self {
            Self::Busctl => &[
                "busctl",
                "--user",
                "--",
                "call",
                "org.freedesktop.Notifications",
                "/org/freedesktop/Notifications",
                "org.freedesktop.Notifications",
                "Notify",
                // name, replaced id, icon, title, body, actions, hints, time-out
                "susssasa{sv}i",
            ],
            Self::Gdbus => &[
                "gdbus",
                "call",
                "--session",
                "--dest=org.freedesktop.Notifications",
                "--object-path=/org/freedesktop/Notifications",
                "--method=org.freedesktop.Notifications.Notify",
                "--",
            ],
            Self::Osascript => &[
                "osascript",
                "-e",
                "on run argv",
                "-e",
                "display notification (item 2 of argv) with title (item 1 of argv)",
                "-e",
                "end run",
            ],
        }
    }

    /// Returns the arguments for a title and a body.
    fn arguments(self, title: &str, body: &str) -> Vec<String> {
        let texts = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        // A server may read the body as markup.
        let escaped = || html(body);
        match self {
            Self::Busctl => texts(&["rlm", "0", "", title, &escaped(), "0", "0", "-1"]),
            Self::Gdbus => {
                let text = |text: &str| gvariant(text);
                let (title, body) = (text(title), text(&escaped()));
                texts(&["'rlm'", "0", "''", &title, &body, "[]", "{}", "-1"])
            }
            Self::Osascript => texts(&[title, body]),
        }
    }

    fn acknowledgement(self) -> fn(&str) -> Option<String> {
        match self {
            // `u 7`
            Self::Busctl => |output| id(output.trim().strip_prefix("u ")?),
            // `(uint32 7,)`
            Self::Gdbus => |output| {
                let output = output.trim().strip_prefix("(uint32 ")?;
                id(output.strip_suffix(",)")?)
            },
            Self::Osascript => |_| Some("exit code 0".into()),
        }
    }
}

/// Returns the acknowledgement with an id, which is never 0.
fn id(text: &str) -> Option<String> {
    let id: u32 = text.parse().ok()?;
    (id > 0).then(|| format!("id {id}"))
}

/// Returns how to deliver.
pub(super) fn target() -> HookTarget {
    let sender = Sender::of_system();
    HookTarget::Program {
        words: sender.words().iter().map(|it| (*it).to_owned()).collect(),
        acknowledgement: sender.acknowledgement(),
    }
}

/// Returns the arguments for a notification.
pub(super) fn arguments(notification: &Notification) -> Vec<String> {
    let mut body = notification.body.join("\n");
    if let Some(link) = &notification.link {
        body = format!("{body}\n{link}");
    }
    Sender::of_system().arguments(&notification.title, &body)
}

/// Escapes a text for markup.
fn html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Writes a text as a string of GLib's notation.
fn gvariant(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('\'', "\\'");
    format!("'{}'", escaped.replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_id_is_an_acknowledgement() {
        let acknowledgement = |sender: Sender, output| sender.acknowledgement()(output);
        for (output, expected) in [
            ("u 7\n", Some("id 7")),
            ("u 0\n", None),
            ("", None),
            ("s \"7\"", None),
            ("u seven", None),
        ] {
            let id = acknowledgement(Sender::Busctl, output);
            assert_eq!(id.as_deref(), expected, "{output}");
        }
        let id = acknowledgement(Sender::Gdbus, "(uint32 7,)\n");
        assert_eq!(id.as_deref(), Some("id 7"));
        assert_eq!(acknowledgement(Sender::Gdbus, "()\n"), None);
    }

    #[test]
    fn texts_can_be_no_options_and_no_markup() {
        let body = "a <b> & 'c'\\\nd";
        let busctl = Sender::Busctl.arguments("--help", body);
        assert_eq!(busctl[3..5], ["--help", "a &lt;b&gt; &amp; 'c'\\\nd"]);
        assert!(Sender::Busctl.words().contains(&"--"));
        let gdbus = Sender::Gdbus.arguments("--help", body);
        assert_eq!(gdbus[3..5], ["'--help'", r"'a &lt;b&gt; &amp; \'c\'\\\nd'"]);
    }
}
