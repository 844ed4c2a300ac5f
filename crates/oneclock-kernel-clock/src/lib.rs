//! By how much the wall clock may be wrong, as the kernel says.
//!
//! Decides nothing: it reads `adjtimex(2)` with nothing to change, which needs no privilege. A crate of its own, because it is the
//! one place of the project with `unsafe` in it.

use std::io;
use std::time::Duration;

/// The largest error that the wall clock may have, as the kernel says: it is told by whoever synchronises the clock (chrony,
/// systemd-timesyncd, ntpd), and grows by 500 parts per million while nobody does. At [`LOST`] it grows no further.
///
/// ```
/// match oneclock_kernel_clock::max_error() {
///     Ok(error) if error < oneclock_kernel_clock::LOST => println!("right to within {error:?}"),
///     Ok(_) => println!("nobody keeps this clock"),
///     Err(error) => println!("cannot be asked: {error}"),
/// }
/// ```
///
/// # Errors
/// The system call's own (a sandbox may forbid it), or [`io::ErrorKind::Unsupported`] elsewhere than on Linux.
#[cfg(target_os = "linux")]
pub fn max_error() -> io::Result<Duration> {
    // SAFETY: `timex` is plain data of integers, for which zeros are a value; `modes` of zero asks to change nothing.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live `timex` of our own, which the call fills in and does not keep.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    if state == -1 {
        return Err(io::Error::last_os_error());
    }
    // Not by STA_UNSYNC: that is also set to keep the kernel from touching the hardware clock.
    Ok(Duration::from_micros(u64::try_from(timex.maxerror).unwrap_or(u64::MAX)))
}

/// Elsewhere the kernel is not asked.
///
/// # Errors
/// Always [`io::ErrorKind::Unsupported`].
#[cfg(not(target_os = "linux"))]
pub fn max_error() -> io::Result<Duration> {
    Err(io::ErrorKind::Unsupported.into())
}

/// What the kernel says of a clock that nobody keeps.
pub const LOST: Duration = Duration::from_secs(16);

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers_and_says_no_more_than_that_the_clock_is_lost() {
        match max_error() {
            Ok(error) => assert!(error <= LOST + Duration::from_secs(1), "{error:?}"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}"), // a sandbox
        }
    }
}
