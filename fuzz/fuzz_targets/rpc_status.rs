//! An answer with any fields, head and trailers, read by tonic's client under our layer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oneclock_fuzz::rpc::status(bytes));
