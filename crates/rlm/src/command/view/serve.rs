//! Starts the server, and opens its page. If a server of this user runs already, opens a page of that server.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use rlm_store::{index, state_dir};
use rlm_view::{Role, RunningView, ViewError, ViewServer};

use super::program::ThisProgram;
use crate::args::{ViewArgs, ViewCommand};
use crate::exit::{Code, Failure};
use crate::hint::program_command;
use crate::output;
use crate::session::Session;

pub(super) fn execute(args: &ViewArgs) -> Result<ExitCode, Failure> {
    let directory = index::private_directory("view").map_err(|e| {
        Failure::failed(format!("there is no place for the socket of the page: {e}"))
    })?;
    match &args.what {
        Some(ViewCommand::Pair { read_only }) => {
            output::line(
                &running(&directory)?
                    .link(role(*read_only))
                    .map_err(refused)?,
            );
        }
        Some(ViewCommand::Revoke) => {
            let sessions = running(&directory)?.revoke().map_err(refused)?;
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
        Failure::not_found(format!("no page is served; to start it: {rlm} view"))
    })
}

fn refused(error: std::io::Error) -> Failure {
    Failure::failed(format!("the server of the page gave no link: {error}"))
}

fn serve(args: &ViewArgs, directory: &Path) -> Result<ExitCode, Failure> {
    let session = Session::begin(true, false)?;
    let address = args.listen;
    let address = address.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let role = role(args.read_only);
    let bound = session.block_on(ViewServer::bind(
        address,
        directory,
        role,
        Arc::new(ThisProgram),
    ));
    let server = match bound {
        Ok(server) => server,
        Err(ViewError::Running) => {
            anstream::eprintln!("the page is served by another process already");
            let link = running(directory)?.link(role).map_err(refused)?;
            show(args, directory, &link);
            return Ok(Code::Done.into());
        }
        Err(e @ ViewError::NotLoopback(_)) => return Err(Failure::usage(e.to_string())),
        Err(e) => return Err(Failure::failed(e.to_string())),
    };
    let link = server.logins().link(role).map_err(refused)?;
    show(args, directory, &link);
    anstream::eprintln!("Ctrl-C ends the page; the runs continue");
    session.block_on(server.serve());
    Ok(Code::Done.into())
}

/// Opens the link in a browser, or prints it.
fn show(args: &ViewArgs, directory: &Path, link: &str) {
    let opened = !args.no_open && open(directory, link).is_ok_and(|opened| opened);
    match opened {
        true => anstream::eprintln!(
            "the page opens in your browser; to see its link: {} view pair",
            program_command()
        ),
        false => {
            anstream::eprintln!("open this link; it works once, for five minutes:");
            output::line(link);
        }
    }
}

/// Opens the link in a browser, through a private file: other users can see the arguments of a process.
fn open(directory: &Path, link: &str) -> std::io::Result<bool> {
    let Some(opener) = opener() else {
        return Ok(false);
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
    Ok(command.stderr(Stdio::null()).status()?.success())
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
