//! What the benches over real sockets have in common.
//!
//! | module | decides |
//! |---|---|
//! | [`clock`] | what is taken for now |
//! | [`cpu`] | what processes have used, and on which processors they are |
//! | [`process`] | which processes belong to a program, and how much memory they hold |
//! | [`guarded`] | that other people's programs end when a bench does |
//! | [`mod@line`] | callers' connections: hyper alone |
//! | [`spread`] | what of several runs is shown |
//! | [`record`] | where a run is kept |

pub mod clock;
pub mod cpu;
pub mod guarded;
pub mod line;
pub mod process;
pub mod record;
pub mod spread;

/// Why a bench gives no figure.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;
