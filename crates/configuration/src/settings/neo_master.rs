//! `[neo-master]`: a master of a NEO cluster, with neomaster's names.

use std::path::PathBuf;

use super::kinds::{Count, File, List, Switch, Text};
use super::neo_admin::Nid;

/// Headings of options on the command line.
const NEW: &str = "New clusters";
const BACKUP: &str = "Backup clusters";
const TLS: &str = "TLS";

settings! {
    /// A master of a NEO cluster.
    ///
    /// The default has no cluster, as it is required: readers begin with it.
    pub struct MasterOptions {
        /// Name of the cluster
        cluster: String = String::new(), {
            Text;
            key: "cluster", elsewhere: "`cluster`", is_required: true, option: "cluster",
            short: Some('c'), value: "NAME"
        }

        /// Addresses of all masters: HOST:PORT, separated by spaces on the command line
        masters: Vec<String> = Vec::new(), {
            List(Text);
            key: "masters", elsewhere: "`masters`", otherwise: "this one alone", option: "masters",
            short: Some('m'), value: "ADDRESSES", separator: Some(' ')
        }

        /// Listen on HOST:PORT, spelled as in the lists of masters
        bind: String = "127.0.0.1:10000".to_owned(), {
            Text;
            key: "bind", elsewhere: "`bind`", option: "bind", short: Some('b'), value: "HOST:PORT"
        }

        /// File with further masters, which the master keeps up to date
        ///
        /// A list of pairs of host and port in JSON, as NEO's nodes write it. It is created.
        dynamic_master_list: Option<PathBuf> = None, {
            File;
            key: "dynamic-master-list", elsewhere: "`dynamic_master_list`",
            option: "dynamic-master-list", short: Some('D'), value: "PATH"
        }

        /// Id to begin with, as in neomaster for tests
        nid: Option<i32> = None, {
            Nid(MASTER);
            key: "nid", elsewhere: "`nid`", otherwise: "the lowest free one", option: "nid",
            short: Some('i'), value: "ID"
        }

        /// Number of partitions of a new cluster, which stays
        partitions: u32 = 100, {
            Count::<u32>::within(1, PARTITIONS_MAX);
            key: "partitions", elsewhere: "`partitions`", option: "partitions", short: Some('p'),
            value: "N", heading: NEW
        }

        /// Number of copies beside the first one, of a new cluster
        replicas: u32 = 0, {
            Count::<u32>::within(0, REPLICAS_MAX);
            key: "replicas", elsewhere: "`replicas`", option: "replicas", short: Some('r'),
            value: "N", heading: NEW
        }

        /// Start a new cluster when N storages are there, without an operator
        ///
        /// Give the number of all storages, so that no cluster is created in place of one that is
        /// away. 0 waits for an operator.
        autostart: Option<u32> = None, {
            Count::<u32>::within(0, STORAGES_MAX);
            key: "autostart", elsewhere: "`autostart`", otherwise: "an operator starts it",
            option: "autostart", short: Some('A'), value: "N", heading: NEW
        }

        /// Name of the cluster that this one can be a backup of
        upstream_cluster: Option<String> = None, {
            Text;
            key: "upstream-cluster", elsewhere: "`upstream_cluster`", option: "upstream-cluster",
            value: "NAME", heading: BACKUP
        }

        /// Addresses of masters of that cluster
        upstream_masters: Vec<String> = Vec::new(), {
            List(Text);
            key: "upstream-masters", elsewhere: "`upstream_masters`", option: "upstream-masters",
            short: Some('M'), value: "ADDRESSES", separator: Some(' '), heading: BACKUP
        }

        /// Make an empty cluster a backup at its start, without an operator
        backup: bool = false, {
            Switch;
            key: "backup", elsewhere: "`backup`", option: "backup", short: Some('B'), flag: "true",
            heading: BACKUP
        }

        /// Certificates of the cluster's authority, in PEM format
        ca: Option<PathBuf> = None, {
            File;
            key: "ca", elsewhere: "`ca`", option: "ca", value: "PATH", heading: TLS
        }

        /// Certificate of the master, in PEM format
        cert: Option<PathBuf> = None, {
            File;
            key: "cert", elsewhere: "`cert`", option: "cert", value: "PATH", heading: TLS
        }

        /// Key of the certificate, in PEM format
        key: Option<PathBuf> = None, {
            File;
            key: "key", elsewhere: "`key`", option: "key", value: "PATH", heading: TLS
        }
    }
}

/// The high byte of the ids of masters.
const MASTER: i32 = -0x10;
/// Each partition costs memory, and time of every change of the table.
const PARTITIONS_MAX: u64 = 1_000_000;
const REPLICAS_MAX: u64 = 1000;
const STORAGES_MAX: u64 = 1_000_000;
