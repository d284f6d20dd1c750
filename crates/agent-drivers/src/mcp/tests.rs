//! Tests of server descriptions: their order, the expansion of variables, and that no message and no `Debug` output contains a value.

use super::server::expand;
use super::*;
use proptest::prelude::*;

fn set(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("s3cret".to_owned()),
        "HOST" => Some("localhost".to_owned()),
        "NESTED" => Some("${TOKEN}".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

const FILE: &str = r#"{"other": 1, "mcpServers": {
  "zeta": {"command": "zeta-mcp", "args": ["--key=${TOKEN}"], "env": {"KEY": "${TOKEN}"}},
  "alpha": {"type": "http", "url": "https://user:pw@${HOST}/mcp?key=1", "headers": {"Authorization": "Bearer ${TOKEN}"}},
  "mid": {"url": "http://${HOST:-nowhere}:1/"},
  "old": {"type": "sse", "url": "http://localhost/sse"}
}}"#;

#[test]
fn l95b_l95c_servers_keep_their_order_and_the_callers_win() {
    let file = McpServers::from_json(FILE).unwrap();
    let mut ours = McpServers::default();
    ours.insert("last", McpServer::stdio("b").arg("x")).unwrap();
    ours.insert("alpha", McpServer::stdio("a")).unwrap();
    let both = ours.merged_over(file);
    let names: Vec<&str> = both.names().collect();
    assert_eq!(names, ["zeta", "alpha", "mid", "old", "last"]);
    let json = both.expanded(set).unwrap().to_json().unwrap();
    insta::assert_snapshot!(json, @r#"{"mcpServers":{"zeta":{"type":"stdio","command":"zeta-mcp","args":["--key=s3cret"],"env":{"KEY":"s3cret"}},"alpha":{"type":"stdio","command":"a"},"mid":{"type":"http","url":"http://localhost:1/"},"old":{"type":"sse","url":"http://localhost/sse"},"last":{"type":"stdio","command":"b","args":["x"]}}}"#);
    assert_eq!(McpServers::from_json(&json).unwrap().names().count(), 5);
}

#[test]
fn x118c_no_value_is_shown() {
    let shown = McpServers::from_json(FILE).unwrap().expanded(set).unwrap();
    insta::assert_snapshot!(format!("{shown:#?}"), @r#"
    {
        "zeta": Stdio {
            command: "zeta-mcp",
            args: 1,
            env: [
                "KEY",
            ],
        },
        "alpha": Http {
            url: "https://localhost/…",
            headers: [
                "Authorization",
            ],
        },
        "mid": Http {
            url: "http://localhost:1/",
            headers: [],
        },
        "old": Sse {
            url: "http://localhost/…",
            headers: [],
        },
    }
    "#);
}

#[test]
fn x118c_address_shows_only_its_host() {
    for (url, shown) in [
        (
            "https://a:s3cret@host:1/api/s3cret/mcp?k=s3cret",
            "https://host:1/…",
        ),
        ("https://host?k=s3cret/x@y", "https://host/…"),
        ("https://host#s3cret", "https://host/…"),
        ("https://host/", "https://host/"),
        ("http://host", "http://host"),
        ("${ADDRESS}", "${ADDRESS}"),
        (
            "${ADDRESS:-https://host/s3cret}",
            "${ADDRESS:-https://host/…",
        ),
    ] {
        let mut servers = McpServers::default();
        servers.insert("a", McpServer::http(url)).unwrap();
        let debug = format!("{servers:?}");
        assert!(debug.contains(&format!("{shown:?}")), "{debug}");
        let json = servers.without_values().to_json().unwrap();
        assert!(json.contains(&format!("{shown:?}")), "{json}");
    }
}

#[test]
fn l95h_error_names_the_key_without_its_value() {
    let servers = |text: &str| format!("{{\"mcpServers\": {{{text}}}}}");
    let wrong = [
        "[]".to_owned(),
        "{}".to_owned(),
        servers(r#""a b": {"command": "x"}"#),
        servers(r#""a": {"command": "x", "tokn": "s3cret"}"#),
        servers(r#""a": {"command": "x", "args": "s3cret"}"#),
        servers(r#""a": {"command": "x", "env": {"K": 5318008}}"#),
        servers(r#""a": {"command": "x", "env": "s3, expected cret"}"#),
        servers(r#""a": {"command": "x", "url": "http://x"}"#),
        servers(r#""a": {"command": ""}"#),
        servers(r#""a": {"url": "ftp://s3cret"}"#),
        servers(r#""a": {"url": "http://x", "headers": {"a b": "s3cret"}}"#),
        servers(r#""a": {"url": "http://x", "headers": {"a": "s3cret\nHost: y"}}"#),
        servers(r#""a": {"type": "carrier-pigeon"}"#),
        servers(r#""a": 5"#),
        servers(r#""a": {"command": "x"}, "a": {"command": "y"}"#),
    ];
    let errors = wrong.map(|text| McpServers::from_json(&text).unwrap_err().to_string());
    assert!(
        errors
            .iter()
            .all(|e| !e.contains("s3") && !e.contains("5318008")),
        "{errors:#?}"
    );
    insta::assert_snapshot!(errors.join("\n"), @r#"
    line 1: invalid length 0, expected an object with `mcpServers`; the format is {"mcpServers": {"NAME": {"command": "…"}}}
    line 1: missing field `mcpServers`; the format is {"mcpServers": {"NAME": {"command": "…"}}}
    line 1: `a b` is not an MCP server name: use 1 to 64 letters, digits, `_` or `-`; the format is {"mcpServers": {"NAME": {"command": "…"}}}
    line 1: unknown field `tokn`, expected one of `type`, `command`, `args`, `env`, `url`, `headers`; the format is {"mcpServers": {"NAME": {"command": "…"}}}
    line 1: invalid type: string, expected a sequence; the format is {"mcpServers": {"NAME": {"command": "…"}}}
    line 1: invalid type: integer, expected a string; the format is {"mcpServers": {"NAME": {"command": "…"}}}
    line 1: invalid type: string, expected a map; the format is {"mcpServers": {"NAME": {"command": "…"}}}
    line 1: a server of type stdio has `command`, `args` and `env`, and nothing else; the format is {"mcpServers": {"NAME": {"command": "…"}}}
    line 1: MCP server `a`: its command is empty; name the program to start; the format is {"mcpServers": {"NAME": {"command": "…"}}}
    line 1: MCP server `a`: its url must begin with http:// or https:// and contain no spaces; the format is {"mcpServers": {"NAME": {"command": "…"}}}
    line 1: MCP server `a`: `a b` is not a header name; correct it; the format is {"mcpServers": {"NAME": {"command": "…"}}}
    line 1: MCP server `a`: the header `a` contains a control character; remove it; the format is {"mcpServers": {"NAME": {"command": "…"}}}
    line 1: unknown variant `carrier-pigeon`, expected one of `stdio`, `http`, `sse`; the format is {"mcpServers": {"NAME": {"command": "…"}}}
    line 1: invalid type: integer, expected a server with `command` or `url`; the format is {"mcpServers": {"NAME": {"command": "…"}}}
    line 1: two servers are named `a`; the format is {"mcpServers": {"NAME": {"command": "…"}}}
    "#);
}

#[test]
fn l95h_unset_variable_is_named() {
    let mut servers = McpServers::default();
    let server = McpServer::http("http://x").header("Authorization", "Bearer ${NO_SUCH}");
    servers.insert("docs", server).unwrap();
    let error = servers.expanded(set).unwrap_err();
    assert_eq!(error.missing_variable(), Some("NO_SUCH"));
    insta::assert_snapshot!(error, @"MCP server `docs` needs the environment variable `NO_SUCH` for its header `Authorization`, but it is not set: set it, or write `${NO_SUCH:-DEFAULT}`");
    let evil = |name: &str| (name == "NO_SUCH").then(|| "x\r\nHost: y".to_owned());
    assert!(
        servers.expanded(evil).is_err(),
        "an expanded value is checked too"
    );
}

#[test]
fn variables_are_substituted_in_one_pass() {
    let fill = |text: &str| expand(text, set);
    assert_eq!(fill("a ${TOKEN} b").unwrap(), "a s3cret b");
    assert_eq!(fill("${NESTED}").unwrap(), "${TOKEN}");
    assert_eq!(fill("${NO:-x ${}").unwrap(), "x ${");
    assert_eq!(fill("${EMPTY:-x}${EMPTY}").unwrap(), "x");
    assert_eq!(
        fill("$TOKEN ${} ${1} ${a b} ${TOKEN").unwrap(),
        "$TOKEN ${} ${1} ${a b} ${TOKEN"
    );
    assert_eq!(fill("${NO}"), Err("NO".to_owned()));
}

proptest! {
    #[test]
    fn filling_any_text_does_not_panic_and_plain_text_stays(text: String, name in "[A-Z_]{1,8}") {
        drop(expand(&text, set));
        let plain = text.replace("${", "");
        prop_assert_eq!(expand(&plain, |_| None).unwrap(), plain.clone());
        let value = expand(&format!("{plain}${{{name}}}"), |_| Some(text.clone())).unwrap();
        prop_assert_eq!(value, format!("{plain}{text}"));
    }
}
