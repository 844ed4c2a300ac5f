//! The examples stand beside this file, one for each entry point: `cargo run -p oneclock-examples --example order`.

#[cfg(test)]
mod readme;

/// Guides that belong to no single crate: their code compiles and runs.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../docs/guide/databases.md")]
    mod databases {}

    #[doc = include_str!("../docs/guide/stopping.md")]
    mod stopping {}
}
