//! A state as lines of text, for comparison.

use zodium_pickle::Value;

use super::{Decoded, Reach, Target, leaf, name_of, shown_arguments};
use crate::btree::{self, Node};
use crate::words;

/// Most lines of a state.
const LINES_MAX: usize = 5000;
/// Most bytes of all lines of a state.
const BYTES_MAX: usize = 1 << 20;

/// The lines of a state, and whether these are all.
pub(crate) fn lines_of(class: &str, decoded: &Decoded<'_>) -> (Vec<String>, bool) {
    let mut lines = Lines { all: Vec::new(), bytes: 0, is_cut: false };
    if let Some(arguments) = &decoded.arguments {
        lines.value("__new__ ", arguments, 0);
    }
    match btree::node(class, &decoded.state) {
        Some((Node::Entries(entries), _)) => {
            entries.iter().for_each(|(key, value)| lines.entry(key, value, 0));
        }
        Some((Node::Keys(keys), _)) => keys.iter().for_each(|key| lines.value("", key, 0)),
        Some((Node::Children(children), _)) => {
            for (key, child) in &children {
                match key {
                    Some(key) => lines.entry(key, child, 0),
                    None => lines.value("", child, 0),
                }
            }
        }
        // What stands at the outermost level needs no braces.
        None => match &decoded.state {
            Value::Dict(entries) => {
                entries.iter().for_each(|(key, value)| lines.entry(key, value, 0));
            }
            state => lines.value("", state, 0),
        },
    }
    (lines.all, !lines.is_cut)
}

struct Lines {
    all: Vec<String>,
    bytes: usize,
    is_cut: bool,
}

impl Lines {
    fn push(&mut self, depth: usize, text: &str) {
        let line = format!("{}{text}", "  ".repeat(depth));
        self.bytes += line.len();
        match self.all.len() < LINES_MAX && self.bytes <= BYTES_MAX {
            true => self.all.push(line),
            false => self.is_cut = true,
        }
    }

    fn entry(&mut self, key: &Value<'_>, value: &Value<'_>, depth: usize) {
        match short(key) {
            Some(key) => self.value(&format!("{key}: "), value, depth),
            None => {
                self.value("key ", key, depth);
                self.value("value ", value, depth);
            }
        }
    }

    fn value(&mut self, before: &str, value: &Value<'_>, depth: usize) {
        if self.is_cut {
            return;
        }
        if let Some(text) = short(value) {
            return self.push(depth, &format!("{before}{text}"));
        }
        match value {
            Value::List(items) => self.items(before, "[]", items, depth),
            Value::Tuple(items) => self.items(before, "()", items, depth),
            Value::Dict(entries) => {
                self.push(depth, &format!("{before}{{"));
                entries.iter().for_each(|(key, value)| self.entry(key, value, depth + 1));
                self.push(depth, "}");
            }
            Value::Object(object) => {
                self.push(depth, &format!("{before}{}", name_of(object)));
                if let Some(arguments) = shown_arguments(object) {
                    self.value("arguments ", arguments, depth + 1);
                }
                object.items.iter().for_each(|item| self.value("", item, depth + 1));
                for (key, value) in &object.entries {
                    self.entry(key, value, depth + 1);
                }
                if let Some(state) = &object.state {
                    self.value("state ", state, depth + 1);
                }
            }
            Value::Persistent(id) => self.value(&format!("{before}reference "), id, depth),
            _ => {}
        }
    }

    fn items(&mut self, before: &str, braces: &str, items: &[Value<'_>], depth: usize) {
        let (open, close) = braces.split_at(1);
        self.push(depth, &format!("{before}{open}"));
        items.iter().for_each(|item| self.value("", item, depth + 1));
        self.push(depth, close);
    }
}

/// A value that fits into a line.
fn short(value: &Value<'_>) -> Option<String> {
    if let Value::Persistent(id) = value {
        let target = Target::of(id)?;
        let (class, oid) = (target.class.as_deref().unwrap_or("object"), words::oid(target.oid));
        return Some(match target.reach {
            Reach::Strong => format!("\u{2192} {class} {oid}"),
            Reach::Weak => format!("\u{2192} {class} {oid} (weak)"),
            Reach::Elsewhere(database) => {
                format!("\u{2192} {class} {oid} in {}", words::name(&database))
            }
        });
    }
    leaf(value).map(|(text, _)| text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_a_line_for_each_part() {
        let state = Value::dict([
            ("title", Value::from("T")),
            ("tags", Value::list(["a".into(), Value::tuple([1.into()])])),
            ("more", Value::dict([("x", Value::None)])),
        ]);
        let (lines, is_whole) = lines_of("m.C", &Decoded { arguments: None, state });
        let expected =
            "'title': 'T'\n'tags': [\n  'a'\n  (\n    1\n  )\n]\n'more': {\n  'x': None\n}";
        assert_eq!((lines.join("\n").as_str(), is_whole), (expected, true));
    }

    #[test]
    fn names_cannot_change_the_direction_of_a_line() {
        let record =
            b"N.](cm\xe2\x80\xae\nC\nq\x05h\x05)\x81](X\x01\0\0\0mX\x04\0\0\0d\xe2\x80\xae\
            C\x08\0\0\0\0\0\0\0\x09h\x05\x87eQe.";
        let decoded = crate::state::decode(record).unwrap();
        let text = lines_of("m.C", &decoded).0.join("\n");
        assert!(!text.contains('\u{202e}') && text.matches("\\u202e").count() == 4, "{text}");
    }

    #[test]
    fn a_long_state_is_cut() {
        let state = Value::list((0..LINES_MAX as i64).map(Value::from));
        let (lines, is_whole) = lines_of("m.C", &Decoded { arguments: None, state });
        assert_eq!((lines.len(), is_whole), (LINES_MAX, false));
    }
}
