//! All messages as a person sees them, and the predicates of each case.

use super::*;

/// Each text that a person may see contains the next step.
#[test]
fn errors_have_hints() {
    let io = |kind| Kind::Io {
        doing: "sync",
        source: io::Error::from(kind),
    };
    let kinds = [
        io(io::ErrorKind::StorageFull),
        io(io::ErrorKind::ReadOnlyFilesystem),
        Kind::Full { bytes: 4096 },
        Kind::Lost {
            first: "/s/progress: cannot sync: input/output error".into(),
            then: "/s: cannot sync the directory: input/output error".into(),
            vanished: false,
        },
        Kind::NotFound("store"),
        Kind::Locked {
            holder: "pid 7 since 2026-01-31T23:59:59Z".into(),
        },
        Kind::Corrupt {
            reason: "no valid state is left (phase-1: the frame is truncated at byte 9)".into(),
        },
        Kind::UnsupportedVersion {
            what: "schema `loop`".into(),
            found: 7,
            supported: 6,
        },
        Kind::OtherSchema {
            found: "a".into(),
            expected: "b".into(),
        },
        Kind::OtherPhase {
            found: "plan".into(),
            wanted: "verify".into(),
        },
        Kind::Fenced { own: 3, by: 4 },
        Kind::Fenced { own: 3, by: 3 },
        Kind::ReplicaFenced { by: 4 },
        Kind::Unreplicated {
            reason: "no answer for 3s".into(),
        },
        Kind::OtherSaves { own: 7, replica: 6 },
        Kind::BadRecord {
            reason: "the frame has a wrong checksum at byte 32".into(),
        },
        Kind::OutOfOrder {
            previous: 8,
            newest: 6,
        },
        Kind::Vanished,
        Kind::Poisoned {
            first: "/s/progress: cannot sync: input/output error".into(),
        },
        Kind::Unsafe("other users can write to it; remove that permission with `chmod go-w`"),
        Kind::Name {
            what: "phase name",
            name: "../a".into(),
            reason: "it contains `..`",
        },
        Kind::Encode("a reason".into()),
        Kind::Decode {
            what: "the head",
            reason: "a reason".into(),
        },
        Kind::TooLarge {
            what: "one save",
            bytes: 9,
            limit: 8,
        },
        Kind::Migrate {
            from: 1,
            reason: "a reason".into(),
        },
        Kind::Taken,
        Kind::Conflict,
        Kind::UnknownSeq { requested: 5 },
    ];
    let lines: Vec<String> = kinds
        .into_iter()
        .map(|kind| Error::new("/s", kind).to_string())
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn predicates_distinguish_the_cases() {
    let io = |kind| Error::io("/s", "write", io::Error::from(kind));
    assert!(io(io::ErrorKind::ReadOnlyFilesystem).is_read_only());
    assert!(io(io::ErrorKind::PermissionDenied).is_read_only());
    assert!(io(io::ErrorKind::StorageFull).is_full());
    assert!(
        !io(io::ErrorKind::NotFound).is_not_found(),
        "a file that disappeared is not a missing store"
    );
    let fault = Error::fault("/s", FrameFault::NewerFrame { kind: 9 });
    assert!(fault.is_unsupported_version() && fault.path() == Path::new("/s"));
    fn sendable<T: Send + Sync + 'static>() {}
    sendable::<(
        Error,
        crate::Store,
        crate::Writer<std::rc::Rc<()>, std::rc::Rc<()>>,
    )>();
}
