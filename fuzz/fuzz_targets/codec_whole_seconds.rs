//! Whole seconds that are left, in a declared field.
#![no_main]

libfuzzer_sys::fuzz_target!(|value: &[u8]| oneclock_fuzz::codec(oneclock_fuzz::Codec::WholeSeconds, value));
