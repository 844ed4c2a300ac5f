//! Milliseconds that are left: `x-remaining-ms`, `connect-timeout-ms` and their like.
#![no_main]

libfuzzer_sys::fuzz_target!(|value: &[u8]| oneclock_fuzz::codec(oneclock_fuzz::Codec::Millis, value));
