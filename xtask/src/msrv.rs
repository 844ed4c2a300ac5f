//! The oldest Rust we state must be enough for what we depend on, as far as the packages say.
//! That our own code keeps to it is clippy's work (`incompatible_msrv`); a build with that toolchain is not made here.

use crate::workspace::Workspace;

/// The highest version somebody may need, and who says nothing.
pub(crate) fn check(workspace: &Workspace) -> Result<String, String> {
    let stated = stated(workspace)?;
    let limit = parse(&stated)?;
    let mut wrong = Vec::new();
    let mut silent = 0_usize;
    for package in workspace.packages.iter().filter(|package| !package.is_member) {
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
    if wrong.is_empty() {
        let all = workspace.packages.iter().filter(|package| !package.is_member).count();
        Ok(format!("Rust {stated} is enough for {} packages; {silent} of {all} state nothing", all - silent))
    } else {
        Err(wrong.join("\n"))
    }
}

/// What every member states; they all take it from the workspace.
fn stated(workspace: &Workspace) -> Result<String, String> {
    let mut stated: Option<&str> = None;
    for package in workspace.packages.iter().filter(|package| package.is_member) {
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
    use crate::workspace::Package;

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
