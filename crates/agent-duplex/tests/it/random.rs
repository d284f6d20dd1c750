//! Any driver, any order of what people do: the promises hold.

use std::time::Duration;

use agent_duplex::scripted::{Call, Gate, Script, ScriptedDriver};
use agent_duplex::{
    Capabilities, ConversationOptions, EndReason, Event, Input, InputState, Queued, SessionChoice,
    ToolOutcome, What,
};
use proptest::prelude::*;

use crate::talk::{Talk, delta, soon, steered};

/// What an agent does, well or badly.
#[derive(Clone, Debug)]
enum Step {
    Message,
    Begin,
    Own,
    Input(usize, InputState),
    Delta,
    Tool,
    ToolDone,
    End,
    Interrupted,
    Background(u32),
    Over,
    Panic,
}

/// What people do.
#[derive(Clone, Debug)]
enum Deed {
    Send,
    Start,
    Interrupt(Queued),
    Read(u8),
    Yield(u8),
    Close,
    Freeze(bool),
    Leftovers,
    Stop,
}

fn any_script() -> impl Strategy<Value = Vec<Step>> {
    let state = prop_oneof![
        Just(InputState::Queued),
        Just(InputState::Taken),
        Just(InputState::Dropped("gone".into())),
    ];
    let step = prop_oneof![
        6 => Just(Step::Message),
        4 => Just(Step::Begin),
        1 => Just(Step::Own),
        4 => (0usize..4, state).prop_map(|(i, state)| Step::Input(i, state)),
        5 => Just(Step::Delta),
        2 => Just(Step::Tool),
        2 => Just(Step::ToolDone),
        6 => Just(Step::End),
        2 => Just(Step::Interrupted),
        2 => (0u32..2).prop_map(Step::Background),
        1 => Just(Step::Over),
        1 => Just(Step::Panic),
    ];
    proptest::collection::vec(step, 0..25)
}

fn any_deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        6 => Just(Deed::Send),
        3 => Just(Deed::Start),
        1 => Just(Deed::Interrupt(Queued::Keep)),
        1 => Just(Deed::Interrupt(Queued::Drop)),
        4 => (1u8..9).prop_map(Deed::Read),
        6 => (1u8..9).prop_map(Deed::Yield),
        1 => Just(Deed::Close),
        1 => any::<bool>().prop_map(Deed::Freeze),
        1 => Just(Deed::Leftovers),
        1 => Just(Deed::Stop),
    ]
}

fn script(steps: Vec<Step>) -> Script {
    let tool = || "t".to_owned();
    steps
        .into_iter()
        .fold(Script::new(), |script, step| match step {
            Step::Message => script.message(),
            Step::Begin => script.begin(),
            Step::Own => script.observe(Event::TurnStarted { inputs: vec![] }),
            Step::Input(i, state) => script.make(move |messages| {
                let state = state.clone();
                let event = messages.get(i).map(|m| Event::Input { id: m.id, state });
                event.map(Into::into).unwrap_or_default()
            }),
            Step::Delta => script.observe(delta("x")),
            Step::Tool => script.observe(Event::ToolStarted {
                id: tool(),
                name: tool(),
                summary: tool(),
            }),
            Step::ToolDone => script.observe(Event::ToolFinished {
                id: tool(),
                outcome: ToolOutcome::Done,
                text: tool(),
            }),
            Step::End => script.end(EndReason::Completed),
            Step::Interrupted => script.interrupted().end(EndReason::Interrupted),
            Step::Background(running) => script.observe(Event::BackgroundTasks(running)),
            Step::Over => script.over(),
            Step::Panic => script.panics(),
        })
}

async fn play(scripts: [Vec<Step>; 2], deeds: Vec<Deed>, steer: bool, backlog: usize) {
    let capabilities = if steer {
        steered()
    } else {
        Capabilities::none()
    };
    let [first, second] = scripts.map(script);
    let driver = ScriptedDriver::new(capabilities).plays(first).plays(second);
    let mut options = ConversationOptions::default();
    options.backlog = backlog;
    let mut talk = Talk::limited(driver, options);
    let mut subscription = talk.conversation.subscribe(100_000);
    let conversation = talk.conversation.clone();
    let mut tasks = Vec::new();
    let mut sent: Vec<String> = Vec::new();
    for deed in deeds {
        let conversation = conversation.clone();
        match deed {
            Deed::Send => {
                let text = sent.len().to_string();
                if let Ok(receipt) = conversation.send(Input::new(text.clone())) {
                    talk.audit.accepted(&receipt);
                    sent.push(text);
                }
            }
            Deed::Start => tasks.push(tokio::spawn(async move {
                let _refused = conversation.start(SessionChoice::Fresh).await;
            })),
            Deed::Interrupt(queued) => {
                let interrupt = conversation.interrupt(queued);
                tasks.push(tokio::spawn(async move {
                    let _refused = interrupt.await;
                }));
            }
            Deed::Read(times) => {
                for _ in 0..times {
                    let next = tokio::time::timeout(Duration::ZERO, talk.read());
                    if !matches!(next.await, Ok(true)) {
                        break;
                    }
                }
            }
            Deed::Yield(times) => {
                for _ in 0..times {
                    tokio::task::yield_now().await;
                }
            }
            Deed::Close => tasks.push(tokio::spawn(async move { conversation.close().await })),
            Deed::Freeze(frozen) => tasks.push(tokio::spawn(async move {
                let _refused = conversation.freeze(frozen).await;
            })),
            Deed::Leftovers => tasks.push(tokio::spawn(async move {
                conversation.leftovers().await;
            })),
            Deed::Stop => tasks.push(tokio::spawn(async move {
                conversation.stop(Duration::ZERO).await;
            })),
        }
    }
    soon(conversation.stop(Duration::ZERO)).await;
    talk.read_all().await;
    for task in tasks {
        soon(task).await.expect("no task panics");
    }
    let mut along = Vec::new();
    while let Some(published) = soon(subscription.next()).await {
        along.push(published.expect("it had room").what);
    }
    assert_eq!(along, talk.read);
    // Nothing is lost or doubled: an input was dropped, waits, or was handed on, and only what an agent never took was handed on again.
    let pending = conversation.pending();
    assert_eq!(pending.len(), talk.audit.pending());
    let messages = talk.driver.messages();
    let handed: Vec<&str> = messages.iter().flat_map(|m| m.split("\n\n")).collect();
    let dropped = talk.read.iter().filter(|what| is_dropped(what)).count();
    for text in &sent {
        let waits = pending.iter().any(|input| input.text == *text);
        let times = handed.iter().filter(|handed| *handed == text).count();
        let connections = talk.driver.calls();
        let connections = connections
            .iter()
            .filter(|call| matches!(call, Call::Connected(_)));
        assert!(times <= connections.count());
        assert!(waits || times > 0 || dropped > 0, "{text} is lost");
    }
    assert_eq!(
        talk.driver
            .calls()
            .iter()
            .filter(|c| matches!(c, Call::Connected(_)))
            .count()
            .min(2),
        talk.driver
            .calls()
            .iter()
            .filter(|c| **c == Call::Dropped)
            .count()
    );
}

fn is_dropped(what: &What) -> bool {
    let What::Observed(seen) = what else {
        return false;
    };
    seen.events.iter().any(|event| {
        let state = InputState::Dropped("the turn was interrupted".into());
        matches!(event, Event::Input { state: s, .. } if *s == state)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn l81_l93_any_agent_and_any_order_of_deeds_keep_the_promises(
        first in any_script(),
        second in any_script(),
        deeds in proptest::collection::vec(any_deed(), 0..40),
        steer: bool,
        backlog in 1usize..30,
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(play([first, second], deeds, steer, backlog));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn l93_sends_that_race_with_starts_and_stops_neither_hang_nor_get_lost() {
    for round in 0..1000 {
        let script = Script::new().message().begin().end(EndReason::Completed);
        let driver = ScriptedDriver::new(steered()).plays(script.message());
        let talk = Talk::with(driver);
        let gate = Gate::new();
        let racer = |deed: u8| {
            let (conversation, gate) = (talk.conversation.clone(), gate.clone());
            tokio::spawn(async move {
                gate.opened().await;
                let mut accepted = 0;
                match deed {
                    0 => drop(conversation.start(SessionChoice::Fresh).await),
                    1 => drop(conversation.stop(Duration::ZERO).await),
                    _ => {
                        for i in 0..5 {
                            let input = Input::new(format!("{round}.{deed}.{i}"));
                            accepted += usize::from(conversation.send(input).is_ok());
                        }
                    }
                }
                accepted
            })
        };
        let racers: Vec<_> = (0..4).map(racer).collect();
        gate.open();
        let mut accepted = 0;
        for racer in racers {
            accepted += soon(racer).await.unwrap();
        }
        let mut talk = talk;
        let mut assigned = 0;
        while let Some(published) = soon(talk.primary.next()).await {
            if let What::Assigned(assignment) = published.what {
                assigned += assignment.inputs.len();
            }
        }
        assert_eq!(assigned + talk.conversation.pending().len(), accepted);
    }
}
