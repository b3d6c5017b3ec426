//! Configurations in both formats.

use std::path::Path;

use zodium_configuration::{Surroundings, parse_toml, parse_zeo_conf};

use super::{Target, linear};

pub(super) const ZCONFIG: Target = Target {
    name: "zconfig",
    seeds: || {
        let files: [&str; 5] = [
            include_str!("../../../configuration/tests/accepted/erp5.conf"),
            include_str!("../../../configuration/tests/accepted/plone_buildout.conf"),
            include_str!("../../../configuration/tests/accepted/minimal.conf"),
            "%define a $b\n%define b $a\n<zeo>\naddress $a$(HOME|x)\n</zeo>\n",
            "<zeo>\n  <zeo>\n address [::1]:1\n</zeo>\n<filestorage 1/>\n%include x.conf\n",
        ];
        files.iter().map(|text| text.as_bytes().to_vec()).collect()
    },
    check: |input| check(input, true),
    memory_bytes_max: memory,
};

pub(super) const TOML: Target = Target {
    name: "toml",
    seeds: || {
        let files: [&str; 3] = [
            include_str!("../../../configuration/tests/accepted/every_setting.toml"),
            include_str!("../../../configuration/tests/accepted/plone_buildout.toml"),
            include_str!("../../../configuration/tests/accepted/minimal.toml"),
        ];
        files.iter().map(|text| text.as_bytes().to_vec()).collect()
    },
    check: |input| check(input, false),
    memory_bytes_max: memory,
};

/// The parsers are made for small files, and keep much for each byte.
fn memory(length: usize) -> usize {
    (16 << 20) + 4 * linear(length)
}

/// An accepted configuration can be checked and written as TOML, where it means the same.
fn check(input: &[u8], is_zconfig: bool) {
    let text = String::from_utf8_lossy(input);
    let environment = |name: &str| (name == "HOME").then(|| "/srv/zodium".to_owned());
    let surroundings = Surroundings { directory: "/nowhere".into(), environment: &environment };
    let parse = if is_zconfig { parse_zeo_conf } else { parse_toml };
    let parsed = parse(&text, Path::new("/nowhere/server.conf"), &surroundings);
    let configuration = match parsed {
        Ok((configuration, _)) => configuration,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let problems = configuration.check();
    drop(problems);
}
