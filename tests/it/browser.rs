//! The status page in a real browser: chromium, driven headless. Skipped with a line where it, its driver or axe-core is
//! missing, unless `REQUIRE_BROWSER` is set. `AXE_CORE` names axe-core's `axe.min.js`; pictures go to `SCREENSHOTS`, if set.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use picus::app::App;
use picus::clock::Clock;
use picus::settings::Settings;
use picus::world::{World, WorldOptions, task};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

/// So many times as fast runs the world.
const SPEED: u32 = 20;
/// What is awaited is there in less.
const LONG: Duration = Duration::from_mins(1);

/// A browser, and what drives it: `WebDriver`'s calls (<https://www.w3.org/TR/webdriver2/#endpoints>) are plain JSON over HTTP.
struct Browser {
    http: reqwest::Client,
    /// Address of the session.
    session: String,
    driver: Child,
    axe: String,
}

/// What `WebDriver` calls an element's id.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

#[expect(clippy::disallowed_methods, reason = "switches of the test, no settings of the program")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Drop for Browser {
    /// With the driver goes the browser, also where a test fails half-way.
    fn drop(&mut self) {
        let group = self.driver.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Browser {
    /// `None`, and a line that says so: something that it takes is not here.
    async fn start() -> Option<Self> {
        match Self::try_start().await {
            Ok(browser) => Some(browser),
            Err(missing) => {
                assert!(variable("REQUIRE_BROWSER").is_none(), "{missing}");
                eprintln!("skipped: {missing} (Debian: chromium, chromium-driver; npm: axe-core)");
                None
            }
        }
    }

    async fn try_start() -> Result<Self, String> {
        let axe = variable("AXE_CORE").ok_or("AXE_CORE does not name axe.min.js")?;
        let axe = std::fs::read_to_string(&axe).map_err(|error| format!("{axe}: {error}"))?;
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = port.map_err(|error| error.to_string())?.port();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .process_group(0)
            .spawn()
            .map_err(|error| format!("chromedriver can't be started: {error}"))?;
        let options = json!({
            "goog:chromeOptions": {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1000"]},
            "goog:loggingPrefs": {"browser": "ALL"},
        });
        let http = reqwest::Client::builder().no_proxy().build().map_err(|error| error.to_string())?;
        let base = format!("http://127.0.0.1:{port}/session");
        let wanted = json!({"capabilities": {"alwaysMatch": options}});
        let mut last = String::new();
        for _ in 0..100 {
            match http.post(&base).json(&wanted).send().await {
                Ok(answer) => {
                    let answer: Value = answer.json().await.map_err(|error| error.to_string())?;
                    let id = answer["value"]["sessionId"].as_str().ok_or(format!("no session: {answer}"))?;
                    return Ok(Self { http, session: format!("{base}/{id}"), driver, axe });
                }
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(format!("chromium can't be driven: {last}"))
    }

    /// One of `WebDriver`'s commands.
    async fn command(&self, path: &str, body: Value) -> Result<Value, Value> {
        let sent = self.http.post(format!("{}/{path}", self.session)).json(&body).send().await;
        Self::value(sent).await
    }

    /// One of its questions.
    async fn ask(&self, path: &str) -> Result<Value, Value> {
        Self::value(self.http.get(format!("{}/{path}", self.session)).send().await).await
    }

    async fn value(sent: reqwest::Result<reqwest::Response>) -> Result<Value, Value> {
        let answer = sent.expect("the driver answers");
        let good = answer.status().is_success();
        let mut answer: Value = answer.json().await.expect("JSON");
        let value = answer["value"].take();
        if good { Ok(value) } else { Err(value) }
    }

    async fn open(&self, url: &str) {
        self.command("url", json!({"url": url})).await.expect("the page");
    }

    async fn resize(&self, width: u32, height: u32) {
        self.command("window/rect", json!({"width": width, "height": height})).await.expect("a window");
    }

    /// The path of an element.
    async fn element(&self, css: &str) -> Result<String, Value> {
        let found = self.command("element", json!({"using": "css selector", "value": css})).await?;
        Ok(format!("element/{}", found[ELEMENT].as_str().expect("an id")))
    }

    async fn type_into(&self, css: &str, text: &str) {
        let element = self.element(css).await.expect("the field");
        self.command(&format!("{element}/value"), json!({"text": text})).await.expect("it is typed");
    }

    async fn click(&self, css: &str) {
        let element = self.element(css).await.expect("the button");
        self.command(&format!("{element}/click"), json!({})).await.expect("it is clicked");
    }

    async fn end(self) {
        let _ = self.http.delete(&self.session).send().await;
    }

    /// Waits until the page's text has this.
    async fn shows(&self, what: &str) {
        let begun = tokio::time::Instant::now();
        loop {
            let text = self.text().await;
            if text.contains(what) {
                return;
            }
            assert!(begun.elapsed() < LONG, "in vain: {what:?} in\n{text}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn text(&self) -> String {
        // Between two parts of a page that is replaced an element may be gone.
        let Ok(body) = self.element("body").await else { return String::new() };
        let text = self.ask(&format!("{body}/text")).await;
        text.ok().and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
    }

    async fn run(&self, script: &str) -> Value {
        self.command("execute/sync", json!({"script": script, "args": []})).await.expect("the script runs")
    }

    /// Nothing that axe-core knows to be an obstacle.
    async fn is_accessible(&self, what: &str) {
        self.run(&self.axe).await;
        let script = "const done = arguments[0]; axe.run(document).then(done, error => done({violations: [{id: String(error)}]}));";
        let found = self.command("execute/async", json!({"script": script, "args": []})).await.expect("axe-core runs");
        let violations = found["violations"].as_array().expect("a list");
        let told: Vec<String> =
            violations.iter().map(|one| format!("{}: {} {}", one["id"], one["help"], one["nodes"])).collect();
        assert!(violations.is_empty(), "{what}:\n{}", told.join("\n"));
    }

    /// What the console has told since the last time, but for what is no trouble.
    async fn console(&self) -> Vec<String> {
        let entries = self.command("se/log", json!({"type": "browser"})).await.expect("the console");
        let entries = entries.as_array().cloned().unwrap_or_default();
        let severe = entries.iter().filter(|entry| entry["level"] == "SEVERE" || entry["level"] == "WARNING");
        severe.map(|entry| entry["message"].to_string()).collect()
    }

    /// Nothing is wider than the window.
    async fn fits(&self, what: &str) {
        let wider =
            self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth").await;
        assert_eq!(wider, json!(0), "{what}: the page is wider than the window");
    }

    async fn picture(&self, name: &str) {
        let Some(folder) = variable("SCREENSHOTS") else { return };
        let folder = PathBuf::from(folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let picture = self.ask("screenshot").await.expect("a picture");
        let picture = STANDARD.decode(picture.as_str().expect("text")).expect("base64");
        std::fs::write(folder.join(format!("{name}.png")), picture).expect("it is kept");
    }
}

/// Picus at work in a world that runs fast, and the address of its page.
async fn scene(more: &[(&str, &str)]) -> (Arc<World>, String, CancellationToken) {
    let clock = Clock::fast("2026-12-01T12:00:00Z".parse().expect("a time"), SPEED);
    let world = World::start(clock.clone(), WorldOptions::default()).await.expect("free ports");
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let address = format!("127.0.0.1:{port}");
    let mut variables = vec![
        ("PICUS_WOODPECKER_SERVER", world.woodpecker_url().as_str()),
        ("PICUS_WOODPECKER_TOKEN", world.admin_token()),
        ("PICUS_PROVIDER_TYPE", "hcloud"),
        ("PICUS_HCLOUD_TOKEN", world.hetzner_token()),
        ("PICUS_HCLOUD_ENDPOINT", world.hetzner_url().as_str()),
        ("PICUS_AGENT_WOODPECKER_SERVER", "woodpecker.example.com:9000"),
        ("PICUS_HTTP_ADDR", &address),
    ];
    variables.extend(more);
    let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let settings = Settings::from_vars(variables).expect("good settings");
    let app = App::new(settings, clock, 1).expect("a start");
    let ended = CancellationToken::new();
    let until = ended.clone();
    tokio::spawn(async move { app.run(until).await.expect("a start") });
    let url = format!("http://{address}/");
    while reqwest::get(format!("{url}readyz")).await.map_or(true, |answer| !answer.status().is_success()) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (Arc::new(world), url, ended)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_follows_a_launch_to_a_running_job_without_reload() {
    let Some(browser) = Browser::start().await else { return };
    let (world, url, ended) = scene(&[("PICUS_POLL_INTERVAL", "10s")]).await;
    browser.open(&url).await;
    browser.shows("None of ours.").await;
    // A mark that a reload would wipe away.
    browser.run("window.notReloaded = true").await;
    let first = world.push(task("build").repo("acme/site").takes(Duration::from_mins(20)));
    world.push(task("test").repo("acme/site").takes(Duration::from_mins(20)));
    browser.shows("acme/site").await;
    browser.shows("the maximum of 1 instance is reached").await;
    browser.shows("boots for it").await;
    browser.picture("a-launch").await;
    browser.shows("booting").await;
    browser.shows("1 running").await;
    assert!(world.task(&first).is_some_and(|task| task.is_running()));
    assert_eq!(browser.run("return window.notReloaded").await, json!(true), "the page was loaded again");

    browser.is_accessible("at 1280 px").await;
    browser.fits("at 1280 px").await;
    browser.picture("wide").await;
    browser.resize(390, 844).await;
    browser.shows("the maximum of 1 instance is reached").await;
    browser.fits("at 390 px").await;
    browser.is_accessible("at 390 px").await;
    browser.picture("phone").await;
    assert_eq!(browser.console().await, Vec::<String>::new());

    ended.cancel();
    browser.shows("Picus does not answer").await;
    browser.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_asked_for_and_opens_the_page() {
    let Some(browser) = Browser::start().await else { return };
    let (world, url, ended) = scene(&[("PICUS_HTTP_TOKEN", "0123456789abcdef")]).await;
    world.push(task("build").repo("acme/secret").takes(Duration::from_mins(20)));
    browser.open(&url).await;
    browser.shows("Sign in").await;
    assert!(!browser.text().await.contains("acme"));
    browser.is_accessible("sign in").await;
    browser.picture("sign-in").await;
    // With the keyboard alone: the field has the focus of its own accord, and U+E007 is Enter.
    let sign_in = async |token: &str| browser.type_into("#token", &format!("{token}\u{e007}")).await;
    sign_in("wrong").await;
    browser.shows("not the token").await;
    sign_in("0123456789abcdef").await;
    browser.shows("acme/secret").await;
    assert_eq!(browser.run("return document.cookie").await, json!(""), "scripts do not see the cookie");
    browser.click("header button").await;
    browser.shows("Sign in").await;
    // The refusals before are the only thing that the console tells.
    let told = browser.console().await;
    assert!(told.iter().all(|line| line.contains("401")), "{told:?}");
    ended.cancel();
    browser.end().await;
}
