//! The processor time of other processes, from /proc: to the nanosecond from `schedstat`, summed over threads.

use std::time::Duration;

/// What these processes have used so far. One that is gone counts as nothing.
pub fn used(pids: &[u32]) -> Duration {
    Duration::from_nanos(pids.iter().map(|pid| of(*pid)).sum())
}

fn of(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| {
            std::fs::read_to_string(task.path().join("schedstat")).ok()?.split(' ').next()?.parse::<u64>().ok()
        })
        .sum()
}

/// The machine, as far as it matters here.
pub fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or(": unknown CPU");
    format!("{}, {} cores", model.trim_start_matches(['\t', ' ', ':']), cores())
}

/// Of the machine, wherever this process is kept.
pub fn cores() -> usize {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    info.lines().filter(|line| line.starts_with("processor")).count().max(1)
}

/// Keeps a process on these processors, so that refusing and generating load do not take turns on one. Best effort: without
/// `taskset` the figures are only noisier.
pub fn pin(pid: u32, cores: &str) {
    let mut taskset = std::process::Command::new("taskset");
    taskset.args(["-a", "-p", "-c", cores, &pid.to_string()]);
    let _ = taskset.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).status();
}
