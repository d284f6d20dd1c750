//! Explores two appenders and a server whose messages are lost, late and repeated.

use super::explore::{Step, World, explore, hash};
use crate::sabotage::{self, Sabotage};
use crate::{
    AppendAnswer, AppendEnd, AppendInput, AppendOutput, Appender, LastRecord, Moment, Progress,
    RecordId, RecordKind,
};

const ONCE: &str = "a record is stored at most once";
const ACKNOWLEDGED: &str = "an acknowledged record is in the stream";
const ENDED: &str = "an ended appender publishes nothing";
const FENCED: &str = "only the record of another owner fences an appender";
const NO_DAMAGE: &str = "a sound stream is not reported as damaged";
const ONE_OWNER: &str = "no record follows the claim of another owner";
const ORDER: &str = "the records of an owner are in the stream in their order";

/// A mistake of the server or of its client, for the controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ServerFault {
    None,
    /// The server stores a record whatever the last one is.
    IgnoreExpected,
    /// A read returns what a follower of the leader knows.
    ReadFromFollower,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Message {
    Publish {
        writer: usize,
        call: u64,
        id: RecordId,
        expect: u64,
    },
    Read {
        writer: usize,
        call: u64,
    },
    Answer {
        writer: usize,
        call: u64,
        answer: AppendAnswer,
    },
}

/// A worker that appends a claim and one save.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Writer {
    appender: Appender,
    appended: u8,
    /// The number of the newest call, and whether it is a publish; `None` if no answer is awaited.
    call: Option<(u64, bool)>,
    calls: u64,
    waits: bool,
    is_idle: bool,
    end: Option<AppendEnd>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Appends {
    /// The records of the stream. The first one has the sequence number 1.
    log: Vec<LastRecord>,
    /// The first worker, and the second one after it read the last record.
    writers: [Option<Writer>; 2],
    /// The different messages on the way, sorted. A message that stays here for ever is lost.
    net: Vec<Message>,
    /// How many messages can still arrive twice.
    repeats: u8,
    /// How many answers can still be late without being lost.
    late: u8,
    fault: ServerFault,
}

/// A step of the model.
#[derive(Debug)]
#[expect(dead_code, reason = "a failed exploration prints the steps")]
enum AppendStep {
    Message(Message, &'static str),
    Start(usize),
    Input(usize, AppendInput),
}

/// The calls that a worker makes at most, so that the exploration ends.
const MAX_CALLS: [u64; 2] = [4, 2];
/// The number of all earlier calls in a late publish.
const NO_CALL: u64 = 0;
const NOW: Moment = Moment::from_millis(0);
const LATER: Moment = Moment::from_millis(1_000_000);

impl Appends {
    fn new(fault: ServerFault) -> Self {
        let base = LastRecord {
            seq: 1,
            id: RecordId::new(0),
            epoch: 0,
            kind: RecordKind::Base,
            stalled: 0,
        };
        let mut world = Self {
            log: vec![base],
            writers: [None, None],
            net: Vec::new(),
            repeats: 1,
            late: 1,
            fault,
        };
        world.start(0);
        world
    }

    /// Lets a worker read the last record, and prepare its claim.
    fn start(&mut self, writer: usize) {
        let last = self.log[self.log.len() - 1];
        self.writers[writer] = Some(Writer {
            appender: Appender::new(last.seq, last.epoch + 1),
            appended: 0,
            call: None,
            calls: 0,
            waits: false,
            is_idle: true,
            end: None,
        });
    }

    /// Passes an input to a worker, does what its appender returns, and names the broken invariants.
    fn input(&mut self, at: usize, input: AppendInput, now: Moment) -> Vec<&'static str> {
        let Some(writer) = &mut self.writers[at] else {
            return Vec::new();
        };
        let mut broken = Vec::new();
        let outputs = writer.appender.step(input, now);
        for output in outputs {
            match output {
                AppendOutput::Publish { call, id, expect } => {
                    if writer.end.is_some() {
                        broken.push(ENDED);
                    }
                    (writer.call, writer.waits, writer.is_idle) =
                        (Some((call, true)), false, false);
                    writer.calls = call;
                    self.net.push(Message::Publish {
                        writer: at,
                        call,
                        id,
                        expect,
                    });
                }
                AppendOutput::ReadLast { call } => {
                    (writer.call, writer.calls) = (Some((call, false)), call);
                    self.net.push(Message::Read { writer: at, call });
                }
                AppendOutput::WaitUntil(_) => (writer.call, writer.waits) = (None, true),
                AppendOutput::Done { id, seq } => {
                    (writer.call, writer.waits, writer.is_idle) = (None, false, true);
                    let stored = usize::try_from(seq - 1).map(|index| self.log.get(index));
                    if stored.ok().flatten().is_none_or(|stored| stored.id != id) {
                        broken.push(ACKNOWLEDGED);
                    }
                }
                AppendOutput::Ended(end) => {
                    (writer.call, writer.waits, writer.is_idle) = (None, false, false);
                    writer.end = Some(end);
                    let other = |record: &LastRecord| owner(record.id) == Some(1 - at);
                    match end {
                        AppendEnd::Fenced { .. } if !self.log.iter().any(other) => {
                            broken.push(FENCED);
                        }
                        AppendEnd::Damaged { .. } => broken.push(NO_DAMAGE),
                        _ => {}
                    }
                }
                AppendOutput::Busy { .. } => broken.push(ORDER),
            }
        }
        self.forget_old_messages(at);
        broken
    }

    /// Removes what has no effect any more: the reads of earlier calls, and all their answers but the newest.
    fn forget_old_messages(&mut self, at: usize) {
        let Some(worker) = &self.writers[at] else {
            return;
        };
        let has_ended = worker.end.is_some();
        let present = worker.call.map_or(u64::MAX, |(call, _)| call);
        let old_answers = self.net.iter().filter_map(|message| match *message {
            Message::Answer { writer, call, .. } if writer == at && call < present => Some(call),
            _ => None,
        });
        let newest = old_answers.max();
        self.net.retain(|message| match *message {
            Message::Answer { writer, call, .. } => {
                writer != at || (!has_ended && (call == present || Some(call) == newest))
            }
            Message::Read { writer, call } => writer != at || call == present,
            Message::Publish { .. } => true,
        });
        // The answer to a late publish of an earlier call has no effect, but its store has.
        for message in &mut self.net {
            if let Message::Publish { writer, call, .. } = message
                && (*writer, *call != present) == (at, true)
            {
                *call = NO_CALL;
            }
        }
    }

    /// Lets a message arrive. Returns each possible result.
    fn arrive(&self, message: Message) -> Vec<(&'static str, Self, Vec<&'static str>)> {
        match message {
            Message::Answer {
                writer,
                call,
                answer,
            } => {
                let mut after = self.clone();
                let broken = after.input(writer, AppendInput::Answer { call, answer }, NOW);
                vec![("arrives", after, broken)]
            }
            Message::Read { writer, call } => {
                let mut results =
                    self.answers(writer, call, AppendAnswer::Last(self.log.last().copied()));
                if self.fault == ServerFault::ReadFromFollower {
                    let first = self.log.first().copied();
                    results.extend(self.answers(writer, call, AppendAnswer::Last(first)));
                }
                results
            }
            Message::Publish {
                writer,
                call,
                id,
                expect,
            } => {
                let mut results = self.answers(writer, call, AppendAnswer::NotReady);
                if self.log.iter().any(|record| record.id == id) {
                    results.extend(self.answers(writer, call, AppendAnswer::Duplicate));
                }
                let last = self.log[self.log.len() - 1];
                if expect != last.seq && self.fault != ServerFault::IgnoreExpected {
                    results.extend(self.answers(writer, call, AppendAnswer::WrongLast));
                    return results;
                }
                let mut stored = self.clone();
                let epoch = { self.writers[writer].as_ref() }.map(|it| it.appender.epoch());
                stored.log.push(LastRecord {
                    seq: last.seq + 1,
                    id,
                    epoch: epoch.unwrap_or_default(),
                    kind: RecordKind::Save(Progress::Working),
                    stalled: 0,
                });
                let broken_by_store = stored.broken_by_store();
                for mut result in stored.answers(writer, call, AppendAnswer::Stored(last.seq + 1)) {
                    result.2.extend(&broken_by_store);
                    results.push(result);
                }
                results
            }
        }
    }

    /// Lets the server answer a call. The answer arrives at once, arrives later, or is lost.
    fn answers(
        &self,
        writer: usize,
        call: u64,
        answer: AppendAnswer,
    ) -> Vec<(&'static str, Self, Vec<&'static str>)> {
        let mut results = vec![("arrives, and the answer is lost", self.clone(), Vec::new())];
        if call == NO_CALL {
            return results;
        }
        let mut at_once = self.clone();
        let broken = at_once.input(writer, AppendInput::Answer { call, answer }, NOW);
        results.push(("is answered", at_once, broken));
        if self.late > 0 {
            let mut later = self.clone();
            later.late -= 1;
            later.net.push(Message::Answer {
                writer,
                call,
                answer,
            });
            results.push(("arrives, and the answer is late", later, Vec::new()));
        }
        results
    }

    /// Checks the stream after a store.
    fn broken_by_store(&self) -> Vec<&'static str> {
        let newest = self.log[self.log.len() - 1];
        let before = &self.log[..self.log.len() - 1];
        let own = { before.iter() }.filter(|it| owner(it.id) == owner(newest.id));
        let own: Vec<RecordId> = own.map(|it| it.id).collect();
        let mut broken = Vec::new();
        if own.contains(&newest.id) {
            broken.push(ONCE);
        } else if usize::try_from(newest.id.bits() % 10) != Ok(own.len()) {
            broken.push(ORDER);
        }
        let last_owner = { before.last() }.and_then(|it| owner(it.id));
        if !own.is_empty() && last_owner != owner(newest.id) {
            broken.push(ONE_OWNER);
        }
        broken
    }
}

/// Returns the worker that made the record.
fn owner(id: RecordId) -> Option<usize> {
    match id.bits() / 10 {
        1 => Some(0),
        2 => Some(1),
        _ => None,
    }
}

impl World for Appends {
    type What = AppendStep;

    fn next(&self) -> Vec<Step<Self>> {
        let mut steps = Vec::new();
        let mut add = |what, mut after: Self, broken: Vec<&'static str>| {
            after.net.sort_by_key(hash);
            after.net.dedup();
            steps.push(Step {
                what,
                after,
                broken,
            });
        };
        for (at, &message) in self.net.iter().enumerate() {
            for stays in [false, true] {
                let mut before = self.clone();
                if !stays {
                    before.net.remove(at);
                } else if self.repeats > 0 {
                    before.repeats -= 1;
                } else {
                    continue;
                }
                for (what, after, broken) in before.arrive(message) {
                    add(AppendStep::Message(message, what), after, broken);
                }
            }
        }
        for (at, writer) in self.writers.iter().enumerate() {
            let Some(writer) = writer else {
                let mut after = self.clone();
                after.start(at);
                add(AppendStep::Start(at), after, Vec::new());
                continue;
            };
            let mut inputs = Vec::new();
            let calls = writer.calls;
            match writer.call {
                Some((call, is_publish)) if calls < MAX_CALLS[at] => {
                    let answer = match is_publish {
                        true => AppendAnswer::NoAnswer,
                        false => AppendAnswer::ReadFailed,
                    };
                    inputs.push(AppendInput::Answer { call, answer });
                }
                _ => {}
            }
            if writer.waits && calls < MAX_CALLS[at] {
                inputs.push(AppendInput::Time);
            }
            let is_ready = writer.is_idle || writer.end.is_some();
            if is_ready && writer.appended < 2 {
                let id = u128::try_from(at + 1).unwrap_or_default() * 10;
                inputs.push(AppendInput::Append(RecordId::new(
                    id + u128::from(writer.appended),
                )));
            }
            if writer.end.is_none() && !writer.is_idle {
                inputs.push(AppendInput::GiveUp);
            }
            for input in inputs {
                let mut after = self.clone();
                if let (AppendInput::Append(_), Some(writer)) = (input, &mut after.writers[at]) {
                    writer.appended += 1;
                }
                let now = match input {
                    AppendInput::Time => LATER,
                    _ => NOW,
                };
                let broken = after.input(at, input, now);
                add(AppendStep::Input(at, input), after, broken);
            }
        }
        steps
    }
}

#[test]
fn all_short_histories_of_two_appenders_keep_the_stream_correct() {
    match explore(Appends::new(ServerFault::None)) {
        Ok(explored) => {
            println!("{} states, {} steps", explored.states, explored.steps);
            assert!(explored.states > 50_000, "{explored:?}");
        }
        Err(broken) => panic!("{broken}"),
    }
}

#[test]
fn exploration_finds_each_broken_rule_of_an_append() {
    let mistakes = [
        (Sabotage::FenceWithoutReadBack, FENCED),
        (Sabotage::TrustLostAnswer, ACKNOWLEDGED),
        (Sabotage::FollowOtherOwner, ONE_OWNER),
        (Sabotage::AppendAfterFence, ENDED),
        (Sabotage::TakeOldAnswers, NO_DAMAGE),
    ];
    for (mistake, invariant) in mistakes {
        let found = sabotage::with(Some(mistake), || explore(Appends::new(ServerFault::None)));
        let found = found.expect_err(invariant);
        println!("{mistake:?}: {found}");
        assert!(found.contains(invariant), "{mistake:?}: {found}");
    }
}

#[test]
fn exploration_finds_each_broken_promise_of_the_server() {
    let faults = [
        (ServerFault::IgnoreExpected, ONCE),
        (ServerFault::ReadFromFollower, NO_DAMAGE),
    ];
    for (fault, invariant) in faults {
        let found = explore(Appends::new(fault)).expect_err(invariant);
        println!("{fault:?}: {found}");
        assert!(found.contains(invariant), "{fault:?}: {found}");
    }
}

const FIRST: RecordId = RecordId::new(10);
const SECOND: RecordId = RecordId::new(11);

fn answer(call: u64, answer: AppendAnswer) -> AppendInput {
    AppendInput::Answer { call, answer }
}

fn last(seq: u64, id: RecordId, epoch: u64) -> AppendAnswer {
    AppendAnswer::Last(Some(LastRecord {
        seq,
        id,
        epoch,
        kind: RecordKind::Claim,
        stalled: 1,
    }))
}

/// Returns the outputs of an appender of epoch 3 that read back its second record and found this one.
fn found_after_claim(found: AppendAnswer) -> Vec<AppendOutput> {
    let mut appender = Appender::new(41, 3);
    drop(appender.step(AppendInput::Append(FIRST), NOW));
    drop(appender.step(answer(1, AppendAnswer::Stored(45)), NOW));
    drop(appender.step(AppendInput::Append(SECOND), NOW));
    drop(appender.step(answer(2, AppendAnswer::NoAnswer), NOW));
    appender.step(answer(3, found), NOW)
}

#[test]
fn stream_of_an_older_backup_is_reported_as_damage() {
    let damaged = |found| [AppendOutput::Ended(AppendEnd::Damaged { found })];
    let older = last(41, RecordId::new(0), 2);
    assert_eq!(found_after_claim(older), damaged(Some(41)));
    assert_eq!(found_after_claim(AppendAnswer::Last(None)), damaged(None));
}

#[test]
fn unknown_record_of_the_own_epoch_is_damage_after_the_claim_and_a_lost_race_before() {
    let unknown = last(46, RecordId::new(99), 3);
    let damage = AppendEnd::Damaged { found: Some(46) };
    assert_eq!(found_after_claim(unknown), [AppendOutput::Ended(damage)]);
    let mut appender = Appender::new(41, 3);
    drop(appender.step(AppendInput::Append(FIRST), NOW));
    drop(appender.step(answer(1, AppendAnswer::WrongLast), NOW));
    let fenced = AppendEnd::Fenced { by: 3 };
    let outputs = appender.step(answer(2, unknown), NOW);
    assert_eq!(outputs, [AppendOutput::Ended(fenced)]);
}

#[test]
fn waits_between_tries_double_up_to_one_second() {
    let mut appender = Appender::new(41, 3);
    let mut now = NOW;
    drop(appender.step(AppendInput::Append(FIRST), now));
    let mut waits = Vec::new();
    for call in 1..=7 {
        let outputs = appender.step(answer(call, AppendAnswer::NotReady), now);
        let [AppendOutput::WaitUntil(until)] = outputs[..] else {
            panic!("{outputs:?}");
        };
        waits.push(until.since(now).as_millis());
        let early = Moment::from_millis(until.as_millis() - 1);
        let waiting = [AppendOutput::WaitUntil(until)];
        assert_eq!(appender.step(AppendInput::Time, early), waiting);
        now = until;
        let (id, expect) = (FIRST, 41);
        let call = call + 1;
        let publish = AppendOutput::Publish { call, id, expect };
        assert_eq!(appender.step(AppendInput::Time, now), [publish]);
    }
    assert_eq!(waits, [50, 100, 200, 400, 800, 1000, 1000]);
}

#[test]
fn record_that_comes_before_the_end_of_another_is_refused() {
    let mut appender = Appender::new(41, 3);
    drop(appender.step(AppendInput::Append(FIRST), NOW));
    let busy = [AppendOutput::Busy { id: SECOND }];
    assert_eq!(appender.step(AppendInput::Append(SECOND), NOW), busy);
}
