//! Names and lines of files are anybody's text. No form of a report obeys it.

use oneclock_audit::report::{Detail, Report};

use super::{audited, coloured, folder, plain};

const NAME: &str = "<script>alert('1')</script>&\\\"\\e[31m\\u202e|`x`";

fn hostile() -> oneclock_audit::Audited<'static> {
    let topology = format!(
        "entries:\n- {{name: \"{NAME}\", to: a, budget: 1s}}\nservices:\n- name: \"{NAME}\"\n  calls:\n  \
         - {{to: a, timeout: 2s, propagates: none}}\n- name: a\n  calls:\n  - {{to: b, timeout: 5s}}\n- name: b\n  limit: \"{NAME}\"\n"
    );
    let nginx = "events {}\nhttp { server { listen 80; location / {\n  proxy_pass http://a;\n  \
                 proxy_read_timeout 2s; # \u{1b}[2J\u{202e}\u{9b}31m <script>\n} } }\n";
    let folder = folder(&[
        ("oneclock.topology.yaml", &topology),
        ("edge/nginx.conf", nginx),
        ("\u{1b}[31m.yaml", "kind: HTTPRoute\napiVersion: gateway.networking.k8s.io/v1\nspec: [\n"),
    ]);
    let audited = audited(folder.path());
    assert!(audited.findings.iter().any(|found| &*found.finding.place.file == "edge/nginx.conf"));
    assert!(audited.findings.iter().any(|found| found.finding.place.file.starts_with("oneclock")));
    assert_eq!(audited.left_out.len(), 2);
    audited
}

#[test]
fn a_terminal_is_told_nothing() {
    let audited = hostile();
    let text = plain(&audited, Detail::Verbose);
    assert!(text.contains("alert"), "{text}");
    assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c)), "{text:?}");
    // Every escape code is one of colours.
    let coloured = coloured(&audited, Detail::Verbose);
    for (at, _) in coloured.match_indices('\u{1b}') {
        let code: String = coloured[at + 1..].chars().take_while(|c| *c != 'm').collect();
        assert!(code.starts_with('[') && code[1..].chars().all(|c| c.is_ascii_digit() || c == ';'), "{code:?}");
    }
}

#[test]
fn a_picture_runs_nothing() {
    let svg = Report::of(&hostile()).svg();
    assert!(svg.contains("&lt;script&gt;"), "{svg}");
    assert!(!svg.contains("<script") && !svg.contains('\u{1b}') && !svg.contains("\u{202e}"));
    assert_eq!(svg.matches('<').count(), svg.matches('>').count());
}

#[test]
fn a_comment_has_no_markup_of_theirs() {
    let markdown = Report::of(&hostile()).markdown();
    assert!(!markdown.contains("<script"), "{markdown}");
    for line in markdown.lines().filter(|line| line.starts_with("| **")) {
        let bars = line.replace("\\|", "").matches('|').count();
        assert_eq!(bars, 5, "{line}");
    }
}

/// A file of one line is not printed in full, and the place in it is.
#[test]
fn a_long_line_is_cut() {
    let long = format!(
        "{{\"services\":[{{\"name\":\"a\",\"x\":\"{}\",\"calls\":[{{\"to\":\"b\",\"timeout\":\"2s\",\"propagates\":\"none\"}}]}},{{\"name\":\"b\",\"calls\":[{{\"to\":\"c\",\"timeout\":\"7s\"}}]}},{{\"name\":\"c\"}}]}}",
        "y".repeat(100_000)
    );
    let folder = folder(&[("oneclock.topology.yaml", &long)]);
    let text = plain(&audited(folder.path()), Detail::Usual);
    assert!(text.contains("\"timeout\":\"7s\""), "{text}");
    assert!(text.lines().all(|line| line.chars().count() < 250), "{text}");
}
