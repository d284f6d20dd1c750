//! Parses a page with a real HTML parser, as a browser does, so that the tests find text that would act as markup.

use html5ever::tendril::TendrilSink as _;
use html5ever::{ParseOpts, parse_document};
use markup5ever_rcdom::{Handle, NodeData, RcDom};

use crate::page::CSS;

/// The content of a page as a browser sees it: the elements with their attributes, and the text.
#[derive(Debug, Default)]
pub(super) struct ParsedPage {
    pub(super) elements: Vec<(String, Vec<(String, String)>)>,
    pub(super) text: String,
}

/// Parses a page; any parse error fails the test.
pub(super) fn parse(page: &str) -> ParsedPage {
    let opts = ParseOpts::default();
    let dom = parse_document(RcDom::default(), opts).one(page);
    let errors = dom.errors.borrow();
    assert!(errors.is_empty(), "{errors:?}");
    let mut seen = ParsedPage::default();
    walk(&dom.document, &mut seen);
    seen
}

fn walk(node: &Handle, seen: &mut ParsedPage) {
    match &node.data {
        NodeData::Text { contents } => seen.text.push_str(&contents.borrow()),
        NodeData::Element { name, attrs, .. } => {
            let attrs = attrs.borrow();
            let attrs = attrs
                .iter()
                .map(|it| (it.name.local.to_string(), it.value.to_string()));
            seen.elements
                .push((name.local.to_string(), attrs.collect()));
        }
        _ => {}
    }
    for child in node.children.borrow().iter() {
        walk(child, seen);
    }
}

/// Asserts that nothing on the page runs and nothing is loaded.
pub(super) fn expect_harmless(page: &str) -> ParsedPage {
    let seen = parse(page);
    for (tag, attributes) in &seen.elements {
        let known = [
            "html",
            "head",
            "meta",
            "title",
            "style",
            "body",
            "main",
            "header",
            "section",
            "h1",
            "h2",
            "h3",
            "h4",
            "p",
            "span",
            "strong",
            "b",
            "i",
            "bdi",
            "small",
            "code",
            "pre",
            "time",
            "div",
            "dl",
            "dt",
            "dd",
            "ul",
            "li",
            "a",
            "table",
            "caption",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "details",
            "summary",
            "figure",
            "figcaption",
            "svg",
            "rect",
            "line",
            "path",
        ];
        assert!(known.contains(&tag.as_str()), "<{tag}>");
        for (name, value) in attributes {
            let is_code = name.starts_with("on")
                || ["style", "src", "srcdoc", "action"].contains(&name.as_str());
            assert!(!is_code, "<{tag} {name}>");
            assert!(name != "href" || value.starts_with('#'), "{value}");
        }
    }
    let policy = seen.elements.iter().find(|(_, it)| {
        it.iter()
            .any(|(_, value)| value.starts_with("default-src 'none'"))
    });
    assert!(policy.is_some_and(|(tag, _)| tag == "meta"));
    assert!(!CSS.contains("url(") && !CSS.contains("@import"));
    seen
}
