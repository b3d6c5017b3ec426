//! The limits of the server as a whole: configured, or derived from those of the process.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};
use zodium_configuration::ServerOptions;
use zodium_net::Limits;
use zodium_types::Memory;

/// An eighth of the open files is reserved for our own (data, spools, blobs, packs), within these
/// bounds.
const FILES_KEPT_MIN: u64 = 32;
const FILES_KEPT_MAX: u64 = 4096;

/// The default share of the memory that clients may make the server hold, and its minimum. The
/// allocator keeps much freed memory: twice the held bytes must fit beside cache and index.
const MEMORY_PART: u64 = 4;
const MEMORY_BYTES_MIN: u64 = 32 << 20;

/// Returns the limits of a server, after raising that of open files as far as possible.
pub(crate) fn of(options: &ServerOptions) -> Limits {
    let files = raise_open_files();
    let memory_bytes = options.memory_bytes_max.unwrap_or_else(|| {
        let there_is = memory_bytes(Path::new("/proc"), Path::new("/sys/fs/cgroup"));
        there_is.map_or(u64::MAX, |bytes| (bytes / MEMORY_PART).max(MEMORY_BYTES_MIN))
    });
    let connections_max = connections_max(options.connections_max, files);
    info!(
        version = crate::VERSION,
        connections_max,
        memory_limit = memory_bytes,
        open_files = files,
        "limits of all clients together"
    );
    Limits {
        handshake_time_max: options.handshake_time_max,
        connections_max,
        memory: Memory::new(memory_bytes),
        ..Limits::default()
    }
}

/// Raises the limit of open files to the hard limit, and returns it.
fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let current = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    current.unwrap_or(u64::MAX)
}

fn connections_max(asked: Option<u32>, files: u64) -> usize {
    let kept = (files / 8).clamp(FILES_KEPT_MIN, FILES_KEPT_MAX);
    let possible = usize::try_from(files.saturating_sub(kept).max(1)).unwrap_or(usize::MAX);
    let asked = asked.and_then(|asked| usize::try_from(asked).ok());
    if let Some(asked) = asked.filter(|asked| *asked > possible) {
        warn!(
            connections_max = asked,
            possible,
            open_files = files,
            "fewer connections than connections-max fit into the limit of open files; raise that \
             (LimitNOFILE= of systemd, ulimit -n)"
        );
    }
    asked.map_or(possible, |asked| asked.min(possible))
}

/// The memory of the machine, or the lowest limit of this process and its control groups.
fn memory_bytes(proc: &Path, cgroup: &Path) -> Option<u64> {
    // A container's own figure, where it has one.
    let told = std::fs::read_to_string(proc.join("meminfo")).ok();
    let machine = told.and_then(|meminfo| machine_bytes(&meminfo)).or_else(system_bytes);
    let groups = std::fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| limits_of_group(line, cgroup));
    machine.into_iter().chain(limits).chain(getrlimit(Resource::As).current).min()
}

/// Parses the first line of `meminfo`: `MemTotal: 1234 kB`.
fn machine_bytes(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// What the system itself tells: a program may be without `/proc`.
fn system_bytes() -> Option<u64> {
    let system = rustix::system::sysinfo();
    let bytes = u128::from(system.totalram) * u128::from(system.mem_unit);
    u64::try_from(bytes).ok()
}

/// The limits of a control group and its parents. `line` is `0::/path` in version 2, or
/// `4:memory:/path` in version 1. In a container the path may be the one outside, of which only
/// our own end of the tree is visible.
fn limits_of_group(line: &str, cgroup: &Path) -> Vec<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (root, file) = match parts.next() {
        Some("") => (cgroup.to_owned(), "memory.max"),
        Some("memory") => (cgroup.join("memory"), "memory.limit_in_bytes"),
        _ => return Vec::new(),
    };
    let inner = parts.next().unwrap_or_default().trim_start_matches('/');
    let folders: Vec<PathBuf> = Path::new(inner).ancestors().map(|p| root.join(p)).collect();
    // "max" in version 2 is not a number.
    let limit = |folder: &PathBuf| std::fs::read_to_string(folder.join(file)).ok();
    folders.iter().filter_map(limit).filter_map(|text| text.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_kept_for_our_own_use() {
        assert_eq!(connections_max(None, 1024), 896);
        assert_eq!(connections_max(None, 20_000), 17_500);
        assert_eq!(connections_max(None, 1_000_000), 1_000_000 - 4096);
        assert_eq!(connections_max(None, 64), 32);
        assert_eq!(connections_max(None, 16), 1);
        assert_eq!(connections_max(Some(10), 1024), 10);
        assert_eq!(connections_max(Some(10_000), 1024), 896);
    }

    #[test]
    fn the_least_of_all_limits_of_memory_counts() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let (proc, cgroup) = (folder.path().join("proc"), folder.path().join("cgroup"));
        let found = || memory_bytes(&proc, &cgroup);
        let machine = machine_bytes(&std::fs::read_to_string("/proc/meminfo").unwrap()).unwrap();
        let without = found().unwrap();
        assert!(without.abs_diff(machine) < machine / 8, "{without} {machine}");
        put("proc/meminfo", "MemTotal: 1099511627776 kB\n");
        let limit = Rlimit { current: Some(1 << 46), ..getrlimit(Resource::As) };
        setrlimit(Resource::As, limit).unwrap();
        assert_eq!(found(), Some(1 << 46));
        put("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 3 kB\n");
        assert_eq!(found(), Some(1000 << 10));
        put("proc/self/cgroup", "4:memory:/a/b\n1:cpu:/\n0::/c/d\n");
        put("cgroup/memory/a/memory.limit_in_bytes", "700000\n");
        put("cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(found(), Some(700_000));
        put("cgroup/c/d/memory.max", "max\n");
        assert_eq!(found(), Some(700_000));
        put("cgroup/c/memory.max", "600000\n");
        assert_eq!(found(), Some(600_000));
        // A container that sees only its own group, as the root.
        put("cgroup/memory.max", "500000\n");
        assert_eq!(found(), Some(500_000));
    }
}
