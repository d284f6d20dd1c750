//! The state that all requests share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

use crate::access::Password;
use crate::export::MAX_EXPORTS;
use crate::login::{Logins, Role, Secret, Session};
use crate::origin::PageOrigin;
use crate::runs::{Runs, now};

/// The parts of the server that all requests share.
pub(crate) struct App {
    pub(crate) runs: Arc<Runs>,
    pub(crate) origin: PageOrigin,
    logins: Mutex<Logins>,
    /// The role that a session has at most.
    pub(crate) most: Role,
    /// The password that browsers can log in with, besides a link.
    pub(crate) password: Option<Password>,
    /// One permit for each export that may run now.
    pub(crate) exports: Arc<Semaphore>,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}

/// Returns a secret from the random numbers of the system.
pub(crate) fn new_secret() -> std::io::Result<Secret> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(Secret::new(bytes))
}

impl App {
    pub(crate) fn new(
        runs: Arc<Runs>,
        origin: PageOrigin,
        most: Role,
        password: Option<Password>,
    ) -> Self {
        Self {
            runs,
            origin,
            logins: Mutex::default(),
            most,
            password,
            exports: Arc::new(Semaphore::new(MAX_EXPORTS)),
        }
    }

    pub(crate) fn logins(&self) -> MutexGuard<'_, Logins> {
        self.logins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a new login link.
    pub(crate) fn link(&self, role: Role) -> std::io::Result<String> {
        let secret = new_secret()?;
        self.logins().add_link(secret, role.min(self.most), now());
        Ok(format!(
            "{}/login?link={}",
            self.origin.url(),
            secret.text()
        ))
    }

    /// Ends all sessions, and returns their number.
    pub(crate) fn revoke(&self) -> usize {
        self.logins().revoke()
    }

    pub(crate) fn is_open(&self, session: &Session) -> bool {
        self.logins().is_open(session, now())
    }
}
