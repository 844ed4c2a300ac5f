//! `x-envoy-upstream-rq-timeout-ms`, where zero says nothing.
#![no_main]

libfuzzer_sys::fuzz_target!(|value: &[u8]| oneclock_fuzz::codec(oneclock_fuzz::Codec::EnvoyUpstreamMillis, value));
