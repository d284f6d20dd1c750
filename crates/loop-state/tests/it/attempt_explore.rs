//! Explores all histories of small attempts: at most two turns after the first, one background task, one permission request, two presses, and times
//! before, at and after each deadline. Smaller explorations add tools, a pause at a tool, and a conversation that ends before its process tree.
//! Others have one press and one rare input: a steer, an injected message, a completion promise, a rate limit, a suspend, the end of the process
//! tree. After each step, all invariants are checked. A second test shows that a sabotaged machine breaks them. Each state must be able to lead to a
//! report.

use std::hash::BuildHasher as _;
use std::time::{Duration, Instant};

use foldhash::HashMap;
use foldhash::fast::FixedState;
use loop_state::{
    AgentState, AgentTurnEnd, AskPolicy, AttemptEffect, AttemptInput, AttemptMachine,
    AttemptOptions, Head, PauseAfter, StepContext, Timestamp, TurnOutcome,
};

use crate::rules;

const BUDGET: Duration = Duration::from_secs(8);
const TASK_TIMEOUT: Duration = Duration::from_secs(600);
const MILLI: Duration = Duration::from_millis(1);

/// The state of the world around the attempt, and what it can still do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    /// The time since the start.
    now: Duration,
    starting: bool,
    process: bool,
    turn: bool,
    silent: bool,
    tree: TreeState,
    closing: bool,
    task: bool,
    ask: bool,
    tool: bool,
    /// Whether the run should pause at a tool.
    pausing: bool,
    turns_left: u8,
    tasks_left: u8,
    asks_left: u8,
    presses_left: u8,
    waits_left: u8,
    tools_left: u8,
    pauses_left: u8,
    /// Whether rare inputs are enabled, and how many are left.
    rare: bool,
    rare_left: u8,
    /// Whether the caller waits only for the end of the process tree.
    awaits_tree: bool,
    /// Whether the run is suspended; then the agent does nothing.
    frozen: bool,
    /// The number of messages without a result.
    messages: u8,
    sending: bool,
    /// Whether the agent has a message that it can still drop.
    taken: bool,
    looking: bool,
    /// Whether the agent made its completion promise in this turn.
    promised: bool,
    /// Whether the conversation can end while the process tree lives.
    may_break: bool,
    /// The number of turns without a report.
    owed: u8,
    prompted: bool,
    /// The deadline of the stop.
    stop_by: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum TreeState {
    Runs,
    Ends { by: Duration },
    Gone,
}

#[derive(Clone)]
struct State {
    machine: AttemptMachine,
    world: World,
}

type Sabotage = fn(&AttemptInput, &mut Vec<AttemptEffect>);

fn first() -> State {
    State {
        machine: AttemptMachine::new(AttemptOptions {
            parses_output: true,
            interruptible: true,
            steerable: true,
            task_timeout: TASK_TIMEOUT,
            asks: AskPolicy::Person,
            terminal: true,
            ..AttemptOptions::default()
        }),
        world: World {
            now: Duration::ZERO,
            starting: true,
            process: false,
            turn: false,
            silent: false,
            tree: TreeState::Runs,
            closing: false,
            task: false,
            ask: false,
            tool: false,
            pausing: false,
            turns_left: 2,
            tasks_left: 1,
            asks_left: 1,
            presses_left: 2,
            waits_left: 2,
            tools_left: 0,
            pauses_left: 0,
            rare: false,
            rare_left: 0,
            awaits_tree: false,
            frozen: false,
            messages: 0,
            sending: false,
            taken: false,
            looking: false,
            promised: false,
            may_break: false,
            owed: 1,
            prompted: false,
            stop_by: None,
        },
    }
}

/// Creates an attempt with tools, a pause at a tool, and a conversation that can end early.
fn first_with_tools() -> State {
    let mut state = first();
    let world = &mut state.world;
    (world.turns_left, world.asks_left) = (1, 0);
    (world.waits_left, world.tools_left, world.pauses_left) = (0, 2, 1);
    world.may_break = true;
    state
}

/// Creates an attempt with one press and one rare input.
fn first_with_rare(change: impl FnOnce(&mut AttemptOptions)) -> State {
    let mut state = first();
    let mut options = state.machine.options().clone();
    options.promise = Some("done".into());
    change(&mut options);
    state.machine = AttemptMachine::new(options);
    let world = &mut state.world;
    (world.turns_left, world.asks_left, world.presses_left) = (1, 0, 1);
    (world.waits_left, world.rare_left, world.rare) = (0, 1, true);
    state
}

fn all_with_rare() -> [State; 3] {
    [
        first_with_rare(|_| {}),
        first_with_rare(|options| options.task_timeout = Duration::ZERO),
        first_with_rare(|options| (options.parses_output, options.steerable) = (false, false)),
    ]
}

/// The length of a suspend.
const FROZEN: Duration = Duration::from_secs(5);

/// Returns the rare inputs that are possible in this world, and those that follow from an earlier rare input.
fn rare(world: &World) -> Vec<AttemptInput> {
    let mut all = Vec::new();
    let may = world.rare_left > 0;
    if world.frozen {
        all.push(AttemptInput::Thawed(FROZEN));
    }
    if may && !world.frozen {
        // A suspend of length zero represents the start of a suspend.
        all.push(AttemptInput::Thawed(Duration::ZERO));
    }
    if may {
        all.push(AttemptInput::Deliver(1));
        if world.tree == TreeState::Runs {
            all.push(AttemptInput::End);
        }
    }
    if world.sending {
        all.push(AttemptInput::Sent {
            steer: 1,
            again: false,
        });
    }
    if world.sending || (world.taken && !world.frozen) {
        all.push(AttemptInput::Dropped(1));
    }
    if world.looking {
        for (fingerprint, stop_requested) in [(None, false), (None, true), (Some(1), false)] {
            all.push(AttemptInput::WorkingTreeExamined {
                fingerprint,
                stop_requested,
            });
        }
    }
    let speaks = world.process && world.turn && !world.silent && !world.frozen;
    if may && speaks {
        all.push(AttemptInput::TurnBegan {
            is_injected: true,
            has_inputs: true,
            steers: vec![1],
        });
        let (text, partial) = ("done".into(), false);
        all.push(AttemptInput::Message { text, partial });
        all.push(AttemptInput::Line(b"done".to_vec()));
        all.push(AttemptInput::Limited(Some(Timestamp::from_millis(1))));
        for how in [
            AgentTurnEnd::RateLimited,
            AgentTurnEnd::SessionNotFound,
            AgentTurnEnd::NotLoggedIn,
        ] {
            all.push(turn_ended(how, false, false));
        }
    }
    all
}

/// Updates the world for a rare input.
fn update_world_rarely(world: &mut World, understands: bool, input: &AttemptInput) {
    let is_rare = match input {
        AttemptInput::Thawed(Duration::ZERO) => {
            world.frozen = true;
            true
        }
        AttemptInput::Thawed(frozen) => {
            world.frozen = false;
            world.stop_by = world.stop_by.map(|by| by + *frozen);
            false
        }
        AttemptInput::Deliver(_) => {
            world.messages += 1;
            true
        }
        AttemptInput::Sent { .. } => {
            (world.sending, world.taken) = (false, true);
            false
        }
        AttemptInput::Dropped(_) => {
            // A steer that was accepted got its result when it was sent.
            world.messages += u8::from(!world.sending);
            (world.sending, world.taken) = (false, false);
            false
        }
        AttemptInput::TurnBegan {
            is_injected: injected,
            ..
        } => {
            world.promised &= *injected;
            world.taken = false;
            *injected
        }
        AttemptInput::Message { .. } => {
            world.promised = true;
            true
        }
        AttemptInput::Line(_) => {
            world.promised |= !understands;
            true
        }
        AttemptInput::End => {
            world.awaits_tree = true;
            true
        }
        AttemptInput::Limited(_) => true,
        AttemptInput::TurnEnded { how, .. } => matches!(
            how,
            AgentTurnEnd::RateLimited | AgentTurnEnd::SessionNotFound | AgentTurnEnd::NotLoggedIn
        ),
        _ => false,
    };
    world.rare_left -= u8::from(is_rare);
}

fn turn_ended(how: AgentTurnEnd, pending: bool, exited: bool) -> AttemptInput {
    let (detail, why) = (String::new(), "why".into());
    AttemptInput::TurnEnded {
        how,
        detail,
        why,
        pending,
        exited,
    }
}

/// Returns the inputs that are possible in this world.
fn inputs(state: &State, epoch: Instant) -> Vec<(Duration, AttemptInput)> {
    let (world, machine) = (&state.world, &state.machine);
    let mut all = Vec::new();
    let later = |input: &AttemptInput| match input {
        AttemptInput::Thawed(frozen) => world.now + *frozen,
        _ => world.now,
    };
    all.extend({ rare(world).into_iter() }.map(|input| (later(&input), input)));
    let mut add = |input| all.push((world.now, input));
    if world.starting && world.silent {
        // A conversation that is over starts nothing.
        add(AttemptInput::NotStarted(TurnOutcome::Failed("over".into())));
    } else if world.starting {
        add(AttemptInput::Started);
        add(AttemptInput::NotStarted(TurnOutcome::NotStarted(
            "no".into(),
        )));
    }
    let speaks = world.process && !world.silent && !world.frozen;
    if speaks && !world.turn && world.turns_left > 0 && world.tree != TreeState::Gone {
        for has_inputs in [true, false] {
            add(AttemptInput::TurnBegan {
                is_injected: false,
                has_inputs,
                steers: vec![1],
            });
        }
    }
    if speaks && world.turn {
        add(AttemptInput::Answered);
        for how in [
            AgentTurnEnd::Completed,
            AgentTurnEnd::Interrupted,
            AgentTurnEnd::ProtocolError,
        ] {
            for pending in [false, true] {
                add(turn_ended(how, pending, false));
            }
        }
        if world.asks_left > 0 || world.ask {
            add(match world.ask {
                true => AttemptInput::AskWithdrawn("1".into()),
                false => AttemptInput::Asked("1".into()),
            });
        }
        if world.tool {
            add(AttemptInput::ToolFinished("1".into()));
        } else if world.tools_left > 0 {
            let (id, activity) = ("1".into(), "Bash: make".into());
            add(AttemptInput::ToolStarted { id, activity });
        }
        if world.tasks_left > 0 && !world.task {
            add(AttemptInput::BackgroundTasks(1));
        }
    }
    if speaks && world.task {
        add(AttemptInput::BackgroundTasks(0));
    }
    if speaks {
        add(AttemptInput::Exited);
    }
    if !world.silent && !world.starting {
        add(AttemptInput::EventsProcessed);
    }
    if !world.process && world.turn && !world.silent && !world.starting {
        add(turn_ended(AgentTurnEnd::Died, false, true));
    }
    if world.closing {
        add(AttemptInput::Closed);
    }
    if let TreeState::Ends { .. } = world.tree {
        add(AttemptInput::TreeGone);
    }
    if world.tree == TreeState::Gone && !world.silent {
        if world.turn {
            add(turn_ended(AgentTurnEnd::Interrupted, false, true));
        } else {
            add(AttemptInput::ConversationEnded);
        }
    }
    // Without its process, a conversation starts no turn for a waiting message.
    let is_lost = !world.process && !world.turn && world.owed > 0;
    if (world.may_break || is_lost)
        && !world.silent
        && !world.starting
        && world.tree != TreeState::Gone
    {
        add(AttemptInput::ConversationEnded);
    }
    if world.pauses_left > 0 && world.owed > 0 && world.stop_by.is_none() {
        add(AttemptInput::PauseAt(PauseAfter::Tool));
    }
    if world.presses_left > 0 {
        if world.stop_by.is_none() {
            add(AttemptInput::Interrupt);
            for at_once in [false, true] {
                add(AttemptInput::Stop {
                    skip_interrupt: at_once,
                });
            }
            if (world.owed == 0 || world.closing) && !world.awaits_tree {
                add(AttemptInput::Continue);
            }
        } else {
            let by = epoch + world.now + Duration::from_secs(1);
            add(AttemptInput::Abort { by });
        }
    }
    let deadline = match world.frozen {
        true => machine.deadline_while_suspended(),
        false => machine.deadline(),
    };
    if let Some(at) = deadline {
        let at = at.duration_since(epoch);
        let before = at.saturating_sub(MILLI);
        if world.waits_left > 0 {
            for when in [before, at, at + MILLI] {
                all.push((when.max(world.now), AttemptInput::TimePassed));
            }
        } else {
            all.push((at.max(world.now), AttemptInput::TimePassed));
        }
    }
    all
}

/// Updates the world for an input.
fn update_world(world: &mut World, at: Duration, input: &AttemptInput) {
    world.now = at;
    match input {
        AttemptInput::Started => {
            world.starting = false;
            world.process = true;
            world.turn = world.owed > 0;
        }
        AttemptInput::NotStarted(_) => world.starting = false,
        AttemptInput::TurnBegan {
            is_injected: true, ..
        } => {}
        AttemptInput::TurnBegan { .. } => {
            world.turn = true;
            world.turns_left -= 1;
            // The caller doesn't wait for a turn that begins while the process tree is being ended.
            world.owed = world.owed.max(u8::from(!world.awaits_tree));
        }
        AttemptInput::TurnEnded { .. } => (world.turn, world.tool) = (false, false),
        AttemptInput::ToolStarted { .. } => {
            world.tools_left -= 1;
            world.tool = true;
        }
        AttemptInput::ToolFinished(_) => world.tool = false,
        AttemptInput::Asked(_) | AttemptInput::AskWithdrawn(_) => {
            world.asks_left = 0;
            world.ask = matches!(input, AttemptInput::Asked(_));
        }
        AttemptInput::PauseAt(_) => {
            world.pauses_left -= 1;
            world.pausing = true;
        }
        AttemptInput::BackgroundTasks(tasks) => {
            world.task = *tasks > 0;
            world.tasks_left = 0;
        }
        AttemptInput::Exited => (world.process, world.task) = (false, false),
        AttemptInput::ConversationEnded => {
            world.silent = true;
            (world.process, world.turn, world.tool, world.task) = (false, false, false, false);
        }
        AttemptInput::Closed => (world.closing, world.process) = (false, false),
        AttemptInput::TreeGone => {
            (world.tree, world.awaits_tree) = (TreeState::Gone, false);
            // If the conversation is over, the start still reports its failure.
            world.starting &= world.silent;
            (world.process, world.closing) = (false, false);
        }
        AttemptInput::Interrupt => world.presses_left -= 1,
        AttemptInput::Continue => {
            world.presses_left -= 1;
            world.pausing = false;
            world.owed = world.owed.max(1);
            world.turn = world.process && world.tree == TreeState::Runs && !world.closing;
        }
        AttemptInput::Stop { .. } => {
            world.presses_left -= 1;
            world.stop_by = Some(at + BUDGET);
            // An open session without a turn must also report that it was stopped.
            world.owed = world.owed.max(1);
        }
        AttemptInput::Abort { .. } => {
            world.presses_left -= 1;
            let sooner = at + Duration::from_secs(1);
            world.stop_by = world.stop_by.map(|by| by.min(sooner));
        }
        AttemptInput::TimePassed => world.waits_left = world.waits_left.saturating_sub(1),
        _ => {}
    }
}

fn keeps(is_kept: bool, promise: &'static str) -> Result<(), &'static str> {
    is_kept.then_some(()).ok_or(promise)
}

/// Updates the world for an effect; returns the invariant that the effect breaks.
fn carry_out(
    world: &mut World,
    agent: AgentState,
    effect: &AttemptEffect,
    epoch: Instant,
) -> Result<(), &'static str> {
    match effect {
        AttemptEffect::Report(_) => {
            world.pausing = false;
            if matches!(world.tree, TreeState::Ends { .. }) || world.closing {
                return Err("an outcome waits until the processes have ended");
            }
            if world.stop_by.is_some() && world.tree != TreeState::Gone {
                return Err("a stopped turn is reported after its process tree ended");
            }
            world.owed = { world.owed.checked_sub(1) }.ok_or("a turn is reported once")?;
        }
        AttemptEffect::ReportPrompted => {
            let is_first = !std::mem::replace(&mut world.prompted, true);
            keeps(is_first, "a prompt is answered once")?;
        }
        AttemptEffect::Start { replace, .. } => {
            if world.process || world.starting {
                return Err("an agent is started only if none runs");
            }
            if *replace != (world.tree == TreeState::Gone) {
                return Err("a conversation is replaced only after its end");
            }
            if *replace {
                (world.tree, world.silent) = (TreeState::Runs, false);
                (world.task, world.ask, world.prompted) = (false, false, false);
            }
            (world.starting, world.process, world.tool) = (true, false, false);
        }
        AttemptEffect::Interrupt { .. } => {
            let is_turn = matches!(agent, AgentState::InTurn | AgentState::Interrupting);
            keeps(is_turn, "only a turn is interrupted")?;
        }
        AttemptEffect::Close { .. } => {
            if agent != AgentState::Idle {
                return Err("only an idle agent is closed");
            }
            world.closing = true;
        }
        AttemptEffect::End { by } => {
            if world.tree != TreeState::Runs {
                return Err("a process tree is ended once");
            }
            let by = by.duration_since(epoch);
            if by > world.now + BUDGET || world.stop_by.is_some_and(|stop| by > stop) {
                return Err("a process tree is ended within the budget");
            }
            world.tree = TreeState::Ends { by };
        }
        AttemptEffect::Send { .. } => {
            keeps(world.messages > 0, "only a message is sent")?;
            world.sending = true;
        }
        AttemptEffect::SteerDelivered(_) | AttemptEffect::NextPrompt(_) => {
            let left = world.messages.checked_sub(1);
            world.messages = left.ok_or("a message is answered once")?;
        }
        AttemptEffect::RecordTurnEnd {
            outcome: TurnOutcome::PromiseMade,
            ..
        } => keeps(world.promised, "only a promise of this turn counts")?,
        AttemptEffect::ExamineWorkingTree => world.looking = world.rare,
        AttemptEffect::ReportNoProgress => {
            let is_answer = std::mem::take(&mut world.looking);
            keeps(is_answer, "only an examination finds no progress")?;
        }
        AttemptEffect::CloseWhenIdle => {
            keeps(
                !agent.is_ending_or_gone(),
                "an agent whose process tree is ending is not closed when idle",
            )?;
        }
        _ => {}
    }
    Ok(())
}

/// Checks the invariants of a step with a rare input.
fn rare_promises(
    before: &State,
    input: &AttemptInput,
    effects: &[AttemptEffect],
    after: &State,
) -> Result<(), &'static str> {
    if let AttemptInput::Thawed(frozen) = input {
        let deadlines = [before, after].map(|state| state.machine.deadline());
        let is_moved = deadlines[0].map(|at| at + *frozen) == deadlines[1];
        keeps(is_moved, "a suspend moves each deadline by its length")?;
        keeps(effects.is_empty(), "a suspend needs no action")?;
    }
    let closes = { effects.iter() }.any(|it| matches!(it, AttemptEffect::Close { .. }));
    let gives_up = closes && after.world.frozen;
    keeps(
        !gives_up,
        "background tasks don't time out during a suspend",
    )?;
    let is_limited = { effects.iter() }.any(|it| match it {
        AttemptEffect::RecordTurnEnd {
            outcome,
            agent_began: own,
        } => matches!(outcome, TurnOutcome::ServiceUnavailable { .. }) && !own,
        _ => false,
    });
    let is_left = is_limited && after.world.tree == TreeState::Runs;
    keeps(!is_left, "a process tree ends before a long wait")
}

/// Returns the invariant that a state breaks.
fn broken(state: &State, epoch: Instant) -> Option<&'static str> {
    let (world, machine) = (&state.world, &state.machine);
    let agent = machine.agent();
    let is_stopped = world.stop_by.is_some() && world.owed > 0;
    let deadline = machine.deadline().map(|at| at.duration_since(epoch));
    if is_stopped && !agent.is_ending_or_gone() {
        // After an interrupt, the agent has at most half of the budget to end its turn.
        let Some(deadline) = deadline else {
            return Some("a press leads to the end in each state");
        };
        if world
            .stop_by
            .is_some_and(|by| deadline + BUDGET / 2 > by.max(world.now + BUDGET / 2))
        {
            return Some("a press leaves half of its budget for the end of the process tree");
        }
    }
    if agent == AgentState::Ending && !matches!(world.tree, TreeState::Ends { .. }) {
        return Some("a process tree that should end is being ended");
    }
    if agent == AgentState::Gone && world.silent && !world.starting && world.owed > 0 {
        return Some("a turn is reported after its agent has exited");
    }
    if agent == AgentState::Interrupting && machine.in_turn() && deadline.is_none() {
        return Some("an interrupt has a deadline");
    }
    if machine.awaited_tasks().is_some() && deadline.is_none() {
        return Some("a wait for background tasks has a deadline");
    }
    if machine.awaited_tasks().is_some() && machine.options().task_timeout.is_zero() {
        return Some("without a task timeout, a turn doesn't wait for tasks");
    }
    if world.messages > 0 && !world.sending {
        return Some("a message has an answer");
    }
    None
}

/// Returns whether an input occurs without a further action of a person or the agent. Before a stop, the end of the agent's turn counts too.
fn comes_anyway(world: &World, input: &AttemptInput) -> bool {
    match input {
        AttemptInput::Interrupt
        | AttemptInput::Stop { .. }
        | AttemptInput::Abort { .. }
        | AttemptInput::Continue
        | AttemptInput::PauseAt(_) => false,
        AttemptInput::TimePassed
        | AttemptInput::Closed
        | AttemptInput::TreeGone
        | AttemptInput::ConversationEnded
        | AttemptInput::Thawed(FROZEN)
        | AttemptInput::Started
        | AttemptInput::NotStarted(_) => true,
        AttemptInput::TurnEnded { exited: true, .. } => true,
        _ => world.stop_by.is_none(),
    }
}

/// Returns a state from which the inputs of [`comes_anyway`] alone don't lead to the expected report.
fn stuck(nodes: &[Node], edges: &[(usize, usize)]) -> Option<usize> {
    let mut before = vec![Vec::new(); nodes.len()];
    for (from, to) in edges {
        before[*to].push(*from);
    }
    let mut leads: Vec<bool> = nodes.iter().map(|it| it.state.world.owed == 0).collect();
    let mut open: Vec<usize> = (0..nodes.len()).filter(|at| leads[*at]).collect();
    while let Some(at) = open.pop() {
        for from in &before[at] {
            if !std::mem::replace(&mut leads[*from], true) {
                open.push(*from);
            }
        }
    }
    leads.iter().position(|leads| !leads)
}

/// A state, with the input and the state that led to it.
struct Node {
    state: State,
    from: Option<(usize, Duration, AttemptInput)>,
}

fn history(nodes: &[Node], mut at: usize) -> String {
    let mut lines = Vec::new();
    while let Some((from, when, input)) = &nodes[at].from {
        lines.push(format!("{when:?} {input:?}"));
        at = *from;
    }
    lines.reverse();
    lines.join("\n")
}

/// Explores all histories from a start; returns the number of states, or the history of the first broken invariant.
fn explore(state: State, sabotage: Sabotage) -> Result<usize, String> {
    let epoch = Instant::now();
    let heads = [false, true].map(|pausing| {
        let mut head = Head::new(rules(|_| {})).unwrap();
        (head.session, head.pausing) = (Some("s".into()), pausing);
        head
    });
    let (mut known, mut edges, mut at) = (HashMap::default(), Vec::new(), 0);
    // A state is known by its hash: a copy of each state costs more time than all steps.
    let hash = |state: &State| FixedState::default().hash_one((&state.machine, &state.world));
    known.insert(hash(&state), 0);
    let mut nodes = vec![Node { state, from: None }];
    while let Some(node) = nodes.get(at) {
        let state = node.state.clone();
        for (when, input) in inputs(&state, epoch) {
            let mut after = state.clone();
            update_world(&mut after.world, when, &input);
            let understands = state.machine.options().parses_output;
            update_world_rarely(&mut after.world, understands, &input);
            let moment = StepContext {
                head: &heads[usize::from(after.world.pausing)],
                at: Timestamp::from_millis(0),
                now: epoch + when,
                budget: match after.world.stop_by {
                    Some(by) => by.saturating_sub(when),
                    None => BUDGET,
                },
                frozen: after.world.frozen,
            };
            let mut effects = after.machine.step(moment, input.clone());
            sabotage(&input, &mut effects);
            let agent = match input {
                // Only this input shows that the process and its turn exist.
                AttemptInput::Started => after.machine.agent(),
                _ => state.machine.agent(),
            };
            let pauses = state.world.pausing
                && state.world.tool
                && matches!(input, AttemptInput::ToolFinished(_))
                && agent == AgentState::InTurn;
            let is_asked =
                { effects.iter() }.any(|effect| matches!(effect, AttemptEffect::Interrupt { .. }));
            let done = keeps(
                is_asked || !pauses,
                "a pause takes effect when the tool ends",
            );
            let mut effects_in_order = effects.iter();
            let done = done.and_then(|()| {
                effects_in_order
                    .try_for_each(|effect| carry_out(&mut after.world, agent, effect, epoch))
            });
            let done = done.and_then(|()| rare_promises(&state, &input, &effects, &after));
            if let Some(promise) = done.err().or_else(|| broken(&after, epoch)) {
                let before = history(&nodes, at);
                return Err(format!(
                    "{promise}: {before}\n{when:?} {input:?} -> {effects:?}\n{:#?}",
                    after.machine
                ));
            }
            let leads = comes_anyway(&state.world, &input);
            let to = *known.entry(hash(&after)).or_insert_with(|| {
                let from = Some((at, when, input));
                nodes.push(Node { state: after, from });
                nodes.len() - 1
            });
            if leads {
                edges.push((at, to));
            }
        }
        at += 1;
    }
    match stuck(&nodes, &edges) {
        Some(at) => Err(format!(
            "an attempt reaches its report: {}\n{:#?}\n{:#?}",
            history(&nodes, at),
            nodes[at].state.machine,
            nodes[at].state.world
        )),
        None => Ok(nodes.len()),
    }
}

#[test]
fn every_history_of_an_attempt_keeps_the_invariants() {
    let both = [first(), first_with_tools()];
    for state in both.into_iter().chain(all_with_rare()) {
        match explore(state, |_, _| {}) {
            Ok(states) => {
                println!("{states} states");
                assert!(states > 10_000, "only {states} states");
            }
            Err(broken) => panic!("{broken}"),
        }
    }
}

/// Checks for each invariant that the exploration detects a machine that breaks it.
#[test]
fn sabotaged_attempt_is_detected() {
    let sabotages: [(&str, Sabotage); 6] = [
        ("a turn is reported once", |input, effects| {
            if let AttemptInput::TurnEnded { .. } = input {
                let twice = effects
                    .iter()
                    .find(|it| matches!(it, AttemptEffect::Report(_)));
                effects.extend(twice.cloned());
            }
        }),
        (
            "a turn is reported after its agent has exited",
            |input, effects| {
                if let AttemptInput::ConversationEnded | AttemptInput::TreeGone = input {
                    effects.retain(|it| !matches!(it, AttemptEffect::Report(_)));
                }
            },
        ),
        ("a process tree is ended within the budget", |_, effects| {
            for effect in effects {
                if let AttemptEffect::End { by } = effect {
                    *by += MILLI;
                }
            }
        }),
        (
            "a process tree that should end is being ended",
            |input, effects| {
                if let AttemptInput::TimePassed = input {
                    effects.clear();
                }
            },
        ),
        ("a prompt is answered once", |input, effects| {
            if let AttemptInput::EventsProcessed = input {
                effects.push(AttemptEffect::ReportPrompted);
            }
        }),
        ("only a turn is interrupted", |input, effects| {
            if let AttemptInput::EventsProcessed = input {
                effects.push(AttemptEffect::Interrupt { drop_queued: false });
            }
        }),
    ];
    for (promise, sabotage) in sabotages {
        let found = explore(first(), sabotage).unwrap_err();
        assert!(found.starts_with(promise), "{promise}: {found}");
    }
    let rare: [(&str, Sabotage); 6] = [
        ("a message is answered once", |input, effects| {
            if let AttemptInput::Sent { .. } = input {
                effects.push(AttemptEffect::NextPrompt(1));
            }
        }),
        ("a message has an answer", |input, effects| {
            if let AttemptInput::Dropped(_) = input {
                effects.clear();
            }
        }),
        ("only a promise of this turn counts", |input, effects| {
            if let AttemptInput::TurnEnded { .. } = input {
                let (outcome, own) = (TurnOutcome::PromiseMade, false);
                effects.push(AttemptEffect::RecordTurnEnd {
                    outcome,
                    agent_began: own,
                });
            }
        }),
        ("only an examination finds no progress", |input, effects| {
            if let AttemptInput::Deliver(_) = input {
                effects.push(AttemptEffect::ReportNoProgress);
            }
        }),
        ("a suspend needs no action", |input, effects| {
            if let AttemptInput::Thawed(_) = input {
                effects.push(AttemptEffect::CloseWhenIdle);
            }
        }),
        (
            "a process tree ends before a long wait",
            |input, effects| {
                if let AttemptInput::TurnEnded { .. } = input {
                    let is_limited = |it: &AttemptEffect| {
                        matches!(
                            it,
                            AttemptEffect::RecordTurnEnd {
                                outcome: TurnOutcome::ServiceUnavailable { .. },
                                ..
                            }
                        )
                    };
                    if effects.iter().any(is_limited) {
                        effects.retain(|it| !matches!(it, AttemptEffect::End { .. }));
                    }
                }
            },
        ),
    ];
    for (promise, sabotage) in rare {
        let found = explore(first_with_rare(|_| {}), sabotage).unwrap_err();
        assert!(found.starts_with(promise), "{promise}: {found}");
    }
}
