//! `idempotency-key`, and the path segment of a monitor.
#![no_main]

libfuzzer_sys::fuzz_target!(|value: &[u8]| oneclock_fuzz::idempotency_key(value));
