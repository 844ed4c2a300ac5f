//! The oldest Rust we state must be enough for what we depend on, as far as the packages say.
//! That our own code keeps to it is clippy's work (`incompatible_msrv`); a build with that toolchain is not made here.

use crate::workspace::{Package, Workspace};

/// A member that states more than the others, and the packages for whose sake: nothing else may depend on those.
struct Newer {
    member: &'static str,
    package_prefix: &'static str,
}

const NEWER: &[Newer] = &[Newer { member: "oneclock-sqlx", package_prefix: "sqlx" }];

/// The highest version somebody may need, and who says nothing.
pub(crate) fn check(workspace: &Workspace) -> Result<String, String> {
    let stated = stated(workspace)?;
    let limit = parse(&stated)?;
    let mut wrong = Vec::new();
    let mut silent = 0_usize;
    for package in workspace.packages.iter().filter(|package| !package.is_member) {
        let limit = limit_of_newer(workspace, package)?.unwrap_or(limit);
        match &package.rust_version {
            None => silent += 1,
            Some(needs) if parse(needs)? > limit => wrong.push(format!(
                "Cargo.lock: {name} {version} needs Rust {needs}, and Cargo.toml states rust-version {stated}: \
                 `cargo update -p {name}@{version} --precise <an older one>`, or raise rust-version and say so in CHANGELOG.md",
                name = package.name,
                version = package.version
            )),
            Some(_) => {}
        }
    }
    for member in &workspace.members {
        for Newer { member: allowed, package_prefix } in NEWER {
            let uses = |name: &str| name.starts_with(package_prefix) || name == *allowed;
            if member.name != *allowed && member.dependencies.iter().any(|dependency| uses(&dependency.name)) {
                wrong
                    .push(format!("{}: only {allowed} may need a newer Rust, and this depends on it", member.manifest));
            }
        }
    }
    if wrong.is_empty() {
        let all = workspace.packages.iter().filter(|package| !package.is_member).count();
        Ok(format!("Rust {stated} is enough for {} packages; {silent} of {all} state nothing", all - silent))
    } else {
        Err(wrong.join("\n"))
    }
}

/// What the member states that brings this package along, if it is one of those that state more.
fn limit_of_newer(workspace: &Workspace, package: &Package) -> Result<Option<[u64; 3]>, String> {
    let Some(newer) = NEWER.iter().find(|newer| package.name.starts_with(newer.package_prefix)) else {
        return Ok(None);
    };
    let member = workspace.packages.iter().find(|package| package.is_member && package.name == newer.member);
    member.and_then(|member| member.rust_version.as_deref()).map(parse).transpose()
}

/// What every member states; they take it from the workspace, but for those in `NEWER`.
fn stated(workspace: &Workspace) -> Result<String, String> {
    let mut stated: Option<&str> = None;
    let is_newer = |package: &&Package| NEWER.iter().any(|newer| newer.member == package.name);
    for package in workspace.packages.iter().filter(|package| package.is_member && !is_newer(package)) {
        let Some(version) = package.rust_version.as_deref() else {
            return Err(format!("{} states no rust-version: write `rust-version.workspace = true`", package.name));
        };
        if *stated.get_or_insert(version) != version {
            return Err(format!(
                "{} states rust-version {version}, others another: take the workspace's",
                package.name
            ));
        }
    }
    stated.map(str::to_owned).ok_or_else(|| "no crate in this workspace".to_owned())
}

fn parse(version: &str) -> Result<[u64; 3], String> {
    let mut numbers = [0; 3];
    let mut parts = version.split('.');
    for number in &mut numbers {
        let Some(part) = parts.next() else { break };
        *number = part.parse().map_err(|_| format!("rust-version `{version}` is not a version like 1.88 or 1.88.0"))?;
    }
    if parts.next().is_some() {
        return Err(format!("rust-version `{version}` has more than three parts"));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{Dependency, Kind, Member, Package};

    fn package(name: &str, rust_version: Option<&str>, is_member: bool) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.2.3".to_owned(),
            rust_version: rust_version.map(str::to_owned),
            is_member,
        }
    }

    #[track_caller]
    fn check_with(dependency: Option<&str>) -> Result<String, String> {
        let packages = vec![package("oneclock", Some("1.88"), true), package("tool", dependency, false)];
        check(&Workspace { members: Vec::new(), packages })
    }

    #[test]
    fn a_dependency_that_needs_a_newer_rust_is_named() {
        for newer in ["1.89", "1.88.1", "2.0"] {
            let error = check_with(Some(newer)).expect_err(newer);
            assert!(error.contains("tool 1.2.3 needs Rust") && error.contains("cargo update -p tool@1.2.3"), "{error}");
        }
    }

    #[test]
    fn a_member_that_states_more_may_have_what_it_is_for_and_no_more() {
        let with = |member: &str, sqlx: &str, tool: &str| {
            let packages = vec![
                package("oneclock", Some("1.88"), true),
                package("oneclock-sqlx", Some(member), true),
                package("sqlx-core", Some(sqlx), false),
                package("tool", Some(tool), false),
            ];
            check(&Workspace { members: Vec::new(), packages })
        };
        with("1.94", "1.94", "1.88").expect("sqlx may need what its member states");
        with("1.94", "1.95", "1.88").expect_err("and no more");
        with("1.94", "1.94", "1.89").expect_err("others may not");
    }

    #[test]
    fn no_other_member_may_depend_on_what_needs_more() {
        let dependency = |name: &str| Dependency { name: name.to_owned(), kind: Kind::Normal };
        let member = |name: &str, uses: &str| Member {
            name: name.to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            dependencies: vec![dependency(uses)],
            features: Vec::new(),
            has_lib: true,
        };
        let with = |name: &str, uses: &str| {
            let packages = vec![package("oneclock", Some("1.88"), true)];
            check(&Workspace { members: vec![member(name, uses)], packages })
        };
        with("oneclock-sqlx", "sqlx").expect("it is for that");
        for uses in ["sqlx", "sqlx-core", "oneclock-sqlx"] {
            assert!(with("oneclock-cli", uses).expect_err(uses).starts_with("crates/oneclock-cli/Cargo.toml"));
        }
    }

    #[test]
    fn the_same_and_an_older_rust_are_enough() {
        for enough in ["1.88", "1.88.0", "1.9", "1.70.0"] {
            check_with(Some(enough)).expect(enough);
        }
    }

    #[test]
    fn a_package_that_states_nothing_is_counted() {
        assert_eq!(check_with(None).unwrap(), "Rust 1.88 is enough for 0 packages; 1 of 1 state nothing");
    }

    #[test]
    fn a_member_that_states_something_else_is_refused() {
        for other in [None, Some("1.87")] {
            let packages = vec![package("oneclock", Some("1.88"), true), package("oneclock-http", other, true)];
            let error = check(&Workspace { members: Vec::new(), packages }).expect_err("two statements");
            assert!(error.starts_with("oneclock-http states"), "{error}");
        }
    }
}
