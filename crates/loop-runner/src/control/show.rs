//! The owner's end of a run that is looked at from elsewhere.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::View;
use crate::control::fit;
use crate::control::peer::{Over, Peer};
use crate::control::protocol::{self, Answer, MAX_LINE};
use crate::control::told::Told;
use crate::news::News;
use crate::recent::Recent;
use loop_state::Timestamp;
use rlm_store::deadline::until;

/// How often it is told how the run stands, at most.
const VIEW_EVERY: Duration = Duration::from_millis(100);

/// Shows the run to a peer until it is over. One that lags misses news and is told how many; one that takes nothing any more is given up.
pub(super) async fn show(
    mut view: watch::Receiver<Arc<View>>,
    mut over: Over,
    recent: &Recent,
    peer: &mut Peer<'_>,
) -> io::Result<()> {
    let mut more = recent.subscribe();
    let mut viewed = Instant::now();
    tell_view(&mut view, peer).await?;
    let (mut batch, mut next) = recent.replay();
    loop {
        // Asked first: what was told before the end is there then.
        let ended = over.borrow_and_update().clone();
        more.borrow_and_update();
        loop {
            for (at, news) in batch {
                tell_news(at, news, peer).await?;
            }
            batch = recent.since(&mut next);
            if batch.is_empty() {
                break;
            }
        }
        let is_due = viewed.elapsed() >= VIEW_EVERY || ended.is_some();
        if is_due && view.has_changed().unwrap_or(true) {
            tell_view(&mut view, peer).await?;
            viewed = Instant::now();
        }
        if let Some(ended) = ended {
            return peer.tell(&Answer::Ended(ended)).await;
        }
        let due = viewed + VIEW_EVERY;
        tokio::select! {
            _ = more.changed() => {}
            changed = over.changed() => if changed.is_err() {
                return Ok(());
            },
            // Its sender stays as long as the run does.
            _ = async { until(due).await; view.changed().await } => view.mark_changed(),
        }
    }
}

async fn tell_view(view: &mut watch::Receiver<Arc<View>>, peer: &mut Peer<'_>) -> io::Result<()> {
    let now = Arc::clone(&view.borrow_and_update());
    peer.say(&fit::line(&now)).await
}

async fn tell_news(at: Timestamp, news: News, peer: &mut Peer<'_>) -> io::Result<()> {
    let news = Box::new(news);
    let mut line = protocol::line(&Told::News { at, news });
    if line.len() >= MAX_LINE {
        let news = Box::new(News::Missed(1));
        line = protocol::line(&Told::News { at, news });
    }
    peer.say(&line).await
}
