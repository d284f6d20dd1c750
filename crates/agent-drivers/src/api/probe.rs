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
    let asked = async {
        let (endpoint, key) =
            endpoint(server).map_err(|error| (LoggedIn::No, error.to_string()))?;
        let is_visible = key.is_some_and(|key| key::is_visible(&key));
        let models = match ModelClient::new(endpoint) {
            Ok(client) => client.models().await,
            Err(error) => Err(error),
        };
        let models = models.map_err(|error| match error.kind() {
            ErrorKind::Auth => (LoggedIn::No, error.to_string()),
            _ => (LoggedIn::Unknown, error.to_string()),
        })?;
        Ok((models, is_visible))
    };
    let late = |_| {
        Err((
            LoggedIn::Unknown,
            "the model server doesn't answer".to_owned(),
        ))
    };
    match timeout_at(deadline, asked).await.unwrap_or_else(late) {
        Ok((models, is_visible)) => {
            let more = match models.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let named = models.iter().take(NAMED).cloned().collect::<Vec<_>>();
            let mut detail = format!("models: {}{more}", named.join(", "));
            if is_visible {
                detail.push_str("; the key can't be erased from the environment, so checks and hooks inherit it");
            }
            Probe {
                version: Ok(None),
                login: Login {
                    state: LoggedIn::Yes,
                    detail: Some(detail),
                },
            }
        }
        Err((LoggedIn::No, why)) => Probe {
            version: Ok(None),
            login: Login {
                state: LoggedIn::No,
                detail: Some(why),
            },
        },
        Err((_, why)) => Probe::failed(&format!("{NAME}: {why}")),
    }
}
