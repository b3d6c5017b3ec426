//! The names of files that stand beside another.

use std::path::{Path, PathBuf};

/// `Data.fs` + `.index` = `Data.fs.index`.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
