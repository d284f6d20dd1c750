//! Each input of the agent machine in each state.

use loop_state::{AgentInput, AgentState};

const STATES: [AgentState; 8] = [
    AgentState::None,
    AgentState::Starting,
    AgentState::Idle,
    AgentState::InTurn,
    AgentState::Interrupting,
    AgentState::Closing,
    AgentState::Ending,
    AgentState::Gone,
];

const INPUTS: [AgentInput; 11] = [
    AgentInput::Start,
    AgentInput::Started,
    AgentInput::NotStarted,
    AgentInput::TurnBegan,
    AgentInput::TurnEnded,
    AgentInput::Interrupt,
    AgentInput::Close,
    AgentInput::Closed,
    AgentInput::End,
    AgentInput::Exited,
    AgentInput::TreeGone,
];

/// Lists each input that changes a state or needs an effect. In all other states the input changes nothing.
#[test]
fn each_input_in_each_state_has_this_result() {
    let mut lines = Vec::new();
    for state in STATES {
        for input in INPUTS {
            let mut after = state;
            let effect = after.step(input);
            if after != state || effect.is_some() {
                let needs = effect.map_or_else(String::new, |effect| format!(", {effect:?}"));
                lines.push(format!("{state:?} + {input:?} -> {after:?}{needs}"));
            }
        }
    }
    insta::assert_snapshot!(lines.join("\n"), @r"
    None + Start -> Starting, Start
    None + End -> Ending, End
    Starting + Started -> Idle
    Starting + NotStarted -> None
    Starting + End -> Ending, End
    Starting + Exited -> None
    Idle + TurnBegan -> InTurn
    Idle + Close -> Closing, Close
    Idle + End -> Ending, End
    Idle + Exited -> None
    InTurn + TurnEnded -> Idle
    InTurn + Interrupt -> Interrupting, Interrupt
    InTurn + End -> Ending, End
    InTurn + Exited -> None
    Interrupting + TurnEnded -> Idle
    Interrupting + Interrupt -> Interrupting, Interrupt
    Interrupting + End -> Ending, End
    Interrupting + Exited -> None
    Closing + Closed -> None
    Closing + End -> Ending, End
    Ending + TreeGone -> Gone
    Gone + Start -> Starting, Start
    ");
}

#[test]
fn two_states_have_no_process_and_two_are_ended() {
    let alive = STATES.map(|state| (!state.is_alive()).then_some(state));
    let without: Vec<_> = alive.into_iter().flatten().collect();
    assert_eq!(without, [AgentState::None, AgentState::Gone]);
    let ended: Vec<_> = { STATES.into_iter() }
        .filter(|it| it.is_ending_or_gone())
        .collect();
    assert_eq!(ended, [AgentState::Ending, AgentState::Gone]);
}
