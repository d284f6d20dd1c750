//! The protocols of model services. A dialect reads requests and words replies; which reply is due, and when what of it goes out, is the same for all.

mod chat;
mod gemini;
mod messages;
mod protocol;
mod responses;

pub(super) use protocol::Dialect;
/// The dialect that is spoken at `path`, if what is asked for there is a reply of the model's.
pub(super) fn of(path: &str) -> Option<&'static dyn Dialect> {
    match path {
        "/v1/messages" => Some(&messages::Messages),
        "/v1/responses" => Some(&responses::Responses),
        "/v1/chat/completions" => Some(&chat::Chat),
        path if gemini::is_asked_at(path) => Some(&gemini::Gemini),
        _ => None,
    }
}
