//! The options of `zodium check`.

use std::path::PathBuf;

use clap::Args;

use super::open::StorageArguments;

/// Options of `zodium check`.
#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    #[command(flatten)]
    pub(super) storage: StorageArguments,

    /// Also report references to objects that do not exist
    #[arg(long)]
    pub(super) references: bool,

    /// Also report data of objects, and extensions of transactions, that are not pickles
    #[arg(long)]
    pub(super) pickles: bool,

    /// Also report BTrees whose keys, bounds, buckets or chains of buckets contradict each other
    ///
    /// Looks at current objects, of all families of BTrees. Classes are not imported, so keys whose
    /// order only Python knows are counted and not compared.
    #[arg(long)]
    pub(super) btrees: bool,

    /// Also report blobs whose files are missing in this blob directory, or have another length
    /// than was committed. Files without a record are reported too, and are not damage. For data
    /// files only [default: that of the configuration]
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) blob_dir: Option<PathBuf>,

    /// With --blob-dir: also read all blobs, and compare their bytes with the checksums that were
    /// recorded at their commit. Takes as long as copying them
    #[arg(long)]
    pub(super) blob_data: bool,

    /// If nothing is wrong, compute the checksums that are missing beside the file. It must not be
    /// served meanwhile; a server computes them itself
    #[arg(long)]
    pub(super) write_checksums: bool,

    /// Print JSON: one object a line for each damage, and a summary at the end
    #[arg(long)]
    pub(super) json: bool,
}
