//! Budgets, from the outside in.

use crate::judged::{TOPOLOGY, says};

const SHOP: &str = "\
entries:
- {name: the shop, to: page, budget: 800ms, reserve: 50ms}
services:
- name: page
  order: serial
  p99: 50ms
  calls:
  - {to: cart, timeout: 300ms}
  - {to: prices, timeout: 300ms}
- name: prices
  calls: [{to: stock, timeout: 250ms}]
";

#[track_caller]
fn says_of(text: &str, want: &[&str]) {
    says("budget-overdrawn", &[(TOPOLOGY, text)], want);
}

#[test]
fn what_fits_fits() {
    says_of(SHOP, &[]);
}

#[test]
fn calls_one_after_the_other_add_up() {
    let text = SHOP.replace("to: prices, timeout: 300ms", "to: prices, timeout: 500ms");
    let want = "error at oneclock.topology.yaml:9: page has 750ms of the budget of the shop (800ms), and its calls, one after \
                the other, may take 800ms: 100ms too much";
    says_of(&text, &[want]);
    says_of(&text.replace("serial", "parallel"), &[]);
    says_of(&text.replace("  order: serial\n", ""), &[]);
}

#[test]
fn one_call_alone_may_be_too_much_and_tries_count() {
    let text = SHOP
        .replace("to: prices, timeout: 300ms", "to: prices, attempt: 300ms, attempts: 3")
        .replace("serial", "parallel");
    let want = "error at oneclock.topology.yaml:9: page has 750ms of the budget of the shop (800ms), and its call to prices may \
                take 900ms: 200ms too much";
    says_of(&text, &[want]);
}

#[test]
fn a_call_that_hands_on_what_is_left_needs_only_what_was_measured() {
    let text = SHOP.replace("to: prices, timeout: 300ms", "to: prices, timeout: 9s, propagates: deadline, p99: 40ms");
    says_of(&text, &[]);
}

#[test]
fn deeper_steps_spend_what_their_caller_gives() {
    let text = SHOP.replace("timeout: 250ms", "timeout: 400ms");
    let want = "error at oneclock.topology.yaml:11: prices has 300ms of the budget of the shop (800ms), and its call to stock may \
                take 400ms: 100ms too much";
    says_of(&text, &[want]);
}

#[test]
fn what_is_handed_on_may_use_up_what_a_later_call_needs() {
    let text = "\
entries:
- {name: the shop, to: a, budget: 800ms}
services:
- name: a
  order: serial
  calls:
  - {to: b, timeout: 790ms, propagates: deadline}
  - {to: c, timeout: 790ms}
";
    let want = "error at oneclock.topology.yaml:8: a has 800ms of the budget of the shop (800ms), and its calls, one after the \
                other, may take 1.58s: 780ms too much";
    says_of(text, &[want]);
    // The other way round the one that hands on has what is left.
    let turned = text
        .replace("b, timeout: 790ms, propagates: deadline", "x, timeout: 790ms")
        .replace("c, timeout: 790ms", "b, timeout: 790ms, propagates: deadline");
    says_of(&turned, &[]);
}

#[test]
fn what_another_file_says_of_the_same_service_takes_nothing_away() {
    let text = SHOP.replace("to: prices, timeout: 300ms", "to: prices, timeout: 500ms");
    let want = "error at oneclock.topology.yaml:9: page has 750ms of the budget of the shop (800ms), and its calls, one after \
                the other, may take 800ms: 100ms too much";
    // Named so that it is read before the topology, and behind it.
    for compose in ["compose.yaml", "x/compose.yaml"] {
        says("budget-overdrawn", &[(TOPOLOGY, &text), (compose, "services:\n  page:\n    image: page\n")], &[want]);
    }
}

#[test]
fn of_two_ways_to_a_component_the_one_that_gives_less_counts() {
    let text = "\
entries:
- {name: the shop, to: a, budget: 800ms}
services:
- name: a
  calls:
  - {to: wide, timeout: 700ms, propagates: deadline}
  - {to: narrow, timeout: 300ms, propagates: deadline}
- name: wide
  calls: [{to: last, propagates: deadline}]
- name: narrow
  calls: [{to: last, propagates: deadline}]
- name: last
  calls: [{to: db, timeout: 400ms}]
";
    let want = "error at oneclock.topology.yaml:13: last has 300ms of the budget of the shop (800ms), and its call to db may take \
                400ms: 100ms too much";
    says_of(text, &[want]);
    let swapped = text
        .replace("wide, timeout: 700ms", "wide, timeout: 300ms")
        .replace("narrow, timeout: 300ms", "narrow, timeout: 700ms");
    says_of(&swapped, &[want]);
    // A circle spends nothing twice.
    says_of(&swapped.replace("{to: db, timeout: 400ms}", "{to: a, propagates: deadline}"), &[]);
}

#[test]
fn what_nobody_wrote_is_no_error() {
    let nginx = "events {}\nhttp { server { server_name page; listen 80; location / { proxy_pass http://cart; } } }\n";
    let entry = "entries:\n- {name: the shop, to: page, budget: 800ms}\nservices:\n- name: cart\n";
    let want = "warning at nginx.conf:2: nginx page has 800ms of the budget of the shop (800ms), and its call to cart may take \
                1m: 59.2s too much";
    says("budget-overdrawn", &[(TOPOLOGY, entry), ("nginx.conf", nginx)], &[want]);
}
