//! The creation of everything that a fleet has on the server. It can be repeated: what exists stays, with the given settings.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::context::{ConsumerInfoErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Compression, Config, DiscardPolicy, RetentionPolicy};
use async_nats::jetstream::{ErrorCode, consumer, object_store};

use super::error::{Error, Kind};
use super::fleet::Fleet;
use super::names::Pool;

/// The shortest lease. The agent is killed at half of the lease, and its end takes up to a second.
pub const MIN_LEASE: Duration = Duration::from_secs(2);

/// The number of runs that workers of a pool can hold at a time. With the server's default of 1,000, the next runs would wait without a message.
const MAX_HELD: i64 = 100_000;
/// The number of earlier values that the server keeps of each setting, for people.
const SETTINGS: i64 = 16;
/// The number of requests that a run can get.
const MAX_REQUESTS: i64 = 10_000;
/// The number of parts of transcripts that the server keeps of each run, so at most 512 MiB. The oldest are removed.
const MAX_PARTS: i64 = 4096;
/// The time in which the server recognises a repeated append.
const DUPLICATES: Duration = Duration::from_secs(120);

/// The options of [`Fleet::init`].
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// The number of servers that have each stream: 1 or 3.
    pub replicas: usize,
    /// The lease of a worker: after this time without a renewal, another worker takes the run over.
    pub lease: Duration,
    /// The pools of workers.
    pub pools: Vec<Pool>,
}

/// One asset of a fleet on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    /// The kind and the name, such as `stream rlm-runs`.
    pub name: String,
    /// The effect of [`Fleet::init`].
    pub state: AssetState,
}

/// The effect of [`Fleet::init`] on an asset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssetState {
    /// The asset is new.
    Created,
    /// The asset existed with other settings.
    Changed,
    /// The asset existed with these settings.
    Unchanged,
}

impl Fleet {
    /// Creates the streams, the consumers and the object store of the fleet, or gives existing ones these settings. Removes nothing. Returns what it
    /// found and did.
    ///
    /// # Errors
    /// [`Error::is_usage`] for a lease below [`MIN_LEASE`], and for another lease while workers have runs of the pool; others if the server refuses an asset or does not answer. A repeated call continues.
    pub async fn init(&self, options: &FleetOptions) -> Result<Vec<Asset>, Error> {
        if options.lease < MIN_LEASE {
            return Err(Kind::ShortLease {
                given: options.lease,
                least: MIN_LEASE,
            }
            .into());
        }
        let num_replicas = options.replicas;
        let runs = Config {
            name: self.names.runs(),
            subjects: vec![self.names.all_runs()],
            discard: DiscardPolicy::New,
            duplicate_window: DUPLICATES,
            num_replicas,
            ..Config::default()
        };
        let work = Config {
            name: self.names.work(),
            subjects: vec![self.names.all_work()],
            retention: RetentionPolicy::WorkQueue,
            // The server refuses a second message for the same run.
            max_messages_per_subject: 1,
            discard: DiscardPolicy::New,
            discard_new_per_subject: true,
            num_replicas,
            ..Config::default()
        };
        let settings = Config {
            name: self.names.settings(),
            subjects: vec![self.names.all_settings()],
            max_messages_per_subject: SETTINGS,
            num_replicas,
            ..Config::default()
        };
        let spent = Config {
            name: self.names.spent(),
            subjects: vec![self.names.spent_in("*")],
            max_messages_per_subject: 1,
            allow_message_counter: true,
            duplicate_window: DUPLICATES,
            num_replicas,
            ..Config::default()
        };
        let requests = Config {
            name: self.names.requests(),
            subjects: vec![self.names.all_requests()],
            // The server refuses more, so that nothing is lost.
            max_messages_per_subject: MAX_REQUESTS,
            discard: DiscardPolicy::New,
            discard_new_per_subject: true,
            duplicate_window: DUPLICATES,
            num_replicas,
            ..Config::default()
        };
        let transcripts = Config {
            name: self.names.transcripts(),
            subjects: vec![self.names.all_transcripts()],
            max_messages_per_subject: MAX_PARTS,
            duplicate_window: DUPLICATES,
            compression: Some(Compression::S2),
            // No decision depends on them, so any replica may answer.
            allow_direct: true,
            num_replicas,
            ..Config::default()
        };
        let mut assets = Vec::new();
        for config in [runs, work, requests, transcripts, settings, spent] {
            assets.push(self.init_stream(config).await?);
        }
        for pool in &options.pools {
            assets.push(self.init_consumer(pool, options).await?);
        }
        assets.push(self.init_objects(num_replicas).await?);
        Ok(assets)
    }

    async fn init_stream(&self, config: Config) -> Result<Asset, Error> {
        let failed = |cause: async_nats::Error| Error::unavailable("create a stream", cause);
        let name = format!("stream {}", config.name);
        let state = match self.existing_stream(&config.name).await? {
            None => {
                let created = self.context.create_stream(config).await;
                created.map_err(|e| failed(e.into()))?;
                AssetState::Created
            }
            Some(before) if is_same(&before, &config) => AssetState::Unchanged,
            Some(before) => {
                let changed = Config {
                    max_messages_per_subject: config.max_messages_per_subject,
                    discard: config.discard,
                    discard_new_per_subject: config.discard_new_per_subject,
                    duplicate_window: config.duplicate_window,
                    num_replicas: config.num_replicas,
                    allow_direct: config.allow_direct,
                    ..before
                };
                let updated = self.context.update_stream(changed).await;
                updated.map_err(|e| failed(e.into()))?;
                AssetState::Changed
            }
        };
        Ok(Asset { name, state })
    }

    /// Returns the settings of a stream; `None` if there is no such stream.
    async fn existing_stream(&self, name: &str) -> Result<Option<Config>, Error> {
        match self.context.get_stream(name).await {
            Ok(stream) => Ok(Some(stream.cached_info().config.clone())),
            Err(e) => match e.kind() {
                GetStreamErrorKind::JetStream(error)
                    if error.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    Ok(None)
                }
                _ => Err(Error::unavailable("find a stream", e)),
            },
        }
    }

    async fn init_consumer(&self, pool: &Pool, options: &FleetOptions) -> Result<Asset, Error> {
        let failed = |cause: async_nats::Error| Error::unavailable("create a consumer", cause);
        let name = self.names.consumer(pool);
        let stream = self.stream(self.names.work()).await?;
        let before = self.existing_consumer(&name).await?;
        let config = pull::Config {
            durable_name: Some(name.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: options.lease,
            // A run that crashes its workers is parked by them. The server would silently keep it.
            max_deliver: -1,
            max_ack_pending: MAX_HELD,
            filter_subject: self.names.pool(pool),
            ..pull::Config::default()
        };
        let state = match before {
            None => AssetState::Created,
            Some(before) if before.config.ack_wait == options.lease => AssetState::Unchanged,
            // The owners of these runs renew and kill by the lease that they were given.
            Some(before) if before.num_ack_pending > 0 => {
                return Err(Kind::LeaseInUse {
                    pool: pool.to_string(),
                    lease: before.config.ack_wait,
                    runs: before.num_ack_pending,
                }
                .into());
            }
            Some(_) => AssetState::Changed,
        };
        match state {
            AssetState::Created => {
                let created = stream.create_consumer(config).await;
                created.map_err(|e| failed(e.into()))?;
            }
            AssetState::Changed => {
                let updated = stream.update_consumer(config).await;
                updated.map_err(|e| failed(e.into()))?;
            }
            AssetState::Unchanged => {}
        }
        let name = format!("consumer {name}");
        Ok(Asset { name, state })
    }

    async fn existing_consumer(&self, name: &str) -> Result<Option<consumer::Info>, Error> {
        let stream = self.stream(self.names.work()).await?;
        match stream.consumer_info(name).await {
            Ok(info) => Ok(Some(info)),
            Err(e) => match e.kind() {
                ConsumerInfoErrorKind::NotFound => Ok(None),
                ConsumerInfoErrorKind::JetStream(error)
                    if error.error_code() == ErrorCode::CONSUMER_NOT_FOUND =>
                {
                    Ok(None)
                }
                _ => Err(Error::unavailable("find a consumer", e)),
            },
        }
    }

    async fn init_objects(&self, num_replicas: usize) -> Result<Asset, Error> {
        let bucket = self.names.blobs();
        let name = format!("object store {bucket}");
        let stream = format!("OBJ_{bucket}");
        let existing = self.existing_stream(&stream).await?;
        let mut state = AssetState::Unchanged;
        let before = match existing {
            Some(before) => before,
            None => {
                let config = object_store::Config {
                    bucket,
                    num_replicas,
                    ..object_store::Config::default()
                };
                let made = self.context.create_object_store(config).await;
                made.map_err(|cause| Error::unavailable("create the object store", cause))?;
                state = AssetState::Created;
                let made = self.existing_stream(&stream).await?;
                made.ok_or_else(|| {
                    let what = "find the object store";
                    Error::unavailable(what, "the server has it no more")
                })?
            }
        };
        if before.allow_direct || before.num_replicas != num_replicas {
            let changed = Config {
                allow_direct: false,
                num_replicas,
                ..before
            };
            let updated = self.context.update_stream(changed).await;
            updated.map_err(|cause| Error::unavailable("change the object store", cause))?;
            if state == AssetState::Unchanged {
                state = AssetState::Changed;
            }
        }
        Ok(Asset { name, state })
    }

    /// Returns the lease of a pool.
    ///
    /// # Errors
    /// [`Error::is_usage`] if the fleet has no such pool.
    pub async fn lease_of(&self, pool: &Pool) -> Result<Duration, Error> {
        let name = self.names.consumer(pool);
        let none = || {
            let (what, name) = ("pool", pool.to_string());
            Error::from(Kind::NoAsset { what, name })
        };
        let stream = self.existing_stream(&self.names.work()).await?;
        stream.ok_or_else(none)?;
        let found = self.existing_consumer(&name).await?.ok_or_else(none)?;
        Ok(found.config.ack_wait)
    }
}

/// Returns whether a stream has the settings that `init` would give it.
fn is_same(before: &Config, wanted: &Config) -> bool {
    // The server stores 0 as -1: no limit.
    let most = |config: &Config| config.max_messages_per_subject.max(0);
    most(before) == most(wanted)
        && before.discard == wanted.discard
        && before.discard_new_per_subject == wanted.discard_new_per_subject
        && (wanted.duplicate_window.is_zero() || before.duplicate_window == wanted.duplicate_window)
        && before.num_replicas == wanted.num_replicas
        && before.allow_direct == wanted.allow_direct
}
