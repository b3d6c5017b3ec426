//! Opens the storage of a command, for reading or for writing.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use zodium_client::{Access, Client, Options, ServerStorage, TlsOptions, Watcher};
use zodium_configuration::{StorageKind, StorageOptions};
use zodium_disk::RealDisk;
use zodium_filestorage::{ChecksumMode, FileStorage, FileStorageError, OpenOptions};
use zodium_neo_client::{NeoStorage, Options as NeoOptions};
use zodium_sql::{Location, MariaAddress, NewCluster, Partitions, SqlOptions, SqlStorage};
use zodium_storage::{LogItem, Read, Storage, StorageError};
use zodium_tools::places::Place;
use zodium_tools::{TidRange, ToolError, walk};
use zodium_types::Address;

use super::storage_name::StorageName;
use crate::progress::Progress;
use crate::reach::TlsArguments;

/// How long a command waits for a server, also for one that it has lost.
const PATIENCE: Duration = Duration::from_secs(3);

/// The storage of a command.
#[derive(Debug, Args)]
pub(super) struct StorageArguments {
    /// The storage: a data file, sqlite://PATH, mysql://USER@HOST/DATABASE, zeo://HOST:PORT/NAME,
    /// HOST:PORT, HOST:PORT/NAME, the path of a socket, or neo://CLUSTER@MASTER:PORT
    #[arg(required_unless_present = "config")]
    storage: Option<String>,

    #[command(flatten)]
    how: OpenArguments,
}

/// The heading of the options that find a storage, so that those of the command stand before them.
const CONFIGURATION_HEADING: &str = "Storages of a configuration";

/// How a storage is found and reached.
#[derive(Debug, Default, Args)]
pub(super) struct OpenArguments {
    /// A configuration, zeo.conf or TOML, whose storage is opened where it is stored, without its
    /// server
    #[arg(short = 'C', long, value_name = "FILE", help_heading = CONFIGURATION_HEADING)]
    config: Option<PathBuf>,

    /// The storage of the configuration, by its name [default: the only one]
    #[arg(short = 's', long = "storage", value_name = "NAME", requires = "config")]
    #[arg(help_heading = CONFIGURATION_HEADING)]
    name: Option<String>,

    #[command(flatten)]
    tls: TlsArguments,
}

/// A storage that is open for reading.
pub(super) struct Readable {
    /// The storage, of any kind.
    pub(super) storage: Arc<dyn Read>,
    /// The same, if it is a data file.
    pub(super) file: Option<Arc<FileStorage>>,
    /// The client, if it is on a server.
    pub(super) client: Option<Arc<Client>>,
}

/// Takes the items of a log, with their places in a data file.
type PlacedVisitor<'v> = dyn FnMut(LogItem<'_>, Option<Place>) -> Result<(), ToolError> + 'v;

/// A storage that is open for writing.
pub(super) enum Writable {
    /// In this process.
    Local(Arc<dyn Storage>),
    /// On a server.
    Server(Arc<Client>),
}

impl StorageArguments {
    /// The storage, and the arguments that follow it. When a configuration names the storage, clap
    /// has put the first of them into its place.
    pub(super) fn with_rest(&self, rest: &[String]) -> Result<(StorageName, Vec<String>)> {
        let all: Vec<_> = self.storage.iter().chain(rest).cloned().collect();
        self.how.first_of(&all)
    }

    /// The storage of a command that takes no further arguments.
    pub(super) fn alone(&self) -> Result<StorageName> {
        let (name, rest) = self.with_rest(&[])?;
        match rest.first() {
            None => Ok(name),
            Some(more) => bail!("{more}: one storage is enough, and --config names it"),
        }
    }

    /// How it is reached.
    pub(super) fn how(&self) -> &OpenArguments {
        &self.how
    }
}

impl OpenArguments {
    /// The storage, and the arguments that follow it: the first of them names the storage, unless a
    /// configuration does.
    pub(super) fn first_of(&self, arguments: &[String]) -> Result<(StorageName, Vec<String>)> {
        match (arguments.split_first(), &self.config) {
            (_, Some(file)) => {
                Ok((stored(&configured(file, self.name.as_deref())?)?, arguments.to_vec()))
            }
            (Some((text, rest)), None) => Ok((StorageName::parse(text)?, rest.to_vec())),
            (None, None) => bail!("no storage is given"),
        }
    }

    /// The blob directory that was given, or else that of the configured storage.
    pub(super) fn blob_directory(&self, given: Option<&Path>) -> Result<Option<PathBuf>> {
        match (given, &self.config) {
            (Some(given), _) => Ok(Some(given.to_owned())),
            (None, Some(file)) => Ok(configured(file, self.name.as_deref())?.blob_directory),
            (None, None) => Ok(None),
        }
    }

    /// The configuration, if there is one.
    pub(super) fn config(&self) -> Option<&Path> {
        self.config.as_deref()
    }

    /// Opens a storage for reading, without a lock. It may be served, or be written to.
    pub(super) fn read(&self, name: &StorageName) -> Result<Readable> {
        let storage: Arc<dyn Read> = match name {
            StorageName::File(path) => {
                check_presence(path)?;
                let file = Arc::new(read_file(path)?);
                return Ok(Readable {
                    storage: Arc::<FileStorage>::clone(&file),
                    file: Some(file),
                    client: None,
                });
            }
            StorageName::Sqlite(path) => {
                Arc::new(SqlStorage::open(&sql_options(&path.clone().into(), false, true))?)
            }
            StorageName::Maria(address) => {
                let location = Location::Maria((**address).clone());
                Arc::new(SqlStorage::open(&sql_options(&location, false, true))?)
            }
            StorageName::Neo(options) => {
                Arc::new(NeoStorage::open(NeoOptions { read_only: true, ..(**options).clone() })?)
            }
            StorageName::Server(options) => {
                let (client, options) = self.connect(options, Access::ReadOnly)?;
                let storage = ServerStorage::new(Arc::clone(&client), &options.addresses);
                let storage = Arc::new(storage);
                return Ok(Readable { storage, file: None, client: Some(client) });
            }
        };
        Ok(Readable { storage, file: None, client: None })
    }

    /// Opens a storage for writing; `create` says whether a missing one is created.
    pub(super) fn write(&self, name: &StorageName, create: bool) -> Result<Writable> {
        Ok(match name {
            StorageName::File(path) => Writable::Local(Arc::new(write_file(path, create)?)),
            StorageName::Sqlite(path) => {
                let options = sql_options(&path.clone().into(), create, false);
                Writable::Local(Arc::new(SqlStorage::open(&options)?))
            }
            StorageName::Maria(address) => {
                let options = sql_options(&Location::Maria((**address).clone()), create, false);
                Writable::Local(Arc::new(SqlStorage::open(&options)?))
            }
            StorageName::Neo(options) => {
                Writable::Local(Arc::new(NeoStorage::open((**options).clone())?))
            }
            StorageName::Server(options) => {
                Writable::Server(self.connect(options, Access::ReadWrite)?.0)
            }
        })
    }

    /// Connects to the server of a storage, for reading and for commits.
    pub(super) fn read_and_write(
        &self,
        name: &StorageName,
    ) -> Result<(Arc<dyn Read>, Arc<Client>)> {
        let StorageName::Server(options) = name else { bail!("this storage has no server") };
        let (client, options) = self.connect(options, Access::ReadWrite)?;
        Ok((Arc::new(ServerStorage::new(Arc::clone(&client), &options.addresses)), client))
    }

    /// Connects to the server of a storage for reading, and tells `watcher` of what it commits.
    pub(super) fn watched(
        &self,
        name: &StorageName,
        watcher: Arc<dyn Watcher>,
    ) -> Result<Arc<Client>> {
        let StorageName::Server(options) = name else { bail!("this storage has no server") };
        let options = Options { watcher: Some(watcher), ..(**options).clone() };
        Ok(self.connect(&options, Access::ReadOnly)?.0)
    }

    fn connect(&self, options: &Options, access: Access) -> Result<(Arc<Client>, Options)> {
        let mut options = Options { access, cache_bytes: 0, ..options.clone() };
        // A command that cannot go on says so soon, unless its URL asks for patience.
        if options.wait_timeout == Options::new(Address::Unix(PathBuf::new())).wait_timeout {
            options.wait_timeout = PATIENCE;
        }
        if let Some(files) = self.tls.files(None)? {
            options.tls = Some(TlsOptions { files, server_name: self.tls.server_name() });
        }
        let connected = Client::connect(options.clone()).map_err(|error| {
            let place = options.addresses.first().map(Address::to_string).unwrap_or_default();
            match error.to_string().contains("unknown storage") {
                true => anyhow!(
                    "{error}; `zodium status {place}` lists the storages, and {place}/NAME is \
                     one of them"
                ),
                false => error.into(),
            }
        });
        Ok((Arc::new(connected?), options))
    }
}

impl Readable {
    /// Shows `visit` each item of a range of the log, with its place if the storage is a data file.
    pub(super) fn walk_placed(
        &self,
        range: TidRange,
        visit: &mut PlacedVisitor<'_>,
    ) -> Result<(), ToolError> {
        let Some(file) = self.file.as_ref().filter(|_| !range.is_empty()) else {
            return walk(&*self.storage, range, &mut |item| visit(item, None));
        };
        let mut failure = None;
        let progress = Progress::of_log(format!("reading {}", file.name()), &**file);
        let iterator = file.reader().iterate(range.min, range.max);
        let mut iterator = iterator.map_err(StorageError::from)?;
        let read = iterator.read_placed(true, |item, place| {
            let place = Place { position: place.position, bytes: place.bytes };
            if let LogItem::Record { .. } = item {
                progress.advance(place.bytes as usize);
            }
            match visit(item, Some(place)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        read.map_err(StorageError::from)?;
        failure.map_or(Ok(()), Err)
    }
}

/// A storage of a configuration: the one of this name, or else the only one.
fn configured(file: &Path, name: Option<&str>) -> Result<StorageOptions> {
    let (configuration, _) = crate::configuration_file::read(file)?;
    let all = &configuration.storages;
    let found = match (name, all.as_slice()) {
        (Some(name), all) => all.iter().find(|storage| storage.name == name),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    found.cloned().with_context(|| {
        let names: Vec<_> = all.iter().map(|storage| storage.name.as_str()).collect();
        format!("{}: choose a storage with -s: {}", file.display(), names.join(", "))
    })
}

/// All storages of a configuration, with their names.
pub(super) fn configured_all(file: &Path) -> Result<Vec<(String, StorageName)>> {
    let (configuration, _) = crate::configuration_file::read(file)?;
    let all = configuration.storages.iter();
    all.map(|storage| Ok((storage.name.clone(), stored(storage)?))).collect()
}

/// Where a storage of a configuration is stored.
fn stored(storage: &StorageOptions) -> Result<StorageName> {
    match &storage.kind {
        StorageKind::File { path, .. } => Ok(StorageName::File(path.clone())),
        StorageKind::Sqlite { path, .. } => Ok(StorageName::Sqlite(path.clone())),
        StorageKind::Neo { url } => Ok(StorageName::Neo(Box::new(NeoOptions::from_url(url)?))),
        StorageKind::Maria { url } => Ok(StorageName::Maria(Box::new(MariaAddress::of_url(url)?))),
        StorageKind::Memory => {
            bail!("storage {} is in the memory of its server: give zeo://HOST:PORT", storage.name)
        }
    }
}

/// Checks that a data file is there: what the system says of one that is not is no help.
pub(super) fn check_presence(path: &Path) -> Result<()> {
    match path.try_exists() {
        Ok(false) => bail!("{}: there is no such file", path.display()),
        _ => Ok(()),
    }
}

fn read_file(path: &Path) -> Result<FileStorage, ToolError> {
    let progress = Progress::new(format!("building the index of {}", path.display()));
    let options = OpenOptions {
        read_only: true,
        create: false,
        // A copy or a backup must not pass on what they contradict.
        checksums: ChecksumMode::Full,
        progress: &|done, total| progress.report(done, total),
        ..OpenOptions::new(path)
    };
    let opened = FileStorage::open(Arc::new(RealDisk), &options);
    Ok(opened.map_err(StorageError::from)?)
}

fn write_file(path: &Path, create: bool) -> Result<FileStorage> {
    let progress = Progress::new(format!("building the index of {}", path.display()));
    let options = OpenOptions {
        create,
        progress: &|done, total| progress.report(done, total),
        ..OpenOptions::new(path)
    };
    let opened = FileStorage::open(Arc::new(RealDisk), &options);
    let is_served = matches!(opened, Err(FileStorageError::Locked { .. }));
    let opened = opened.map_err(anyhow::Error::from);
    match is_served {
        true => opened.context("this file is being served: give the server's address instead"),
        false => opened,
    }
}

fn sql_options(location: &Location, create: bool, read_only: bool) -> SqlOptions {
    let name = match location {
        Location::Sqlite(path) => path.file_stem().and_then(|stem| stem.to_str()),
        Location::Maria(address) => address.cluster().or(Some(address.database())),
    };
    let name = name.unwrap_or("zodium").to_owned();
    let partitions = Partitions::new(1);
    SqlOptions {
        location: location.clone(),
        create: create.then_some(NewCluster { name, partitions, keep_equal_data_once: false }),
        cluster: None,
        read_only,
        new_oids_gap: 0,
        quota_bytes: None,
        compress: true,
    }
}
