//! Tests the examples in `docs/schedulers`: their syntax, the fields that they need, and their calls of `rlm`.

use std::io::Write as _;
use std::process::{Command as Process, Stdio};

use clap::Parser;
use rlm_text::duration;
use serde_json::{Value, json};

use super::super::{Args, Command};
use super::expect_calls;
use crate::exit::Code;

fn example(name: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schedulers/");
    fs_err::read_to_string(format!("{root}{name}")).unwrap()
}

fn yaml(name: &str) -> Value {
    serde_saphyr::from_str(&example(name)).unwrap()
}

/// Expects that each key below `at` is known or needed, and that all needed keys exist.
#[track_caller]
fn keys(value: &Value, at: &str, known: &[&str], needed: &[&str]) {
    let map = value.pointer(at).and_then(Value::as_object);
    let map = map.unwrap_or_else(|| panic!("no table at {at}"));
    for key in map.keys() {
        assert!(
            known.contains(&key.as_str()) || needed.contains(&key.as_str()),
            "{at}/{key}"
        );
    }
    for key in needed {
        assert!(map.contains_key(*key), "{at} has no {key}");
    }
}

fn texts(value: &Value) -> Vec<&str> {
    let list = value.as_array().into_iter().flatten();
    list.map(|it| it.as_str().unwrap()).collect()
}

#[track_caller]
fn parse(words: &[&str]) -> Command {
    match Args::try_parse_from(words) {
        Ok(args) => args.command,
        Err(why) => panic!("{words:?}\n{why}"),
    }
}

/// Has a shell parse a text without running it.
#[track_caller]
fn expect_shell(shell: &str, text: &str) {
    let mut shell = Process::new(shell)
        .arg("-n")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = shell.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    assert!(shell.wait().unwrap().success(), "{text}");
}

/// Counts the calls of `rlm` in a line of shell, whatever comes before them.
#[track_caller]
fn calls_in(place: &str, line: &str) -> usize {
    let mut calls = 0;
    for part in line.split("&&").flat_map(|part| part.split("||")) {
        let at = part.find("rlm ");
        if let Some(at) = at.filter(|at| *at == 0 || part[..*at].ends_with(' ')) {
            calls += expect_calls(place, &part[at..].replace('"', "'"));
        }
    }
    calls
}

/// The exit codes after which no scheduler tries again.
const FINAL: [Code; 6] = [
    Code::Usage,
    Code::Limit,
    Code::Budget,
    Code::Stuck,
    Code::Stopped,
    Code::NotFound,
];

#[test]
fn x113g_kubernetes_accepts_the_job() {
    let job = yaml("kubernetes.yaml");
    assert_eq!(
        (&job["apiVersion"], &job["kind"]),
        (&json!("batch/v1"), &json!("Job"))
    );
    keys(&job, "", &[], &["apiVersion", "kind", "metadata", "spec"]);
    let spec = [
        "completions",
        "parallelism",
        "podReplacementPolicy",
        "activeDeadlineSeconds",
    ];
    keys(
        &job,
        "/spec",
        &spec,
        &["backoffLimit", "podFailurePolicy", "template"],
    );
    let pod = "/spec/template/spec";
    let of_pod = [
        "terminationGracePeriodSeconds",
        "securityContext",
        "containers",
        "volumes",
    ];
    keys(&job, pod, &["restartPolicy"], &of_pod);
    // With any other restart policy, Kubernetes refuses the `podFailurePolicy`.
    assert_eq!(
        job.pointer("/spec/template/spec/restartPolicy").unwrap(),
        "Never"
    );
    let who = [
        "runAsNonRoot",
        "runAsUser",
        "runAsGroup",
        "fsGroup",
        "seccompProfile",
    ];
    keys(&job, "/spec/template/spec/securityContext", &who, &[]);
    let at = "/spec/template/spec/containers/0";
    let known = [
        "image",
        "workingDir",
        "env",
        "envFrom",
        "startupProbe",
        "resources",
        "securityContext",
    ];
    keys(
        &job,
        at,
        &known,
        &["name", "command", "args", "livenessProbe", "volumeMounts"],
    );
    let container = job.pointer(at).unwrap();
    for probe in ["startupProbe", "livenessProbe"] {
        let times = ["periodSeconds", "timeoutSeconds", "failureThreshold"];
        keys(
            container,
            &format!("/{probe}"),
            &[],
            &[&["exec"], &times[..]].concat(),
        );
        let Command::Status(status) = parse(&texts(&container[probe]["exec"]["command"])) else {
            panic!("the probe is a status command")
        };
        assert_eq!(
            (status.runs.run.as_deref(), status.alive),
            (Some("nightly"), true)
        );
        // Longer than the timeout of the probe itself.
        assert!(container[probe]["timeoutSeconds"].as_u64() > Some(5));
    }
    let line = [texts(&container["command"]), texts(&container["args"])].concat();
    let Command::Run(run) = parse(&line) else {
        panic!("the command is a run")
    };
    assert!(run.resume_or_start && run.run_id.unwrap().as_str() == "nightly");
    assert!(run.config.heartbeat.is_some() && run.show.no_input);
    // Every mounted volume exists.
    let volumes = job
        .pointer("/spec/template/spec/volumes")
        .unwrap()
        .as_array()
        .unwrap();
    for mount in container["volumeMounts"].as_array().unwrap() {
        assert!(
            volumes.iter().any(|volume| volume["name"] == mount["name"]),
            "{mount}"
        );
    }
    let env = container["env"].as_array().unwrap();
    let timeout = env
        .iter()
        .find(|it| it["name"] == "RLM_SHUTDOWN_TIMEOUT")
        .unwrap();
    let timeout = duration::parse(timeout["value"].as_str().unwrap()).unwrap();
    let grace = job.pointer("/spec/template/spec/terminationGracePeriodSeconds");
    assert!(grace.unwrap().as_u64().unwrap() >= timeout.as_secs() + 5);
    let rules = job
        .pointer("/spec/podFailurePolicy/rules")
        .unwrap()
        .as_array()
        .unwrap();
    let ended = rules
        .iter()
        .find(|rule| rule["action"] == "FailJob")
        .unwrap();
    keys(
        ended,
        "/onExitCodes",
        &[],
        &["containerName", "operator", "values"],
    );
    assert_eq!(ended["onExitCodes"]["containerName"], container["name"]);
    let codes = FINAL.map(|code| json!(code as u8));
    assert_eq!(ended["onExitCodes"]["values"], json!(codes));
}

#[test]
fn x113g_github_accepts_the_workflow() {
    let flow = yaml("github-actions.yml");
    keys(
        &flow,
        "",
        &["name", "permissions"],
        &["on", "jobs", "concurrency"],
    );
    keys(&flow, "/concurrency", &[], &["group", "cancel-in-progress"]);
    keys(
        &flow,
        "/jobs/loop",
        &[],
        &["runs-on", "timeout-minutes", "steps"],
    );
    let most = flow.pointer("/jobs/loop/timeout-minutes").unwrap();
    assert!(
        most.as_u64().unwrap() < 360,
        "a job is killed after six hours"
    );
    let mut calls = 0;
    for step in flow
        .pointer("/jobs/loop/steps")
        .unwrap()
        .as_array()
        .unwrap()
    {
        keys(
            step,
            "",
            &["name", "id", "uses", "with", "run", "env", "if"],
            &[],
        );
        assert!(
            step["uses"].is_string() != step["run"].is_string(),
            "{step}"
        );
        if let Some(text) = step["run"].as_str() {
            expect_shell("bash", text);
            calls += text
                .lines()
                .map(|line| calls_in("the workflow", line))
                .sum::<usize>();
        }
    }
    assert_eq!(calls, 1);
}

/// Returns the settings of a unit with their sections, in order.
fn unit(name: &str) -> Vec<(String, String, String)> {
    let (mut section, mut settings) = (String::new(), Vec::new());
    for line in example(name).lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            name.strip_suffix(']').unwrap().clone_into(&mut section);
        } else if !line.is_empty() && !line.starts_with('#') {
            let (key, value) = line.split_once('=').unwrap();
            settings.push((section.clone(), key.to_owned(), value.to_owned()));
        }
    }
    settings
}

#[test]
fn x113g_systemd_accepts_the_units() {
    let service = unit("rlm.service");
    let of = |key: &str| {
        let found = service.iter().find(|(_, known, _)| known == key);
        found.unwrap_or_else(|| panic!("no {key}")).2.as_str()
    };
    let line = of("ExecStart").strip_prefix("/usr/bin/env ").unwrap();
    assert_eq!(expect_calls("rlm.service", &line.replace('"', "'")), 1);
    assert_eq!((of("KillMode"), of("Type")), ("mixed", "exec"));
    let given = of("Environment")
        .strip_prefix("RLM_SHUTDOWN_TIMEOUT=")
        .unwrap();
    let given = duration::parse(given).unwrap();
    assert!(duration::parse(of("TimeoutStopSec")).unwrap() > given);
    let codes: Vec<u8> = { of("RestartPreventExitStatus").split(' ') }
        .map(|code| code.parse().unwrap())
        .collect();
    assert!(FINAL.iter().all(|code| codes.contains(&(*code as u8))));
    for again in [Code::Failed, Code::RateLimit] {
        assert!(!codes.contains(&(again as u8)));
    }
    assert!(
        unit("rlm.timer")
            .iter()
            .any(|(_, key, value)| key == "Unit" && value == "rlm.service")
    );
    let places = ["rlm.service", "rlm.timer"].map(|name| {
        format!(
            "{}/../../docs/schedulers/{name}",
            env!("CARGO_MANIFEST_DIR")
        )
    });
    let verified = Process::new("systemd-analyze")
        .args(["--user", "verify"])
        .args(places)
        .env("XDG_RUNTIME_DIR", std::env::temp_dir())
        .output();
    match verified {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let of_ours = errors
                .lines()
                .filter(|line| line.contains("rlm."))
                .collect::<Vec<_>>();
            assert!(of_ours.is_empty(), "{of_ours:?}");
        }
        Err(why) => println!("skipped: systemd-analyze: {why}"),
    }
}

/// Returns whether a field of a crontab is valid: `*`, numbers, ranges, lists and steps within these bounds.
fn is_field(field: &str, least: u32, most: u32) -> bool {
    let is_number = |text: &str| {
        text.parse()
            .is_ok_and(|number: u32| (least..=most).contains(&number))
    };
    field.split(',').all(|part| {
        let (range, step) = part.split_once('/').unwrap_or((part, "1"));
        let is_range = match range.split_once('-') {
            Some((from, to)) => is_number(from) && is_number(to),
            None => range == "*" || is_number(range),
        };
        is_range && step.parse().is_ok_and(|step: u32| step > 0)
    })
}

#[test]
fn x113g_cron_accepts_the_crontab() {
    let mut calls = 0;
    for line in example("crontab").lines() {
        // Commented lines must be valid too.
        let line = line.strip_prefix("# ").unwrap_or(line);
        let is_line = line.starts_with(|c: char| c.is_ascii_digit() || c == '*');
        if !is_line {
            continue;
        }
        let mut rest = line;
        for (least, most) in [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)] {
            let (field, more) = rest.trim_start().split_once(' ').unwrap();
            assert!(is_field(field, least, most), "{field} in {line}");
            rest = more;
        }
        assert!(!rest.contains('%'), "a % would end the line: {line}");
        expect_shell("sh", rest);
        calls += calls_in("crontab", rest.trim_start());
    }
    assert_eq!(calls, 3);
}

#[test]
fn x113g_docker_accepts_the_dockerfile() {
    let text = example("Dockerfile").replace("\\\n", " ");
    let mut parsed = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (what, rest) = line.split_once(' ').unwrap();
        let known = [
            "FROM",
            "RUN",
            "COPY",
            "USER",
            "ENV",
            "WORKDIR",
            "STOPSIGNAL",
            "HEALTHCHECK",
            "ENTRYPOINT",
            "CMD",
        ];
        assert!(known.contains(&what), "{line}");
        if what == "RUN" {
            expect_shell("sh", rest);
        }
        parsed.push((what, rest));
    }
    assert_eq!(parsed[0].0, "FROM");
    let list = |what: &str| -> Vec<String> {
        let (_, rest) = parsed.iter().find(|(known, _)| *known == what).unwrap();
        serde_json::from_str(&rest[rest.find('[').unwrap()..]).unwrap()
    };
    let line = [list("ENTRYPOINT"), list("CMD")].concat();
    let Command::Run(run) = parse(&line.iter().map(String::as_str).collect::<Vec<_>>()) else {
        panic!("the command is a run")
    };
    let check = list("HEALTHCHECK");
    let Command::Status(status) = parse(&check.iter().map(String::as_str).collect::<Vec<_>>())
    else {
        panic!("the command is a status command")
    };
    assert_eq!(status.runs.run.unwrap(), run.run_id.unwrap().as_str());
    assert!(status.alive && run.resume_or_start);
}
