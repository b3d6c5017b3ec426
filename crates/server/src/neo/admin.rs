//! `zodium neo admin`: runs the admin of a cluster.

use std::io;

use anyhow::Result;
use zodium_configuration::{AdminOptions, Configuration, NeoNode};
use zodium_monitor::{Cluster, ClusterNode};
use zodium_neo::{Address, ClusterState, NodeId};
use zodium_neo_admin::{MemberStatus, Settings, Status};
use zodium_neo_server::{ServeAdmin, serve_admin};

use super::light_kind::LightKind;
use super::node_kind::{Common, NodeKind};
use crate::setting_arguments::OfAdmin;

/// The kind of node.
#[derive(Debug)]
pub(crate) enum Admin {}

impl NodeKind for Admin {
    const NAME: &'static str = "admin";
    const NODE: NeoNode = NeoNode::Admin;
    type Selection = OfAdmin;
    type Table = AdminOptions;

    fn table(configuration: &mut Configuration) -> &mut Option<AdminOptions> {
        &mut configuration.neo_admin
    }

    fn common(admin: &AdminOptions) -> Common<'_> {
        Common {
            cluster: &admin.cluster,
            masters: &admin.masters,
            bind: &admin.bind,
            dynamic_master_list: admin.dynamic_master_list.as_deref(),
            tls: [admin.ca.as_ref(), admin.cert.as_ref(), admin.key.as_ref()],
        }
    }
}

impl LightKind for Admin {
    const ONE: &'static str = "the admin";
    const MAY_BE_ALONE: bool = false;
    type Settings = Settings;
    type Status = Status;

    fn settings(admin: &AdminOptions, masters: Vec<Address>, address: Address) -> Result<Settings> {
        Ok(Settings {
            cluster: admin.cluster.clone(),
            masters,
            address,
            node: admin.nid.and_then(NodeId::new),
            backups: admin.monitor_backup.clone(),
            lag_seconds_max: admin.monitor_maxlag.as_secs_f64(),
        })
    }

    async fn serve(admin: ServeAdmin, stop: impl Future<Output = ()>) -> io::Result<()> {
        serve_admin(admin, stop).await
    }

    /// Why clients of the cluster cannot work, if so.
    fn failure(status: &Status) -> Option<String> {
        if let Some(seconds) = status.master_silent_seconds {
            return Some(format!("the primary master has not answered for {seconds} s"));
        }
        match (&status.master, status.cluster_state) {
            (None, _) => Some("looking for the primary master".to_owned()),
            (_, Some(ClusterState::Running | ClusterState::BackingUp)) => None,
            (_, Some(state)) => Some(format!("the cluster is {state}")),
            (_, None) => Some("the state of the cluster is not known yet".to_owned()),
        }
    }

    fn storages_down(status: &Status) -> u64 {
        status.storages_down
    }

    fn notes(status: &Status) -> &[String] {
        &status.notes
    }

    fn cluster(name: &str, status: &Status) -> Option<Cluster> {
        let node = |member: &MemberStatus| ClusterNode {
            id: member.id.map(|id| id.to_string()),
            kind: member.kind.to_string(),
            address: member.address.as_ref().map(ToString::to_string),
            state: member.state.to_string(),
            is_primary: member.is_primary,
            cells: member
                .cells
                .iter()
                .map(|(state, count)| (state.to_string(), *count as u64))
                .collect(),
        };
        Some(Cluster {
            name: name.to_owned(),
            state: status.cluster_state.map(|state| state.to_string()),
            table: status.table.map(|table| table.to_string()),
            partitions: status.partitions as u64,
            replicas: status.replicas.into(),
            nodes: status.members.iter().map(node).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neo::light;
    use crate::neo::node_kind::{NodeArguments, parsed};

    fn configuration(words: &str) -> Result<AdminOptions, String> {
        let options: NodeArguments<Admin> = parsed(words)?;
        light::configuration(&options).map(|(_, admin, _)| admin).map_err(|error| error.to_string())
    }

    #[test]
    fn neoadmins_options_are_understood() {
        let admin = configuration(
            "-c|a|-m|b:1 c:2|-b|d:3|-i|-805306367|-D|masters.json|-l|log|--monitor-backup|e|\
             --monitor-backup|f|--monitor-maxlag|1.5",
        );
        let admin = admin.unwrap();
        assert_eq!((&*admin.cluster, &*admin.bind), ("a", "d:3"));
        assert_eq!(
            (admin.masters, admin.monitor_backup),
            (vec!["b:1".into(), "c:2".into()], vec!["e".into(), "f".into()])
        );
        assert_eq!((admin.nid, admin.monitor_maxlag.as_millis()), (Some(-805_306_367), 1500));
        assert_eq!(configuration("-c|a").unwrap().bind, "127.0.0.1:9999");
    }

    #[test]
    fn what_is_missing_is_said() {
        for (words, expected) in [
            ("", "--cluster NAME"),
            ("-c|a|-i|1", "from -805306367 (the first)"),
            ("-f|a|-C|b", "cannot be used with"),
            ("-c|a|--smtp|b", "unexpected argument"),
        ] {
            let error = configuration(words).unwrap_err();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
