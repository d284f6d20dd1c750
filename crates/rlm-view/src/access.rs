//! How browsers reach the server: the address that it listens on, the address for browsers, and the encryption. A server that listens beyond this
//! machine needs both encryption and a password.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use subtle::ConstantTimeEq as _;

use crate::error::ViewError;

/// The largest certificate, key or password file, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// The shortest password, in bytes.
const MIN_PASSWORD: usize = 12;

/// How browsers reach the server.
#[derive(Clone, Debug)]
pub struct Access(pub(crate) Kind);

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// On this machine, on a random name.
    ThisMachine { port: u16 },
    /// Through a reverse proxy on this machine, which encrypts.
    Proxy { port: u16, url: PublicUrl },
    /// On an address that other machines may reach.
    Encrypted {
        address: SocketAddr,
        url: PublicUrl,
        encryption: Encryption,
    },
}

impl Access {
    /// Decides how browsers reach a server that listens on `address`. Port 0 selects a free port.
    ///
    /// - On 127.0.0.1 or ::1 without the other two, browsers of this machine use a random name.
    /// - On 127.0.0.1 or ::1 with `url`, a reverse proxy on this machine encrypts. It passes the header `Host` on.
    /// - With `url` and `encryption`, browsers of other machines connect directly.
    ///
    /// # Errors
    ///
    /// [`ViewError::NotLocalhost`] for another address without encryption, [`ViewError::NoUrl`] for encryption without an address for browsers.
    pub fn new(
        address: SocketAddr,
        url: Option<PublicUrl>,
        encryption: Option<Encryption>,
    ) -> Result<Self, ViewError> {
        let localhost = [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ];
        let port = address.port();
        Ok(Self(match (url, encryption) {
            (Some(url), Some(encryption)) => Kind::Encrypted {
                address,
                url,
                encryption,
            },
            (None, Some(_)) => return Err(ViewError::NoUrl),
            _ if !localhost.contains(&address.ip()) => {
                return Err(ViewError::NotLocalhost(address));
            }
            (Some(url), None) => Kind::Proxy { port, url },
            (None, None) => Kind::ThisMachine { port },
        }))
    }
}

/// The address of the pages for browsers of other machines, such as `https://runs.example:8443`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    /// The name and, unless it is 443, the port.
    pub(crate) host: String,
}

impl FromStr for PublicUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected an address such as https://runs.example:8443";
        let host = text.strip_prefix("https://").ok_or(expected)?;
        let host = host.strip_suffix('/').unwrap_or(host).to_lowercase();
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
            _ => (&*host, None),
        };
        let name = canonical(name).ok_or(expected)?;
        // A browser leaves this port out of the header `Host`.
        let host = match port.map(str::parse::<u16>) {
            None | Some(Ok(443)) => name,
            Some(Ok(port)) if port > 0 => format!("{name}:{port}"),
            Some(_) => return Err(expected.into()),
        };
        Ok(Self { host })
    }
}

/// Returns the name of a host as a browser sends it.
fn canonical(name: &str) -> Option<String> {
    if let Some(address) = name.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        let address: Ipv6Addr = address.parse().ok()?;
        return Some(format!("[{address}]"));
    }
    let is_part = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    // A browser takes a name that ends with a number for an address, also a short form such as 127.1.
    let is_number = |part: &str| part.starts_with(|c: char| c.is_ascii_digit());
    let is_address = name.rsplit('.').next().is_some_and(is_number);
    let is_right = match is_address {
        true => name.parse::<Ipv4Addr>().is_ok(),
        false => name.split('.').all(is_part),
    };
    is_right.then(|| name.to_owned())
}

/// The certificate that encrypts the connections of browsers, and the password that they log in with.
#[derive(Clone)]
pub struct Encryption {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) password: Password,
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption").finish_non_exhaustive()
    }
}

impl Encryption {
    /// Reads the certificates of the server, its key, and the password. The first two are PEM; only this user may read the last two, which may be pipes.
    /// The line break at the end of the password doesn't count.
    ///
    /// # Errors
    ///
    /// [`ViewError::File`] if a file can't be read or has wrong contents, if others may read the key or the password, or if the password has less than
    /// 12 bytes.
    pub fn read(certificates: &Path, key: &Path, password: &Path) -> Result<Self, ViewError> {
        let wrong =
            |path: &Path, why: &dyn fmt::Display| ViewError::File(path.to_owned(), why.to_string());
        let pem = read(certificates, Readers::Any).map_err(|e| wrong(certificates, &e))?;
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<_, _>>()
            .map_err(|e| wrong(certificates, &e))?;
        if chain.is_empty() {
            return Err(wrong(certificates, &"it has no PEM certificate"));
        }
        let pem = read(key, Readers::OnlyThisUser).map_err(|e| wrong(key, &e))?;
        let secret = PrivateKeyDer::from_pem_slice(&pem).map_err(|e| wrong(key, &e))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map(|it| it.with_no_client_auth())
            .and_then(|it| it.with_single_cert(chain, secret))
            .map_err(|e| wrong(key, &e))?;
        let text = read(password, Readers::OnlyThisUser).map_err(|e| wrong(password, &e))?;
        let text = text.strip_suffix(b"\n").unwrap_or(&text);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if text.len() < MIN_PASSWORD {
            let why = format!("a password has at least {MIN_PASSWORD} bytes");
            return Err(wrong(password, &why));
        }
        Ok(Self {
            config: Arc::new(config),
            password: Password(text.into()),
        })
    }
}

/// A password that begins sessions.
#[derive(Clone)]
pub(crate) struct Password(Arc<[u8]>);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password")
    }
}

impl Password {
    #[cfg(test)]
    pub(crate) fn new(text: &str) -> Self {
        Self(text.as_bytes().into())
    }

    /// Compares both in a time that depends only on their lengths.
    pub(crate) fn is(&self, given: &str) -> bool {
        self.0.ct_eq(given.as_bytes()).into()
    }
}

/// The users who may be able to read a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readers {
    Any,
    OnlyThisUser,
}

fn read(path: &Path, readers: Readers) -> io::Result<Vec<u8>> {
    // A directory has no bytes, and a device perhaps no end. A secret may come through a pipe, so that no agent finds it in a file.
    let kind = std::fs::metadata(path)?.file_type();
    if !kind.is_file() && (readers == Readers::Any || !kind.is_fifo()) {
        return Err(io::Error::other("it is not a file"));
    }
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if readers == Readers::OnlyThisUser && metadata.mode() & 0o077 != 0 {
        let fix = format!(
            "other users may read it; to change that: chmod 600 {}",
            path.display()
        );
        return Err(io::Error::other(fix));
    }
    if metadata.len() > MAX_FILE {
        return Err(io::Error::other("it has more than 1 MB"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_address_has_a_name_and_perhaps_a_port() {
        for (text, host) in [
            ("https://Runs.example", "runs.example"),
            ("https://runs.example/", "runs.example"),
            ("https://runs.example:443", "runs.example"),
            ("https://runs.example:8443", "runs.example:8443"),
            ("https://192.0.2.1:8443", "192.0.2.1:8443"),
            ("https://[2001:db8::1]", "[2001:db8::1]"),
            ("https://[2001:db8::1]:8443", "[2001:db8::1]:8443"),
            ("https://[2001:0DB8:0::1]", "[2001:db8::1]"),
        ] {
            let host = host.to_owned();
            assert_eq!(text.parse(), Ok(PublicUrl { host }), "{text}");
        }
        for text in [
            "",
            "runs.example",
            "http://runs.example",
            "https://",
            "https://:443",
            "https://runs.example/path",
            "https://me@runs.example",
            "https://runs.example:0",
            "https://runs.example:70000",
            "https://runs example",
            "https://[::1",
            "https://a..b",
            "https://127.1",
            "https://127.0.0.0x1",
        ] {
            assert!(text.parse::<PublicUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn v11_other_machines_need_encryption_and_an_address() {
        let url: PublicUrl = "https://runs.example".parse().unwrap();
        for address in ["0.0.0.0:80", "[::]:80", "192.0.2.1:80", "127.0.0.2:80"] {
            let address = address.parse().unwrap();
            for url in [None, Some(url.clone())] {
                let refused = Access::new(address, url, None).unwrap_err();
                assert!(matches!(refused, ViewError::NotLocalhost(_)), "{refused}");
            }
        }
        let here = "127.0.0.1:80".parse().unwrap();
        let kind = |url| Access::new(here, url, None).unwrap().0;
        assert!(matches!(kind(None), Kind::ThisMachine { port: 80 }));
        assert!(matches!(kind(Some(url)), Kind::Proxy { port: 80, .. }));
    }
}
