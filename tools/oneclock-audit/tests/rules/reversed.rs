//! Rules that run the other way.

use crate::judged::says_of;

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
