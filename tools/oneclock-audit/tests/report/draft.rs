//! The beginning of a topology file.

use std::fs;

use oneclock_audit::draft::draft;
use oneclock_audit::inventory::Why;

use super::{audited, folder, found, shop};

#[test]
fn the_shop() {
    let audited = audited(&shop());
    insta::assert_snapshot!(draft(audited.graph()).text);
}

/// What is drafted is understood, and changes nothing of what was found.
#[test]
fn a_draft_is_read_and_adds_nothing() {
    let folder = folder(&[
        (
            "nginx.conf",
            "events {}\nhttp {\n  upstream shop { server shop:80; }\n  server { listen 80; location / { proxy_pass http://shop; } }\n}\n",
        ),
        ("shop/application.yaml", "spring:\n  application:\n    name: shop\nserver:\n  port: 80\n"),
    ]);
    let before = audited(folder.path());
    let drafted = draft(before.graph());
    assert!(drafted.services > 0, "{}", drafted.text);
    fs::write(folder.path().join("oneclock.topology.yaml"), &drafted.text).expect("the file");
    let after = audited(folder.path());
    let not_understood: Vec<_> = after.left_out.iter().filter(|left| left.why == Why::NotUnderstood).collect();
    assert!(not_understood.is_empty(), "{not_understood:?}\n{}", drafted.text);
    assert!(after.inventory.files.iter().any(|file| &*file.path == "oneclock.topology.yaml"));
    assert_eq!(found(&after), found(&before));
}

/// Which one is meant, nobody knows: a service more of that name would stand for none of them.
#[test]
fn what_has_the_name_of_others_is_not_listed() {
    let shop = "spring:\n  application:\n    name: shop\n";
    let files: Vec<(String, &str)> = (1..=5).map(|number| (format!("v{number}/application.yaml"), shop)).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let folder = folder(&files);
    let drafted = draft(audited(folder.path()).graph());
    assert_eq!(drafted.services, 0, "{}", drafted.text);
    let line = drafted.text.lines().find(|line| line.starts_with("# shop: several")).expect("it is told");
    assert!(line.contains("v1/application.yaml") && line.ends_with(" and 2 more"), "{line}");
}
