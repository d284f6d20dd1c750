//! The logins of the page: one-time links, the password, the sessions that both begin, and the limit of wrong attempts. No I/O; time and randomness
//! are arguments.

use std::time::Duration;

use loop_state::Timestamp;
use subtle::ConstantTimeEq as _;

use crate::access::Password;

/// The time in which a link can be used.
pub(crate) const LINK_LIFE: Duration = Duration::from_secs(5 * 60);
/// The time after which an unused session ends.
pub(crate) const SESSION_LIFE: Duration = Duration::from_secs(7 * 86_400);
/// The largest number of open links and of sessions; the oldest makes room.
const MAX_LINKS: usize = 16;
const MAX_SESSIONS: usize = 64;
/// The number of wrong attempts in [`ATTEMPT_TIME`] after which the page reports that there were too many.
const MAX_ATTEMPTS: u32 = 10;
const ATTEMPT_TIME: Duration = Duration::from_secs(60);

/// The actions that a session allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Reads everything.
    Viewer,
    /// Also controls runs. As an agent runs commands, this role has the power of a shell.
    Operator,
}

/// A random secret of 256 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Secret([u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    pub(crate) fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns 64 hexadecimal digits, for a link or a cookie.
    pub(crate) fn text(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Parses the text of a secret.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let digit = |c: u8| {
            char::from(c)
                .to_digit(16)
                .filter(|_| !c.is_ascii_uppercase())
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Some(Self(bytes))
    }

    /// Compares two secrets in a time that doesn't depend on them.
    fn is(self, other: Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

#[derive(Clone, Copy, Debug)]
struct Link {
    secret: Secret,
    role: Role,
    until: Timestamp,
}

/// A logged-in browser.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    secret: Secret,
    /// The secret that each form of this session contains.
    pub(crate) form_secret: Secret,
    pub(crate) role: Role,
    until: Timestamp,
}

impl Session {
    /// Returns whether a form belongs to this session.
    pub(crate) fn owns_form(&self, secret: Option<Secret>) -> bool {
        secret.is_some_and(|secret| self.form_secret.is(secret))
    }

    /// Returns whether both are the same session.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.secret.is(other.secret)
    }
}

/// Why a link or a password was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoginError {
    /// The link was used, is too old, or never existed.
    Unknown,
    /// The password is wrong, or this server has none.
    WrongPassword,
    /// There were too many wrong attempts.
    TooMany,
}

/// All open links and sessions of a server. They end with the server.
#[derive(Debug, Default)]
pub(crate) struct Logins {
    links: Vec<Link>,
    sessions: Vec<Session>,
    wrong_links: WrongAttempts,
    wrong_passwords: WrongAttempts,
}

/// The number of wrong attempts within [`ATTEMPT_TIME`].
#[derive(Debug, Default)]
struct WrongAttempts {
    count: u32,
    since: Timestamp,
}

impl WrongAttempts {
    fn are_too_many(&self, now: Timestamp) -> bool {
        self.count >= MAX_ATTEMPTS && now.since(self.since) < ATTEMPT_TIME
    }

    fn add(&mut self, now: Timestamp) {
        if now.since(self.since) >= ATTEMPT_TIME {
            (self.count, self.since) = (0, now);
        }
        self.count = self.count.saturating_add(1);
    }
}

impl Logins {
    /// Adds a link that begins one session.
    pub(crate) fn add_link(&mut self, secret: Secret, role: Role, now: Timestamp) {
        self.expire(now);
        if self.links.len() >= MAX_LINKS {
            self.links.remove(0);
        }
        self.links.push(Link {
            secret,
            role,
            until: now + LINK_LIFE,
        });
    }

    /// Uses a link, which ends it, and begins a session with the two new secrets.
    pub(crate) fn redeem(
        &mut self,
        link: Option<Secret>,
        new: [Secret; 2],
        now: Timestamp,
    ) -> Result<Session, LoginError> {
        self.expire(now);
        let found = link.and_then(|link| self.links.iter().position(|it| it.secret.is(link)));
        let Some(found) = found else {
            // The right link works at any time: a guess has no chance.
            let are_too_many = self.wrong_links.are_too_many(now);
            self.wrong_links.add(now);
            return Err(match are_too_many {
                true => LoginError::TooMany,
                false => LoginError::Unknown,
            });
        };
        let role = self.links.remove(found).role;
        Ok(self.begin(role, new, now))
    }

    /// Compares a password, and begins a session with the two new secrets. After too many wrong attempts, it compares none for a while: a password can
    /// be guessed, and a link still works.
    pub(crate) fn enter(
        &mut self,
        (expected, given): (Option<&Password>, &str),
        role: Role,
        new: [Secret; 2],
        now: Timestamp,
    ) -> Result<Session, LoginError> {
        self.expire(now);
        if self.wrong_passwords.are_too_many(now) {
            return Err(LoginError::TooMany);
        }
        if expected.is_some_and(|it| it.is(given)) {
            return Ok(self.begin(role, new, now));
        }
        self.wrong_passwords.add(now);
        Err(LoginError::WrongPassword)
    }

    fn begin(&mut self, role: Role, new: [Secret; 2], now: Timestamp) -> Session {
        let [secret, form_secret] = new;
        let session = Session {
            secret,
            form_secret,
            role,
            until: now + SESSION_LIFE,
        };
        if self.sessions.len() >= MAX_SESSIONS {
            self.sessions.remove(0);
        }
        self.sessions.push(session);
        session
    }

    /// Returns the session of a cookie, and extends its life.
    pub(crate) fn session(&mut self, cookie: Secret, now: Timestamp) -> Option<Session> {
        self.expire(now);
        let found = self.sessions.iter_mut().find(|it| it.secret.is(cookie))?;
        found.until = now + SESSION_LIFE;
        Some(*found)
    }

    /// Returns whether a session is still open, and extends its life: an open page uses it.
    pub(crate) fn is_open(&mut self, session: &Session, now: Timestamp) -> bool {
        self.session(session.secret, now).is_some()
    }

    /// Ends one session.
    pub(crate) fn log_out(&mut self, session: &Session) {
        self.sessions.retain(|it| !it.is_same(session));
    }

    /// Ends all sessions and links, and returns the number of sessions.
    pub(crate) fn revoke(&mut self) -> usize {
        self.links.clear();
        std::mem::take(&mut self.sessions).len()
    }

    /// Returns the cookie of a session.
    pub(crate) fn cookie(session: &Session) -> String {
        session.secret.text()
    }

    fn expire(&mut self, now: Timestamp) {
        self.links.retain(|it| it.until > now);
        self.sessions.retain(|it| it.until > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn secret(n: u8) -> Secret {
        Secret::new([n; 32])
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn v8_link_works_once_and_for_five_minutes() {
        let mut logins = Logins::default();
        logins.add_link(secret(1), Role::Operator, at(0));
        logins.add_link(secret(2), Role::Viewer, at(0));
        let new = [secret(3), secret(4)];
        let session = logins.redeem(Some(secret(1)), new, at(299)).unwrap();
        assert_eq!(session.role, Role::Operator);
        for (link, now) in [(1, 299), (2, 300), (9, 300)] {
            let used = logins.redeem(Some(secret(link)), new, at(now));
            assert_eq!(used.unwrap_err(), LoginError::Unknown, "{link}");
        }
        assert!(logins.session(secret(3), at(300)).is_some());
        assert!(logins.session(secret(4), at(300)).is_none());
    }

    #[test]
    fn v8_wrong_attempts_are_limited_and_never_lock_the_owner_out() {
        let mut logins = Logins::default();
        logins.add_link(secret(1), Role::Viewer, at(0));
        let new = [secret(3), secret(4)];
        let wrong: Vec<_> = (0..12)
            .map(|_| logins.redeem(None, new, at(1)).unwrap_err())
            .collect();
        assert_eq!(
            wrong[9..],
            [
                LoginError::Unknown,
                LoginError::TooMany,
                LoginError::TooMany
            ]
        );
        assert!(logins.redeem(Some(secret(1)), new, at(2)).is_ok());
        assert_eq!(
            logins.redeem(None, new, at(61)).unwrap_err(),
            LoginError::Unknown
        );
    }

    #[test]
    fn v11_right_password_begins_a_session_and_guesses_are_limited() {
        let mut logins = Logins::default();
        let password = Password::new("correct horse battery");
        for _ in 0..20 {
            // Wrong links, which any page can open, don't lock the password.
            let _wrong = logins.redeem(None, [secret(3), secret(4)], at(0));
        }
        let new = [secret(3), secret(4)];
        let mut enter = |given: &str, now| {
            let session = logins.enter((Some(&password), given), Role::Viewer, new, at(now));
            session.map(|it| it.role)
        };
        assert_eq!(enter("correct horse battery", 0), Ok(Role::Viewer));
        for given in ["", "correct horse", "correct horse battery "] {
            assert_eq!(enter(given, 1), Err(LoginError::WrongPassword), "{given:?}");
        }
        let more: Vec<_> = (0..8).map(|_| enter("guess", 2).unwrap_err()).collect();
        assert_eq!(more[6..], [LoginError::WrongPassword, LoginError::TooMany]);
        // The right one is not compared any more, so that it can't be guessed.
        assert_eq!(enter("correct horse battery", 3), Err(LoginError::TooMany));
        assert_eq!(enter("correct horse battery", 61), Ok(Role::Viewer));
        logins.add_link(secret(1), Role::Viewer, at(62));
        for _ in 0..20 {
            let _wrong = logins.enter((Some(&password), "guess"), Role::Viewer, new, at(62));
        }
        assert!(logins.redeem(Some(secret(1)), new, at(62)).is_ok());
        let without = logins.enter((None, ""), Role::Viewer, new, at(200));
        assert_eq!(without.unwrap_err(), LoginError::WrongPassword);
    }

    #[test]
    fn session_ends_unused_or_by_logout_or_by_revoke() {
        let mut logins = Logins::default();
        let begin = |n: u8, logins: &mut Logins| {
            logins.add_link(secret(n), Role::Viewer, at(0));
            let new = [secret(n + 100), secret(n)];
            logins.redeem(Some(secret(n)), new, at(0)).unwrap()
        };
        let (one, two) = (begin(1, &mut logins), begin(2, &mut logins));
        let week = SESSION_LIFE.as_secs();
        assert!(logins.session(secret(101), at(week - 1)).is_some());
        assert!(logins.session(secret(102), at(week)).is_none());
        let mut is_open = |session, now| logins.is_open(session, now);
        assert!(is_open(&one, at(week)) && !is_open(&two, at(week)));
        // An open page keeps its session.
        assert!(is_open(&one, at(2 * week - 1)) && is_open(&one, at(3 * week - 2)));
        logins.log_out(&one);
        assert!(!logins.is_open(&one, at(week)));
        let three = begin(3, &mut logins);
        assert_eq!(logins.revoke(), 1);
        assert!(!logins.is_open(&three, at(1)));
    }

    proptest! {
        #[test]
        fn secret_has_one_text(bytes: [u8; 32], wrong in "[0-9a-fA-F]{0,70}") {
            let secret = Secret::new(bytes);
            prop_assert_eq!(Secret::parse(&secret.text()), Some(secret));
            let parsed = Secret::parse(&wrong);
            prop_assert_eq!(parsed.map(Secret::text), (wrong.len() == 64 && wrong == wrong.to_lowercase()).then_some(wrong));
        }

        #[test]
        fn logins_are_bounded(links in 0usize..200) {
            let mut logins = Logins::default();
            for n in 0..links {
                let n = n as u8;
                logins.add_link(secret(n), Role::Viewer, at(0));
                if n.is_multiple_of(2) {
                    let _session = logins.redeem(Some(secret(n)), [secret(n), secret(n)], at(0));
                }
            }
            prop_assert!(logins.links.len() <= MAX_LINKS && logins.sessions.len() <= MAX_SESSIONS);
        }
    }
}
