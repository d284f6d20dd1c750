//! Every form in which a state was ever written is read for ever. A file that was committed here is never changed; a new version gets a new folder.

use std::fs;
use std::path::PathBuf;

use loop_state::snapshot::Snapshot;
use loop_state::{Autonomy, Event, Happening, Head, Machine, Resume, Rules, Timestamp, Waits};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

mod samples;
use samples::{events, full, heads};

const VERSIONS: u32 = Snapshot::VERSION + 1;

fn path(version: u32, name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join(format!("tests/golden/v{version}"))
        .join(name)
}

fn to_cbor(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).unwrap();
    bytes
}

/// One value a line.
fn to_json(values: &[impl Serialize]) -> Vec<u8> {
    let lines = values
        .iter()
        .map(|value| serde_json::to_string(value).unwrap());
    format!("[\n{}\n]\n", lines.collect::<Vec<_>>().join(",\n")).into_bytes()
}

fn golden<T: DeserializeOwned + PartialEq + std::fmt::Debug>(
    version: u32,
    what: &str,
) -> (Vec<T>, Value) {
    let json = fs::read(path(version, &format!("{what}.json"))).unwrap();
    let cbor = fs::read(path(version, &format!("{what}.cbor"))).unwrap();
    let values: Vec<T> = serde_json::from_slice(&json).unwrap();
    let same: Vec<T> = ciborium::from_reader(cbor.as_slice()).unwrap();
    assert_eq!(
        values, same,
        "both files of version {version} hold the same"
    );
    assert!(!values.is_empty(), "{what} of version {version}");
    (values, serde_json::from_slice(&json).unwrap())
}

/// Whatever is in `old` is in `new` as well.
fn assert_kept(old: &Value, new: &Value, place: &str) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in old.iter().filter(|(key, _)| *key != "version") {
                let place = format!("{place}/{key}");
                assert_kept(
                    value,
                    new.get(key).unwrap_or_else(|| panic!("{place} is lost")),
                    &place,
                );
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            assert_eq!(old.len(), new.len(), "{place}");
            old.iter()
                .zip(new)
                .for_each(|(old, new)| assert_kept(old, new, place));
        }
        (old, new) => assert_eq!(old, new, "{place}"),
    }
}

#[test]
fn c64b_every_version_ever_written_is_read_and_nothing_of_it_is_lost() {
    for version in 0..VERSIONS {
        let (heads, text) = golden::<Head>(version, "heads");
        assert_kept(
            &text,
            &serde_json::to_value(&heads).unwrap(),
            &format!("v{version}"),
        );
        let (events, text) = golden::<Event>(version, "events");
        assert_kept(
            &text,
            &serde_json::to_value(&events).unwrap(),
            &format!("v{version}"),
        );
        for saved in text_of(version) {
            assert_eq!(saved.version(), version);
        }
    }
}

fn text_of(version: u32) -> Vec<Snapshot> {
    serde_json::from_slice(&fs::read(path(version, "heads.json")).unwrap()).unwrap()
}

/// A run that was saved before there were versions goes on as it was meant to.
#[test]
fn a_head_without_a_version_gets_the_defaults_of_its_time() {
    let (heads, _) = golden::<Head>(0, "heads");
    let rules = &heads[1].rules;
    assert_eq!(
        (rules.autonomy, rules.max_cost_microusd),
        (Autonomy::Full, None)
    );
    assert_eq!(rules.wait_on_limit, Rules::default().wait_on_limit);
    assert!(
        heads
            .iter()
            .all(|head| head.waits == Waits::default() && !head.attended)
    );
    for head in heads {
        let mut machine = Machine::from(head);
        let at = Timestamp(1_790_000_100_000);
        machine.step(Event {
            at,
            what: Happening::Resumed(Resume::default()),
        });
    }
}

/// What is written today is the newest golden file, byte for byte: a change of the form is a decision, not an accident.
#[test]
fn what_is_written_today_is_the_newest_golden_file() {
    let version = Snapshot::VERSION;
    let (heads, events) = (heads(), events());
    let files = [
        ("heads.cbor", to_cbor(&heads)),
        ("events.cbor", to_cbor(&events)),
        ("heads.json", to_json(&heads)),
        ("events.json", to_json(&events)),
    ];
    let mut written = Vec::new();
    for (name, bytes) in files {
        let path = path(version, name);
        match fs::read(&path) {
            Ok(golden) => assert!(golden == bytes, "{name} differs from what is written today"),
            Err(_) => {
                fs::write(&path, bytes).unwrap();
                written.push(name);
            }
        }
    }
    assert!(written.is_empty(), "there was no {written:?}; written now");
    assert_eq!(golden::<Head>(version, "heads").0, heads);
    assert_eq!(golden::<Event>(version, "events").0, events);
}

#[test]
fn c64a_a_newer_version_is_refused_by_name_and_is_not_written_again() {
    let newer = r#"{"version":7,"phase":["as","never","seen"]}"#;
    let saved: Snapshot = serde_json::from_str(newer).unwrap();
    assert_eq!(saved.version(), 7);
    serde_json::to_string(&saved).unwrap_err();
    let error = Head::try_from(saved).unwrap_err();
    assert!(error.is_newer());
    insta::assert_snapshot!(error, @"the state is of version 7, and this program knows versions up to 2: use a newer program");
    let cbor = [b"\xa2\x67version\x07".as_slice(), b"\x65phase\x81\x62as"].concat();
    let error = ciborium::from_reader::<Head, _>(cbor.as_slice()).unwrap_err();
    assert!(error.to_string().contains("version 7"), "{error}");
    // Where a tool has sorted the keys, the version does not stand first, and is not overlooked.
    let mut sorted = serde_json::to_value(full()).unwrap();
    sorted["version"] = 7.into();
    let text = sorted.to_string();
    assert!(text.starts_with(r#"{"active_ms"#));
    let error = serde_json::from_str::<Head>(&text).unwrap_err();
    assert!(error.to_string().contains("version 7"), "{error}");
}

#[test]
fn a_head_that_no_machine_can_have_written_is_refused() {
    let refused = |change: fn(&mut Value)| {
        let mut saved = serde_json::to_value(full()).unwrap();
        change(&mut saved);
        let saved: Snapshot = serde_json::from_value(saved).unwrap();
        let error = Head::try_from(saved).unwrap_err();
        assert!(!error.is_newer());
        error.to_string()
    };
    let phase = refused(|head| head["phase"] = 2.into());
    let rules = refused(|head| head["rules"]["phases"] = Value::Array(vec![]));
    let count = refused(|head| head["highest_attempt"] = u32::MAX.into());
    // Each of these is one more soon.
    let counts: [fn(&mut Value); 3] = [
        |head| head["streaks"]["unrun"] = u32::MAX.into(),
        |head| head["step"] = json!({"Gate": {"index": u32::MAX}}),
        |head| head["step"] = json!({"Recheck": {"gate": u32::MAX}}),
    ];
    for change in counts {
        assert_eq!(refused(change), count);
    }
    let nowhere = refused(|head| {
        head["iteration"] = 0.into();
        head["step"] = "Check".into();
    });
    insta::assert_snapshot!([phase, rules, count, nowhere].join("\n"), @r"
    the state stands in a phase with index 2, which its rules don't have; take an earlier one
    the state's rules make no run: a run needs at least one phase
    the state counts further than any run can; take an earlier one
    the state works at iteration 0, which no run has; take an earlier one
    ");
}

#[test]
fn what_is_unknown_in_a_map_is_skipped() {
    let mut saved = serde_json::to_value(full()).unwrap();
    saved["mood"] = "good".into();
    saved["rules"]["mood"] = Value::Array(vec![1.into()]);
    saved["steers"][0]["mood"] = Value::Null;
    assert_eq!(serde_json::from_value::<Head>(saved).unwrap(), full());
}
