//! Work outside a request: a nightly job with a budget of its own.
//!
//! Shows a blocking closure with checkpoints, a child process that ends with its whole group, a hook for what has a
//! handle of its own, a queue inside the process, and a platform's limit.

use std::time::Duration;

use oneclock::{Carried, Ended, Operation, Shutdown};
use oneclock_core::Stage;

#[tokio::main]
async fn main() {
    let shutdown = Shutdown::new();
    let platform_leaves = || Some(Duration::from_secs(60)); // what a function's platform would say
    let op =
        Operation::begin("nightly-reconcile", Duration::from_millis(400)).platform(platform_leaves).ended_by(&shutdown);
    let hook = op.on_end(|ending| println!("the hook was called: {ending}"));

    let result = op
        .run(async {
            // A client that takes only a duration:
            let timeout = op.grant("dynamodb").cap(Duration::from_millis(50)).reserve(Duration::from_millis(20));
            match timeout.remaining() {
                Ok(timeout) => println!("a client that takes only a duration would get {timeout:.0?}"),
                Err(not_begun) => println!("{not_begun}"),
            }

            // A queue inside the process: the wait is counted, and what expired on the way is not started.
            let (sender, mut receiver) = tokio::sync::mpsc::channel(8);
            if sender.send(Carried::new(&op, "row 7")).await.is_err() {
                return;
            }
            if let Some(carried) = receiver.recv().await {
                match carried.open() {
                    Ok((op, row)) => println!("{row} arrived with {:.0?} left", op.remaining()),
                    Err(late) => println!("{late}"),
                }
            }

            // Work on a thread looks up between its steps.
            let sum = op.spawn_blocking("sum", |op| {
                let mut sum = 0u64;
                for step in 0..5 {
                    op.checkpoint()?;
                    std::thread::sleep(Duration::from_millis(5));
                    sum += step;
                }
                Ok::<_, Ended>(sum)
            });
            match sum.await {
                Ok(Ok(sum)) => println!("the thread summed up {sum}"),
                Ok(Err(ended)) => println!("the thread noticed at a checkpoint: {ended}"),
                Err(failed) => println!("{failed}"),
            }

            // A child process, and whatever it started, ends with the operation.
            #[cfg(unix)]
            {
                let mut convert = tokio::process::Command::new("sh");
                convert.args(["-c", "sleep 60 & sleep 60"]);
                match op.process("convert", convert).await {
                    Ok(status) => println!("convert: {status}"),
                    Err(error) => println!("{error}"),
                }
            }
        })
        .await;
    if let Err(ended) = result {
        println!("{ended}");
    }
    tokio::time::sleep(Duration::from_millis(20)).await; // the hook runs on a task of its own
    drop(hook);

    // What must outlive it says so, with its own time and a reason.
    let mail = op.detach("report-mail", Duration::from_secs(2), "the report goes out even if the job ran out of time");
    let sent = mail.run(async {
        let _sending = mail.spend("sending", Stage::Work);
        "sent"
    });
    match sent.await {
        Ok(sent) => println!("the mail was {sent} all the same"),
        Err(ended) => println!("{ended}"),
    }
    shutdown.drain(Duration::from_secs(1)).await;
}
