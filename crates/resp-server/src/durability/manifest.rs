//! The manifest of an append-only file in parts.

use zodium_resp::OwnedRequest;

/// The names of the parts that a manifest names, in the order of their commands: the base first.
///
/// # Errors
/// What of it cannot be understood.
pub fn manifest_parts(manifest: &str) -> Result<Vec<String>, String> {
    let mut parts = Vec::new();
    for line in manifest.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        // Names with spaces are in quotes, as words that a client types.
        let words = OwnedRequest::of_line(line.as_bytes());
        let words = words.map_err(|_| format!("has a quote without an end: {line}"))?;
        let words: Vec<_> = words.arguments().iter().map(String::from_utf8_lossy).collect();
        let value = |name: &str| {
            let pair = words.chunks_exact(2).find(|pair| pair[0] == name);
            pair.map(|pair| pair[1].to_string())
        };
        let (Some(name), Some(kind)) = (value("file"), value("type")) else {
            return Err(format!("has a line that names no file: {line}"));
        };
        if name.contains('/') {
            return Err(format!("names a file in another folder: {name}"));
        }
        let sequence: u64 = value("seq").and_then(|number| number.parse().ok()).unwrap_or(0);
        match &*kind {
            "b" => parts.push((0, sequence, name)),
            "i" => parts.push((1, sequence, name)),
            // Parts of an older history.
            "h" => {}
            other => return Err(format!("has a file of the kind {other}")),
        }
    }
    parts.sort_unstable();
    Ok(parts.into_iter().map(|(_, _, name)| name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_in_the_order_of_their_commands() {
        let manifest = "# a comment\nfile i.2 seq 2 type i\nfile \"an i\\\" 1\" seq 1 type i \
                        startoffset 5\n\nfile b seq 7 type b\nfile old seq 6 type h\n";
        assert_eq!(manifest_parts(manifest).unwrap(), ["b", "an i\" 1", "i.2"]);
        for (line, expected) in [
            ("file \"b seq 1 type b", "has a quote without an end"),
            ("file file seq 1", "has a line that names no file"),
            ("file ../b seq 1 type b", "names a file in another folder: ../b"),
            ("file b seq 1 type x", "has a file of the kind x"),
        ] {
            let error = manifest_parts(line).unwrap_err();
            assert!(error.starts_with(expected), "{error}, and not {expected}");
        }
    }
}
