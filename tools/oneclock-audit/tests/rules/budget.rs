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
