//! What the text STORAGE of a command means.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use zodium_client::Options;
use zodium_neo_client::Options as NeoOptions;
use zodium_sql::MariaAddress;
use zodium_types::Address;

/// The first bytes of each SQLite database.
const SQLITE_MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// A kind of storage, and where it is.
#[derive(Clone)]
pub(crate) enum StorageName {
    /// A `Data.fs`.
    File(PathBuf),
    /// A database of NEO in SQLite.
    Sqlite(PathBuf),
    /// A NEO cluster.
    Neo(Box<NeoOptions>),
    /// A database of NEO on a MariaDB server.
    Maria(Box<MariaAddress>),
    /// A storage on a server.
    Server(Box<Options>),
}

impl StorageName {
    /// Parses a URL, a path, or an address as the other commands take it: `HOST:PORT`, or the path
    /// of a socket. What is there decides what a path is.
    pub(super) fn parse(text: &str) -> Result<StorageName> {
        if text.is_empty() {
            bail!("the name of the storage is empty: give a path, a URL or HOST:PORT");
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return StorageName::of_path(text);
        };
        match scheme {
            "file" => StorageName::of_path(&decoded(rest)),
            "sqlite" => Ok(StorageName::Sqlite(PathBuf::from(decoded(rest)))),
            "zeo" | "zodium" => Ok(StorageName::Server(Box::new(Options::from_url(text)?))),
            "neo" => Ok(StorageName::Neo(Box::new(NeoOptions::from_url(text)?))),
            "mysql" => Ok(StorageName::Maria(Box::new(MariaAddress::of_url(text)?))),
            "zconfig" => bail!(
                "{text}: {scheme}:// is not supported here; give a path, file://, sqlite://, \
                 mysql://, zeo://HOST:PORT/NAME, neo://, or -C FILE -s NAME for a storage of a \
                 configuration"
            ),
            // The rest may hold a password.
            _ => bail!(
                "{scheme}://: unknown scheme; give a path, file://, sqlite://, mysql://, \
                 zeo://HOST:PORT/NAME or neo://CLUSTER@MASTER:PORT"
            ),
        }
    }

    /// Whether it is a file that does not exist, or is empty.
    pub(super) fn is_absent(&self) -> bool {
        match self {
            StorageName::File(path) | StorageName::Sqlite(path) => {
                path.metadata().is_ok_and(|found| found.len() == 0) || !path.exists()
            }
            StorageName::Neo(_) | StorageName::Maria(_) | StorageName::Server(_) => false,
        }
    }

    /// Begins a data file, if it is one, as ZODB does on Python 2, which reads no others.
    pub(super) fn begin_for_python_2(&self) -> Result<()> {
        let StorageName::File(path) = self else { return Ok(()) };
        let written = fs::write(path, b"FS21");
        written.with_context(|| format!("cannot create {}", path.display()))
    }

    fn of_path(text: &str) -> Result<StorageName> {
        let path = Path::new(text);
        let server = |address| Ok(StorageName::Server(Box::new(Options::new(address))));
        match path.metadata() {
            Ok(found) if found.file_type().is_socket() => server(Address::Unix(path.to_owned())),
            Ok(found) if found.is_dir() => bail!("{text} is a directory, not a data file"),
            Ok(_) if is_sqlite(path) => Ok(StorageName::Sqlite(path.to_owned())),
            Ok(_) => Ok(StorageName::File(path.to_owned())),
            Err(_) => match (text.parse(), on_server(text)) {
                (Ok(address @ Address::Tcp { .. }), _) if !text.contains('/') => server(address),
                (_, Some(options)) => Ok(StorageName::Server(Box::new(options))),
                _ => Ok(StorageName::File(path.to_owned())),
            },
        }
    }
}

/// The storage that HOST:PORT/NAME names, unless there is a folder HOST:PORT.
fn on_server(text: &str) -> Option<Options> {
    let (place, name) = text.split_once('/')?;
    let is_name = !name.is_empty() && !name.contains('/');
    if !is_name || !place.contains(':') || Path::new(place).exists() {
        return None;
    }
    match place.parse() {
        Ok(address @ Address::Tcp { .. }) => {
            Some(Options { storage: name.to_owned(), ..Options::new(address) })
        }
        _ => None,
    }
}

fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Whether a file is an SQLite database.
pub(crate) fn is_sqlite(path: &Path) -> bool {
    // Opening a pipe would wait for its other end.
    if !path.is_file() {
        return false;
    }
    let mut magic = [0; SQLITE_MAGIC.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *SQLITE_MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> &'static str {
        match StorageName::parse(text) {
            Ok(StorageName::File(_)) => "file",
            Ok(StorageName::Sqlite(_)) => "sqlite",
            Ok(StorageName::Maria(_)) => "mysql",
            Ok(StorageName::Server(_)) => "server",
            Ok(StorageName::Neo(_)) => "cluster",
            Err(_) => "refused",
        }
    }

    #[test]
    fn an_unknown_url_is_refused_without_its_password() {
        let error = StorageName::parse("MYSQL://user:secret@host/db").map(|_| ()).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("MYSQL://: unknown scheme") && !text.contains("secret"), "{text}");
    }

    #[test]
    fn urls_paths_and_addresses_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("8100"), b"FS30").unwrap();
        std::fs::write(path("neo.sqlite"), SQLITE_MAGIC).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(path("zeo.sock")).unwrap();
        for (text, expected) in [
            (path("8100"), "file"),
            (path("missing.fs"), "file"),
            (path("neo.sqlite"), "sqlite"),
            (path("zeo.sock"), "server"),
            (format!("file://{}", path("8100")), "file"),
            (format!("sqlite://{}", path("missing")), "sqlite"),
            ("zeo://localhost:8100/main".to_owned(), "server"),
            ("zodium://localhost:8100".to_owned(), "server"),
            ("localhost:8100".to_owned(), "server"),
            ("localhost:8100/main".to_owned(), "server"),
            ("localhost:8100/folder/main".to_owned(), "file"),
            ("folder/main".to_owned(), "file"),
            ("mysql://localhost/neo".to_owned(), "mysql"),
            ("zeo://localhost".to_owned(), "refused"),
            ("neo://cluster@master:1".to_owned(), "cluster"),
            ("neo://master:1".to_owned(), "refused"),
            ("zodium://localhost/main".to_owned(), "server"),
            ("http://localhost".to_owned(), "refused"),
            (String::new(), "refused"),
            (folder.path().to_str().unwrap().to_owned(), "refused"),
        ] {
            assert_eq!(kind(&text), expected, "{text}");
        }
    }
}
