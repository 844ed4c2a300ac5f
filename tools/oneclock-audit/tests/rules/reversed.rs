//! Rules that run the other way.

use crate::judged::{is_silent, says, says_of};

#[test]
fn a_key_is_remembered_for_longer_than_it_may_be_repeated() {
    let text = "- name: shop\n  calls: [{to: bank, attempt: 30s, attempts: 5, effects: keyed}]\n- name: bank\n  retention: KEPT\n";
    says_of(
        "forgotten-too-soon",
        &text.replace("KEPT", "60s"),
        &["warning at oneclock.topology.yaml:5: bank forgets a key after 1m, and shop may repeat it for 2m30s"],
    );
    says_of("forgotten-too-soon", &text.replace("KEPT", "24h"), &[]);
    says_of("forgotten-too-soon", &text.replace("KEPT", "60s").replace("attempts: 5", "attempts: 1"), &[]);
}

/// A deployment whose container stops in its own time.
fn pod(grace: u32, arguments: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\nspec:\n  template:\n    metadata: {{labels: {{app: web}}}}\n    \
         spec:\n      terminationGracePeriodSeconds: {grace}\n      containers:\n      - name: web\n        image: web\n        \
         command: [gunicorn, {arguments} shop:app]\n"
    )
}

#[test]
fn a_process_takes_longer_to_stop_than_it_is_given() {
    says(
        "grace-too-short",
        &[("web.yaml", &pod(10, "--graceful-timeout, '120',"))],
        &[
            "warning at web.yaml:8: web is killed 10s after it was told to stop, and it takes up to 2m for what it began",
        ],
    );
    is_silent("grace-too-short", &[("web.yaml", &pod(130, "--graceful-timeout, '120',"))]);
    says(
        "grace-too-short",
        &[("web.yaml", &pod(10, "--worker-class, sync, --timeout, '60',"))],
        &["warning at web.yaml:8: web is killed 10s after it was told to stop, and it takes up to 1m for one request"],
    );
    // Nobody wrote the thirty seconds of either.
    is_silent("grace-too-short", &[("web.yaml", &pod(10, ""))]);
}
