//! A program and the processes that it started, from /proc.

use std::fs;

/// `root` and everything below it, as of now.
pub fn tree(root: u32) -> Vec<u32> {
    let all: Vec<(u32, u32)> = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(parent).collect();
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(of) = tree.get(next).copied() {
        tree.extend(all.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| pid));
        next += 1;
    }
    tree
}

/// What these hold in memory, in bytes. Pages that several of them share count for each.
pub fn resident(pids: &[u32]) -> u64 {
    pids.iter().filter_map(|pid| kib(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)).sum::<u64>() * 1024
}

/// How many descriptors a process has open.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

fn parent(entry: fs::DirEntry) -> Option<(u32, u32)> {
    let pid = entry.file_name().to_str()?.parse().ok()?;
    let status = fs::read_to_string(entry.path().join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    Some((pid, line.trim().parse().ok()?))
}

fn kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches("kB").trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_its_root_and_what_that_started() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tree = tree(std::process::id());
        let _ = child.kill();
        let _ = child.wait();
        assert_eq!(tree.first(), Some(&std::process::id()));
        assert!(tree.contains(&child.id()), "{tree:?}");
        assert!(resident(&tree) > 1024 * 1024);
        assert!(descriptors(std::process::id()) > 2);
    }
}
