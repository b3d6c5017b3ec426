//! The names of files that stand beside another, and the folder of them.

use std::path::{Path, PathBuf};

/// `Data.fs` + `.index` = `Data.fs.index`.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The folder of a file; that of a bare name is the current one.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
