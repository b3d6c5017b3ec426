//! Applies the command line to the model of the configuration: options override the file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use clap::error::ErrorKind;
use zodium_configuration::{
    Checksums, Configuration, Encoding, KeyPassword, LogFormat, LogOptions, MonitorOptions,
    ServerOptions, StorageKind, StorageOptions, TlsOptions, Warning,
};

use super::options::{
    ChecksumsArgument, ClientArguments, LogArguments, LogFormatArgument, ServeOptions,
    StorageArguments, TlsArguments,
};

/// Returns the configuration to serve, and warnings about the file.
pub(crate) fn configuration(options: &ServeOptions) -> Result<(Configuration, Vec<Warning>)> {
    let (mut configuration, warnings) = match &options.config {
        Some(file) => crate::config::read(file)?,
        None => (unconfigured(), Vec::new()),
    };
    let files: Vec<_> = options.path.iter().chain(&options.filename).collect();
    if !files.is_empty() {
        configuration.storages = storages(&files);
    }
    if configuration.storages.is_empty() {
        return Err(wrong(
            "there is no storage to serve: name a data file (zodium serve Data.fs) \
             or a configuration (zodium serve -C zeo.conf)",
        ));
    }
    override_server(&mut configuration.server, options);
    override_tls(&mut configuration.server.tls, &options.tls)?;
    override_clients(&mut configuration.server, &options.clients);
    configuration.server.reopen_after_failure &= !options.storage.no_reopen;
    override_storages(&mut configuration.storages, &options.storage)?;
    override_log(&mut configuration.log, &options.logging);
    if let Some(address) = &options.process.monitor {
        configuration.monitor = Some(MonitorOptions { address: address.clone() });
    }
    Ok((configuration, warnings))
}

fn unconfigured() -> Configuration {
    Configuration {
        server: ServerOptions::default(),
        storages: Vec::new(),
        log: LogOptions::default(),
        monitor: None,
    }
}

/// Storages as of `runzeo -f`: called 1, 2 and so on.
fn storages(files: &[&PathBuf]) -> Vec<StorageOptions> {
    let file = |path: &PathBuf| StorageKind::File { path: path.clone(), truncate: false };
    let numbered = (1_u32..).zip(files);
    numbered.map(|(number, path)| StorageOptions::new(number.to_string(), file(path))).collect()
}

fn override_server(server: &mut ServerOptions, options: &ServeOptions) {
    if !options.address.is_empty() {
        server.addresses.clone_from(&options.address);
    }
    // The stock server takes its encoding from the environment, too.
    let asked = std::env::var_os("ZEO_MSGPACK").is_some_and(|value| !value.is_empty());
    if options.msgpack || asked {
        server.encoding = Encoding::Msgpack;
    }
    server.read_only |= options.read_only;
    if options.process.workers.is_some() {
        server.workers = options.process.workers;
    }
    if let Some(microseconds) = options.process.busy_poll {
        server.busy_poll = Some(Duration::from_micros(microseconds.into()));
    }
    if options.process.pid_file.is_some() {
        server.pid_file.clone_from(&options.process.pid_file);
    }
    if server.pid_file.is_none() {
        server.pid_file = pid_file_of_instance();
    }
}

/// The path at which the scripts of a Zope instance look for it.
fn pid_file_of_instance() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("INSTANCE_HOME")?).join("var");
    folder.is_dir().then(|| folder.join("ZEO.pid"))
}

fn override_tls(tls: &mut Option<TlsOptions>, arguments: &TlsArguments) -> Result<()> {
    let said = tls.as_ref();
    let certificate = arguments.ssl_certificate.as_ref().or(said.map(|tls| &tls.certificate));
    let authenticate = arguments.ssl_authenticate.as_ref().or(said.map(|tls| &tls.authenticate));
    let key = arguments.ssl_key.as_ref();
    let password = arguments.ssl_key_password_file.as_ref();
    *tls = match (certificate, authenticate) {
        (Some(certificate), Some(authenticate)) => Some(TlsOptions {
            certificate: certificate.clone(),
            key: key.or(said.and_then(|tls| tls.key.as_ref())).cloned(),
            key_password: match password {
                Some(path) => Some(KeyPassword::File(path.clone())),
                None => said.and_then(|tls| tls.key_password.clone()),
            },
            authenticate: authenticate.clone(),
        }),
        (None, None) if key.is_none() && password.is_none() => None,
        _ => {
            return Err(wrong("TLS needs both --ssl-certificate and --ssl-authenticate"));
        }
    };
    Ok(())
}

/// The path of a program, relative to the working directory; a name stays a name.
fn found_from_anywhere(program: &Path) -> PathBuf {
    let is_name = program.components().count() == 1 && !program.has_root();
    let absolute = (!is_name).then(|| std::path::absolute(program).ok()).flatten();
    absolute.unwrap_or_else(|| program.to_owned())
}

fn override_clients(server: &mut ServerOptions, clients: &ClientArguments) {
    if let Some(size) = clients.invalidation_queue_size {
        server.invalidation_queue_size = size;
    }
    if clients.invalidation_age.is_some() {
        server.invalidation_age = clients.invalidation_age;
    }
    if clients.transaction_timeout.is_some() {
        server.transaction_timeout = clients.transaction_timeout;
    }
    server.client_conflict_resolution |= clients.client_conflict_resolution;
    server.resolvable_classes.extend_from_slice(&clients.resolvable_class);
    if let Some(python) = &clients.python_resolver {
        server.python_resolver = Some(found_from_anywhere(python));
    }
    if let Some(size) = clients.message_size_max {
        server.message_bytes_max = size;
    }
    if clients.connections_max.is_some() {
        server.connections_max = clients.connections_max;
    }
    if let Some(size) = clients.memory_limit {
        server.memory_bytes_max = Some(size.as_u64());
    }
    if let Some(time) = clients.handshake_timeout {
        server.handshake_time_max = time;
    }
}

fn override_storages(storages: &mut [StorageOptions], arguments: &StorageArguments) -> Result<()> {
    if let Some(name) = &arguments.storage_name {
        only(storages, "--storage-name")?.name.clone_from(name);
    }
    if arguments.blob_dir.is_some() {
        only(storages, "--blob-dir")?.blob_directory.clone_from(&arguments.blob_dir);
    }
    for storage in storages {
        if let Some(size) = arguments.cache_size {
            storage.cache_bytes = size.as_u64();
        }
        if let Some(size) = arguments.quota {
            storage.quota_bytes = Some(size.as_u64());
        }
        match arguments.checksums {
            Some(ChecksumsArgument::Full) => storage.checksums = Checksums::Full,
            Some(ChecksumsArgument::Commit) => storage.checksums = Checksums::Commit,
            Some(ChecksumsArgument::Off) => storage.checksums = Checksums::Off,
            None => {}
        }
        if let Some(interval) = arguments.scrub_interval {
            storage.scrub_interval = Some(interval).filter(|interval| !interval.is_zero());
        }
        storage.pack.garbage_collection &= !arguments.no_pack_gc;
        storage.pack.keep_old &= !arguments.no_pack_keep_old;
    }
    Ok(())
}

/// The only storage, for an option that cannot apply to several.
fn only<'a>(storages: &'a mut [StorageOptions], option: &str) -> Result<&'a mut StorageOptions> {
    match storages {
        [storage] => Ok(storage),
        _ => Err(wrong(&format!(
            "{option} is for one storage, and there are {}; use a configuration file",
            storages.len()
        ))),
    }
}

fn override_log(log: &mut LogOptions, arguments: &LogArguments) {
    match arguments.log_format {
        Some(LogFormatArgument::Human) => log.format = LogFormat::Human,
        Some(LogFormatArgument::Json) => log.format = LogFormat::Json,
        None => {}
    }
    if !arguments.log_file.is_empty() {
        log.destinations.clone_from(&arguments.log_file);
    }
    if let Some(level) = &arguments.log_level {
        log.level.clone_from(level);
    }
}

/// An error of the command line, reported as by clap.
fn wrong(what: &str) -> anyhow::Error {
    let command = clap::Command::new("serve").bin_name("zodium serve");
    let mut command = ServeOptions::augment_args(command);
    command.error(ErrorKind::MissingRequiredArgument, what).into()
}
