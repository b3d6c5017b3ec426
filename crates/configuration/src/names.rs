//! Unknown names, and the nearest known one.

use crate::error::Mistake;
use crate::source::Place;

/// The mistake of an unknown setting or section, with a suggestion.
pub(crate) fn unknown(place: Place, message: String, name: &str, known: &[&str]) -> Mistake {
    unknown_beside(&[], place, message, name, known)
}

/// As [`unknown`]; `refused` may be meant too, and are no help.
pub(crate) fn unknown_beside(
    refused: &[&str],
    place: Place,
    message: String,
    name: &str,
    known: &[&str],
) -> Mistake {
    let mistake = Mistake::new(place, message);
    let mistake = match nearest(name, &[known, refused].concat()) {
        Some(nearest) => mistake.help(format!("did you mean `{nearest}`?")),
        None => mistake,
    };
    mistake.help(format!("known here: {}", known.join(", ")))
}

/// Longest name that is compared; the cost grows with its length.
const NAME_BYTES_MAX: usize = 64;

/// The known name that is most like a misspelt one.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    // Other styles of names are understood too: `blob_dir` for `blob-dir`.
    let name = name.to_lowercase().replace('_', "-");
    let distance_max = (name.chars().count() / 3).max(1);
    let distances = known.iter().map(|known| (strsim::osa_distance(&name, known), *known));
    let near = distances.filter(|(distance, _)| *distance <= distance_max);
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found() {
        let known = ["address", "read-only", "blob-dir", "on"];
        for (name, expected) in [
            ("adress", Some("address")),
            ("addresses", Some("address")),
            ("read_only", Some("read-only")),
            ("readonly", Some("read-only")),
            ("BLOB-DRI", Some("blob-dir")),
            ("no", Some("on")),
            ("quota", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, &known), expected, "{name}");
        }
    }
}
