//! Measures the device's own latency at the places where objects lie.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::OFlags;
use rustix::io::pread;

use crate::result::Latencies;

const BLOCK: usize = 4096;

/// A data file opened for direct reads, with an aligned buffer.
pub(super) struct Device {
    file: File,
    memory: Vec<u8>,
    bytes: u64,
    /// Length of a read: all pages that an object may lie on, wherever it begins.
    length: usize,
}

/// Time and latencies of the reads.
pub(super) struct Taken {
    pub(super) latencies: Latencies,
    pub(super) seconds: f64,
}

impl Device {
    /// Opens a file of `bytes` bytes with objects of one size.
    pub(super) fn open(path: &Path, bytes: u64, object_bytes: u32) -> Result<Device> {
        let flags = OFlags::DIRECT.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = file.context(
            "the file system reads nothing past the system's memory: name a folder on another one \
             with --folder",
        )?;
        let length = (object_bytes as usize / BLOCK + 2) * BLOCK;
        Ok(Device { file, memory: vec![0; length + BLOCK], bytes, length })
    }

    /// Reads for this long, one place after the other; `next` picks one of the objects.
    pub(super) fn read_for(
        &mut self,
        time: Duration,
        mut next: impl FnMut() -> Result<(u64, u64)>,
    ) -> Result<Taken> {
        let start = self.memory.as_ptr().addr().wrapping_neg() % BLOCK;
        let mut latencies = Latencies::new()?;
        let began = Instant::now();
        while began.elapsed() < time {
            let (object, objects) = next()?;
            let offset = self.place(object, objects);
            let buffer = self.memory.get_mut(start..start + self.length).unwrap_or_default();
            let asked = Instant::now();
            let count = pread(&self.file, buffer, offset)?;
            latencies.record(asked.elapsed());
            ensure!(count > 0, "a read at {offset} of a file of {} bytes gave nothing", self.bytes);
        }
        Ok(Taken { latencies, seconds: began.elapsed().as_secs_f64() })
    }

    /// The approximate position of an object: all have the same size, and lie in the order of their
    /// oids.
    fn place(&self, object: u64, objects: u64) -> u64 {
        let last = self.bytes.saturating_sub(self.length as u64);
        let offset = u128::from(last) * u128::from(object) / u128::from(objects.max(1));
        offset as u64 / BLOCK as u64 * BLOCK as u64
    }
}
