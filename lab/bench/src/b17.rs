//! B17: the pages of `rlm view`: the time to open the list of many runs, the time from an agent's output to an open page, and the memory of the server
//! while a page follows a run.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::harness::{
    Bench, Child, Contender, Outcome, Plan, Process, Progress, Result, Role, Sample, Series, Turn,
    in_turn, now,
};
use crate::programs::{
    command_in, make_place, read_all, resident_kib, rlm_with_pages_or_skip, timed,
};
use crate::scripted_agent;

pub(crate) const BENCH: Bench = Bench {
    id: "b17",
    title: "the pages of `rlm view`",
    run,
    measured: None,
};

const PAGE: &str = "rlm view";
const FILES: &str = "reading the files of the runs";
const LIST: &str = "start of the server, its first list read";
const LIVE: &str = "output of an agent to an open page";
const MEMORY: &str = "memory of the server";
/// The lines of an hour, at ten a second.
const HOUR: usize = 36_000;
/// The lines after which the memory is compared: the buffers of the server are full by then.
const WARM: usize = 6_000;
/// The pause between two lines whose way to the page is measured.
const PAUSE: Duration = Duration::from_millis(40);
/// Longer than each wait.
const LIMIT: Duration = Duration::from_secs(60);

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let Some(rlm) = rlm_with_pages_or_skip(outcome)? else {
        return Ok(());
    };
    let place = Place {
        dir: plan.scratch.join("b17"),
        rlm,
    };
    make_place(&place.dir)?;
    let count = plan.scale.pick(1000, 100, 3);
    let progress = Progress::of("b17 runs");
    for number in 0..count {
        progress.show(|| format!("{number} of {count}"));
        let mut command = command_in(&place.dir, &place.rlm);
        let title = format!("run {number}");
        command.args([
            "run", "-n", "1", "--sleep", "0", "--prompt", "x", "--title", &title,
        ]);
        timed(command.args(["--", "true"]))?;
    }
    lists(&place, plan, count, outcome)?;
    live(&place, plan, outcome)
}

/// The directory of a project and its home, and the program.
struct Place {
    dir: PathBuf,
    rlm: PathBuf,
}

/// A server, and the session of a browser.
struct View {
    process: Child,
    host: String,
    cookie: String,
}

impl View {
    fn start(place: &Place) -> Result<Self> {
        let mut command = command_in(&place.dir, &place.rlm);
        command.args(["view", "--no-open"]).stderr(Stdio::inherit());
        let mut process = Child::spawn(command)?;
        let link = process.read_line(LIMIT)?;
        let (host, path) = {
            link.strip_prefix("http://")
                .and_then(|it| it.split_once('/'))
        }
        .ok_or_else(|| format!("no link: {link}"))?;
        let mut view = Self {
            process,
            host: host.to_owned(),
            cookie: String::new(),
        };
        let login = view.get(&format!("/{path}"))?;
        let cookie = { login.lines() }.find_map(|line| line.strip_prefix("set-cookie: "));
        let cookie = cookie.and_then(|it| it.split(';').next());
        view.cookie = cookie.ok_or("the login sets no cookie")?.to_owned();
        Ok(view)
    }

    fn open(&self, path: &str) -> Result<TcpStream> {
        let port = self.host.rsplit(':').next().unwrap_or_default().parse()?;
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(LIMIT))?;
        let Self { host, cookie, .. } = self;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: {host}\r\ncookie: {cookie}\r\nconnection: close\r\n\r\n"
        )?;
        Ok(stream)
    }

    /// Returns a whole response.
    fn get(&self, path: &str) -> Result<String> {
        let mut text = String::new();
        self.open(path)?.read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Measures the start of a server and its list of all runs, beside a read of all their files.
fn lists(place: &Place, plan: &Plan, count: usize, outcome: &mut Outcome) -> Result<()> {
    let turns = vec![
        Turn::new(PAGE, Role::Ours, |_| {
            let begun = Instant::now();
            let page = View::start(place)?.get("/")?;
            let took = begun.elapsed();
            let newest = format!("run {}<", count - 1);
            match page.contains(&newest) {
                true => Ok(Some(took.as_secs_f64() * 1e3)),
                false => Err("the newest run is not in the list".into()),
            }
        }),
        Turn::new(FILES, Role::Floor, |_| {
            let begun = Instant::now();
            read_all(&place.dir.join("work/.rlm/runs"))?;
            Ok(Some(begun.elapsed().as_secs_f64() * 1e3))
        }),
    ];
    let rounds = plan.scale.pick(20, 5, 1);
    let found = in_turn(0..rounds, turns, &Progress::of("b17 list"))?;
    let series = Series::new(LIST, "ms", found);
    let median = series.median(PAGE);
    outcome
        .at_most("the list of 1,000 runs", median, 1000.0, "ms")
        .about(LIST, PAGE);
    outcome.series.push(series);
    Ok(())
}

/// Measures the way of single lines to an open page, and the memory of the server over many lines.
fn live(place: &Place, plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let view = View::start(place)?;
    let timed = plan.scale.pick(500, 100, 3);
    let poured = plan.scale.pick(HOUR, HOUR / 4, 30);
    let pause = PAUSE.as_millis().to_string();
    let [timed_text, poured_text] = [timed, poured].map(|count| count.to_string());
    let agent = scripted_agent::words(&["ticks", &timed_text, &pause, &poured_text])?;
    let mut command = command_in(&place.dir, &place.rlm);
    command.args(["run", "-n", "1", "--prompt", "x", "--title", "ticks", "--"]);
    let (_run, _, _out) = {
        command.args(agent);
        Process::piped(command)?
    };
    let key = key_of(&view, "ticks")?;
    let mut stream = BufReader::new(view.open(&format!("/events?topic=run:{key}"))?);
    let mut samples = Vec::new();
    let (mut seen, mut warm) = (0, None);
    let mut line = Vec::new();
    let progress = Progress::of("b17 live");
    while seen < timed + poured {
        progress.show(|| format!("{seen} lines"));
        line.clear();
        if stream.read_until(b'\n', &mut line)? == 0 {
            return Err("the stream of the page ended".into());
        }
        let arrived = now();
        for (number, stamp) in ticks(&String::from_utf8_lossy(&line)) {
            if number < timed {
                let value = arrived.saturating_sub(stamp) as f64 / 1e6;
                samples.push(Sample {
                    round: number,
                    value,
                });
            }
            seen = seen.max(number + 1);
        }
        if warm.is_none() && seen > WARM.min(poured / 3) {
            warm = resident_kib(view.process.id());
        }
    }
    let late = resident_kib(view.process.id());
    let series = Series::new(LIVE, "ms", vec![Contender::of(PAGE, Role::Ours, samples)]);
    let median = series.median(PAGE);
    outcome
        .at_most("an output on an open page, p50", median, 100.0, "ms")
        .about(LIVE, PAGE);
    outcome.series.push(series);
    let growth = warm.zip(late).map(|(warm, late)| late / warm);
    outcome
        .at_most(
            "memory after an hour of lines, over 6,000 lines",
            growth,
            1.1,
            "×",
        )
        .about(MEMORY, PAGE);
    if let Some(late) = late {
        let memory = Contender::single(PAGE, Role::Ours, late / 1024.0);
        outcome
            .series
            .push(Series::new(MEMORY, "MiB", vec![memory]));
    }
    Ok(())
}

/// Returns the key of the run with this title, as soon as the list has it.
fn key_of(view: &View, title: &str) -> Result<String> {
    let deadline = Instant::now() + LIMIT;
    let end = format!(">{title}<");
    while Instant::now() < deadline {
        let page = view.get("/")?;
        let row = page.find(&end).map(|at| &page[..at]);
        let link = row.and_then(|row| row.rsplit("/runs/").next());
        if let Some((key, _)) = link.and_then(|it| it.split_once('"')) {
            return Ok(key.to_owned());
        }
        crate::harness::pause(Duration::from_millis(20));
    }
    Err(format!("the list has no run `{title}`").into())
}

/// Returns the numbers and the times of the lines of the scripted agent in a text.
fn ticks(text: &str) -> impl Iterator<Item = (usize, u64)> {
    text.split("tick:").skip(1).filter_map(|rest| {
        let mut figures = rest.split(':');
        let number = figures.next()?.parse().ok()?;
        Some((number, figures.next()?.parse().ok()?))
    })
}
