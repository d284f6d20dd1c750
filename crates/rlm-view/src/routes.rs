//! The requests of browsers: which are accepted, and which page answers them. Each request passes [`admit`] first: host, origin, session.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Form, Path, Query, Request, State};
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE,
    HOST, LOCATION, ORIGIN, REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use jiff::tz::TimeZone;
use maud::html;
use rlm_report::visible;
use rlm_store::{TranscriptWindow, index};
use serde::Deserialize;
use serde_json::json;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::actions::{self, ActionForm, ActionResult};
use crate::app::{App, new_secret};
use crate::connections::Connection;
use crate::login::{LoginError, Logins, Secret, Session};
use crate::origin::{Headers, PageOrigin, Refusal};
use crate::pages::list::{Filter, ListRows, list};
use crate::pages::new_run::{NewRunForm, NewRunNote, new_run};
use crate::pages::run::{ShownTranscript, Tab, attempt_name, crumbs, heading, run, tabs, topic};
use crate::pages::{PageContext, Place, changes, document, inbox, login_page, page, transcript};
use crate::row::RunRow;
use crate::runs::{Runs, now};
use crate::stream::{self, MAX_TOPICS, Topic};
use crate::{attempts, export, iteration_changes};

/// The largest body of a request, in bytes. A run accepts no longer message.
const MAX_BODY: usize = 1 << 20;
/// The largest body of a request without a session.
const MAX_LOGIN: usize = 4096;
/// The time in which the body of a request must arrive.
const FORM_TIMEOUT: Duration = Duration::from_secs(60);
/// The time in which the answer to a request must begin. It is longer than the program waits for one of its own commands.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(75);
/// The greatest age of the rows of a new page.
const PAGE_AGE: Duration = Duration::from_millis(50);
/// The bytes of the records that a page shows first, and that it loads at once.
const FIRST_RECORDS: usize = 128 << 10;
const MORE_RECORDS: usize = 256 << 10;

/// Returns the service of all pages.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let limited = middleware::from_fn(|request, next| limit_answer(ANSWER_TIMEOUT, request, next));
    let pages = Router::new()
        .route("/", get(runs_page))
        .route("/inbox", get(inbox_page))
        .route("/new", get(new_run_page).post(start_run))
        .route("/runs/{key}", get(run_page))
        .route("/runs/{key}/changes", get(changes_page))
        .route("/runs/{key}/figures", get(figures_page))
        .route("/runs/{key}/report", get(report_page))
        .route("/runs/{key}/records", get(more_records))
        .route("/runs/{key}/act", post(act))
        .route("/login", get(log_in).post(enter_password))
        .route("/logout", post(log_out))
        .route("/assets/{name}", get(asset))
        .fallback(|| async { Problem::NotFound })
        .layer(limited);
    // These last as long as they need: an export writes a copy of the run before its first byte, and a stream has no end.
    Router::new()
        .route("/runs/{key}/export", post(export_copy))
        .route("/events", get(events))
        .merge(pages)
        .layer(middleware::from_fn_with_state(Arc::clone(app), admit))
        .with_state(Arc::clone(app))
}

/// Returns the name of the cookie of a session. A browser accepts the name of a public page only from its own host, and only encrypted.
fn cookie_name(origin: &PageOrigin) -> &'static str {
    match origin.is_public() {
        true => "__Host-rlm-view",
        false => "rlm-view",
    }
}

/// An error page.
#[derive(Debug)]
enum Problem {
    WrongHost(PageOrigin),
    OtherSite,
    NoSession,
    /// As `NoSession`, on a page that has a password.
    NoPassword,
    Login(LoginError),
    ReadOnly,
    /// The page can be reached from other machines, and starts no runs.
    NoNewRuns,
    NotFound,
    /// The answer didn't begin in time.
    Late,
    /// The text says what is wrong.
    Failed(String),
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let ask = |status, wrong| (status, page_headers(), login_page(wrong)).into_response();
        let (status, text) = match self {
            Self::NoPassword => return ask(StatusCode::UNAUTHORIZED, None),
            Self::Login(LoginError::WrongPassword) => {
                return ask(StatusCode::FORBIDDEN, Some("This is not the password."));
            }
            Self::WrongHost(origin) => (
                StatusCode::MISDIRECTED_REQUEST,
                match origin.is_public() {
                    true => format!("The page is at {} only. A reverse proxy must keep the header Host, and pass it on.", origin.url()),
                    false => "This address doesn't belong to the page. Open it with: rlm view".into(),
                },
            ),
            Self::OtherSite => (
                StatusCode::FORBIDDEN,
                "The request came from another site, or from an old copy of the page. Load the page again.".into(),
            ),
            Self::NoSession => (
                StatusCode::UNAUTHORIZED,
                "You are not logged in. Open the page with: rlm view".into(),
            ),
            Self::Login(LoginError::Unknown) => (
                StatusCode::FORBIDDEN,
                "The link was used already, or is older than 5 minutes. Open the page again with: rlm view".into(),
            ),
            Self::Login(LoginError::TooMany) => (
                StatusCode::TOO_MANY_REQUESTS,
                "There were too many wrong links or passwords. Wait a minute, or open the page with: rlm view".into(),
            ),
            Self::ReadOnly => (
                StatusCode::FORBIDDEN,
                "This page was opened for reading only.".into(),
            ),
            Self::NoNewRuns => (
                StatusCode::FORBIDDEN,
                "Other machines can reach this page, so it starts no runs. Start them on the machine itself, with: rlm run".into(),
            ),
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "There is no such page. A run may have been removed.".into(),
            ),
            Self::Late => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The server has no answer yet: a disk or a program doesn't respond. An action may still take effect. Load the page again later.".into(),
            ),
            Self::Failed(text) => (StatusCode::INTERNAL_SERVER_ERROR, text),
        };
        let text: String = text;
        let body = html! {
            main class="problem" { h1 { "rlm" } p { (text) } p { a href="/" { "All runs" } } }
        };
        let page = document("rlm", &html! {}, &body);
        (status, page_headers(), page).into_response()
    }
}

fn page_headers() -> [(HeaderName, HeaderValue); 1] {
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    [(CONTENT_TYPE, html)]
}

/// Returns the value of a header that occurs once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Checks each request before any page sees it, and adds the headers that protect the page.
async fn admit(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let headers = request.headers();
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let shown = Headers {
        host: only(headers, HOST.as_str()),
        origin: only(headers, ORIGIN.as_str()),
        fetch_site: only(headers, "sec-fetch-site"),
        fetch_mode: only(headers, "sec-fetch-mode"),
        fetch_dest: only(headers, "sec-fetch-dest"),
    };
    let nonce = match new_secret() {
        Ok(secret) => secret.text(),
        Err(e) => return Problem::Failed(e.to_string()).into_response(),
    };
    let path = request.uri().path();
    let is_open = path == "/login" || path.starts_with("/assets/");
    let mut response = match app.origin.refuse(is_read, shown) {
        Some(Refusal::WrongHost) => Problem::WrongHost(app.origin.clone()).into_response(),
        Some(Refusal::OtherSite) => Problem::OtherSite.into_response(),
        None => match session(&app, headers) {
            Some(session) => {
                if let Some(connection) = request.extensions().get::<Connection>() {
                    connection.trust();
                }
                let context = PageContext {
                    role: session.role,
                    form_secret: session.form_secret.text(),
                    nonce: nonce.clone(),
                    is_public: app.origin.is_public(),
                };
                request.extensions_mut().insert(session);
                request.extensions_mut().insert(context);
                respond(next, request, MAX_BODY).await
            }
            None if is_open => respond(next, request, MAX_LOGIN).await,
            None if app.password.is_some() => Problem::NoPassword.into_response(),
            None => Problem::NoSession.into_response(),
        },
    };
    protect(&mut response, &nonce);
    response
}

/// Answers a request, whose body must arrive in time.
async fn respond(next: Next, request: Request, max: usize) -> Response {
    let (head, body) = request.into_parts();
    match timeout(FORM_TIMEOUT, to_bytes(body, max)).await {
        Ok(Ok(body)) => next.run(Request::from_parts(head, Body::from(body))).await,
        Ok(Err(_)) => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}

/// Answers a request with an error page if the answer doesn't begin in time. That doesn't end the work, but the browser needn't wait for it. The rest of
/// the answer has no limit.
async fn limit_answer(limit: Duration, request: Request, next: Next) -> Response {
    let answer = timeout(limit, next.run(request)).await;
    answer.unwrap_or_else(|_| Problem::Late.into_response())
}

fn session(app: &App, headers: &HeaderMap) -> Option<Session> {
    let cookies = only(headers, COOKIE.as_str())?.split(';');
    let values = cookies.filter_map(|it| it.trim().split_once('='));
    let mut ours = values.filter(|(name, _)| *name == cookie_name(&app.origin));
    let (_, value) = ours.next()?;
    app.logins().session(Secret::parse(value)?, now())
}

fn protect(response: &mut Response, nonce: &str) {
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; worker-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // A browser sends no origin with a form if the policy is stricter.
        (REFERRER_POLICY, "same-origin"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
}

#[derive(Deserialize)]
struct LoginQuery {
    #[serde(default)]
    link: String,
}

async fn log_in(
    State(app): State<Arc<App>>,
    method: Method,
    headers: HeaderMap,
    Query(query): Query<LoginQuery>,
) -> Response {
    // A request for the header, or a browser that loads the page in advance, would use up the link.
    if method != Method::GET {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let purposes = ["sec-purpose", "purpose", "x-moz"].map(|name| only(&headers, name));
    if purposes.iter().flatten().any(|it| it.contains("prefetch")) {
        return StatusCode::NO_CONTENT.into_response();
    }
    if query.link.is_empty() && app.password.is_some() {
        return html_response(login_page(None));
    }
    let redeem = |new| app.logins().redeem(Secret::parse(&query.link), new, now());
    begin_session(&app, redeem)
}

#[derive(Deserialize)]
struct PasswordForm {
    #[serde(default)]
    password: String,
}

/// Logs a browser in with the password. The form has no secret: [`admit`] refuses those of other sites.
async fn enter_password(State(app): State<Arc<App>>, Form(form): Form<PasswordForm>) -> Response {
    let pair = (app.password.as_ref(), form.password.as_str());
    begin_session(&app, |new| app.logins().enter(pair, app.most, new, now()))
}

/// Begins a session, and sends its cookie.
fn begin_session(
    app: &App,
    begin: impl FnOnce([Secret; 2]) -> Result<Session, LoginError>,
) -> Response {
    let new = match (new_secret(), new_secret()) {
        (Ok(cookie), Ok(form)) => [cookie, form],
        _ => return Problem::Failed("the system has no random numbers".into()).into_response(),
    };
    match begin(new) {
        Ok(session) => {
            let cookie = cookie(app, &Logins::cookie(&session));
            let headers = [(LOCATION, "/".to_owned()), (SET_COOKIE, cookie)];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        Err(e) => Problem::Login(e).into_response(),
    }
}

/// Returns the header that sets the cookie of a session.
fn cookie(app: &App, value: &str) -> String {
    let only = if app.origin.is_public() {
        "; Secure"
    } else {
        ""
    };
    let name = cookie_name(&app.origin);
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{only}")
}

#[derive(Deserialize)]
struct LogoutForm {
    #[serde(default)]
    csrf: String,
}

async fn log_out(
    State(app): State<Arc<App>>,
    Extension(session): Extension<Session>,
    Form(form): Form<LogoutForm>,
) -> Response {
    if !session.owns_form(Secret::parse(&form.csrf)) {
        return Problem::OtherSite.into_response();
    }
    app.logins().log_out(&session);
    let cookie = format!("{}; Max-Age=0", cookie(&app, ""));
    let headers = [(LOCATION, "/".to_owned()), (SET_COOKIE, cookie)];
    (StatusCode::SEE_OTHER, headers).into_response()
}

async fn asset(Path(name): Path<String>) -> Response {
    let (kind, text) = match name.as_str() {
        "style.css" => ("text/css; charset=utf-8", include_str!("style.css")),
        "report.css" => ("text/css; charset=utf-8", rlm_report::CSS),
        "plots.css" => ("text/css; charset=utf-8", rlm_report::PLOTS_CSS),
        "page.js" => ("text/javascript; charset=utf-8", include_str!("page.js")),
        "worker.js" => ("text/javascript; charset=utf-8", include_str!("worker.js")),
        _ => return Problem::NotFound.into_response(),
    };
    let headers = [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")];
    (headers, text).into_response()
}

/// Runs a function that blocks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let failed =
        |_| Problem::Failed("The page failed; the run is not affected. Load it again.".into());
    spawn_blocking(work).await.map_err(failed)
}

/// Returns the rows after a scan, and the number of runs that wait for a person.
async fn rows(app: &Arc<App>) -> Result<(Vec<Arc<RunRow>>, usize), Problem> {
    let runs = Arc::clone(&app.runs);
    blocking(move || {
        runs.refresh(PAGE_AGE);
        (runs.rows(), runs.waiting())
    })
    .await
}

fn html_response(text: String) -> Response {
    (page_headers(), text).into_response()
}

async fn runs_page(
    State(app): State<Arc<App>>,
    Extension(context): Extension<PageContext>,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Result<Response, Problem> {
    // An address with an unknown filter shows all runs.
    let filter = filter.map(|it| it.0).unwrap_or_default();
    let (all, waiting) = rows(&app).await?;
    let rows = ListRows::new(all, &filter, now());
    let mut problems = app.runs.problems();
    if app.runs.is_incomplete() {
        problems.push((
            "…".into(),
            "there are more runs than this page can list".into(),
        ));
    }
    let command = app.runs.program().command(None);
    let main = list(&rows, &filter, &problems, &command);
    let topic = format!("list:{}", filter.query(filter.from));
    Ok(html_response(page(
        &context,
        Place::Runs,
        "Runs",
        &topic,
        waiting,
        &main,
    )))
}

async fn inbox_page(
    State(app): State<Arc<App>>,
    Extension(context): Extension<PageContext>,
) -> Result<Response, Problem> {
    let (rows, waiting) = rows(&app).await?;
    let terms = |row: &RunRow| stream::terms(&app.runs, row);
    let main = inbox::inbox(&inbox::select(rows, now()), &context, &terms);
    Ok(html_response(page(
        &context,
        Place::Inbox,
        "Inbox",
        "inbox",
        waiting,
        &main,
    )))
}

/// Refuses a form that is not from a page of this session, or whose session may only read.
fn expect_operator(session: &Session, context: &PageContext, secret: &str) -> Result<(), Problem> {
    if !session.owns_form(Secret::parse(secret)) {
        return Err(Problem::OtherSite);
    }
    match context.can_act() {
        true => Ok(()),
        false => Err(Problem::ReadOnly),
    }
}

/// Refuses a session that may not start runs.
fn expect_starter(context: &PageContext) -> Result<(), Problem> {
    match context.can_act() {
        true if context.can_start_runs() => Ok(()),
        true => Err(Problem::NoNewRuns),
        false => Err(Problem::ReadOnly),
    }
}

async fn new_run_page(
    State(app): State<Arc<App>>,
    Extension(context): Extension<PageContext>,
) -> Result<Response, Problem> {
    expect_starter(&context)?;
    new_run_form(&app, &context, &NewRunForm::default(), None).await
}

async fn new_run_form(
    app: &Arc<App>,
    context: &PageContext,
    form: &NewRunForm,
    note: Option<NewRunNote>,
) -> Result<Response, Problem> {
    let (_, waiting) = rows(app).await?;
    let runs = Arc::clone(&app.runs);
    let (projects, agents) = blocking(move || (runs.roots(), runs.program().agents())).await?;
    let main = new_run(context, form, &projects, &agents, note.as_ref());
    Ok(html_response(page(
        context,
        Place::NewRun,
        "New run",
        "still",
        waiting,
        &main,
    )))
}

async fn start_run(
    State(app): State<Arc<App>>,
    Extension(session): Extension<Session>,
    Extension(context): Extension<PageContext>,
    Form(form): Form<NewRunForm>,
) -> Result<Response, Problem> {
    expect_operator(&session, &context, &form.csrf)?;
    expect_starter(&context)?;
    let (runs, of) = (Arc::clone(&app.runs), form.clone());
    let started = blocking(move || {
        // Only a project that the page offers: it has a run already.
        let mut roots = runs.roots().into_iter();
        let root = roots.find(|root| root.to_str() == Some(&of.project));
        let project = root
            .and_then(|root| runs.project_at(&root))
            .ok_or_else(|| NewRunNote::Rejected(format!("`{}` has no run any more", of.project)))?;
        let (program, prompt) = (runs.program(), of.prompt());
        let (arguments, prompt) = (of.arguments(), prompt.as_deref());
        if of.action != "start" {
            let command = program.run_command(&project, &arguments, prompt);
            return Err(NewRunNote::Command(command));
        }
        let run = program.start_run(&project, &arguments, prompt);
        run.map(|run| index::key(project.root(), &run))
            .map_err(NewRunNote::Rejected)
    });
    match started.await? {
        Ok(key) => {
            let headers = [(LOCATION, format!("/runs/{key}"))];
            Ok((StatusCode::SEE_OTHER, headers).into_response())
        }
        Err(note) => new_run_form(&app, &context, &form, Some(note)).await,
    }
}

async fn row(app: &Arc<App>, key: &str) -> Result<(Arc<RunRow>, usize), Problem> {
    let (_, waiting) = rows(app).await?;
    let (runs, key) = (Arc::clone(&app.runs), key.to_owned());
    let row = blocking(move || runs.find(&key)).await?;
    Ok((row.ok_or(Problem::NotFound)?, waiting))
}

#[derive(Deserialize)]
struct RunQuery {
    attempt: Option<String>,
}

/// Parses the name of an attempt, such as `3-1`.
fn attempt(name: &str) -> Option<(u32, u32)> {
    let (iteration, attempt) = name.split_once('-')?;
    Some((iteration.parse().ok()?, attempt.parse().ok()?))
}

async fn run_page(
    State(app): State<Arc<App>>,
    Extension(context): Extension<PageContext>,
    Path(key): Path<String>,
    Query(query): Query<RunQuery>,
) -> Result<Response, Problem> {
    let (row, waiting) = row(&app, &key).await?;
    let wanted = query.attempt.as_deref().and_then(attempt);
    let (runs, of) = (Arc::clone(&app.runs), Arc::clone(&row));
    let transcript = blocking(move || read_transcript(&runs, &of, wanted)).await?;
    let terms = stream::terms(&app.runs, &row);
    let main = run(&row, &context, &terms, transcript.as_ref());
    let title = row.title.as_deref().unwrap_or(row.run.as_str());
    let topic = format!("run:{key}");
    Ok(html_response(page(
        &context,
        Place::Other,
        title,
        &topic,
        waiting,
        &main,
    )))
}

/// Reads the end of the transcript of an attempt, or of the newest one.
fn read_transcript(
    runs: &Runs,
    row: &RunRow,
    wanted: Option<(u32, u32)>,
) -> Option<ShownTranscript> {
    let run_dir = runs.project(row)?.run_dir(&row.run);
    let attempts = attempts::sorted_attempts(&run_dir);
    let current = attempts::current_attempt(&run_dir, row)?;
    let attempt = wanted.filter(|it| attempts.contains(it)).unwrap_or(current);
    let path = rlm_store::transcript::path(&run_dir, attempt.0, attempt.1);
    let window = TranscriptWindow::before(&path, None, FIRST_RECORDS).ok()?;
    Some(ShownTranscript {
        attempt,
        window,
        attempts,
        current,
    })
}

async fn changes_page(
    State(app): State<Arc<App>>,
    Extension(context): Extension<PageContext>,
    Path(key): Path<String>,
    Query(query): Query<RunQuery>,
) -> Result<Response, Problem> {
    let (row, waiting) = row(&app, &key).await?;
    let wanted = query.attempt.as_deref().and_then(attempt);
    let (runs, of) = (Arc::clone(&app.runs), Arc::clone(&row));
    let shown = blocking(move || iteration_changes::read(&runs, &of, wanted)).await?;
    let terms = stream::terms(&app.runs, &row);
    let main = changes::view(&row, &terms.program, shown.as_ref());
    let title = changes::title(&row, shown.as_ref());
    // The changes of an older attempt stay the same.
    let is_newest = shown.is_none_or(|it| it.attempts.last() == Some(&it.attempt));
    let topic = match is_newest {
        true => topic(&row, Tab::Changes),
        false => "still".into(),
    };
    Ok(html_response(page(
        &context,
        Place::Other,
        &title,
        &topic,
        waiting,
        &main,
    )))
}

#[derive(Deserialize)]
struct RecordsQuery {
    attempt: String,
    before: Option<u64>,
    after: Option<u64>,
}

/// Returns older records, or the records after a position.
async fn more_records(
    State(app): State<Arc<App>>,
    Extension(_): Extension<Session>,
    Path(key): Path<String>,
    Query(query): Query<RecordsQuery>,
) -> Result<Response, Problem> {
    let row = app.runs.row(&key).ok_or(Problem::NotFound)?;
    let (iteration, number) = attempt(&query.attempt).ok_or(Problem::NotFound)?;
    let project = app.runs.project(&row).ok_or(Problem::NotFound)?;
    let read = blocking(move || {
        let run_dir = project.run_dir(&row.run);
        read_records(&run_dir, (iteration, number), &query)
    });
    match read.await? {
        Ok(value) => Ok(json_response(StatusCode::OK, &value)),
        Err(_) => Err(Problem::NotFound),
    }
}

/// Reads the records that a page requests. If the attempt has no record before them, the answer names the attempt that began before it; if it has no later
/// record, the attempt that began after it.
fn read_records(
    run_dir: &std::path::Path,
    attempt: (u32, u32),
    query: &RecordsQuery,
) -> io::Result<serde_json::Value> {
    let path = rlm_store::transcript::path(run_dir, attempt.0, attempt.1);
    let read = || match query.after {
        Some(after) => TranscriptWindow::after(&path, after, MORE_RECORDS),
        None => TranscriptWindow::before(&path, query.before, MORE_RECORDS),
    };
    let mut window = read()?;
    let mut next = None;
    if query.after == Some(window.to) {
        next = attempts::attempt_after(run_dir, attempt);
        // The attempt may have written its last records since the first read.
        if next.is_some() {
            window = read()?;
        }
    }
    let previous = match query.after {
        None if window.from == 0 => attempts::attempt_before(run_dir, attempt),
        _ => None,
    };
    Ok(json!({
        "from": window.from,
        "to": window.to,
        "html": transcript::records(&window),
        "previous": previous.map(attempt_name),
        "next": next.map(attempt_name),
    }))
}

fn json_response(status: StatusCode, value: &serde_json::Value) -> Response {
    let headers = [(CONTENT_TYPE, "application/json")];
    (status, headers, value.to_string()).into_response()
}

async fn report_page(
    State(app): State<Arc<App>>,
    Extension(context): Extension<PageContext>,
    Path(key): Path<String>,
) -> Result<Response, Problem> {
    let (row, waiting) = row(&app, &key).await?;
    let (runs, of) = (Arc::clone(&app.runs), Arc::clone(&row));
    let report = blocking(move || {
        let project = runs.project(&of).ok_or("its project is gone")?;
        let timeline = project.timeline(&of.run).map_err(|e| e.to_string())?;
        let terms = runs.program().report_terms(&project, &timeline);
        let report = rlm_report::collect(&project, timeline, terms);
        Ok::<_, String>(rlm_report::body(&report))
    });
    let main = match report.await? {
        Ok(body) => html! {
            link rel="stylesheet" href="/assets/report.css";
            (crumbs(&row, Tab::Report))
            (tabs(&row, Tab::Report))
            div class="report" { (maud::PreEscaped(body)) }
        },
        Err(why) => html! {
            (crumbs(&row, Tab::Report))
            (tabs(&row, Tab::Report))
            p class="warn" { "The report can't be shown: " (why) }
        },
    };
    let title = format!("Report of {}", row.run);
    Ok(html_response(page(
        &context,
        Place::Other,
        &title,
        &topic(&row, Tab::Report),
        waiting,
        &main,
    )))
}

async fn figures_page(
    State(app): State<Arc<App>>,
    Extension(context): Extension<PageContext>,
    Path(key): Path<String>,
) -> Result<Response, Problem> {
    let (row, waiting) = row(&app, &key).await?;
    let (runs, of) = (Arc::clone(&app.runs), Arc::clone(&row));
    let figures = blocking(move || {
        let project = runs.project(&of).ok_or("its project is gone")?;
        let timeline = project.timeline(&of.run).map_err(|e| e.to_string())?;
        Ok::<_, String>(rlm_report::figures(&timeline, TimeZone::system()))
    });
    let figures = figures.await?;
    let main = html! {
        (crumbs(&row, Tab::Figures))
        (heading(&row))
        (tabs(&row, Tab::Figures))
        link rel="stylesheet" href="/assets/plots.css";
        @match figures {
            Ok(figures) => section aria-label="Time and cost" class="plots" { (maud::PreEscaped(figures)) },
            Err(why) => p class="warn" { "The figures can't be shown: " (why) },
        }
    };
    let title = format!("Time and cost of {}", row.run);
    Ok(html_response(page(
        &context,
        Place::Other,
        &title,
        &topic(&row, Tab::Figures),
        waiting,
        &main,
    )))
}

async fn act(
    State(app): State<Arc<App>>,
    Extension(session): Extension<Session>,
    Extension(context): Extension<PageContext>,
    Path(key): Path<String>,
    headers: HeaderMap,
    Form(form): Form<ActionForm>,
) -> Result<Response, Problem> {
    expect_operator(&session, &context, &form.csrf)?;
    let row = app.runs.row(&key).ok_or(Problem::NotFound)?;
    let project = app.runs.project(&row).ok_or(Problem::NotFound)?;
    let (runs, of) = (Arc::clone(&app.runs), Arc::clone(&row));
    let sent = form.clone();
    let result = blocking(move || actions::act(&*runs.program(), &project, &of, &sent)).await?;
    let is_script = only(&headers, ACCEPT.as_str()).is_some_and(|it| it.contains("json"));
    if is_script {
        let (name, text) = match &result {
            ActionResult::Done(text) => ("done", text),
            ActionResult::Confirm(text) => ("confirm", text),
            ActionResult::Rejected(text) => ("rejected", text),
        };
        return Ok(json_response(
            StatusCode::OK,
            &json!({"result": name, "text": visible(text)}),
        ));
    }
    let main = match &result {
        // The result of a fork names the new run.
        ActionResult::Done(text) if form.action == "fork" => {
            html! { pre { "\n" (text) } p { a href={ "/runs/" (key) } { "Back to the run" } } }
        }
        ActionResult::Done(_) => {
            let headers = [(LOCATION, format!("/runs/{key}"))];
            return Ok((StatusCode::SEE_OTHER, headers).into_response());
        }
        ActionResult::Rejected(why) => {
            html! { p class="warn" { (why) } p { a href={ "/runs/" (key) } { "Back to the run" } } }
        }
        ActionResult::Confirm(question) => html! {
            p { (question) }
            form method="post" action={ "/runs/" (key) "/act" } {
                (crate::pages::secret_field(&context))
                input type="hidden" name="confirmed" value="yes";
                @for (name, value) in form.fields() { input type="hidden" name=(name) value=(value); }
                button class="danger" name="action" value=(form.action) { "Yes" }
            }
            p { a href={ "/runs/" (key) } { "Back to the run" } }
        },
    };
    Ok(html_response(page(
        &context,
        Place::Other,
        row.run.as_str(),
        "",
        0,
        &main,
    )))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ExportForm {
    csrf: String,
    /// `yes` if the archive has the uncommitted changes.
    dirty: String,
}

async fn export_copy(
    State(app): State<Arc<App>>,
    Extension(session): Extension<Session>,
    Extension(context): Extension<PageContext>,
    Path(key): Path<String>,
    Form(form): Form<ExportForm>,
) -> Result<Response, Problem> {
    expect_operator(&session, &context, &form.csrf)?;
    let row = app.runs.row(&key).ok_or(Problem::NotFound)?;
    let project = app.runs.project(&row).ok_or(Problem::NotFound)?;
    let busy = |_| Problem::Failed("Other exports are running; try again when they end.".into());
    let permit = Arc::clone(&app.exports).try_acquire_owned().map_err(busy)?;
    let (program, run) = (app.runs.program(), row.run.clone());
    let with_uncommitted = form.dirty == "yes";
    let is_allowed = {
        let app = Arc::clone(&app);
        move || app.is_open(&session)
    };
    let export = move || {
        export::export(
            program,
            &project,
            &run,
            with_uncommitted,
            permit,
            is_allowed,
        )
    };
    let body = match blocking(export).await? {
        Ok(download) => download.begin().await,
        Err(why) => Err(why),
    };
    match body {
        Ok(body) => {
            let name = format!("attachment; filename=\"rlm-{}.tar.zst\"", row.run);
            let headers = [
                (CONTENT_TYPE, "application/zstd".to_owned()),
                (CONTENT_DISPOSITION, name),
            ];
            Ok((headers, body).into_response())
        }
        Err(why) => {
            let main = html! {
                p class="warn" { (why) }
                p { a href={ "/runs/" (key) } { "Back to the run" } }
            };
            Ok(html_response(page(
                &context,
                Place::Other,
                row.run.as_str(),
                "",
                0,
                &main,
            )))
        }
    }
}

async fn events(
    State(app): State<Arc<App>>,
    Extension(session): Extension<Session>,
    Extension(context): Extension<PageContext>,
    Query(topics): Query<Vec<(String, String)>>,
) -> Response {
    if topics.len() > MAX_TOPICS {
        return StatusCode::BAD_REQUEST.into_response();
    }
    let topics = topics.into_iter().filter(|(name, _)| name == "topic");
    let topics = topics.filter_map(|(_, name)| Some((name.clone(), Topic::parse(&name)?)));
    let topics = topics.collect();
    let stream = stream::stream(app, session, context, topics);
    // Otherwise a reverse proxy may collect events before it passes them on.
    (
        [(HeaderName::from_static("x-accel-buffering"), "no")],
        stream,
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use axum::body::Bytes;
    use futures_core::Stream;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use tokio::sync::{Mutex, Notify, mpsc};

    use super::*;

    /// A body that arrives in pieces.
    struct Pieces(mpsc::Receiver<Bytes>);

    impl Stream for Pieces {
        type Item = io::Result<Bytes>;

        fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            self.0.poll_recv(cx).map(|piece| piece.map(Ok))
        }
    }

    #[tokio::test]
    async fn late_answer_is_an_error_and_a_long_body_is_not_cut() {
        let (to, from) = mpsc::channel(1);
        let (from, never) = (Arc::new(Mutex::new(Some(from))), Arc::new(Notify::new()));
        let body = move || async move {
            let from = from.lock().await.take().unwrap();
            Body::from_stream(Pieces(from))
        };
        let late = move || async move { never.notified().await };
        let limit = Duration::from_millis(10);
        let limited = middleware::from_fn(move |request, next| limit_answer(limit, request, next));
        let router = Router::new()
            .route("/body", get(body))
            .route("/late", get(late))
            .layer(limited);
        let service = TowerToHyperService::new(router);
        let answer = async |path: &str| {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            service.call(request).await.unwrap()
        };
        let long = answer("/body").await;
        // The limit passes meanwhile.
        let deadline = Duration::from_secs(30);
        let late = timeout(deadline, answer("/late")).await.unwrap();
        assert_eq!(late.status(), StatusCode::SERVICE_UNAVAILABLE);
        let all = tokio::spawn(to_bytes(long.into_body(), MAX_BODY));
        to.send("one ".into()).await.unwrap();
        to.send("two".into()).await.unwrap();
        drop(to);
        assert_eq!(all.await.unwrap().unwrap(), "one two");
    }
}
