//! A headless Chromium, driven through WebDriver by Debian's `chromium-driver`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::Sandbox;
use crate::http::HttpRequest;
use crate::rlm::Running;
use crate::wait::wait_for;

const START: Duration = Duration::from_secs(30);
const WAIT: Duration = Duration::from_secs(20);
/// The key of an element in the protocol.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser with one window. Dropping it ends the browser.
#[derive(Debug)]
pub struct Chromium {
    driver: Running,
    port: u16,
    session: String,
}

impl Chromium {
    /// Returns the path of the driver, if the browser and its driver are installed.
    #[must_use]
    pub fn driver() -> Option<PathBuf> {
        let there = |name: &str| Some(Path::new("/usr/bin").join(name)).filter(|it| it.exists());
        there("chromium")?;
        there("chromedriver")
    }

    /// Starts a browser. Its connections to the port `from` of this machine lead to the port `to`.
    ///
    /// # Panics
    ///
    /// If it is not installed or doesn't start.
    #[must_use]
    pub fn start(sandbox: &Sandbox, ports: Option<(u16, u16)>) -> Self {
        let driver = Self::driver().expect("chromium and chromium-driver are installed");
        let mut driver = sandbox.rlm(driver).args(["--port=0"]).spawn();
        let port = driver.until("port of the driver", START, |it| {
            let text = it.stdout();
            let text = text.split("successfully on port ").nth(1)?;
            text.split('.').next()?.parse().ok()
        });
        let profile = sandbox.path().join("chromium");
        let mut arguments = vec![
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-dev-shm-usage".to_owned(),
            format!("--user-data-dir={}", profile.display()),
        ];
        if let Some((from, to)) = ports {
            arguments.push(format!(
                "--host-resolver-rules=MAP *.localhost:{from} 127.0.0.1:{to}"
            ));
        }
        let mut this = Self {
            driver,
            port,
            session: String::new(),
        };
        let options = json!({"binary": "/usr/bin/chromium", "args": arguments});
        let wanted =
            json!({"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}});
        let created = this.ask(
            "POST",
            "/session",
            &json!({"capabilities": {"alwaysMatch": wanted}}),
        );
        this.session = format!("/session/{}", created["sessionId"].as_str().unwrap());
        this
    }

    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let request = HttpRequest::new(self.port, method, path).header("host", "127.0.0.1");
        let request = match body {
            Value::Null => request,
            body => request.body("application/json", body.to_string()),
        };
        let response = request.send().unwrap();
        assert_eq!(response.status, 200, "{method} {path}: {}", response.body);
        response.json()["value"].take()
    }

    #[track_caller]
    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        self.ask(method, &format!("{}{path}", self.session), body)
    }

    /// Opens an address.
    #[track_caller]
    pub fn open(&self, url: &str) {
        self.command("POST", "/url", &json!({"url": url}));
    }

    /// Runs JavaScript as the body of a function, and returns its value.
    #[track_caller]
    pub fn script(&self, code: &str) -> Value {
        self.command(
            "POST",
            "/execute/sync",
            &json!({"script": code, "args": []}),
        )
    }

    /// Runs JavaScript that calls its last argument with a value, and returns the value.
    #[track_caller]
    pub fn script_async(&self, code: &str) -> Value {
        self.command(
            "POST",
            "/execute/async",
            &json!({"script": code, "args": []}),
        )
    }

    /// Returns the text of the first element that a selector selects.
    #[track_caller]
    pub fn text(&self, selector: &str) -> String {
        let code = format!("return document.querySelector({selector:?})?.innerText ?? ''");
        self.script(&code).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the text of an element contains `what`.
    #[track_caller]
    pub fn sees(&self, selector: &str, what: &str) {
        wait_for(
            format_args!("{what:?} in {selector}: {}", self.text("body")),
            WAIT,
            || self.text(selector).contains(what).then_some(()),
        );
    }

    #[track_caller]
    fn element(&self, selector: &str) -> String {
        let find = json!({"using": "css selector", "value": selector});
        let found = self.command("POST", "/element", &find);
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    /// Clicks an element as a person does: it must be visible, and nothing may cover it. Tries again if the page replaces the element just then.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        wait_for(format_args!("a click on {selector}"), WAIT, || {
            self.script(&format!(
                "document.querySelector({selector:?})?.scrollIntoView({{block: 'center'}})"
            ));
            let element = self.element(selector);
            let path = format!("{}/element/{element}/click", self.session);
            let request = HttpRequest::new(self.port, "POST", &path).header("host", "127.0.0.1");
            let response = request.body("application/json", "{}").send().unwrap();
            let is_replaced = response.body.contains("stale element reference");
            assert!(
                response.status == 200 || is_replaced,
                "{selector}: {}",
                response.body
            );
            (!is_replaced).then_some(())
        });
    }

    /// Types text into an element.
    #[track_caller]
    pub fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.command(
            "POST",
            &format!("/element/{element}/value"),
            &json!({"text": text}),
        );
    }

    /// Presses keys, wherever the focus is. `\u{E004}` is Tab, `\u{E007}` is Enter.
    #[track_caller]
    pub fn press(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()}))
            })
            .collect();
        let keyboard = json!({"type": "key", "id": "keyboard", "actions": actions});
        self.command("POST", "/actions", &json!({"actions": [keyboard]}));
    }

    /// Opens another tab, and works in it.
    #[track_caller]
    pub fn new_tab(&self) -> String {
        let tab = self.command("POST", "/window/new", &json!({"type": "tab"}));
        let handle = tab["handle"].as_str().unwrap().to_owned();
        self.switch_to(&handle);
        handle
    }

    /// Works in another tab.
    #[track_caller]
    pub fn switch_to(&self, tab: &str) {
        self.command("POST", "/window", &json!({"handle": tab}));
    }

    /// Sets the size of the page, and the colour scheme that the user prefers.
    #[track_caller]
    pub fn emulate(&self, width: u32, height: u32, is_dark: bool) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.chrome("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.chrome("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    #[track_caller]
    fn chrome(&self, name: &str, parameters: Value) {
        let command = json!({"cmd": name, "params": parameters});
        self.command("POST", "/goog/cdp/execute", &command);
    }

    /// Returns a picture of the visible part as PNG.
    #[track_caller]
    pub fn screenshot(&self) -> Vec<u8> {
        let picture = self.command("GET", "/screenshot", &Value::Null);
        base64(picture.as_str().unwrap())
    }

    /// Returns the messages of the console since the last call.
    #[track_caller]
    pub fn console(&self) -> Vec<String> {
        let log = self.command("POST", "/se/log", &json!({"type": "browser"}));
        let messages = log.as_array().cloned().unwrap_or_default();
        let messages = messages.iter().filter_map(|it| it["message"].as_str());
        messages.map(str::to_owned).collect()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // The sandbox ends what is left.
        let path = &self.session;
        let quit = HttpRequest::new(self.port, "DELETE", path).header("host", "127.0.0.1");
        let _quit = quit.send();
        self.driver
            .signal_unless_reaped(rustix::process::Signal::TERM);
    }
}

/// Decodes valid base64.
fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |c: u8| DIGITS.iter().position(|it| *it == c);
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0usize, 0);
    for value in text.bytes().filter_map(digit) {
        bits = bits << 6 | value;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    bytes
}
