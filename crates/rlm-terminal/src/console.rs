//! The thread that owns the screen. It receives everything that concerns the person, one event at a time.

mod draw;
mod effects;
mod job;
mod scopes;
mod shown;

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use agent_duplex::Event;
use interrupt_stack::{Interrupts, Notice};
use loop_runner::{Control, News, NewsReceiver, View};
use loop_state::{Timestamp, times};
use tokio::sync::{mpsc, watch};
use tokio::time::interval;

use effects::{Reader, edited, next_notice, next_signal, next_told, room, typed_before};
use scopes::Scopes;
pub use shown::{Log, Shown, Signals, ToAnswer, ToLines};

use super::editor::{Editor, Subject};
use super::keys::Decoder;
use super::paint::{Narrowed, Painter};
use super::scene::Scene;
use super::scope::{Asking, PressActions, Scope};
use super::sink::Sink;
use super::tty::{Tty, Typed};
use super::ui::Ui;
use crate::terminal::{LogPlace, Terminal};

/// The interval of ticks, which check the rows below the log: one per second of the clock.
const TICK: Duration = Duration::from_secs(1);
/// The interval of ticks while something prompts or an editor has the screen.
const QUICK: Duration = Duration::from_millis(250);
/// The most bytes of waiting output, and the most run events, in one frame.
const FRAME: usize = 64 << 10;
const FRAME_NEWS: usize = 64;

impl Terminal {
    /// Starts a thread that shows a run. The thread ends when the run has ended and all output is printed.
    #[must_use]
    pub fn show(&self, shown: Shown, news: NewsReceiver) -> JoinHandle<()> {
        // Push the handler before anything starts, so that every press opens the menu.
        let answers = self.tty.is_some() || self.broken.is_some() || shown.presses.is_fixed();
        let scopes = answers.then(|| Scopes::of_run(shown.interrupts.clone()));
        let (terminal, caller) = (self.clone(), std::thread::current());
        std::thread::spawn(move || {
            self::show(shown, news, &terminal, scopes);
            caller.unpark();
        })
    }
}

/// Shows the run until it has ended and all output is printed.
fn show(shown: Shown, news: NewsReceiver, terminal: &Terminal, scopes: Option<Scopes>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the runtime of the terminal thread can start");
    let (typed_to, typed) = mpsc::channel(16);
    let reader = Reader::of(terminal, typed_to);
    let interrupts = shown.interrupts.clone();
    let console = Console::new(shown, terminal, scopes);
    runtime.block_on(console.run(news, typed, &interrupts));
    drop(reader);
}

struct Console {
    run: String,
    view: watch::Receiver<Arc<View>>,
    control: mpsc::Sender<Control>,
    interrupts: Interrupts,
    prompts: Vec<Subject>,
    /// Whether the log is for programs.
    is_json: bool,
    text: ToLines,
    answer: ToAnswer,
    signals: fn() -> Signals,
    left_code: u8,
    on_stop: Box<dyn Fn() + Send>,
    presses: PressActions,
    bell: bool,
    attached: bool,
    ui: Ui,
    painter: Painter,
    place: LogPlace,
    /// Whether the person has read that another process turned Ctrl-C off.
    told_rearmed: bool,
    /// Whether the person has read that the log has no reader any more.
    told_gone: bool,
    decoder: Decoder,
    /// The time after which the decoder gets no more bytes for its pending keys.
    decode_by: Option<Instant>,
    tty: Option<Arc<Tty>>,
    dumb: bool,
    in_front: bool,
    generation: u64,
    ui_generation: u64,
    /// The handlers of presses; `None` if every press is a stop.
    scopes: Option<Scopes>,
    notice: Option<Notice>,
    broken: Option<String>,
    editor: Option<Editor>,
    /// The phase whose prompt an editor opens next.
    wants_editor: Option<u32>,
    kill_editor_at: Option<Instant>,
    log: Sink,
    /// The person's terminal, if the log goes elsewhere.
    face: Option<Sink>,
    /// Output that waits for the log.
    to_log: String,
    /// Output that waits for the person's terminal.
    to_face: String,
    is_over: bool,
    before: Vec<(Timestamp, News)>,
    told: Option<mpsc::Receiver<String>>,
}

enum Woken {
    Notice(Scope, Notice),
    Shutdown,
    Typed(Option<Typed>),
    Silence,
    Edited(super::editor::Edited),
    Suspend,
    Continued,
    Resized,
    LogRoom,
    FaceRoom,
    Told(Option<String>),
    News(Option<(Timestamp, News)>),
    View(bool),
    Tick,
}

impl Console {
    fn new(shown: Shown, terminal: &Terminal, scopes: Option<Scopes>) -> Self {
        let Shown {
            run,
            view,
            control,
            interrupts,
            prompts,
            log,
            signals,
            left_code,
            on_stop,
            presses,
            bell,
            attached,
            before,
            told,
        } = shown;
        let Log {
            to,
            has_colour,
            is_json,
            is_full,
            text,
            answer,
        } = log;
        let tty = terminal.tty.clone();
        let log_here = tty.is_some() && terminal.log == LogPlace::Here;
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let face = tty
            .as_ref()
            .filter(|_| !log_here)
            .and_then(|_| Sink::terminal().ok());
        let width = tty
            .as_ref()
            .filter(|_| log_here)
            .map(|tty| tty.size().0 - 1);
        Self {
            run,
            view,
            control,
            interrupts,
            prompts,
            ui: Ui::new(width, is_json).attached(attached).in_full(is_full),
            is_json,
            text,
            answer,
            signals,
            left_code,
            on_stop,
            presses,
            bell,
            attached,
            place: terminal.log,
            told_rearmed: false,
            told_gone: false,
            painter: Painter::new(dumb, Narrowed::of(|name| std::env::var(name).ok())),
            decoder: Decoder::default(),
            decode_by: None,
            in_front: tty.as_ref().is_some_and(|tty| tty.is_foreground()),
            tty,
            dumb,
            generation: 0,
            ui_generation: 0,
            scopes,
            notice: None,
            broken: terminal.broken.clone(),
            editor: None,
            wants_editor: None,
            kill_editor_at: None,
            log: Sink::start(to, has_colour),
            face,
            to_log: String::new(),
            to_face: String::new(),
            is_over: false,
            before,
            told,
        }
    }

    async fn run(
        mut self,
        mut news: NewsReceiver,
        mut typed: mpsc::Receiver<Typed>,
        interrupts: &Interrupts,
    ) {
        let mut shutdown = pin!(interrupts.cancelled());
        let (mut is_shut, mut has_view) = (false, true);
        let Signals {
            mut suspend,
            mut continued,
            mut resized,
        } = (self.signals)();
        let mut tick = interval(TICK);
        let mut tick_at = tokio::time::Instant::now();
        if self.face.is_some() && self.place == LogPlace::Program {
            let run = &self.run;
            self.to_face = format!("run {run} is running; Ctrl-C opens the menu here\n");
        }
        for (at, item) in std::mem::take(&mut self.before) {
            self.news(at, &item);
        }
        self.follow();
        while !(self.is_over && self.editor.is_none() && self.wants_to_print() == (false, false)) {
            let deadline = self.decode_by.map(tokio::time::Instant::from_std);
            let can_type = self.tty.is_some();
            // Back-pressure: stop taking events while the log is full. Events wait in the bounded channel.
            let has_room = self.log.has_room();
            let wants_news = !self.is_over
                && has_room
                && self.to_log.len() < FRAME
                && !(self.waits() && has_view);
            let (log, face) = self.wants_to_print();
            let can_tick = (can_type && !self.is_over) || self.editor.is_some();
            if self.editor.is_some() || self.ui.is_prompting() {
                tick_at = tick_at.min(tokio::time::Instant::now() + QUICK);
                tick.reset_at(tick_at);
            }
            let woken = tokio::select! {
                biased;
                (scope, notice) = next_notice(&mut self.scopes), if !is_shut => Woken::Notice(scope, notice),
                _ = &mut shutdown, if !is_shut => Woken::Shutdown,
                typed = typed_before(&mut typed, deadline), if can_type => typed.map_or(Woken::Silence, Woken::Typed),
                edited = edited(&mut self.editor), if self.editor.is_some() => Woken::Edited(edited),
                _ = next_signal(&mut suspend) => Woken::Suspend,
                _ = next_signal(&mut continued) => Woken::Continued,
                _ = next_signal(&mut resized) => Woken::Resized,
                _ = tick.tick(), if can_tick => Woken::Tick,
                told = next_told(&mut self.told) => Woken::Told(told),
                changed = self.view.changed(), if has_view => Woken::View(changed.is_ok()),
                () = room(self.face.as_ref()), if face => Woken::FaceRoom,
                () = self.log.room(), if log || !has_room => Woken::LogRoom,
                // The last branch, so that a flood of events doesn't starve the others.
                item = news.recv(), if wants_news => Woken::News(item),
            };
            match woken {
                Woken::Notice(scope, notice) => self.noticed(scope, notice),
                Woken::Shutdown => {
                    is_shut = true;
                    self.shut();
                }
                Woken::Typed(typed) => self.typed(typed),
                Woken::Silence => {
                    let keys = self.decoder.flush();
                    self.keys(keys);
                }
                Woken::Edited(result) => {
                    self.editor = None;
                    if let Some(tty) = &self.tty {
                        tty.reset();
                    }
                    self.returned();
                    self.ui.edited(result);
                    if self.is_over {
                        self.ui.shut();
                    }
                }
                Woken::Suspend => self.suspend(&mut continued).await,
                Woken::Continued => self.returned(),
                Woken::LogRoom => self.print_log(),
                Woken::FaceRoom => self.print_face(),
                Woken::Told(told) => match told {
                    Some(told) => self.ui.say(told),
                    None => self.told = None,
                },
                Woken::News(item) => self.all_news(item, &mut news).await,
                Woken::View(is_there) => {
                    has_view = is_there;
                    self.look();
                }
                // Each pass of the loop compares the live rows anyway.
                Woken::Resized => {}
                Woken::Tick => {
                    tick_at = tokio::time::Instant::now() + until_next_second();
                    tick.reset_at(tick_at);
                    self.tick();
                }
            }
            self.perform();
            if let Some(phase) = self.wants_editor.take() {
                self.edit(phase).await;
            }
            self.follow();
        }
        self.leave();
    }

    /// Whether the terminal may have echoed input that this thread hasn't handled yet. The position of the cursor is then unknown.
    fn is_typed_unseen(&self) -> bool {
        let is_ours = self.in_front && self.editor.is_none() && !self.is_over;
        is_ours
            && self.painter.above().is_some()
            && self.tty.as_ref().is_some_and(|tty| tty.has_unheard())
    }

    /// Whether the log has to wait, because its reader may print on the terminal while the person is prompted.
    fn waits(&self) -> bool {
        self.ui.is_prompting() && self.face.is_some() && self.place == LogPlace::Program
    }

    /// Pushes and drops handlers so that they match the press scopes of the run now.
    fn follow(&mut self) {
        let view = self.view.borrow().clone();
        let step = Scope::of_step(Scene::of(&view, self.attached));
        if let Some(scopes) = &mut self.scopes {
            scopes.follow(step.into_iter().chain(self.ui.scopes()));
        }
    }

    fn noticed(&mut self, scope: Scope, notice: Notice) {
        let view = self.view.borrow().clone();
        // In the background nothing prompts; a press has the same meaning as without a terminal.
        let is_here = |tty: &Arc<Tty>| tty.is_foreground() || self.editor.is_some();
        let asking = match (&self.broken, &self.tty) {
            (Some(_), _) => Asking::Broken,
            (None, Some(tty)) if is_here(tty) => Asking::Here,
            _ => Asking::Nowhere,
        };
        self.notice = Some(notice);
        let scene = Scene::of(&view, self.attached);
        self.ui
            .pressed(scope, self.presses.of(scope), asking, scene);
    }

    fn shut(&mut self) {
        self.ui.shut();
        if let Some(editor) = &self.editor {
            editor.hang_up();
            self.kill_editor_at = Some(Instant::now() + times::EDITOR_ENDING);
        }
    }

    fn typed(&mut self, typed: Option<Typed>) {
        let is_read = !matches!(typed, Some(Typed::Rearmed));
        if let Some(tty) = self.tty.as_ref().filter(|_| is_read) {
            tty.heard();
        }
        match typed {
            Some(Typed::Lines(mut bytes)) => {
                self.press_in(&mut bytes);
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let width = self.tty.as_ref().map(|tty| tty.size().0);
                if let Some(width) = width {
                    self.painter.resized(width);
                    self.painter.typed(&text);
                }
                let view = self.view.borrow().clone();
                self.ui
                    .lines(&text, Scene::of(&view, self.attached), now(), &self.run);
            }
            Some(Typed::Keys(bytes, generation)) if generation == self.generation => {
                let keys = self.decoder.feed(&bytes);
                self.keys(keys);
            }
            Some(Typed::Keys(..)) => {}
            Some(Typed::Rearmed) => self.rearmed(),
            Some(Typed::Gone) | None => {
                self.ui.shut();
                self.tty = None;
                if !self.attached {
                    // Fails only if the run has ended; then it needs no request.
                    let _over = self.control.try_send(Control::Attended(false));
                }
            }
        }
    }

    fn keys(&mut self, keys: Vec<super::keys::Key>) {
        self.decode_by = self.decoder.patience().map(|wait| Instant::now() + wait);
        let view = self.view.borrow().clone();
        self.ui
            .keys(keys, Scene::of(&view, self.attached), now(), &self.run);
    }

    /// Takes all events that are ready, up to the limits of a frame, so that a flood is drawn in few frames.
    async fn all_news(&mut self, first: Option<(Timestamp, News)>, news: &mut NewsReceiver) {
        let mut next = Some(first);
        for _ in 0..FRAME_NEWS {
            match next {
                Some(Some((at, item))) => self.news(at, &item),
                Some(None) => {
                    self.is_over = true;
                    self.ui.settle();
                    if self.editor.is_none() {
                        self.ui.shut();
                    }
                    return;
                }
                None => return,
            }
            if self.to_log.len() >= FRAME {
                return;
            }
            let mut waiting = pin!(news.recv());
            next = std::future::poll_fn(|context| {
                Poll::Ready(match waiting.as_mut().poll(context) {
                    Poll::Ready(item) => Some(item),
                    Poll::Pending => None,
                })
            })
            .await;
        }
        if let Some(Some((at, item))) = next {
            self.news(at, &item);
        }
    }

    fn news(&mut self, at: Timestamp, news: &News) {
        if self.bell
            && needs_a_person(news)
            && let Some(tty) = self.tty.as_ref().filter(|tty| tty.is_foreground())
        {
            tty.ring();
        }
        // The status line already shows how time passes.
        let is_status = self.tty.is_some() && self.has_status();
        if is_status && matches!(news, News::StillWaiting { .. }) {
            return;
        }
        // A log that goes elsewhere still gets the countdown.
        let counts = is_status && matches!(news, News::StopWaiting { .. });
        if counts && self.face.is_none() {
            return;
        }
        let text = (self.text)(at, news);
        self.ui.news(news, text);
        if self.face.is_some()
            && !counts
            && let Some(words) = (self.answer)(news)
        {
            self.ui.say(words);
        }
        self.perform();
    }

    fn look(&mut self) {
        let view = self.view.borrow_and_update().clone();
        self.ui.viewed(Scene::of(&view, self.attached));
    }

    fn tick(&mut self) {
        let view = self.view.borrow().clone();
        self.ui.ticked(Scene::of(&view, self.attached));
        if let Some(editor) = &self.editor
            && self.kill_editor_at.is_some_and(|at| at <= Instant::now())
        {
            editor.kill();
        }
        if self.face.is_some() && self.log.is_gone() && !self.told_gone {
            self.told_gone = true;
            let run = &self.run;
            let text = format!(
                "the reader of the standard output is gone; the run continues. To see its output: rlm logs {run}\n"
            );
            self.ui.say(text);
        }
        let in_front = self.tty.as_ref().is_some_and(|tty| tty.is_foreground());
        if self.editor.is_none() && in_front != self.in_front {
            self.returned();
        }
        self.attend(Scene::of(&view, self.attached));
    }

    fn perform(&mut self) {
        loop {
            let effects = self.ui.effects();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.one(effect);
            }
        }
        self.settle_mode();
    }

    /// Restores the mode of the terminal when the run has ended.
    fn leave(&mut self) {
        if let Some(tty) = &self.tty {
            tty.restore();
        }
    }
}

/// Prints on the standard error that a press could not open the menu.
fn complain(why: &str) {
    anstream::eprintln!(
        "rlm: the menu can't be shown: {why}; Ctrl-C again within 2 s saves and stops"
    );
}

/// Whether the run waits for the person after this event.
fn needs_a_person(news: &News) -> bool {
    matches!(
        news,
        News::Agent(Event::PermissionAsked(_)) | News::Run(loop_state::Notice::Review(_))
    )
}

/// Returns the time until the clock shows the next second.
fn until_next_second() -> Duration {
    TICK - Duration::from_millis(now().0 % 1000)
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Timestamp(since.unwrap_or_default().as_millis() as u64)
}
