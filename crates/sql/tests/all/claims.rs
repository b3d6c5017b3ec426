//! A NEO database does what every storage must do, with one partition, with several, and when equal
//! data are kept once.

use std::sync::Arc;

use tempfile::TempDir;
use zodium_sql::{SqlOptions, SqlStorage};
use zodium_storage::Storage;

use crate::support;

type Opened = (Arc<dyn Storage>, TempDir);

fn open(partitions: u32, set: impl FnOnce(&mut SqlOptions)) -> Opened {
    // In memory where that is possible: none of the claims is about durability.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let mut options = support::options(&folder.path().join("neo.sqlite"), partitions);
    set(&mut options);
    (Arc::new(SqlStorage::open(&options).unwrap()), folder)
}

mod one_partition {
    fn open() -> super::Opened {
        super::open(1, |_| ())
    }

    zodium_storage_kit::check_storage!(open);
}

mod seven_partitions {
    fn open() -> super::Opened {
        super::open(7, |_| ())
    }

    zodium_storage_kit::check_storage!(open);
}

mod equal_data_once {
    fn open() -> super::Opened {
        super::open(3, |options| {
            if let Some(create) = &mut options.create {
                create.keep_equal_data_once = true;
            }
        })
    }

    zodium_storage_kit::check_storage!(open);
}
