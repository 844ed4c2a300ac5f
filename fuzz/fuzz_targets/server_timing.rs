//! A `server-timing` field: the account of a callee among the entries of others.
#![no_main]

libfuzzer_sys::fuzz_target!(|value: &[u8]| oneclock_fuzz::server_timing(value));
