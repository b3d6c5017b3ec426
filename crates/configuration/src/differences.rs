//! The settings in which two configurations differ, by name.
//!
//! Values are left out: the URL of a database may have a password.

use crate::model::Configuration;
use crate::settings::field::Group;

impl Configuration {
    /// The settings of a server that `other` has differently. Storages are told apart by name.
    pub fn differences(&self, other: &Configuration) -> Vec<String> {
        let mut found = Vec::new();
        compare("[server]", &self.server, &other.server, &mut found);
        compare_tables("[server.tls]", &self.server.tls, &other.server.tls, &mut found);
        for storage in &self.storages {
            let name = &storage.name;
            match other.storages.iter().find(|other| other.name == *name) {
                Some(other) => {
                    compare(&format!("storage {name}"), storage, other, &mut found);
                    let header = format!("[storage.pack] of storage {name}");
                    compare(&header, &storage.pack, &other.pack, &mut found);
                }
                None => found.push(format!("storage {name}")),
            }
        }
        let is_new = |name: &String| self.storages.iter().all(|storage| storage.name != *name);
        let names = other.storages.iter().map(|storage| &storage.name);
        found.extend(names.filter(|name| is_new(name)).map(|name| format!("storage {name}")));
        compare("[log]", &self.log, &other.log, &mut found);
        compare_tables("[monitor]", &self.monitor, &other.monitor, &mut found);
        found
    }
}

fn compare_tables<G: Group>(
    header: &str,
    one: &Option<G>,
    other: &Option<G>,
    found: &mut Vec<String>,
) {
    match (one, other) {
        (Some(one), Some(other)) => compare(header, one, other, found),
        (None, None) => {}
        _ => found.push(header.to_owned()),
    }
}

fn compare<G: Group>(header: &str, one: &G, other: &G, found: &mut Vec<String>) {
    for entry in G::entries() {
        // What cannot be written differs from all else.
        let is_same = match (entry.written(one), entry.written(other)) {
            (Ok(one), Ok(other)) => one == other,
            _ => false,
        };
        if !is_same {
            found.push(format!("`{}` of {header}", entry.description().key));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{Configuration, Surroundings, parse_toml};

    fn configuration(text: &str) -> Configuration {
        let surroundings = Surroundings { directory: "/".into(), environment: &|_| None };
        parse_toml(text, Path::new("zodium.toml"), &surroundings).unwrap().0
    }

    #[test]
    fn settings_that_differ_are_named_and_no_values() {
        let one = configuration(
            "[server]\nworkers = 2\n[[storage]]\nname = 'a'\npath = '/a.fs'\n[[storage]]\n\
             name = 'b'\nmysql = 'mysql://user:secret@host/b'\n[monitor]\naddress = '1'\n",
        );
        assert_eq!(one.differences(&one), [""; 0]);
        let other = configuration(
            "[server]\nworkers = 3\n[[storage]]\nname = 'b'\n\
             mysql = 'mysql://user:other@host/b'\n[storage.pack]\nkeep-old = false\n\
             [[storage]]\nname = 'c'\npath = '/c.fs'\n[log]\nlevel = 'debug'\n",
        );
        let expected = [
            "`workers` of [server]",
            "storage a",
            "`mysql` of storage b",
            "`keep-old` of [storage.pack] of storage b",
            "storage c",
            "`level` of [log]",
            "[monitor]",
        ];
        assert_eq!(one.differences(&other), expected);
    }
}
