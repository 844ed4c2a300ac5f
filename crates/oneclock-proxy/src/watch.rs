//! A configuration in a file, followed as it changes.
//!
//! Decides what a change is: that another content is found under the file's name, or under the name of a file of TLS that it
//! names. How it came there does not matter: written in place, renamed to the name (editors), a symbolic link above it exchanged
//! (ConfigMaps and Secrets of Kubernetes), another mount. So the files are read, once a second, and compared. A watch of the
//! kernel's is of a file and not of a name: it is lost with each of these but the first, and hears nothing from other machines.
//!
//! What is being written is left alone: only when two looks agree is there a change. And each change is told once, whether it
//! could be read or not.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oneclock::clock;
use oneclock_core::Deadline;

use crate::StartFailed;
use crate::config::{Config, Refused};
use crate::digest::Digest;

/// How much lies between two looks.
const EVERY: Duration = Duration::from_secs(1);

/// How much lies between two looks that have to agree.
const SETTLES: Duration = Duration::from_millis(100);

/// A configuration in a file. It knows what it read last.
#[derive(Debug)]
pub struct ConfigFile {
    path: PathBuf,
    named: Vec<PathBuf>, // files of TLS
    seen: Digest,
    next_look: Deadline,
}

/// Why a file gives no configuration, in the words that a person at a terminal needs: the place in the file first.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotRead {
    /// It cannot be read at all.
    #[error("{}: {why}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Why not.
        why: io::Error,
    },
    /// There is a mistake in it.
    #[error("{}:{}{refused}", file.display(), if refused.line.is_some() { "" } else { " " })]
    Refused {
        /// The file.
        file: PathBuf,
        /// Which, and where.
        refused: Refused,
    },
    /// It cannot be run.
    #[error("{}: {}", file.display(), crate::control::said(why))]
    CannotRun {
        /// The file.
        file: PathBuf,
        /// Why not.
        why: StartFailed,
    },
}

impl ConfigFile {
    /// Reads a configuration from a file, and remembers what was read.
    ///
    /// # Errors
    /// [`NotRead`].
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn open(path: PathBuf) -> Result<(Self, Config), NotRead> {
        let mut file = Self { path, named: Vec::new(), seen: Digest::of([""; 0]), next_look: next_look() };
        let config = file.read().await?;
        Ok((file, config))
    }

    /// Reads a configuration from a file, once, and waits for the disk meanwhile.
    ///
    /// # Errors
    /// [`NotRead`].
    pub fn read_once(path: &Path) -> Result<Config, NotRead> {
        parse(path, std::fs::read(path))
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns once it says something else than what was [read](Self::read) last, or a file of TLS does that it named. What is
    /// said of files that are not there is nothing.
    ///
    /// # Cancel safety
    /// Nothing is missed: what was not read yet is told again.
    pub async fn changed(&mut self) {
        loop {
            tokio::time::sleep_until(clock::instant(self.next_look)).await;
            let mut found = self.look().await;
            if found == self.seen {
                self.next_look = next_look();
                continue;
            }
            loop {
                tokio::time::sleep(SETTLES).await;
                let again = self.look().await;
                if again == found {
                    break;
                }
                found = again;
            }
            if found != self.seen {
                return;
            }
        }
    }

    /// Reads it again. Whether it can be read or not, it is [changed](Self::changed) once it says something else than this.
    ///
    /// # Errors
    /// [`NotRead`].
    ///
    /// # Cancel safety
    /// Dropped, nothing was read.
    pub async fn read(&mut self) -> Result<Config, NotRead> {
        let path = self.path.clone();
        let text = blocking(move || std::fs::read(path)).await;
        let said = text.as_ref().ok().cloned();
        let config = parse(&self.path, text);
        if let Ok(config) = &config {
            self.named = config.files();
        }
        // Before they are read by whoever runs this: what changes from now on is seen as a change.
        let named = self.named.clone();
        self.seen = blocking(move || digest(said, &named)).await;
        self.next_look = next_look();
        config
    }

    /// Why what was read cannot be run.
    pub(crate) fn cannot_run(&self, why: StartFailed) -> NotRead {
        NotRead::CannotRun { file: self.path.clone(), why }
    }

    async fn look(&self) -> Digest {
        let (path, named) = (self.path.clone(), self.named.clone());
        blocking(move || digest(std::fs::read(path).ok(), &named)).await
    }
}

/// Of what a file says and of what those say that it names.
fn digest(text: Option<Vec<u8>>, named: &[PathBuf]) -> Digest {
    let all = std::iter::once(text).chain(named.iter().map(|file| std::fs::read(file).ok()));
    // One that is not there is told from one that is empty.
    Digest::of(all.map(Digest::of))
}

fn parse(path: &Path, text: io::Result<Vec<u8>>) -> Result<Config, NotRead> {
    let failed = |why| NotRead::Io { file: path.to_owned(), why };
    let text = String::from_utf8(text.map_err(failed)?);
    let text = text.map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))?;
    Config::parse(&text).map_err(|refused| NotRead::Refused { file: path.to_owned(), refused })
}

fn next_look() -> Deadline {
    Deadline::after(clock::now(), EVERY)
}

/// On a thread that may wait for a disk.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(ended) => match ended.try_into_panic() {
            Ok(panicked) => std::panic::resume_unwind(panicked),
            Err(_) => std::future::pending().await, // the runtime ends
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "upstreams: { app: { url: http://127.0.0.1:3000 } }\nroutes: [{ upstream: app }]\n";
    /// Longer than many looks take; the clock stands still while a disk is waited for.
    const LONG: Duration = Duration::from_secs(60);

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a folder"))
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.path(name), text).expect("written");
        }

        fn rename(&self, from: &str, to: &str) {
            std::fs::rename(self.path(from), self.path(to)).expect("renamed");
        }

        async fn open(&self, name: &str) -> ConfigFile {
            ConfigFile::open(self.path(name)).await.expect("it is read").0
        }
    }

    async fn changes(file: &mut ConfigFile) -> bool {
        tokio::time::timeout(LONG, file.changed()).await.is_ok()
    }

    fn more(queue: u32) -> String {
        FILE.replace("upstream: app }", &format!("upstream: app, queue: {queue} }}"))
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_written_in_place_or_renamed_to_it_is_a_change_and_the_same_again_is_none() {
        let folder = Folder::new();
        folder.write("proxy.yaml", FILE);
        let mut file = folder.open("proxy.yaml").await;
        assert!(!changes(&mut file).await, "nothing has happened");
        folder.write("proxy.yaml", &more(1));
        assert!(changes(&mut file).await && changes(&mut file).await, "it was not read yet");
        file.read().await.expect("it is read");
        folder.write("new", &more(1));
        folder.rename("new", "proxy.yaml");
        assert!(!changes(&mut file).await, "it says the same");
        folder.write("new", &more(2));
        folder.rename("new", "proxy.yaml");
        assert!(changes(&mut file).await);
    }

    /// As Kubernetes writes ConfigMaps and Secrets: what is exchanged is a link two steps above.
    #[cfg(unix)]
    #[tokio::test(start_paused = true)]
    async fn a_link_above_it_that_is_exchanged_is_a_change() {
        use std::os::unix::fs::symlink;
        let folder = Folder::new();
        for (version, text) in [("..1", FILE), ("..2", &more(2))] {
            std::fs::create_dir(folder.path(version)).expect("a folder");
            folder.write(&format!("{version}/proxy.yaml"), text);
        }
        symlink("..1", folder.path("..data")).expect("a link");
        symlink("..data/proxy.yaml", folder.path("proxy.yaml")).expect("a link");
        let mut file = folder.open("proxy.yaml").await;
        symlink("..2", folder.path("..new")).expect("a link");
        folder.rename("..new", "..data");
        assert!(changes(&mut file).await);
        assert_eq!(file.read().await.expect("it is read").routes[0].queue, 2);
        std::fs::remove_dir_all(folder.path("..1")).expect("removed");
        assert!(!changes(&mut file).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_mistake_is_told_once_and_so_is_a_file_that_is_gone() {
        let folder = Folder::new();
        folder.write("proxy.yaml", FILE);
        let mut file = folder.open("proxy.yaml").await;
        folder.write("proxy.yaml", "routes: [");
        assert!(changes(&mut file).await);
        let refused = file.read().await.expect_err("a mistake").to_string();
        assert!(refused.starts_with(&format!("{}:1:", folder.path("proxy.yaml").display())), "{refused}");
        assert!(!changes(&mut file).await, "it was told");
        std::fs::remove_file(folder.path("proxy.yaml")).expect("removed");
        assert!(changes(&mut file).await);
        assert!(matches!(file.read().await, Err(NotRead::Io { .. })));
        assert!(!changes(&mut file).await, "it was told");
        folder.write("proxy.yaml", FILE);
        assert!(changes(&mut file).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_of_tls_that_says_something_else_is_a_change() {
        let folder = Folder::new();
        folder.write("ca.crt", "one");
        let named = format!("url: 'https://app', tls: {{ ca: {} }}", folder.path("ca.crt").display());
        folder.write("proxy.yaml", &FILE.replace("url: http://127.0.0.1:3000", &named));
        let mut file = folder.open("proxy.yaml").await;
        assert!(!changes(&mut file).await);
        folder.write("ca.crt", "two");
        assert!(changes(&mut file).await);
        file.read().await.expect("it is read");
        folder.write("proxy.yaml", "routes: ["); // which names are meant is known from before
        assert!(changes(&mut file).await && file.read().await.is_err());
        folder.write("ca.crt", "three");
        assert!(changes(&mut file).await);
    }

    /// Its writer takes its time, and each look in between finds another half of it.
    #[tokio::test(start_paused = true)]
    async fn what_is_being_written_is_left_alone() {
        let folder = Folder::new();
        folder.write("proxy.yaml", FILE);
        let mut file = folder.open("proxy.yaml").await;
        let (path, text) = (folder.path("proxy.yaml"), more(7));
        let written = text.clone();
        let writer = tokio::spawn(async move {
            tokio::time::sleep(EVERY - SETTLES / 2).await;
            for end in (10..=written.len()).step_by(5).chain([written.len()]) {
                std::fs::write(&path, &written[..end]).expect("written");
                tokio::time::sleep(SETTLES).await;
            }
        });
        assert!(changes(&mut file).await);
        assert_eq!(std::fs::read_to_string(folder.path("proxy.yaml")).expect("a file"), text);
        writer.await.expect("it wrote");
    }
}
