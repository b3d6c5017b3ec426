//! The text of a statement for MariaDB: parameters without numbers, and `partition` in quotes.

/// A statement as a server takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Translated {
    text: String,
    /// For each parameter in the text, its place in the list of parameters.
    order: Vec<usize>,
}

/// A column that is a reserved word of MariaDB.
const RESERVED: &str = "partition";

impl Translated {
    /// Translates a statement that has no `?` but those of its parameters.
    pub(crate) fn new(sql: &str) -> Translated {
        let (mut text, mut order) = (String::with_capacity(sql.len() + 16), Vec::new());
        let mut rest = sql;
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            if end > 0 {
                let (word, after) = rest.split_at(end);
                match word {
                    RESERVED => text.extend(["`", word, "`"]),
                    _ => text.push_str(word),
                }
                rest = after;
                continue;
            }
            rest = &rest[first.len_utf8()..];
            text.push(first);
            if first == '?' {
                let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                let number: usize = rest[..digits].parse().unwrap_or(1);
                order.push(number.saturating_sub(1));
                rest = &rest[digits..];
            }
        }
        Translated { text, order }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn order(&self) -> &[usize] {
        &self.order
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '`'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_lose_their_numbers_and_keep_their_places() {
        let found = Translated::new(
            "SELECT obj.partition FROM obj WHERE partition = ?2 AND tid >= ?1 AND ttid = ?1",
        );
        assert_eq!(
            found.text(),
            "SELECT obj.`partition` FROM obj WHERE `partition` = ? AND tid >= ? AND ttid = ?"
        );
        assert_eq!(found.order(), [1, 0, 0]);
    }

    #[test]
    fn words_that_only_contain_a_reserved_word_stay() {
        let found = Translated::new("SELECT `partition`, partitions, my_partition");
        assert_eq!(found.text(), "SELECT `partition`, partitions, my_partition");
    }
}
