//! Frames as one SVG: real text, no script, no external resources. CSS shows each row during its frames.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Frame;
use super::screen::{CharStyle, Row};

/// Sizes in tenths of a pixel: a cell, the space around the rows, and the bars above and below them.
const CELL: (u32, u32) = (84, 185);
const SIDE: u32 = 220;
const HEAD: u32 = 460;
const FOOT: u32 = 560;
/// Few fonts have this character, so it is drawn.
const ELBOW: char = '⎿';

/// The style brings its own background, so it works on both a light and a dark page.
const STYLE: &str = "\
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono','DejaVu Sans Mono',monospace;fill:#d3dae3;white-space:pre}\
.b{font-weight:700;fill:#f4f7fb}.d{fill:#8a94a3}.c1{fill:#ff8a80;font-weight:700}.c2{fill:#8fdc97}.c3{fill:#f0c674}\
.t{fill:#8a94a3;font-size:13px}.s{font:600 15px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#f4f7fb}\
path{fill:none;stroke:#8a94a3}path.c1{fill:none;stroke:#ff8a80}path.d{fill:none}\
g{visibility:hidden}.z{visibility:visible}";

/// From the frame with the first number up to, but excluding, the frame with the second.
type Span = (usize, usize);

/// Draws the frames one after another, in an endless loop. With reduced motion only the last frame is shown.
pub(super) fn draw(frames: &[Frame], columns: u16, rows: u16) -> String {
    let width = u32::from(columns) * CELL.0 + 2 * SIDE;
    let height = u32::from(rows) * CELL.1 + HEAD + FOOT;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\" role=\"img\" xml:space=\"preserve\">\n\
         <title>A recording of `rlm demo`</title>\n<desc>{story}</desc>\n<style>{STYLE}\n",
        w = px(width),
        h = px(height),
        story = escaped(&captions(frames).join(" ")),
    );
    let parts = parts(frames);
    let starts = starts(frames);
    for span in parts.keys().filter(|span| **span != (0, frames.len())) {
        out.push_str(&motion(*span, &starts));
    }
    out.push_str("@media(prefers-reduced-motion:reduce){g{animation:none!important}}</style>\n");
    write!(
        out,
        "<rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"10\" fill=\"#10151d\" stroke=\"#2b3442\"/>\n\
         <path d=\"M1 {y}H{w}M1 {f}H{w}\" style=\"stroke:#212936\"/>\n\
         <circle cx=\"22\" cy=\"17\" r=\"5\" fill=\"#3a4454\"/><circle cx=\"40\" cy=\"17\" r=\"5\" fill=\"#3a4454\"/><circle cx=\"58\" cy=\"17\" r=\"5\" fill=\"#3a4454\"/>\n\
         <text class=\"t\" x=\"{m}\" y=\"21.5\" text-anchor=\"middle\">rlm demo</text>\n",
        px(width - 10),
        px(height - 10),
        y = px(HEAD - 120),
        f = px(height - FOOT + 120),
        w = px(width - 10),
        m = px(width / 2),
    )
    .expect("writing to a string can't fail");
    for ((from, to), part) in parts {
        let last = if to == frames.len() { " z" } else { "" };
        writeln!(out, "<g class=\"f{from}-{to}{last}\">\n{part}</g>")
            .expect("writing to a string can't fail");
    }
    out.push_str("</svg>\n");
    out
}

/// Returns the captions, each once.
fn captions(frames: &[Frame]) -> Vec<&'static str> {
    let mut captions: Vec<_> = frames.iter().map(|frame| frame.caption).collect();
    captions.dedup();
    captions
}

/// Returns the start of each frame as a percentage with three decimals, and the whole duration.
fn starts(frames: &[Frame]) -> (Vec<f64>, u32) {
    let all: u32 = frames.iter().map(|frame| frame.shown).sum();
    let mut at = 0;
    let mut starts: Vec<f64> = Vec::new();
    for frame in frames {
        starts.push(f64::from(at) * 100.0 / f64::from(all));
        at += frame.shown;
    }
    starts.push(100.0);
    (starts, all)
}

/// Returns the animation of the parts of these frames.
fn motion((from, to): Span, (starts, all): &(Vec<f64>, u32)) -> String {
    let name = format!("f{from}-{to}");
    let show = match from {
        0 => "0%{visibility:visible}".to_owned(),
        _ => format!(
            "0%{{visibility:hidden}}{:.2}%{{visibility:visible}}",
            starts[from]
        ),
    };
    let hide = match to + 1 == starts.len() {
        true => "to{visibility:visible}".to_owned(),
        false => format!("{:.2}%,to{{visibility:hidden}}", starts[to]),
    };
    let seconds = f64::from(*all) / 1000.0;
    format!(
        "@keyframes {name}{{{show}{hide}}}.{name}{{animation:{name} {seconds:.1}s step-end infinite}}\n"
    )
}

/// Returns the parts to draw, by the frames in which each is visible at its place.
fn parts(frames: &[Frame]) -> BTreeMap<Span, String> {
    let mut parts: BTreeMap<Span, String> = BTreeMap::new();
    let rows = frames.first().map_or(0, |frame| frame.screen.rows.len());
    for at in 0..rows {
        let row = |frame: &Frame| frame.screen.rows[at].clone();
        for (span, cells) in unchanged_spans(frames, row) {
            if !cells.is_empty() {
                parts.entry(span).or_default().push_str(&line(at, &cells));
            }
        }
    }
    for (span, cursor) in unchanged_spans(frames, |frame| frame.screen.cursor) {
        if let Some((row, column)) = cursor {
            let x = SIDE + u32::from(column) * CELL.0;
            let y = HEAD + u32::from(row) * CELL.1 + 15;
            let rect = format!(
                "<rect x=\"{}\" y=\"{}\" width=\"8.4\" height=\"17\" fill=\"#8a94a3\"/>\n",
                px(x),
                px(y)
            );
            parts.entry(span).or_default().push_str(&rect);
        }
    }
    let foot = HEAD + u32::try_from(rows).unwrap_or(0) * CELL.1 + FOOT - 155;
    for (span, caption) in unchanged_spans(frames, |frame| frame.caption) {
        let text = format!(
            "<text class=\"s\" x=\"{}\" y=\"{}\">{}</text>\n",
            px(SIDE),
            px(foot),
            escaped(caption)
        );
        parts.entry(span).or_default().push_str(&text);
    }
    parts
}

/// Returns the runs of consecutive frames with the same value.
fn unchanged_spans<T: PartialEq>(frames: &[Frame], what: impl Fn(&Frame) -> T) -> Vec<(Span, T)> {
    let mut all: Vec<(Span, T)> = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        let it = what(frame);
        match all.last_mut() {
            Some((span, same)) if *same == it => span.1 = number + 1,
            _ => all.push(((number, number + 1), it)),
        }
    }
    all
}

fn line(row: usize, cells: &Row) -> String {
    let y = HEAD + u32::try_from(row).unwrap_or(0) * CELL.1 + 145;
    let mut out = format!("<text y=\"{}\">", px(y));
    let (mut column, mut drawn) = (0, String::new());
    for run in runs(cells) {
        let text: String = run.iter().map(|(c, _)| c).collect();
        let x = SIDE + column * CELL.0;
        column += u32::try_from(run.len()).unwrap_or(0);
        let class = class(run[0].1);
        if text.starts_with(ELBOW) {
            let (x, y) = (px(x + 34), px(y - 95));
            writeln!(drawn, "<path{class} d=\"M{x} {y}v8h6\"/>")
                .expect("writing to a string can't fail");
        } else if !text.trim().is_empty() {
            write!(
                out,
                "<tspan x=\"{}\"{class}>{}</tspan>",
                px(x),
                escaped(&text)
            )
            .expect("writing to a string can't fail");
        }
    }
    out.push_str("</text>\n");
    out + &drawn
}

/// Splits a row where its style changes, and around characters that a font may lack. Each part has a fixed position, independent of the width of the
/// text before it.
fn runs(cells: &Row) -> Vec<&[(char, CharStyle)]> {
    let kind = |(c, ink): &(char, CharStyle)| (c.is_ascii(), *ink);
    cells
        .chunk_by(|a, b| {
            kind(a) == kind(b)
                || (b.0 == ' ' && a.0.is_ascii() && b.1.color == a.1.color && !b.1.bold)
        })
        .collect()
}

fn class(ink: CharStyle) -> String {
    match ink {
        CharStyle {
            color: Some(color), ..
        } => format!(" class=\"c{}\"", color % 8),
        CharStyle { bold: true, .. } => " class=\"b\"".to_owned(),
        CharStyle { dim: true, .. } => " class=\"d\"".to_owned(),
        _ => String::new(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Formats a length in pixels.
fn px(tenths: u32) -> String {
    match tenths % 10 {
        0 => (tenths / 10).to_string(),
        rest => format!("{}.{rest}", tenths / 10),
    }
}
