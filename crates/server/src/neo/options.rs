//! The options of `zodium neo storage`, in neostorage's spelling, and the configuration they give.
//!
//! Most of them are settings; see `zodium_configuration`.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use clap::error::ErrorKind;
use zodium_configuration::{
    Configuration, LogDestination, LogOptions, NeoNode, NodeAdapter, NodeOptions, ServerOptions,
    Warning, read_neo_conf,
};

use crate::setting_arguments::{OfNode, SettingArguments};

/// Options of `zodium neo storage`.
#[derive(Debug, Args)]
pub(crate) struct StorageOptions {
    /// A configuration file in TOML, with the table [neo-storage]; options override it
    #[arg(short = 'C', long, value_name = "FILE", env = "ZODIUM_CONFIG")]
    config: Option<PathBuf>,

    /// A configuration file of NEO's, as neostorage reads it; options override it
    #[arg(short, long, value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,

    /// Section of that file, which also has the settings of its DEFAULT section
    #[arg(short, long, value_name = "NAME", default_value = "storage")]
    section: String,

    /// Get a new id for the copy of another node's database, and exit
    ///
    /// Copy the database while its node is stopped. With the new id the copy is a replica that
    /// fetches only what was committed since. The cluster must be running.
    #[arg(long, conflicts_with_all = ["reset", "nid"])]
    pub(super) new_nid: bool,

    /// Erase the database, and exit
    #[arg(long)]
    pub(super) reset: bool,

    /// Append log lines to this file, a text; the same as --log-file
    #[arg(short, long, value_name = "PATH", conflicts_with = "log-file")]
    logfile: Option<PathBuf>,

    #[command(flatten)]
    settings: SettingArguments<OfNode>,
}

impl StorageOptions {
    /// The configuration of the node, and warnings about the file.
    pub(super) fn configuration(&self) -> Result<(Configuration, NodeOptions, Vec<Warning>)> {
        let (mut configuration, warnings) = match (&self.config, &self.file) {
            (Some(file), _) => crate::config::read(file)?,
            (None, Some(file)) => read_neo_conf(file, &self.section, NeoNode::Storage)?,
            (None, None) => (unconfigured(), Vec::new()),
        };
        if let (Some(file), None) = (&self.config, &configuration.neo_storage) {
            let file = file.display();
            return Err(wrong(&format!(
                "{file} has no table [neo-storage]; `zodium serve -C {file}` runs a server"
            )));
        }
        self.settings.apply(&mut configuration).map_err(|what| wrong(&what))?;
        if let Some(path) = &self.logfile {
            configuration.log.destinations = vec![LogDestination::File(path.clone())];
        }
        let node = configuration.neo_storage.clone().unwrap_or_default();
        refuse_what_is_missing(&node, self.reset)?;
        configuration.neo_storage = Some(node.clone());
        Ok((configuration, node, warnings))
    }
}

/// A configuration without anything.
pub(super) fn unconfigured() -> Configuration {
    Configuration {
        server: ServerOptions::default(),
        storages: Vec::new(),
        log: LogOptions::default(),
        monitor: None,
        neo_storage: None,
        neo_admin: None,
        neo_master: None,
    }
}

fn refuse_what_is_missing(node: &NodeOptions, resets: bool) -> Result<()> {
    match node.adapter {
        NodeAdapter::Sqlite | NodeAdapter::Mysql => {}
        NodeAdapter::Importer => {
            return Err(wrong(
                "--adapter Importer is not implemented; copy the database into the running \
                 cluster with a client",
            ));
        }
    }
    if let (Some(engine), NodeAdapter::Sqlite) = (&node.engine, node.adapter) {
        return Err(wrong(&format!(
            "--engine {engine}: databases in SQLite have no engine; leave the option out"
        )));
    }
    let is_named = resets || !node.cluster.is_empty();
    match (is_named, node.database.is_empty()) {
        (true, false) => Ok(()),
        (false, _) => Err(wrong("give the name of the cluster: --cluster NAME, or a file")),
        (_, true) => Err(wrong("give the path of the database: --database PATH, or a file")),
    }
}

/// An error of the command line, reported as by clap.
fn wrong(what: &str) -> anyhow::Error {
    let command = clap::Command::new("storage").bin_name("zodium neo storage");
    let mut command = StorageOptions::augment_args(command);
    command.error(ErrorKind::MissingRequiredArgument, what).into()
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;

    fn configuration(words: &str) -> Result<NodeOptions, String> {
        let command = clap::Command::new("storage").no_binary_name(true);
        let command = StorageOptions::augment_args(command);
        let words = words.split('|').filter(|word| !word.is_empty());
        let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
        let options = StorageOptions::from_arg_matches(&matches).unwrap();
        options.configuration().map(|(_, node, _)| node).map_err(|error| error.to_string())
    }

    #[test]
    fn neostorages_options_are_understood() {
        let node = configuration(
            "-c|a|-m|b:1 c:2|-b|d:3|-a|SQLite|-d|e|-w|-1|-i|5|--dedup|--disable-pack|\
             --disable-drop-partitions|-D|masters.json|-l|log",
        );
        let node = node.unwrap();
        assert_eq!((&*node.cluster, &*node.bind, &*node.database), ("a", "d:3", "e"));
        assert_eq!(node.masters, ["b:1", "c:2"]);
        assert_eq!((node.nid, node.dedup, node.disable_pack), (Some(5), true, true));
        assert!(node.disable_drop_partitions && node.dynamic_master_list.is_some());
    }

    #[test]
    fn what_is_missing_or_not_implemented_is_said() {
        for (words, expected) in [
            ("", "--cluster NAME"),
            ("-c|a", "--database PATH"),
            ("-c|a|-d|b|-a|Importer", "with a client"),
            ("-c|a|-d|b|-a|Oracle", "possible values: sqlite, mysql, importer"),
            ("-c|a|-d|b|-e|InnoDB", "have no engine"),
            ("-c|a|-d|b|-i|-5", "from 1 to 16777215"),
            ("-c|a|-d|b|--new-nid|--reset", "cannot be used with"),
            ("-c|a|-d|b|--new-nid|--nid|5", "cannot be used with"),
            ("-f|a|-C|b", "cannot be used with"),
        ] {
            let error = configuration(words).unwrap_err();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
