//! What one more request costs, by valgrind's callgrind: instructions, and how often a few functions are called.
//!
//! A case runs twice, a few times and many times; the difference divided by the number of requests between the two is
//! what one costs, without start-up and without anything to mark in the code. Allocations, clock reads and timers are
//! counted as calls in the same run, so that this crate needs no allocator of its own.

use std::fs;
use std::process::{Command, Stdio};

use crate::cases::{Case, Failed};

/// The hidden argument under which this program runs one case.
pub(crate) const DRIVE: &str = "--drive";

/// The function that is counted, with all that it calls: `Case::drive`.
const COUNTED: &str = "--toggle-collect=*cases::Case::drive*";

const FEW: u32 = 300;
const MANY: u32 = 1_300;

/// What one more request costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) instructions: f64,
    pub(crate) allocations: f64,
    pub(crate) clock_reads: f64,
    pub(crate) timers: f64,
}

/// What one run counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    instructions: u64,
    allocations: u64,
    clock_reads: u64,
    timers: u64,
}

impl Cost {
    pub(crate) fn of(case: Case) -> Result<Self, Failed> {
        let (few, many) = (count(case, FEW)?, count(case, MANY)?);
        let each = |few: u64, many: u64| (many as f64 - few as f64) / f64::from(MANY - FEW);
        Ok(Self {
            instructions: each(few.instructions, many.instructions),
            allocations: each(few.allocations, many.allocations),
            clock_reads: each(few.clock_reads, many.clock_reads),
            timers: each(few.timers, many.timers),
        })
    }

    /// What it costs above `bare`.
    pub(crate) fn above(self, bare: Self) -> Self {
        Self {
            instructions: self.instructions - bare.instructions,
            allocations: self.allocations - bare.allocations,
            clock_reads: self.clock_reads - bare.clock_reads,
            timers: self.timers - bare.timers,
        }
    }
}

fn count(case: Case, times: u32) -> Result<Counts, Failed> {
    let out = std::env::temp_dir().join(format!("oneclock-bench.{}.callgrind", std::process::id()));
    let mut flag = std::ffi::OsString::from("--callgrind-out-file=");
    flag.push(&out);
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--compress-strings=no", COUNTED])
        .arg(flag)
        .arg(std::env::current_exe()?)
        .args([DRIVE, &case.label(), &times.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind could not be run: {error}; apt-get install valgrind"))?;
    let profile = fs::read_to_string(&out);
    let _ = fs::remove_file(&out);
    if !output.status.success() {
        return Err(format!("{}: {}", case.label(), String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(Counts::read(&profile?)?)
}

impl Counts {
    /// Reads callgrind's output: `totals:` is the sum of instructions; each `cfn=` names a function that was called, and
    /// the `calls=` after it says how often.
    fn read(profile: &str) -> Result<Self, String> {
        let mut counts = Self::default();
        let mut callee = "";
        for line in profile.lines() {
            if let Some(name) = line.strip_prefix("cfn=") {
                callee = name;
            } else if let Some(calls) = line.strip_prefix("calls=") {
                let calls: u64 = number(calls)?;
                if is_allocation(callee) {
                    counts.allocations += calls;
                } else if is_clock_read(callee) {
                    counts.clock_reads += calls;
                } else if is_timer(callee) {
                    counts.timers += calls;
                }
            } else if let Some(totals) = line.strip_prefix("totals: ") {
                counts.instructions = number(totals)?;
            }
        }
        if counts.instructions == 0 { Err("callgrind's output has no totals".to_owned()) } else { Ok(counts) }
    }
}

fn number(text: &str) -> Result<u64, String> {
    let digits = text.split(' ').next().unwrap_or(text);
    digits.parse().map_err(|_| format!("callgrind wrote `{text}` where a number belongs"))
}

/// The C library's, which Rust's own allocator calls. A `realloc` is one, whether or not it moves.
fn is_allocation(function: &str) -> bool {
    matches!(plain(function), "malloc" | "calloc" | "realloc" | "posix_memalign" | "aligned_alloc")
}

fn is_clock_read(function: &str) -> bool {
    matches!(plain(function), "clock_gettime" | "__clock_gettime")
}

/// A timer put into the wheel of tokio's runtime.
fn is_timer(function: &str) -> bool {
    function.contains("wheel::Wheel>::insert") || function.contains("wheel::Wheel::insert")
}

/// Without the version of a symbol, and without the mark of a recursive call.
fn plain(function: &str) -> &str {
    function.split(['@', '\'']).next().unwrap_or(function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_the_name_before_them() {
        let profile = "events: Ir\nfn=main\ncfn=malloc\ncalls=3 0\n12 40\ncfn=clock_gettime@@GLIBC_2.17\ncalls=2 0\n1 9\n\
                       cfn=realloc\ncob=x\ncalls=1 0\n1 2\ncfn=free\ncalls=9 0\n1 2\ntotals: 1234\n";
        let want = Counts { instructions: 1234, allocations: 4, clock_reads: 2, timers: 0 };
        assert_eq!(Counts::read(profile), Ok(want));
        assert!(Counts::read("events: Ir\n").is_err());
    }
}
