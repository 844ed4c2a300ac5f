//! What a policy says where its file says nothing.

use std::collections::BTreeMap;

use super::{
    Burn, Calibration, DeadlineMissing, Label, Layer, Objective, Overflow, Policy, Propagation, Retries, Share,
    Shedding, Span, Timeouts, Times, Usual, Zombies,
};

impl Default for Policy {
    fn default() -> Self {
        Self {
            by: vec![Label::job()],
            matching: BTreeMap::new(),
            labels: BTreeMap::new(),
            runbook_url: None,
            minimum: 100,
            usual: Usual::default(),
            timeouts: Timeouts::default(),
            zombies: Zombies::default(),
            retries: Retries::default(),
            propagation: Propagation::default(),
            deadline_missing: DeadlineMissing::default(),
            overflow: Overflow::default(),
            shedding: Shedding::default(),
            calibration: Calibration::default(),
            objective: Objective::default(),
        }
    }
}

impl Default for Usual {
    fn default() -> Self {
        Self { over: Span::days(1) }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { warn: Share::percent(1.0), page: Share::percent(5.0), window: Span::minutes(5), for_: Span::minutes(5) }
    }
}

impl Default for Zombies {
    fn default() -> Self {
        // What the pools of our adapters have unless they are told otherwise.
        let pools = BTreeMap::from([(Layer::Statement, 10), (Layer::Blocking, 10)]);
        Self { page: Share::percent(20.0), pools, minimum: 2, for_: Span::minutes(5) }
    }
}

impl Default for Retries {
    fn default() -> Self {
        Self { amplification: Times::new(1.2), window: Span::minutes(5), for_: Span::minutes(5) }
    }
}

impl Default for Propagation {
    fn default() -> Self {
        Self {
            seen: Share::percent(10.0),
            unmetered: true,
            minimum: 20,
            window: Span::minutes(15),
            for_: Span::minutes(5),
        }
    }
}

impl Default for DeadlineMissing {
    fn default() -> Self {
        Self {
            watched: true,
            warn: Share::percent(50.0),
            edges: Vec::new(),
            window: Span::minutes(15),
            for_: Span::minutes(5),
        }
    }
}

impl Default for Overflow {
    fn default() -> Self {
        Self { watched: true, window: Span::minutes(15), for_: Span::minutes(5) }
    }
}

impl Default for Shedding {
    fn default() -> Self {
        Self { warn: Share::percent(5.0), window: Span::minutes(5), for_: Span::minutes(5) }
    }
}

impl Default for Calibration {
    fn default() -> Self {
        Self { due: Share::percent(0.5), minimum: 299, window: Span::days(1), for_: Span::hours(1) }
    }
}

impl Default for Objective {
    /// The windows that Sloth and the site reliability workbook use.
    fn default() -> Self {
        let burn = |times, short, long| Burn { times: Times::new(times), short, long };
        Self {
            in_time: Share::percent(99.5),
            page: vec![burn(14.4, Span::minutes(5), Span::hours(1)), burn(6.0, Span::minutes(30), Span::hours(6))],
            ticket: vec![burn(3.0, Span::hours(2), Span::days(1)), burn(1.0, Span::hours(6), Span::days(3))],
        }
    }
}
