//! Applies the command line to the model of the configuration: options override the file.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use clap::error::ErrorKind;
use zodium_configuration::{
    Configuration, Encoding, ServerOptions, StorageKind, StorageOptions, Warning,
};

use super::options::ServeOptions;

/// Returns the configuration to serve, and warnings about the file.
pub(crate) fn configuration(options: &ServeOptions) -> Result<(Configuration, Vec<Warning>)> {
    let (mut configuration, warnings) = match &options.config {
        Some(file) => crate::configuration_file::read(file)?,
        None => (Configuration::default(), Vec::new()),
    };
    if configuration.neo_storage.is_some() {
        return Err(wrong(
            "the configuration is of a storage node of NEO: run it with `zodium neo storage -C \
             FILE`, or remove its table [neo-storage]",
        ));
    }
    if configuration.neo_admin.is_some() {
        return Err(wrong(
            "the configuration is of the admin of a NEO cluster: run it with `zodium neo admin -C \
             FILE`, or remove its table [neo-admin]",
        ));
    }
    if configuration.neo_master.is_some() {
        return Err(wrong(
            "the configuration is of a master of a NEO cluster: run it with `zodium neo master -C \
             FILE`, or remove its table [neo-master]",
        ));
    }
    refuse_a_command(options, &configuration)?;
    let mut files: Vec<_> = options.path.iter().chain(&options.filename).cloned().collect();
    if files.is_empty() && configuration.storages.is_empty() {
        files.extend(path_of_environment());
    }
    let are_of_file = files.is_empty();
    if !are_of_file {
        configuration.storages = storages(&files)?;
    }
    if configuration.storages.is_empty() {
        return Err(wrong(
            "there is no storage to serve: name a data file (zodium serve Data.fs) \
             or a configuration (zodium serve -C zeo.conf)",
        ));
    }
    take_environment(&mut configuration.server, options.config.is_some());
    let applied = match are_of_file || configuration.storages.len() > 1 {
        true => options.settings.apply_without_environment_of_one_storage(&mut configuration),
        false => options.settings.apply(&mut configuration),
    };
    applied.map_err(|what| wrong(&what))?;
    super::tls::check(configuration.server.tls.as_ref()).map_err(wrong)?;
    Ok((configuration, warnings))
}

/// Refuses a path that leads nowhere beside storages of a file or of -f: it may be a command, as in
/// `zeoctl -C zeo.conf start`. A new database would be served in their place, or as the first.
fn refuse_a_command(options: &ServeOptions, of_file: &Configuration) -> Result<()> {
    let is_alone = of_file.storages.is_empty() && options.filename.is_empty();
    let Some(place) = options.path.as_ref().filter(|_| !is_alone) else { return Ok(()) };
    let StorageKind::File { path, .. } = super::place::kind(place)? else { return Ok(()) };
    if path.try_exists().unwrap_or(true) {
        return Ok(());
    }
    let path = path.display();
    Err(wrong(&format!(
        "there is no file {path}. Is it meant as a command? `zodium serve` has none, it runs in \
         the foreground. A new data file beside other storages is named with -f: -f {path}"
    )))
}

/// Storages as of `runzeo -f`: called 1, 2 and so on.
fn storages(files: &[PathBuf]) -> Result<Vec<StorageOptions>> {
    let numbered = (1_u32..).zip(files);
    let storage = |(number, place): (u32, &PathBuf)| {
        Ok(StorageOptions::new(number.to_string(), super::place::kind(place)?))
    };
    numbered.map(storage).collect()
}

/// The data file of the environment, as an image has it: for a server that is told of no other.
fn path_of_environment() -> Option<PathBuf> {
    std::env::var_os("ZODIUM_PATH").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Takes what the stock server takes from the environment, too. A configuration file says itself
/// how messages are encoded, and a zeo.conf without `msgpack` was read with the variable.
fn take_environment(server: &mut ServerOptions, has_file: bool) {
    let is_set = std::env::var_os("ZEO_MSGPACK").is_some_and(|value| !value.is_empty());
    if is_set && !has_file {
        server.encoding = Encoding::Msgpack;
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

/// An error of the command line, reported as by clap.
fn wrong(what: &str) -> anyhow::Error {
    let command = clap::Command::new("serve").bin_name("zodium serve");
    let mut command = ServeOptions::augment_args(command);
    command.error(ErrorKind::MissingRequiredArgument, what).into()
}
