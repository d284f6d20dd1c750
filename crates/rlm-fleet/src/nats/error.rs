//! The error of all operations on a fleet.

use std::error::Error as StdError;
use std::time::Duration;

/// The reason why an operation on a fleet failed, with the next step.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] Kind);

/// The cause that the message of an error ends with.
pub(super) type Cause = Box<dyn StdError + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub(super) enum Kind {
    #[error(
        "can't connect to the fleet at {server}: {cause}; check the address with its user and password, and that the server runs"
    )]
    Connect { server: String, cause: Cause },
    #[error(
        "`{server}` is no address of a server: {cause}; use nats://USER:PASSWORD@HOST:PORT, with special characters as in a URL"
    )]
    Address { server: String, cause: Cause },
    #[error(
        "the certificate of the server at {server} is not trusted: {cause}; check the host in the address, and name the certificate of a private authority with --tls-ca FILE"
    )]
    Certificate { server: String, cause: Cause },
    #[error("can't use the certificates in `{path}`: {why}; name a file with PEM certificates")]
    CertificateFile { path: String, why: String },
    #[error(
        "the server refuses this to the user of the address: {message}; use the address of a user with this permission, or add it to the configuration of the server"
    )]
    Refused { message: String },
    #[error("the fleet does not answer: can't {what}: {cause}; try again")]
    Unavailable { what: &'static str, cause: Cause },
    #[error("the server has version {found}, and a fleet needs 2.12 or later: update the server")]
    OldServer { found: String },
    #[error("{what} is not built yet{instead}")]
    Unsupported {
        what: &'static str,
        instead: &'static str,
    },
    #[error("`{name}` can't be the name of a {what}: use 1 to 64 of A–Z a–z 0–9 _ -")]
    Name { what: &'static str, name: String },
    #[error("a lease of {given:?} is too short: use at least {least:?}")]
    ShortLease { given: Duration, least: Duration },
    #[error(
        "workers have {runs} runs of pool `{pool}` with a lease of {lease:?}, which can't change now: keep it, or stop the workers of the pool first"
    )]
    LeaseInUse {
        pool: String,
        lease: Duration,
        runs: usize,
    },
    #[error("the fleet has no {what} `{name}`: run `rlm fleet init`")]
    NoAsset { what: &'static str, name: String },
    #[error("run `{run}` has not ended, so it can't be removed: stop it, or wait for its end")]
    NotOver { run: String },
    #[error(
        "run `{run}` was removed, but other runs were submitted meanwhile with the same code, which is gone: remove and submit them again: {others}"
    )]
    RemovedShared { run: String, others: String },
    #[error("the fleet has no run `{run}`")]
    NoRun { run: String },
    #[error("run `{run}` in the fleet is damaged: {why}")]
    Damaged { run: String, why: String },
    #[error(
        "run `{run}` needs a newer version of rlm, which saved it in a form that this version does not know: update this rlm; workers of the newer version continue the run"
    )]
    Newer { run: String },
    #[error(
        "run `{run}` has more than {most}, so no worker can continue it: get its commits with `rlm fleet fetch {run}`, and submit the rest as a new run"
    )]
    TooLarge { run: String, most: &'static str },
    #[error("another worker owns run `{run}` now (claim {by})")]
    Fenced { run: String, by: u64 },
    #[error(
        "run `{run}` has 10000 recorded requests, and accepts no more; resume it under another name"
    )]
    ManyRequests { run: String },
    #[error("the request is larger than a message of the server: send less text")]
    LargeRequest,
    #[error("run `{run}` has not ended, so there is nothing to resume")]
    NotEnded { run: String },
    #[error("run `{run}` has ended and has nothing to resume: {reason}")]
    Done { run: String, reason: String },
    #[error("a worker owns run `{run}`; to end its work first: rlm stop {run}")]
    Owned { run: String },
    #[error(
        "run `{run}` was exported to {to} and continues there, until it returns: rlm fleet import {run}"
    )]
    Exported { run: String, to: String },
    #[error(
        "the fleet does not wait for this run `{run}`: it was not exported, or has returned already"
    )]
    NotExported { run: String },
    #[error("no worker `{worker}` is connected; for the workers of runs: rlm fleet ps")]
    NoWorker { worker: String },
    #[error(
        "worker `{worker}` got the request, and has not ended yet: it ends the processes of its runs"
    )]
    Draining { worker: String },
    #[error("the fleet did not confirm a record of run `{run}` within {time:?}")]
    Unconfirmed { run: String, time: Duration },
}

impl Error {
    /// Returns whether the server can't be reached, or did not answer in time. The operation can succeed later.
    pub fn is_unavailable(&self) -> bool {
        matches!(
            self.0,
            Kind::Connect { .. }
                | Kind::Certificate { .. }
                | Kind::Unavailable { .. }
                | Kind::Unconfirmed { .. }
                | Kind::Draining { .. }
        )
    }

    /// Returns whether the caller must change its request: a name, a lease, or a fleet without assets.
    pub fn is_usage(&self) -> bool {
        matches!(
            self.0,
            Kind::Address { .. }
                | Kind::CertificateFile { .. }
                | Kind::Name { .. }
                | Kind::ShortLease { .. }
                | Kind::LeaseInUse { .. }
                | Kind::NoAsset { .. }
                | Kind::NotOver { .. }
                | Kind::ManyRequests { .. }
                | Kind::LargeRequest
                | Kind::NotEnded { .. }
                | Kind::Done { .. }
                | Kind::Owned { .. }
                | Kind::Exported { .. }
                | Kind::NotExported { .. }
        )
    }

    /// Returns whether this part of a fleet is not built yet, or the server is too old for it.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.0, Kind::Unsupported { .. } | Kind::OldServer { .. })
    }

    /// Returns whether the fleet has no run, or no connected worker, of this name.
    pub fn is_not_found(&self) -> bool {
        matches!(self.0, Kind::NoRun { .. } | Kind::NoWorker { .. })
    }

    /// Returns whether a newer version saved the run in a form that this version does not know.
    pub fn is_newer(&self) -> bool {
        matches!(self.0, Kind::Newer { .. })
    }

    /// Returns whether the server refused a part of the operation to the user of the connection.
    pub fn is_refused(&self) -> bool {
        matches!(self.0, Kind::Refused { .. })
    }

    /// Returns whether another worker owns the run.
    pub fn is_fenced(&self) -> bool {
        matches!(self.0, Kind::Fenced { .. })
    }

    pub(super) fn unavailable(what: &'static str, cause: impl Into<Cause>) -> Self {
        let cause = cause.into();
        Kind::Unavailable { what, cause }.into()
    }

    pub(super) fn damaged(run: impl ToString, why: impl Into<String>) -> Self {
        let (run, why) = (run.to_string(), why.into());
        Kind::Damaged { run, why }.into()
    }
}
