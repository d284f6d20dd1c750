//! The saved form: its keys and variants, its bytes, and the states that are refused.

#[cfg(feature = "schema")]
use std::collections::BTreeMap;
use std::time::Duration;

use loop_state::*;
use serde::Serialize;
use serde_json::{Value, json};

fn rules() -> Rules {
    let phase = |name: &str, session, limits| PhaseRules {
        name: name.into(),
        required_checks: 2,
        has_check: true,
        has_promise: true,
        session,
        durable_session: true,
        limits,
        reports_cost: true,
        reports_tokens: true,
    };
    Rules {
        phases: vec![
            phase(
                "plan",
                SessionPolicy::Continue,
                PhaseLimits {
                    max_iterations: Some(3),
                    iteration_timeout: Some(Duration::from_millis(3_600_500)),
                    idle_timeout: None,
                    check_timeout: Duration::from_secs(60),
                },
            ),
            phase(
                "implement",
                SessionPolicy::Fresh,
                PhaseLimits {
                    max_iterations: Some(100),
                    iteration_timeout: Some(Duration::from_secs(3600)),
                    idle_timeout: Some(Duration::from_secs(900)),
                    ..PhaseLimits::default()
                },
            ),
        ],
        autonomy: Autonomy::Batch(5),
        first_check: true,
        limits: RunLimits {
            max_duration: Some(Duration::from_secs(86_400)),
            max_failures: 3,
            sleep: Duration::from_secs(10),
            max_cost_microusd: Some(5_000_000),
            max_tokens: Some(1_000_000),
            wait_on_limit: Duration::from_secs(3600),
        },
    }
}

/// Returns a head with a value in every field.
fn full() -> Head {
    let t = |n: u64| Timestamp::from_millis(1_790_000_000_000 + n);
    let mut h = Head::new(rules()).unwrap();
    h.phase = 1;
    h.iteration = 7;
    h.attempt = 12;
    h.highest_attempt = 12;
    h.first_attempt = 11;
    h.step = IterationStep::Turn { since: t(500) };
    h.failure = Some("the turn took longer than 3600s".into());
    h.unfinished = Some(UnfinishedAttempt {
        attempt: 11,
        cause: UnfinishedCause::ProcessDied,
    });
    h.feedback = Some(Feedback {
        source: LoopCommand::RequiredCheck(1),
        text: "1 test failed".into(),
    });
    h.steers = vec![
        Steer {
            id: 1,
            at: t(1),
            text: "mind the docs".into(),
            state: SteerState::Seen,
        },
        Steer {
            id: 2,
            at: t(2),
            text: "and the \u{fc}mlauts".into(),
            state: SteerState::Delivered,
        },
        Steer {
            id: 3,
            at: t(3),
            text: "later".into(),
            state: SteerState::Recorded,
        },
    ];
    h.session = Some("5c0ffee5".into());
    h.session_position = Some(12);
    h.has_prompt = true;
    h.has_feedback = true;
    h.parent = Some(Lineage {
        run: "r-1".into(),
        iteration: 4,
        seq: 99,
    });
    h.last_message = Some("half of it works".into());
    let failure = IterationFailure {
        iteration: 2,
        at: t(90),
        what: "exit status 1".into(),
    };
    h.errors = vec![failure.clone()];
    h.finished_phases = vec![FinishedPhase {
        name: "plan".into(),
        at: t(100),
        iterations: 3,
        evidence: Some(Evidence::Promise),
        result: Some("the plan".into()),
        usage: UsageTotal::default(),
        errors: vec![failure],
    }];
    let last_check = json!({"phase": 0, "iteration": 3, "outcome": "failed"});
    h.last_check = serde_json::from_value(last_check).unwrap();
    h.attended = true;
    h.iterations_since_review = 4;
    h.retries.transient_failures = 2;
    h.retries.rate_limits = 1;
    h.retries.rate_limit_wait_ms = 60_000;
    h.continues_session = true;
    h.fresh_session = true;
    h.promised = true;
    h.made_no_progress = true;
    h.pausing = true;
    h.redo = Some(RedoScope::Iteration);
    h.stopping = Some(StopRequest {
        by: StopCause::Person,
        when: StopTiming::AfterIteration,
    });
    h.is_stopping_step = true;
    h.streaks.checks_not_run = 0;
    h.streaks.failures = 1;
    h.streaks.required_checks = 2;
    h.streaks.crashes = 1;
    h.streaks.no_progress = 2;
    h.counts.iterations = 8;
    h.counts.attempts = 12;
    h.counts.failed = 2;
    h.counts.unfinished_attempts = 3;
    h.counts.steers = 3;
    h.counts.denied = 4;
    h.counts.processes = 2;
    h.usage = UsageTotal {
        input_tokens: 123_456,
        output_tokens: 7_890,
        cost_microusd: 1_234_567,
    };
    h.last_iteration = serde_json::from_value(json!({
        "iteration": 6,
        "at": t(400),
        "failure": "required check 1 failed",
        "usage": UsageTotal::default(),
    }))
    .unwrap();
    h.started_at = t(0);
    h.taken_at = t(300);
    h.last_at = t(600);
    h.taken_attempts = 9;
    h.active_ms = 5_000;
    h
}

fn to_cbor(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).unwrap();
    bytes
}

/// Returns the same value with sorted keys, without the descriptions for people.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let is_prose = |key: &str, value: &Value| key == "description" && value.is_string();
            let mut keys: Vec<_> = map.iter().filter(|(k, v)| !is_prose(k, v)).collect();
            keys.sort_by_key(|(key, _)| *key);
            let values = keys.into_iter().map(|(k, v)| (k.clone(), sorted(v)));
            Value::Object(values.collect())
        }
        Value::Array(all) => all.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// Formats the schema of a type with one line for each key or variant; `?` marks an optional key.
#[cfg(feature = "schema")]
fn lines(name: &str, schema: &Value) -> String {
    let schema = sorted(schema);
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let mut text = format!("{name}\n");
    if let Some(variants) = schema["oneOf"].as_array() {
        variants
            .iter()
            .for_each(|it| text += &format!("  | {it}\n"));
    } else if let Some(keys) = schema["properties"].as_object() {
        for (key, value) in keys {
            let mark = if required.contains(&key.as_str().into()) {
                ""
            } else {
                "?"
            };
            text += &format!("  {key}{mark}: {value}\n");
        }
    } else {
        text += &format!("  = {schema}\n");
    }
    text
}

/// A change of a key or a variant needs a decision. Accept the snapshot only if older saved runs still have the same meaning.
#[cfg(feature = "schema")]
#[test]
fn schema_of_everything_that_is_serialised() {
    let mut all = schemars::SchemaGenerator::default();
    all.subschema_for::<Head>();
    all.subschema_for::<TimedInput>();
    all.subschema_for::<RunUpdate>();
    all.subschema_for::<CheckResult>();
    all.subschema_for::<Request>();
    let types: BTreeMap<_, _> = all.take_definitions(true).into_iter().collect();
    let text: String = types.iter().map(|(name, it)| lines(name, it)).collect();
    insta::assert_snapshot!(text);
}

#[test]
fn a_saved_head_has_these_bytes() {
    let text = serde_json::to_string_pretty(&full()).unwrap();
    insta::assert_snapshot!(text);
    // CBOR has the same keys in the same order, so the same types can read either format.
    let cbor = to_cbor(&full());
    assert!(cbor[2..].starts_with(b"\x67version\x01"), "{cbor:x?}");
    let value: ciborium::Value = ciborium::from_reader(cbor.as_slice()).unwrap();
    let head: Head = value.deserialized().unwrap();
    assert_eq!(head, full());
}

#[test]
fn c64a_newer_version_is_refused_by_name_and_not_rewritten() {
    let newer = r#"{"version":7,"phase":["as","never","seen"]}"#;
    let error = serde_json::from_str::<Head>(newer).unwrap_err().to_string();
    let both =
        "the state has version 7, but this program supports versions up to 1; use a newer program";
    assert!(error.starts_with(both), "{error}");
    let error = Version::try_from(7).unwrap_err();
    assert!(error.is_newer());
    assert_eq!(error.to_string(), both);
    let cbor = [b"\xa2\x67version\x07".as_slice(), b"\x65phase\x81\x62as"].concat();
    let error = ciborium::from_reader::<Head, _>(cbor.as_slice()).unwrap_err();
    assert!(error.to_string().contains(both), "{error}");
    // If a tool has sorted the keys, the version is not the first one, but it is still checked.
    let mut changed = serde_json::to_value(full()).unwrap();
    changed["version"] = 7.into();
    let text = sorted(&changed).to_string();
    let error = serde_json::from_str::<Head>(&text).unwrap_err();
    assert!(error.to_string().contains("version 7"), "{error}");
}

#[test]
fn impossible_head_is_refused() {
    let refused = |change: fn(&mut Value)| {
        let mut saved = serde_json::to_value(full()).unwrap();
        change(&mut saved);
        serde_json::from_value::<Head>(saved)
            .unwrap_err()
            .to_string()
    };
    let phase = refused(|head| head["phase"] = 2.into());
    let rules = refused(|head| head["rules"]["phases"] = Value::Array(vec![]));
    let batch = refused(|head| head["rules"]["autonomy"] = "batch:0".into());
    let count = refused(|head| head["highest_attempt"] = u32::MAX.into());
    // The machine would increment each of these numbers.
    let counts: [fn(&mut Value); 3] = [
        |head| head["streaks"]["checks_not_run"] = u32::MAX.into(),
        |head| head["step"] = json!({"required_check": {"index": u32::MAX}}),
        |head| head["step"] = json!({"recheck": {"index": u32::MAX}}),
    ];
    for change in counts {
        assert_eq!(refused(change), count);
    }
    let text = refused(|head| head["last_message"] = "x".repeat(MAX_TEXT + 1).into());
    let texts: [fn(&mut Value); 3] = [
        |head| head["steers"][0]["text"] = "x".repeat(MAX_STEER_BYTES).into(),
        |head| head["errors"] = vec![head["errors"][0].clone(); MAX_ERRORS + 1].into(),
        |head| head["prompt_steers"] = vec![1; MAX_STEERS + 1].into(),
    ];
    for change in texts {
        assert_eq!(refused(change), text);
    }
    let nowhere = refused(|head| {
        head["iteration"] = 0.into();
        head["step"] = "check".into();
    });
    let missing = refused(|head| drop(head.as_object_mut().unwrap().remove("version")));
    let version = refused(|head| head["version"] = 0.into());
    let all = [phase, rules, batch, count, text, nowhere, missing, version];
    insta::assert_snapshot!(all.join("\n"), @r"
    the state is in phase 2, which its rules don't have; use an earlier state
    the rules in the state are invalid: the run needs at least one phase
    a batch of 0 iterations is not possible; use at least 1
    a number in the state is too large; use an earlier state
    a text or list in the state is too long; use an earlier state
    the state is in iteration 0, which is invalid; use an earlier state
    missing field `version`
    the state has version 0, which is invalid; use an earlier state
    ");
}

#[test]
fn unknown_map_keys_are_skipped() {
    let mut saved = serde_json::to_value(full()).unwrap();
    saved["mood"] = "good".into();
    saved["rules"]["mood"] = Value::Array(vec![1.into()]);
    saved["steers"][0]["mood"] = Value::Null;
    assert_eq!(serde_json::from_value::<Head>(saved).unwrap(), full());
}
