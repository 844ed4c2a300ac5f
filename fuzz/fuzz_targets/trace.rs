//! A file of traces with any content.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oneclock_fuzz::trace(bytes));
