//! Asks the model server for its models, which shows whether the address and the key are right.

use agent_api::{ErrorKind, ModelClient};
use tokio::time::{Instant, timeout_at};

use super::driver::endpoint;
use super::key;
use super::options::NAME;
use super::server::ApiServer;
use crate::probe::{LoggedIn, Login, Probe};

/// The most models that are named.
const NAMED: usize = 5;

/// Asks the server for its models, until the deadline. This costs nothing.
pub(super) async fn probe(server: &ApiServer, deadline: Instant) -> Probe {
    let (endpoint, key_variable) = match endpoint(server) {
        Ok(found) => found,
        Err(error) => return answered(LoggedIn::No, error.to_string()),
    };
    let asked = async { ModelClient::new(endpoint)?.models().await };
    let (state, mut detail) = match timeout_at(deadline, asked).await {
        Ok(Ok(models)) => (LoggedIn::Yes, named(&models)),
        Ok(Err(error)) if error.kind() == ErrorKind::Auth => (LoggedIn::No, error.to_string()),
        Ok(Err(error)) => (LoggedIn::Unknown, error.to_string()),
        Err(_late) => {
            let late = "the model server doesn't answer".to_owned();
            (LoggedIn::Unknown, late)
        }
    };
    if key_variable.is_some_and(|variable| key::is_visible(&variable)) {
        detail.push_str(
            "; the key can't be erased from the environment, so checks and hooks inherit it",
        );
    }
    match state {
        LoggedIn::Unknown => Probe::failed(&format!("{NAME}: {detail}")),
        state => answered(state, detail),
    }
}

fn named(models: &[String]) -> String {
    let more = match models.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = models.iter().take(NAMED).cloned().collect::<Vec<_>>();
    format!("models: {}{more}", named.join(", "))
}

fn answered(state: LoggedIn, detail: String) -> Probe {
    Probe {
        version: Ok(None),
        login: Login {
            state,
            detail: Some(detail),
        },
    }
}
