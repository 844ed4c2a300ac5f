//! Writing: any span, at any wall clock, in every convention.
#![no_main]

libfuzzer_sys::fuzz_target!(|numbers: &[u8]| oneclock_fuzz::encode(numbers));
