//! What `cargo metadata` says of this workspace, cut down to what the checks ask.
//! Reads only; which of it is right is decided by `layers`, `msrv` and the steps of `test`.

use std::path::Path;

use serde_json::Value;

use crate::run;

/// The workspace as cargo resolves it.
pub(crate) struct Workspace {
    pub(crate) members: Vec<Member>,
    /// Every package in the lock file, members included.
    pub(crate) packages: Vec<Package>,
}

/// One crate of this repository.
pub(crate) struct Member {
    pub(crate) name: String,
    /// Its Cargo.toml, from the root of the repository.
    pub(crate) manifest: String,
    pub(crate) dependencies: Vec<Dependency>,
    /// Its features, `default` excluded, in the order of their names.
    pub(crate) features: Vec<String>,
    pub(crate) has_lib: bool,
}

pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
}

pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The oldest Rust it says it needs; many packages say nothing.
    pub(crate) rust_version: Option<String>,
    pub(crate) is_member: bool,
}

// === Workspace ===

impl Workspace {
    /// Asks cargo. Optional dependencies and those of other platforms count: they are in the lock file too.
    pub(crate) fn load(root: &Path) -> Result<Self, String> {
        let mut command = run::cargo(root);
        command.args(["metadata", "--format-version", "1", "--all-features"]);
        let text = run::output(command)?;
        let metadata = serde_json::from_str(&text).map_err(|error| format!("cargo metadata: {error}"))?;
        Self::read(&metadata)
    }

    pub(crate) fn read(metadata: &Value) -> Result<Self, String> {
        let root = text(metadata, "workspace_root")?;
        let ids = list(metadata, "workspace_members")?;
        let mut members = Vec::new();
        let mut packages = Vec::new();
        for package in list(metadata, "packages")? {
            let is_member = ids.contains(&package["id"]);
            packages.push(Package {
                name: text(package, "name")?.to_owned(),
                version: text(package, "version")?.to_owned(),
                rust_version: package["rust_version"].as_str().map(str::to_owned),
                is_member,
            });
            if is_member {
                members.push(Member::read(package, root)?);
            }
        }
        members.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self { members, packages })
    }
}

// === Member ===

impl Member {
    fn read(package: &Value, root: &str) -> Result<Self, String> {
        let manifest = text(package, "manifest_path")?;
        let manifest = manifest.strip_prefix(root).unwrap_or(manifest).trim_start_matches(['/', '\\']);
        let dependencies = list(package, "dependencies")?.iter().map(Dependency::read).collect::<Result<_, _>>()?;
        let features = package["features"].as_object().into_iter().flat_map(|features| features.keys());
        let has_lib = list(package, "targets")?.iter().any(|target| target["kind"] == serde_json::json!(["lib"]));
        Ok(Self {
            name: text(package, "name")?.to_owned(),
            manifest: manifest.to_owned(),
            dependencies,
            features: features.filter(|feature| *feature != "default").cloned().collect(),
            has_lib,
        })
    }
}

// === Dependency ===

impl Dependency {
    fn read(dependency: &Value) -> Result<Self, String> {
        let kind = match dependency["kind"].as_str() {
            None => Kind::Normal,
            Some("build") => Kind::Build,
            Some("dev") => Kind::Dev,
            Some(other) => {
                return Err(format!("cargo metadata: a dependency of kind `{other}`, which xtask does not know"));
            }
        };
        Ok(Self { name: text(dependency, "name")?.to_owned(), kind })
    }
}

// === Fields ===

fn text<'value>(value: &'value Value, field: &str) -> Result<&'value str, String> {
    value[field].as_str().ok_or_else(|| format!("cargo metadata: no text in field `{field}`"))
}

fn list<'value>(value: &'value Value, field: &str) -> Result<&'value Vec<Value>, String> {
    value[field].as_array().ok_or_else(|| format!("cargo metadata: no list in field `{field}`"))
}
