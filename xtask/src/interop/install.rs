//! The peers of `interop grpc`, in target/interop: a virtual environment of Python and a folder of Node, with pinned versions.
//!
//! Decides when what is there is used again: when it was installed from the same files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::run;

/// The folder, from the root of the repository.
const FOLDER: &str = "target/interop";

/// What google publishes of its own types, below site-packages.
const GOOGLE: [&str; 2] = ["google/rpc/status.proto", "google/rpc/error_details.proto"];

/// Installs what is missing, and says so.
pub(crate) fn peers(root: &Path) -> Result<(), String> {
    let folder = root.join(FOLDER);
    let sources = root.join("interop");
    fs::create_dir_all(folder.join("node")).map_err(|error| format!("{FOLDER}: {error}"))?;
    python(root, &folder, &sources)?;
    node(root, &folder, &sources)
}

fn python(root: &Path, folder: &Path, sources: &Path) -> Result<(), String> {
    let requirements = sources.join("peers/python/requirements.txt");
    let proto = sources.join("proto/probe.proto");
    let stamp = Stamp::of(folder.join("python.stamp"), &[&requirements, &proto])?;
    if stamp.is_there() {
        return Ok(());
    }
    eprintln!("interop: installing Python's peers in {FOLDER}/venv");
    let mut venv = run::program(root, "python3".as_ref());
    venv.args(["-m", "venv", "--clear"]).arg(folder.join("venv"));
    run::run(venv).map_err(|error| format!("{error}; Python 3.10 or newer with venv: apt-get install python3-venv"))?;
    let python = folder.join("venv/bin/python");
    let mut pip = run::program(root, python.as_os_str());
    pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--requirement"]).arg(requirements);
    run::run(pip)?;

    let mut where_from = run::program(root, python.as_os_str());
    where_from.args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]);
    let packages = run::output(where_from)?;
    let protoc = |arguments: &[String]| {
        let mut protoc = run::program(root, python.as_os_str());
        protoc.args(["-m", "grpc_tools.protoc", "--proto_path=interop/proto"]);
        protoc.arg(format!("--proto_path={}", packages.trim())).args(arguments).arg("probe.proto");
        protoc
    };
    let generated = folder.join("generated");
    fs::create_dir_all(&generated).map_err(|error| format!("{}: {error}", generated.display()))?;
    let out = generated.display();
    run::run(protoc(&[format!("--python_out={out}"), format!("--grpc_python_out={out}")]))?;
    let out = folder.join("probe.binpb");
    let mut descriptors = protoc(&["--include_imports".to_owned(), format!("--descriptor_set_out={}", out.display())]);
    descriptors.args(GOOGLE);
    run::run(descriptors)?;
    stamp.set()
}

fn node(root: &Path, folder: &Path, sources: &Path) -> Result<(), String> {
    // Modules are looked for beside the files that import them.
    let (from, to) = (sources.join("peers/node"), folder.join("node"));
    let failed = |error: std::io::Error| format!("{}: {error}", from.display());
    for file in fs::read_dir(&from).map_err(failed)? {
        let file = file.map_err(failed)?;
        fs::copy(file.path(), to.join(file.file_name())).map_err(failed)?;
    }
    let stamp = Stamp::of(folder.join("node.stamp"), &[&from.join("package-lock.json")])?;
    if stamp.is_there() {
        return Ok(());
    }
    eprintln!("interop: installing Node's peers in {FOLDER}/node");
    npm(root, &to, &["ci", "--ignore-scripts", "--no-audit", "--no-fund"])?;
    stamp.set()
}

/// npm in this folder.
pub(super) fn npm(root: &Path, folder: &Path, arguments: &[&str]) -> Result<(), String> {
    let mut npm = run::program(root, "npm".as_ref());
    npm.current_dir(folder).args(arguments);
    run::run(npm).map_err(|error| format!("{error}; Node 20 or newer with npm: apt-get install nodejs npm"))
}

/// What was installed last, by the text of the files that say it.
pub(super) struct Stamp {
    path: PathBuf,
    text: String,
}

impl Stamp {
    pub(super) fn of(path: PathBuf, files: &[&Path]) -> Result<Self, String> {
        let read = |file: &&Path| fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()));
        Ok(Self { path, text: files.iter().map(read).collect::<Result<_, _>>()? })
    }

    pub(super) fn is_there(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|text| text == self.text)
    }

    pub(super) fn set(&self) -> Result<(), String> {
        fs::write(&self.path, &self.text).map_err(|error| format!("{}: {error}", self.path.display()))
    }
}
