//! Words and numbers in lines of 80 columns.

/// Longest line, which may be indented by one column.
const WIDTH: usize = 79;

/// Breaks a text into lines; all but the first are indented.
pub(super) fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let length = lines.last().map_or(0, |line| line.chars().count());
        if length + 1 + word.chars().count() > WIDTH && length > indent {
            lines.push(" ".repeat(indent));
        }
        if let Some(line) = lines.last_mut() {
            if !line.trim().is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// Numbers with ranges in place of runs: `0-3, 7`.
pub(super) fn ranges(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let runs = runs.iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    });
    runs.collect::<Vec<_>>().join(", ")
}

/// A number of partitions, and which ones.
pub(super) fn partitions(numbers: &[u32]) -> String {
    match numbers {
        [one] => format!("partition {one}"),
        _ => format!("{} partitions ({})", numbers.len(), ranges(numbers)),
    }
}

/// A time span in its two largest units.
pub(super) fn span(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    let (minutes, hours, days) = (whole / 60, whole / 3600, whole / 86_400);
    match () {
        () if days > 0 => format!("{days} d {} h", hours % 24),
        () if hours > 0 => format!("{hours} h {} min", minutes % 60),
        () if minutes > 0 => format!("{minutes} min {} s", whole % 60),
        () => format!("{whole} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_numbers_are_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(ranges(&[]), "");
        assert_eq!(partitions(&[3]), "partition 3");
        assert_eq!(partitions(&[3, 4]), "2 partitions (3-4)");
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        let text = wrapped(&"word ".repeat(40), 4);
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("    word")), "{text}");
        assert_eq!(text.split_whitespace().count(), 40);
    }

    #[test]
    fn spans_have_two_units() {
        let spans = [5.9, 61.0, 3_720.0, 90_000.0, -1.0].map(span);
        assert_eq!(spans, ["5 s", "1 min 1 s", "1 h 2 min", "1 d 1 h", "0 s"]);
    }
}
