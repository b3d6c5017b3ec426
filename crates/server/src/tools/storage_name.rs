//! What the text STORAGE of a command means.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
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
            // The name of the cluster that `serve` takes here would be a part of the file's.
            "sqlite" if rest.contains('?') => bail!(
                "{text}: no query is understood here; a new database is that of a cluster called \
                 as the file, and a question mark in a path is written %3F"
            ),
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
        let is_so =
            |path: &Path| path.metadata().is_ok_and(|found| found.len() == 0) || !path.exists();
        self.path().is_some_and(is_so)
    }

    /// Begins a data file, if it is one, as ZODB does on Python 2, which reads no others.
    pub(super) fn begin_for_python_2(&self) -> Result<()> {
        let StorageName::File(path) = self else { return Ok(()) };
        let written = fs::write(path, b"FS21");
        written.with_context(|| format!("cannot create {}", path.display()))
    }

    /// Begins a file that does not exist with the permissions of the file that is copied: they may
    /// be all that keeps other users from its objects.
    pub(super) fn begin_like(&self, source: &StorageName) -> Result<()> {
        let (Some(path), Some(source)) = (self.path(), source.path()) else { return Ok(()) };
        let Ok(source) = source.metadata() else { return Ok(()) };
        if path.exists() {
            return Ok(());
        }
        let context = || format!("cannot create {}", path.display());
        let mut new = OpenOptions::new();
        let file = new.write(true).create_new(true).mode(0o600).open(path);
        let mode = source.permissions().mode() & 0o777 | 0o600;
        file.and_then(|file| file.set_permissions(Permissions::from_mode(mode)))
            .with_context(context)
    }

    /// The path of a file.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            StorageName::File(path) | StorageName::Sqlite(path) => Some(path),
            StorageName::Neo(_) | StorageName::Maria(_) | StorageName::Server(_) => None,
        }
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
    fn a_copy_begins_with_the_permissions_of_its_source() {
        let folder = tempfile::tempdir().unwrap();
        let [source, copy, there] =
            ["source", "copy", "there"].map(|name| folder.path().join(name));
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let begin = |path: &Path| {
            StorageName::File(path.to_owned()).begin_like(&StorageName::File(source.clone()))
        };
        begin(&copy).unwrap();
        assert!(!copy.exists(), "there is no source");
        for path in [&source, &there] {
            std::fs::write(path, b"FS30").unwrap();
            std::fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        }
        for (source_mode, expected) in [(0o600, 0o600), (0o440, 0o640), (0o664, 0o664)] {
            std::fs::set_permissions(&source, Permissions::from_mode(source_mode)).unwrap();
            begin(&copy).unwrap();
            assert_eq!(mode(&copy), expected);
            std::fs::remove_file(&copy).unwrap();
        }
        begin(&there).unwrap();
        assert_eq!(mode(&there), 0o644);
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
            (format!("sqlite://{}%3F", path("missing")), "sqlite"),
            (format!("sqlite://{}?cluster=x", path("missing")), "refused"),
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
