//! A consumer's process: a runtime of its own. Killed, nothing of it runs any more, its connections are closed, and nobody is told.

use std::future::Future;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::{BoxError, ShopClosed};

/// A process; it is killed when it is dropped.
pub(super) struct Process {
    runtime: Option<Runtime>,
    ended: oneshot::Receiver<Result<(), BoxError>>,
}

impl Process {
    /// Begins one that does this work.
    pub(super) fn begin(work: impl Future<Output = Result<(), BoxError>> + Send + 'static) -> Result<Self, ShopClosed> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(ShopClosed::not_started)?;
        let (ends, ended) = oneshot::channel();
        runtime.spawn(async move {
            let _ = ends.send(work.await);
        });
        Ok(Self { runtime: Some(runtime), ended })
    }

    /// In the middle of whatever it does.
    ///
    /// # Errors
    /// Its own, if that had ended it before.
    pub(super) fn kill(mut self) -> Result<(), ShopClosed> {
        match self.ended.try_recv() {
            Ok(Err(error)) => Err(ShopClosed::no_queue(error)),
            _ => Ok(()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background(); // also from within a runtime, which may not wait
        }
    }
}
