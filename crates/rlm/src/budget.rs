//! Refuses a budget that an agent does not report on.

use rlm_store::Settings;

use crate::agents;
use crate::exit::Failure;

/// Refuses a budget that an agent does not report on, before anything is made.
pub(crate) fn refuse_unreported(settings: &Settings) -> Result<(), Failure> {
    for phase in &settings.phases {
        let (cost, tokens) = phase.agent.reports();
        let name = agents::name(&phase.agent);
        let refuse = |option: &str, what: &str, mend: &str| {
            Err(Failure::usage(format!(
                "{option} can't be kept: {name} does not say {what}; {mend}"
            )))
        };
        let bounds = "bound the run by -n, --max-duration or --iteration-timeout instead";
        if settings.max_cost_microusd.is_some() && !cost {
            let mend = match tokens {
                true => "it counts tokens: use --max-tokens N",
                false => bounds,
            };
            return refuse("--max-cost", "what it costs", mend);
        }
        if settings.max_tokens.is_some() && !tokens {
            return refuse("--max-tokens", "how many tokens it uses", bounds);
        }
    }
    Ok(())
}
