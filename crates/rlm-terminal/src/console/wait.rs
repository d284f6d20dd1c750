//! Waiting for what may not be there: then for ever.

use std::future::pending;

use interrupt_stack::Notice;
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::scopes::Scopes;
use crate::editor::{Edited, Editor};
use crate::scope::Scope;
use crate::sink::Sink;
use crate::tty::Typed;

pub(super) async fn next_notice(scopes: &mut Option<Scopes>) -> (Scope, Notice) {
    match scopes {
        Some(scopes) => scopes.notified().await,
        None => pending().await,
    }
}

pub(super) async fn next_signal(signals: &mut Option<Signal>) {
    let came = match signals {
        Some(signals) => signals.recv().await,
        None => None,
    };
    if came.is_none() {
        pending::<()>().await;
    }
}

pub(super) async fn typed_before(
    typed: &mut mpsc::Receiver<Typed>,
    deadline: Option<Instant>,
) -> Result<Option<Typed>, Elapsed> {
    match deadline {
        Some(deadline) => timeout_at(deadline, typed.recv()).await,
        None => Ok(typed.recv().await),
    }
}

pub(super) async fn next_told(told: &mut Option<mpsc::Receiver<String>>) -> Option<String> {
    match told {
        Some(told) => told.recv().await,
        None => pending().await,
    }
}

pub(super) async fn edited(editor: &mut Option<Editor>) -> Edited {
    match editor {
        Some(editor) => editor.ended().await,
        None => pending().await,
    }
}

pub(super) async fn room(sink: Option<&Sink>) {
    match sink {
        Some(sink) => sink.room().await,
        None => pending().await,
    }
}
