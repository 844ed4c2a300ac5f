//! Rules for Prometheus, made from a policy.
//!
//! Decides the form: groups of recorded series and of alerts, as YAML. What is recorded is `requests`' and `ends`' work, what is
//! alerted on `alerts`'.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::policy::Policy;
use crate::written::{self, NotWritten};

mod alerts;
mod ends;
mod requests;

pub use alerts::Alert;

/// A file of rules.
#[derive(Clone, Debug, Serialize)]
pub struct Rules {
    groups: Vec<Group>,
}

#[derive(Clone, Debug, Serialize)]
struct Group {
    name: &'static str,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
enum Rule {
    Record {
        record: String,
        #[serde(serialize_with = "written::as_block")]
        expr: String,
    },
    Alert {
        alert: &'static str,
        #[serde(serialize_with = "written::as_block")]
        expr: String,
        #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
        for_: Option<String>,
        labels: BTreeMap<String, String>,
        annotations: BTreeMap<&'static str, String>,
    },
}

impl Rules {
    /// The rules of a policy.
    ///
    /// ```
    /// use oneclock_alerts::{Policy, Rules};
    ///
    /// let rules = Rules::of(&Policy::default()).to_yaml().unwrap();
    /// assert!(rules.contains("alert: OneclockTimeouts"));
    /// ```
    pub fn of(policy: &Policy) -> Self {
        let requests = Group { name: "oneclock-requests", rules: requests::recorded(policy) };
        let ends = Group { name: "oneclock-ends", rules: vec![ends::recorded(policy)] };
        Self { groups: vec![requests, ends, Group { name: "oneclock-alerts", rules: alerts::all(policy) }] }
    }

    /// As a file that Prometheus reads.
    ///
    /// # Errors
    /// [`NotWritten`], if the YAML cannot be written.
    pub fn to_yaml(&self) -> Result<String, NotWritten> {
        let yaml = written::yaml(self)?;
        Ok(format!(
            "# Written by `oneclock alerts`; change the policy instead. What to do when one of them fires: `oneclock playbook`.\n\
             {yaml}"
        ))
    }
}
