//! The options of `zodium neo storage`, in neostorage's spelling, and the configuration they give.
//!
//! Most of them are settings; see `zodium_configuration`.

use anyhow::Result;
use clap::Args;
use zodium_configuration::{Configuration, NeoNode, NodeOptions, Warning};

use super::node_kind::{Common, NodeArguments, NodeKind, nameless, wrong};
use crate::setting_arguments::OfNode;

/// Options of `zodium neo storage`.
#[derive(Debug, Args)]
pub(crate) struct StorageOptions {
    /// Get a new id for the copy of another node's database, and exit
    ///
    /// Copy the database while its node is stopped. With the new id the copy is a replica that
    /// fetches only what was committed since. The cluster must be running.
    #[arg(long, conflicts_with_all = ["reset", "nid"])]
    pub(super) new_nid: bool,

    /// Erase the database, and exit
    #[arg(long)]
    pub(super) reset: bool,

    #[command(flatten)]
    node: NodeArguments<Storage>,
}

/// The kind of node.
#[derive(Debug)]
pub(super) enum Storage {}

impl NodeKind for Storage {
    const NAME: &'static str = "storage";
    const NODE: NeoNode = NeoNode::Storage;
    type Selection = OfNode;
    type Table = NodeOptions;

    fn table(configuration: &mut Configuration) -> &mut Option<NodeOptions> {
        &mut configuration.neo_storage
    }

    fn common(node: &NodeOptions) -> Common<'_> {
        Common {
            cluster: &node.cluster,
            masters: &node.masters,
            bind: &node.bind,
            dynamic_master_list: node.dynamic_master_list.as_deref(),
            tls: [node.ca.as_ref(), node.cert.as_ref(), node.key.as_ref()],
        }
    }
}

impl StorageOptions {
    /// The configuration of the node, and warnings about the file.
    pub(super) fn configuration(&self) -> Result<(Configuration, NodeOptions, Vec<Warning>)> {
        let (configuration, node, warnings) = self.node.configuration()?;
        refuse_what_is_missing(&node, self.reset)?;
        Ok((configuration, node, warnings))
    }
}

fn refuse_what_is_missing(node: &NodeOptions, resets: bool) -> Result<()> {
    if let Some(problem) = node.database_problem() {
        return Err(wrong::<Storage>(&problem.to_string()));
    }
    let is_named = resets || !node.cluster.is_empty();
    match (is_named, node.database.is_empty()) {
        (true, false) => Ok(()),
        (false, _) => Err(nameless::<Storage>()),
        (_, true) => {
            Err(wrong::<Storage>("give the path of the database: --database PATH, or a file"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neo::node_kind::parsed;

    fn configuration(words: &str) -> Result<NodeOptions, String> {
        let options: StorageOptions = parsed(words)?;
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
    fn a_login_needs_its_adapter() {
        for words in ["-c|a|-d|b:c@d|-a|MySQL", "-c|a|-d|b@d|-a|SQLite", "-c|a|-d|mysql://b@c/d"] {
            assert!(configuration(words).is_ok(), "{words}");
        }
    }

    #[test]
    fn what_is_missing_or_not_implemented_is_said() {
        for (words, expected) in [
            ("", "--cluster NAME"),
            ("-c|a", "--database PATH"),
            ("-c|a|-d|b|-a|Importer", "with a client"),
            ("-c|a|-d|b|-a|Oracle", "possible values: sqlite, mysql, importer"),
            ("-c|a|-d|b|-e|InnoDB", "have no engine"),
            ("-c|a|-d|b:c@d", "give the `adapter`, mysql for"),
            ("-c|a|-d|b@d|--reset", "give the `adapter`, mysql for"),
            ("-c|a|-d|b|-i|-5", "from 1 to 16777215"),
            ("-c|a|-d|b|--new-nid|--reset", "cannot be used with"),
            ("-c|a|-d|b|--new-nid|--nid|5", "cannot be used with"),
            ("-f|a|-C|b", "cannot be used with"),
            ("-c|a|-d|b|-l|c|--log-file|d", "cannot be used with"),
        ] {
            let error = configuration(words).unwrap_err();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
