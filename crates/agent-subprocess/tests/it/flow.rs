//! Output of any amount and form, in bounded memory.

use crate::scene::{DEADLINE, Scene, alone, stdout};
use agent_subprocess::{Containment, Line, StopPolicy, Stream};
use std::time::Duration;
use tokio::time::timeout;

/// Returns the maximum memory of this process since [`forget_peak`], in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status
        .lines()
        .filter_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = lines.next().unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().unwrap() << 10
}

fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

#[tokio::test]
async fn p3_memory_stays_flat_for_any_amount_of_output() {
    // The measured memory is that of the whole process.
    if !alone("flow::p3_memory_stays_flat_for_any_amount_of_output") {
        return;
    }
    let scene = Scene::new();
    let mut peaks = Vec::new();
    for megabytes in [16, 1024] {
        forget_peak();
        // Lines of 1000 bytes, and one line of 1 MiB for each 64 MiB.
        let script = format!(
            "for n in $(seq {}); do yes $(printf %0999d 7) | head -c 16000000; [ $((n % 4)) = 0 ] && head -c 1000000 /dev/zero && echo; done; echo end",
            megabytes / 16
        );
        let mut agent = scene.agent(&script).spawn().await.unwrap();
        let (mut bytes, mut last) = (0, None);
        while let Some(output) = agent.next_output().await {
            bytes += output.line.bytes.len() + 1;
            last = Some(output.line);
        }
        assert_eq!(last.unwrap().text(), "end", "{}", agent.stderr_tail());
        assert!(bytes >= megabytes / 16 * 16_000_000, "{bytes}");
        agent.stop(&StopPolicy::default()).await;
        peaks.push(peak());
    }
    assert!(peaks[1] < peaks[0] + (16 << 20), "{peaks:?}");
}

#[tokio::test]
async fn p1a_p1b_p2a_p5_x115c_overlong_line_is_an_item_and_the_stream_continues() {
    for containment in [Containment::Guard, Containment::Group] {
        let scene = Scene::new();
        // 40 MB in one line, of which 1000 bytes are kept; then bytes that are not text; then an unterminated line.
        let script = r#"echo first; printf a; head -c 40000000 /dev/zero; echo z; printf 'bad \377\300 text\n\r\nhalf'"#;
        let command = scene.agent(script).max_line(1000).containment(containment);
        let mut agent = command.spawn().await.unwrap();
        let mut lines: Vec<Line> = Vec::new();
        while let Some(output) = agent.next_output().await {
            lines.push(output.line);
        }
        let long = &lines[1];
        assert_eq!(
            (long.bytes.len(), long.truncated),
            (1000, Some(40_000_002 - 1000))
        );
        assert_eq!(
            (long.bytes[0], long.bytes[999], long.terminated),
            (b'a', b'z', true)
        );
        let others = [0, 2, 3, 4].map(|n| (lines[n].text().into_owned(), lines[n].terminated));
        let expected = [
            ("first", true),
            ("bad \u{fffd}\u{fffd} text", true),
            ("\r", true),
            ("half", false),
        ];
        assert_eq!(
            others.each_ref().map(|(text, end)| (text.as_str(), *end)),
            expected
        );
        assert!(agent.wait().await.success());
    }
}

#[tokio::test]
async fn p6a_p6b_p6c_unread_flood_of_standard_error_delays_nothing() {
    let scene = Scene::new();
    let script = "yes complaint | head -c 16000000 >&2; echo done >&2; echo out";
    let mut agent = scene.agent(script).spawn().await.unwrap();
    assert!(
        tokio::time::timeout(DEADLINE, agent.wait())
            .await
            .unwrap()
            .success()
    );
    let mut complaints = 0;
    let mut out = Vec::new();
    while let Some(output) = agent.next_output().await {
        match output.stream {
            Stream::Stdout => out.push(output.line.text().into_owned()),
            Stream::Stderr => complaints += output.line.bytes.len(),
        }
    }
    assert_eq!(out, ["out"]);
    assert!((1..=2 << 20).contains(&complaints), "{complaints}");
    let tail = agent.stderr_tail();
    assert!(
        tail.len() == 64 << 10 && tail.ends_with("complaint\ndone\n"),
        "{}",
        tail.len()
    );
}

#[tokio::test]
async fn agent_that_closes_its_streams_early_is_awaited() {
    let scene = Scene::new();
    let script = "echo all; exec >&- 2>&-; while [ ! -e go ]; do sleep 0.02; done; exit 9";
    let mut agent = scene.agent(script).spawn().await.unwrap();
    assert_eq!(
        stdout(&mut agent).await,
        ["all"],
        "the end of both streams is reported"
    );
    assert!(!agent.has_exited());
    std::fs::write(scene.path("go"), "").unwrap();
    assert_eq!(agent.wait().await.code, Some(9));
}

/// Returns the number of bytes that a process has written so far.
fn written(pid: u32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let written = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    written.map_or(0, |written| written.parse().unwrap())
}

#[tokio::test]
async fn l90c_agent_with_unread_output_blocks_and_can_be_stopped() {
    let scene = Scene::new();
    let mut agent = scene.agent("yes; echo never").spawn().await.unwrap();
    let first = agent.next_output().await.unwrap();
    assert_eq!(first.line.text(), "y");
    let pid = agent.leftovers().await[0].pid;
    // More than the crate reads ahead, together with the content of the pipe.
    let enough = async {
        while written(pid) < 4_200_000 {
            let moment = Duration::from_millis(1);
            let _due = timeout(moment, std::future::pending::<()>()).await;
        }
    };
    timeout(DEADLINE, enough).await.unwrap();
    let report = agent.stop(&StopPolicy::kill()).await;
    assert!(
        report.survivors.is_empty() && !report.outputs_ended,
        "{report:?}"
    );
    // The lines that were read ahead can still be taken, and their number is bounded.
    let ahead = stdout(&mut agent).await.len();
    assert!(ahead < 8 << 20, "{ahead}");
    scene.assert_no_process_is_left();
}

#[tokio::test]
async fn l90c_output_ends_with_the_agent_despite_a_writing_leftover() {
    for stream in ["", ">&2"] {
        let scene = Scene::new();
        let script = format!("setsid yes {stream} & echo mine; exit 3");
        let mut agent = scene.agent(&script).spawn().await.unwrap();
        let all = async {
            let mut mine = 0;
            while let Some(output) = agent.next_output().await {
                mine += usize::from(output.line.bytes == "mine");
            }
            mine
        };
        assert_eq!(timeout(DEADLINE, all).await, Ok(1), "{stream}");
        assert_eq!(agent.wait().await.code, Some(3));
        let report = agent.stop(&StopPolicy::kill()).await;
        assert!(report.is_proven() && !report.outputs_ended, "{report:?}");
    }
}

#[tokio::test]
async fn p3_many_empty_lines_take_no_more_memory_than_long_ones() {
    if !alone("flow::p3_many_empty_lines_take_no_more_memory_than_long_ones") {
        return;
    }
    let scene = Scene::new();
    let script = "yes '' | head -c 8000000; echo end";
    let mut agent = scene.agent(script).spawn().await.unwrap();
    let before = peak();
    let mut lines = 0;
    while agent.next_output().await.is_some() {
        lines += 1;
    }
    assert_eq!(lines, 8_000_001);
    // 4 MiB are read ahead. If these lines were split before the caller takes them, they would use 400 MiB.
    assert!(peak() < before + (16 << 20), "{before} {}", peak());
}
