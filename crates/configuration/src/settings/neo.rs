//! `[neo-storage]`: a storage node of a NEO cluster, with neostorage's names.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Value;
use toml::de::DeValue;

use super::kinds::{
    Bytes, Choice, Converted, Count, File, Kind, List, Switch, Text, Time, Values, Written,
};

/// Headings of options on the command line.
const CREATION: &str = "Creation of the database";
const TLS: &str = "TLS";

/// Largest number of a storage node.
const NUMBER_MAX: u64 = (1 << 24) - 1;

/// Kinds of databases, as NEO calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeAdapter {
    /// A file.
    Sqlite,
    /// A database on a MariaDB server.
    Mysql,
    /// Not implemented.
    Importer,
}

const ADAPTERS: [(&str, NodeAdapter, &str); 3] = [
    ("sqlite", NodeAdapter::Sqlite, "A file"),
    ("mysql", NodeAdapter::Mysql, "A database on a MariaDB server"),
    ("importer", NodeAdapter::Importer, "Not implemented"),
];

/// How long to wait for a database that another process uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeWait {
    /// At most so long.
    AtMost(Duration),
    /// As long as it takes.
    Forever,
}

settings! {
    /// A storage node of a NEO cluster.
    ///
    /// The default has neither cluster nor database, as they are required: readers begin with it.
    pub struct NodeOptions {
        /// Name of the cluster; the database keeps it
        cluster: String = String::new(), {
            Text;
            key: "cluster", elsewhere: "`cluster`", is_required: true, option: "cluster",
            short: Some('c'), value: "NAME"
        }

        /// Addresses of the masters: HOST:PORT, separated by spaces on the command line
        masters: Vec<String> = vec!["127.0.0.1:10000".to_owned()], {
            List(Text);
            key: "masters", elsewhere: "`masters`", option: "masters", short: Some('m'),
            value: "ADDRESSES", separator: Some(' ')
        }

        /// Listen on HOST:PORT, which is told to the other nodes; port 0 chooses one
        bind: String = "127.0.0.1:0".to_owned(), {
            Text;
            key: "bind", elsewhere: "`bind`", option: "bind", short: Some('b'), value: "HOST:PORT"
        }

        /// File with further masters, which the node keeps up to date
        ///
        /// A list of pairs of host and port in JSON, as NEO's nodes write it. It is created.
        dynamic_master_list: Option<PathBuf> = None, {
            File;
            key: "dynamic-master-list", elsewhere: "`dynamic_master_list`",
            option: "dynamic-master-list", short: Some('D'), value: "PATH"
        }

        /// Kind of database
        ///
        /// Without it a database `mysql://...` is on a MariaDB server. A `neo.conf` without it
        /// means MySQL, as with NEO/py.
        adapter: Option<NodeAdapter> = None, {
            Choice(&ADAPTERS);
            key: "adapter", elsewhere: "`adapter`", otherwise: "sqlite", option: "adapter",
            short: Some('a'), value: "ADAPTER"
        }

        /// Path of the database, which is created; or a database on a server
        ///
        /// With the adapter MySQL: `[USER[:PASSWORD]@]DATABASE[SOCKET]`, or
        /// `mysql://USER@HOST,HOST/DATABASE`. A password is better in an option file
        /// (`?defaults_file=PATH`), or in the environment variable ZODIUM_MYSQL_PASSWORD.
        database: String = String::new(), {
            Database;
            key: "database", elsewhere: "`database`", is_required: true, option: "database",
            short: Some('d'), value: "PATH"
        }

        /// Wait so long for a database that another process uses, or for its server; -1: without
        /// end
        wait: NodeWait = NodeWait::AtMost(Duration::ZERO), {
            Patience;
            key: "wait", elsewhere: "`wait`", option: "wait", short: Some('w'), value: "SECONDS"
        }

        /// Memory for records that clients have loaded
        ///
        /// Loads of these do not ask the database. 0 keeps none.
        cache_bytes: u64 = 64 << 20, {
            Bytes::<u64>::any();
            key: "cache-size", option: "cache-size", value: "SIZE"
        }

        /// Carry out no orders to pack
        disable_pack: bool = false, {
            Switch;
            key: "disable-pack", elsewhere: "`disable_pack`", option: "disable-pack", flag: "true"
        }

        /// Keep the data of cells that the master takes away
        disable_drop_partitions: bool = false, {
            Switch;
            key: "disable-drop-partitions", elsewhere: "`disable_drop_partitions`",
            option: "disable-drop-partitions", flag: "true"
        }

        /// Id of the node, for an empty database, which keeps it
        nid: Option<u32> = None, {
            Count::<u32>::within(1, NUMBER_MAX);
            key: "nid", elsewhere: "`nid`", otherwise: "the master gives one", option: "nid",
            short: Some('i'), value: "ID", heading: CREATION
        }

        /// Engine of new tables on a MariaDB server: InnoDB or RocksDB; SQLite has none
        engine: Option<String> = None, {
            Text;
            key: "engine", elsewhere: "`engine`", option: "engine", short: Some('e'),
            value: "ENGINE", heading: CREATION
        }

        /// Keep equal data once, in a new database
        dedup: bool = false, {
            Switch;
            key: "dedup", elsewhere: "`dedup`", option: "dedup", flag: "true", heading: CREATION
        }

        /// Certificates of the cluster's authority, in PEM format
        ca: Option<PathBuf> = None, {
            File;
            key: "ca", elsewhere: "`ca`", option: "ca", value: "PATH", heading: TLS
        }

        /// Certificate of the node, in PEM format
        cert: Option<PathBuf> = None, {
            File;
            key: "cert", elsewhere: "`cert`", option: "cert", value: "PATH", heading: TLS
        }

        /// Key of the certificate, in PEM format
        key: Option<PathBuf> = None, {
            File;
            key: "key", elsewhere: "`key`", option: "key", value: "PATH", heading: TLS
        }
    }
}

/// What the URL of a database on a server begins with.
const SERVER_URL: &str = "mysql://";
/// What the places of databases begin with that are no paths.
const URIS: [&str; 3] = ["file:", ":memory:", SERVER_URL];

impl NodeOptions {
    /// The kind of database, also if no adapter is given.
    #[must_use]
    pub fn kind_of_database(&self) -> NodeAdapter {
        self.adapter.unwrap_or(match self.database.starts_with(SERVER_URL) {
            true => NodeAdapter::Mysql,
            false => NodeAdapter::Sqlite,
        })
    }

    /// Whether the database may be meant as a login at a server, `USER:PASSWORD@DATABASE`. Without
    /// an adapter a new file of that name would be created.
    pub(crate) fn may_mean_a_server(&self) -> bool {
        let is_uri = URIS.iter().any(|uri| self.database.starts_with(uri));
        let (folder, name) = self.database.rsplit_once('/').unwrap_or(("", &self.database));
        // A folder that is there may have such a name.
        let is_named = name.contains('@') || folder.contains('@') && !Path::new(folder).is_dir();
        let is_login = !is_uri && is_named;
        self.adapter.is_none() && is_login && !Path::new(&self.database).exists()
    }
}

/// The kind of a database's place: a path, a URI of SQLite, or the URL of a database on a server.
pub(crate) struct Database;

impl Kind for Database {
    type Value = String;

    fn values(&self) -> Values {
        File.values()
    }

    fn text(&self, text: &OsStr) -> Converted<String> {
        let text = Text.text(text)?;
        if text.is_empty() { Err("give a path".to_owned()) } else { Ok(text) }
    }

    fn toml(&self, value: &DeValue, directory: &Path) -> Converted<String> {
        match value.as_str() {
            Some(text) if URIS.iter().any(|uri| text.starts_with(uri)) => Ok(text.to_owned()),
            _ => {
                let path = File.toml(value, directory)?.into_os_string();
                path.into_string().map_err(|path| format!("{} is not UTF-8", path.display()))
            }
        }
    }

    fn written(&self, value: &String) -> Written<Value> {
        Ok(Value::from(value.clone()))
    }
}

/// The kind of [`NodeWait`].
pub(crate) struct Patience;

impl Kind for Patience {
    type Value = NodeWait;

    fn text(&self, text: &OsStr) -> Converted<NodeWait> {
        match text.to_str().and_then(|text| text.parse::<f64>().ok()) {
            Some(seconds) if seconds < 0.0 => Ok(NodeWait::Forever),
            _ => Time::ANY.text(text).map(NodeWait::AtMost),
        }
    }

    fn toml(&self, value: &DeValue, directory: &Path) -> Converted<NodeWait> {
        let number = match value {
            DeValue::Integer(number) => Some(number.as_str()),
            DeValue::Float(number) => Some(number.as_str()),
            _ => None,
        };
        match number {
            Some(number) if number.starts_with('-') => Ok(NodeWait::Forever),
            _ => Time::ANY.toml(value, directory).map(NodeWait::AtMost),
        }
    }

    fn written(&self, value: &NodeWait) -> Written<Value> {
        match value {
            NodeWait::AtMost(time) => Time::ANY.written(time),
            NodeWait::Forever => Ok(Value::from(-1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_no_path_of_a_new_file() {
        let file = tempfile::Builder::new().prefix("me@").tempfile().unwrap();
        let existing = file.path().to_str().unwrap();
        let folder = tempfile::Builder::new().prefix("me@corp").tempdir().unwrap();
        for (database, adapter, expected) in [
            ("neo:neo@neo1", None, true),
            ("/srv/neo@neo/run/mysqld.sock", None, true),
            ("neo:neo@neo1", Some(NodeAdapter::Mysql), false),
            ("neo@1.sqlite", Some(NodeAdapter::Sqlite), false),
            ("file:neo@1.sqlite", None, false),
            ("mysql://neo@db1/neo1", None, false),
            ("neo1", None, false),
            (existing, None, false),
            (&format!("{}/new.sqlite", folder.path().display()), None, false),
            (&format!("{}/neo@neo1", folder.path().display()), None, true),
        ] {
            let database = database.to_owned();
            let node = NodeOptions { adapter, database, ..NodeOptions::default() };
            assert_eq!(node.may_mean_a_server(), expected, "{node:?}");
        }
    }

    #[test]
    fn a_url_names_its_adapter() {
        let node = |database: &str, adapter| NodeOptions {
            adapter,
            database: database.to_owned(),
            ..NodeOptions::default()
        };
        for (node, expected) in [
            (node("neo.sqlite", None), NodeAdapter::Sqlite),
            (node("mysql://a@b/c", None), NodeAdapter::Mysql),
            (node("a@c", Some(NodeAdapter::Mysql)), NodeAdapter::Mysql),
        ] {
            assert_eq!(node.kind_of_database(), expected, "{node:?}");
        }
    }

    #[test]
    fn a_negative_wait_is_without_end() {
        let wait = |text: &str| Patience.text(OsStr::new(text));
        assert_eq!(wait("-1"), Ok(NodeWait::Forever));
        assert_eq!(wait("1.5"), Ok(NodeWait::AtMost(Duration::from_millis(1500))));
        assert!(wait("long").is_err());
    }
}
