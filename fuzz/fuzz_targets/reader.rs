//! A whole request: lines of `name: value`, read together.
#![no_main]

libfuzzer_sys::fuzz_target!(|request: &[u8]| oneclock_fuzz::request(request));
