//! Where blobs stand: the two layouts that ZODB has, and the names in them.

use std::io;
use std::path::{Path, PathBuf};

use zodium_disk::{Disk, DiskFile, EntryKind, OpenMode};
use zodium_types::{Oid, Tid};

use crate::BlobError;

/// Names the layout; ZODB's.
pub(crate) const LAYOUT_MARKER: &str = ".layout";
/// For files that are no blobs yet; ZODB's, and shared with clients on this machine.
pub(crate) const TEMPORARY_FOLDER: &str = "tmp";
/// Begins the names of our own files in [`TEMPORARY_FOLDER`]: all else there is others'.
pub(crate) const OUR_PREFIX: &str = "zodium-";
/// The list of what a pack has dropped, in [`TEMPORARY_FOLDER`].
pub(crate) const PACKED_NAME: &str = "zodium-packed";

/// Ends the name of a committed blob.
const BLOB_SUFFIX: &str = ".blob";
/// A marker holds one word; longer ones are not read.
const MARKER_BYTES_MAX: usize = 64;

/// How a blob directory is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobLayout {
    /// Eight levels of folders, one for each byte of the oid: `0x00/0x00/.../0x01/0x2c`.
    Bushy,
    /// One folder for each object, named by its oid without leading zero bytes: `0x012c`.
    Lawn,
}

impl BlobLayout {
    /// Its name in the marker file.
    pub fn name(self) -> &'static str {
        match self {
            BlobLayout::Bushy => "bushy",
            BlobLayout::Lawn => "lawn",
        }
    }

    /// The folder of an object, within the blob directory.
    pub fn folder_of(self, oid: Oid) -> PathBuf {
        match self {
            BlobLayout::Bushy => {
                oid.to_bytes().iter().map(|byte| format!("0x{byte:02x}")).collect()
            }
            BlobLayout::Lawn => PathBuf::from(short_hex(oid.0)),
        }
    }

    /// The object whose blobs stand in a folder within the blob directory; `None` when none do.
    pub(crate) fn oid_of_folder(self, folder: &Path) -> Option<Oid> {
        let mut digits = String::new();
        for part in folder.components() {
            digits += part.as_os_str().to_str()?.strip_prefix("0x")?;
        }
        let oid = Oid(u64::from_str_radix(&digits, 16).ok()?);
        // Only as it would be made: upper case or other zeros make another folder.
        (self.folder_of(oid) == folder).then_some(oid)
    }
}

/// The layout that a directory has: what its marker says. Without one, a directory with anything in
/// it is from before there were layouts, and a lawn, unless it has folders that only the bushy
/// layout has: `cp BLOBS/*` leaves the marker behind.
pub(crate) fn of_directory(disk: &dyn Disk, path: &Path) -> Result<BlobLayout, BlobError> {
    let marker = path.join(LAYOUT_MARKER);
    let failed = |operation| move |error| BlobError::io(path, operation, error);
    match disk.open(&marker, OpenMode::Read) {
        Ok(file) => {
            let name = read_marker(file.as_ref()).map_err(failed("read the layout of"))?;
            match name.trim() {
                "bushy" => return Ok(BlobLayout::Bushy),
                "lawn" => return Ok(BlobLayout::Lawn),
                // It was created on a full disk, or just before a crash.
                "" => {}
                name => return Err(BlobError::Layout { path: marker, layout: name.to_owned() }),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(BlobError::io(&marker, "open", error)),
    }
    if disk.kind(path).map_err(failed("look for"))?.is_none() {
        return Ok(BlobLayout::Bushy);
    }
    let entries = disk.list(path).map_err(failed("list"))?;
    let in_use = entries.iter().any(|entry| {
        entry.name != TEMPORARY_FOLDER && !entry.name.as_encoded_bytes().starts_with(b".")
    });
    // The folder of an object has no folders inside. In a bushy one 0x00 is in front of all oids.
    let is_bushy = has_folder(disk, &path.join("0x00/0x00")).map_err(failed("look for"))?;
    Ok(if in_use && !is_bushy { BlobLayout::Lawn } else { BlobLayout::Bushy })
}

fn has_folder(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    Ok(disk.kind(path)? == Some(EntryKind::Folder))
}

pub(crate) fn write_marker(disk: &dyn Disk, marker: &Path, layout: BlobLayout) -> io::Result<()> {
    let file = disk.open(marker, OpenMode::Create)?;
    file.write_all_at(layout.name().as_bytes(), 0)?;
    file.sync()?;
    disk.sync_folder_of(marker)
}

fn read_marker(file: &dyn DiskFile) -> io::Result<String> {
    let length = file.length()?.min(MARKER_BYTES_MAX as u64);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(MARKER_BYTES_MAX)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The name of the blob that a transaction wrote.
pub(crate) fn blob_name(tid: Tid) -> String {
    short_hex(tid.0) + BLOB_SUFFIX
}

/// Whether a file is a blob by its name, as ZODB sees it.
pub(crate) fn is_blob_name(name: &str) -> bool {
    name.ends_with(BLOB_SUFFIX)
}

/// The transaction that wrote the blob of that name; `None` when it is no blob's.
pub(crate) fn tid_of_name(name: &str) -> Option<Tid> {
    let digits = name.strip_suffix(BLOB_SUFFIX)?.strip_prefix("0x")?;
    let tid = Tid(u64::from_str_radix(digits, 16).ok()?);
    // Only as it would be written: a plus sign or other zeros make another name.
    (blob_name(tid) == name).then_some(tid)
}

/// Whether a client may have given its file this name: within the folder, and not the name of a
/// committed blob. `ClientStorage.storeBlob` ends it with `.tmp-`.
pub(crate) fn is_client_name(name: &str) -> bool {
    let mut shortened = name.chars();
    shortened.next_back();
    let is_temporary = name.ends_with(".tmp") || shortened.as_str().ends_with(".tmp");
    is_temporary && !name.contains(['/', '\0'])
}

/// `0x` and the bytes in hexadecimal, without those that are zero in front.
fn short_hex(number: u64) -> String {
    let digits = (16 - number.leading_zeros() / 4).max(1).next_multiple_of(2) as usize;
    format!("0x{number:0digits$x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use zodium_disk::MemoryDisk;

    /// Oid, tid, and the path that `ZODB.blob.LAYOUTS` of ZODB 6.4 gives in each layout.
    const PATHS: [(u64, u64, &str, &str); 8] = [
        (0x0, 0x0, "0x00/0x00/0x00/0x00/0x00/0x00/0x00/0x00/0x00.blob", "0x00/0x00.blob"),
        (0x1, 0x1, "0x00/0x00/0x00/0x00/0x00/0x00/0x00/0x01/0x01.blob", "0x01/0x01.blob"),
        (0x12c, 0xf00, "0x00/0x00/0x00/0x00/0x00/0x00/0x01/0x2c/0x0f00.blob", "0x012c/0x0f00.blob"),
        (
            0x2c,
            0x03f5945817777777,
            "0x00/0x00/0x00/0x00/0x00/0x00/0x00/0x2c/0x03f5945817777777.blob",
            "0x2c/0x03f5945817777777.blob",
        ),
        (
            0xffff,
            0x13f5945817777777,
            "0x00/0x00/0x00/0x00/0x00/0x00/0xff/0xff/0x13f5945817777777.blob",
            "0xffff/0x13f5945817777777.blob",
        ),
        (
            0x10000,
            0x03f5945817777777,
            "0x00/0x00/0x00/0x00/0x00/0x01/0x00/0x00/0x03f5945817777777.blob",
            "0x010000/0x03f5945817777777.blob",
        ),
        (
            0x0123456789abcdef,
            0x03f5945817777777,
            "0x01/0x23/0x45/0x67/0x89/0xab/0xcd/0xef/0x03f5945817777777.blob",
            "0x0123456789abcdef/0x03f5945817777777.blob",
        ),
        (
            0x7fffffffffffffff,
            0x7fffffffffffffff,
            "0x7f/0xff/0xff/0xff/0xff/0xff/0xff/0xff/0x7fffffffffffffff.blob",
            "0x7fffffffffffffff/0x7fffffffffffffff.blob",
        ),
    ];

    #[test]
    fn paths_are_those_of_zodb() {
        for (oid, tid, bushy, lawn) in PATHS {
            for (layout, path) in [(BlobLayout::Bushy, bushy), (BlobLayout::Lawn, lawn)] {
                let found = layout.folder_of(Oid(oid)).join(blob_name(Tid(tid)));
                assert_eq!(found, Path::new(path));
                assert_eq!(layout.oid_of_folder(&layout.folder_of(Oid(oid))), Some(Oid(oid)));
            }
            assert_eq!(tid_of_name(&blob_name(Tid(tid))), Some(Tid(tid)));
        }
    }

    #[test]
    fn folders_that_are_of_no_object_are_known() {
        let none = |layout: BlobLayout, folder| {
            assert_eq!(layout.oid_of_folder(Path::new(folder)), None, "{folder}");
        };
        for folder in ["0x1", "0x0001", "0xAB", "01", "0x", "0x+1", "tmp", "0x01/0x02"] {
            none(BlobLayout::Lawn, folder);
        }
        for folder in ["0x00", "0x00/0x00/0x00/0x00/0x00/0x00/0x00/0x1", "0x0000000000000001"] {
            none(BlobLayout::Bushy, folder);
        }
    }

    #[test]
    fn the_layout_is_chosen_as_zodb_chooses_it_and_a_lost_marker_is_none_of_a_lawn() {
        let disk = MemoryDisk::new();
        let layout = |path: &str| of_directory(&disk, Path::new(path));
        assert_eq!(layout("missing").unwrap(), BlobLayout::Bushy);
        disk.put(Path::new("hidden/.DS_Store"), Vec::new());
        assert_eq!(layout("hidden").unwrap(), BlobLayout::Bushy);
        disk.put(Path::new("old/0x01/0x03f5945817777777.blob"), Vec::new());
        disk.put(Path::new("old/readme"), Vec::new());
        assert_eq!(layout("old").unwrap(), BlobLayout::Lawn);
        disk.put(Path::new("unmarked/0x00/0x00/0x00/0x00/0x00/0x00/0x00/0x01/0x01.blob"), vec![]);
        assert_eq!(layout("unmarked").unwrap(), BlobLayout::Bushy);
        disk.put(Path::new("old/.layout"), Vec::new());
        assert_eq!(layout("old").unwrap(), BlobLayout::Lawn);
        disk.put(Path::new("begun/.layout"), Vec::new());
        disk.create_folder(Path::new("begun/tmp")).unwrap();
        assert_eq!(layout("begun").unwrap(), BlobLayout::Bushy);
        disk.put(Path::new("marked/.layout"), b"lawn\n".to_vec());
        assert_eq!(layout("marked").unwrap(), BlobLayout::Lawn);
        disk.put(Path::new("bushy/.layout"), b"bushy".to_vec());
        disk.put(Path::new("bushy/other"), b"bushy".to_vec());
        assert_eq!(layout("bushy").unwrap(), BlobLayout::Bushy);
        disk.put(Path::new("cache/.layout"), b"zeocache".to_vec());
        assert!(matches!(layout("cache"), Err(BlobError::Layout { .. })));
    }

    #[test]
    fn clients_can_name_files_beside_the_blobs_and_nothing_else() {
        for name in ["0x03f5945817777777ab12cd_x.tmp-", "x.tmp", ".tmp", "x.tmp\u{e9}"] {
            assert!(is_client_name(name), "{name}");
        }
        let refused = [
            "",
            ".",
            "..",
            "../x.tmp",
            "/x.tmp",
            "a/../x.tmp-",
            "x.tmp--",
            "x.blob",
            "x.tmp/",
            "x\0.tmp",
            ".tm",
            "x.tmp\u{e9}\u{e9}",
        ];
        for name in refused {
            assert!(!is_client_name(name), "{name}");
        }
    }
}
