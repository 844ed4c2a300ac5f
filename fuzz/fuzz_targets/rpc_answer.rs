//! An answer with any fields, head and trailers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oneclock_fuzz::rpc::answer(bytes));
