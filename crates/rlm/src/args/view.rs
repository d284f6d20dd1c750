//! The arguments of `rlm view`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};

#[derive(Debug, ClapArgs)]
#[command(
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true,
    after_help = "\
The page shows the runs of all projects, live, and answers their questions. It listens on this machine only, and shows nothing without a login: \
the link works once, for five minutes. While a page is open, the runs wait for your answers, as in a terminal. Ctrl-C ends the page, and no run.

From another machine: ssh -L PORT:127.0.0.1:PORT HOST, with --listen PORT here. Or encrypted, with a certificate and a password: --listen \
ADDRESS:PORT --public-url URL --tls-cert FILE --tls-key FILE --password-file FILE. Or behind a reverse proxy on this machine: --listen PORT \
--public-url URL.

Examples:
  rlm view                 # opens the page in the browser
  rlm view --read-only     # a page that can't change anything
  rlm view pair            # a link for another browser
  rlm view revoke          # logs all browsers out"
)]
pub(crate) struct ViewArgs {
    #[command(subcommand)]
    pub(crate) what: Option<ViewCommand>,
    /// Listen on this port of 127.0.0.1 and ::1 [default: any free port]; another address needs --tls-cert
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,
    /// The address of the page for browsers of other machines
    #[arg(long, value_name = "https://NAME[:PORT]")]
    pub(crate) public_url: Option<String>,
    /// Encrypt with this certificate (PEM, with the certificates between it and the root)
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "password_file", "public_url"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// A file with the password that browsers log in with
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) password_file: Option<PathBuf>,
    /// Allow only reading, in every browser
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Print the link; don't open a browser
    #[arg(long)]
    pub(crate) no_open: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ViewCommand {
    /// Print a link that logs in another browser
    #[command(after_help = "\
The link works once, for five minutes. On a terminal, a page with --public-url also gets a QR code for a phone.

Examples:
  rlm view pair
  rlm view pair --read-only    # that browser can change nothing")]
    Pair {
        /// The browser may only read
        #[arg(long)]
        read_only: bool,
    },
    /// Log all browsers out
    #[command(after_help = "\
Examples:
  rlm view revoke      # `rlm view pair` prints a new link")]
    Revoke,
}

/// Parses `PORT`, `ADDRESS` or `ADDRESS:PORT`.
fn address(text: &str) -> Result<SocketAddr, String> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let port = text
        .parse()
        .map(|port: u16| SocketAddr::new(loopback, port));
    let ip = text.parse().map(|ip: IpAddr| SocketAddr::new(ip, 0));
    let found = port.ok().or(ip.ok()).or_else(|| text.parse().ok());
    found.ok_or_else(|| "expected a port, or an address such as 127.0.0.1:8080".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_a_port_or_an_address_or_both() {
        for (text, parsed) in [
            ("8080", "127.0.0.1:8080"),
            ("0.0.0.0", "0.0.0.0:0"),
            ("127.0.0.2:80", "127.0.0.2:80"),
            ("[::1]:80", "[::1]:80"),
            ("::1", "[::1]:0"),
        ] {
            assert_eq!(address(text), Ok(parsed.parse().unwrap()), "{text}");
        }
        for text in ["", "example.com", "localhost:80", "70000"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
