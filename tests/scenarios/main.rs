//! The shop of the demo with one budget, under each scenario, scraped by a real Prometheus while it runs: the figures in the
//! demo's table are the numbers in the metrics, and each alert fires in the scenarios that are made for it and in no other.
//!
//! ```text
//! stories.rs      the scenarios, and which alerts each of them should fire
//! figures.rs      the demo's figures beside the metrics
//! alerts.rs       the rules over what was scraped, with `promtool` to decide
//!
//! scraped.rs      the shop with its `/metrics`, each part's on a socket of its own
//! prometheus.rs   the Prometheus
//! ```
//!
//! A run of all of them takes two minutes, five seconds of each for Prometheus to begin, so most are left to
//! `cargo xtask scenarios`. With `--nocapture` each test prints its table. The independent timeouts have no part in this: that
//! half of the shop has no metrics of ours, so nobody can say which alerts would fire there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "all of this is tests, helpers included")]

mod alerts;
mod figures;
mod prometheus;
mod scraped;
mod stories;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use alerts::Recording;
use figures::Row;
use oneclock_alerts::Alert;
use oneclock_checkout::Shop;
use oneclock_checkout::story::Story;
use oneclock_checkout::transport::Transport;
use oneclock_checkout::watched::Moment;
use scraped::Scraping;
use tokio::sync::Mutex;

/// A scenario that was run under a Prometheus.
struct Told {
    rows: Vec<Row>,
    recording: Recording,
}

/// Whether a shop is at rest is asked of the whole process, and so is what runs on.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

impl Told {
    async fn of(story: &Story, shop: &Shop, loses_one_in: u64) -> Self {
        let _alone = ONE_AT_A_TIME.lock().await;
        let scraping = Scraping::begin(story).await;
        let rows = RefCell::new(Vec::new());
        let of_the_load = Cell::new(0);
        let look = async |moment: Moment<'_>| {
            let prometheus = &scraping.prometheus;
            let seen = match moment {
                Moment::AfterLoad(side, truth) => {
                    of_the_load.set(truth.executions[&story.counted]);
                    figures::of_load(prometheus, story, side, truth).await
                }
                Moment::AfterTypical(side, truth) => {
                    figures::of_typical(prometheus, story, side, truth, of_the_load.get()).await
                }
                _ => Vec::new(),
            };
            rows.borrow_mut().extend(seen);
        };
        scraping.run(shop, story, loses_one_in, look).await;
        let told = Self { rows: rows.into_inner(), recording: Recording::of(&scraping.prometheus).await };
        println!("{}", told.table());
        told
    }

    fn table(&self) -> String {
        self.rows.iter().map(|row| format!("{row}\n")).collect()
    }

    fn wrong(&self) -> Vec<&str> {
        self.rows.iter().filter(|row| !row.holds()).map(Row::figure).collect()
    }

    #[track_caller]
    fn figures_are_the_metrics(&self) {
        assert!(self.rows.len() > 30, "{}", self.table());
        assert!(self.wrong().is_empty(), "{}", self.table());
    }

    #[track_caller]
    fn fires(&self, story: &Story) {
        if let Err(said) = self.recording.check(&stories::fires(story.name)) {
            panic!("{}: other alerts fired than should have\n{said}", story.name);
        }
    }
}

macro_rules! scenarios {
    ($($(#[$ignored:meta])? $name:ident: $story:expr, $shop:expr;)*) => {
        $(
            $(#[$ignored])?
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let story = $story;
                let told = Told::of(&story, &$shop, 0).await;
                told.figures_are_the_metrics();
                told.fires(&story);
            }
        )*
    };
}

scenarios! {
    slow_pricing: stories::of_the_demo("slow-pricing"), Shop::on_sqlite();
    #[ignore = "cargo xtask scenarios"]
    slow_pricing_over_grpc: stories::of_the_demo("slow-pricing"), Shop::on_sqlite().over(Transport::Grpc);
    #[ignore = "cargo xtask scenarios"]
    stalled_body: stories::of_the_demo("stalled-body"), Shop::on_sqlite();
    #[ignore = "cargo xtask scenarios"]
    overloaded_pool: stories::of_the_demo("overloaded-pool"), Shop::on_sqlite();
    #[ignore = "cargo xtask scenarios"]
    caller_leaves: stories::of_the_demo("caller-leaves"), Shop::on_sqlite();
    #[ignore = "cargo xtask scenarios"]
    silent_hop: stories::of_the_demo("silent-hop"), Shop::on_sqlite();
    #[ignore = "cargo xtask scenarios"]
    double_charge: stories::of_the_demo("double-charge"), Shop::on_sqlite();
    #[ignore = "cargo xtask scenarios"]
    zombie_queries: stories::of_the_demo("zombie-queries"), on_postgres();
    #[ignore = "cargo xtask scenarios"]
    nothing_is_wrong: stories::healthy(), Shop::on_sqlite();
    #[ignore = "cargo xtask scenarios"]
    statements_that_hear_no_interrupt: stories::deaf_statements(), Shop::on_sqlite();
    #[ignore = "cargo xtask scenarios"]
    retries_beyond_what_is_usual: stories::retries(), Shop::on_sqlite();
}

fn on_postgres() -> Shop {
    let url = std::env::var("ONECLOCK_POSTGRES_URL");
    let url = url.unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/postgres".to_owned());
    Shop::on_postgres(&url).expect("an address")
}

/// What is told nothing and counted nowhere: the figures that no metric has, and the alert that there is for it.
#[ignore = "cargo xtask scenarios"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_not_told() {
    let story = stories::database_not_told();
    let told = Told::of(&story, &Shop::on_sqlite(), 0).await;
    let unknown = [
        "seconds spent on work finished after its caller had left",
        "at work 50 ms after the user's time was up",
        "of the one tap, at work 50 ms after",
    ];
    assert_eq!(told.wrong(), unknown, "{}", told.table());
    told.fires(&story);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_lost_event_in_a_hundred_would_be_noticed() {
    let told = Told::of(&stories::of_the_demo("overloaded-pool"), &Shop::on_sqlite(), 100).await;
    let wrong = told.wrong();
    assert!(wrong.len() > 3 && wrong.iter().any(|figure| figure.starts_with("executions")), "{}", told.table());
}

/// The check of the alerts can fail, both ways.
#[test]
fn an_alert_too_few_or_too_many_would_be_noticed() {
    let every = |alert: Alert| {
        stories::ALL.iter().filter(move |name| stories::fires(name).iter().any(|(fired, _)| *fired == alert))
    };
    for alert in Alert::ALL {
        if stories::WITHOUT_A_STORY.contains(alert) {
            assert_eq!(every(*alert).count(), 0, "{} has a story", alert.name());
            continue;
        }
        assert!(every(*alert).count() > 0, "no story is made for {}", alert.name());
        assert!(every(*alert).count() < stories::ALL.len(), "{} fires everywhere", alert.name());
    }
    let quiet = Recording::empty();
    assert_eq!(quiet.check(&BTreeSet::new()), Ok(()));
    quiet.check(&BTreeSet::from([(Alert::Zombies, "inventory")])).expect_err("nothing fires there");
    let zombies =
        Recording::of_one_series("oneclock_zombie_work{job=\"inventory\",instance=\"a\",layer=\"blocking\"}", "7x20");
    assert_eq!(zombies.check(&BTreeSet::from([(Alert::Zombies, "inventory")])), Ok(()));
    zombies.check(&BTreeSet::new()).expect_err("it fires");
}

/// The guide's matrix is this one.
#[test]
fn the_guide_says_which_alerts_fire() {
    let matrix = stories::matrix();
    let guide = include_str!("../../docs/guide/scenarios.md");
    assert!(guide.contains(&matrix), "docs/guide/scenarios.md should have this table:\n{matrix}");
}
