//! More idle connections than there are places: what is held is bounded, and whoever comes with a request is served.

use oneclock_test::{Protocol, peer};

use crate::AMPLE;
use crate::process::{Alone, Bystander, Holder, now};

const IDLE: usize = 20_000;

/// What a process needs of descriptors beside its connections.
const OTHERS: usize = 200;

/// How many processes hold connections at most.
const HOLDERS: usize = 20;

/// How many descriptors a process may have if it asks for them.
fn descriptors() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("Linux has it");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("Linux has it");
    line.split_whitespace().nth(4).and_then(|hard| hard.parse().ok()).unwrap_or(usize::MAX)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg_attr(not(target_os = "linux"), ignore = "reads /proc")]
async fn twenty_thousand_idle_connections_do_not_lock_the_others_out() {
    let may = descriptors().saturating_sub(OTHERS);
    let places = 10_000.min(may);
    let holders = IDLE.div_ceil(may.min(10_000)).min(HOLDERS);
    let each = IDLE.div_ceil(holders).min(may);
    println!("{places} places; {holders} processes with {each} connections each ({may} descriptors to a process)");
    if holders * each < IDLE {
        println!("NOT {IDLE}: a process may have {may} descriptors only; raise the hard limit (ulimit -H -n)");
    }

    let upstream = peer::echo_headers(Protocol::Http1).expect("a port");
    let proxy = Alone::start(upstream.addr(), places, AMPLE).await;
    let before = proxy.memory();
    let bystander = Bystander::start(proxy.addr).await;
    let since = now();
    let mut held: Vec<_> = (0..holders)
        .map(|nth| {
            let source = ([127, 0, 0, u8::try_from(nth + 2).expect("few")], 0).into();
            Holder::start(proxy.addr, source, each)
        })
        .collect();
    let (mut failed, mut most) = (0, 0);
    for holder in &mut held {
        let mut opened = std::pin::pin!(holder.opened());
        loop {
            // What is held meanwhile, looked at now and then.
            match tokio::time::timeout(crate::ms(100), &mut opened).await {
                Ok(not_opened) => break failed += not_opened,
                Err(_elapsed) => most = most.max(proxy.descriptors()),
            }
        }
    }
    most = most.max(proxy.descriptors());
    let (took, full) = (now() - since, proxy.memory());
    let served = bystander.stop().await;
    println!("{} connections opened in {took:.1?}, {failed} not", holders * each - failed);
    println!("descriptors of the proxy: {most} at most; memory: {before} before, {full} with them; {served}");
    assert!(most <= places + OTHERS, "{most} descriptors for {places} places");
    served.assert_all();
    assert!(full.peak < before.now + 20 * places as u64, "at most 20 KiB for a connection: {full}");

    // When they leave, their places are free again.
    drop(held);
    let after = Bystander::start(proxy.addr).await;
    for _ in 0..600 {
        if proxy.descriptors() < OTHERS {
            break;
        }
        tokio::time::sleep(crate::ms(50)).await; // between two looks
    }
    after.stop().await.assert_all();
    assert!(proxy.descriptors() < OTHERS, "{} descriptors", proxy.descriptors());
    println!("memory: {} after them", proxy.memory());
}
