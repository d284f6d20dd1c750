//! Values that can be secret: output shows only their names.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The text that replaces a redacted value.
const HIDDEN: &str = "…";

/// Values by name. `Debug` shows only the names.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Redacted<T>(pub T);

impl<T: Default + PartialEq> Redacted<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == T::default()
    }
}

impl Redacted<BTreeMap<String, String>> {
    pub(crate) fn redact(&mut self) {
        for value in self.0.values_mut() {
            HIDDEN.clone_into(value);
        }
    }
}

impl Redacted<Map<String, Value>> {
    pub(crate) fn redact(&mut self) {
        for (_, value) in &mut self.0 {
            *value = HIDDEN.into();
        }
    }
}

impl<K: fmt::Debug, V, T> fmt::Debug for Redacted<T>
where
    for<'a> &'a T: IntoIterator<Item = (&'a K, &'a V)>,
    K: 'static,
    V: 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.0.into_iter().map(|(name, _)| name))
            .finish()
    }
}

/// The options of an agent that can start programs or hold secrets, so that a caller can show or check them.
#[derive(Default)]
#[non_exhaustive]
pub struct PassedThrough<'a> {
    /// Variables of the agent's environment.
    pub env: Option<&'a BTreeMap<String, String>>,
    /// Settings under the agent's own names.
    pub settings: Option<&'a Map<String, Value>>,
    /// The keys of settings whose value is a command or contains one. The part of a key before its first `.` is compared.
    pub commands: &'static [&'static str],
    /// The sources of the settings whose hooks run, if hooks run.
    pub hooks: Option<String>,
}

/// Shows only names: values can be secret.
impl fmt::Debug for PassedThrough<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let env = self.env.map(|env| env.keys().collect::<Vec<_>>());
        let settings = self
            .settings
            .map(|settings| settings.keys().collect::<Vec<_>>());
        f.debug_struct("PassedThrough")
            .field("env", &env)
            .field("settings", &settings)
            .field("commands", &self.commands)
            .field("hooks", &self.hooks)
            .finish()
    }
}
