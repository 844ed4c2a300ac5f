//! What durable keys cost: requests per second through the layer over an SQLite file, beside none, and beside a store that
//! gives every claim and every completion a commit of its own.
//!
//! `cargo run --release -p oneclock-sqlite --features idempotency --example throughput [-- SECONDS [FOLDER]]`. The folder must lie on the disk
//! that matters: on one in memory every store is fast.

use std::convert::Infallible;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use oneclock::clock;
use oneclock_idempotency::{Idempotency, IdempotencyKey};
use oneclock_sqlite::IdempotencyStore;
use tower::{Layer as _, ServiceExt as _};

const CLIENTS: [usize; 3] = [1, 8, 64];

#[derive(Clone, Copy, PartialEq)]
enum Way {
    NoKeys,
    Shared,
    OneByOne,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let span = Duration::from_secs(arguments.next().map_or(Ok(5), |seconds| seconds.parse())?);
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    println!("requests/s, {span:?} each, receipts of 1 KiB");
    println!(
        "{:>8} {:>12} {:>14} {:>18} {:>8} {:>22}",
        "clients", "no keys", "group commit", "own commits (2)", "ratio", "requests in a commit"
    );
    for clients in CLIENTS {
        let (none, _) = rate(Way::NoKeys, clients, span, &folder).await?;
        let (shared, held) = rate(Way::Shared, clients, span, &folder).await?;
        let (own, _) = rate(Way::OneByOne, clients, span, &folder).await?;
        println!("{clients:>8} {none:>12.0} {shared:>14.0} {own:>18.0} {:>8.1} {held:>22.1}", shared / own);
    }
    Ok(())
}

/// Requests per second, and how many claims and completions one commit held.
async fn rate(way: Way, clients: usize, span: Duration, folder: &Path) -> Result<(f64, f64), Box<dyn Error>> {
    let folder = folder.join(format!("oneclock-throughput-{}-{clients}-{}", std::process::id(), way as u8));
    std::fs::create_dir_all(&folder)?;
    let store = IdempotencyStore::builder(folder.join("store.sqlite"));
    let store = if way == Way::OneByOne { store.batch(1) } else { store }.build()?;
    let once = Idempotency::builder("charge", store.clone()).one_principal().required().build()?;
    let before = store.commits();
    let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let begun = clock::now();
    let tasks: Vec<_> = (0..clients)
        .map(|_| {
            let (over, done, once) = (Arc::clone(&over), Arc::clone(&done), once.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    if sends(way, &once).await == Some(StatusCode::CREATED) {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    tokio::task::yield_now().await; // without keys nothing waits, and the timer must have its turn
                }
            })
        })
        .collect();
    tokio::time::sleep(span).await;
    let (count, took) = (done.load(Ordering::Relaxed), clock::now().since(begun));
    let after = store.commits();
    over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await?;
    }
    drop((once, store));
    std::fs::remove_dir_all(folder)?;
    let commits = (after.commits - before.commits).max(1);
    Ok((count as f64 / took.as_secs_f64(), (after.held - before.held) as f64 / commits as f64))
}

async fn sends(way: Way, once: &Idempotency<IdempotencyStore>) -> Option<StatusCode> {
    let mut request = Request::post("/charges").body(Full::<Bytes>::from(r#"{"cents":499}"#)).ok()?;
    let service = tower::service_fn(|_: Request<Full<Bytes>>| async {
        let receipt = Full::<Bytes>::from(Bytes::from_static(&[b'r'; 1024]));
        Ok::<_, Infallible>(Response::builder().status(201).body(receipt).unwrap_or_default())
    });
    match way {
        Way::NoKeys => service.oneshot(request).await.ok().map(|answer| answer.status()),
        Way::Shared | Way::OneByOne => {
            IdempotencyKey::new().write(request.headers_mut());
            once.layer(service).oneshot(request).await.ok().map(|answer| answer.status())
        }
    }
}
