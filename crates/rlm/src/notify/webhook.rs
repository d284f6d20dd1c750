//! Webhooks: the JSON for each preset, and the function that posts it. A status from 200 to 299 is the acknowledgement.

use loop_runner::HookTarget;
use serde_json::{Value, json};

use crate::config::{Webhook, WebhookPreset};
use crate::render::Notification;

/// The hosts whose webhooks have a form of their own.
const HOSTS: [(&str, WebhookPreset); 4] = [
    ("ntfy.sh", WebhookPreset::Ntfy),
    ("hooks.slack.com", WebhookPreset::Slack),
    ("discord.com", WebhookPreset::Discord),
    ("discordapp.com", WebhookPreset::Discord),
];

/// Returns the form of the JSON for a webhook.
fn preset(webhook: &Webhook) -> WebhookPreset {
    let host = || {
        let (_, rest) = webhook.url.0.split_once("://")?;
        let host = rest.split(['/', ':', '?']).next()?;
        let known = HOSTS.iter().find(|(known, _)| *known == host);
        known.map(|(_, preset)| *preset)
    };
    webhook.preset.or_else(host).unwrap_or(WebhookPreset::Json)
}

/// Returns the address of the server and the topic of an ntfy webhook, such as `https://ntfy.sh` and `my-topic`. JSON is posted to the server.
fn ntfy(url: &str) -> Option<(&str, &str)> {
    let url = url.split(['?', '#']).next()?;
    let (server, topic) = url.trim_end_matches('/').rsplit_once('/')?;
    let has_host = !server.ends_with('/') && server.contains("://");
    (has_host && !topic.is_empty()).then_some((server, topic))
}

/// Returns the JSON for a notification.
pub(super) fn body(webhook: &Webhook, notification: &Notification) -> Value {
    let Notification {
        title, body, link, ..
    } = notification;
    let with_link = |mut text: String, link: Option<String>| {
        if let Some(link) = link {
            text.push('\n');
            text.push_str(&link);
        }
        text
    };
    match preset(webhook) {
        WebhookPreset::Json => notification.json.clone(),
        WebhookPreset::Ntfy => {
            let topic = ntfy(&webhook.url.0).map_or("", |(_, topic)| topic);
            let mut json = json!({"topic": topic, "title": title, "message": body.join("\n")});
            if let Some(link) = link {
                json["click"] = link.as_str().into();
            }
            json
        }
        WebhookPreset::Slack => {
            let text = format!("*{}*\n{}", slack(title), slack(&body.join("\n")));
            let link = link.as_ref().map(|link| format!("<{link}>"));
            json!({"text": with_link(text, link), "unfurl_links": false})
        }
        WebhookPreset::Discord => {
            let text = format!("**{}**\n{}", discord(title), discord(&body.join("\n")));
            let link = link.as_ref().map(|link| format!("<{link}>"));
            // Without mentions, no text of an agent calls people.
            json!({"content": with_link(text, link), "allowed_mentions": {"parse": []}})
        }
    }
}

/// Escapes a text for Slack.
fn slack(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Escapes a text for Discord.
fn discord(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if "\\*_~`|<>[]()#@".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Returns how to deliver to a webhook.
///
/// # Errors
///
/// The address is invalid, the token is missing, or this build has no webhooks. No error contains the address.
#[cfg(feature = "webhook")]
pub(super) fn target(webhook: &Webhook) -> Result<HookTarget, String> {
    use std::sync::Arc;

    use agent_api::{Key, WebhookClient};
    use loop_state::times;

    let url = &webhook.url.0;
    let address = match preset(webhook) {
        WebhookPreset::Ntfy => {
            let why =
                "the address of an ntfy webhook ends with its topic, as https://ntfy.sh/TOPIC";
            let (server, _) = ntfy(url).ok_or(why)?;
            format!("{server}/")
        }
        _ => url.clone(),
    };
    let key = match &webhook.token_variable {
        None => None,
        Some(name) => {
            let value = crate::config::variable(name).filter(|value| !value.is_empty());
            let shown = rlm_text::escape::plain(name);
            let missing = || format!("the variable `{shown}` has no token; set it");
            let key = Key::new(&value.ok_or_else(missing)?);
            Some(key.map_err(|e| format!("the variable `{shown}`: {e}"))?)
        }
    };
    let client = WebhookClient::new(&address, key, times::NOTIFY_CALL);
    let client = Arc::new(client.map_err(|e| e.to_string())?);
    Ok(HookTarget::Function(Arc::new(move |input| {
        let client = client.clone();
        Box::pin(async move {
            let sent = client
                .post(input.input.into_bytes(), times::NOTIFY_CALL)
                .await;
            let status = sent.map_err(|e| e.to_string())?;
            Ok(format!("HTTP {status}"))
        })
    })))
}

/// Returns the error of a build without webhooks.
#[cfg(not(feature = "webhook"))]
pub(super) fn target(_: &Webhook) -> Result<HookTarget, String> {
    Err(
        "this build has no webhooks; install a release, or build rlm with --features webhook"
            .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn webhook(text: &str) -> Webhook {
        toml::from_str(text).unwrap()
    }

    fn notification() -> Notification {
        Notification {
            event: "done".into(),
            title: "fix <it>: done".into(),
            body: ["a *check* & @everyone".into(), "in /p".into()],
            link: Some("http://localhost:1/runs/r1-7".into()),
            json: json!({"run": "r1"}),
            variables: Vec::new(),
        }
    }

    #[test]
    fn each_preset_gets_the_json_of_its_service() {
        let bodies = [
            "url = 'https://s3cret.example/x'",
            "url = 'https://ntfy.sh/my-topic?auth=s3cret'",
            "url = 'http://127.0.0.1:80/topic'\npreset = 'ntfy'",
            "url = 'https://hooks.slack.com/services/s3cret'",
            "url = 'https://discord.com/api/webhooks/s3cret'",
        ];
        let bodies = bodies.map(|text| body(&webhook(text), &notification()).to_string());
        let bodies = bodies.join("\n");
        assert!(!bodies.contains("s3cret"), "{bodies}");
        insta::assert_snapshot!(bodies);
    }

    #[test]
    fn topic_of_ntfy_is_the_end_of_the_address() {
        let server = "https://ntfy.sh";
        assert_eq!(ntfy("https://ntfy.sh/topic"), Some((server, "topic")));
        assert_eq!(ntfy("https://ntfy.sh/topic/?x=1"), Some((server, "topic")));
        for wrong in ["https://ntfy.sh", "https://ntfy.sh/", "topic", "a/topic"] {
            assert_eq!(ntfy(wrong), None, "{wrong}");
        }
    }

    #[cfg(feature = "webhook")]
    #[test]
    fn unusable_webhook_is_refused_without_its_address() {
        for text in [
            "url = 's3cret'",
            "url = 'https://user:s3cret@host/'",
            "url = 'https://s3cret'\npreset = 'ntfy'",
            "url = 'https://s3cret/'\ntoken-variable = 'RLM_NO_SUCH_VARIABLE'",
        ] {
            let why = target(&webhook(text)).unwrap_err();
            assert!(!why.contains("s3cret"), "{text}: {why}");
        }
    }

    #[cfg(not(feature = "webhook"))]
    #[test]
    fn build_without_webhooks_names_the_build_that_has_them() {
        let why = target(&webhook("url = 'https://s3cret/'")).unwrap_err();
        assert!(why.contains("--features webhook"), "{why}");
    }
}
