//! Text within the page.

/// Escapes text for elements and attributes.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            _ => out.push(letter),
        }
    }
    out
}

/// Formats the label of an axis: short, with a letter for thousands and millions.
pub(super) fn short(value: f64) -> String {
    let (value, letter) = match value.abs() {
        1e6.. => (value / 1e6, "M"),
        1e3.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = format!("{value:.3}");
    format!("{}{letter}", digits.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let known = [(0.0, "0"), (0.25, "0.25"), (16.0, "16"), (2500.0, "2.5k"), (3e6, "3M")];
        for (value, expected) in known {
            assert_eq!(short(value), expected);
        }
    }
}
