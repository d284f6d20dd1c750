//! `rlm fleet budget`: the limit of the cost of all runs of a fleet together.

use std::process::ExitCode;

use rlm_fleet::BudgetState;
use rlm_fleet::nats::{Budget, BudgetPeriod};
use rlm_text::money;
use serde_json::json;

use super::server::on_fleet;
use crate::args::{FleetBudgetArgs, FleetBudgetCommand};
use crate::exit::{Code, Failure};
use crate::session::Session;
use crate::{hint, output};

pub(crate) fn execute(args: FleetBudgetArgs) -> Result<ExitCode, Failure> {
    let session = Session::begin(true, false)?;
    let (budget, state, json) = match args.what {
        FleetBudgetCommand::Set(args) => {
            let per: BudgetPeriod =
                { args.per.parse() }.map_err(|e| Failure::usage(format!("--per: {e}")))?;
            let limit = args.limit.0;
            let (budget, state) = on_fleet(&args.server, &session, async |fleet| {
                fleet.set_budget(Budget { limit, per }).await?;
                fleet.budget().await
            })?;
            (budget, state, false)
        }
        FleetBudgetCommand::Show(args) => {
            let (budget, state) =
                on_fleet(&args.server, &session, async |fleet| fleet.budget().await)?;
            (budget, state, args.json)
        }
    };
    output::line(&match json {
        true => in_json(&budget, &state),
        false => in_words(&budget, &state),
    });
    Ok(Code::Done.into())
}

/// Returns the budget in a sentence, for example `12.00 of 500.00 USD spent today (UTC)`.
pub(super) fn in_words(budget: &Budget, state: &BudgetState) -> String {
    let spent = money::dollars(state.spent);
    let when = match budget.per {
        BudgetPeriod::Day => "today (UTC)",
        BudgetPeriod::Total => "in total",
    };
    match budget.limit {
        Some(limit) => {
            let waits = match state.is_spent() {
                true => {
                    let rlm = hint::program_command();
                    format!(
                        "; all runs wait; to raise it: {rlm} fleet budget set MORE --per {}",
                        budget.per
                    )
                }
                false => String::new(),
            };
            format!("{spent} of {} spent {when}{waits}", money::dollars(limit))
        }
        None => format!("no budget; {spent} spent {when}"),
    }
}

fn in_json(budget: &Budget, state: &BudgetState) -> String {
    let usd = |micro: u64| micro as f64 / 1e6;
    json!({
        "limit_usd": budget.limit.map(usd),
        "per": budget.per,
        "spent_usd": usd(state.spent),
        "is_spent": state.is_spent(),
    })
    .to_string()
}
