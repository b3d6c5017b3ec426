//! `zodium neo master`: runs a master of a cluster.

use std::io;

use anyhow::Result;
use zodium_configuration::{Configuration, MasterOptions, NeoNode};
use zodium_neo::{Address, ClusterState, NodeId};
use zodium_neo_master::{Settings, Status, UpstreamSettings};
use zodium_neo_server::{ServeMaster, serve_master};

use super::addresses;
use super::light_kind::LightKind;
use super::node_kind::{Common, NodeKind};
use crate::setting_arguments::OfMaster;

/// The kind of node.
#[derive(Debug)]
pub(crate) enum Master {}

impl NodeKind for Master {
    const NAME: &'static str = "master";
    const NODE: NeoNode = NeoNode::Master;
    type Selection = OfMaster;
    type Table = MasterOptions;

    fn table(configuration: &mut Configuration) -> &mut Option<MasterOptions> {
        &mut configuration.neo_master
    }

    fn common(master: &MasterOptions) -> Common<'_> {
        Common {
            cluster: &master.cluster,
            masters: &master.masters,
            bind: &master.bind,
            dynamic_master_list: master.dynamic_master_list.as_deref(),
            tls: [master.ca.as_ref(), master.cert.as_ref(), master.key.as_ref()],
        }
    }
}

impl LightKind for Master {
    const ONE: &'static str = "a master";
    const MAY_BE_ALONE: bool = true;
    type Settings = Settings;
    type Status = Status;

    fn settings(
        master: &MasterOptions,
        masters: Vec<Address>,
        address: Address,
    ) -> Result<Settings> {
        Ok(Settings {
            cluster: master.cluster.clone(),
            masters,
            address,
            node: master.nid.and_then(NodeId::new),
            replicas: master.replicas,
            partitions: master.partitions,
            autostart: master.autostart.filter(|count| *count > 0),
            upstream: upstream_of(master)?,
            begins_as_backup: master.backup,
        })
    }

    async fn serve(master: ServeMaster, stop: impl Future<Output = ()>) -> io::Result<()> {
        serve_master(master, stop).await
    }

    /// The primary master serves or follows, and others know a primary one.
    fn failure(status: &Status) -> Option<String> {
        match (status.state, &status.primary) {
            (Some(ClusterState::Running | ClusterState::BackingUp), _) | (None, Some(_)) => None,
            (Some(state), _) => Some(format!("the cluster is {state}")),
            (None, None) => Some("looking for the primary master".to_owned()),
        }
    }

    fn storages_down(status: &Status) -> u64 {
        status.storages_down as u64
    }

    fn storages_starting(status: &Status) -> &[NodeId] {
        &status.storages_starting
    }

    fn notes(status: &Status) -> &[String] {
        &status.notes
    }
}

/// The cluster to follow, if one is named.
fn upstream_of(master: &MasterOptions) -> Result<Option<UpstreamSettings>> {
    let Some(cluster) = master.upstream_cluster.clone() else { return Ok(None) };
    let masters = addresses::masters(&master.upstream_masters)?;
    Ok(Some(UpstreamSettings { cluster, masters }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neo::light;
    use crate::neo::node_kind::{NodeArguments, parsed};

    fn configuration(words: &str) -> Result<MasterOptions, String> {
        let options: NodeArguments<Master> = parsed(words)?;
        light::configuration(&options)
            .map(|(_, master, _)| master)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn neomasters_options_are_understood() {
        let master = configuration(
            "-c|a|-m|b:1 c:2|-b|d:3|-i|-268435455|-D|masters.json|-l|log|-p|12|-r|1|-A|3",
        );
        let master = master.unwrap();
        assert_eq!((&*master.cluster, &*master.bind), ("a", "d:3"));
        assert_eq!(master.masters, ["b:1", "c:2"]);
        assert_eq!((master.partitions, master.replicas, master.autostart), (12, 1, Some(3)));
        assert_eq!(master.nid, Some(-268_435_455));
        let master = configuration("-c|a|--upstream-cluster|b|-M|c:1 d:2|-B").unwrap();
        assert_eq!((master.upstream_cluster.as_deref(), master.backup), (Some("b"), true));
        assert_eq!(master.upstream_masters, ["c:1", "d:2"]);
        let master = configuration("-c|a").unwrap();
        assert_eq!((&*master.bind, master.partitions), ("127.0.0.1:10000", 100));
    }

    #[test]
    fn what_is_missing_is_said() {
        for (words, expected) in [
            ("", "--cluster NAME"),
            ("-c|a|-i|1", "from -268435455 (the first)"),
            ("-c|a|-p|0", "--partitions"),
            ("-f|a|-C|b", "cannot be used with"),
        ] {
            let error = configuration(words).unwrap_err();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
