//! Somebody's program with its files, for as long as it is held.
//!
//! Decides that nothing of it outlives the run, even if that is killed: a shell holds a pipe from here, and when it closes the
//! shell kills the program with all that it has started, and removes its files.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oneclock::clock;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::sleep;

/// How long it may take to listen.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// `$1` is the program, which leads a group of its own; `$2` the folder of its files.
const GUARDIAN: &str = r#"trap : INT TERM HUP; read -r _; kill -s KILL -- "-$1" 2>/dev/null; rm -rf "$2""#;

/// A folder of its own. Removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

/// A program that runs. Killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    _program: Child,
    _guardian: Child,
    _folder: Folder,
}

// === Folder ===

impl Folder {
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("oneclock-peers-{}-{count}-{name}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self(folder))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file, and returns where it is.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let file = self.0.join(name);
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(file)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // the guardian does, too
    }
}

// === Process ===

impl Process {
    /// Runs `command` until it listens at all of these.
    ///
    /// # Errors
    /// With what the program wrote, if it ends or does not listen.
    pub(crate) async fn start(mut command: Command, folder: Folder, listens: &[SocketAddr]) -> Result<Self, String> {
        let named = command.as_std().get_program().to_string_lossy().into_owned();
        let log = folder.path().join("log");
        let (out, err) = File::create(&log)
            .and_then(|file| Ok((file.try_clone()?, file)))
            .map_err(|error| format!("{}: {error}", log.display()))?;
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0).kill_on_drop(true);
        let mut program = command.spawn().map_err(|error| format!("`{named}` could not be run: {error}"))?;
        let id = program.id().ok_or_else(|| format!("`{named}` ended at once"))?;
        let mut guardian = Command::new("sh");
        guardian.args(["-c", GUARDIAN, "guardian", &id.to_string()]).arg(folder.path()).stdin(Stdio::piped());
        let guardian = guardian.spawn().map_err(|error| format!("`sh`, which stops it, could not be run: {error}"))?;
        let began = clock::now();
        let said = || fs::read_to_string(&log).unwrap_or_default();
        for address in listens {
            while TcpStream::connect(address).await.is_err() {
                if let Ok(Some(status)) = program.try_wait() {
                    return Err(format!("`{named}` ended: {status}\n{}", said()));
                }
                if clock::now().since(began) > STARTS_WITHIN {
                    return Err(format!("`{named}` did not listen within {STARTS_WITHIN:?}\n{}", said()));
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(Self { _program: program, _guardian: guardian, _folder: folder })
    }
}

/// Addresses that nobody has: a program cannot be asked in one way for the ones that it took.
pub(crate) fn free<const N: usize>() -> Result<[SocketAddr; N], String> {
    let failed = |error: std::io::Error| format!("no free port: {error}");
    // Held together, so that they differ.
    let mut held = Vec::new();
    for _ in 0..N {
        held.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?);
    }
    let addresses = held.iter().map(TcpListener::local_addr).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    addresses.try_into().map_err(|_| "no free port".to_owned())
}

/// The first version that `program` prints with these arguments, such as `1.40.0`.
pub(crate) async fn version(program: &Path, argument: &str) -> Result<String, String> {
    let mut command = Command::new(program);
    let output = command.arg(argument).stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.map_err(|error| format!("`{}` could not be run: {error}", program.display()))?;
    let said = [output.stdout, output.stderr].concat();
    first_version(&String::from_utf8_lossy(&said))
        .ok_or_else(|| format!("`{} {argument}` says no version", program.display()))
}

/// The first word of three numbers with points between them.
fn first_version(said: &str) -> Option<String> {
    let mut words = said.split(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let is = |word: &&str| word.split('.').count() == 3 && word.split('.').all(|number| !number.is_empty());
    words.find(is).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_what_each_program_says() {
        for (said, want) in [
            ("oneclock 0.1.0\n", Some("0.1.0")),
            ("envoy  version: d3ab9c1a/1.40.0/Clean/RELEASE/BoringSSL", Some("1.40.0")),
            ("HAProxy version 2.6.12-1+deb12u4 2026/01/02 - https://haproxy.org/", Some("2.6.12")),
            ("nginx version: nginx/1.22.1", Some("1.22.1")),
            ("no. 3", None),
        ] {
            assert_eq!(first_version(said).as_deref(), want, "{said}");
        }
    }
}
