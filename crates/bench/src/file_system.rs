//! Tells folders on a disk from those in memory, where a sync is free and nothing is read from a
//! device.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::fs::statfs;

/// The numbers of tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Whether files in a folder are in memory only.
pub(crate) fn is_in_memory(folder: &Path) -> Result<bool> {
    let found = statfs(folder).with_context(|| format!("cannot look at {}", folder.display()))?;
    Ok(u64::try_from(found.f_type).is_ok_and(|kind| IN_MEMORY.contains(&kind)))
}

/// Fails unless the files in a folder are on a disk.
pub(crate) fn require_disk(folder: &Path) -> Result<()> {
    ensure!(
        !is_in_memory(folder)?,
        "{} is in memory, and a disk is to be measured: name a folder on one with --folder",
        folder.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_in_memory_are_told_from_others() {
        let [memory, other] = ["/dev/shm", "/proc"].map(Path::new);
        assert!(is_in_memory(memory).unwrap() && require_disk(memory).is_err());
        assert!(!is_in_memory(other).unwrap() && require_disk(other).is_ok());
        assert!(require_disk(Path::new("/missing")).is_err());
    }
}
