//! `rlm fleet export` and `import`: a run leaves the fleet, continues on this machine without a server, and returns.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rlm_fleet::nats::{Fleet, ReturnedRun};
use rlm_store::{Project, WorkingTreeLock};
use rlm_text::escape::plain;

use super::control::copy_transcripts;
use super::server::{address, on_fleet};
use super::submit::code;
use super::worker::{check_out, replicated};
use crate::args::{FleetExportArgs, FleetImportArgs};
use crate::command::live;
use crate::exit::{Code, Failure};
use crate::session::Session;
use crate::{hint, output};

/// Returns the name of this machine, for people.
fn machine() -> String {
    plain(&rustix::system::uname().nodename().to_string_lossy())
}

pub(super) fn export(directory: &Path, args: &FleetExportArgs) -> Result<ExitCode, Failure> {
    live::refuse_own_agent(&args.run)?;
    let name = args.run.clone();
    let place = directory.join({ args.to.clone() }.unwrap_or_else(|| PathBuf::from(name.as_str())));
    if place.exists() {
        let place = place.display();
        return Err(Failure::usage(format!(
            "`{place}` exists already: choose another directory, or remove it"
        )));
    }
    let session = Session::begin(true, false)?;
    let exported = on_fleet(&args.server, &session, async |fleet| {
        fleet.export(&args.run, &machine()).await
    })?;
    // Git runs in another directory.
    let absolute = std::path::absolute(&place);
    let absolute = absolute.map_err(|e| Failure::usage(format!("`{}`: {e}", place.display())))?;
    let run_dir = session.prepare(move || {
        let place = absolute;
        let project = check_out(&place, &name, exported.parts.code.as_ref())?;
        project.unpack_exported(&name, exported.epoch, replicated(exported.parts))?;
        Ok(project.run_dir(&name))
    })?;
    // The run is here without them, too.
    let copied = session.block_on(async {
        let fleet = Fleet::connect(&address(&args.server), session.gate()).await?;
        copy_transcripts(&fleet, &args.run, run_dir).await
    });
    if let Err(failure) = copied {
        anstream::eprintln!(
            "the transcripts of the run stay in the fleet: {}",
            failure.message
        );
    }
    let (run, rlm, shown) = (&args.run, hint::program_command(), place.display());
    let place = hint::quoted(&shown.to_string());
    output::line(&format!(
        "run {run} is in {shown}, and no worker takes it until it returns\n  continue  {rlm} -C {place} resume {run}\n  return    {rlm} -C {place} fleet import {run}"
    ));
    Ok(Code::Done.into())
}

pub(super) fn import(directory: &Path, args: &FleetImportArgs) -> Result<ExitCode, Failure> {
    live::refuse_own_agent(&args.run)?;
    let session = Session::begin(true, false)?;
    let (directory, run) = (directory.to_owned(), args.run.clone());
    let project = session.prepare(move || Ok(Project::find(&directory)?))?;
    let lock = session.block_on(WorkingTreeLock::take(&project, &run, &session.gate()))?;
    let head = project.run(&run)?.head.map_err(Failure::failed)?;
    if head.exported == 0 {
        return Err(Failure::usage(format!(
            "run `{run}` did not come from a fleet: rlm fleet run submits a new run"
        )));
    }
    // An unreachable server, or another state of the run there, changes nothing here.
    on_fleet(&args.server, &session, async |fleet| {
        fleet.expects(&run, head.exported).await
    })?;
    let from = (project.clone(), run.clone());
    let (base, code) = session.prepare(move || {
        let (project, run) = from;
        let code = code(&project)?;
        Ok((project.pack_state(&run, Vec::new())?, code))
    })?;
    // First here: if this process dies before the next step, the run continues nowhere until the import is repeated.
    let from = (project.clone(), run.clone());
    session.prepare(move || Ok(from.0.mark_returned(&from.1)?))?;
    let returned = ReturnedRun {
        head: &head,
        epoch: head.exported,
        base,
        code: Some(code),
    };
    on_fleet(&args.server, &session, async |fleet| {
        fleet.import(&run, returned).await
    })?;
    drop(lock);
    let rlm = hint::program_command();
    output::line(&format!(
        "run {run} is in the fleet again\n  wait     {rlm} fleet wait {run}"
    ));
    Ok(Code::Done.into())
}
