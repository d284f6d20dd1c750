//! The server and its prices: what a user and the environment choose. Pure.

use agent_duplex::Error;

use super::server::{ApiDialect, ApiServer, KEY_VARIABLES};

/// A model server, and the variable with its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChosenServer {
    pub(crate) dialect: ApiDialect,
    pub(crate) base_url: String,
    /// `None` for a server that needs no key.
    pub(crate) key_variable: Option<String>,
}

/// The prices of a model, in millionths of a dollar for a million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParsedPrices {
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cached_input: u64,
    pub(crate) cache_write: u64,
}

impl ApiServer {
    /// Chooses the server. `is_set` says whether a variable of the environment is set.
    ///
    /// # Errors
    ///
    /// [`Error::is_start_failure`] if no server is named, and the environment names none or two.
    pub(crate) fn choose(&self, is_set: impl Fn(&str) -> bool) -> Result<ChosenServer, Error> {
        let [anthropic, openai] = KEY_VARIABLES;
        if let Some(base_url) = &self.base_url {
            // A key of a known service is never sent to another address, unless the user names its variable.
            return Ok(ChosenServer {
                dialect: self.dialect.unwrap_or(ApiDialect::Chat),
                base_url: base_url.clone(),
                key_variable: self.key_env.clone(),
            });
        }
        let dialect = match (self.dialect, is_set(anthropic), is_set(openai)) {
            (Some(dialect), ..) => dialect,
            (None, true, false) => ApiDialect::Messages,
            (None, false, true) => ApiDialect::Responses,
            (None, true, true) => {
                let what = "both ANTHROPIC_API_KEY and OPENAI_API_KEY are set; choose with `dialect` in the section [api-server] of ~/.config/rlm/config.toml";
                return Err(Error::start(what, None));
            }
            (None, false, false) => {
                let what = "no model server is named; set ANTHROPIC_API_KEY or OPENAI_API_KEY, or write `base-url` into the section [api-server] of ~/.config/rlm/config.toml";
                return Err(Error::start(what, None));
            }
        };
        let (base_url, variable) = match dialect {
            ApiDialect::Messages => ("https://api.anthropic.com", anthropic),
            ApiDialect::Responses | ApiDialect::Chat => ("https://api.openai.com/v1", openai),
        };
        let variable = self.key_env.as_deref().unwrap_or(variable);
        Ok(ChosenServer {
            dialect,
            base_url: base_url.to_owned(),
            key_variable: Some(variable.to_owned()),
        })
    }

    /// Returns the prices, if there are any.
    ///
    /// # Errors
    ///
    /// [`Error::is_start_failure`] for an unknown name, a missing price, and a price that is no amount of dollars.
    pub(crate) fn parsed_prices(&self) -> Result<Option<ParsedPrices>, Error> {
        if self.prices.is_empty() {
            return Ok(None);
        }
        const NAMES: [&str; 4] = ["input", "output", "cached-input", "cache-write"];
        let wrong = |why: String| Error::start(format!("the prices in [api-server]: {why}"), None);
        if let Some(name) = { self.prices.keys() }.find(|name| !NAMES.contains(&name.as_str())) {
            return Err(wrong(format!("`{name}` is none of {}", NAMES.join(", "))));
        }
        let price = |name: &str| {
            let Some(text) = self.prices.get(name) else {
                return Ok(None);
            };
            let price = micros(text)
                .ok_or_else(|| wrong(format!("`{name}` must be dollars, such as \"3.00\"")))?;
            Ok(Some(price))
        };
        let needed = |name: &str| price(name)?.ok_or_else(|| wrong(format!("`{name}` is missing")));
        let input = needed("input")?;
        Ok(Some(ParsedPrices {
            input,
            output: needed("output")?,
            cached_input: price("cached-input")?.unwrap_or(input),
            cache_write: price("cache-write")?.unwrap_or(input),
        }))
    }
}

/// Parses an amount such as `3`, `0.25` or `3.00`, in millionths.
fn micros(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 6 || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let fraction: u64 = format!("{fraction:0<6}").parse().ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000)?
        .checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(
        dialect: Option<ApiDialect>,
        url: Option<&str>,
        set: &[&str],
    ) -> Result<ChosenServer, String> {
        let server = ApiServer {
            dialect,
            base_url: url.map(str::to_owned),
            ..ApiServer::default()
        };
        { server.choose(|name| set.contains(&name)) }.map_err(|error| error.to_string())
    }

    #[test]
    fn server_follows_from_the_key_that_is_set() {
        let [anthropic, openai] = KEY_VARIABLES;
        let messages = choose(None, None, &[anthropic]).unwrap();
        assert_eq!(messages.dialect, ApiDialect::Messages);
        assert_eq!(messages.key_variable.as_deref(), Some(anthropic));
        let responses = choose(None, None, &[openai]).unwrap();
        assert_eq!(responses.dialect, ApiDialect::Responses);
        let both = choose(None, None, &KEY_VARIABLES).unwrap_err();
        assert!(both.contains("choose with `dialect`"), "{both}");
        let none = choose(None, None, &[]).unwrap_err();
        assert!(none.contains("no model server is named"), "{none}");
        // A named dialect needs no key yet: the driver says which one is missing.
        let chat = choose(Some(ApiDialect::Chat), None, &[]).unwrap();
        assert_eq!(chat.base_url, "https://api.openai.com/v1");
    }

    #[test]
    fn a14_key_of_a_service_is_not_sent_to_another_address() {
        let local = choose(None, Some("http://localhost:11434/v1"), &KEY_VARIABLES).unwrap();
        assert_eq!(
            (local.dialect, local.key_variable),
            (ApiDialect::Chat, None)
        );
    }

    #[test]
    fn prices_are_dollars_and_each_mistake_is_named() {
        let prices = |prices: &[(&str, &str)]| {
            let server = ApiServer {
                prices: { prices.iter() }
                    .map(|(name, price)| ((*name).to_owned(), (*price).to_owned()))
                    .collect(),
                ..ApiServer::default()
            };
            server.parsed_prices().map_err(|error| error.to_string())
        };
        assert_eq!(prices(&[]), Ok(None));
        let parsed = prices(&[("input", "3"), ("output", "15.00"), ("cached-input", "0.3")]);
        let expected = ParsedPrices {
            input: 3_000_000,
            output: 15_000_000,
            cached_input: 300_000,
            cache_write: 3_000_000,
        };
        assert_eq!(parsed, Ok(Some(expected)));
        for (wrong, why) in [
            (vec![("input", "3")], "`output` is missing"),
            (
                vec![("input", "3"), ("output", "$15")],
                "`output` must be dollars",
            ),
            (
                vec![("input", "0.0000001"), ("output", "1")],
                "`input` must be dollars",
            ),
            (
                vec![("input", "3"), ("outputs", "1")],
                "`outputs` is none of",
            ),
        ] {
            let refused = prices(&wrong).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }
}
