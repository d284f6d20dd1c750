//! Starts the server, and opens its page. If a server of this user runs already, opens a page of that server.

use std::io::{IsTerminal as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use loop_runner::control::agent_of_this_process;
use qrcode::render::unicode::Dense1x2;
use qrcode::{EcLevel, QrCode};
use rlm_store::{index, state_dir};
use rlm_view::{Access, Encryption, Role, RunningView, ViewError, ViewServer};

use super::program::ThisProgram;
use crate::args::{ViewArgs, ViewCommand};
use crate::exit::{Code, Failure};
use crate::hint::program_command;
use crate::output;
use crate::session::Session;

/// The time for which the file with the link exists.
const FILE_LIFE: Duration = Duration::from_secs(30);

pub(super) fn execute(args: &ViewArgs) -> Result<ExitCode, Failure> {
    let directory = index::private_directory("view").map_err(|e| {
        Failure::failed(format!(
            "can't create the directory for the page's socket: {e}"
        ))
    })?;
    match &args.what {
        Some(ViewCommand::Pair { read_only }) => {
            let link = running(&directory)?.link(role(*read_only));
            let link = link.map_err(unanswered)?;
            output::line(&link);
            show_to_phone(&link);
        }
        Some(ViewCommand::Revoke) => {
            let sessions = running(&directory)?.revoke().map_err(unanswered)?;
            let browsers = rlm_text::count(sessions, "browser", "browsers");
            output::line(&format!("logged out: {browsers}"));
        }
        None => return serve(args, &directory),
    }
    Ok(Code::Done.into())
}

fn role(read_only: bool) -> Role {
    match read_only {
        true => Role::Viewer,
        false => Role::Operator,
    }
}

fn running(directory: &Path) -> Result<RunningView, Failure> {
    RunningView::find(directory).ok_or_else(|| {
        let rlm = program_command();
        Failure::not_found(format!("rlm view isn't running; to start it: {rlm} view"))
    })
}

fn unanswered(error: std::io::Error) -> Failure {
    Failure::failed(format!(
        "the running rlm view refuses, or doesn't respond: {error}"
    ))
}

fn serve(args: &ViewArgs, directory: &Path) -> Result<ExitCode, Failure> {
    if let Some(why) = agent_of_this_process() {
        return Err(Failure::usage(format!(
            "rlm view controls all runs, and this command may not: {why}; use another terminal"
        )));
    }
    let session = Session::begin(true, false)?;
    let access = access(args)?;
    let role = role(args.read_only);
    let bound = session.block_on(ViewServer::bind(
        access,
        directory,
        role,
        Arc::new(ThisProgram),
    ));
    let server = match bound {
        Ok(server) => server,
        Err(ViewError::Running) => {
            anstream::eprintln!("rlm view already runs; its own options apply");
            let link = running(directory)?.link(role).map_err(unanswered)?;
            show(args, directory, &link);
            return Ok(Code::Done.into());
        }
        Err(e) => return Err(Failure::failed(e.to_string())),
    };
    let link = server.logins().link(role).map_err(unanswered)?;
    show(args, directory, &link);
    if args.public_url.is_some()
        && let Ok(address) = server.address()
    {
        anstream::eprintln!("listening on {address}");
    }
    anstream::eprintln!(
        "Ctrl-C ends the page; the runs continue, and nobody answers their questions then"
    );
    session.block_on(server.serve());
    Ok(Code::Done.into())
}

/// Returns how browsers reach the page.
fn access(args: &ViewArgs) -> Result<Access, Failure> {
    let address = args.listen;
    let address = address.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let url = args.public_url.as_deref().map(str::parse).transpose();
    let url = url.map_err(|e: String| Failure::usage(format!("--public-url: {e}")))?;
    let files = (&args.tls_cert, &args.tls_key, &args.password_file);
    let encryption = match files {
        (Some(certificate), Some(key), Some(password)) => {
            Some(Encryption::read(certificate, key, password))
        }
        _ => None,
    };
    let access = encryption
        .transpose()
        .and_then(|it| Access::new(address, url, it));
    access.map_err(|e| Failure::usage(e.to_string()))
}

/// Shows a link as a QR code, if standard error is a terminal and a phone can reach the page.
fn show_to_phone(link: &str) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    if !link.starts_with("https://") {
        let rlm = program_command();
        anstream::eprintln!("a phone can't reach this page; see: {rlm} view --help");
        return;
    }
    // A link is shorter than the largest code. The smallest code fits a terminal of 24 lines.
    if let Ok(code) = QrCode::with_error_correction_level(link, EcLevel::L) {
        let mut image = code.render::<Dense1x2>();
        // Light on dark, as a terminal is. The border is a part of the code.
        image
            .dark_color(Dense1x2::Light)
            .light_color(Dense1x2::Dark);
        anstream::eprintln!("{}", image.build());
    }
}

/// Prints the link, and opens it in a browser.
fn show(args: &ViewArgs, directory: &Path, link: &str) {
    anstream::eprintln!("this link works once, for five minutes:");
    output::line(link);
    if !args.no_open {
        // Without a browser, the person opens the link.
        let _opened = open(directory, link);
    }
}

/// Opens the link in a browser, through a private file: other users can see the arguments of a process. Doesn't wait for the browser.
fn open(directory: &Path, link: &str) -> std::io::Result<()> {
    let Some(opener) = opener() else {
        return Ok(());
    };
    let file = directory.join("open.html");
    let page = format!(
        "<!doctype html><meta charset=utf-8><title>rlm</title><meta http-equiv=refresh content=\"0;url={link}\"><a href=\"{link}\">Open the page</a>\n"
    );
    match state_dir::remove_file(&file) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    state_dir::create_new(&file)?.write_all(page.as_bytes())?;
    let mut command = Command::new(opener);
    command.arg(&file);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // Ctrl-C in this terminal must not end the browser.
    let mut opener = command.stderr(Stdio::null()).process_group(0).spawn()?;
    std::thread::spawn(move || {
        // Some openers return at once, and some only when the browser ends.
        let _ended = opener.wait();
    });
    std::thread::spawn(move || {
        std::thread::park_timeout(FILE_LIFE);
        let _gone = state_dir::remove_file(&file);
    });
    Ok(())
}

/// Returns the command that opens a file for the user; `None` without a desktop.
fn opener() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).is_some_and(|it| !it.is_empty());
    let name = match cfg!(target_os = "macos") {
        true => "open",
        false if set("DISPLAY") || set("WAYLAND_DISPLAY") => "xdg-open",
        false => return None,
    };
    which::which(name).ok()
}
