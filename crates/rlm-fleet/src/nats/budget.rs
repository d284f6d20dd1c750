//! The budget of a whole fleet on the server: its limit, and counters of what all runs together spent.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::str::FromStr;
use std::task::Poll;

use async_nats::Subscriber;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use bytes::Bytes;
use futures_core::Stream as _;
use rlm_store::RunId;
use serde::{Deserialize, Serialize};

use super::clock::wall_clock_millis;
use super::error::{Error, Kind};
use super::fleet::Fleet;
use crate::BudgetState;

/// The header with which the server adds a number to a counter.
const ADD: &str = "Nats-Incr";
/// The milliseconds of a day.
const DAY: i64 = 24 * 60 * 60 * 1000;

/// The period to which a budget applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetPeriod {
    /// A day of UTC.
    Day,
    /// All time.
    #[default]
    Total,
}

impl fmt::Display for BudgetPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Day => "day",
            Self::Total => "total",
        })
    }
}

impl FromStr for BudgetPeriod {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "day" => Ok(Self::Day),
            "total" => Ok(Self::Total),
            _ => Err("expected day or total".into()),
        }
    }
}

/// The budget of a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// The most that all runs together may spend in a period, in millionths of a US dollar; `None` for no budget.
    #[serde(rename = "limit_microusd")]
    pub limit: Option<u64>,
    /// The period.
    pub per: BudgetPeriod,
}

/// The changes of a budget, from [`Fleet::budget_changes`].
#[derive(Debug)]
pub struct BudgetChanges {
    spent: Subscriber,
    set: Subscriber,
}

impl BudgetChanges {
    /// Waits until the budget is spent or set. A message can be lost.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn next(&mut self) {
        let Self { spent, set } = self;
        poll_fn(|cx| {
            let spent = Pin::new(&mut *spent).poll_next(cx);
            let set = Pin::new(&mut *set).poll_next(cx);
            match (spent, set) {
                (Poll::Ready(Some(_)), _) | (_, Poll::Ready(Some(_))) => Poll::Ready(()),
                // A closed connection changes nothing more.
                _ => Poll::Pending,
            }
        })
        .await;
    }
}

/// The body of a counter.
#[derive(Deserialize)]
struct Counter {
    val: String,
}

impl Fleet {
    /// Sets the budget of all runs of the fleet. It applies at the next comparison of each run, two seconds later at most.
    ///
    /// # Errors
    /// [`Error::is_unavailable`] if the server does not answer, [`Error::is_usage`] if the fleet has no budget because an older version created it.
    pub async fn set_budget(&self, budget: Budget) -> Result<(), Error> {
        let text = serde_json::to_vec(&budget).unwrap_or_default();
        let publish = PublishMessage::build().payload(text.into());
        self.publish_to(self.names.budget(), publish, "set the budget")
            .await?;
        Ok(())
    }

    /// Returns the budget of the fleet, and what its runs spent in the present period.
    ///
    /// # Errors
    /// [`Error::is_unavailable`] if the server does not answer.
    pub async fn budget(&self) -> Result<(Budget, BudgetState), Error> {
        let text = self
            .last_text(self.names.settings(), self.names.budget())
            .await?;
        let budget = match text {
            Some(text) => serde_json::from_slice(&text)
                .map_err(|e| Error::unavailable("read the budget", e))?,
            None => Budget::default(),
        };
        let counter = self.counter(budget.per);
        let spent = match self.last_text(self.names.spent(), counter).await? {
            Some(text) => value(&text)?,
            None => 0,
        };
        let limit = budget.limit;
        Ok((budget, BudgetState { limit, spent }))
    }

    /// Adds an amount, in millionths of a US dollar, to what the fleet spent. A repeated call with the same run, epoch and number within two minutes
    /// counts once.
    ///
    /// # Errors
    /// [`Error::is_unavailable`] if the server did not confirm it.
    pub async fn add_spent(
        &self,
        run: &RunId,
        epoch: u64,
        number: u64,
        amount: u64,
    ) -> Result<(), Error> {
        for per in [BudgetPeriod::Total, BudgetPeriod::Day] {
            let publish = PublishMessage::build()
                .header(ADD, format!("+{amount}").as_str())
                .message_id(format!("{run}:{epoch}:{number}:{per}"));
            self.publish_to(self.counter(per), publish, "count the cost")
                .await?;
        }
        Ok(())
    }

    /// Announces to all runs that the budget is spent. A run that does not get it finds it out within two seconds.
    ///
    /// # Errors
    /// [`Error::is_unavailable`] if the connection is closed.
    pub async fn announce_spent_budget(&self) -> Result<(), Error> {
        let sent = self.client.publish(self.names.budget_spent(), Bytes::new());
        sent.await
            .map_err(|e| Error::unavailable("announce the spent budget", e))
    }

    /// Listens for changes of the budget.
    ///
    /// # Errors
    /// [`Error::is_unavailable`] if the connection is closed.
    pub async fn budget_changes(&self) -> Result<BudgetChanges, Error> {
        let listen = async |subject| {
            let subscriber = self.client.subscribe(subject).await;
            subscriber.map_err(|e| Error::unavailable("listen for the budget", e))
        };
        let spent = listen(self.names.budget_spent()).await?;
        let set = listen(self.names.budget()).await?;
        Ok(BudgetChanges { spent, set })
    }

    /// Returns the subject of the counter of the present period, by the clock of this machine.
    fn counter(&self, per: BudgetPeriod) -> String {
        match per {
            BudgetPeriod::Total => self.names.spent_in("total"),
            BudgetPeriod::Day => {
                let day = wall_clock_millis().div_euclid(DAY);
                self.names.spent_in(&format!("day-{day}"))
            }
        }
    }

    async fn publish_to(
        &self,
        subject: String,
        publish: PublishMessage,
        what: &'static str,
    ) -> Result<(), Error> {
        let answered = self.publish(subject, publish).await;
        match answered {
            Ok(_) => Ok(()),
            Err(e) if e.kind() == PublishErrorKind::StreamNotFound => {
                let (what, name) = ("budget", self.names.settings());
                Err(Kind::NoAsset { what, name }.into())
            }
            Err(e) => Err(Error::unavailable(what, e)),
        }
    }

    /// Reads the last message of a subject from the leader of its stream; `None` if there is none.
    async fn last_text(&self, stream: String, subject: String) -> Result<Option<Vec<u8>>, Error> {
        let stream = self.stream(stream).await?;
        match stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => Ok(Some(message.payload.to_vec())),
            Err(e) if e.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(e) => Err(Error::unavailable("read the budget", e)),
        }
    }
}

/// Returns the number of a counter.
fn value(text: &[u8]) -> Result<u64, Error> {
    let counter: Counter =
        serde_json::from_slice(text).map_err(|e| Error::unavailable("read the cost", e))?;
    { counter.val.parse() }
        .map_err(|e: std::num::ParseIntError| Error::unavailable("read the cost", e))
}
