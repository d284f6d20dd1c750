//! Decides whether a request can come from the page itself: every web page that the user opens can send requests to a port of this machine, and a
//! name of another site can lead to 127.0.0.1 (DNS rebinding). No I/O.

/// The headers of a request that show its origin. `None`: the request has no such header, or several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Headers<'a> {
    pub(crate) host: Option<&'a str>,
    pub(crate) origin: Option<&'a str>,
    pub(crate) fetch_site: Option<&'a str>,
    pub(crate) fetch_mode: Option<&'a str>,
    pub(crate) fetch_dest: Option<&'a str>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The request is for another host.
    WrongHost,
    /// The request comes from another site.
    OtherSite,
}

/// The address of the page for browsers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageOrigin {
    /// For browsers of this machine, such as `http://k3x9.localhost:7341`.
    ThisMachine { host: String },
    /// For browsers of other machines too, such as `https://runs.example`.
    Public { host: String },
}

impl PageOrigin {
    /// Returns the address without a path.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::ThisMachine { host } => format!("http://{host}"),
            Self::Public { host } => format!("https://{host}"),
        }
    }

    /// Returns whether browsers of other machines can reach the page.
    pub(crate) fn is_public(&self) -> bool {
        matches!(self, Self::Public { .. })
    }

    fn host(&self) -> &str {
        match self {
            Self::ThisMachine { host } | Self::Public { host } => host,
        }
    }

    /// Returns why a request is refused. `is_read` is true for GET and HEAD.
    ///
    /// A request that changes something must prove that it comes from the page. Another page can only link to this one: a GET navigation of a whole
    /// tab, which shows the other page nothing.
    pub(crate) fn refuse(&self, is_read: bool, headers: Headers<'_>) -> Option<Refusal> {
        if headers
            .host
            .is_none_or(|host| !host.eq_ignore_ascii_case(self.host()))
        {
            return Some(Refusal::WrongHost);
        }
        let is_own = |origin: &str| origin.eq_ignore_ascii_case(&self.url());
        let is_navigation = is_read
            && headers.fetch_mode == Some("navigate")
            && headers.fetch_dest == Some("document");
        let is_same_site = match headers.fetch_site {
            Some("same-origin" | "none") => true,
            Some(_) => is_navigation,
            // An old browser, or a program: a read is harmless without a session.
            None => is_read || headers.origin.is_some(),
        };
        let is_same_origin = headers.origin.map_or(is_read, is_own);
        (!is_same_site || !is_same_origin).then_some(Refusal::OtherSite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> PageOrigin {
        PageOrigin::ThisMachine {
            host: "k3x9.localhost:7341".into(),
        }
    }

    const HOST: &str = "k3x9.localhost:7341";
    const ORIGIN: &str = "http://k3x9.localhost:7341";

    fn from<'a>(
        host: &'a str,
        origin: Option<&'a str>,
        site: Option<&'a str>,
        mode: &'a str,
        dest: &'a str,
    ) -> Headers<'a> {
        Headers {
            host: Some(host),
            origin,
            fetch_site: site,
            fetch_mode: Some(mode),
            fetch_dest: Some(dest),
        }
    }

    #[test]
    fn v8_requests_of_the_page_itself_are_accepted() {
        let own = [
            (true, from(HOST, None, Some("none"), "navigate", "document")),
            (true, from(HOST, None, Some("same-origin"), "cors", "empty")),
            (
                true,
                from(
                    "K3X9.localhost:7341",
                    None,
                    Some("same-origin"),
                    "navigate",
                    "document",
                ),
            ),
            (true, from(HOST, None, None, "", "")),
            // A link on another page, or the file that opens the browser.
            (
                true,
                from(HOST, None, Some("cross-site"), "navigate", "document"),
            ),
            (
                false,
                from(
                    HOST,
                    Some(ORIGIN),
                    Some("same-origin"),
                    "navigate",
                    "document",
                ),
            ),
            (false, from(HOST, Some(ORIGIN), None, "cors", "empty")),
        ];
        for (is_read, headers) in own {
            assert_eq!(page().refuse(is_read, headers), None, "{headers:?}");
        }
    }

    #[test]
    fn v8_requests_of_other_sites_are_refused() {
        let other = Some("http://evil.example");
        let cross = Some("cross-site");
        for (is_read, headers) in [
            // A form or a fetch of another page.
            (false, from(HOST, other, cross, "navigate", "document")),
            (false, from(HOST, other, cross, "no-cors", "empty")),
            (false, from(HOST, other, None, "", "")),
            (
                false,
                from(HOST, Some("null"), cross, "navigate", "document"),
            ),
            (false, from(HOST, Some("null"), None, "", "")),
            (false, from(HOST, None, None, "", "")),
            (false, from(HOST, None, cross, "navigate", "document")),
            (
                false,
                from(HOST, None, Some("same-origin"), "navigate", "document"),
            ),
            // Another port of this machine is the same site, and another origin.
            (
                false,
                from(
                    HOST,
                    Some("http://k3x9.localhost:80"),
                    Some("same-site"),
                    "cors",
                    "empty",
                ),
            ),
            (
                true,
                from(HOST, None, Some("same-site"), "no-cors", "script"),
            ),
            // An EventSource, a script, an image, a frame, a prefetch.
            (true, from(HOST, other, cross, "cors", "empty")),
            (true, from(HOST, None, cross, "no-cors", "script")),
            (true, from(HOST, None, cross, "no-cors", "image")),
            (true, from(HOST, None, cross, "navigate", "iframe")),
            (true, from(HOST, None, cross, "navigate", "object")),
            (
                true,
                from(HOST, other, Some("same-origin"), "cors", "empty"),
            ),
            (
                false,
                from(HOST, Some("https://k3x9.localhost:7341"), None, "", ""),
            ),
        ] {
            let refused = page().refuse(is_read, headers);
            assert_eq!(refused, Some(Refusal::OtherSite), "{headers:?}");
        }
    }

    #[test]
    fn v8_other_hosts_are_refused_before_anything_else() {
        let none = Some("none");
        for host in [
            "evil.example:7341",
            "127.0.0.1:7341",
            "localhost:7341",
            "k3x9.localhost",
            "k3x9.localhost:80",
            "k3x9.localhost:7341.evil.example",
            "x.k3x9.localhost:7341",
            "",
        ] {
            let refused = page().refuse(true, from(host, None, none, "navigate", "document"));
            assert_eq!(refused, Some(Refusal::WrongHost), "{host}");
        }
        let without = Headers::default();
        assert_eq!(page().refuse(true, without), Some(Refusal::WrongHost));
    }
}
