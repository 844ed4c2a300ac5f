//! A request of gRPC, Connect or plain HTTP with any fields.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| oneclock_fuzz::rpc::request(bytes));
