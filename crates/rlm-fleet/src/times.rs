//! The times of a hand-over. They are in one module so that a reader can compare them.

use std::time::Duration;

/// The time of a whole hand-over: from SIGTERM until the worker has given the run back.
pub const HANDOVER: Duration = Duration::from_secs(2);
/// The time that a run has to stop in a hand-over; after it, the run's process is killed.
pub const HANDOVER_STOP: Duration = Duration::from_millis(1500);

/// The time in which a server answers a request. After it the request is repeated or fails.
#[cfg(feature = "nats")]
pub const ANSWER: Duration = Duration::from_secs(3);
/// The time in which an operation must end by itself after the server refused a part of it to the user.
#[cfg(feature = "nats")]
pub const REFUSAL: Duration = Duration::from_millis(500);
/// The time to connect to a server.
#[cfg(feature = "nats")]
pub const CONNECT: Duration = Duration::from_secs(5);
/// The interval between two pings of a connection. After two pings without an answer, the connection is made again.
#[cfg(feature = "nats")]
pub const PING: Duration = Duration::from_secs(2);
/// The longest wait before the next try to connect. An owner must be connected again within three seconds after the server is back.
#[cfg(feature = "nats")]
pub const RECONNECT: Duration = Duration::from_secs(1);
/// The time in which a new run must be confirmed.
#[cfg(feature = "nats")]
pub const SUBMIT: Duration = Duration::from_secs(30);
/// The time in which a request to a run must be recorded.
#[cfg(feature = "nats")]
pub const RECORD: Duration = Duration::from_secs(10);
/// The time in which the process of a run, or a worker, answers a message.
#[cfg(feature = "nats")]
pub const OWNER_ANSWER: Duration = Duration::from_secs(2);
/// The time in which the responses of a run are sent after its end.
#[cfg(feature = "nats")]
pub const LAST_RESPONSES: Duration = Duration::from_millis(300);
/// The time for which a drain waits for the end of the worker.
#[cfg(feature = "nats")]
pub const DRAIN: Duration = Duration::from_secs(10);
/// The interval in which a drain asks whether the worker has ended.
#[cfg(feature = "nats")]
pub const DRAIN_INTERVAL: Duration = Duration::from_millis(100);
/// The interval in which a worker stores what is new in the transcripts of a run.
#[cfg(feature = "nats")]
pub const TRANSCRIPT_INTERVAL: Duration = Duration::from_secs(2);
/// The time in which a worker stores the rest of the transcripts after a claim.
#[cfg(feature = "nats")]
pub const TRANSCRIPT_REST: Duration = Duration::from_secs(10);
