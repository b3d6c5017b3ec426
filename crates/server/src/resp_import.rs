//! `zodium resp import`: takes keys over from files of Redis and Valkey.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::{ArgGroup, Args};
use zodium_disk::RealDisk;
use zodium_resp_server::{KeeperOptions, LeftOut, Options, Server, manifest_parts};
use zodium_types::Address;

use crate::resp_copy::{self, Copied};
use crate::serve::resp;
use crate::streams::{complain, print};
use crate::tools::part::Part;
use crate::tools::storage_name::StorageName;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 20;
/// Longest comment.
const LINE_BYTES_MAX: u64 = 1024;
/// Collections without elements that are told by name.
const EMPTY_TOLD_MAX: usize = 10;

/// Options of `zodium resp import`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("target").required(true).args(["file", "to"])))]
pub(crate) struct ImportOptions {
    /// An RDB file, an append-only file, or the manifest of one in parts
    #[arg(value_name = "SOURCE")]
    source: PathBuf,

    /// The file that `zodium resp --file` serves; it must not exist
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,

    /// A running server that gets the keys, of Redis, Valkey or Zodium: HOST:PORT, or the path of
    /// a Unix socket
    #[arg(long, value_name = "ADDRESS")]
    to: Option<Address>,

    /// Replace keys that the running server has already; without it they stay as they are
    #[arg(long, requires = "to")]
    replace: bool,

    /// A file whose first line is the password of the running server
    #[arg(long, value_name = "PATH", requires = "to")]
    password_file: Option<PathBuf>,
}

/// Reads the source, and writes the file.
pub(crate) fn run(options: &ImportOptions) -> Result<ExitCode> {
    if let Some(address) = &options.to {
        return copy(options, address);
    }
    let target = options.file.as_deref().context("give --file or --to")?;
    if target.exists() {
        bail!("{} exists already: name a new file with --file", target.display());
    }
    if Part::would_replace(&options.source, target) {
        let (source, target) = (options.source.display(), target.display());
        bail!("{source} would be replaced while {target} is written: name another");
    }
    // A part that a killed process leaves must not be served as if it had all keys.
    let part = Part::begin(&StorageName::File(target.to_owned()))?;
    let keys = match import_to_file(&options.source, &part.written) {
        Ok(keys) => keys,
        Err(error) => {
            part.discard();
            return Err(error);
        }
    };
    part.finish()?;
    print(&format!("Imported {keys} keys into {}\n", target.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the keys of the source to a new file, and closes it; the number of keys.
fn import_to_file(source: &Path, file: &Path) -> Result<u64> {
    let server = Arc::new(Server::new(Options::default()));
    let keeper =
        KeeperOptions { disk: Arc::new(RealDisk), path: file.to_owned(), sync: "no".to_owned() };
    server.keep(&keeper)?;
    if let Err(error) = import(&server, source) {
        // What was written is of no use.
        let _ = server.close_log();
        return Err(error);
    }
    server.finish_import().context("cannot write the keys")
}

/// Sends the keys of the source to a running server.
fn copy(options: &ImportOptions, address: &Address) -> Result<ExitCode> {
    let password = options.password_file.as_deref().map(resp::password).transpose()?;
    let server = Server::new(Options::default());
    import(&server, &options.source)?;
    let Copied { keys, kept } =
        resp_copy::copy(&server, address, password.as_deref(), options.replace)?;
    let mut report = format!("Copied {keys} keys to {address}\n");
    if kept > 0 {
        let left = "were there already and were left as they are; see --replace";
        report += &format!("{kept} keys {left}\n");
    }
    print(&report)?;
    Ok(ExitCode::SUCCESS)
}

/// What a source is, by how it begins.
#[derive(Clone, Copy, PartialEq)]
enum Format {
    Rdb,
    Commands,
    Manifest,
}

fn import(server: &Server, source: &Path) -> Result<()> {
    let (file, format) = open(source)?;
    if format == Format::Manifest {
        return import_parts(server, source, file);
    }
    tell_left_out(source, &import_file(server, source, (file, format))?);
    Ok(())
}

/// Opens a file, and tells what it is.
fn open(source: &Path) -> Result<(BufReader<File>, Format)> {
    let name = || format!("cannot import {}", source.display());
    let file = File::open(source).with_context(name)?;
    let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
    let start = first_line(&mut file).with_context(name)?;
    file.seek(SeekFrom::Start(0)).with_context(name)?;
    let format = match &*start {
        bytes if bytes.starts_with(b"REDIS") || bytes.starts_with(b"VALKEY") => Format::Rdb,
        [b'*', ..] | [] => Format::Commands,
        [b'f', b'i', b'l', b'e', b' ', ..] => Format::Manifest,
        _ => bail!(
            "{} is no RDB file, append-only file or manifest: give dump.rdb, or the manifest in \
             appendonlydir",
            source.display()
        ),
    };
    Ok((file, format))
}

/// The first line that is no comment, or its beginning. Manifests may have comments, and those of
/// append-only files tell times.
fn first_line(file: &mut impl BufRead) -> io::Result<Vec<u8>> {
    loop {
        let mut line = Vec::new();
        file.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.first() != Some(&b'#') {
            return Ok(line);
        }
    }
}

/// Imports a file that is no manifest; returns what was left out.
fn import_file(
    server: &Server,
    source: &Path,
    (mut file, format): (BufReader<File>, Format),
) -> Result<LeftOut> {
    let imported = match format {
        Format::Rdb => server.import_rdb(&mut file),
        Format::Commands => server.import_commands(&mut file),
        Format::Manifest => bail!("{} is a manifest within a manifest", source.display()),
    };
    imported.with_context(|| format!("cannot import {}", source.display()))
}

fn tell_left_out(source: &Path, left: &LeftOut) {
    let source = source.display();
    if left.functions > 0 {
        complain!(
            "zodium: {source}: left out {} libraries of functions or commands about these: this \
             server has no functions",
            left.functions
        );
    }
    for (database, key) in left.empty.iter().take(EMPTY_TOLD_MAX) {
        let key = key.escape_ascii();
        complain!(
            "zodium: {source}: left out the key '{key}' of database {database}: a collection \
             without elements"
        );
    }
    if left.empty.len() > EMPTY_TOLD_MAX {
        let more = left.empty.len() - EMPTY_TOLD_MAX;
        complain!("zodium: {source}: left out {more} more collections without elements");
    }
    if let Some(position) = left.foreign_at {
        complain!(
            "zodium: {source}: left out what is behind the RDB file, from byte {position} on"
        );
    }
    if let Some(position) = left.cut_at {
        complain!(
            "zodium: {source} ends within a command or a transaction: left out what begins at byte \
             {position}"
        );
    }
}

/// Imports the files that a manifest names.
fn import_parts(server: &Server, manifest: &Path, mut file: impl Read) -> Result<()> {
    let mut text = String::new();
    file.read_to_string(&mut text)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    let parts = manifest_parts(&text);
    let parts = parts.map_err(|what| anyhow!("{} {what}", manifest.display()))?;
    let folder = manifest.parent().unwrap_or(Path::new("."));
    let last = parts.len().saturating_sub(1);
    for (place, name) in parts.iter().enumerate() {
        let part = folder.join(name);
        let left = import_file(server, &part, open(&part)?)?;
        if let Some(position) = left.cut_at.filter(|_| place < last) {
            bail!(
                "{} ends within a command or a transaction, which begins at byte {position}, and \
                 later parts follow it: take another copy of the folder",
                part.display()
            );
        }
        tell_left_out(&part, &left);
    }
    Ok(())
}
