//! Reads either format, recognised by the file's name or its first line.

use std::path::Path;

use crate::error::{ConfigurationError, Warning};
use crate::model::Configuration;
use crate::source::Source;
use crate::surroundings::Surroundings;
use crate::{toml_file, zeo_conf};

/// Reads a configuration: TOML if the file's name ends in `.toml`, ZConfig if it ends in `.conf` or
/// `.zcml`. Otherwise its first line that is not empty or a comment decides.
///
/// # Errors
///
/// The file cannot be read, or as [`crate::parse_toml`] and [`crate::parse_zeo_conf`].
pub fn read(path: &Path) -> Result<(Configuration, Vec<Warning>), ConfigurationError> {
    let surroundings = Surroundings::of_this_process()?;
    let source = Source::read(path)?;
    if is_toml(path, &source.text) {
        toml_file::interpret(source, &surroundings)
    } else {
        zeo_conf::interpret(&source, &surroundings)
    }
}

fn is_toml(path: &Path, text: &str) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension.map(str::to_ascii_lowercase).as_deref() {
        Some("toml") => true,
        Some("conf" | "zcml") => false,
        _ => {
            let mut lines = text.lines().map(str::trim);
            let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
            // ZConfig begins with a section or a directive, TOML with a table or a setting.
            let is_zconfig = |line: &str| line.starts_with(['<', '%']);
            first.is_some_and(|line| !is_zconfig(line) && line.contains(['[', '=']))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_apart_by_name_and_by_content() {
        for (name, text, expected) in [
            ("zodium.toml", "<zeo>", true),
            ("zeo.conf", "[server]", false),
            ("zeo", "# [zeo]\n\n <zeo>\n", false),
            ("zeo", "%define a = b\n<zeo>\n", false),
            ("zodium", "# <zeo>\n[server]\n", true),
            ("zodium", "log = {}\n", true),
            ("empty", "", false),
        ] {
            assert_eq!(is_toml(Path::new(name), text), expected, "{name} {text}");
        }
    }
}
