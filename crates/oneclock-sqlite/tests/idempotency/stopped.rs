//! A process that is stopped past its lease, another that takes over, and the first one waking up.

use oneclock_core::idempotency::Fence;

use crate::child::store;
use crate::killed::{AN_HOUR, Told};
use crate::support::*;

/// The far side: it takes an effect only from the highest fence that it has seen.
fn effect(folder: &Folder, fence: Fence) -> &'static str {
    let highest = folder.notes("far").lines().filter_map(|line| line.parse().ok()).max().unwrap_or(0);
    if fence.0 < highest {
        folder.note("refused", &fence.to_string());
        return "refused";
    }
    folder.note("far", &fence.to_string());
    "taken"
}

/// The child: it claims, and its work goes on only when somebody says so.
pub(crate) async fn stall(told: &Told) {
    let (layer, counting) = layer(store(told), |l| l.safe_to_repeat());
    let path = told.folder.clone();
    let (status, body) = send(&layer, &told.key, "{}", move |request| {
        let folder = Folder::at(path.clone());
        let fence = *request.extensions().get::<Fence>().unwrap();
        async move {
            folder.note("claimed", &fence.to_string());
            while folder.notes("go").is_empty() {
                tokio::time::sleep(ms(5)).await;
            }
            effect(&folder, fence);
            created(format!("receipt {fence}"))
        }
    })
    .await;
    told.folder().note("told", &format!("{status} {body} fenced={}", counting.count("keyed fenced")));
}

#[tokio::test]
async fn m5_a_stopped_process_is_fenced_off_when_it_wakes_up() {
    let folder = Folder::new();
    let told = Told::new(&folder, "", "k");
    let mut asleep = told.command("stall").spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(asleep.id()).unwrap()).unwrap();
    until_there("its claim", || folder.notes("claimed") == "1\n");
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();

    // While its lease lasts nobody takes over.
    let (patient, _) = layer(store(&told), |l| l.safe_to_repeat().wait_at_most(ms(300)));
    let early = send(&patient, "k", "{}", |_| async { created("receipt of a thief") }).await;
    assert!(matches!(early.0, 409 | 504), "{early:?}"); // 504: not even its claim was answered in this time

    let path = folder.path.clone();
    let (awake, counting) = layer(store(&Told { shift: AN_HOUR, ..told }), |l| l.safe_to_repeat());
    let taken = send(&awake, "k", "{}", move |request| {
        let fence = *request.extensions().get::<Fence>().unwrap();
        let folder = Folder::at(path.clone());
        async move {
            effect(&folder, fence);
            created(format!("receipt {fence}"))
        }
    })
    .await;
    assert_eq!((taken, counting.count("keyed took over")), ((201, "receipt 2".to_owned()), 1));

    folder.note("go", "go");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    assert!(asleep.wait().unwrap().success());
    assert_eq!(folder.notes("told"), "201 receipt 2 fenced=1\n", "its caller gets the one answer of the key");
    assert_eq!((folder.notes("far").as_str(), folder.notes("refused").as_str()), ("2\n", "1\n"), "one effect");
    let again = send(&awake, "k", "{}", |_| async { created("another") }).await;
    assert_eq!(again, (201, "receipt 2".to_owned()));
}
