//! NEO's own configuration file, as `neostorage --file` reads it.
//!
//! Each kind of node has a section; settings of all nodes are in `[DEFAULT]`. A name that is no
//! setting of a node is another kind of node's, and ignored, as NEO does.

mod syntax;

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use self::syntax::Sections;
use crate::error::{ConfigurationError, Findings, Mistake, Warning};
use crate::model::Configuration;
use crate::names;
use crate::settings::field::{Entry, Group};
use crate::settings::log::{LogDestination, LogOptions};
use crate::settings::neo::{NodeAdapter, NodeOptions};
use crate::source::Source;
use crate::surroundings::Surroundings;

/// NEO's name of the log file, which is no setting of the node.
const LOG_FILE: &str = "logfile";
/// What is done once, and then over: not for a file that is read at each start.
const ONCE: [&str; 2] = ["reset", "new_nid"];

/// Kinds of nodes that a section can be for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeoNode {
    /// A storage node.
    Storage,
    /// The admin of a cluster.
    Admin,
    /// A master of a cluster.
    Master,
}

/// Reads a section of NEO's configuration file.
///
/// # Errors
///
/// The file cannot be read, has mistakes, or has no such section.
pub fn read_neo_conf(
    path: &Path,
    section: &str,
    node: NeoNode,
) -> Result<(Configuration, Vec<Warning>), ConfigurationError> {
    let surroundings = Surroundings::of_this_process()?;
    interpret(&Source::read(path)?, section, node, &surroundings)
}

fn interpret(
    source: &Arc<Source>,
    section: &str,
    node: NeoNode,
    surroundings: &Surroundings<'_>,
) -> Result<(Configuration, Vec<Warning>), ConfigurationError> {
    let mut findings = Findings::default();
    let sections = Sections::read(source, &mut findings);
    if !sections.has(section) {
        let message = format!("there is no section [{section}]");
        let names: Vec<_> = sections.names().collect();
        let help = format!("sections: {}; choose one with --section", names.join(", "));
        findings.mistake(Mistake::new(source.place(0..0), message).help(help));
        return findings.conclude(None);
    }
    let file = File { source, sections: &sections, section, surroundings };
    let (mut neo_storage, mut neo_admin, mut neo_master) = (None, None, None);
    match node {
        NeoNode::Storage => {
            // NEO's own default; a file that is created in place of the database would be empty.
            let node = NodeOptions { adapter: Some(NodeAdapter::Mysql), ..Default::default() };
            neo_storage = Some(file.group(node, "storages", &ONCE, &mut findings));
        }
        NeoNode::Admin => {
            neo_admin = Some(file.group(Default::default(), "admins", &[], &mut findings));
        }
        NeoNode::Master => {
            neo_master = Some(file.group(Default::default(), "masters", &[], &mut findings));
        }
    }
    // As for NEO, an empty path is none.
    let log = match file.value(LOG_FILE, &mut findings).filter(|path| !path.is_empty()) {
        Some(path) => {
            let path = file.expanded(LOG_FILE, path, &mut findings);
            LogOptions {
                destinations: vec![LogDestination::File(path.into())],
                ..Default::default()
            }
        }
        None => LogOptions::default(),
    };
    findings.conclude(Some(Configuration {
        log,
        neo_storage,
        neo_admin,
        neo_master,
        ..Configuration::default()
    }))
}

/// A section of the file.
struct File<'a> {
    source: &'a Arc<Source>,
    sections: &'a Sections,
    section: &'a str,
    surroundings: &'a Surroundings<'a>,
}

impl File<'_> {
    fn mistake(&self, name: &str, message: &str, findings: &mut Findings) {
        let place = self.sections.value(self.section, name).map(|(place, _)| place);
        let place = self.source.place(place.unwrap_or(0..0));
        findings.mistake(Mistake::new(place, format!("`{name}`: {message}")));
    }

    fn value(&self, name: &str, findings: &mut Findings) -> Option<String> {
        let (_, value) = self.sections.value(self.section, name)?;
        value.map_err(|message| self.mistake(name, &message, findings)).ok()
    }

    /// Reads the settings of a node, over those of `node`. `nodes` are such nodes in messages;
    /// `once` is not for files.
    fn group<G: Group>(
        &self,
        mut node: G,
        nodes: &str,
        once: &[&str],
        findings: &mut Findings,
    ) -> G {
        G::entries().for_each(|entry| self.take(entry, &mut node, findings));
        self.check_names::<G>(nodes, once, findings);
        node
    }

    fn take<G>(&self, entry: &dyn Entry<G>, node: &mut G, findings: &mut Findings) {
        let description = entry.description();
        let name = description.key.replace('-', "_");
        // As for NEO, an empty value is none.
        let value = self.value(&name, findings).filter(|value| !value.is_empty());
        let Some(value) = value else { return };
        let (values, is_flag) = (entry.values(), !description.flag.is_empty());
        let texts: Vec<OsString> = match boolean(&value) {
            Some(true) if is_flag => vec![description.flag.into()],
            Some(false) if is_flag => return,
            None if is_flag => {
                let message = "give yes or no (1, true, on, 0, false, off)";
                return self.mistake(&name, message, findings);
            }
            _ if values.is_list => value.split_whitespace().map(OsString::from).collect(),
            _ if values.is_path => vec![self.expanded(&name, value, findings).into()],
            _ => vec![value.into()],
        };
        if let Err(message) = entry.texts(node, &texts) {
            self.mistake(&name, &message, findings);
        }
    }

    /// A path with the home directory in place of `~`.
    fn expanded(&self, name: &str, path: String, findings: &mut Findings) -> String {
        let Some(rest) = path.strip_prefix('~') else { return path };
        match (rest.is_empty() || rest.starts_with('/'), self.surroundings.variable("HOME")) {
            (true, Some(home)) => format!("{}{rest}", home.trim_end_matches('/')),
            (true, None) => {
                self.mistake(name, "there is no variable HOME for `~`", findings);
                path
            }
            (false, _) => {
                self.mistake(name, "write the home directory of another user out", findings);
                path
            }
        }
    }

    fn check_names<G: Group>(&self, nodes: &str, once: &[&str], findings: &mut Findings) {
        for name in once {
            if self.value(name, findings).is_some_and(|value| boolean(&value) != Some(false)) {
                let option = name.replace('_', "-");
                let message = format!("not in a file, which is read again: give --{option} once");
                self.mistake(name, &message, findings);
            }
        }
        let known: Vec<_> = G::keys().chain([LOG_FILE]).collect();
        for (name, setting) in self.sections.own(self.section) {
            let key = name.replace('_', "-");
            if known.contains(&&*key) || once.contains(&&**name) {
                continue;
            }
            let hint = names::nearest(name, &known);
            let hint = hint.map(|near| format!(", did you mean `{}`?", near.replace('-', "_")));
            let text = format!("`{name}` is no setting of {nodes}, and ignored");
            let place = self.source.place(setting.place.clone());
            findings.warning(&place, text + &hint.unwrap_or_default());
        }
    }
}

/// A boolean of Python's `ConfigParser`.
fn boolean(text: &str) -> Option<bool> {
    match &text.to_lowercase()[..] {
        "1" | "yes" | "true" | "on" => Some(true),
        "0" | "no" | "false" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::settings::neo::NodeWait;

    const EXAMPLE: &str = "\
# A cluster.
[DEFAULT]
cluster: production
masters: 10.0.0.1:10000
  ; the second machine
  10.0.0.2:10000
replicas = 1
folder = /srv/%(cluster)s
ca = ~/etc/ca.crt
[admin]
bind: 127.0.0.1:9999
[storage]
BIND = 10.0.0.3:10010
adapter = SQLite
database = %(folder)s/100%%.sqlite
wait: -1
disable_pack = Yes
dedup: off
logfile = /var/log/neo.log
";

    fn read(text: &str, section: &str) -> Result<(Configuration, Vec<Warning>), String> {
        read_as(NeoNode::Storage, text, section)
    }

    fn read_as(
        node: NeoNode,
        text: &str,
        section: &str,
    ) -> Result<(Configuration, Vec<Warning>), String> {
        let home = |name: &str| (name == "HOME").then(|| "/users/neo/".to_owned());
        let surroundings = Surroundings { directory: "/srv".into(), environment: &home };
        interpret(&Source::new(Path::new("neo.conf"), text), section, node, &surroundings)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_section_is_read_with_the_defaults() {
        let (configuration, warnings) = read(EXAMPLE, "storage").unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let node = configuration.neo_storage.unwrap();
        assert_eq!(node.cluster, "production");
        assert_eq!(node.masters, ["10.0.0.1:10000", "10.0.0.2:10000"]);
        assert_eq!(node.bind, "10.0.0.3:10010");
        assert_eq!(node.adapter, Some(NodeAdapter::Sqlite));
        assert_eq!(node.database, "/srv/production/100%.sqlite");
        assert_eq!((node.wait, node.disable_pack, node.dedup), (NodeWait::Forever, true, false));
        assert_eq!(node.ca, Some("/users/neo/etc/ca.crt".into()));
        assert_eq!(
            configuration.log.destinations,
            [LogDestination::File("/var/log/neo.log".into())]
        );
    }

    #[test]
    fn the_default_of_the_adapter_is_neos() {
        let (configuration, _) = read("[storage]\ndatabase: neo:neo@neo1", "storage").unwrap();
        let node = configuration.neo_storage.unwrap();
        assert_eq!(node.kind_of_database(), NodeAdapter::Mysql);
        assert_eq!(node.database, "neo:neo@neo1");
    }

    #[test]
    fn an_admin_has_a_section_of_its_own() {
        let text = "[DEFAULT]\ncluster = a\n[admin]\nmonitor_backup = b\n  c\n\
                    monitor_maxlag = 1.5\nnid = -805306367\nsmtp = mail\nlogfile = l";
        let (configuration, warnings) = read_as(NeoNode::Admin, text, "admin").unwrap();
        assert!(configuration.neo_storage.is_none());
        let admin = configuration.neo_admin.unwrap();
        assert_eq!((&*admin.cluster, &*admin.bind), ("a", "127.0.0.1:9999"));
        assert_eq!(admin.monitor_backup, ["b", "c"]);
        assert_eq!(admin.monitor_maxlag, Duration::from_millis(1500));
        assert_eq!(admin.nid, Some(-805_306_367));
        assert!(warnings[0].message.contains("`smtp` is no setting of admins"), "{warnings:?}");
    }

    #[test]
    fn mistakes_are_reported_with_their_lines() {
        for (text, expected) in [
            ("[storage]\nnid = many", "neo.conf:2:1: `nid`: give a whole number"),
            ("[storage]\ndedup = perhaps", "give yes or no"),
            ("[storage]\nreset = 1", "give --reset once"),
            ("[storage]\nnew_nid = true", "give --new-nid once"),
            ("[storage]\nca = ~other/ca", "home directory of another user"),
            ("[storage]\nbind = %(where)s", "no setting `where`"),
            ("[storage]\nbind = 5%", "is written `%%`"),
            ("[storage]\nbind = %(bind)s", "without end"),
            ("[storage]\nbind", "neither a section"),
            ("[storage]\nbind = a\nBind = b", "`bind` is here a second time"),
            ("[storage]\n[storage]", "[storage] is here a second time"),
            ("bind = a\n[storage]", "before the first section"),
            ("[other]\n[admin]", "sections: admin, other; choose one with --section"),
        ] {
            let error = read(text, "storage").unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let (_, warnings) = read("[storage]\nmaster = a:1\nquota = 1", "storage").unwrap();
        assert!(warnings[0].message.contains("did you mean `masters`?"), "{warnings:?}");
        assert_eq!(warnings.len(), 2);
    }

    #[test]
    fn a_comment_may_follow_the_name_of_a_section() {
        let text = "[storage] ; of the first machine\nnid = 1\n[admin]  # on: all = 1\nnid = 2";
        let node = read(text, "storage").unwrap().0.neo_storage.unwrap();
        assert_eq!(node.nid, Some(1));
        assert!(read("[a]b] # c", "a]b").is_ok(), "the last bracket counts");
    }

    #[test]
    fn empty_values_are_none() {
        let text = "[storage]\nadapter = SQLite\nengine =\nca =\ncert:\nkey:\nnid = 3";
        let node = read(text, "storage").unwrap().0.neo_storage.unwrap();
        assert_eq!((node.engine, node.ca, node.nid), (None, None, Some(3)));
    }

    #[test]
    fn an_empty_log_file_is_none() {
        let (configuration, warnings) = read("[storage]\nlogfile =", "storage").unwrap();
        assert_eq!((configuration.log, warnings.len()), (LogOptions::default(), 0));
    }

    #[test]
    fn numbers_and_times_are_neostorages() {
        let (configuration, _) = read("[s2]\nwait = 2.5\nnid = 7", "s2").unwrap();
        let node = configuration.neo_storage.unwrap();
        let wait = NodeWait::AtMost(Duration::from_millis(2500));
        assert_eq!((node.wait, node.nid), (wait, Some(7)));
        assert_eq!(node.masters, ["127.0.0.1:10000"]);
    }
}
