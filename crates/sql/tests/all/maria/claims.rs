//! A database on a server does what every storage must do.

use std::any::Any;
use std::sync::Arc;

use zodium_sql::SqlStorage;
use zodium_storage::Storage;

use super::server::{Server, is_installed};
use crate::support;

type Opened = (Arc<dyn Storage>, Box<dyn Any + Send + Sync>);

fn open(partitions: u32) -> Opened {
    if !is_installed() {
        let folder = tempfile::tempdir().unwrap();
        let options = support::options(&folder.path().join("neo.sqlite"), partitions);
        return (Arc::new(SqlStorage::open(&options).unwrap()), Box::new(folder));
    }
    let database = Server::start().database();
    let mut options = database.options(partitions);
    if let Some(create) = &mut options.create {
        create.keep_equal_data_once = true;
    }
    (Arc::new(SqlStorage::open(&options).unwrap()), Box::new(database))
}

mod seven_partitions_and_equal_data_once {
    fn open() -> super::Opened {
        super::open(7)
    }

    zodium_storage_kit::check_storage!(open);
}
