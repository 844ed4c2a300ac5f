//! `oneclock audit` as its users meet it: what it prints, what it writes, its exit codes.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "the helpers of a test are a test")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Two errors and some warnings in several files, one of them a template.
const SHOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../oneclock-audit/tests/report/data/shop");
/// The example of the guide.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../oneclock-audit/tests/report/data/page");

fn audit_in(folder: impl AsRef<Path>, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oneclock"));
    command.arg("audit").args(arguments).current_dir(folder).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// What it prints, when it ends with this.
#[track_caller]
fn prints(folder: impl AsRef<Path>, arguments: &[&str], code: i32) -> String {
    let output = audit_in(folder, arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "no progress bar without a terminal: {}", text(&output.stderr));
    text(&output.stdout)
}

/// It could not run, and says why.
#[track_caller]
fn fails(folder: impl AsRef<Path>, arguments: &[&str], says: &str) {
    let output = audit_in(folder, arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(says), "{error}");
    assert!(output.stdout.is_empty());
}

fn copy_of(folder: &str) -> tempfile::TempDir {
    fn copy(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let target = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                copy(&entry.path(), &target);
            } else {
                fs::write(target, fs::read(entry.path()).unwrap()).unwrap();
            }
        }
    }
    let copied = tempfile::tempdir().unwrap();
    copy(Path::new(folder), copied.path());
    copied
}

#[test]
fn the_guide_shows_what_is_printed() {
    let guide = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/audit.md")).unwrap();
    let printed = prints(PAGE, &[], 1);
    assert!(guide.contains(printed.trim()), "docs/guide/audit.md has another output:\n{printed}");
}

#[test]
fn no_colours_where_there_is_no_terminal() {
    for format in ["text", "json", "sarif", "markdown"] {
        let printed = prints(SHOP, &["--format", format, "--verbose"], 1);
        assert!(!printed.contains('\u{1b}'), "{format}");
        assert!(
            printed.contains("1 templated") || printed.contains("\"why\":\"templated\""),
            "{format}: what was not read: {printed}"
        );
    }
}

#[test]
fn zero_one_and_two() {
    let clean = tempfile::tempdir().unwrap();
    fs::write(
        clean.path().join("oneclock.topology.yaml"),
        "services:\n- name: a\n  calls: [{to: b, timeout: 1s}]\n- name: b\n",
    )
    .unwrap();
    prints(clean.path(), &[], 0);
    prints(SHOP, &[], 1);
    prints(SHOP, &["--fail-on", "never"], 0);
    // A warning and no error.
    prints(SHOP, &["edge", "deploy"], 0);
    prints(SHOP, &["edge", "deploy", "--fail-on", "warning"], 1);
    // A note and no warning.
    prints(PAGE, &["nginx.conf", "--fail-on", "warning"], 0);
    prints(PAGE, &["nginx.conf", "--fail-on", "note"], 1);
    fails(SHOP, &["nowhere"], "oneclock: nowhere: No such file");
    fails(SHOP, &["--fail-on", "sometimes"], "--fail-on");
    fails(SHOP, &["--quiet", "--verbose"], "--verbose");
    fails(SHOP, &["--baseline", "nowhere.json"], "nowhere.json: there is no such baseline; --write-baseline makes one");
    fails(SHOP, &["--write-baseline"], "--baseline");
    fails(SHOP, &["--svg", "/nowhere/shop.svg"], "/nowhere/shop.svg: No such file");
    let help = text(&audit_in(SHOP, &["--help"]).stdout);
    assert!(help.contains("Exit codes: 0 nothing as loud as --fail-on, 1 something is"), "{help}");
}

/// What says nothing must not look like what says that all is well.
#[test]
fn what_is_not_understood_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| fs::write(folder.path().join(path), text).unwrap();
    write("notes.yaml", "a: 1\n");
    write("broken.yaml", "services: [\n");
    fails(folder.path(), &["notes.yaml"], "oneclock: notes.yaml: nothing in it is understood: ");
    // In a folder it may be anything.
    prints(folder.path(), &["--quiet"], 0);
    write("oneclock.topology.yaml", "services:\n- name: shop\n  calls: [{to: stock, timout: 2s}]\n- name: stock\n");
    let printed = prints(folder.path(), &[], 1);
    assert!(printed.contains("error[topology-not-understood]: there is no key `timout` here"), "{printed}");
    for text in [
        "servces:\n- name: shop\n",
        "services: [\n",
        "services: {shop: {}}\n",
        "services:\n- {name: a, order: sequential}\n",
    ] {
        write("oneclock.topology.yaml", text);
        let printed = prints(folder.path(), &["oneclock.topology.yaml"], 1);
        assert!(printed.contains("error[topology-not-understood]"), "{text}: {printed}");
    }
    fs::remove_file(folder.path().join("oneclock.topology.yaml")).unwrap();
    write("template.yaml", "apiVersion: networking.istio.io/v1\nkind: VirtualService\nspec: {{ .Values.spec }}\n");
    prints(folder.path(), &[], 0);
    let output = audit_in(folder.path(), &["--fail-on-unread"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("not read or not understood, and --fail-on-unread is given"));
}

/// An empty folder is told from one without mistakes.
#[test]
fn nothing_that_is_known_is_said() {
    let empty = tempfile::tempdir().unwrap();
    assert!(
        prints(empty.path(), &["--quiet"], 0)
            .starts_with("no file of a known format was found: this says nothing about timeouts\n")
    );
}

#[test]
fn places_are_those_of_the_shell() {
    let inside = prints(SHOP, &["deploy"], 0);
    assert!(inside.contains("--> deploy/routes.yaml:8:45"), "{inside}");
    let file = prints(SHOP, &["deploy/routes.yaml"], 0);
    assert!(file.contains("--> deploy/routes.yaml:8:45") && !file.contains("templated"), "{file}");
    // From elsewhere: from the nearest folder that has it all.
    let elsewhere = tempfile::tempdir().unwrap();
    let (edge, deploy) = (format!("{SHOP}/edge"), format!("{SHOP}/deploy"));
    let both = prints(elsewhere.path(), &[&edge, &deploy, "--json"], 0);
    assert!(
        both.contains("\"deploy/routes.yaml\"")
            && both.contains("\"edge/nginx.conf\"")
            && !both.contains("topology.yaml"),
        "{both}"
    );
    let one = prints(elsewhere.path(), &[SHOP, "--json"], 1);
    assert!(one.contains("\"deploy/routes.yaml\""), "{one}");
}

#[test]
fn json_and_sarif_parse() {
    let json: Value = serde_json::from_str(&prints(SHOP, &["--json"], 1)).unwrap();
    assert_eq!(json["schema"], "oneclock-audit/1");
    assert_eq!(
        json["totals"]["errors"].as_u64(),
        Some(json["findings"].as_array().unwrap().iter().filter(|one| one["severity"] == "error").count() as u64)
    );
    assert_eq!(json["coverage"]["readers"]["nginx"], 1);
    let sarif: Value = serde_json::from_str(&prints(SHOP, &["--format", "sarif"], 1)).unwrap();
    assert_eq!(sarif["version"], "2.1.0");
    assert_eq!(sarif["runs"][0]["results"].as_array().map(Vec::len), json["findings"].as_array().map(Vec::len));
}

#[test]
fn a_baseline_from_writing_to_stale() {
    let shop = copy_of(SHOP);
    let baseline = ["--baseline", "known.json"];
    let written = audit_in(shop.path(), &["--baseline", "known.json", "--write-baseline", "--fail-on", "error"]);
    assert_eq!(written.status.code(), Some(0), "what is known fails nobody: {}", text(&written.stdout));
    assert!(text(&written.stderr).starts_with("oneclock: known.json: "), "{}", text(&written.stderr));
    let printed = prints(shop.path(), &baseline, 0);
    assert!(
        printed.contains("no errors") && printed.contains(" in the baseline\n") && !printed.contains("error["),
        "{printed}"
    );
    // Lines move, and a new one comes.
    let topology = shop.path().join("oneclock.topology.yaml");
    let before = fs::read_to_string(&topology).unwrap();
    fs::write(&topology, format!("# moved\n{before}")).unwrap();
    prints(shop.path(), &baseline, 0);
    fs::write(&topology, before.replace("timeout: 10s", "timeout: 11s")).unwrap();
    let printed = prints(shop.path(), &baseline, 1);
    assert!(printed.contains("error[outer-before-inner]"), "{printed}");
    assert!(
        printed.contains("is in the baseline and is not found any more") && printed.contains("stale in the baseline"),
        "{printed}"
    );
    fs::write(shop.path().join("known.json"), "{\"version\": 1}").unwrap();
    fails(shop.path(), &baseline, "known.json:1:14: missing field `findings`");
}

#[test]
fn a_topology_file_is_begun_once() {
    let page = copy_of(PAGE);
    fs::remove_file(page.path().join("oneclock.topology.yaml")).unwrap();
    let compose = "services:\n  web: {image: web, environment: {PORT: '1'}}\n";
    fs::write(page.path().join("compose.yaml"), compose).unwrap();
    let folder = page.path().to_str().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let printed = prints(elsewhere.path(), &["--init", folder], 0);
    assert!(printed.starts_with(&format!("wrote {folder}/oneclock.topology.yaml: ")), "{printed}");
    let written = fs::read_to_string(page.path().join("oneclock.topology.yaml")).unwrap();
    fails(elsewhere.path(), &["--init", folder], "is there already, and is not overwritten");
    assert_eq!(fs::read_to_string(page.path().join("oneclock.topology.yaml")).unwrap(), written);
}

#[test]
fn rules_settings_and_pages_are_listed() {
    let rules = prints(SHOP, &["--rules"], 0);
    assert!(rules.contains("outer-before-inner") && rules.contains("ignore-unused"), "{rules}");
    let listed: Value = serde_json::from_str(&prints(SHOP, &["--rules", "--json"], 0)).unwrap();
    for rule in listed.as_array().unwrap() {
        let page = prints(SHOP, &["--explain", rule["id"].as_str().unwrap()], 0);
        assert!(page.starts_with(&format!("# {}\n", rule["id"].as_str().unwrap())), "{page}");
    }
    fails(SHOP, &["--explain", "no-limits"], "there is no rule `no-limits`; there are: outer-before-inner, ");
    let catalogue = prints(SHOP, &["--catalogue"], 0);
    assert!(catalogue.contains("proxy_read_timeout") && catalogue.contains("nginx.org"), "{catalogue}");
    let catalogue: Value = serde_json::from_str(&prints(SHOP, &["--catalogue", "--json"], 0)).unwrap();
    let row =
        catalogue["settings"].as_array().unwrap().iter().find(|row| row["id"] == "nginx.proxy_read_timeout").unwrap();
    assert_eq!((&row["default"], &row["unit"], &row["kind"]), (&"60s".into(), &"s".into(), &"idle".into()));
}

#[test]
fn the_picture_is_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.svg");
    prints(SHOP, &["--quiet", "--svg", file.to_str().unwrap()], 1);
    let svg = fs::read_to_string(file).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("outer-before-inner"), "{svg}");
}

#[test]
fn a_topology_file_may_lie_elsewhere() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mine = elsewhere.path().join("mine.yaml");
    fs::write(&mine, "services:\n- name: page\n  calls: [{to: stock, timeout: none}]\n").unwrap();
    let printed = prints(folder.path(), &["--topology", mine.to_str().unwrap(), "--fail-on", "warning"], 1);
    assert!(printed.contains("warning[no-limit]: page → stock may wait for ever"), "{printed}");
    fails(folder.path(), &["--topology", "nowhere.yaml"], "--topology nowhere.yaml: ");
}
