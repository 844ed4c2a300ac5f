//! `oneclock.topology.yaml`.

use crate::told::finds;

#[test]
fn calls_in_code_with_their_limits() {
    let text = "\
entries:
- {name: shop page, to: storefront, budget: 800ms, reserve: 50ms}
services:
- name: storefront
  order: serial
  calls:
  - {to: reviews, attempt: 3s, attempts: 2, methods: [GET], effects: read_only, propagates: none, p99: 20ms}
- name: reviews
  limit: 10s
";
    let want = "
    Service storefront [] answers to storefront
    Service reviews [] answers to reviews
    call storefront -> reviews (in code) GET
    storefront -> reviews (in code): topology.attempt = 3s declared at oneclock.topology.yaml:7:28
    storefront -> reviews (in code): topology.attempts = 2 declared at oneclock.topology.yaml:7:42
    reviews: topology.limit = 10s declared at oneclock.topology.yaml:9:10
    ";
    finds("oneclock.topology.yaml", text, want);
}

#[test]
fn what_is_not_understood_is_listed_with_its_place_and_the_rest_counts() {
    let text = "\
services:
- name: a
  order: serail
  calls:
  - {to: b, timout: 3s, attempts: 2s}
- {}
entries:
- {to: a, budget: 5}
";
    let want = "
    Service a [] answers to a
    call a -> b (in code)
    a -> b (in code): topology.attempts = unknown (2s) declared at oneclock.topology.yaml:5:35
    left out oneclock.topology.yaml:8:19: NotUnderstood, a time has a unit: 800ms, 2s, 1m30s
    left out oneclock.topology.yaml:8:3: NotUnderstood, an entry says `to` (a name) and `budget` (a time, such as 800ms)
    left out oneclock.topology.yaml:3:10: NotUnderstood, `order` does not know `serail`; it is one of serial, parallel
    left out oneclock.topology.yaml:5:13: NotUnderstood, there is no key `timout` here; did you mean `timeout`?
    left out oneclock.topology.yaml:5:35: NotUnderstood, attempts: `2s` is not understood as a number of times
    left out oneclock.topology.yaml:6:3: NotUnderstood, a service says its `name`
    ";
    finds("oneclock.topology.yaml", text, want);
}

#[test]
fn another_file_of_that_shape_is_not_taken() {
    finds("services.yaml", "services:\n- name: a\n  calls: []\n", "");
}

#[test]
fn one_from_elsewhere_is_read_instead_of_the_one_that_lies_there() {
    let (folder, elsewhere) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("another"));
    let mine = elsewhere.path().join("mine.yaml");
    std::fs::write(folder.path().join("oneclock.topology.yaml"), "services:\n- name: theirs\n").expect("the file");
    std::fs::write(&mine, "services:\n- name: mine\n").expect("the file");
    let repository = oneclock_audit::walk::Repository::new(folder.path()).with_topology(&mine);
    let inventory = oneclock_audit::walk::walk(&repository, |_| ());
    let names: Vec<&str> = inventory.components.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["mine"]);
    let text = repository.open("oneclock.topology.yaml").expect("the file").text;
    assert_eq!(&*text, "services:\n- name: mine\n");
}
