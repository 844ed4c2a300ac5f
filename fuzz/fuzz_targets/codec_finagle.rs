//! Finagle's pair of moments.
#![no_main]

libfuzzer_sys::fuzz_target!(|value: &[u8]| oneclock_fuzz::codec(oneclock_fuzz::Codec::Finagle, value));
