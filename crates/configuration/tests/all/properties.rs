//! Properties of any file: reading never panics, mistakes are at lines that the file has, and a
//! configuration can be written as TOML and read again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use zodium_configuration::{
    Checksums, ColdReads, Configuration, ConfigurationError, Encoding, FILE_BYTES_MAX, KeyPassword,
    LogDestination, LogFormat, LogOptions, MonitorOptions, PackOptions, PackSchedule, RespSync,
    ServerOptions, StorageKind, StorageOptions, Surroundings, TlsOptions, Warning, Weekday,
    parse_toml, parse_zeo_conf, read,
};
use zodium_types::Address;

type Parsed = Result<(Configuration, Vec<Warning>), ConfigurationError>;

#[derive(Clone, Copy, Debug)]
enum Format {
    ZeoConf,
    Toml,
}

fn parse(format: Format, text: &str) -> Parsed {
    let surroundings = Surroundings { directory: "/srv/zeo".into(), environment: &|_| None };
    match format {
        Format::ZeoConf => parse_zeo_conf(text, Path::new("zeo.conf"), &surroundings),
        Format::Toml => parse_toml(text, Path::new("zodium.toml"), &surroundings),
    }
}

/// Checks the properties of a text in either format.
fn check_any(format: Format, text: &str) {
    match parse(format, text) {
        Ok((configuration, _)) => {
            let written = configuration.to_toml().unwrap();
            let (again, _) =
                parse(Format::Toml, &written).unwrap_or_else(|error| panic!("{written}\n{error}"));
            assert_eq!(configuration, again, "{written}");
        }
        Err(ConfigurationError::Mistakes(mistakes)) => {
            assert!(!mistakes.is_empty());
            for mistake in &mistakes {
                let line = mistake.place.line();
                assert!((1..=text.lines().count().max(1)).contains(&line), "{mistake}");
                assert!(mistake.to_string().len() < 4_000, "{mistake}");
            }
        }
        Err(error) => panic!("{error}"),
    }
}

/// The valid files of both formats.
fn good() -> Vec<(Format, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/accepted");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let read = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
    let format = |path: &PathBuf| match path.extension()?.to_str()? {
        "conf" => Some(Format::ZeoConf),
        "toml" => Some(Format::Toml),
        _ => None,
    };
    files.iter().filter_map(|path| Some((format(path)?, read(path)))).collect()
}

/// Characters and words with a meaning in one of the formats.
fn piece() -> impl Strategy<Value = String> {
    let words = [
        "<",
        ">",
        "</",
        "/>",
        "%define a ",
        "%include x\n",
        "%import y\n",
        "$",
        "${a}",
        "$(A)",
        "\n",
        "\r\n",
        "#",
        " ",
        "\t",
        "=",
        "[",
        "]",
        "[[",
        "]]",
        "\"",
        "'",
        "\"\"\"",
        ".",
        ",",
        "{",
        "}",
        "-1",
        "0",
        "99999999999999999999",
        "1e999",
        "nan",
        "true",
        "off",
        "10MB",
        "\u{0}",
        "\u{1c}",
        "\u{85}",
        "\u{feff}",
        "\u{130}",
        "<zeo>",
        "</zeo>",
        "<filestorage 1>",
        "[server]",
        "[[storage]]",
        "address",
        "path",
        "quota",
        "tls",
    ];
    prop_oneof![
        4 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ]
}

/// A valid file with parts replaced.
fn mutated() -> impl Strategy<Value = (Format, String)> {
    let change = (any::<prop::sample::Index>(), 0..12_usize, vec(piece(), 0..3));
    (proptest::sample::select(good()), vec(change, 1..4)).prop_map(|((format, text), changes)| {
        let mut characters: Vec<char> = text.chars().collect();
        for (at, removed, pieces) in changes {
            let start = at.index(characters.len() + 1);
            let end = (start + removed).min(characters.len());
            characters.splice(start..end, pieces.concat().chars());
        }
        (format, characters.into_iter().collect())
    })
}

fn path() -> impl Strategy<Value = PathBuf> {
    "(/[a-zA-Z0-9 .\"'\\\\#$\u{e4}\n\t=]{1,8}){1,3}"
        .prop_map(|text| Path::new(&text).components().collect())
}

fn address() -> impl Strategy<Value = Address> {
    prop_oneof![
        ("[a-z0-9.-]{0,12}|::1|fe80::2", any::<u16>())
            .prop_map(|(host, port)| Address::Tcp { host, port }),
        path().prop_map(Address::Unix),
    ]
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0..1_000_000_u64).prop_map(Duration::from_secs),
        (0..100_u64).prop_map(|days| Duration::from_secs(days * 86_400)),
        (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
    ]
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), (0..64_u32).prop_map(|bits| 1 << bits), 0..1_000_u64]
}

fn tls() -> impl Strategy<Value = TlsOptions> {
    let password = prop_oneof![
        path().prop_map(KeyPassword::File),
        "[A-Z_]{1,8}".prop_map(KeyPassword::Environment),
    ];
    (path(), option::of(path()), option::of(password), path()).prop_map(
        |(certificate, key, key_password, authenticate)| TlsOptions {
            certificate,
            key,
            key_password,
            authenticate,
        },
    )
}

fn server() -> impl Strategy<Value = ServerOptions> {
    let limits = (option::of(1..=1024_u16), 0..=i64::MAX as usize, 1024..=u32::MAX);
    let busy_poll = (1_000..=1_000_000_000_u64).prop_map(Duration::from_nanos);
    let times = (option::of(duration()), option::of(duration()), option::of(busy_poll));
    let flags = any::<[bool; 5]>();
    let classes = vec("[*a-z.\"]{1,20}", 0..3);
    let files = (option::of(path()), option::of(tls()));
    let resp_files = (option::of(path()), option::of(path()), option::of(path()));
    let resp = (vec(address(), 0..3), resp_files);
    (vec(address(), 0..3), limits, times, flags, classes, files, resp).prop_map(
        |(
            addresses,
            (workers, queue, message),
            (age, timeout, busy_poll),
            flags,
            classes,
            (pid_file, tls),
            (resp_addresses, (resp_password_file, resp_file, resp_config)),
        )| {
            ServerOptions {
                addresses,
                resp_addresses,
                resp_password_file,
                resp_file,
                resp_config,
                resp_sync: flags[2].then_some(if flags[1] {
                    RespSync::Always
                } else {
                    RespSync::No
                }),
                encoding: if flags[0] { Encoding::Msgpack } else { Encoding::Pickle },
                read_only: flags[1],
                workers,
                balance: flags[4],
                busy_poll,
                cold_reads: if flags[2] { ColdReads::Auto } else { ColdReads::Ring },
                invalidation_queue_size: queue,
                invalidation_age: age,
                transaction_timeout: timeout,
                client_conflict_resolution: flags[2],
                resolvable_classes: classes,
                python_resolver: pid_file.clone().filter(|_| flags[0]),
                reopen_after_failure: flags[3],
                message_bytes_max: message,
                connections_max: (message % 3 == 0).then_some(message),
                memory_bytes_max: (message % 5 == 0).then_some(u64::from(message) << 8),
                handshake_time_max: Duration::from_secs(u64::from(message % 77)),
                pid_file,
                tls,
            }
        },
    )
}

fn pack() -> impl Strategy<Value = PackOptions> {
    let days = vec(proptest::sample::select(Weekday::ALL.to_vec()), 0..3);
    let keep = prop_oneof![Just(1.0), 0.0..1e6_f64];
    let schedule = ((0..24_u8, 0..60_u8), days, keep)
        .prop_map(|(at, on, keep_days)| PackSchedule { at, on, keep_days });
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (flags, option::of(schedule)).prop_map(|(flags, schedule)| PackOptions {
        garbage_collection: flags.0,
        keep_old: flags.1,
        abort_on_dangling: flags.2,
        schedule,
    })
}

fn storage() -> impl Strategy<Value = StorageOptions> {
    let kind = prop_oneof![
        Just(StorageKind::Memory),
        (path(), any::<bool>()).prop_map(|(path, truncate)| StorageKind::File { path, truncate }),
        (path(), option::of(any::<String>()))
            .prop_map(|(path, cluster)| StorageKind::Sqlite { path, cluster }),
        any::<String>().prop_map(|url| StorageKind::Neo { url }),
        any::<String>().prop_map(|url| StorageKind::Maria { url }),
    ];
    let allow = option::of(vec("\\PC{0,20}", 0..3));
    let sizes = (bytes(), option::of(bytes()));
    let checksums =
        proptest::sample::select(vec![Checksums::Full, Checksums::Commit, Checksums::Off]);
    let interval = option::of(1..10_000_u64).prop_map(|n| n.map(Duration::from_secs));
    let checksums = (checksums, interval);
    let flags = (any::<bool>(), checksums);
    (any::<String>(), kind, option::of(path()), flags, sizes, pack(), allow).prop_map(
        |(name, kind, blob_directory, flags, (cache_bytes, quota_bytes), pack, allow)| {
            let (read_only, (checksums, scrub_interval)) = flags;
            StorageOptions {
                name,
                kind,
                blob_directory,
                read_only,
                cache_bytes,
                quota_bytes,
                checksums,
                scrub_interval,
                pack,
                allow,
            }
        },
    )
}

fn log() -> impl Strategy<Value = LogOptions> {
    let destination = prop_oneof![
        Just(LogDestination::Stdout),
        Just(LogDestination::Stderr),
        path().prop_map(LogDestination::File),
    ];
    let level = proptest::sample::select(vec!["info", "debug", "warn,zodium_zeo=trace"]);
    (vec(destination, 0..3), any::<bool>(), level).prop_map(|(destinations, json, level)| {
        let format = if json { LogFormat::Json } else { LogFormat::Human };
        LogOptions { destinations, format, level: level.to_owned() }
    })
}

fn configuration() -> impl Strategy<Value = Configuration> {
    let monitor = option::of(address().prop_map(|address| MonitorOptions { address }));
    (server(), vec(storage(), 0..4), log(), monitor).prop_map(|(server, storages, log, monitor)| {
        Configuration { server, storages, log, monitor, ..Configuration::default() }
    })
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        check_any(Format::ZeoConf, &text);
        check_any(Format::Toml, &text);
    }

    #[test]
    fn any_words_are_read_or_refused(pieces in vec(piece(), 0..40)) {
        check_any(Format::ZeoConf, &pieces.concat());
        check_any(Format::Toml, &pieces.concat());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        let directory = tempfile::tempdir().unwrap();
        for name in ["zeo.conf", "zodium.toml"] {
            let path = directory.path().join(name);
            std::fs::write(&path, &bytes).unwrap();
            if let Err(error) = read(&path) {
                prop_assert!(error.to_string().starts_with(&*path.to_string_lossy()), "{error}");
            }
        }
    }

    #[test]
    fn good_files_with_changes_are_read_or_refused((format, text) in mutated()) {
        check_any(format, &text);
    }

    #[test]
    fn every_configuration_is_checked_written_and_read_again(configuration in configuration()) {
        for problem in configuration.check() {
            prop_assert!(!problem.message.is_empty() && !problem.advice.is_empty());
        }
        let text = configuration.to_toml().unwrap();
        match parse(Format::Toml, &text) {
            Ok((read, _)) => prop_assert_eq!(configuration, read, "{}", text),
            Err(error) => prop_assert!(false, "{text}\n{error}"),
        }
    }
}

/// The only mistake of a text.
fn mistake(format: Format, text: &str) -> String {
    let error = parse(format, text).unwrap_err().to_string();
    assert!(error.len() < 1_000, "{error}");
    error
}

#[test]
fn nesting_has_an_end() {
    let sections = "<zeo>\n".repeat(100_000);
    assert!(mistake(Format::ZeoConf, &sections).contains("sections in sections"));
    let lists = format!("log = {}", "[".repeat(100_000));
    assert!(mistake(Format::Toml, &lists).contains("zodium.toml:1:"));
    let tables = format!("{}x = 1", "a.".repeat(100_000));
    assert!(mistake(Format::Toml, &tables).contains("zodium.toml:1:"));
}

#[test]
fn definitions_of_definitions_have_an_end() {
    let mut text = "%define a 0123456789\n".to_owned();
    for (name, before) in ('b'..='z').zip('a'..) {
        text.push_str(&format!("%define {name} {}\n", format!("${before}").repeat(10)));
    }
    assert!(mistake(Format::ZeoConf, &text).contains("longer than 65536 bytes"));
    let long = format!("%define a {}\n{}", "x".repeat(60_000), "b $a\n".repeat(100_000));
    assert!(mistake(Format::ZeoConf, &long).contains("more than 16777216 bytes"));
}

#[test]
fn mistakes_without_number_are_not_all_shown() {
    let text = "wrong 1\n".repeat(100_000);
    assert!(parse(Format::ZeoConf, &text).unwrap_err().to_string().len() < 10_000);
    let text: String = (0..50_000).map(|number| format!("wrong{number} = 1\n")).collect();
    assert!(parse(Format::Toml, &text).unwrap_err().to_string().len() < 10_000);
}

#[test]
fn files_have_a_longest_length() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("zeo.conf");
    std::fs::write(&path, vec![b'#'; FILE_BYTES_MAX as usize + 1]).unwrap();
    assert!(matches!(read(&path), Err(ConfigurationError::TooLong { .. })));
    assert!(matches!(read(directory.path()), Err(ConfigurationError::Unreadable { .. })));
}

#[test]
fn files_that_include_each_other_many_times_have_an_end() {
    let directory = tempfile::tempdir().unwrap();
    let text = |next: usize| format!("%include {next}.conf\n").repeat(1_000);
    for number in 0..8 {
        std::fs::write(directory.path().join(format!("{number}.conf")), text(number + 1)).unwrap();
    }
    std::fs::write(directory.path().join("8.conf"), "#".repeat(1 << 20)).unwrap();
    let error = read(&directory.path().join("0.conf")).unwrap_err().to_string();
    assert!(error.contains("more than 16777216 bytes"), "{error}");
}
