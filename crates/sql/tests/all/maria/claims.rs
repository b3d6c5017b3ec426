//! A database on a server does what every storage must do.

use std::sync::Arc;

use zodium_sql::SqlStorage;
use zodium_storage::Storage;

use super::server::{Database, Server};

type Opened = (Arc<dyn Storage>, Database);

fn open(partitions: u32) -> Opened {
    let database = Server::start().database();
    let mut options = database.options(partitions);
    if let Some(create) = &mut options.create {
        create.keep_equal_data_once = true;
    }
    (Arc::new(SqlStorage::open(&options).unwrap()), database)
}

mod seven_partitions_and_equal_data_once {
    fn open() -> super::Opened {
        super::open(7)
    }

    zodium_storage_kit::check_storage!(open, ignored: "needs MariaDB");
}
