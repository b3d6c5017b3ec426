//! Where a storage named on the command line is: a data file, `sqlite://` or `mysql://` and a
//! database, or `neo://` and a cluster.

use std::path::Path;

use anyhow::{Result, bail};
use percent_encoding::percent_decode_str;
use zodium_configuration::StorageKind;

/// What the URL of an SQLite database begins with.
const SQLITE: &str = "sqlite://";
/// What the URL of a database on a MariaDB server begins with.
const MYSQL: &str = "mysql://";
/// What the URL of a NEO cluster begins with.
const NEO: &str = "neo://";

/// The storage at a path, or at a URL.
pub(super) fn kind(place: &Path) -> Result<StorageKind> {
    if let Some(url) = place.to_str().filter(|text| text.starts_with(NEO)) {
        return Ok(StorageKind::Neo { url: url.to_owned() });
    }
    if let Some(url) = place.to_str().filter(|text| text.starts_with(MYSQL)) {
        return Ok(StorageKind::Maria { url: url.to_owned() });
    }
    let url = place.to_str().and_then(|text| text.strip_prefix(SQLITE));
    let Some(url) = url else {
        return Ok(StorageKind::File { path: place.to_owned(), truncate: false });
    };
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let path = decoded(path)?;
    if path.is_empty() {
        bail!("{}: no database named; write sqlite:///the/path", place.display());
    }
    let mut cluster = None;
    for part in query.split('&').filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some(("cluster", name)) => cluster = Some(decoded(name)?),
            _ => bail!("{}: {part:?} is unknown; known here: cluster=NAME", place.display()),
        }
    }
    Ok(StorageKind::Sqlite { path: path.into(), cluster })
}

fn decoded(text: &str) -> Result<String> {
    Ok(percent_decode_str(text).decode_utf8()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_database_and_its_cluster() {
        let sqlite = |path: &str, cluster: Option<&str>| StorageKind::Sqlite {
            path: path.into(),
            cluster: cluster.map(str::to_owned),
        };
        for (place, expected) in [
            ("sqlite:///srv/neo.sqlite", sqlite("/srv/neo.sqlite", None)),
            ("sqlite://neo.sqlite?cluster=a", sqlite("neo.sqlite", Some("a"))),
            ("sqlite:///a%20b%3F?cluster=x%26y", sqlite("/a b?", Some("x&y"))),
            ("mysql://a@b/c", StorageKind::Maria { url: "mysql://a@b/c".to_owned() }),
            ("neo://a@b:1", StorageKind::Neo { url: "neo://a@b:1".to_owned() }),
            ("Data.fs", StorageKind::File { path: "Data.fs".into(), truncate: false }),
        ] {
            assert_eq!(kind(Path::new(place)).unwrap(), expected);
        }
        for wrong in ["sqlite://", "sqlite:///a?name=b"] {
            assert!(kind(Path::new(wrong)).is_err());
        }
    }
}
