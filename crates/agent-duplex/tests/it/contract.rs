//! The contract for drivers, against agents that keep it and agents that break it.

use std::time::Duration;

use agent_duplex::contract::{Cell, Deed, Scenario, Stage, play};
use agent_duplex::scripted::{Script, ScriptedDriver};
use agent_duplex::{Capabilities, Capability, Driver, EndReason, Event};

struct Played {
    driver: ScriptedDriver,
}

impl Stage for Played {
    fn driver(&self) -> Box<dyn Driver> {
        Box::new(self.driver.clone())
    }

    fn words(&self, deed: &Deed) -> Result<String, String> {
        match deed {
            Deed::Say(word) => Ok(word.clone()),
            deed => Ok(format!("{deed:?}")),
        }
    }

    fn kill(&self, _pid: u32) -> Result<(), String> {
        Err("nothing to kill".to_owned())
    }

    fn alive(&self, _tool: &str) -> Option<bool> {
        None
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(20)
    }
}

fn echo(script: Script) -> Script {
    script.message().begin().make(|messages| {
        let text = messages[messages.len() - 1].text.clone();
        Event::Message {
            text,
            partial: false,
        }
        .into()
    })
}

#[tokio::test(start_paused = true)]
async fn a_turn_is_held_by_who_keeps_the_contract() {
    let turn = echo(Script::new().session("s")).end(EndReason::Completed);
    let capabilities = Capabilities::none().with(Capability::Resume);
    let driver = ScriptedDriver::new(capabilities).plays(turn);
    let cell = play(&Played { driver }, Scenario::Turn).await;
    assert_eq!(cell, Cell::Held("answered by a message".to_owned()));
}
