//! Groups of checks, one by one or several at a time: run, shown as they come, counted at the end. Decides that a run has failed
//! when a check did.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, stream};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::Error;
use crate::finding::{Group, Verdict};
use crate::table;

/// How groups are shown, and which.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Shown {
    /// Only groups whose title has this in it (`grpc-js`); may be given several times.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Shows what was seen in every place, not only in the first.
    #[arg(long)]
    all: bool,
    /// Prints what was found as JSON.
    #[arg(long)]
    json: bool,
}

/// Groups by their titles.
pub(crate) struct Plan<'a> {
    shown: &'a Shown,
    progress: ProgressBar,
    groups: Vec<BoxFuture<'a, Result<Group, Error>>>,
}

/// Says that peers are started, until the plan runs.
pub(crate) fn starting() -> Result<ProgressBar, Error> {
    let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}")?;
    let progress = ProgressBar::new_spinner().with_style(style);
    progress.enable_steady_tick(Duration::from_millis(200));
    progress.set_message("starting the peers");
    Ok(progress)
}

impl<'a> Plan<'a> {
    /// An empty one.
    pub(crate) fn new(shown: &'a Shown, progress: ProgressBar) -> Self {
        Self { shown, progress, groups: Vec::new() }
    }

    /// One more, if it was asked for.
    pub(crate) fn add(&mut self, title: &str, group: impl Future<Output = Result<Group, Error>> + Send + 'a) {
        let only = &self.shown.only;
        if only.is_empty() || only.iter().any(|only| title.contains(only.as_str())) {
            self.groups.push(Box::pin(group));
        }
    }

    /// Runs all, so many at a time.
    ///
    /// # Errors
    /// If there is none, one cannot be run, or a check fails.
    pub(crate) async fn run(self, at_a_time: usize) -> Result<(), Error> {
        let Self { shown, progress, groups: plan } = self;
        if plan.is_empty() {
            return Err(format!("no group has {} in its title", shown.only.join(" or ")).into());
        }
        let total = plan.len();
        let mut groups = Vec::new();
        let mut running = stream::iter(plan).buffered(at_a_time);
        progress.set_message(format!("0 of {total} groups"));
        while let Some(group) = running.next().await {
            let group = group?;
            if !shown.json {
                progress.suspend(|| anstream::print!("{}", table::group(&group, shown.all)));
            }
            groups.push(group);
            progress.set_message(format!("{} of {total} groups", groups.len()));
        }
        progress.finish_and_clear();
        if shown.json {
            let groups: Vec<_> = groups.iter().map(Group::json).collect();
            println!("{:#}", json!({ "groups": groups }));
        } else {
            anstream::print!("{}", table::summary(&groups));
        }
        match groups.iter().map(|group| group.count(Verdict::Fails)).sum::<usize>() {
            0 => Ok(()),
            failed => Err(format!("{failed} checks do not hold").into()),
        }
    }
}
