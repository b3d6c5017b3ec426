//! Realistic configurations: each `accepted/NAME.conf` means the same as `NAME.toml` beside it, and
//! each `refused/NAME.conf` is rejected as its first line says.
//!
//! The same files are read by ZConfig in tests/e2e/test_configuration_agrees.py.

use std::path::{Path, PathBuf};

use zodium_configuration::{
    Configuration, ConfigurationError, Mistake, Surroundings, Warning, parse_toml, parse_zeo_conf,
};

/// The same as in tests/e2e/test_configuration_agrees.py.
const VARIABLES: [(&str, &str); 3] =
    [("HOME", "/srv/zope"), ("ZEO_PORT", "8765"), ("ZODIUM_KEY_PASSWORD", "secret")];

const DIRECTORY: &str = "/srv/zeo";

type Parsed = Result<(Configuration, Vec<Warning>), ConfigurationError>;

fn files(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(directory);
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|e| e == "conf")).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn parse(path: &Path) -> Parsed {
    let environment = |name: &str| {
        let variable = VARIABLES.iter().find(|(variable, _)| *variable == name);
        variable.map(|(_, value)| (*value).to_owned())
    };
    let surroundings = Surroundings { directory: DIRECTORY.into(), environment: &environment };
    parse_zeo_conf(&std::fs::read_to_string(path).unwrap(), path, &surroundings)
}

fn parse_as_toml(text: &str) -> Parsed {
    let surroundings = Surroundings { directory: DIRECTORY.into(), environment: &|_| None };
    parse_toml(text, Path::new("zodium.toml"), &surroundings)
}

fn mistakes(parsed: Parsed) -> Vec<Mistake> {
    match parsed {
        Err(ConfigurationError::Mistakes(mistakes)) => mistakes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_formats_say_the_same() {
    for path in files("accepted") {
        let (read, _) = parse(&path).unwrap_or_else(|error| panic!("{error}"));
        let toml = std::fs::read_to_string(path.with_extension("toml")).unwrap();
        let (expected, _) = parse_as_toml(&toml).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read, expected, "{}", path.display());
        let written = read.to_toml().unwrap();
        let (again, _) = parse_as_toml(&written).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read, again, "{written}");
    }
}

#[test]
fn what_is_refused_is_shown_with_its_line_and_a_way_out() {
    for path in files("refused") {
        let text = std::fs::read_to_string(&path).unwrap();
        let first = text.lines().next().unwrap().strip_prefix("# refused at line ").unwrap();
        let (line, expected) = first.split_once(": ").unwrap();
        let mistakes = mistakes(parse(&path));
        let shown = mistakes.iter().map(Mistake::to_string).collect::<Vec<_>>().join("\n\n");
        assert_eq!(mistakes.len(), 1, "{shown}");
        assert_eq!(mistakes[0].place.line().to_string(), line, "{shown}");
        assert!(mistakes[0].to_string().contains(expected), "{expected}:\n{shown}");
    }
}

#[test]
fn what_is_ignored_is_warned_of() {
    let path = |name: &str| files("accepted").into_iter().find(|path| path.ends_with(name));
    for (name, expected) in [
        ("minimal.conf", &[][..]),
        ("plone_buildout.conf", &["zdaemon", "logrotate", "format: ignored"][..]),
        ("every_setting.conf", &["zdaemon", "logrotate", "delay: ignored", "empty file"][..]),
        (
            "logs.conf",
            &["`%import some.handlers` is ignored", "<syslog> is ignored", "from warn on"][..],
        ),
    ] {
        let (_, warnings) = parse(&path(name).unwrap()).unwrap();
        let shown: Vec<_> = warnings.iter().map(Warning::to_string).collect();
        assert_eq!(shown.len(), expected.len(), "{name}: {shown:#?}");
        for expected in expected {
            assert!(shown.iter().any(|warning| warning.contains(expected)), "{shown:#?}");
        }
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text = "<zeo>\n  adress 1\n  address x\n  msgpack perhaps\n</zeo>\n<filestorage 1>\n\
                quota 1x\n</filestorage>\n<relstorage 2/>\n";
    let surroundings = Surroundings { directory: DIRECTORY.into(), environment: &|_| None };
    let mistakes = mistakes(parse_zeo_conf(text, Path::new("zeo.conf"), &surroundings));
    let lines: Vec<_> = mistakes.iter().map(|mistake| mistake.place.line()).collect();
    assert_eq!(lines, [2, 3, 4, 6, 7, 9]);
}

#[test]
fn only_sections_that_are_served_are_offered() {
    let refused = |kind: &str| {
        let text = format!("<zeo>\naddress 1\n</zeo>\n<{kind}/>\n");
        let surroundings = Surroundings { directory: DIRECTORY.into(), environment: &|_| None };
        let path = Path::new("zeo.conf");
        mistakes(parse_zeo_conf(&text, path, &surroundings))[0].to_string()
    };
    let unknown = refused("accesslog");
    let known = "zeo, filestorage, blobstorage, mappingstorage, eventlog, runner";
    assert!(unknown.ends_with(&format!("known here: {known}")), "{unknown}");
    assert!(refused("zlibstorag").contains("did you mean `zlibstorage`?"));
    for (kind, expected) in [
        ("primary", "serve the storage in it"),
        ("secondary", "serve the storage in it"),
        ("serverencryptingstorage", "with `pack-gc off`"),
        ("zlibstorage", "with `pack-gc off`"),
    ] {
        let message = refused(kind);
        assert!(message.contains(&format!("a <{kind}> is not served")), "{message}");
        assert!(message.contains(expected) && !message.contains("known here"), "{message}");
    }
}

#[test]
fn mistakes_in_an_included_file_are_shown_there() {
    let directory = tempfile::tempdir().unwrap();
    let part = directory.path().join("part.conf");
    std::fs::write(&part, "\n  adress 8100\n").unwrap();
    let path = directory.path().join("zeo.conf");
    std::fs::write(&path, "<zeo>\n%include part.conf\n</zeo>\n<mappingstorage/>\n").unwrap();
    let error = zodium_configuration::read(&path).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}:2:3: ", part.display())), "{error}");
    std::fs::write(&part, "</zeo>").unwrap();
    let error = zodium_configuration::read(&path).unwrap_err().to_string();
    assert!(error.contains("part.conf:1:1: no section is open here"), "{error}");
}

#[test]
fn a_file_may_be_given_as_a_url() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["zeo.conf", "zeo"] {
        std::fs::write(directory.path().join("part"), "address 8100\n").unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, "<zeo>\n%include part\n</zeo>\n<mappingstorage/>\n").unwrap();
        let url = format!("file://{}", path.display());
        let (configuration, _) = zodium_configuration::read(Path::new(&url)).unwrap();
        assert_eq!(configuration, zodium_configuration::read(&path).unwrap().0);
    }
}

#[test]
fn a_password_function_needs_the_password() {
    let path = files("accepted").into_iter().find(|path| path.ends_with("tls.conf")).unwrap();
    let text = std::fs::read_to_string(&path).unwrap().replace('~', "");
    let surroundings = Surroundings { directory: DIRECTORY.into(), environment: &|_| None };
    let mistakes = mistakes(parse_zeo_conf(&text, &path, &surroundings));
    assert!(mistakes[0].to_string().contains("ZODIUM_KEY_PASSWORD"), "{mistakes:?}");
    assert_eq!(mistakes.len(), 1);
}

#[test]
fn what_runzeo_takes_from_the_environment_is_taken_too() {
    let text = "<zeo>\naddress 1\n</zeo>\n<mappingstorage/>\n";
    let home = tempfile::tempdir().unwrap();
    let environment = |name: &str| match name {
        "ZEO_MSGPACK" => Some("1".to_owned()),
        "INSTANCE_HOME" => home.path().to_str().map(str::to_owned),
        _ => None,
    };
    let surroundings = Surroundings { directory: DIRECTORY.into(), environment: &environment };
    let parse = |text: &str| parse_zeo_conf(text, Path::new("zeo.conf"), &surroundings).unwrap();
    // Without the folder a file in it could not be written.
    assert_eq!(parse(text).0.server.pid_file, None);
    std::fs::create_dir(home.path().join("var")).unwrap();
    let (configuration, warnings) = parse(text);
    let expected = format!(
        "[server]\naddress = '1'\nencoding = 'msgpack'\npid-file = '{}/var/ZEO.pid'\n\
         [[storage]]\nmemory = true\n",
        home.path().display()
    );
    assert_eq!(configuration, parse_as_toml(&expected).unwrap().0);
    assert!(warnings[0].to_string().contains("ZEO_MSGPACK"), "{warnings:?}");
    let (configuration, warnings) = parse(&text.replace("</zeo>", "msgpack off\n</zeo>"));
    assert!(!configuration.to_toml().unwrap().contains("msgpack") && warnings.is_empty());
}
