//! Which crate may use which: arrows point down only, crates of one level do not know each other, and the core uses
//! nothing that waits. Decides from `cargo metadata`; the picture stands in ARCHITECTURE.md.
//!
//! Dev-dependencies keep to the same arrows, but for oneclock-test, which every crate's tests may use.

use crate::workspace::{Kind, Member, Workspace};

/// Where a crate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// On a level: it may use what stands lower.
    Level(u8),
    /// oneclock-test: uses what stands below the adapters, and is used by tests only.
    TestSupport,
    /// Runs the others (examples, tests, benches, xtask): uses anything, and nothing that is published uses it.
    Outside,
}

const PLACES: &[(&str, Place)] = &[
    ("oneclock-core", Place::Level(0)),
    ("oneclock-yaml", Place::Level(0)),
    ("oneclock-kernel-clock", Place::Level(0)),
    ("oneclock", Place::Level(1)),
    ("oneclock-http", Place::Level(HTTP)),
    ("oneclock-axum", Place::Level(3)),
    ("oneclock-tonic", Place::Level(3)),
    ("oneclock-reqwest", Place::Level(3)),
    ("oneclock-idempotency", Place::Level(4)),
    ("oneclock-queue", Place::Level(5)),
    ("oneclock-postgres", Place::Level(6)),
    ("oneclock-sqlx", Place::Level(6)),
    ("oneclock-sqlite", Place::Level(6)),
    ("oneclock-redis", Place::Level(6)),
    ("oneclock-telemetry", Place::Level(7)),
    ("oneclock-proxy", Place::Level(8)),
    ("oneclock-audit", Place::Level(8)),
    ("oneclock-calibrate", Place::Level(8)),
    ("oneclock-alerts", Place::Level(8)),
    ("oneclock-trace", Place::Level(8)),
    ("oneclock-lint", Place::Level(8)),
    ("oneclock-sim", Place::Level(8)),
    ("oneclock-verify", Place::Level(8)),
    ("oneclock-cli", Place::Level(9)),
    (TEST_SUPPORT, Place::TestSupport),
    ("oneclock-examples", Place::Outside),
    ("oneclock-checkout", Place::Outside),
    ("oneclock-tests", Place::Outside),
    ("oneclock-durable", Place::Outside),
    ("oneclock-bench", Place::Outside),
    ("oneclock-interop", Place::Outside),
    ("oneclock-peers", Place::Outside),
    ("xtask", Place::Outside),
];

/// The highest level that oneclock-test may use.
const HTTP: u8 = 2;
const CORE: &str = "oneclock-core";
const TEST_SUPPORT: &str = "oneclock-test";

/// All that the core may use outside its tests.
const CORE_USES: &[&str] = &["thiserror"];

/// The demo is a command, so the command line holds the shop that it runs.
const EXCEPTIONS: &[(&str, &str)] = &[("oneclock-cli", "oneclock-checkout")];

/// Every arrow that points the wrong way, one sentence each: the file, the rule, the way out.
pub(crate) fn violations(workspace: &Workspace) -> Vec<String> {
    let mut found = Vec::new();
    for member in &workspace.members {
        let Some(place) = place(&member.name) else {
            found.push(format!(
                "{}: {} has no level yet. Add it to PLACES in xtask/src/layers.rs, and to the picture in ARCHITECTURE.md",
                member.manifest, member.name
            ));
            continue;
        };
        for dependency in &member.dependencies {
            let foreign = place_of_dependency(workspace, &dependency.name);
            let wrong = match foreign {
                None => wrong_in_core(member, &dependency.name, dependency.kind),
                Some(to) => wrong_arrow(member, place, &dependency.name, to, dependency.kind),
            };
            found.extend(wrong);
        }
    }
    found
}

fn place(name: &str) -> Option<Place> {
    PLACES.iter().find(|(known, _)| *known == name).map(|(_, place)| *place)
}

/// None for a crate that is not ours; one of ours without a level is reported once, at its own manifest.
fn place_of_dependency(workspace: &Workspace, name: &str) -> Option<Place> {
    workspace.members.iter().find(|member| member.name == name).and_then(|member| place(&member.name))
}

/// The core's own list, for what comes from outside this workspace.
fn wrong_in_core(member: &Member, uses: &str, kind: Kind) -> Option<String> {
    if member.name != CORE || kind == Kind::Dev || CORE_USES.contains(&uses) {
        return None;
    }
    Some(format!(
        "{}: {CORE} depends on {uses}. The core is pure, it has no clock, no I/O and no async, and uses only {} \
         (ARCHITECTURE.md, oneclock-core): move what waits to oneclock, or take its result as an argument",
        member.manifest,
        CORE_USES.join(", ")
    ))
}

/// The rule that the arrow from `member` to `uses` breaks, if any.
fn wrong_arrow(member: &Member, from: Place, uses: &str, to: Place, kind: Kind) -> Option<String> {
    let name = &member.name;
    let rule_and_way_out = match (from, to) {
        (Place::Outside, _) => return None,
        (_, Place::Outside) if EXCEPTIONS.contains(&(name.as_str(), uses)) => return None,
        (_, Place::TestSupport) if kind == Kind::Dev => return None,
        (Place::Level(from), Place::Level(to)) if from > to => return None,
        (Place::TestSupport, Place::Level(to)) if to <= HTTP => return None,
        (_, Place::Outside) => format!(
            "Nothing that is published uses {uses}, which only runs the others: move what is shared down into a crate \
             that stands on a level"
        ),
        (_, Place::TestSupport) => "oneclock-test is for tests: make it a dev-dependency".to_owned(),
        (Place::TestSupport, _) => format!(
            "oneclock-test uses only oneclock-core, oneclock and oneclock-http, so that every crate's tests can use it: \
             move what needs {uses} to the tests of {uses}"
        ),
        (Place::Level(from), Place::Level(to)) if from == to => "The two stand on the same level and do not know each \
             other, so that a service takes one without the other: move what both need to a level below"
            .to_owned(),
        (Place::Level(_), Place::Level(_)) => format!(
            "Arrows point down only, and {uses} stands above {name} (ARCHITECTURE.md, the code map): move the shared \
             part down, or turn the call round with a trait that {name} owns"
        ),
    };
    let depends = match kind {
        Kind::Normal => "depends on",
        Kind::Build => "depends at build time on",
        Kind::Dev => "depends in its tests on",
    };
    Some(format!("{}: {name} {depends} {uses}. {rule_and_way_out}", member.manifest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Metadata as cargo writes it, for these members with these dependencies.
    fn metadata(members: &[(&str, &[(&str, Kind)])]) -> Value {
        let packages = members.iter().map(|(name, dependencies)| {
            let dependencies = dependencies.iter().map(|(name, kind)| {
                let kind = match kind {
                    Kind::Normal => Value::Null,
                    Kind::Build => json!("build"),
                    Kind::Dev => json!("dev"),
                };
                json!({ "name": name, "kind": kind })
            });
            json!({
                "id": format!("path+{name}"), "name": name, "version": "0.1.0", "rust_version": "1.88",
                "manifest_path": format!("/here/crates/{name}/Cargo.toml"), "features": {},
                "targets": [{ "kind": ["lib"], "name": name }], "dependencies": dependencies.collect::<Vec<_>>(),
            })
        });
        json!({
            "workspace_root": "/here", "packages": packages.collect::<Vec<_>>(),
            "workspace_members": members.iter().map(|(name, _)| format!("path+{name}")).collect::<Vec<_>>(),
        })
    }

    #[track_caller]
    fn found(members: &[(&str, &[(&str, Kind)])]) -> Vec<String> {
        violations(&Workspace::read(&metadata(members)).expect("the shape of cargo metadata"))
    }

    #[track_caller]
    fn allowed(members: &[(&str, &[(&str, Kind)])]) {
        assert_eq!(found(members), Vec::<String>::new());
    }

    /// Exactly one violation, which names the manifest, the two crates, and says `rule`.
    #[track_caller]
    fn refused(members: &[(&str, &[(&str, Kind)])], rule: &str) {
        let found = found(members);
        let [only] = found.as_slice() else { panic!("one violation expected: {found:#?}") };
        assert!(only.contains(rule), "{only}");
        let (from, to) = (members[0].0, members[0].1[0].0);
        assert!(only.starts_with(&format!("crates/{from}/Cargo.toml: {from} depends")), "{only}");
        assert!(only.contains(&format!(" on {to}. ")), "{only}");
    }

    #[test]
    fn arrows_that_point_down_are_allowed_over_any_distance() {
        allowed(&[
            ("oneclock-cli", &[("oneclock-core", Kind::Normal), ("clap", Kind::Normal)]),
            ("oneclock-axum", &[("oneclock-http", Kind::Normal), ("oneclock", Kind::Normal)]),
            ("oneclock-http", &[("oneclock", Kind::Normal), ("hyper", Kind::Normal)]),
            ("oneclock", &[("oneclock-core", Kind::Normal), ("tokio", Kind::Normal)]),
            ("oneclock-core", &[("thiserror", Kind::Normal), ("proptest", Kind::Dev)]),
        ]);
    }

    #[test]
    fn an_arrow_that_points_up_is_refused() {
        let members: &[(&str, &[_])] = &[("oneclock", &[("oneclock-http", Kind::Normal)]), ("oneclock-http", &[])];
        refused(members, "Arrows point down only");
    }

    #[test]
    fn an_arrow_that_points_up_is_refused_in_tests_and_build_scripts_too() {
        for kind in [Kind::Dev, Kind::Build] {
            let members: &[(&str, &[_])] = &[("oneclock-http", &[("oneclock-axum", kind)]), ("oneclock-axum", &[])];
            refused(members, "Arrows point down only");
        }
    }

    #[test]
    fn the_core_using_the_runtime_is_refused() {
        refused(&[("oneclock-core", &[("oneclock", Kind::Normal)]), ("oneclock", &[])], "Arrows point down only");
    }

    #[test]
    fn crates_of_one_level_do_not_know_each_other() {
        let members: &[(&str, &[_])] =
            &[("oneclock-axum", &[("oneclock-reqwest", Kind::Normal)]), ("oneclock-reqwest", &[])];
        refused(members, "same level");
    }

    #[test]
    fn the_core_uses_nothing_that_waits() {
        for foreign in ["tokio", "hyper", "serde"] {
            refused(&[("oneclock-core", &[(foreign, Kind::Normal)])], "take its result as an argument");
        }
        refused(&[("oneclock-core", &[("cc", Kind::Build)])], "take its result as an argument");
    }

    #[test]
    fn test_support_is_for_tests() {
        let below: &[_] = &[("oneclock-http", Kind::Normal), ("oneclock", Kind::Normal)];
        allowed(&[
            (TEST_SUPPORT, below),
            ("oneclock-http", &[(TEST_SUPPORT, Kind::Dev)]),
            ("oneclock-core", &[(TEST_SUPPORT, Kind::Dev)]),
            ("oneclock", &[]),
            ("oneclock-tests", &[(TEST_SUPPORT, Kind::Normal)]),
        ]);
        refused(&[("oneclock-axum", &[(TEST_SUPPORT, Kind::Normal)]), (TEST_SUPPORT, &[])], "make it a dev-dependency");
    }

    #[test]
    fn test_support_stays_below_the_adapters() {
        let members: &[(&str, &[_])] = &[(TEST_SUPPORT, &[("oneclock-axum", Kind::Normal)]), ("oneclock-axum", &[])];
        refused(members, "oneclock-test uses only");
    }

    #[test]
    fn what_runs_the_others_may_use_anything_and_is_used_by_nothing() {
        allowed(&[
            ("oneclock-checkout", &[("oneclock-axum", Kind::Normal)]),
            ("oneclock-axum", &[]),
            ("oneclock-tests", &[("oneclock-checkout", Kind::Normal)]),
        ]);
        refused(
            &[("oneclock-http", &[("oneclock-checkout", Kind::Normal)]), ("oneclock-checkout", &[])],
            "Nothing that is published uses oneclock-checkout",
        );
    }

    #[test]
    fn only_the_command_line_holds_the_demo_shop() {
        allowed(&[("oneclock-cli", &[("oneclock-checkout", Kind::Normal)]), ("oneclock-checkout", &[])]);
        let members: &[(&str, &[_])] =
            &[("oneclock-cli", &[("oneclock-examples", Kind::Normal)]), ("oneclock-examples", &[])];
        refused(members, "Nothing that is published uses oneclock-examples");
    }

    #[test]
    fn a_crate_without_a_level_is_named_once() {
        let found = found(&[("oneclock-new", &[("oneclock", Kind::Normal)]), ("oneclock", &[])]);
        assert_eq!(
            found,
            [
                "crates/oneclock-new/Cargo.toml: oneclock-new has no level yet. Add it to PLACES in xtask/src/layers.rs, \
              and to the picture in ARCHITECTURE.md"
            ]
        );
    }

    #[test]
    fn every_violation_is_found_not_only_the_first() {
        let found = found(&[
            ("oneclock-core", &[("tokio", Kind::Normal), ("oneclock", Kind::Normal)]),
            ("oneclock", &[(TEST_SUPPORT, Kind::Normal)]),
            (TEST_SUPPORT, &[]),
        ]);
        assert_eq!(found.len(), 3, "{found:#?}");
    }
}
