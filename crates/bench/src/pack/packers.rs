//! Programs that pack a file, each in a process of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::child::wait_for;
use crate::interrupt::Interrupt;

/// Interval between looks at a process's memory.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The stock packer; it prints the time of the pack alone, without Python's start and the opening.
const STOCK_SCRIPT: &str = "\
import sys, time
from ZODB.FileStorage import FileStorage
from ZODB.serialize import referencesf
storage = FileStorage(sys.argv[1])
started = time.perf_counter()
storage.pack(time.time(), referencesf)
print(time.perf_counter() - started)
storage.close()
";

/// A packer's command; the path of the file is its last argument.
pub(super) struct Packer {
    pub(super) name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    /// Whether it prints the seconds to report; else those of the whole process count.
    tells_seconds: bool,
}

/// Results of one pack.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackMetrics {
    pub(super) seconds: f64,
    pub(super) peak_bytes: u64,
    pub(super) file_bytes: u64,
}

impl Packer {
    pub(super) fn zodium(program: &Path) -> Packer {
        let program = program.to_owned();
        Packer { name: "zodium", program, arguments: vec!["pack".into()], tells_seconds: false }
    }

    pub(super) fn stock(python: &Path) -> Packer {
        Packer {
            name: "stock",
            program: python.to_owned(),
            arguments: vec!["-c".into(), STOCK_SCRIPT.into()],
            tells_seconds: true,
        }
    }

    /// Packs a copy of the file at `original`, in a folder of its own within `folder`.
    pub(super) fn pack(
        &self,
        original: &Path,
        folder: &Path,
        interrupt: &Interrupt,
    ) -> Result<PackMetrics> {
        let folder = folder.join(format!("pack-{}", self.name));
        std::fs::create_dir(&folder)?;
        let path = folder.join("Data.fs");
        for suffix in ["", ".index"] {
            let with_suffix = |path: &Path| format!("{}{suffix}", path.display());
            std::fs::copy(with_suffix(original), with_suffix(&path))?;
        }
        // Written out now, so that the packer's time does not include it.
        rustix::fs::syncfs(std::fs::File::open(&folder)?)?;
        let started = Instant::now();
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let mut peak_bytes = 0;
        wait_for(&mut child, interrupt, LOOK_INTERVAL, |child| {
            peak_bytes = peak_bytes.max(peak_of(child));
        })?;
        let elapsed = started.elapsed().as_secs_f64();
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} failed: {}", self.name, said.trim());
        let said = String::from_utf8_lossy(&output.stdout);
        let seconds = if self.tells_seconds { said.trim().parse()? } else { elapsed };
        let file_bytes = std::fs::metadata(&path)?.len();
        std::fs::remove_dir_all(&folder)?;
        Ok(PackMetrics { seconds, peak_bytes, file_bytes })
    }
}

/// The peak memory of a process so far, in bytes; 0 if it has ended.
fn peak_of(child: &Child) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id()));
    let status = status.unwrap_or_default();
    let kilobytes = status.lines().find_map(|line| {
        line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    });
    kilobytes.unwrap_or(0) * 1024
}
