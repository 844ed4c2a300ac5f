//! `x-request-deadline`.
#![no_main]

libfuzzer_sys::fuzz_target!(|value: &[u8]| oneclock_fuzz::codec(oneclock_fuzz::Codec::Rfc3339, value));
