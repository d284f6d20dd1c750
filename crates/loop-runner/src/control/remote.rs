//! The messages of other machines to a run of a fleet: the lines of the control socket, without the socket. The fleet has checked who may send them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rlm_store::RemoteMessage;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::control::connection::ControlService;
use crate::control::peer::Peer;
use crate::control::protocol::{self, ControlMessage, ControlQuery, Response};

/// Serves the messages of other machines until their channel is closed. Requests are applied one at a time, in the order of their numbers: so the number
/// of the last applied request says that all earlier ones are applied too.
pub(super) async fn serve(
    connection: Arc<ControlService>,
    mut messages: mpsc::Receiver<RemoteMessage>,
) {
    while let Some(message) = messages.recv().await {
        let RemoteMessage {
            line,
            number,
            wait,
            to,
        } = message;
        let connection = Arc::clone(&connection);
        let request = match (protocol::parse_message(&line), number) {
            (Ok(ControlMessage::Request(request)), Some(_)) => request,
            (other, _) => {
                tokio::spawn(answer(connection, other, wait, to));
                continue;
            }
        };
        let result = connection.apply(&request, number).await;
        // Without a free place, the request is applied and nothing reports it.
        let Ok(place) = Arc::clone(&connection.remote_places).try_acquire_owned() else {
            continue;
        };
        tokio::spawn(async move {
            let mut peer = Peer::Remote(&to);
            // Both a peer that is gone and the end of its wait end the report. The request stays in force.
            let _over = timeout(wait, connection.report(&request, result, &mut peer)).await;
            drop(place);
        });
    }
}

/// Answers a query, or a message that is no request of the fleet.
async fn answer(
    connection: Arc<ControlService>,
    message: Result<ControlMessage, Response>,
    wait: Duration,
    to: mpsc::Sender<Vec<u8>>,
) -> io::Result<()> {
    let mut peer = Peer::Remote(&to);
    let Ok(_place) = connection.remote_places.try_acquire() else {
        return peer.send(&Response::Busy).await;
    };
    match message {
        Ok(ControlMessage::Query(ControlQuery::Status)) => peer.send(&connection.status()).await,
        Ok(ControlMessage::Query(ControlQuery::Attach { attended })) => {
            let over = connection.end.clone();
            // The end of the wait must not cancel `attach`, which counts the attached persons.
            let gone = async {
                let _elapsed = timeout(wait, to.closed()).await;
            };
            connection.attach(attended, over, gone, &mut peer).await
        }
        Ok(ControlMessage::Request(_)) => {
            let reason = "the fleet did not record this request".into();
            peer.send(&Response::Malformed { reason }).await
        }
        Err(refusal) => peer.send(&refusal).await,
    }
}
