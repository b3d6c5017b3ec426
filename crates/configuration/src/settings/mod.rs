//! The table of settings: all that a server can be told, each in one entry.
//!
//! Key decision: readers of TOML and of `zeo.conf`, the writer of TOML, the command line and the
//! documentation go through this table. A new setting is one entry in the file of its group.

pub(crate) mod description;
#[macro_use]
pub(crate) mod field;
pub(crate) mod kinds;
pub(crate) mod log;
pub(crate) mod monitor;
pub(crate) mod neo;
pub(crate) mod neo_admin;
pub(crate) mod neo_master;
pub(crate) mod packing;
pub(crate) mod server;
pub(crate) mod storage;
pub(crate) mod tls;

use std::ffi::OsString;
use std::sync::LazyLock;

use self::description::Description;
use self::field::{Entry, Group};
use self::kinds::Values;
use crate::model::Configuration;

/// A setting, as the command line and the documentation see it.
pub struct Setting {
    /// Its names, its help, its sources.
    pub description: &'static Description,
    /// What its values are.
    pub values: Values,
    /// Its default as TOML.
    pub(crate) default: Option<toml::Value>,
    check: Box<Check>,
    apply: Box<Apply>,
}

type Check = dyn Fn(&OsString) -> Result<(), String> + Send + Sync;
type Apply = dyn Fn(&mut Configuration, &[OsString]) -> Result<(), String> + Send + Sync;

impl Setting {
    /// Its default, as on the command line, or words for what applies without it.
    #[must_use]
    pub fn default_shown(&self) -> Option<String> {
        match self.description.otherwise {
            _ if self.description.is_required => None,
            "" => self.default.as_ref().map(shown).filter(|text| !text.is_empty()),
            otherwise => Some(otherwise.to_owned()),
        }
    }

    /// Checks a value of its option.
    ///
    /// # Errors
    ///
    /// It is not a value of this setting; the error says what to give.
    pub fn check(&self, text: &OsString) -> Result<(), String> {
        (self.check)(text)
    }

    /// Gives a configuration the values of its option; there is one value at least.
    ///
    /// # Errors
    ///
    /// As [`Setting::check`], or the option is for one storage, and there are several.
    pub fn apply(&self, all: &mut Configuration, texts: &[OsString]) -> Result<(), String> {
        (self.apply)(all, texts)
    }
}

/// A value of TOML as a text for the command line.
fn shown(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// The settings of a table of TOML.
pub struct Settings {
    /// The header of the table.
    pub header: &'static str,
    /// The heading of its options on the command line; empty for none.
    heading: &'static str,
    /// Its equivalent in `zeo.conf`.
    pub(crate) zeo_conf: &'static str,
    /// The settings, in the order of the documentation.
    pub settings: Vec<Setting>,
}

impl Settings {
    /// Whether they are for a storage node of a NEO cluster, and not for a server.
    #[must_use]
    pub fn are_for_nodes(&self) -> bool {
        self.header == NODE
    }

    /// Whether they are for the admin of a NEO cluster, and not for a server.
    #[must_use]
    pub fn are_for_admins(&self) -> bool {
        self.header == ADMIN
    }

    /// Whether they are for a master of a NEO cluster, and not for a server.
    #[must_use]
    pub fn are_for_masters(&self) -> bool {
        self.header == MASTER
    }

    /// Whether they are for any process: of a server, or of a node.
    #[must_use]
    pub fn are_for_all(&self) -> bool {
        ["[log]", "[monitor]"].contains(&self.header)
    }

    /// The heading of an option in the help; `None` for the first ones.
    #[must_use]
    pub fn heading_of(&self, setting: &Setting) -> Option<&'static str> {
        let headings = [setting.description.heading, self.heading];
        headings.into_iter().find(|heading| !heading.is_empty())
    }
}

/// The table of a storage node of a NEO cluster.
const NODE: &str = "[neo-storage]";
/// The table of the admin of a NEO cluster.
const ADMIN: &str = "[neo-admin]";
/// The table of a master of a NEO cluster.
const MASTER: &str = "[neo-master]";

/// All settings.
pub static SETTINGS: LazyLock<[Settings; 9]> = LazyLock::new(|| {
    [
        settings("[server]", "", "zeo.conf", |all| vec![&mut all.server]),
        settings("[server.tls]", "TLS", "<ssl>", |all| {
            vec![all.server.tls.get_or_insert_default()]
        }),
        settings("[[storage]]", "Storages", "<filestorage>", |all| {
            all.storages.iter_mut().collect()
        }),
        settings("[storage.pack]", "Storages", "<filestorage>", |all| {
            all.storages.iter_mut().map(|storage| &mut storage.pack).collect()
        }),
        settings("[log]", "Logging", "<eventlog>", |all| vec![&mut all.log]),
        settings("[monitor]", "Process", "zeo.conf", |all| {
            vec![all.monitor.get_or_insert_default()]
        }),
        settings(NODE, "", "neo.conf", |all| vec![all.neo_storage.get_or_insert_default()]),
        settings(ADMIN, "", "neo.conf", |all| vec![all.neo_admin.get_or_insert_default()]),
        settings(MASTER, "", "neo.conf", |all| vec![all.neo_master.get_or_insert_default()]),
    ]
});

/// Where a configuration has a group: once, or in each storage.
type Of<G> = fn(&mut Configuration) -> Vec<&mut G>;

fn settings<G: Group>(
    header: &'static str,
    heading: &'static str,
    zeo_conf: &'static str,
    of: Of<G>,
) -> Settings {
    let settings = G::entries().map(|entry| Setting {
        description: entry.description(),
        values: entry.values(),
        default: entry.written(&G::default()).ok().flatten(),
        check: Box::new(|text| entry.texts(&mut G::default(), std::slice::from_ref(text))),
        apply: Box::new(move |all, texts| apply(entry, &mut of(all), texts)),
    });
    Settings { header, heading, zeo_conf, settings: settings.collect() }
}

fn apply<G>(entry: &dyn Entry<G>, groups: &mut [&mut G], texts: &[OsString]) -> Result<(), String> {
    let description = entry.description();
    if description.is_for_one_storage && groups.len() != 1 {
        return Err(format!(
            "--{} is for one storage, and there are {}; use a configuration file",
            description.option,
            groups.len()
        ));
    }
    groups.iter_mut().try_for_each(|group| entry.texts(group, texts))
}
