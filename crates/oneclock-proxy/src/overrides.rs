//! What an operator has changed about single routes while the proxy runs: retries off, another mode of admission.
//!
//! Decides how long that holds: until it is taken back, until a reload says something else of the route, or until the process
//! ends. It is for the middle of the night; what is to last belongs into the file.

use std::collections::BTreeMap;

use oneclock_core::Name;
use oneclock_core::admission::Mode;

use crate::config::{Config, Route};

/// By route. A route without one is not here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overrides(BTreeMap<Name, Override>);

/// What holds of a route in place of what the configuration says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Override {
    /// There is one attempt.
    pub(crate) no_retries: bool,
    /// Whether what admission decides is done.
    pub(crate) mode: Option<Mode>,
}

/// A change of one: `None` leaves it, `Some(None)` takes it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) no_retries: Option<bool>,
    pub(crate) mode: Option<Option<Mode>>,
}

// === Overrides ===

impl Overrides {
    pub(crate) fn of(&self, route: &Name) -> Override {
        self.0.get(route).copied().unwrap_or_default()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, Override)> {
        self.0.iter().map(|(route, held)| (route, *held))
    }

    /// These with one changed.
    pub(crate) fn with(&self, route: &Name, change: Change) -> Self {
        let mut all = self.clone();
        let mut held = all.0.remove(route).unwrap_or_default();
        held.no_retries = change.no_retries.unwrap_or(held.no_retries);
        held.mode = change.mode.unwrap_or(held.mode);
        if held != Override::default() {
            all.0.insert(route.clone(), held);
        }
        all
    }

    /// Those that a reload leaves: of routes of which `now` says what `before` did. What is said in the same words is the same.
    pub(crate) fn left_by(&self, before: &Config, now: &Config) -> Self {
        let said = |config: &Config, name: &Name| {
            config.routes.iter().find(|route| route.name == *name).map(|route| format!("{route:?}"))
        };
        let stays = |name: &Name| said(before, name).is_some_and(|was| said(now, name) == Some(was));
        Self(self.iter().filter(|(name, _)| stays(name)).map(|(name, held)| (name.clone(), held)).collect())
    }
}

// === Override ===

impl Override {
    /// The mode that is in force.
    pub(crate) fn mode_of(self, route: &Route) -> Mode {
        self.mode.unwrap_or(route.mode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> Config {
        let text = format!(
            "upstreams: {{ app: {{ url: 'http://127.0.0.1:1' }} }}\nroutes:\n\
             - {{ name: orders, matches: [{{ path: {{ type: PathPrefix, value: /orders }} }}], upstream: app{more} }}\n\
             - {{ name: all, upstream: app }}\n"
        );
        Config::parse(&text).expect("a configuration")
    }

    #[test]
    fn one_that_changes_nothing_is_none() {
        let route = Name::from("orders");
        let off = Overrides::default().with(&route, Change { no_retries: Some(true), mode: None });
        assert!(off.of(&route).no_retries);
        let both = off.with(&route, Change { no_retries: None, mode: Some(Some(Mode::Enforce)) });
        assert_eq!(both.of(&route), Override { no_retries: true, mode: Some(Mode::Enforce) });
        let back = both.with(&route, Change { no_retries: Some(false), mode: Some(None) });
        assert_eq!(back, Overrides::default());
    }

    #[test]
    fn it_ends_with_a_reload_that_says_something_else_of_its_route() {
        let (orders, all) = (Name::from("orders"), Name::from("all"));
        let change = Change { no_retries: Some(true), mode: None };
        let held = Overrides::default().with(&orders, change).with(&all, change);
        assert_eq!(held.left_by(&config(""), &config("")), held);
        let left = held.left_by(&config(""), &config(", ceiling: 5s"));
        assert_eq!((left.of(&orders).no_retries, left.of(&all).no_retries), (false, true));
        let renamed = Overrides::default().with(&Name::from("gone"), change);
        assert_eq!(renamed.left_by(&config(""), &config("")), Overrides::default());
    }
}
