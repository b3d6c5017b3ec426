//! `[neo-admin]`: the admin of a NEO cluster, with neoadmin's names.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Value;
use toml::de::DeValue;

use super::kinds::{Converted, File, Kind, List, Text, Time, Written};

/// Headings of options on the command line.
const BACKUPS: &str = "Backup clusters";
const TLS: &str = "TLS";

settings! {
    /// The admin of a NEO cluster.
    ///
    /// The default has no cluster, as it is required: readers begin with it.
    pub struct AdminOptions {
        /// Name of the cluster
        cluster: String = String::new(), {
            Text;
            key: "cluster", elsewhere: "`cluster`", is_required: true, option: "cluster",
            short: Some('c'), value: "NAME"
        }

        /// Addresses of the masters: HOST:PORT, separated by spaces on the command line
        masters: Vec<String> = vec!["127.0.0.1:10000".to_owned()], {
            List(Text);
            key: "masters", elsewhere: "`masters`", option: "masters", short: Some('m'),
            value: "ADDRESSES", separator: Some(' ')
        }

        /// Listen on HOST:PORT for commands of operators; port 0 chooses one
        bind: String = "127.0.0.1:9999".to_owned(), {
            Text;
            key: "bind", elsewhere: "`bind`", option: "bind", short: Some('b'), value: "HOST:PORT"
        }

        /// File with further masters, which the admin keeps up to date
        ///
        /// A list of pairs of host and port in JSON, as NEO's nodes write it. It is created.
        dynamic_master_list: Option<PathBuf> = None, {
            File;
            key: "dynamic-master-list", elsewhere: "`dynamic_master_list`",
            option: "dynamic-master-list", short: Some('D'), value: "PATH"
        }

        /// Id to ask the first master for, as in neoadmin for tests
        nid: Option<i32> = None, {
            Nid(ADMIN);
            key: "nid", elsewhere: "`nid`", otherwise: "the master gives one", option: "nid",
            short: Some('i'), value: "ID"
        }

        /// Name of a backup cluster whose admin may connect, for the summary
        monitor_backup: Vec<String> = Vec::new(), {
            List(Text);
            key: "monitor-backup", elsewhere: "`monitor_backup`", option: "monitor-backup",
            value: "NAME", heading: BACKUPS
        }

        /// Warn of a backup cluster that is further behind than this
        monitor_maxlag: Duration = Duration::ZERO, {
            Time::ANY;
            key: "monitor-maxlag", elsewhere: "`monitor_maxlag`", option: "monitor-maxlag",
            value: "SECONDS", heading: BACKUPS
        }

        /// Not implemented, so it is refused: watch /health of the monitor instead
        monitor_email: Vec<String> = Vec::new(), {
            List(Text);
            key: "monitor-email", elsewhere: "`monitor_email`", option: "monitor-email",
            value: "ADDRESS", heading: BACKUPS
        }

        /// Certificates of the cluster's authority, in PEM format
        ca: Option<PathBuf> = None, {
            File;
            key: "ca", elsewhere: "`ca`", option: "ca", value: "PATH", heading: TLS
        }

        /// Certificate of the admin, in PEM format
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

/// The kind of a node's id: a negative number, as all but those of storages are. It has the high
/// byte of the ids of its kind of node.
pub(crate) struct Nid(pub(crate) i32);

/// The high byte of the ids of admins.
const ADMIN: i32 = -0x30;
const NUMBER_BITS: u32 = 24;

impl Nid {
    fn checked(&self, number: Option<i32>) -> Converted<i32> {
        let before_first = self.0 << NUMBER_BITS;
        let is_one = |id: &i32| *id > before_first && *id >> NUMBER_BITS == self.0;
        number.filter(is_one).ok_or_else(|| {
            let last = before_first | ((1 << NUMBER_BITS) - 1);
            let first = before_first + 1;
            format!("give the id of such a node, a number from {first} (the first) to {last}")
        })
    }
}

impl Kind for Nid {
    type Value = i32;

    fn text(&self, text: &OsStr) -> Converted<i32> {
        self.checked(text.to_str().and_then(|text| text.parse().ok()))
    }

    fn toml(&self, value: &DeValue, _: &Path) -> Converted<i32> {
        let integer = value.as_integer();
        self.checked(
            integer.and_then(|number| i32::from_str_radix(number.as_str(), number.radix()).ok()),
        )
    }

    fn written(&self, value: &i32) -> Written<Value> {
        Ok(Value::from(*value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_their_kind_of_node() {
        let nid = |text: &str| Nid(ADMIN).text(OsStr::new(text));
        assert_eq!(nid("-805306367"), Ok(-805_306_367));
        assert_eq!(nid("-788529153"), Ok(-788_529_153));
        for wrong in ["-805306368", "-788529152", "1", "-268435455", "A1", ""] {
            assert!(nid(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Nid(-0x10).text(OsStr::new("-268435455")), Ok(-268_435_455));
    }
}
