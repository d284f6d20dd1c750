//! Finds the tests that passed but skipped themselves. Each prints its reason in a line `skipped: …`.

use crate::command::skip_of;

/// The tags of nextest in the case of a failed test.
const FAILURES: [&str; 4] = ["<failure ", "<failure>", "<error ", "<error>"];

/// One test in the report of nextest.
#[derive(Debug)]
pub(crate) struct Case {
    /// The package, and the test binary unless the library contains the test.
    pub(crate) binary: String,
    /// The modules and the name.
    pub(crate) test: String,
    pub(crate) has_failed: bool,
    /// The reasons why a passed test shows nothing, or less than it should.
    pub(crate) reasons: Vec<String>,
}

/// Reads the report of nextest, which has the output of each test.
pub(crate) fn cases(report: &str) -> impl Iterator<Item = Case> {
    let cases = report.split("<testcase ").skip(1);
    cases.filter_map(|case| {
        let attribute = |name: &str| {
            let (_, value) = case.split_once(&format!("{name}=\""))?;
            Some(unescaped(value.split_once('"')?.0))
        };
        let said = case.lines().map(str::trim_start).filter_map(said);
        Some(Case {
            // `name="` is also a part of `classname="`, so it must come first.
            test: attribute("name")?,
            binary: attribute("classname")?,
            has_failed: FAILURES.iter().any(|mark| case.contains(mark)),
            reasons: said.map(unescaped).collect(),
        })
    })
}

/// Names the skips of the cases of a report.
pub(crate) fn of_junit(report: &str) -> Vec<String> {
    let skips = cases(report).flat_map(|case| {
        let Case {
            binary,
            test,
            reasons,
            ..
        } = case;
        let skips = reasons.into_iter();
        skips.map(move |reason| format!("{binary} {test}: {reason}"))
    });
    skips.collect()
}

/// Reads the skips from the output of `cargo test -- --show-output`.
pub(crate) fn of_libtest(output: &str) -> Vec<String> {
    let mut test = "a test";
    let mut skips = Vec::new();
    for line in output.lines() {
        if let Some(name) = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            test = name;
        } else if let Some(reason) = said(line) {
            skips.push(format!("{test}: {reason}"));
        }
    }
    skips
}

/// Returns the text that libtest prints before the output of the test on the same line: the section of the report, or the name if tests run one at a
/// time.
fn said(line: &str) -> Option<&str> {
    let line = ["<system-out>", "<system-err>"]
        .iter()
        .find_map(|section| line.strip_prefix(section))
        .unwrap_or(line);
    let own = match line.strip_prefix("test ") {
        Some(rest) => rest.split_once(" ... ")?.1,
        None => line,
    };
    skip_of(own)
}

fn unescaped(text: &str) -> String {
    const ENTITIES: [(&str, &str); 5] = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&amp;", "&"),
    ];
    let replaced = |text: String, (entity, meant): (&str, &str)| text.replace(entity, meant);
    ENTITIES.into_iter().fold(text.to_owned(), replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skip_is_reported_with_its_test() {
        let report = "<testsuite name=\"b::e2e\">\n\
            <testcase name=\"one\" classname=\"b::e2e\" time=\"1\">\n<system-out>\nrunning 1 test\nskipped: no &quot;unshare&quot; &amp;amp; here\n\
            test one ... ok\n</system-out>\n<system-err></system-err>\n</testcase>\n\
            <testcase name=\"two\" classname=\"b::e2e\" time=\"1\"><system-out>\ntest two ... skipped: no strace\nok\n</system-out>\n\
            <system-err>skipped: nor this\n</system-err></testcase>\n\
            <testcase name=\"three\" classname=\"b::e2e\" time=\"1\"><system-out>it was not skipped: at all</system-out></testcase>";
        assert_eq!(
            of_junit(report),
            [
                "b::e2e one: no \"unshare\" &amp; here",
                "b::e2e two: no strace",
                "b::e2e two: nor this"
            ]
        );
    }

    #[test]
    fn cargo_test_output_of_passed_tests_has_the_skip() {
        let output = "test a::b ... ok\n\nsuccesses:\n\n---- a::b stdout ----\nskipped: no disk\n\n\nsuccesses:\n    a::b\n";
        assert_eq!(of_libtest(output), ["a::b: no disk"]);
        assert!(of_libtest("test a::b ... ok\n").is_empty());
    }
}
