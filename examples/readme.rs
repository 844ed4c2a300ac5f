//! The README shows code that runs: each of its Rust blocks stands, line by line, in one of the files here.

use axum::body::Body;
use axum::http::Request;
use axum::{Router, routing::get};
use oneclock_axum::{Policy, PolicyExt as _};
use oneclock_test::{Probe, assert_stops_at_deadline};

const README: &str = include_str!("../README.md");
const HERE: [(&str, &str); 3] = [
    ("first.rs", include_str!("first.rs")),
    ("order.rs", include_str!("order.rs")),
    ("readme.rs", include_str!("readme.rs")),
];

/// Stands in a block where lines of the file were left out.
const LEFT_OUT: &str = "// …";

#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_is_stopped() -> Result<(), Box<dyn std::error::Error>> {
    let probe = Probe::new();
    let inside = probe.clone();
    let clock = Policy::named("order").build()?;
    let app = Router::new().route("/", get(move || async move { inside.never().await })).layer(clock.layer());
    assert_stops_at_deadline(app, Request::get("/").body(Body::empty())?, &probe).await;
    Ok(())
}

#[test]
fn each_rust_block_of_the_readme_is_an_excerpt_of_a_file_here() {
    let blocks = blocks(README);
    assert!(blocks.len() >= 3, "the README has {} Rust blocks; is its form another one now?", blocks.len());
    for block in blocks {
        assert!(
            HERE.iter().any(|(_, file)| is_excerpt(&block, file)),
            "README.md has code that is in none of {:?}; copy it from there, with `{LEFT_OUT}` where lines are left out:\n{}",
            HERE.map(|(name, _)| name),
            block.join("\n")
        );
    }
}

#[test]
fn an_excerpt_has_the_lines_of_the_file_in_their_order() {
    let file = "fn a() {\n    one();\n    two();\n}\nfn b() {}\n";
    let excerpt = |block: &str| is_excerpt(&block.lines().map(str::to_owned).collect::<Vec<_>>(), file);
    assert!(excerpt("one();\ntwo();"), "without the indentation");
    assert!(excerpt("fn a() {\n// …\nfn b() {}"), "with something left out");
    assert!(!excerpt("one();\n}"), "something left out in silence");
    assert!(!excerpt("fn b() {}\n// …\nfn a() {"), "in another order");
    assert!(!excerpt("one(1);"), "another line");
    assert!(!excerpt(""), "nothing");
}

/// The lines of each Rust block.
fn blocks(page: &str) -> Vec<Vec<String>> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while lines.by_ref().any(|line| line.starts_with("```rust")) {
        blocks.push(lines.by_ref().take_while(|line| *line != "```").map(str::to_owned).collect());
    }
    blocks
}

/// Whether the parts between what is left out follow one another in the file, each of them without a gap.
fn is_excerpt(block: &[String], file: &str) -> bool {
    let bare = |text: &str| text.trim().to_owned();
    let file: Vec<String> = file.lines().map(bare).collect();
    let block: Vec<String> = block.iter().map(|line| bare(line)).collect();
    let mut from = 0;
    let mut found = 0;
    for part in block.split(|line| line == LEFT_OUT).filter(|part| !part.is_empty()) {
        let Some(at) = file[from..].windows(part.len()).position(|window| window == part) else { return false };
        from += at + part.len();
        found += 1;
    }
    found > 0
}
