//! `zodium pack`: by the server that serves a storage, or here, on a file that nobody serves.
//!
//! Records that are damaged are left out of a file only: the protocol has no word for that, and a
//! server that loses objects at a client's request would be a surprise to all others.

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

use crate::check::Lines;
use crate::reach::ReachOptions;

/// The exit code of a pack that has left something out because it is damaged.
const DROPPED: u8 = 3;

/// Options of `zodium pack`.
#[derive(Debug, Args)]
pub(crate) struct PackOptions {
    /// A server (HOST:PORT, PORT, or /path/to/a/socket), or a data file
    #[arg(required_unless_present = "config")]
    target: Option<String>,

    /// The storage to pack, by the name under which the server has it [default: the only one of
    /// the configuration, or 1]
    #[arg(short, long, value_name = "NAME")]
    storage: Option<String>,

    /// Keep this many days of history
    ///
    /// With 0, as with zeopack, nothing is left to undo and only current revisions remain.
    #[arg(short, long, value_name = "N", default_value = "0", value_parser = days)]
    days: f64,

    /// Keep the history since this time instead: 2026-01-31, 2026-01-31T18:00, or 18:00 (of
    /// today), local unless it says otherwise
    #[arg(short, long, value_name = "TIME", conflicts_with = "days", value_parser = time::parse)]
    to: Option<Timestamp>,

    /// Print JSON: one object a line for each record that is dropped, and one for all at the end
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    reach: ReachOptions,

    #[command(flatten)]
    how: How,
}

/// What the protocol has no words for: servers are configured so.
#[derive(Debug, Args)]
#[command(next_help_heading = "For files; servers are configured so")]
pub(crate) struct How {
    /// Remove old revisions only, no objects
    #[arg(long)]
    no_gc: bool,

    /// Do not keep the file from before as Data.fs.old
    #[arg(long)]
    no_keep_old: bool,

    /// Give up when an object refers to one that is not there
    #[arg(long)]
    abort_on_dangling: bool,

    /// Leave out records that are damaged, and those whose data stand in one of these
    ///
    /// Objects of which the current record is left out are gone: each is named. Unless only old
    /// revisions are damaged, nothing that cannot be reached is dropped: what the records that
    /// are left out refer to is not known. Exit code 3 when something was left out.
    #[arg(long)]
    drop_damaged: bool,

    /// The blobs of the file: without it those of dropped revisions stay where they are
    #[arg(long, value_name = "DIRECTORY")]
    blob_dir: Option<PathBuf>,
}

/// Where to pack.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Server(Address),
    File(PathBuf),
}

/// What a pack has changed, as far as it is known.
struct Outcome {
    bytes_before: u64,
    bytes_after: u64,
    objects_before: u64,
    objects_after: u64,
    /// Of a file only: a server logs what it finds.
    of_file: Option<OfFile>,
}

/// What only the pack of a file tells.
struct OfFile {
    dangling: u64,
    dropped: Vec<DroppedRecord>,
    objects_dropped: u64,
    garbage_kept: bool,
    /// What has failed since; the file is packed.
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
            bail!("say which storage to pack, with --storage: {}", several.join(", "));
        }
    };
    online::pack(&server, storage, to)
}

impl Target {
    /// What is there decides; what is not there must look like a server.
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
                "{option} cannot be said to a server, which packs as it is configured; it is for \
                 files that nobody serves"
            )),
            None => Ok(()),
        }
    }
}

fn days(text: &str) -> Result<f64> {
    let days: f64 = text.parse().context("expected a number of days")?;
    if !(0.0..1e6).contains(&days) {
        bail!("expected a number of days from 0 on");
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
    }
}
