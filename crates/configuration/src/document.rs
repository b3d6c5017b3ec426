//! Tests that docs/configuration.md has the settings and defaults that the readers know.

use std::path::Path;

use crate::error::{ConfigurationError, Warning};
use crate::model::{Configuration, ServerOptions};
use crate::surroundings::Surroundings;
use crate::{parse_toml, parse_zeo_conf, toml_file, zeo_conf};

const DOCUMENT: &str = include_str!("../../../docs/configuration.md");

fn surroundings() -> Surroundings<'static> {
    Surroundings { directory: "/srv".into(), environment: &|_| None }
}

fn toml(text: &str) -> Configuration {
    read(parse_toml(text, Path::new("zodium.toml"), &surroundings()), text)
}

fn read(
    parsed: Result<(Configuration, Vec<Warning>), ConfigurationError>,
    text: &str,
) -> Configuration {
    parsed.unwrap_or_else(|error| panic!("{text}\n{error}")).0
}

/// The fenced code blocks in a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    let blocks = DOCUMENT.split(&fence).skip(1);
    blocks.filter_map(|block| block.split("```").next()).collect()
}

/// The settings in the table below a heading, each with its default.
fn rows(heading: &str) -> Vec<(&'static str, &'static str)> {
    let (_, section) = DOCUMENT.split_once(&format!("### `{heading}`\n")).unwrap();
    let section = section.split("\n#").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| {
        let (name, rest) = row.split_once("` | ").unwrap();
        (name, rest.split(" | ").next().unwrap_or_default())
    })
    .collect()
}

#[test]
fn the_document_has_the_settings_of_toml() {
    for (heading, known) in toml_file::KNOWN {
        let named = rows(heading);
        for key in *known {
            assert!(named.iter().any(|(name, _)| name == key), "{heading} lacks `{key}`");
        }
        for (name, _) in named {
            assert!(known.contains(&name), "{heading}: `{name}` is not known");
        }
    }
}

#[test]
fn the_document_has_the_settings_and_sections_of_zeo_conf() {
    let (_, chapter) = DOCUMENT.split_once("\n## `zeo.conf`\n").unwrap();
    for (section, known) in zeo_conf::KNOWN {
        assert!(chapter.contains(&format!("`<{section}>`")), "<{section}>");
        for key in *known {
            assert!(chapter.contains(&format!("`{key}`")), "<{section}>: `{key}`");
        }
    }
}

#[test]
fn defaults_are_as_the_document_has_them() {
    for (heading, required) in [
        ("[server]", ""),
        ("[[storage]]", "path = 'Data.fs'\n"),
        ("[storage.pack]", "at = '00:00'\n"),
        ("[log]", ""),
    ] {
        let parent = if heading == "[storage.pack]" { "[[storage]]\nmemory = true\n" } else { "" };
        let bare = format!("{parent}{heading}\n{required}");
        let defaults: String = rows(heading)
            .iter()
            .filter_map(|(name, cell)| Some((name, cell.strip_prefix('`')?.strip_suffix('`')?)))
            .map(|(name, default)| format!("{name} = {default}\n"))
            .collect();
        assert!(!defaults.is_empty(), "{heading}");
        assert_eq!(toml(&bare), toml(&format!("{bare}{defaults}")), "{heading}");
    }
    assert_eq!(toml("").server, ServerOptions::default());
}

#[test]
fn the_examples_are_read_and_say_the_same_in_both_formats() {
    let (in_toml, in_zconfig) = (blocks("toml"), blocks("conf"));
    let configurations: Vec<_> = in_toml.iter().map(|text| toml(text)).collect();
    let parsed = parse_zeo_conf(in_zconfig[0], Path::new("zeo.conf"), &surroundings());
    assert_eq!(configurations[0], read(parsed, in_zconfig[0]));
    // Settings that are in no example are rarely needed.
    for (_, known) in toml_file::KNOWN {
        let shown = |key: &&&str| in_toml.iter().any(|text| text.contains(&format!("{key} = ")));
        assert!(known.iter().filter(shown).count() * 2 >= known.len(), "{known:?}");
    }
}
