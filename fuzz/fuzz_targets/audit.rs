//! Files of a repository, each told by its first byte, through every reader and every rule of the audit.
#![no_main]

libfuzzer_sys::fuzz_target!(|file: &[u8]| oneclock_fuzz::audit(file));
