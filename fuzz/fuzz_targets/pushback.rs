//! `retry-after` and `grpc-retry-pushback-ms`.
#![no_main]

libfuzzer_sys::fuzz_target!(|value: &[u8]| oneclock_fuzz::pushback(value));
