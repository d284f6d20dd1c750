//! The agent of this project: it calls a model server itself, so no other program has to be installed.
//!
//! [`ApiOptions`] is plain data and always there, so that each build reads the settings of a run. The driver needs the feature `api`.

#[cfg(any(test, feature = "api"))]
mod chosen;
#[cfg(feature = "api")]
mod driver;
#[cfg(feature = "api")]
mod key;
mod options;
#[cfg(feature = "api")]
mod probe;
mod server;
#[cfg(not(feature = "api"))]
mod unbuilt;

#[cfg(feature = "api")]
pub(crate) use driver::ApiDriver;
pub(crate) use options::NAME;
pub use options::{ApiOptions, ApiTool, SESSIONS};
pub use server::{ApiDialect, ApiServer};
#[cfg(not(feature = "api"))]
pub(crate) use unbuilt::ApiDriver;

use tokio::time::Instant;

use crate::probe::{LoginFacts, Probe};

/// Asks the model server for its models, until the deadline. This sends no prompt, so it costs nothing.
#[doc(hidden)] // for `rlm doctor`
pub async fn probe(server: &ApiServer, deadline: Instant) -> Probe {
    #[cfg(feature = "api")]
    return probe::probe(server, deadline).await;
    #[cfg(not(feature = "api"))]
    {
        let (_, _) = (server, deadline);
        Probe::failed(&unbuilt::unbuilt().to_string())
    }
}

/// Takes the key of the model server, and erases it from the environment of this process, if the server has a key. [`probe`] does this too. Call it
/// before other programs are started at the same time: a program that starts during the erasure may get no key.
#[doc(hidden)] // for `rlm doctor`
pub fn take_key(server: &ApiServer) {
    #[cfg(feature = "api")]
    // The probe reports the error.
    drop(driver::endpoint(server));
    #[cfg(not(feature = "api"))]
    let _ = server;
}

pub(crate) const FACTS: LoginFacts = LoginFacts {
    tested_version: None,
    how_to: "set the variable with the key of your model server",
    variables: &server::KEY_VARIABLES,
};
