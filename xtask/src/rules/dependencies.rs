//! `dependencies`: crates depend on each other one way only, and only where it is said here.
//!
//! A list of every arrow, not only an order: a new arrow is a decision, and should be seen.

use super::word::has_word;
use crate::repository::{Crate, Dependency};
use crate::source::Source;
use crate::violation::Violation;

const RULE: &str = "dependencies";

/// Each crate with those it may use, which all stand above it. Its tests may use any above it.
const MAY_USE: [(&str, &[&str]); 43] = [
    ("zodium-types", &[]),
    ("zodium-pickle", &["zodium-types"]),
    // The disk knows bytes, not objects.
    ("zodium-disk", &[]),
    // Blobs are files: which of them are committed, a storage says.
    ("zodium-blobs", &["zodium-types", "zodium-pickle", "zodium-disk"]),
    // The seam: what the engine and the front ends know of a storage.
    ("zodium-storage", &["zodium-types", "zodium-disk", "zodium-blobs"]),
    // What every kind of storage must do, for their tests.
    ("zodium-storage-kit", &["zodium-types", "zodium-storage"]),
    // The kinds of storage. None knows another, and none knows the engine.
    ("zodium-memorystorage", &["zodium-types", "zodium-pickle", "zodium-disk", "zodium-storage"]),
    (
        "zodium-filestorage",
        &["zodium-types", "zodium-pickle", "zodium-disk", "zodium-blobs", "zodium-storage"],
    ),
    // NEO: the wire format is pure functions over bytes, and a storage node a state machine. What
    // it asks of a database is a trait there, as the seam of the other storages is one.
    ("zodium-neo", &["zodium-types"]),
    ("zodium-neo-storage", &["zodium-types", "zodium-neo"]),
    // An admin has no database.
    ("zodium-neo-admin", &["zodium-types", "zodium-neo"]),
    // Nor has a master: storages keep the partition table.
    ("zodium-neo-master", &["zodium-types", "zodium-neo"]),
    (
        "zodium-sql",
        &[
            "zodium-types",
            "zodium-pickle",
            "zodium-disk",
            "zodium-storage",
            "zodium-neo",
            "zodium-neo-storage",
        ],
    ),
    // The engine knows no protocol, and no kind of storage.
    (
        "zodium-engine",
        &["zodium-types", "zodium-pickle", "zodium-disk", "zodium-blobs", "zodium-storage"],
    ),
    // Resolution knows pickles, not where they are kept.
    ("zodium-resolution", &["zodium-types", "zodium-pickle"]),
    // Nor does what leaves it to a process of Python's: records are bytes there.
    ("zodium-resolver", &[]),
    // Nor does the net know one: links carry bytes.
    ("zodium-tls", &[]),
    ("zodium-net", &["zodium-types", "zodium-disk", "zodium-tls"]),
    // Sockets of clients, without a runtime.
    ("zodium-transport", &["zodium-types"]),
    // A kind of storage that is elsewhere: it stands below the sockets that it needs.
    (
        "zodium-neo-client",
        &[
            "zodium-types",
            "zodium-disk",
            "zodium-storage",
            "zodium-neo",
            "zodium-tls",
            "zodium-transport",
        ],
    ),
    // What a server is told, before there is a server.
    ("zodium-configuration", &["zodium-types"]),
    // The wire format is pure functions over bytes.
    ("zodium-zeo", &["zodium-types", "zodium-pickle"]),
    // RESP: the wire format, and the data behind it, which know nothing of each other.
    ("zodium-resp", &[]),
    // Locks know nothing of what they are around.
    ("zodium-readlocks", &[]),
    ("zodium-keyspace", &["zodium-readlocks"]),
    // What keeps the data: a log of records that mean nothing to it, and RDB's form of values.
    ("zodium-keylog", &["zodium-disk"]),
    ("zodium-rdb", &["zodium-keyspace"]),
    // Drives the state machines of NEO nodes with sockets, and with any database.
    (
        "zodium-neo-server",
        &[
            "zodium-neo",
            "zodium-neo-storage",
            "zodium-neo-admin",
            "zodium-neo-master",
            "zodium-tls",
            "zodium-net",
        ],
    ),
    // The server knows no disk. Of TLS it knows the identity of a peer, and the lists of those
    // that storages admit.
    (
        "zodium-zeo-server",
        &[
            "zodium-types",
            "zodium-pickle",
            "zodium-blobs",
            "zodium-storage",
            "zodium-engine",
            "zodium-tls",
            "zodium-net",
            "zodium-zeo",
        ],
    ),
    // The other server on the same workers. Of TLS it knows the identity of a peer. Objects are
    // ids and pickles to it; what keeps them stands behind its trait.
    (
        "zodium-resp-server",
        &[
            "zodium-types",
            "zodium-pickle",
            "zodium-tls",
            "zodium-net",
            "zodium-resp",
            "zodium-disk",
            "zodium-keylog",
            "zodium-rdb",
            "zodium-keyspace",
        ],
    ),
    // Applications use it; it knows no server but over its socket, and no kind of storage.
    (
        "zodium-client",
        &[
            "zodium-types",
            "zodium-pickle",
            "zodium-disk",
            "zodium-storage",
            "zodium-tls",
            "zodium-transport",
            "zodium-zeo",
        ],
    ),
    // A storage of this process behind the client's interface, with what a server would answer.
    (
        "zodium-embedded",
        &[
            "zodium-types",
            "zodium-pickle",
            "zodium-disk",
            "zodium-storage",
            "zodium-engine",
            "zodium-transport",
            "zodium-zeo-server",
            "zodium-client",
        ],
    ),
    // Works over the traits of a storage: it knows no kind of one, and no server.
    ("zodium-tools", &["zodium-types", "zodium-pickle", "zodium-storage", "zodium-resolution"]),
    // So do backups.
    ("zodium-backup", &["zodium-types", "zodium-disk", "zodium-storage"]),
    // Everything that a server is made of, but for threads and sockets. No server uses it.
    (
        "zodium-simulation",
        &[
            "zodium-types",
            "zodium-pickle",
            "zodium-disk",
            "zodium-storage",
            "zodium-filestorage",
            "zodium-neo",
            "zodium-neo-storage",
            "zodium-neo-master",
            "zodium-sql",
            "zodium-engine",
            "zodium-net",
            "zodium-zeo",
            "zodium-zeo-server",
            "zodium-keyspace",
            "zodium-resp-server",
            "zodium-tls",
        ],
    ),
    // Pages of operators, whatever they show.
    ("zodium-http", &["zodium-types"]),
    // Works over the traits of a storage, as the tools do.
    (
        "zodium-explorer",
        &["zodium-types", "zodium-pickle", "zodium-storage", "zodium-tools", "zodium-http"],
    ),
    // Figures come to the monitor as plain data.
    ("zodium-monitor", &["zodium-types", "zodium-http"]),
    (
        "zodium",
        &[
            "zodium-types",
            "zodium-pickle",
            "zodium-disk",
            "zodium-blobs",
            "zodium-storage",
            "zodium-filestorage",
            "zodium-sql",
            "zodium-engine",
            "zodium-net",
            "zodium-zeo",
            "zodium-zeo-server",
            "zodium-neo",
            "zodium-neo-storage",
            "zodium-neo-admin",
            "zodium-neo-master",
            "zodium-neo-server",
            "zodium-neo-client",
            "zodium-resp-server",
            "zodium-client",
            "zodium-resolution",
            "zodium-resolver",
            "zodium-tls",
            "zodium-tools",
            "zodium-backup",
            "zodium-configuration",
            "zodium-http",
            "zodium-explorer",
            "zodium-monitor",
        ],
    ),
    // The Python package: the client, and the program.
    (
        "zodium-python",
        &[
            "zodium-types",
            "zodium-pickle",
            "zodium-storage",
            "zodium-engine",
            "zodium-tls",
            "zodium-neo-client",
            "zodium-client",
            "zodium-embedded",
            "zodium",
        ],
    ),
    // Benchmarks speak to any server over its socket; links are measured alone too,
    // and the client beside Python's. No program is built of them: they stand below all.
    (
        "zodium-bench",
        &[
            "zodium-types",
            "zodium-pickle",
            "zodium-disk",
            "zodium-storage",
            "zodium-filestorage",
            "zodium-net",
            "zodium-zeo",
            "zodium-neo",
            "zodium-keyspace",
            "zodium-client",
        ],
    ),
    // Fuzzers feed decoders of what others wrote, wherever these are.
    (
        "zodium-fuzz",
        &[
            "zodium-types",
            "zodium-pickle",
            "zodium-disk",
            "zodium-blobs",
            "zodium-storage",
            "zodium-filestorage",
            "zodium-zeo",
            "zodium-neo",
            "zodium-neo-storage",
            "zodium-keylog",
            "zodium-keyspace",
            "zodium-tools",
            "zodium-rdb",
            "zodium-resp",
            "zodium-client",
            "zodium-resolution",
            "zodium-tls",
            "zodium-configuration",
        ],
    ),
    ("xtask", &[]),
];

/// The arrows that are not in the list, the crates that are not, and arrows that nothing uses.
pub(crate) fn check(crates: &[Crate], sources: &[Source]) -> Vec<Violation> {
    let refused = crates.iter().flat_map(|member| check_crate(member, sources));
    let unused = crates.iter().flat_map(|member| unused(member, sources));
    refused.chain(unused).chain(crates.iter().flat_map(stale)).collect()
}

/// Dependencies of a manifest that no source of its crate names.
fn unused(member: &Crate, sources: &[Source]) -> Vec<Violation> {
    let manifest = sources.iter().find(|source| source.path == member.manifest);
    let folder = format!("{}/", member.folder);
    let own =
        || sources.iter().filter(|source| source.is_rust() && source.path.starts_with(&folder));
    let unused = member.dependencies.iter().filter(|dependency| {
        let named = dependency.name.replace('-', "_");
        !own().any(|source| source.lines().any(|(_, line)| has_word(line, &named)))
    });
    let violation = |name: &str| {
        let manifest = manifest?;
        let advice = format!("{} does not use {name}: cut it", member.name);
        Some(manifest.violation(line_of(manifest, name).unwrap_or(1), RULE, advice))
    };
    unused.filter_map(|dependency| violation(&dependency.name)).collect()
}

/// Arrows of the list that a crate does not have.
fn stale(member: &Crate) -> Vec<Violation> {
    let listed =
        MAY_USE.iter().find(|(name, _)| *name == member.name).map_or(&[][..], |(_, used)| used);
    let has = |name: &str| {
        let mut dependencies = member.dependencies.iter();
        dependencies.any(|dependency| dependency.name == name && !dependency.is_for_tests)
    };
    let stale = listed.iter().filter(|name| !has(name));
    let violation = |name: &&str| Violation {
        path: member.manifest.clone(),
        line: 1,
        rule: RULE,
        advice: format!(
            "{} may use {name}, and does not: cut it from the list in \
             xtask/src/rules/dependencies.rs",
            member.name
        ),
    };
    stale.map(violation).collect()
}

fn check_crate(member: &Crate, sources: &[Source]) -> Vec<Violation> {
    let manifest = &member.manifest;
    let violation = |line, advice| Violation { path: manifest.clone(), line, rule: RULE, advice };
    let Some(place) = MAY_USE.iter().position(|(name, _)| *name == member.name) else {
        let advice = "a new crate: say in xtask/src/rules/dependencies.rs what it may use";
        return vec![violation(1, advice.to_owned())];
    };
    let refused = member.dependencies.iter().filter(|dependency| !may_use(place, dependency));
    let violations = refused.map(|Dependency { name: used, .. }| {
        let source = sources.iter().find(|source| source.path == *manifest);
        let line = source.and_then(|source| line_of(source, used)).unwrap_or(1);
        let advice = format!(
            "{} must not use {used}: move what it needs to a crate that both may use, or change \
             the design in ARCHITECTURE.md and xtask/src/rules/dependencies.rs",
            member.name
        );
        violation(line, advice)
    });
    violations.collect()
}

/// Where a manifest names a dependency first.
fn line_of(manifest: &Source, name: &str) -> Option<usize> {
    let names =
        |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    manifest.lines().find(|(_, line)| names(line)).map(|(number, _)| number)
}

fn may_use(place: usize, dependency: &Dependency) -> bool {
    let is_above = MAY_USE[..place].iter().any(|(name, _)| *name == dependency.name);
    is_above && (dependency.is_for_tests || MAY_USE[place].1.contains(&&dependency.name[..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str, dependencies: &[(&str, bool)]) -> usize {
        check_crate(&Crate::of(name, "somewhere", dependencies), &[]).len()
    }

    #[test]
    fn the_list_has_no_arrow_up() {
        for (place, (name, used)) in MAY_USE.iter().enumerate() {
            for used in *used {
                assert!(MAY_USE[..place].iter().any(|(above, _)| above == used), "{name} {used}");
            }
        }
    }

    #[test]
    fn arrows_of_the_list_are_allowed() {
        for (name, used) in MAY_USE {
            let used: Vec<_> = used.iter().map(|used| (*used, false)).collect();
            assert_eq!(refused(name, &used), 0, "{name}");
        }
    }

    #[test]
    fn arrows_up_and_sideways_are_refused() {
        for (name, used) in [
            ("zodium-types", "zodium-pickle"),
            ("zodium-engine", "zodium-zeo"),
            ("zodium-engine", "zodium-filestorage"),
            ("zodium-engine", "zodium-memorystorage"),
            ("zodium-engine", "zodium-sql"),
            ("zodium-engine", "zodium-neo-client"),
            ("zodium-neo-client", "zodium-sql"),
            ("zodium-neo-client", "zodium-client"),
            ("zodium-sql", "zodium-filestorage"),
            ("zodium-zeo-server", "zodium-filestorage"),
            ("zodium-filestorage", "zodium-engine"),
            ("zodium-filestorage", "zodium-memorystorage"),
            ("zodium-engine", "zodium-net"),
            ("zodium-zeo", "zodium-engine"),
            ("zodium-neo", "zodium-storage"),
            ("zodium-zeo-server", "zodium-disk"),
            ("zodium-client", "zodium-zeo-server"),
            ("zodium-net", "zodium-pickle"),
            ("zodium-tls", "zodium-types"),
            ("zodium-resolution", "zodium-engine"),
            ("zodium-configuration", "zodium-net"),
            ("zodium-bench", "zodium-engine"),
            ("zodium-bench", "zodium"),
            ("zodium", "zodium-bench"),
            ("zodium-tools", "zodium-filestorage"),
            ("zodium-backup", "zodium-filestorage"),
            ("zodium-explorer", "zodium-sql"),
            ("zodium-resp-server", "zodium-storage"),
            ("zodium-keyspace", "zodium-resp"),
            ("zodium-neo-server", "zodium-sql"),
            ("zodium-neo-master", "zodium-net"),
        ] {
            assert_eq!(refused(name, &[(used, false)]), 1, "{name} {used}");
        }
    }

    #[test]
    fn only_programs_know_kinds_of_storage_and_no_kind_knows_the_engine() {
        let kinds =
            ["zodium-filestorage", "zodium-memorystorage", "zodium-sql", "zodium-neo-client"];
        let programs =
            ["zodium", "zodium-python", "zodium-bench", "zodium-simulation", "zodium-fuzz"];
        for (name, used) in MAY_USE.iter().filter(|(name, _)| !programs.contains(name)) {
            let known = used.iter().find(|used| kinds.contains(used));
            assert_eq!(known, None, "{name} must know traits, not a kind of storage");
            if kinds.contains(name) {
                assert!(!used.contains(&"zodium-engine"), "{name} must not know the engine");
            }
        }
    }

    #[test]
    fn tests_may_use_what_stands_above_only() {
        assert_eq!(refused("zodium-zeo-server", &[("zodium-disk", true)]), 0);
        assert_eq!(refused("zodium-engine", &[("zodium-zeo-server", true)]), 1);
    }

    #[test]
    fn arrows_that_nothing_uses_are_found() {
        let member = |names: &[(&str, bool)]| Crate::of("zodium-pickle", "pickle", names);
        assert_eq!(stale(&member(&[("zodium-types", false)])), []);
        assert_eq!(stale(&member(&[("zodium-types", true)])).len(), 1);
        let sources = |code| {
            let manifest = "[dependencies]\nzodium-types.workspace = true\n";
            [
                Source::of("crates/pickle/Cargo.toml", manifest),
                Source::of("crates/pickle/tests/a.rs", code),
                Source::of("crates/pickle-more/src/a.rs", "use zodium_types::Oid;\n"),
            ]
        };
        let found = |code| unused(&member(&[("zodium-types", false)]), &sources(code));
        assert_eq!(found("use zodium_types::Tid;\n"), []);
        let violations = found("use zodium_types_of_another::Tid;\n");
        assert_eq!((violations.len(), violations[0].line), (1, 2));
    }

    #[test]
    fn a_crate_that_is_not_listed_is_refused() {
        let violations = check_crate(&Crate::of("zodium-unlisted", "unlisted", &[]), &[]);
        assert_eq!(violations[0].path, "crates/unlisted/Cargo.toml");
    }

    #[test]
    fn the_line_of_the_dependency_is_given() {
        let crates = [Crate::of("zodium-net", "net", &[("zodium-zeo", false)])];
        let text = "[dependencies]\nzodium-zeo-codec = \"1\"\nzodium-zeo.workspace = true\n";
        let violations = check_crate(&crates[0], &[Source::of("crates/net/Cargo.toml", text)]);
        assert_eq!(violations[0].line, 3);
    }
}
