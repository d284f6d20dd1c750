//! The login of Codex: its app server answers `account/read`. The command `codex login status` doesn't know services that need no login.

use serde_json::{Value, json};

use crate::probe::{Login, LoginFacts, Probe, Program, method_name, version};

pub(crate) const FACTS: LoginFacts = LoginFacts {
    tested_version: Some("0.169.0"),
    how_to: "codex login",
    variables: &[],
};

pub(crate) async fn probe(program: Program<'_>) -> Probe {
    let (version, output) = version(program).await;
    // Another program could take the arguments for a prompt.
    let login = match &version {
        Err(why) => Login::unknown(why),
        Ok(_) if output.contains("codex") => account(program).await,
        Ok(_) => Login::unknown("the program is not Codex"),
    };
    Probe { version, login }
}

async fn account(program: Program<'_>) -> Login {
    let server = ["app-server", "-c", "analytics.enabled=false"];
    let result = program.converse(&server, async |requests| {
        let client = json!({"clientInfo": {"name": "rlm", "version": env!("CARGO_PKG_VERSION")}});
        let _server = requests.send("initialize", client).await?;
        requests.send("account/read", json!({})).await
    });
    match result.await {
        Ok(Ok(account)) => login_in(&account),
        Ok(Err(_)) => Login::unknown("this version does not support `account/read`"),
        Err(why) => Login::unknown(why),
    }
}

fn login_in(response: &Value) -> Login {
    let account = &response["account"];
    match (account.is_null(), response["requiresOpenaiAuth"].as_bool()) {
        (true, Some(true)) => Login::no(),
        (true, Some(false)) => Login::yes("its settings name a service without a login"),
        (false, _) => {
            let method = account["type"].as_str().and_then(method_name);
            Login::yes(method.unwrap_or("by an unknown method"))
        }
        (true, None) => Login::unknown("unexpected response to `account/read`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_is_read_as_codex_reports_it() {
        // As Codex 0.169.0 answered.
        let login = |response| login_in(&response);
        let none = json!({"account": null, "requiresOpenaiAuth": true});
        assert_eq!(login(none), Login::no());
        let local = json!({"account": null, "requiresOpenaiAuth": false});
        assert_eq!(login(local).state, crate::LoggedIn::Yes);
        let key = json!({"account": {"type": "apiKey"}, "requiresOpenaiAuth": true});
        assert_eq!(login(key), Login::yes("apiKey"));
        let person = json!({"account": {"type": "chatgpt", "email": "a@b.example"}});
        assert_eq!(login(person), Login::yes("chatgpt"));
        let address = json!({"account": {"type": "a@b.example"}});
        assert_eq!(login(address), Login::yes("by an unknown method"));
        assert_eq!(login(json!({})).state, crate::LoggedIn::Unknown);
    }
}
