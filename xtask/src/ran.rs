//! How many tests ran, read from what the runner reports: a run of no tests is green, and says nothing.

/// The tests that this line of `cargo test` reports, which prints one such line for each binary.
pub(crate) fn libtest(line: &str) -> Option<usize> {
    let (passed, rest) = line.strip_prefix("test result: ")?.split_once(" passed; ")?;
    let (failed, _) = rest.split_once(" failed")?;
    let passed: usize = passed.rsplit(' ').next()?.parse().ok()?;
    let failed: usize = failed.parse().ok()?;
    Some(passed + failed)
}

/// The tests that this line of `cargo nextest run` reports, which prints one such line at its end.
pub(crate) fn nextest(line: &str) -> Option<usize> {
    let line = line.trim_start().strip_prefix("Summary ")?;
    let (before, _) = line.split_once(" tests run:").or_else(|| line.split_once(" test run:"))?;
    let ran = before.rsplit(' ').next()?;
    // `3/9` when it stopped before the end.
    ran.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libtest_counts_what_ran_and_not_what_was_ignored() {
        let line = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.02s";
        assert_eq!(libtest(line), Some(12));
        assert_eq!(libtest("test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out"), Some(3));
        assert_eq!(libtest("running 12 tests"), None);
    }

    #[test]
    fn nextest_counts_what_ran_and_not_what_was_planned() {
        assert_eq!(nextest("     Summary [   0.004s] 3 tests run: 3 passed, 1 skipped"), Some(3));
        assert_eq!(nextest("     Summary [   0.004s] 1 test run: 1 passed, 0 skipped"), Some(1));
        assert_eq!(nextest("     Summary [   0.004s] 2/9 tests run: 1 passed, 1 failed, 0 skipped"), Some(2));
        assert_eq!(nextest("    Starting 3 tests across 1 binary"), None);
    }
}
