//! Memory of a process, as the kernel counts it.

use anyhow::{Context, Result};

/// Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Resident memory.
    pub(crate) resident: u64,
    /// The resident part that belongs to no file: allocated and used by the process.
    pub(crate) anonymous: u64,
    /// Peak resident memory.
    pub(crate) peak: u64,
}

impl Memory {
    /// Reads the memory of a process.
    pub(crate) fn of_process(pid: u32) -> Result<Memory> {
        let path = format!("/proc/{pid}/status");
        let status =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        Memory::parse(&status).with_context(|| format!("{path} has no line about memory"))
    }

    /// Parses lines like `VmRSS:     1234 kB`.
    fn parse(status: &str) -> Option<Memory> {
        let bytes = |name: &str| {
            let line =
                status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
            kilobytes.checked_mul(1024)
        };
        Some(Memory {
            resident: bytes("VmRSS")?,
            anonymous: bytes("RssAnon")?,
            peak: bytes("VmHWM")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_seen() {
        let pid = std::process::id();
        let before = Memory::of_process(pid).unwrap();
        let used = vec![1_u8; 64 << 20];
        let after = Memory::of_process(pid).unwrap();
        assert!(used.iter().all(|byte| *byte == 1));
        assert!(after.anonymous >= before.anonymous + (32 << 20), "{before:?} {after:?}");
        assert!(after.resident >= after.anonymous && after.peak >= after.resident);
    }

    #[test]
    fn a_process_without_memory_is_none() {
        assert_eq!(Memory::parse("Name:\tkthreadd\nState:\tS (sleeping)\n"), None);
    }
}
