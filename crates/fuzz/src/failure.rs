//! A failing input: saved to a file, with the command that replays it.

use std::fmt;
use std::path::{Path, PathBuf};

/// An input that made its target fail.
#[derive(Debug)]
pub struct Failure {
    /// The target.
    pub target: &'static str,
    /// What went wrong.
    pub what: String,
    /// The input.
    pub input: Vec<u8>,
    /// The seed and number that it was made from.
    pub made_of: (u64, u64),
}

impl Failure {
    /// Writes the input to the file that the failure's text names.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub fn keep(&self) -> std::io::Result<()> {
        let path = self.path();
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        std::fs::write(path, &self.input)
    }

    fn path(&self) -> PathBuf {
        let (seed, number) = self.made_of;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz");
        let root = root.canonicalize().unwrap_or(root);
        root.join(format!("{}-{seed}-{number}.input", self.target))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, number) = self.made_of;
        let path = self.path();
        writeln!(out, "{}: {} (input {number} of seed {seed})", self.target, self.what)?;
        writeln!(out, "its {} bytes are in {}; replay it with", self.input.len(), path.display())?;
        write!(out, "  cargo run -p zodium-fuzz -- replay {} {}", self.target, path.display())
    }
}
