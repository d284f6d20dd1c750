//! The last notifications of a run: which channel got each, and whether the channel acknowledged it.

use loop_state::Timestamp;
use serde::{Deserialize, Serialize};

/// The most notifications that a run keeps; with more, the oldest are dropped.
const MAX_KEPT: usize = 20;
/// The longest reason or acknowledgement, in characters.
const MAX_ANSWER: usize = 200;

/// The last notifications of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Notifications {
    /// The number of acknowledged notifications.
    pub delivered: u32,
    /// The number of notifications that were sent and not acknowledged.
    pub failed: u32,
    /// The number of notifications that were never sent, because their channel was too slow or the run was aborted.
    pub dropped: u32,
    /// The last of them, in the order in which they ended.
    pub last: Vec<NotificationRecord>,
}

/// One notification and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotificationRecord {
    /// The time of the result.
    pub at: Timestamp,
    /// The event, such as `done`.
    pub event: String,
    /// The name of the channel, such as `desktop`.
    pub channel: String,
    /// The number of tries.
    pub tries: u32,
    /// The result.
    pub result: DeliveryResult,
}

/// Whether a channel acknowledged a notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryResult {
    /// The channel acknowledged it; the text is the acknowledgement, such as `HTTP 200`.
    Delivered(String),
    /// The channel did not acknowledge it; the text is the reason of the last try.
    Failed(String),
}

impl Notifications {
    /// Adds a result, and drops the oldest one if there are too many.
    pub fn add(&mut self, mut record: NotificationRecord) {
        let (count, text) = match &mut record.result {
            DeliveryResult::Delivered(text) => (&mut self.delivered, text),
            DeliveryResult::Failed(text) => (&mut self.failed, text),
        };
        *count = count.saturating_add(1);
        if let Some((end, _)) = text.char_indices().nth(MAX_ANSWER) {
            text.truncate(end);
        }
        self.last.push(record);
        let surplus = self.last.len().saturating_sub(MAX_KEPT);
        self.last.drain(..surplus);
    }

    /// Returns whether the run has sent no notification.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the last result of each channel whose last notification failed.
    pub fn failing(&self) -> impl Iterator<Item = &NotificationRecord> {
        let newest = self.last.iter().enumerate().filter(|(at, record)| {
            let mut later = self.last[at + 1..].iter();
            !later.any(|it| it.channel == record.channel)
        });
        newest
            .map(|(_, record)| record)
            .filter(|record| matches!(record.result, DeliveryResult::Failed(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(channel: &str, result: DeliveryResult) -> NotificationRecord {
        NotificationRecord {
            at: Timestamp::default(),
            event: "done".into(),
            channel: channel.into(),
            tries: 1,
            result,
        }
    }

    #[test]
    fn only_the_newest_notifications_are_kept_and_all_are_counted() {
        let mut all = Notifications::default();
        for number in 0..50 {
            let text = format!("{number}{}", "é".repeat(300));
            all.add(record("desktop", DeliveryResult::Delivered(text)));
        }
        assert_eq!((all.delivered, all.failed, all.last.len()), (50, 0, 20));
        let DeliveryResult::Delivered(first) = &all.last[0].result else {
            panic!("it was delivered")
        };
        assert_eq!(first.chars().count(), MAX_ANSWER);
        assert!(first.starts_with("30"), "{first}");
    }

    #[test]
    fn channel_fails_until_its_next_success() {
        let mut all = Notifications::default();
        all.add(record("desktop", DeliveryResult::Failed("no bus".into())));
        all.add(record("webhook", DeliveryResult::Failed("HTTP 500".into())));
        let failing = |all: &Notifications| -> Vec<String> {
            all.failing().map(|it| it.channel.clone()).collect()
        };
        assert_eq!(failing(&all), ["desktop", "webhook"]);
        all.add(record("desktop", DeliveryResult::Delivered("id 1".into())));
        assert_eq!(failing(&all), ["webhook"]);
    }
}
