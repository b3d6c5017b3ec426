//! Measures the disk: cached reads, direct reads, and syncs.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Result;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use rustix::fs::{OFlags, fdatasync};
use rustix::io::{pread, pwrite};

use super::sampled;
use crate::file_system::is_in_memory;
use crate::result::Latencies;

const BLOCK: usize = 4096;
const FILE_BLOCKS: u64 = 16 << 10;

/// A file of 64 MiB, and an aligned buffer for direct reads.
pub(super) struct Disk {
    file: File,
    direct: Option<File>,
    memory: Vec<u8>,
    random: SmallRng,
}

impl Disk {
    pub(super) fn new(path: &Path) -> Result<Disk> {
        let is_in_memory = is_in_memory(path.parent().unwrap_or(path))?;
        let mut file = File::options().read(true).write(true).create_new(true).open(path)?;
        let mut random = SmallRng::seed_from_u64(1);
        let mut block = vec![0; 64 * BLOCK];
        for _ in 0..FILE_BLOCKS / 64 {
            random.fill_bytes(&mut block);
            file.write_all(&block)?;
        }
        file.sync_all()?;
        let flags = OFlags::DIRECT.bits().cast_signed();
        let direct = OpenOptions::new().read(true).custom_flags(flags).open(path).ok();
        // Files in memory may be opened so too, but no device is read then.
        let direct = direct.filter(|_| !is_in_memory);
        Ok(Disk { file, direct, memory: vec![0; 2 * BLOCK], random })
    }

    pub(super) fn read_cached(&mut self, count: u32) -> Result<Latencies> {
        sampled(
            count,
            self,
            |_| Ok(()),
            |disk| {
                let offset = disk.offset();
                Ok(pread(&disk.file, &mut disk.memory[..BLOCK], offset).map(drop)?)
            },
        )
    }

    /// `None` if the file is in memory, or the file system does not support direct reads.
    pub(super) fn read_direct(&mut self, count: u32) -> Result<Option<Latencies>> {
        let Some(file) = self.direct.take() else { return Ok(None) };
        let start = self.memory.as_ptr().addr().wrapping_neg() % BLOCK;
        let latencies = sampled(
            count,
            self,
            |_| Ok(()),
            |disk| {
                let offset = disk.offset();
                let block = disk.memory.get_mut(start..start + BLOCK).unwrap_or_default();
                Ok(pread(&file, block, offset).map(drop)?)
            },
        );
        latencies.map(Some)
    }

    pub(super) fn sync(&mut self, count: u32) -> Result<Latencies> {
        let dirty = |disk: &mut Disk| {
            let offset = disk.offset();
            Ok(pwrite(&disk.file, &disk.memory[..BLOCK], offset).map(drop)?)
        };
        sampled(count, self, dirty, |disk| Ok(fdatasync(&disk.file)?))
    }

    fn offset(&mut self) -> u64 {
        self.random.random_range(0..FILE_BLOCKS) * BLOCK as u64
    }
}
