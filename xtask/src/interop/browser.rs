//! The TypeScript client: built, tested in Node, and in headless Chromium against the demo shop.
//!
//! Decides that the shop is there before the browser and gone after it, however the tests end.

use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::install::{Stamp, npm};
use crate::{run, servers};

const CHROMIUM: &str = "ONECLOCK_CHROMIUM";
const SHOP: &str = "ONECLOCK_SHOP_URL";

pub(super) fn run(root: &Path, _: &[String]) -> Result<(), String> {
    let here = root.join("clients/typescript");
    let kept = root.join("target/interop");
    fs::create_dir_all(&kept).map_err(|error| format!("target/interop: {error}"))?;
    let stamp = Stamp::of(kept.join("typescript.stamp"), &[&here.join("package-lock.json")])?;
    if !stamp.is_there() || !here.join("node_modules").is_dir() {
        npm(root, &here, &["ci", "--ignore-scripts", "--no-audit", "--no-fund"])?;
        stamp.set()?;
    }
    npm(root, &here, &["run", "build"])?;
    npm(root, &here, &["run", "test:node"])?;

    let chromium = match env::var_os(CHROMIUM) {
        Some(named) => named.into(),
        None => match servers::in_path("chromium") {
            Some(found) => found,
            None => {
                servers::install(root, "Chromium", "chromium", CHROMIUM)?;
                servers::in_path("chromium").ok_or("Debian's package chromium has no program `chromium`")?
            }
        },
    };
    let shop = Shop::open(root)?;
    let mut tests = run::program(root, "npm".as_ref());
    tests.current_dir(here).env(SHOP, &shop.url).env(CHROMIUM, chromium).args(["run", "test:browser"]);
    run::run(tests)
}

/// The demo shop for browsers. Closed when it is dropped.
struct Shop {
    url: String,
    process: Child,
}

impl Shop {
    /// Builds it first: what it prints is then its own.
    fn open(root: &Path) -> Result<Self, String> {
        let mut build = run::cargo(root);
        build.args(["build", "--package", "oneclock-checkout", "--example", "browser_shop"]);
        run::run(build)?;
        let mut shop = run::program(root, root.join("target/debug/examples/browser_shop").as_os_str());
        shop.stdout(Stdio::piped());
        let mut process = shop.spawn().map_err(|error| format!("the shop does not open: {error}"))?;
        let stdout = process.stdout.take();
        let mut shop = Self { url: String::new(), process };
        let mut line = String::new();
        BufReader::new(stdout.ok_or("the shop has no stdout")?)
            .read_line(&mut line)
            .map_err(|error| format!("the shop does not say where it is: {error}"))?;
        let url = line.split_whitespace().find(|word| word.starts_with("http://"));
        url.ok_or_else(|| format!("the shop says `{}`, and no address", line.trim()))?.clone_into(&mut shop.url);
        eprintln!("the shop is at {}", shop.url);
        Ok(shop)
    }
}

impl Drop for Shop {
    /// An interrupt, so that it removes its folder.
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-s", "INT", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}
