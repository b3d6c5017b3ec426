//! Wrong bits in a data file, and what a check of it finds.

use std::path::Path;

use zodium_disk::{Disk, DiskFile, MemoryDisk, OpenMode};
use zodium_filestorage::{CheckOptions, Checked, Damage, check};

use super::data_file;

/// Checks the data file, but for the content of its records.
pub(crate) fn checked(disk: &MemoryDisk) -> (Checked, Vec<Damage>) {
    checked_at(disk, data_file())
}

/// As [`checked`], for a file of another name.
pub(crate) fn checked_at(disk: &dyn Disk, path: &Path) -> (Checked, Vec<Damage>) {
    let options = CheckOptions::new(path);
    let mut found = Vec::new();
    let checked = check(disk, &options, &mut |damage| found.push(damage.clone())).unwrap();
    (checked, found)
}

/// What a check of the data file tells of each damage.
pub(crate) fn damage_in(disk: &MemoryDisk) -> Vec<String> {
    checked(disk).1.into_iter().map(|damage| damage.what).collect()
}

/// Flips a bit of the data file.
pub(crate) fn flip(disk: &MemoryDisk, at: u64, bit: u32) {
    flip_in(disk.open(data_file(), OpenMode::Write).unwrap().as_ref(), at, bit);
}

/// Flips a bit of an open file.
pub(crate) fn flip_in(file: &dyn DiskFile, at: u64, bit: u32) {
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << bit], at).unwrap();
}
