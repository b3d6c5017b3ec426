//! The file with further masters, `--dynamic-master-list`: a list of pairs of host and port in
//! JSON, as NEO's nodes write it.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result};
use tracing::warn;
use zodium_disk::with_suffix;
use zodium_neo::Address;

/// The masters of the options and those of the file, if there is one, which gets all of them.
pub(super) fn joined(mut masters: Vec<Address>, list: Option<&Path>) -> Result<Vec<Address>> {
    let Some(list) = list else { return Ok(masters) };
    masters.extend(read(list)?);
    masters.sort_unstable();
    masters.dedup();
    update(list, &masters);
    Ok(masters)
}

/// Reads the file; one that is missing is created, so that a wrong path is noticed at once.
fn read(path: &Path) -> Result<Vec<Address>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            write(path, &[])?;
            return Ok(Vec::new());
        }
        Err(error) => {
            let cannot = || format!("cannot read the list of masters, {}", path.display());
            return Err(error).with_context(cannot);
        }
    };
    let pairs: Vec<(String, u16)> = serde_json::from_str(&text).with_context(|| {
        format!(
            "{} is no list of masters, [[\"HOST\", PORT], ...] in JSON; remove it to begin a new \
             one",
            path.display()
        )
    })?;
    Ok(pairs.into_iter().map(|(host, port)| Address { host, port }).collect())
}

/// Writes the file in one step: a crash leaves the old one or the new one.
fn write(path: &Path, masters: &[Address]) -> Result<()> {
    let cannot = || format!("cannot write the list of masters, {}", path.display());
    let pairs: Vec<_> = masters.iter().map(|master| (&master.host, master.port)).collect();
    let temporary = with_suffix(path, ".new");
    let text = serde_json::to_string(&pairs)?;
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        // The new name may be durable before the text.
        file.sync_all()
    });
    written.and_then(|()| fs::rename(&temporary, path)).with_context(cannot)
}

/// As [`write()`], for a node that runs: it goes on without the file.
pub(super) fn update(path: &Path, masters: &[Address]) {
    if let Err(error) = write(path, masters) {
        warn!("{error:#}; the file is as before");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_are_read_as_they_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("masters.json");
        assert_eq!(read(&path).unwrap(), []);
        assert_eq!(fs::read_to_string(&path).unwrap(), "[]");
        let masters = [("127.0.0.1", 1), ("::1", 2)];
        let masters = masters.map(|(host, port)| Address { host: host.to_owned(), port });
        write(&path, &masters).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), r#"[["127.0.0.1",1],["::1",2]]"#);
        assert_eq!(read(&path).unwrap(), masters);
        fs::write(&path, "{}").unwrap();
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("remove it to begin"));
    }
}
