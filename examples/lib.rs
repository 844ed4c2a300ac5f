//! The examples stand beside this file, one for each entry point: `cargo run -p oneclock-examples --example order`.
