//! Runs one case again, from its printed name.

use crate::reference::BrokenPromise;
use crate::session::catching_panics;
use crate::{fault, fleet, machine, race, replica, sim};

/// Runs `layer=case`.
///
/// # Errors
/// If it breaks a promise, with the observation; or if there is no such case.
pub fn replay(text: &str) -> Result<(), String> {
    let (layer, case) = text
        .split_once('=')
        .ok_or("a case has the form `layer=case`")?;
    let told = |broken: BrokenPromise| format!("{}: {}", broken.invariant, broken.what);
    match layer {
        "sim" => sim::replay(&case.parse()?).map_err(|found| told(found.broken)),
        "race" => {
            let case = case.parse()?;
            catching_panics(|| race::replay(&case))
                .map(drop)
                .map_err(told)
        }
        "replica" => replica::replay(&case.parse()?).map_err(told),
        "fleet" => fleet::replay(case.parse()?).map_err(told),
        "machine" => machine::replay(case),
        "fault" => fault::replay(&case.parse()?),
        layer => Err(format!("the layer `{layer}` has no cases")),
    }
}
