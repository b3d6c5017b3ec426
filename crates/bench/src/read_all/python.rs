//! A FileStorage within Python: the baseline without any server.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Deserialize;

use crate::child;
use crate::interrupt::Interrupt;
use crate::options::Checksum;

const SCRIPT: &str = "\
import hashlib, json, sys, time, zlib
from ZODB.FileStorage import FileStorage
path, kind, count, enough = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
storage = FileStorage(path, read_only=True)
oids = [number.to_bytes(8, 'big') for number in range(count)]
before = b'\\x7f' + b'\\xff' * 7

def read_all():
    crc, sha = 0, hashlib.sha1()
    for oid in oids:
        data = storage.loadBefore(oid, before)[0]
        if kind == 'crc32':
            crc = zlib.crc32(data, crc)
        elif kind == 'sha1':
            sha.update(data)
    return {'none': '', 'crc32': f'{crc:08x}', 'sha1': sha.hexdigest()}[kind]

read_all()
passes, began, cpu = 0, time.perf_counter(), time.process_time()
while not passes or time.perf_counter() - began < enough:
    result = read_all()
    passes += 1
print(json.dumps({
    'seconds': time.perf_counter() - began,
    'cpu_seconds': time.process_time() - cpu,
    'objects': float(passes * count),
    'sum': result,
}))
";

/// A Python interpreter with ZODB, and the file.
pub(super) struct Python {
    pub(super) program: PathBuf,
    pub(super) path: PathBuf,
}

/// The output of the script.
#[derive(Debug, Deserialize)]
pub(super) struct Read {
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) objects: f64,
    pub(super) sum: String,
}

impl Python {
    /// Reads all objects for this long; `None` if Python lacks the checksum.
    pub(super) fn read(
        &self,
        checksum: Checksum,
        objects: u64,
        enough: Duration,
        interrupt: &Interrupt,
    ) -> Result<Option<Read>> {
        if checksum == Checksum::Crc32c {
            return Ok(None);
        }
        let mut command = Command::new(&self.program);
        command.args(["-c", SCRIPT]).arg(&self.path).args([
            checksum.name(),
            &objects.to_string(),
            &enough.as_secs_f64().to_string(),
        ]);
        let output = child::output(&mut command, interrupt)?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "FileStorage in Python failed: {}", said.trim());
        Ok(Some(serde_json::from_slice(&output.stdout)?))
    }
}
