//! `zodium pack`: asks a server to pack a storage, or packs a file that no server has open.
//!
//! Damaged records are dropped from files only. The protocol has no call for it, and a server that
//! drops objects at one client's request would surprise the others.

mod offline;
mod online;
mod report;
mod time;

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use jiff::Timestamp;
use zodium_filestorage::DroppedRecord;
use zodium_types::Address;

use crate::lines::Lines;
use crate::reach::ReachOptions;

/// Exit code of a pack that dropped damaged records.
const DROPPED: u8 = 3;

/// Options of `zodium pack`.
#[derive(Debug, Args)]
pub(crate) struct PackOptions {
    /// A server (HOST:PORT, PORT, or /path/to/a/socket), or a data file
    #[arg(required_unless_present = "config")]
    target: Option<String>,

    /// The storage to pack, by its name on the server [default: the only one of the
    /// configuration, or 1]
    #[arg(short, long, value_name = "NAME")]
    storage: Option<String>,

    /// Keep this many days of history
    ///
    /// With 0, as with zeopack, only current revisions remain, and no transaction can be undone.
    #[arg(short, long, value_name = "N", default_value = "0", value_parser = days)]
    days: f64,

    /// Keep the history since this time instead: 2026-01-31, 2026-01-31T18:00, or 18:00 (of
    /// today), in local time unless an offset is given
    #[arg(short, long, value_name = "TIME", conflicts_with = "days", value_parser = time::parse)]
    to: Option<Timestamp>,

    /// Print JSON: one object a line for each dropped record, and a summary at the end
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: ReachOptions,

    #[command(flatten)]
    how: How,
}

/// Options that the protocol cannot pass on; a server has them in its configuration.
#[derive(Debug, Args)]
#[command(next_help_heading = "For files; servers are configured so")]
pub(crate) struct How {
    /// Remove old revisions only, not objects
    #[arg(long)]
    no_gc: bool,

    /// Do not keep the old file as Data.fs.old
    #[arg(long)]
    no_keep_old: bool,

    /// Abort if an object refers to one that does not exist
    #[arg(long)]
    abort_on_dangling: bool,

    /// Drop damaged records, and those whose data are in a damaged one
    ///
    /// Objects whose current record is dropped are gone; each is reported. If a current record is
    /// damaged, no unreachable object is dropped, since the references in the damaged records are
    /// not known. Exit code 3 if records were dropped.
    #[arg(long)]
    drop_damaged: bool,

    /// The blob directory of the file; without it the blobs of dropped revisions stay
    #[arg(long, value_name = "DIRECTORY")]
    blob_dir: Option<PathBuf>,
}

/// Where to pack.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Server(Address),
    File(PathBuf),
}

/// The effect of a pack, as far as it is known.
struct Outcome {
    bytes_before: u64,
    bytes_after: u64,
    objects_before: u64,
    objects_after: u64,
    /// For files only: a server logs these.
    of_file: Option<OfFile>,
}

/// Results that only the pack of a file has.
struct OfFile {
    dangling: u64,
    dropped: Vec<DroppedRecord>,
    objects_dropped: u64,
    garbage_kept: bool,
    /// Errors after the file was packed.
    ending: Result<()>,
}

pub(crate) fn run(options: &PackOptions) -> Result<ExitCode> {
    let to = match options.to {
        Some(to) => to,
        None => time::days_ago(Timestamp::now(), options.days)?,
    };
    let outcome = match options.target.as_deref().map(Target::find).transpose()? {
        Some(Target::Server(address)) => Some(pack_served(options, Some(address), to)?),
        None => Some(pack_served(options, None, to)?),
        Some(Target::File(_)) if options.storage.is_some() => {
            bail!("--storage is for servers: a file has one storage");
        }
        Some(Target::File(_)) if options.reach.config.is_some() => {
            bail!("--config is for servers, and this is a file");
        }
        Some(Target::File(path)) => offline::pack(&path, to, &options.how)?,
    };
    let lines = Lines::new();
    report::write(&lines, outcome.as_ref(), options.json);
    lines.finish()?;
    let Some(of_file) = outcome.and_then(|outcome| outcome.of_file) else {
        return Ok(ExitCode::SUCCESS);
    };
    of_file.ending?;
    Ok(if of_file.dropped.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DROPPED) })
}

fn pack_served(options: &PackOptions, address: Option<Address>, to: Timestamp) -> Result<Outcome> {
    options.how.check_unused()?;
    let server = options.reach.destination(address)?;
    let storage = match (&options.storage, server.storages.as_slice()) {
        (Some(name), _) | (None, [name]) => name,
        (None, []) => "1",
        (None, several) => {
            bail!("choose the storage to pack with --storage: {}", several.join(", "));
        }
    };
    online::pack(&server, storage, to)
}

impl Target {
    /// An existing path is a file or socket; anything else must be a server's address.
    fn find(text: &str) -> Result<Target> {
        let path = Path::new(text);
        match path.metadata() {
            Ok(found) if found.is_file() => return Ok(Target::File(path.to_owned())),
            Ok(found) if found.file_type().is_socket() => {
                return Ok(Target::Server(Address::Unix(path.to_owned())));
            }
            Ok(_) => bail!("{text} is neither a data file nor a socket"),
            Err(_) => {}
        }
        match text.parse() {
            _ if text.contains("://") => bail!(
                "{text}: pack takes a server or a data file; serve a database, and pack its \
                 server: HOST:PORT"
            ),
            Ok(address @ Address::Tcp { .. }) => Ok(Target::Server(address)),
            Ok(Address::Unix(_)) => bail!("{text}: there is no such file or socket"),
            Err(_) => {
                bail!("{text}: there is no such file, nor is it a server (HOST:PORT or PORT)")
            }
        }
    }
}

impl How {
    fn check_unused(&self) -> Result<()> {
        let given = [
            (self.no_gc, "--no-gc"),
            (self.no_keep_old, "--no-keep-old"),
            (self.abort_on_dangling, "--abort-on-dangling"),
            (self.drop_damaged, "--drop-damaged"),
            (self.blob_dir.is_some(), "--blob-dir"),
        ];
        match given.iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) => Err(anyhow!(
                "{option} cannot be passed to a server, which packs as it is configured; it is for \
                 files that no server has open"
            )),
            None => Ok(()),
        }
    }
}

pub(crate) fn days(text: &str) -> Result<f64> {
    let days: f64 = text.parse().context("expected a number of days")?;
    if !(0.0..1e6).contains(&days) {
        bail!("expected a number of days, 0 or more");
    }
    Ok(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_decides_between_file_and_server() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("8100");
        let socket = folder.path().join("zeo.sock");
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        assert!(Target::find(&text(&file)).is_err());
        std::fs::write(&file, b"FS30").unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(Target::find(&text(&file)).unwrap(), Target::File(file));
        let unix = Target::Server(Address::Unix(socket.clone()));
        assert_eq!(Target::find(&text(&socket)).unwrap(), unix);
        assert!(Target::find(&text(folder.path())).is_err());
        let tcp = Address::Tcp { host: "db".to_owned(), port: 8100 };
        assert_eq!(Target::find("db:8100").unwrap(), Target::Server(tcp));
        assert!(Target::find("Data.fs that is not there").is_err());
        let url = Target::find("sqlite:///data/neo.sqlite").unwrap_err().to_string();
        assert!(url.contains("serve a database"), "{url}");
    }
}
