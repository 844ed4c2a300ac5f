//! The effective configuration: everything that holds, read again to the same.

use super::{EVERYTHING, read, with_route};
use crate::config::Config;

#[test]
fn what_runs_without_a_file_can_be_read() {
    let config = Config::simple("127.0.0.1:8080".parse().unwrap(), "http://127.0.0.1:3000/").unwrap();
    assert_eq!(
        config.to_string(),
        "\
listeners:
- name: http
  address: 127.0.0.1:8080
  protocol: http
  trust: outside
  reads:
  - grpc-timeout
  - connect-timeout-ms
  - x-remaining-ms
  - x-request-timeout-ms
  - x-request-deadline
  - x-envoy-expected-rq-timeout-ms
  maxConnections: 10000
upstreams:
  app:
    url: http://127.0.0.1:3000
    protocol: auto
    trust: outside
    cap: none
    maxConnections: 64
routes:
- name: all
  matches:
  - path:
      type: PathPrefix
      value: /
  upstream: app
  timeouts:
    backendRequest: none
  whenAbsent: 2s
  ceiling: 10s
  minUseful: 5ms
  reserve: 0s
  onMalformed: reject
  kind: unary
  concurrency: adaptive
  queue: 1024
  mode: shadow
admin: 127.0.0.1:9902
accessLog: none
shutdownGrace: 10s
"
    );
}

#[test]
fn what_is_printed_is_read_to_the_same() {
    let odd = with_route("name: \"yes: 'no' # null\"\nmatches: [{ path: { value: \"/a:b,c&!'\" } }]");
    let number = with_route("name: \"0x10\"\nqueue: 0\nretry: {}");
    for file in [EVERYTHING, &with_route(""), &odd, &number] {
        let once = read(file).to_string();
        assert_eq!(read(&once).to_string(), once, "{file}");
    }
}
