//! The channels of notifications: how each delivers a notification, and what acknowledges it.

mod desktop;
mod webhook;

use std::path::Path;
use std::time::Duration;

use agent_subprocess::ProcessContext;
use loop_runner::{HookInput, HookTarget};
use loop_state::times;
use serde_json::json;
use tokio::time::timeout;

use crate::config::{Config, NotifyChannel, NotifyEvent, Webhook};
use crate::exit::Failure;
use crate::render::Notification;

/// The time for the end of a test, after its one try.
const TEST_MARGIN: Duration = Duration::from_secs(2);

/// A channel of the configuration, with its name. The bell is not one of them: the console rings it.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    /// The name for people: the kind, with a number if there are several of the kind.
    pub(crate) name: String,
    pub(crate) kind: ChannelKind,
}

/// The kind of a channel.
#[derive(Clone, Debug)]
pub(crate) enum ChannelKind {
    Desktop,
    Webhook(Webhook),
    Command(String),
}

impl Channel {
    /// Returns the channels that a configuration selects.
    pub(crate) fn of(config: &Config) -> Vec<Self> {
        let (mut kinds, mut names) = (Vec::new(), Vec::<&str>::new());
        for selected in config.notify.iter().flatten() {
            match selected {
                NotifyChannel::Bell => {}
                NotifyChannel::Desktop if names.contains(&"desktop") => {}
                NotifyChannel::Webhook if names.contains(&"webhook") => {}
                NotifyChannel::Desktop => {
                    kinds.push(ChannelKind::Desktop);
                    names.push("desktop");
                }
                NotifyChannel::Webhook => {
                    for webhook in config.webhook.iter().flatten() {
                        kinds.push(ChannelKind::Webhook(webhook.clone()));
                        names.push("webhook");
                    }
                }
                NotifyChannel::Command(command) => {
                    kinds.push(ChannelKind::Command(command.clone()));
                    names.push("command");
                }
            }
        }
        let numbered = |(index, kind): (usize, ChannelKind)| {
            let name = names[index];
            let of_kind = |names: &[&str]| names.iter().filter(|it| **it == name).count();
            let name = match of_kind(&names) {
                1 => name.to_owned(),
                _ => format!("{name} {}", of_kind(&names[..=index])),
            };
            Self { name, kind }
        };
        kinds.into_iter().enumerate().map(numbered).collect()
    }

    /// Refuses a configuration that selects the webhooks but has none.
    pub(crate) fn refuse_missing(config: &Config) -> Result<(), Failure> {
        let selects = |it: &Vec<NotifyChannel>| it.contains(&NotifyChannel::Webhook);
        let is_selected = config.notify.as_ref().is_some_and(selects);
        match is_selected && config.webhook.as_ref().is_none_or(Vec::is_empty) {
            true => Err(Failure::usage(
                "the channel `webhook` of notify needs a webhook of yours: write [[webhook]] and its url into ~/.config/rlm/config.toml, or choose other channels with --notify",
            )),
            false => Ok(()),
        }
    }

    /// Returns how this channel delivers.
    ///
    /// # Errors
    ///
    /// The webhook is invalid, or its token is missing, or this build has no webhooks.
    pub(crate) fn target(&self) -> Result<HookTarget, Failure> {
        match &self.kind {
            ChannelKind::Desktop => Ok(desktop::target()),
            ChannelKind::Command(command) => Ok(HookTarget::Command(command.clone())),
            ChannelKind::Webhook(webhook) => webhook::target(webhook)
                .map_err(|why| Failure::usage(format!("{}: {why}", self.name))),
        }
    }

    /// Returns the content of a notification, in the form of this channel.
    pub(crate) fn input(&self, notification: Notification) -> HookInput {
        let input = HookInput {
            event: notification.event.clone(),
            ..HookInput::default()
        };
        match &self.kind {
            ChannelKind::Desktop => HookInput {
                arguments: desktop::arguments(&notification),
                ..input
            },
            ChannelKind::Webhook(webhook) => HookInput {
                input: webhook::body(webhook, &notification).to_string(),
                ..input
            },
            ChannelKind::Command(_) => HookInput {
                input: format!("{}\n", notification.json),
                variables: notification.variables,
                ..input
            },
        }
    }

    /// Sends a test notification, with one try. Returns the acknowledgement, or the reason why there is none.
    pub(crate) async fn test(
        &self,
        directory: &Path,
        mut context: ProcessContext,
    ) -> Result<String, String> {
        let target = self.target().map_err(|failure| failure.message)?;
        let input = self.input(test_notification(directory));
        context.stop = context.stop.within(times::NOTIFY_ENDING);
        let variables = input.variables.iter().cloned();
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        context.env.extend(variables);
        let delivered = loop_runner::deliver_once(&target, input, context);
        let limit = times::NOTIFY_CALL + TEST_MARGIN;
        let delivered = timeout(limit, delivered).await;
        delivered.unwrap_or_else(|_| Err(format!("it took longer than {} s", limit.as_secs())))
    }
}

/// Returns the notification of a test.
fn test_notification(directory: &Path) -> Notification {
    let (event, title) = ("test".to_owned(), "rlm: a test notification".to_owned());
    let body = [
        "this channel works".to_owned(),
        rlm_text::escape::plain(&directory.to_string_lossy()),
    ];
    let text = format!("{title}: {}", body[0]);
    let variables = [("RLM_EVENT", &event), ("RLM_TEXT", &text)];
    Notification {
        json: json!({"event": event, "title": title, "body": body, "text": text}),
        variables: { variables.iter() }
            .map(|(name, value)| ((*name).to_owned(), (*value).clone()))
            .collect(),
        event,
        title,
        body,
        link: None,
    }
}

/// Returns the default events, or those of the configuration.
pub(crate) fn events(config: &Config) -> Vec<NotifyEvent> {
    let events = config.notify_on.clone();
    events.unwrap_or_else(|| NotifyEvent::DEFAULT.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let config = toml::from_str(text).unwrap();
        let channels = Channel::of(&config);
        channels.into_iter().map(|channel| channel.name).collect()
    }

    #[test]
    fn several_channels_of_a_kind_have_numbers() {
        assert_eq!(
            names("notify = ['bell', 'desktop', 'desktop']"),
            ["desktop"]
        );
        let text = "notify = ['command:a', 'webhook', 'command:b', 'webhook']\n\
                    [[webhook]]\nurl = 'https://a/'\n[[webhook]]\nurl = 'https://b/'\n";
        assert_eq!(
            names(text),
            ["command 1", "webhook 1", "webhook 2", "command 2"]
        );
        assert_eq!(names("[[webhook]]\nurl = 'https://a/'"), [""; 0]);
    }

    #[test]
    fn debug_form_shows_no_address() {
        let config: Config =
            toml::from_str("notify = ['webhook']\nwebhook = [{ url = 'https://s3cret/' }]")
                .unwrap();
        let channels = Channel::of(&config);
        let shown = format!("{config:?} {channels:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}
