//! Kong, declared in a file.

use crate::told::finds;

#[test]
fn every_route_of_a_service_is_a_call_with_its_milliseconds() {
    let text = "\
_format_version: '3.0'
_info: {defaults: {service: {write_timeout: 7000}}}
services:
- name: cart
  url: http://cart:8080/v1
  read_timeout: 2500
  routes: [{paths: [/cart], methods: [POST]}]
- name: pool
  host: pool.upstream
  retries: 0
upstreams:
- name: pool.upstream
  targets: [{target: 'a:80'}, {target: 'b:80'}]
routes:
- {service: {name: pool}, paths: [~/x/.*]}
";
    let want = "
    Gateway kong kong.yml [Kong] answers to
    call kong kong.yml -> cart:8080 (service cart) POST, spares unsafe
    call kong kong.yml -> a:80 (service pool)
    call kong kong.yml -> b:80 (service pool)
    kong kong.yml -> cart:8080 (service cart): kong.connect_timeout = 1m by default at kong.yml:4:3
    kong kong.yml -> cart:8080 (service cart): kong.read_timeout = 2.5s at kong.yml:6:17
    kong kong.yml -> cart:8080 (service cart): kong.write_timeout = 7s at kong.yml:2:45
    kong kong.yml -> cart:8080 (service cart): kong.retries = 5 by default at kong.yml:4:3
    kong kong.yml -> a:80 (service pool): kong.connect_timeout = 1m by default at kong.yml:8:3
    kong kong.yml -> a:80 (service pool): kong.read_timeout = 1m by default at kong.yml:8:3
    kong kong.yml -> a:80 (service pool): kong.write_timeout = 7s at kong.yml:2:45
    kong kong.yml -> a:80 (service pool): kong.retries = 0 at kong.yml:10:12
    kong kong.yml -> b:80 (service pool): kong.connect_timeout = 1m by default at kong.yml:8:3
    kong kong.yml -> b:80 (service pool): kong.read_timeout = 1m by default at kong.yml:8:3
    kong kong.yml -> b:80 (service pool): kong.write_timeout = 7s at kong.yml:2:45
    kong kong.yml -> b:80 (service pool): kong.retries = 0 at kong.yml:10:12
    ";
    finds("kong.yml", text, want);
}

#[test]
fn what_is_no_value_is_listed_and_what_a_variable_says_is_unknown() {
    let text = "_format_version: '3.0'\nservices: [{name: a, url: '${{ env \"DECK_URL\" }}', read_timeout: 1}, {name: b, host: b, read_timeout: 0}]\n";
    let found = crate::told::lines(&[("kong.yml", text)]);
    assert!(found.iter().any(|line| line.contains("service a: whom it calls is not known here")), "{found:#?}");
    assert!(found.iter().any(|line| line.contains("`0` is not understood as a time above zero")), "{found:#?}");
    finds("other.yaml", "services: [{name: a, read_timeout: 5}]\n", "");
}
