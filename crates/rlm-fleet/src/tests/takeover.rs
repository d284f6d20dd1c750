//! Claims of single runs, step by step.

use std::fmt::Write as _;

use crate::{
    AppendEnd, AppendOutput, Claim, ClaimInput, LastRecord, MAX_STALLED, Moment, ProbeResult,
    Progress, RecordId, RecordKind,
};

/// Returns the inputs of a claim, each with its outputs.
fn trace(inputs: &[(u64, ClaimInput)]) -> String {
    let mut claim = Claim::new();
    let mut lines = String::new();
    for (millis, input) in inputs {
        let outputs = claim.step(*input, Moment::from_millis(*millis));
        writeln!(lines, "{millis} ms: {input:?}").expect("a string takes all text");
        for output in outputs {
            writeln!(lines, "    {output:?}").expect("a string takes all text");
        }
    }
    lines
}

fn last(kind: RecordKind, stalled: u32) -> ClaimInput {
    ClaimInput::Last {
        last: Some(LastRecord {
            seq: 41,
            id: RecordId::new(7),
            epoch: 2,
            kind,
            stalled,
        }),
        connected: Moment::from_millis(0),
    }
}

/// The worker connected at 8 s.
fn young(last: ClaimInput) -> ClaimInput {
    match last {
        ClaimInput::Last { last, .. } => ClaimInput::Last {
            last,
            connected: Moment::from_millis(8_000),
        },
        other => other,
    }
}

const DONE: ClaimInput = ClaimInput::Append(AppendOutput::Done {
    id: RecordId::new(8),
    seq: 45,
});
const NO_OWNER: ClaimInput = ClaimInput::Probed(ProbeResult::NoResponders);

#[test]
fn claims_of_single_runs_have_these_steps() {
    let working = last(RecordKind::Save(Progress::Working), 1);
    let delivered = (9_000, ClaimInput::Delivered);
    let owner = ClaimInput::Probed(ProbeResult::Owner { epoch: 2 });
    let fenced = ClaimInput::Append(AppendOutput::Ended(AppendEnd::Fenced { by: 3 }));
    let traces = [
        (
            "the owner is dead",
            trace(&[
                delivered,
                (9_001, working),
                (9_002, NO_OWNER),
                (9_003, DONE),
            ]),
        ),
        (
            "the owner is alive",
            trace(&[delivered, (9_001, working), (9_002, owner)]),
        ),
        (
            "the connection is young",
            trace(&[delivered, (9_001, young(working))]),
        ),
        (
            "another worker was faster",
            trace(&[
                delivered,
                (9_001, last(RecordKind::Base, 0)),
                (9_002, fenced),
            ]),
        ),
        (
            "three claims stalled",
            trace(&[
                delivered,
                (9_001, last(RecordKind::Claim, MAX_STALLED)),
                (9_002, NO_OWNER),
                (9_003, DONE),
            ]),
        ),
        (
            "the run was released after a stalled claim",
            trace(&[delivered, (9_001, last(RecordKind::Release, 1))]),
        ),
        (
            "the owner gave the run back after a failure",
            trace(&[delivered, (9_001, last(RecordKind::Failure, 1))]),
        ),
        (
            "the run has ended",
            trace(&[
                delivered,
                (9_001, last(RecordKind::Save(Progress::RunEnded), 0)),
            ]),
        ),
        (
            "the last record needs a newer program",
            trace(&[delivered, (9_001, last(RecordKind::Unknown, 0))]),
        ),
        (
            "the connection is lost",
            trace(&[
                delivered,
                (9_001, working),
                (9_002, ClaimInput::Disconnected),
                (9_003, NO_OWNER),
            ]),
        ),
        (
            "the lease is lost",
            trace(&[
                delivered,
                (9_001, working),
                (9_002, ClaimInput::LeaseLost),
                (9_003, NO_OWNER),
            ]),
        ),
    ];
    let text: String = { traces.iter() }
        .map(|(what, steps)| format!("{what}:\n{steps}\n"))
        .collect();
    insta::assert_snapshot!(text);
}

#[test]
fn claims_count_as_stalled_until_an_iteration_is_completed() {
    let working = RecordKind::Save(Progress::Working);
    let completed = RecordKind::Save(Progress::IterationCompleted);
    let kinds = [
        (RecordKind::Base, 0),
        (RecordKind::Claim, 1),
        (working, 1),
        (RecordKind::Claim, 2),
        (RecordKind::Release, 1),
        (RecordKind::Claim, 2),
        (RecordKind::Failure, 2),
        (completed, 0),
        (working, 0),
        (RecordKind::Claim, 1),
        (RecordKind::Park, 1),
        (RecordKind::Unpark, 0),
    ];
    let mut stalled = 0;
    for (kind, expected) in kinds {
        stalled = kind.stalled(stalled);
        assert_eq!(stalled, expected, "{kind:?}");
    }
}
