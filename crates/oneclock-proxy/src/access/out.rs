//! Where lines go: a queue with a bound, and a thread of its own that writes.
//!
//! Decides that nobody who handles requests waits for a disk or a pipe. Where the queue is full a line is lost, which is counted
//! and said in the next one that gets through, at the place where it is missing. What cannot be written is lost in the same way,
//! and told once on standard error until something can be written again. By hand and not by `tracing-appender`, which cannot
//! open a file anew and counts what it lost where no line can say it. What may wait for somebody else is that thread's, to open
//! a file anew and to open a pipe too: a pipe is open once somebody reads it, which may be never.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::line::Line;
use crate::config::LogTo;

/// How many lines wait to be written: a fifth of a second at 20 000 a second, and two megabytes at most.
const QUEUE: usize = 4_096;

/// What is written at once, about, in bytes.
const BATCH: usize = 64 * 1024;

/// How long a shutdown waits for lines that cannot be written.
const FLUSH: Duration = Duration::from_secs(2);

/// The way to the thread that writes, which ends when the last of these is gone and all is written. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Out {
    lines: mpsc::Sender<Told>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    to: LogTo,
    lost: AtomicU64,
    to_be_opened: AtomicBool, // before anything else is written
}

#[derive(Debug)]
enum Told {
    Line(Box<Line>),
    /// All before it is written.
    Flush(oneshot::Sender<()>),
    /// There is something to do, though no line says so.
    Wake,
}

/// Writes, on its thread.
struct Writer {
    to: Box<dyn Write + Send>,
    shared: Arc<Shared>,
    buffer: Vec<u8>,
    torn: bool,  // a line was begun and is not written to its end
    fails: bool, // what was told once
}

/// A pipe before it is open.
struct NotOpen;

// === Out ===

impl Out {
    /// Opens what lines go to, and begins to write; `None` if they go nowhere.
    ///
    /// # Errors
    /// What it cannot open, or that there is no thread to be had. Of a pipe that is told later, on standard error.
    pub(super) fn open(to: &LogTo) -> io::Result<Option<Self>> {
        let (opened, is_open): (Box<dyn Write + Send>, bool) = match to {
            LogTo::Nowhere => return Ok(None),
            LogTo::Stdout => (Box::new(io::stdout()), true),
            LogTo::File(path) if is_pipe(path) => (Box::new(NotOpen), false),
            LogTo::File(path) => (Box::new(open(path)?), true),
        };
        let (lines, told) = mpsc::channel(QUEUE);
        let to_be_opened = AtomicBool::new(false);
        let shared = Arc::new(Shared { to: to.clone(), lost: AtomicU64::new(0), to_be_opened });
        let writer = Writer { to: opened, shared: Arc::clone(&shared), buffer: Vec::new(), torn: false, fails: false };
        std::thread::Builder::new().name("access-log".to_owned()).spawn(|| writer.run(told))?;
        let out = Self { lines, shared };
        if !is_open {
            out.reopen();
        }
        Ok(Some(out))
    }

    /// Has a line written, unless too many wait already.
    ///
    /// # Errors
    /// How many refusals the line would have told of: nobody was told. That it is lost itself is counted here.
    pub(super) fn offer(&self, mut line: Line) -> Result<(), u64> {
        let Ok(place) = self.lines.try_reserve() else {
            self.shared.lost.fetch_add(1, Ordering::Relaxed);
            return Err(line.left_out);
        };
        line.lost = self.shared.lost();
        place.send(Told::Line(Box::new(line)));
        Ok(())
    }

    /// Has the file opened anew, if it is one. What was opened before goes on if that fails.
    pub(super) fn reopen(&self) {
        self.shared.to_be_opened.store(true, Ordering::Release);
        let _ = self.lines.try_send(Told::Wake); // where there is no place, lines wait, and whoever writes them sees it
    }

    /// Returns once all lines so far are written, or after [`FLUSH`].
    pub(super) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        let flushed = async {
            if self.lines.send(Told::Flush(done)).await.is_ok() {
                let _ = written.await;
            }
        };
        if tokio::time::timeout(FLUSH, flushed).await.is_err() {
            self.shared.tell("takes no lines, and some are lost");
        }
    }
}

/// Whether it could be opened; no file is made for that.
pub(super) fn check(to: &LogTo) -> io::Result<()> {
    let LogTo::File(path) = to else { return Ok(()) };
    match fs::metadata(path) {
        Ok(found) if found.is_file() => OpenOptions::new().append(true).open(path).map(drop),
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => Ok(()), // a pipe or a device, which to open may have consequences
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().map_or(Ok(()), |folder| fs::metadata(folder).map(drop));
            folder.map_err(|_| error)
        }
        Err(error) => Err(error),
    }
}

/// To its end: what others write there, and what was there, stays.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Whether to open it waits for whoever reads it.
fn is_pipe(path: &Path) -> bool {
    #[cfg(unix)]
    return fs::metadata(path).is_ok_and(|found| std::os::unix::fs::FileTypeExt::is_fifo(&found.file_type()));
    #[cfg(not(unix))]
    return false;
}

// === Shared ===

impl Shared {
    /// How many lines were lost since this was asked last.
    fn lost(&self) -> u64 {
        match self.lost.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.lost.swap(0, Ordering::Relaxed),
        }
    }

    /// For who reads along: the log itself cannot say it.
    fn tell(&self, what: &str) {
        // Standard error may be closed as well, and then nobody reads along.
        let _ = writeln!(io::stderr(), "oneclock proxy: access log: {} {what}", self.to);
    }
}

// === Writer ===

impl Writer {
    fn run(mut self, mut told: mpsc::Receiver<Told>) {
        let mut flushed = Vec::new();
        while let Some(first) = told.blocking_recv() {
            let mut next = Some(first);
            while let Some(one) = next.take() {
                match one {
                    Told::Line(line) => line.write(&mut self.buffer),
                    Told::Flush(done) => flushed.push(done),
                    Told::Wake => {}
                }
                if self.buffer.len() < BATCH {
                    next = told.try_recv().ok();
                }
            }
            self.write();
            for done in flushed.drain(..) {
                let _ = done.send(()); // who asked may have gone
            }
        }
        match self.shared.lost() {
            0 => {}
            lost => self.shared.tell(&format!("is closed: {lost} lines at its end are lost")),
        }
    }

    /// Opens the file anew, if it is one.
    fn open(&mut self) {
        let LogTo::File(path) = &self.shared.to else { return };
        match open(path) {
            Ok(file) => (self.to, self.torn) = (Box::new(file), false),
            Err(why) => self.shared.tell(&format!("cannot be opened anew: {why}; lines go where they went before")),
        }
    }

    /// Writes what is in the buffer, and empties it.
    fn write(&mut self) {
        if self.shared.to_be_opened.swap(false, Ordering::Acquire) {
            self.open();
        }
        let mended = self.torn;
        if mended {
            self.buffer.insert(0, b'\n'); // of the line before, which is lost and counted already
        }
        let (written, result) = write_all(&mut *self.to, &self.buffer);
        let (there, missing) = self.buffer.split_at(written);
        if let Some(last) = there.last() {
            self.torn = *last != b'\n';
        }
        let lost = missing.iter().filter(|byte| **byte == b'\n').count() - usize::from(mended && written == 0);
        match result {
            Ok(()) => self.fails = false,
            Err(why) => {
                self.shared.lost.fetch_add(lost as u64, Ordering::Relaxed);
                if !std::mem::replace(&mut self.fails, true) {
                    self.shared.tell(&format!("cannot be written: {why}; requests go on, and lines are lost"));
                }
            }
        }
        self.buffer.clear();
        self.buffer.shrink_to(2 * BATCH);
    }
}

/// Writes all of it, or as much as can be, and says how much that was.
fn write_all(to: &mut dyn Write, all: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while let Some(rest) = all.get(written..).filter(|rest| !rest.is_empty()) {
        match to.write(rest) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, to.flush())
}

// === NotOpen ===

impl Write for NotOpen {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::NotConnected.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
