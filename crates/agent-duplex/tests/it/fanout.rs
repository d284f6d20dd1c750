//! Many readers of one conversation: they share the events, and a stalled reader uses no memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent_duplex::scripted::{Script, ScriptedDriver};
use agent_duplex::{
    ConversationEvent, ConversationOptions, EndReason, Line, Observation, Published, Stream,
    Subscription,
};
use bytes::Bytes;

use crate::support::{TestConversation, soon, steered};

const READERS: usize = 100;
const LINE: usize = 256 << 10;
/// The number of lines. Together they have one gigabyte.
const LINES: usize = 4096;

/// The number of existing lines, and the maximum so far.
#[derive(Debug, Default)]
struct Lines {
    now: AtomicUsize,
    most: AtomicUsize,
}

struct Counted {
    bytes: &'static [u8],
    lines: Arc<Lines>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.lines.now.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lines {
    fn line(self: &Arc<Self>) -> Observation {
        static BYTES: [u8; LINE] = [b'x'; LINE];
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        let bytes = Bytes::from_owner(Counted {
            bytes: &BYTES,
            lines: Arc::clone(self),
        });
        Observation::output(Stream::Stdout, Line { bytes, omitted: 0 })
    }
}

/// Reads to the end of the turn; returns the last sequence number and the number of lines.
async fn read(mut subscription: Subscription) -> (u64, usize) {
    let (mut last, mut lines) = (0, 0);
    loop {
        let published = soon(subscription.next_shared()).await;
        let published = published
            .expect("the conversation continues")
            .expect("the reader is fast enough");
        assert!(last == 0 || published.sequence == last + 1);
        last = published.sequence;
        match published.event {
            ConversationEvent::Observed(_) => lines += 1,
            ConversationEvent::Completed(_) => return (last, lines),
            _ => {}
        }
    }
}

#[tokio::test]
async fn l87a_l87b_l87c_p11a_hundred_readers_and_a_stalled_one_keep_memory_flat() {
    let lines = Arc::new(Lines::default());
    let mut script = Script::new().message().begin();
    for _ in 0..LINES {
        let lines = Arc::clone(&lines);
        script = script.make(move |_| lines.line());
    }
    let driver = ScriptedDriver::new(steered()).with_script(script.end(EndReason::Completed));
    let options = ConversationOptions::default()
        .with_manual_start()
        .with_backlog(50);
    let mut talk = TestConversation::limited(driver, options);
    let mut stalled = talk.conversation.subscribe(20);
    let readers: Vec<_> = (0..READERS)
        .map(|_| tokio::spawn(read(talk.conversation.subscribe(1000))))
        .collect();
    talk.send("go");
    talk.start().await;
    let mut last = 0;
    loop {
        let published = soon(talk.primary.next_shared())
            .await
            .expect("the conversation continues");
        last += 1;
        assert_eq!(published.sequence, last);
        if matches!(published.event, ConversationEvent::Completed(_)) {
            break;
        }
    }
    for reader in readers {
        assert_eq!(soon(reader).await.unwrap(), (last, LINES));
    }
    for sequence in 1..=20 {
        let kept = soon(stalled.next_shared()).await.unwrap().unwrap();
        assert_eq!(kept.sequence, sequence);
    }
    let dropped = soon(stalled.next_shared()).await.unwrap().unwrap_err();
    assert_eq!(dropped.last, 20);
    // 8 MiB wait for the primary, 8 MiB for the readers, 8 MiB for the history, and 20 events for the stalled reader.
    let most = lines.most.load(Ordering::Relaxed);
    assert!(most <= 3 * 32 + 20 + 4, "{most} lines at once");
    // Only the history is left: 1 MiB after a flood.
    assert_eq!(lines.now.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn all_readers_get_the_same() {
    let script = Script::new().message().begin().report_message("hello");
    let driver = ScriptedDriver::new(steered()).with_script(script.end(EndReason::Completed));
    let mut talk = TestConversation::with(driver);
    let mut one = talk.conversation.subscribe(10);
    let mut other = talk.conversation.replay(10);
    talk.send("go");
    talk.start().await;
    for _ in 0..3 {
        let primary: Arc<Published> = soon(talk.primary.next_shared()).await.unwrap();
        let one = soon(one.next_shared()).await.unwrap().unwrap();
        let other = soon(other.next_shared()).await.unwrap().unwrap();
        assert!(Arc::ptr_eq(&primary, &one) && Arc::ptr_eq(&one, &other));
    }
}
