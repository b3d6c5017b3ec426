//! Prepares the files that a server finds when it starts.

use std::fs::File;
use std::io::{Read, copy, sink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise, syncfs};

use crate::options::{Beside, Source};
use crate::server::DATA;

/// Empties the folder, and puts the data file and the selected side files into it.
pub(super) fn provide(folder: &Path, original: &Path, beside: Beside) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    std::fs::create_dir(folder)?;
    let path = folder.join(DATA);
    // Servers do not write to the data file; their side files are copies.
    if std::fs::hard_link(original, &path).is_err() {
        std::fs::copy(original, &path)?;
    }
    for suffix in beside.suffixes() {
        let [from, to] = [original, &path].map(|path| format!("{}{suffix}", path.display()));
        std::fs::copy(&from, &to).with_context(|| format!("cannot copy {from}"))?;
    }
    // Written out now, so that the server's measurement does not include it.
    Ok(syncfs(File::open(folder)?)?)
}

/// Loads the files into the page cache, or evicts them from it.
pub(super) fn bring(folder: &Path, source: Source) -> Result<()> {
    let paths = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<Vec<PathBuf>>>()?;
    for path in paths {
        let mut file = File::open(path)?;
        match source {
            Source::Memory => drop(copy(&mut file.by_ref(), &mut sink())?),
            Source::Disk => fadvise(&file, 0, None, Advice::DontNeed)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_finds_what_its_case_says_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let original = folder.path().join("Original.fs");
        for suffix in ["", ".index", ".index.crc32c", ".checksums"] {
            std::fs::write(format!("{}{suffix}", original.display()), suffix).unwrap();
        }
        let start = folder.path().join("start");
        for beside in [Beside::All, Beside::Index, Beside::Checksums, Beside::Nothing] {
            provide(&start, &original, beside).unwrap();
            bring(&start, Source::Memory).unwrap();
            bring(&start, Source::Disk).unwrap();
            let mut found: Vec<String> = std::fs::read_dir(&start)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            found.sort_unstable();
            let expected = [""].iter().chain(beside.suffixes());
            let mut expected: Vec<String> =
                expected.map(|suffix| format!("{DATA}{suffix}")).collect();
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
    }
}
