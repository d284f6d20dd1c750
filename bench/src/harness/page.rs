//! The report as one page that needs nothing beside it, light or dark as its reader likes.

use std::fmt::Write;

use super::plot::escaped;

const STYLE: &str = "
:root { color-scheme: light dark; --paper: #fff; --ink: #1c1f23; --faint: #d9dde2; --good: #1a7f37; --bad: #c4281c }
@media (prefers-color-scheme: dark) { :root { --paper: #15181c; --ink: #e4e7ea; --faint: #353b43; --good: #4cc26a; --bad: #ff7b6b } }
body { background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 80em; padding: 0 1em }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; margin: .8em 0 }
th, td { border-bottom: 1px solid var(--faint); padding: .25em .7em; text-align: left; vertical-align: top }
td.number { text-align: right; white-space: nowrap }
.hit { color: var(--good) } .missed { color: var(--bad); font-weight: 600 }
.plots { display: grid; gap: 1em; grid-template-columns: repeat(auto-fit, minmax(min(34em, 100%), 1fr)) }
figure { border: 1px solid var(--faint); margin: 0; overflow: hidden } svg { display: block; height: auto; width: 100% }
h2 { border-top: 2px solid var(--faint); margin-top: 2em; padding-top: .8em } summary { cursor: pointer }
";

/// A page that grows.
pub(super) struct Page(String);

impl Page {
    pub(super) fn new(title: &str) -> Self {
        let title = escaped(title);
        Self(format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n<h1>{title}</h1>\n"
        ))
    }

    pub(super) fn heading(&mut self, id: &str, text: &str) {
        _ = writeln!(self.0, "<h2 id=\"{id}\">{}</h2>", escaped(text));
    }

    pub(super) fn lines(&mut self, lines: &[String]) {
        self.0.push_str("<ul>\n");
        for line in lines {
            let class = match line {
                line if line.starts_with("hit:") => " class=\"hit\"",
                line if line.starts_with("MISSED:") => " class=\"missed\"",
                _ => "",
            };
            _ = writeln!(self.0, "<li{class}>{}", escaped(line));
        }
        self.0.push_str("</ul>\n");
    }

    /// Adds a table; what begins with a digit stands at the right.
    pub(super) fn table(&mut self, rows: &[Vec<String>]) {
        self.0.push_str("<div class=\"wide\"><table>\n");
        for (at, row) in rows.iter().enumerate() {
            self.0.push_str("<tr>");
            for cell in row {
                let class = match cell.as_str() {
                    "hit" => " class=\"hit\"",
                    "MISSED" => " class=\"missed\"",
                    cell if cell.starts_with(|first: char| first.is_ascii_digit()) => {
                        " class=\"number\""
                    }
                    _ => "",
                };
                let tag = if at == 0 { "th" } else { "td" };
                _ = write!(self.0, "<{tag}{class}>{}</{tag}>", escaped(cell));
            }
            self.0.push_str("</tr>\n");
        }
        self.0.push_str("</table></div>\n");
    }

    /// Opens what is folded up until somebody asks for it.
    pub(super) fn folded(&mut self, summary: &str, inside: impl FnOnce(&mut Self)) {
        _ = writeln!(self.0, "<details><summary>{}</summary>", escaped(summary));
        inside(self);
        self.0.push_str("</details>\n");
    }

    pub(super) fn plots<'a>(&mut self, plots: impl Iterator<Item = &'a str>) {
        self.0.push_str("<div class=\"plots\">\n");
        for svg in plots {
            _ = writeln!(self.0, "<figure>{svg}</figure>");
        }
        self.0.push_str("</div>\n");
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}
