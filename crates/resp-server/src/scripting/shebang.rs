//! The first line of a script, which may say what it does: `#!lua flags=no-writes`.

use crate::fail::Fail;

/// Flags that are known. Only the first has an effect.
const FLAGS: [&str; 5] =
    ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

/// What a script says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traits {
    /// Whether it has such a line.
    pub(super) is_declared: bool,
    pub(super) is_readonly: bool,
    pub(super) allows_oom: bool,
}

/// Whether a script says of itself that it does not write.
pub(crate) fn is_readonly(source: &[u8]) -> bool {
    split(source).is_ok_and(|(traits, _)| traits.is_readonly)
}

/// What a script says of itself, and its source without that line. Numbers of lines stay.
pub(super) fn split(source: &[u8]) -> Result<(Traits, &[u8]), Fail> {
    if !source.starts_with(b"#!") {
        return Ok((Traits::default(), source));
    }
    let end = source.iter().position(|byte| *byte == b'\n');
    let end = end.ok_or(Fail::fixed("ERR Invalid script shebang"))?;
    let line = String::from_utf8_lossy(&source[2..end]);
    let mut words = line.split_whitespace();
    let engine = words.next().ok_or(Fail::fixed("ERR Invalid engine in script shebang"))?;
    if engine != "lua" {
        return Err(Fail::text(format!("ERR Unexpected engine in script shebang: #!{engine}")));
    }
    let mut traits = Traits { is_declared: true, ..Traits::default() };
    for word in words {
        let Some(flags) = word.strip_prefix("flags=") else {
            return Err(Fail::text(format!("ERR Unknown lua shebang option: {word}")));
        };
        for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
            if !FLAGS.contains(&flag) {
                return Err(Fail::text(format!("ERR Unexpected flag in script shebang: {flag}")));
            }
            traits.is_readonly |= flag == "no-writes";
            traits.allows_oom |= flag == "allow-oom";
        }
    }
    Ok((traits, &source[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_unknown_ones_refused() {
        let (traits, source) = split(b"#!lua flags=no-writes\nreturn 1").unwrap();
        assert!(traits.is_declared && traits.is_readonly && !traits.allows_oom);
        assert_eq!(source, b"\nreturn 1");
        assert!(is_readonly(b"#!lua flags=no-writes\n") && !is_readonly(b"return 1"));
        assert_eq!(split(b"return 1").unwrap(), (Traits::default(), &b"return 1"[..]));
        for bad in ["#!lua", "#!python\n", "#!lua flags=x\n", "#!lua name=x\n", "#!\n"] {
            assert!(split(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
