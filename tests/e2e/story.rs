//! A whole evening of one person with a loop. A snapshot has the screens, with times and names replaced.
//!
//! The live checks play the same steps with a real agent.

use rlm_tests::story::Story;
use rlm_tests::{Running, Terminal, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::menu::open;
use crate::scene::{Scene, json};
use crate::{FAKE_AGENT, LONG};

/// Each start waits at the required points: for a message, and for a file that the test writes.
const AGENT: &str = "\
@1 say I look at the parser first.\n@1 tool Bash cargo test\n@1 expect-steer\n@1 tool-end 1 failed\n\
@1 say Tabs it is.\n@1 await ../indented\n@1 turn\n\
@2 say Now the names.\n@2 child plain\n@2 child setsid\n@2 child daemon\n@2 touch ../named\n@2 hang\n\
@3 say I was interrupted; the names are half done.\n@3 touch ../again\n@3 hang";

/// A person with two terminals.
struct Evening {
    scene: Scene,
    story: Story,
}

impl Evening {
    /// Types a command outside of any prompt, and records its output.
    #[track_caller]
    fn types(&mut self, command: &[&str], code: i32) -> String {
        let ended = self.scene.talking(command).run(LONG).expect_code(code);
        let shown = ended.stdout.clone() + &ended.stderr;
        self.story.add(command, &shown);
        ended.stdout
    }

    fn watches(&self, command: &[&str]) -> (Running, Terminal) {
        // Wide enough that no line wraps.
        self.scene
            .talking(command)
            .size(40, 200)
            .spawn_on_terminal()
    }
}

#[test]
fn whole_session_with_a_loop() {
    let mut evening = Evening {
        scene: Scene::new(AGENT),
        story: Story::default(),
    };
    evening.types(&["init"], 0);
    fs_err::write(evening.scene.file("PROMPT.md"), "Fix the parser.\n").unwrap();
    let run = [
        "run",
        "--detach",
        "--until",
        "test -e done",
        "--sleep",
        "0",
        "--agent",
        "claude",
        "--agent-bin",
        FAKE_AGENT,
    ];
    evening.types(&run, 0);
    evening.scene.wait_until_recorded("cargo test");
    // A steer during the turn.
    let (watching, terminal) = evening.watches(&["attach"]);
    // This line is the last of the beginning. The status row names the tool earlier, and an Enter that the terminal echoes meanwhile moves the rows.
    terminal.sees("● Bash: cargo test", LONG);
    terminal.send("\r");
    terminal.sees("steer>", LONG);
    terminal.send("use tabs\r");
    terminal.sees("seen by the agent", LONG);
    terminal.sees("Tabs it is.", LONG);
    // A pause from another terminal acts at the end of the iteration.
    evening.types(&["pause", "--reason", "a look first", "--wait", "0"], 0);
    terminal.sees("will pause", LONG);
    fs_err::write(evening.scene.file("../indented"), "").unwrap();
    terminal.sees("paused", LONG);
    wait_for("the pause", LONG, || {
        (evening.scene.status()["state"] == "paused").then_some(())
    });
    // The person detaches. The run continues, and can be found again.
    open(&terminal);
    terminal.send("d");
    watching.wait(LONG).expect_code(0);
    // Another thread reads the last output of the viewer.
    terminal.sees("detached; run", LONG);
    evening.story.add(&["attach"], &terminal.scrolled());
    drop(terminal);
    evening.types(&["ps"], 0);
    evening.types(&["resume"], 0);
    evening.scene.wait_for_file("../named");
    let (watching, terminal) = evening.watches(&["attach"]);
    terminal.sees("Now the names.", LONG);
    // A crash during the next iteration ends all its processes.
    assert_eq!(evening.scene.tree_alive(), 4);
    let listed = evening.scene.rlm(&["ps", "--json"]).run(LONG).stdout;
    let pid = json(&listed)["pid"].as_i64().unwrap() as i32;
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let left = watching.wait(LONG);
    assert!(left.code() != Some(0), "{left}");
    evening.scene.wait_until_nothing_is_alive();
    evening.story.add(&["attach"], &terminal.scrolled());
    drop(terminal);
    evening.types(&["status"], 0);
    // The run continues at the same place.
    let (running, terminal) = evening.watches(&["resume"]);
    terminal.sees("I was interrupted", LONG);
    evening.scene.wait_for_file("../again");
    let stopped = evening.types(&["stop"], 0);
    assert!(stopped.contains("all processes ended"), "{stopped}");
    running.wait(LONG).expect_code(7);
    evening.story.add(&["resume"], &terminal.scrolled());
    evening.scene.expect_nothing_alive();
    evening.types(&["status"], 0);
    assert_eq!(evening.scene.start_count(), 3);
    let told = evening.scene.received_messages();
    assert_eq!(
        told.iter().filter(|text| text.contains("use tabs")).count(),
        1,
        "{told:?}"
    );
    assert!(
        told.last()
            .unwrap()
            .contains("attempt 1 of iteration 2 did not finish"),
        "{told:?}"
    );
    let home = evening.scene.sandbox.path().to_string_lossy();
    let names = [(&*home, "/HOME"), (FAKE_AGENT, "AGENT")];
    insta::assert_snapshot!(evening.story.stable(&names));
}
