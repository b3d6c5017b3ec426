//! TOML: rejected texts, with the place and advice of each mistake; the base of relative paths.

use std::path::{Path, PathBuf};

use zodium_configuration::{
    Configuration, ConfigurationError, LogDestination, StorageKind, Surroundings, is_toml,
    parse_toml, read,
};
use zodium_types::Address;

fn parse(text: &str, path: &str) -> Result<Configuration, ConfigurationError> {
    let surroundings = Surroundings { directory: "/srv".into(), environment: &|_| None };
    parse_toml(text, Path::new(path), &surroundings).map(|(configuration, _)| configuration)
}

/// The report of each mistake in a text.
fn refused(text: &str) -> Vec<String> {
    match parse(text, "a.toml") {
        Err(ConfigurationError::Mistakes(mistakes)) => {
            mistakes.iter().map(|mistake| mistake.to_string()).collect()
        }
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn a_file_that_is_begun_anew_at_each_start_is_warned_of() {
    let surroundings = Surroundings { directory: "/srv".into(), environment: &|_| None };
    let text = "[[storage]]\npath = 'Data.fs'\ntruncate = ";
    for (is_on, expected) in [("true", 1), ("false", 0)] {
        let read = parse_toml(&format!("{text}{is_on}\n"), Path::new("a.toml"), &surroundings);
        let (_, warnings) = read.unwrap();
        assert_eq!(warnings.len(), expected, "{warnings:?}");
        for warning in warnings {
            let shown = warning.to_string();
            assert!(shown.contains("a.toml:3") && shown.contains("empty file at each start"));
        }
    }
}

#[test]
fn files_in_toml_are_known_by_their_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.conf");
    for (text, expected) in [
        ("[server]\naddress = '8100'\n", true),
        ("[servr]\n", true),
        ("<zeo>\n  address 8100\n</zeo>\n", false),
        ("[server\n", false),
        ("", false),
    ] {
        std::fs::write(&path, text).unwrap();
        assert_eq!(is_toml(&path), expected, "{text}");
    }
    assert!(!is_toml(&folder.path().join("missing.toml")));
}

#[test]
fn a_node_is_written_as_it_is_read() {
    let text = "[neo-storage]\ncluster = 'a'\nmasters = ['b:1', 'c:2']\nadapter = 'SQLite'\n\
         database = 'd.sqlite'\nwait = -1\nnid = 5\ndisable-pack = true\nkey = 'e'\n";
    let node = parse(text, "folder/a.toml").unwrap();
    assert_eq!(node.neo_storage.as_ref().unwrap().database, "/srv/folder/d.sqlite");
    let written = node.to_toml().unwrap();
    assert!(!written.contains("[server]"), "{written}");
    assert_eq!(parse(&written, "other/b.toml").unwrap(), node);
    let uri = "[neo-storage]\ncluster = 'a'\ndatabase = 'file:a?b=c'\n";
    assert_eq!(parse(uri, "a.toml").unwrap().neo_storage.unwrap().database, "file:a?b=c");
    let both = format!("{uri}[[storage]]\nmemory = true\n");
    let problems = parse(&both, "a.toml").unwrap().check();
    assert!(problems[0].to_string().contains("two files"), "{problems:?}");
    let login = "[neo-storage]\ncluster = 'a'\ndatabase = 'b:c@d'\n";
    let problems = parse(login, "a.toml").unwrap().check();
    assert!(problems[0].to_string().contains("give the `adapter`, mysql"), "{problems:?}");
    for (adapter, expected) in [("mysql", "b:c@d"), ("sqlite", "/srv/b:c@d")] {
        let clear = parse(&format!("{login}adapter = '{adapter}'\n"), "a.toml").unwrap();
        assert_eq!(clear.neo_storage.as_ref().unwrap().database, expected);
        assert_eq!(clear.check(), []);
    }
    for (line, expected) in [
        ("adapter = 'importer'", "into the running cluster with a client"),
        ("engine = 'InnoDB'", "databases in SQLite have no engine"),
        ("masters = []", "`masters` names no master"),
        ("masters = ' '", "`masters` names no master"),
    ] {
        let problems = parse(&format!("{uri}{line}\n"), "a.toml").unwrap().check();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].to_string().contains(expected), "{problems:?}");
    }
    for (text, expected) in [
        ("[neo-storage]\ncluster = 'a'\n", "needs `database`"),
        ("[neo-storage]\ncluster = 'a'\ndatabase = 'b'\nnew-nid = true\n", "unknown setting"),
        ("[neo-storage]\ncluster = 'a'\ndatabase = 'b'\nadapter = 'MySQLite'\n", "is none of"),
    ] {
        assert!(refused(text)[0].contains(expected), "{text}: {:?}", refused(text));
    }
}

#[test]
fn each_mistake_is_shown_at_its_line_and_column() {
    for (text, place, expected) in [
        ("[serve]\n", "1:2", "did you mean `server`?"),
        ("[server]\n\nadress = '8100'\n", "3:1", "did you mean `address`?"),
        ("[server]\nread_only = true\n", "2:1", "did you mean `read-only`?"),
        ("[server]\naddress = '8100\n", "2:16", "literal string"),
        ("[server]\naddress = ['8100', 'x']\n", "2:20", "\"x\" is not an address"),
        ("[server]\nencoding = 'msgpak'\n", "2:12", "did you mean \"msgpack\""),
        ("[server]\ninvalidation-queue-size = -1\n", "2:27", "not below zero"),
        ("[server]\nworkers = 0\n", "2:11", "from 1 to 1024"),
        ("[server]\nworkers = 65535\n", "2:11", "from 1 to 1024"),
        ("[server]\nconnections-max = 0\n", "2:19", "from 1 to"),
        ("[server]\nmessage-size-max = 1023\n", "2:20", "1024 bytes or more"),
        ("[server]\nbusy-poll = 50\n", "2:13", "from 1us to 1s"),
        ("[neo-master]\ncluster = 'a'\npartitions = 0\n", "3:14", "from 1 to 1000000"),
        ("[neo-master]\ncluster = 'a'\npartitions = 1000001\n", "3:14", "from 1 to 1000000"),
        ("[server]\nread-only = 'yes'\n", "2:13", "not a string"),
        ("[server]\ntransaction-timeout = '5 min'\n", "2:23", "\"5m\""),
        ("[server]\nmessage-size-max = '4GiB'\n", "2:20", "shorter than 4 GiB"),
        ("[server]\ntls = 'certificate.pem'\n", "2:7", "begin it with [server.tls]"),
        ("[server.tls]\ncertificate = 'a'\n", "1:1", "needs `authenticate`"),
        ("[server.tls]\ncertifcate = 'a'\nauthenticate = 'b'\n", "2:1", "`certificate`?"),
        (
            "[server.tls]\ncertificate = 'a'\nauthenticate = 'b'\nkey-password-file = 'c'\n\
             key-password-environment = 'D'\n",
            "5:28",
            "not in both",
        ),
        ("[storage]\npath = 'a'\n", "1:1", "[[storage]]"),
        ("storage = ['a']\n", "1:11", "[[storage]]"),
        ("[[storage]]\nname = 'a'\n", "1:1", "`memory = true`"),
        ("[[storage]]\nmemory = true\npath = 'a'\n", "2:10", "has no file"),
        ("[[storage]]\npath = ''\n", "2:8", "is not a path"),
        ("[[storage]]\npath = 'a'\nquota = '10 MiBs'\n", "3:9", "give a size"),
        ("[[storage]]\npath = 'a'\nallow = [5]\n", "3:10", "give a string"),
        ("[[storage]]\npath = 'a'\n[storage.pack]\nat = '25:00'\n", "4:6", "\"23:59\""),
        (
            "[[storage]]\npath = 'a'\n[storage.pack]\nat = '1:00'\non = 'sundy'\n",
            "5:6",
            "did you mean \"sunday\"",
        ),
        ("[[storage]]\npath = 'a'\n[storage.pack]\non = 'sunday'\n", "4:6", "at = \"03:30\""),
        (
            "[[storage]]\npath = 'a'\n[storage.pack]\nat = '1:00'\nkeep-days = -1\n",
            "5:13",
            "not below zero",
        ),
        ("[log]\nlevel = 'inof'\n", "2:9", "did you mean \"info\""),
        ("[log]\nformat = 'xml'\n", "2:10", "human, json"),
        ("[monitor]\n", "1:1", "needs `address`"),
    ] {
        let mistakes = refused(text);
        assert_eq!(mistakes.len(), 1, "{mistakes:#?}");
        let mistake = &mistakes[0];
        assert!(mistake.starts_with(&format!("a.toml:{place}: ")), "{place}: {mistake}");
        assert!(mistake.contains(expected), "{expected}: {mistake}");
    }
}

#[test]
fn all_mistakes_are_shown_at_once_and_in_order() {
    let text = "[server]\nworkers = -1\nx = 1\n[log]\nlevel = 5\n[monitor]\naddress = 'y'\n";
    let mistakes = refused(text);
    for (mistake, place) in mistakes.iter().zip(["2:11", "3:1", "5:9", "7:11"]) {
        assert!(mistake.starts_with(&format!("a.toml:{place}: ")), "{mistake}");
    }
    assert_eq!(mistakes.len(), 4, "{mistakes:#?}");
}

#[test]
fn a_mistake_looks_as_compilers_show_it() {
    let expected = [
        "a.toml:2:3: unknown setting `lvl` in [log]",
        "  |",
        "2 |   lvl = 'info'",
        "  |   ^^^",
        "  = known here: to, format, level",
    ]
    .join("\n");
    assert_eq!(refused("[log]\n  lvl = 'info'\n"), [expected]);
}

#[test]
fn paths_begin_at_the_directory_of_the_file() {
    let text = "[server]\naddress = ['8100', './zeo.sock']\n[[storage]]\npath = 'var/Data.fs'\n\
                blob-directory = '/blobs'\n[log]\nto = ['stderr', './stderr', 'zeo.log']\n";
    for (file, directory) in [("etc/zodium.toml", "/srv/etc"), ("/etc/zodium.toml", "/etc")] {
        let configuration = parse(text, file).unwrap();
        let below = |path: &str| -> PathBuf { Path::new(directory).join(path) };
        assert_eq!(configuration.server.addresses[1], Address::Unix(below("zeo.sock")));
        let kind = StorageKind::File { path: below("var/Data.fs"), truncate: false };
        assert_eq!(configuration.storages[0].kind, kind);
        assert_eq!(configuration.storages[0].blob_directory, Some("/blobs".into()));
        let files = ["stderr", "zeo.log"].map(|name| LogDestination::File(below(name)));
        assert_eq!(configuration.log.destinations[0], LogDestination::Stderr);
        assert_eq!(configuration.log.destinations[1..], files);
    }
}

#[test]
fn storage_is_in_one_place() {
    let path = PathBuf::from("/srv/neo.sqlite");
    let cluster = Some("production".to_owned());
    for (lines, cluster) in [("", None), ("cluster = 'production'\n", cluster)] {
        let text = format!("[[storage]]\n{lines}sqlite = 'neo.sqlite'\n");
        let kind = StorageKind::Sqlite { path: path.clone(), cluster };
        assert_eq!(parse(&text, "/srv/zodium.toml").unwrap().storages[0].kind, kind);
    }
    for (lines, said) in [
        ("sqlite = 'a'\npath = 'b'", "in one place"),
        ("neo = 'neo://a@b:1'\npath = 'b'", "in one place"),
        ("neo = 'neo://a@b:1'\nmemory = true", "in one place"),
        ("sqlite = 'a'\nmemory = true", "in one place"),
        ("sqlite = 'a'\nneo = 'neo://a@b:1'", "in one place"),
        ("sqlite = 'a'\nmysql = 'mysql://a@b/c'", "in one place"),
        ("path = 'a'\ncluster = 'b'", "name of a cluster"),
    ] {
        let refused = refused(&format!("[[storage]]\n{lines}\n"));
        assert!(refused.iter().any(|message| message.contains(said)), "{refused:?}");
    }
}

#[test]
fn files_are_read_by_either_name() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["zodium.toml", "zodium"] {
        let path = directory.path().join(name);
        std::fs::write(&path, "[[storage]]\npath = 'Data.fs'\n").unwrap();
        let (configuration, warnings) = read(&path).unwrap();
        let kind = StorageKind::File { path: directory.path().join("Data.fs"), truncate: false };
        assert_eq!(configuration.storages[0].kind, kind);
        assert!(warnings.is_empty());
        assert_eq!(configuration.check(), []);
    }
}
