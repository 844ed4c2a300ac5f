//! The beginning of a topology file.

use std::fs;

use oneclock_audit::draft::draft;
use oneclock_audit::inventory::Why;

use super::{audited, folder, found, shop};

#[test]
fn the_shop() {
    let audited = audited(&shop());
    insta::assert_snapshot!(draft(&audited.graph()).text);
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
    let drafted = draft(&before.graph());
    assert!(drafted.services > 0, "{}", drafted.text);
    fs::write(folder.path().join("oneclock.topology.yaml"), &drafted.text).expect("the file");
    let after = audited(folder.path());
    let not_understood: Vec<_> =
        after.inventory.left_out.iter().filter(|left| left.why == Why::NotUnderstood).collect();
    assert!(not_understood.is_empty(), "{not_understood:?}\n{}", drafted.text);
    assert!(after.inventory.files.iter().any(|file| &*file.path == "oneclock.topology.yaml"));
    assert_eq!(found(&after), found(&before));
}
