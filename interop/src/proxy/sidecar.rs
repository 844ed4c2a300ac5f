//! A real `oneclock proxy`: one process of it for as long as it is held. Decides when it has started: when it has said where all
//! its listeners are.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::Error;
use crate::envoy::proxy::{folder, guard};

/// It reads one file.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// What a listener trusts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    Inside,
    Outside,
}

/// What one is run with: one upstream, one route, and a listener for each trust.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings<'a> {
    pub(crate) name: &'a str,
    pub(crate) upstream: &'a str,
    pub(crate) when_absent: &'a str,
    pub(crate) ceiling: &'a str,
    /// Also listens over TLS with these files.
    pub(crate) tls: Option<&'a Files>,
}

/// A certificate for this host, its key, and itself as the only root.
#[derive(Debug)]
pub(crate) struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

/// One that runs.
pub(crate) struct Sidecar {
    listeners: Vec<(String, SocketAddr)>,
    _process: Child,
    _guardian: Child,
}

impl Files {
    pub(crate) fn make() -> Result<Self, Error> {
        let here = folder("tls")?;
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        let files = Self { certificate: here.join("tls.crt"), key: here.join("tls.key") };
        std::fs::write(&files.certificate, made.cert.pem())?;
        std::fs::write(&files.key, made.signing_key.serialize_pem())?;
        Ok(files)
    }

    /// What a caller has to trust.
    pub(crate) fn roots(&self) -> String {
        self.certificate.display().to_string()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if let Some(folder) = self.certificate.parent() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

impl Settings<'_> {
    fn listeners(&self) -> Vec<&'static str> {
        let tls = self.tls.map(|_| "tls");
        ["inside", "outside"].into_iter().chain(tls).collect()
    }

    fn text(&self) -> String {
        let Self { upstream, when_absent, ceiling, .. } = self;
        let tls = self.tls.map(|Files { certificate, key }| {
            let (certificate, key) = (certificate.display(), key.display());
            format!(
                "- {{ name: tls, address: 127.0.0.1:0, trust: inside, tls: {{ certificate: {certificate}, key: {key} }} }}\n"
            )
        });
        format!(
            "admin: none\n\
             listeners:\n\
             - {{ name: inside, address: 127.0.0.1:0, trust: inside }}\n\
             - {{ name: outside, address: 127.0.0.1:0, trust: outside }}\n\
             {}upstreams:\n  \
             app: {{ url: http://{upstream}, trust: inside, maxConnections: 256 }}\n\
             routes:\n\
             - upstream: app\n  \
             whenAbsent: {when_absent}\n  \
             ceiling: {ceiling}\n",
            tls.unwrap_or_default()
        )
    }
}

impl Sidecar {
    pub(crate) async fn start(program: &Path, settings: &Settings<'_>) -> Result<Self, Error> {
        let failed = |what: String| Error::from(format!("the sidecar {}: {what}", settings.name));
        let files = folder(&format!("sidecar-{}", settings.name))?;
        let config = files.join("proxy.yaml");
        std::fs::write(&config, settings.text())?;
        let log = std::fs::File::create(files.join("log"))?;
        let mut command = Command::new(program);
        command.args(["proxy", "--config"]).arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        let mut process = command.spawn().map_err(|error| failed(format!("{}: {error}", program.display())))?;
        let guardian = guard(&process, &files)?;
        let stdout = process.stdout.take().ok_or_else(|| failed("it has no stdout".to_owned()))?;
        let mut lines = BufReader::new(stdout).lines();
        let mut listeners = Vec::new();
        let wanted = settings.listeners();
        let says = async {
            while listeners.len() < wanted.len() {
                let Some(line) = lines.next_line().await? else { break };
                listeners.extend(listener(&line));
            }
            Ok::<_, std::io::Error>(())
        };
        timeout(STARTS_WITHIN, says).await.map_err(|_| failed(format!("not ready after {STARTS_WITHIN:?}")))??;
        if listeners.len() < wanted.len() {
            let log = std::fs::read_to_string(files.join("log")).unwrap_or_default();
            return Err(failed(format!("it ended at once: {log}")));
        }
        Ok(Self { listeners, _process: process, _guardian: guardian })
    }

    /// Where callers of this trust are listened to.
    pub(crate) fn at(&self, trust: Trust) -> Result<SocketAddr, Error> {
        self.listener(if trust == Trust::Inside { "inside" } else { "outside" })
    }

    pub(crate) fn listener(&self, name: &str) -> Result<SocketAddr, Error> {
        let found = self.listeners.iter().find(|(known, _)| known == name);
        found.map(|(_, address)| *address).ok_or_else(|| format!("no listener is called {name}").into())
    }
}

/// `# inside listens on 127.0.0.1:40123`.
fn listener(line: &str) -> Option<(String, SocketAddr)> {
    let (name, address) = line.strip_prefix("# ")?.split_once(" listens on ")?;
    Some((name.to_owned(), address.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_it_listens_is_read_from_what_it_says() {
        let here = listener("# inside listens on 127.0.0.1:40123");
        assert_eq!(here, Some(("inside".to_owned(), ([127, 0, 0, 1], 40_123).into())));
        for other in ["admin: none", "# a comment", "inside listens on 127.0.0.1:1", "# inside listens on port 80"] {
            assert_eq!(listener(other), None, "{other}");
        }
    }
}
