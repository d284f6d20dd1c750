//! The protocols of model services. A dialect reads requests and formats replies. The choice and the timing of replies are independent of it.

mod chat;
mod gemini;
mod messages;
mod protocol;
mod responses;

pub(super) use protocol::Dialect;
/// Returns the dialect for `path`, if a request to it asks for a reply of the model.
pub(super) fn of(path: &str) -> Option<&'static dyn Dialect> {
    match path {
        "/v1/messages" => Some(&messages::Messages),
        "/v1/responses" => Some(&responses::Responses),
        "/v1/chat/completions" => Some(&chat::Chat),
        path if gemini::is_asked_at(path) => Some(&gemini::Gemini),
        _ => None,
    }
}
