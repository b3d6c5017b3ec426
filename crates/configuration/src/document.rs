//! The tables of settings in docs/configuration.md, made of the table of settings.
//!
//! To rewrite the document after a change of a setting, run
//! `ZODIUM_WRITE_DOCUMENT=1 cargo test -p zodium-configuration document`.

use crate::settings::description::Description;
use crate::settings::kinds::Word;
use crate::settings::{SETTINGS, Setting, Settings};

/// Replaces the tables of settings in a document, each below the heading of its table of TOML.
#[must_use]
pub fn with_settings(document: &str) -> String {
    let mut settings = None;
    let mut lines = Vec::new();
    for line in document.lines() {
        if line.starts_with('#') {
            let header = line.trim_start_matches(['#', ' ']).trim_matches('`');
            settings = SETTINGS.iter().find(|settings| settings.header == header);
        }
        match settings {
            Some(of_table) if line.starts_with("| setting |") => {
                lines.extend(table(of_table));
            }
            Some(_) if line.starts_with('|') => {}
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n") + "\n"
}

fn table(settings: &Settings) -> Vec<String> {
    let title = format!("| setting | default | `{}` | option | meaning |", settings.zeo_conf);
    let rows = settings.settings.iter().map(row);
    [title, "|---|---|---|---|---|".to_owned()].into_iter().chain(rows).collect()
}

fn row(setting: &Setting) -> String {
    let description = setting.description;
    let default = match &setting.default {
        _ if description.is_required => "required".to_owned(),
        _ if !description.otherwise.is_empty() => description.otherwise.to_owned(),
        Some(value) => format!("`{value}`"),
        None => "none".to_owned(),
    };
    let zeo_conf = match description.zeo_conf {
        "" => description.elsewhere.to_owned(),
        name => format!("`{name}`"),
    };
    let key = format!("`{}`", description.key);
    let cells = [key, default, zeo_conf, option(description), meaning(setting)];
    let cells = cells.map(|cell| if cell.is_empty() { cell } else { format!("{cell} ") });
    format!("| {}|", cells.join("| "))
}

fn option(description: &Description) -> String {
    match (description.option, description.env) {
        ("", _) => String::new(),
        (option, "") => format!("`--{option}`"),
        (option, variable) => format!("`--{option}`, `{variable}`"),
    }
}

fn meaning(setting: &Setting) -> String {
    let mut paragraphs = setting.description.paragraphs();
    if setting.values.is_list
        && let Some(first) = paragraphs.first_mut()
    {
        first.push_str("; a list");
    }
    let words = &setting.values.words;
    let separator = if words.iter().all(|(_, meaning)| meaning.is_empty()) { ", " } else { "; " };
    let words: Vec<_> = words.iter().map(word).collect();
    if !words.is_empty() {
        paragraphs.push(words.join(separator));
    }
    let meaning = paragraphs.join(". ").replace(".. ", ". ");
    linked(&meaning)
}

fn word((word, meaning): &Word) -> String {
    let separator = if meaning.is_empty() { "" } else { ": " };
    format!("`\"{word}\"`{separator}{meaning}")
}

/// A text with links to the documents that it names.
fn linked(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let name = word.strip_prefix("docs/").map(|name| name.trim_end_matches('.'));
        let end = if word.ends_with('.') { "." } else { "" };
        name.map_or_else(|| word.to_owned(), |name| format!("[{name}]({name}){end}"))
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::error::{ConfigurationError, Warning};
    use crate::model::Configuration;
    use crate::settings::server::ServerOptions;
    use crate::surroundings::Surroundings;
    use crate::{parse_toml, parse_zeo_conf, zeo_conf};

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

    #[test]
    fn the_document_is_made_of_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        let expected = with_settings(DOCUMENT);
        if std::env::var_os("ZODIUM_WRITE_DOCUMENT").is_some() {
            std::fs::write(path, expected).unwrap();
            return;
        }
        let differing = expected.lines().zip(DOCUMENT.lines()).find(|(line, other)| line != other);
        assert!(
            expected == DOCUMENT,
            "{differing:#?}: rewrite it with \
             ZODIUM_WRITE_DOCUMENT=1 cargo test -p zodium-configuration document"
        );
        for Settings { header, .. } in SETTINGS.iter() {
            assert!(DOCUMENT.contains(&format!("### `{header}`\n")), "{header} is missing");
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
        for setting in SETTINGS.iter().flat_map(|settings| &settings.settings) {
            let key = setting.description.zeo_conf;
            assert!(chapter.contains(&format!("`{key}`")) || key.is_empty(), "`{key}`");
        }
    }

    #[test]
    fn defaults_are_read_as_they_are_written() {
        for (header, required) in [
            ("[server]", ""),
            ("[[storage]]", "path = 'Data.fs'\n"),
            ("[storage.pack]", "at = '00:00'\n"),
            ("[log]", ""),
        ] {
            let parent =
                if header == "[storage.pack]" { "[[storage]]\nmemory = true\n" } else { "" };
            let bare = format!("{parent}{header}\n{required}");
            let settings = SETTINGS.iter().find(|settings| settings.header == header).unwrap();
            let optional =
                settings.settings.iter().filter(|setting| setting.description.otherwise.is_empty());
            let defaults: String = optional
                .filter_map(|setting| Some((setting.description.key, setting.default.as_ref()?)))
                .map(|(key, default)| format!("{key} = {default}\n"))
                .collect();
            assert!(!defaults.is_empty(), "{header}");
            assert_eq!(toml(&bare), toml(&format!("{bare}{defaults}")), "{header}");
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
        for Settings { header, settings, .. } in SETTINGS.iter() {
            let keys = settings.iter().map(|setting| setting.description.key);
            let is_shown = |key: &&str| in_toml.iter().any(|t| t.contains(&format!("{key} = ")));
            assert!(keys.filter(is_shown).count() * 2 >= settings.len(), "{header}");
        }
    }
}
