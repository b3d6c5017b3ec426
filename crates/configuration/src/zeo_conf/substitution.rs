//! `$name`, `${name}`, `$(VARIABLE)` and `$$` in values, as ZConfig replaces them.
//!
//! Names of definitions are case-insensitive, those of environment variables case-sensitive.
//! References in a replacement are not replaced again.

use std::collections::HashMap;

use crate::surroundings::Surroundings;

/// Definitions by their names in lower case.
pub(super) type Definitions = HashMap<String, String>;

/// Whether a text is a name of a definition: letters, digits and underscores, no digit first.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && name_length(text) == text.len()
}

fn name_length(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
}

/// Replaces all references in a text, up to a length.
pub(super) fn substitute(
    text: &str,
    definitions: &Definitions,
    surroundings: &Surroundings,
    bytes_max: usize,
) -> Result<String, String> {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        result.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            result.push('$');
            rest = after;
        } else {
            let (reference, after) = split_reference(after)?;
            result.push_str(&reference.resolve(definitions, surroundings)?);
            rest = after;
        }
        if result.len() > bytes_max {
            return Err(format!("longer than {bytes_max} bytes once its references are replaced"));
        }
    }
    result.push_str(rest);
    Ok(result)
}

enum Reference<'a> {
    Definition(&'a str),
    Environment(&'a str),
}

/// Splits the text after a `$` into the reference and the rest.
fn split_reference(after: &str) -> Result<(Reference<'_>, &str), String> {
    let (open, inner) = match after.strip_prefix(['{', '(']) {
        Some(inner) => (&after[..1], inner),
        None => ("", after),
    };
    let (name, rest) = inner.split_at(name_length(inner));
    if name.is_empty() {
        return Err(format!("a name must follow `${open}`; write `$$` for a dollar sign"));
    }
    let closed = match open {
        "{" => rest.strip_prefix('}').map(|rest| (Reference::Definition(name), rest)),
        "(" => rest.strip_prefix(')').map(|rest| (Reference::Environment(name), rest)),
        _ => Some((Reference::Definition(name), rest)),
    };
    closed.ok_or_else(|| format!("`${open}{name}` is not closed"))
}

impl Reference<'_> {
    fn resolve(
        &self,
        definitions: &Definitions,
        surroundings: &Surroundings,
    ) -> Result<String, String> {
        match self {
            Reference::Definition(name) => definitions
                .get(&name.to_lowercase())
                .cloned()
                .ok_or_else(|| format!("`{name}` is not defined: put `%define {name} ...` above")),
            Reference::Environment(name) => surroundings
                .variable(name)
                .ok_or_else(|| format!("the environment variable {name} is not set")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn substituted(text: &str) -> Result<String, String> {
        let definitions = [("home", "/srv"), ("n_1", "$home")];
        let definitions = definitions.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let environment = |name: &str| (name == "Var").then(|| "v".to_owned());
        let surroundings = Surroundings { directory: "/".into(), environment: &environment };
        substitute(text, &definitions.into(), &surroundings, 20)
    }

    #[test]
    fn references_are_replaced_once() {
        for (text, expected) in [
            ("plain", "plain"),
            ("$home/x", "/srv/x"),
            ("${HOME}x$$y", "/srvx$y"),
            ("$n_1", "$home"),
            ("a$(Var)b$(Var)", "avbv"),
            ("$$home", "$home"),
        ] {
            assert_eq!(substituted(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_reference_is_an_error() {
        for text in
            ["$", "a$", "$ x", "$1", "${home", "${}", "$(VAR)", "$(Var", "$other", "$(Var|x)"]
        {
            assert!(substituted(text).is_err(), "{text}");
        }
    }

    #[test]
    fn replaced_texts_have_a_longest_length() {
        assert!(substituted("$home$home$home$home$home").is_ok());
        assert!(substituted("$home$home$home$home$home$home").is_err());
    }
}
