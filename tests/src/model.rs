//! A scripted model server on loopback: the program `fake-model`, and the same server on threads of a test ([`FakeModel`]).
//!
//! It supports the protocols of model services, streamed and plain, as far as a real agent CLI needs them for a turn: Anthropic's Messages API (`POST
//! /v1/messages`, `…/count_tokens`, `GET /v1/models`), OpenAI's Responses API (`POST /v1/responses`) and chat completions (`POST
//! /v1/chat/completions`), and Google's generateContent (`POST /v1beta/models/…`). A script of directives decides its replies. The script is in the
//! user's message; if it isn't, the default script applies:
//!
//! | directive | reply |
//! |---|---|
//! | `[[text T]]` | a text |
//! | `[[big BYTES]]` | a text of that size |
//! | `[[steered]]` | the user's text that arrived while the model worked on this turn |
//! | `[[recall]]` | the first message of the conversation |
//! | `[[continue MS]]` | for all messages: after MS milliseconds, the next reply of the last script in the conversation; a call that was not run is made again |
//! | `[[sh CMD]]` | a call of the client's shell tool |
//! | `[[tool NAME {JSON}]]` | a call of the named tool |
//! | `[[slow MS SEC]]` | one token every MS milliseconds for SEC seconds |
//! | `[[hang SEC]]` | headers, then silence |
//! | `[[stall N SEC]]` | N tokens, then silence |
//! | `[[status CODE RETRY N]]` | N requests fail with CODE, `retry-after: RETRY` (`-` for none), then the next directive applies |
//! | `[[drop TOKENS N]]` | N requests are cut off after that many tokens, then the next directive applies |
//!
//! After the last directive the reply is `All done.` The request alone decides which directive applies (by the number of replies after the last
//! message of the user), so the script survives restarts and resumed sessions. The server counts only the failures of `status` and `drop`. A request
//! without tools is a side request (titles, summaries) and gets `ok`.
//!
//! The same address is also an MCP server, at `/mcp`; so is `fake-model --tools` on its stdin and stdout. Its one tool returns the word in the
//! request's `Authorization`, or in `FAKE_TOOLS_WORD`: a client that gets the word has passed its secret.

mod dialect;
mod http;
mod reply;
mod request;
mod script;
mod send;
mod server;
mod tools;

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

pub use request::Item;
pub use server::{FakeModel, Options, Outcome, Request};

#[derive(Debug, Parser)]
#[command(
    name = "fake-model",
    about = "A scripted model server on loopback; ends when its stdin closes"
)]
struct Arguments {
    /// Port; 0 is any. The first line on stdout names the chosen port
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Script for messages without directives
    #[arg(long, default_value = "")]
    default: String,
    /// File that gets one JSON object per line: each request, and how its reply ended
    #[arg(long)]
    log: Option<PathBuf>,
    /// Run as an MCP server on stdin and stdout instead
    #[arg(long)]
    tools: bool,
}

/// Runs `fake-model`.
pub fn main_impl() -> ExitCode {
    let Arguments {
        port,
        default,
        log,
        tools,
    } = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _unheard = error.print();
            return ExitCode::from(2);
        }
    };
    let served = if tools {
        tools::serve()
    } else {
        serve(&Options { port, default, log })
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _unheard = writeln!(io::stderr(), "fake-model: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &Options) -> io::Result<()> {
    let model = FakeModel::with(options)?;
    writeln!(io::stdout(), "{}", model.port())?;
    let mut ignored = [0; 512];
    while io::stdin().read(&mut ignored)? > 0 {}
    Ok(())
}
