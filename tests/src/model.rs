//! A scripted model server on loopback: the program behind `fake-model`, and the same server on threads of a test ([`FakeModel`]).
//!
//! It speaks enough of the protocols of model services, streamed and plain, for a real agent CLI to work a turn: Anthropic's Messages API
//! (`POST /v1/messages`, `…/count_tokens`, `GET /v1/models`), OpenAI's Responses API (`POST /v1/responses`) and chat completions
//! (`POST /v1/chat/completions`), and Google's generateContent (`POST /v1beta/models/…`). What it answers is a script of directives, taken
//! from the user's own message or else from the default:
//!
//! | directive | the reply |
//! |---|---|
//! | `[[text T]]` | a text |
//! | `[[big BYTES]]` | a text of that size |
//! | `[[steered]]` | what the person said while the model worked on this turn |
//! | `[[recall]]` | the first message of the conversation |
//! | `[[sh CMD]]` | a call of the client's shell tool |
//! | `[[tool NAME {JSON}]]` | a call of the named tool |
//! | `[[slow MS SEC]]` | a token every MS milliseconds for SEC seconds |
//! | `[[hang SEC]]` | headers, then silence |
//! | `[[stall N SEC]]` | so many tokens, then silence |
//! | `[[status CODE RETRY N]]` | N requests fail with CODE, `retry-after: RETRY` (`-` for none), then the next directive is due |
//! | `[[drop TOKENS N]]` | N requests break off after that many tokens, then the next directive is due |
//!
//! After the last one it says `All done.` Which one is due follows from the request alone (how many replies stand after the last message of
//! the user), so it survives restarts and resumed sessions; only the failures of `status` and `drop` are counted here. A request that offers
//! no tools is a side request (titles, summaries) and gets `ok`.
//!
//! The same address is an MCP server too, at `/mcp`; so is `fake-model --tools` on its stdin and stdout. Its one tool says the word that stands
//! in the request's `Authorization`, or in `FAKE_TOOLS_WORD`: who hears it knows that secrets arrived.

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
    /// The port; 0 is any. The port taken is the first line on stdout.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The script for messages without directives.
    #[arg(long, default_value = "")]
    default: String,
    /// A file that gets one JSON object a line: each request, and how its reply ended.
    #[arg(long)]
    log: Option<PathBuf>,
    /// Be an MCP server on stdin and stdout instead.
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
