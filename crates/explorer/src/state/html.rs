//! A state as nested lists, which open and close without a script.

use std::cell::Cell;

use maud::{Markup, html};
use zodium_pickle::{Object, Value};

use super::{Decoded, Reach, Target, leaf, name_of, shown_arguments};
use crate::btree::{self, Node};
use crate::view::View;
use crate::words;

/// Entries of one container that are shown, unless more are asked for.
const ENTRIES_SHOWN: usize = 200;
/// Values of one state that are shown.
const VALUES_MAX: usize = 10_000;
/// A longer text counts as several values.
const VALUE_BYTES: usize = 64;
/// Containers at this depth are closed at first.
const OPEN_DEPTH: usize = 5;
/// Containers with more entries than this are closed at first, but for the outermost.
const OPEN_ENTRIES: usize = 50;

/// Shows states in a view.
pub(crate) struct StateView {
    view: View,
    /// How many more values may be shown.
    left: Cell<usize>,
    entries_shown: usize,
    is_cut: Cell<bool>,
}

impl StateView {
    /// References lead to objects in the same view. `shows_more`: containers are shown as far as
    /// the limit of the values allows.
    pub(crate) fn new(view: View, shows_more: bool) -> StateView {
        let entries_shown = if shows_more { VALUES_MAX } else { ENTRIES_SHOWN };
        StateView { view, left: Cell::new(VALUES_MAX), entries_shown, is_cut: Cell::new(false) }
    }

    /// Whether entries of containers were left out so far.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// A whole record.
    pub(crate) fn record(&self, class: &str, decoded: &Decoded<'_>) -> Markup {
        html! {
            @if let Some(arguments) = &decoded.arguments {
                p { "Made with " code { "__new__" } " and: " (self.value(arguments, 1)) }
            }
            @match btree::node(class, &decoded.state) {
                Some((node, next)) => (self.btree(&node, next)),
                None => (self.value(&decoded.state, 0)),
            }
        }
    }

    /// One value inside of `depth` containers.
    pub(crate) fn value(&self, value: &Value<'_>, depth: usize) -> Markup {
        if !self.spend() {
            return html! { span.quiet { "\u{2026}" } };
        }
        if let Some((text, kind)) = leaf(value) {
            return html! { code.(kind) { (self.counted(text)) } };
        }
        match value {
            Value::List(items) => self.items("list", items, depth),
            Value::Tuple(items) => self.items("tuple", items, depth),
            Value::Dict(entries) => self.entries("dict", entries, depth),
            Value::Object(object) => self.object(object, depth),
            Value::Persistent(id) => self.reference(id, depth),
            // The others are leaves.
            _ => html! {},
        }
    }

    fn spend(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left > 0
    }

    /// A text, which was counted as the values that it is as long as.
    fn counted(&self, text: String) -> String {
        self.left.set(self.left.get().saturating_sub(text.len() / VALUE_BYTES));
        text
    }

    fn items(&self, kind: &str, items: &[Value<'_>], depth: usize) -> Markup {
        let all = items.iter().map(|item| (None, item));
        self.container(kind, items.len(), all, depth)
    }

    fn entries(&self, kind: &str, entries: &[(Value<'_>, Value<'_>)], depth: usize) -> Markup {
        let all = entries.iter().map(|(key, value)| (Some(key), value));
        self.container(kind, entries.len(), all, depth)
    }

    fn container<'v, 'a: 'v>(
        &self,
        kind: &str,
        count: usize,
        entries: impl Iterator<Item = (Option<&'v Value<'a>>, &'v Value<'a>)>,
        depth: usize,
    ) -> Markup {
        let is_open = depth == 0 || (depth < OPEN_DEPTH && count <= OPEN_ENTRIES);
        self.is_cut.set(self.is_cut.get() || count > self.entries_shown);
        let mut shown = Vec::new();
        for (key, value) in entries.take(self.entries_shown) {
            if self.left.get() == 0 {
                break;
            }
            shown.push(html! {
                li {
                    @if let Some(key) = key {
                        span.key { (self.value(key, depth + 1)) } ": "
                    }
                    (self.value(value, depth + 1))
                }
            });
        }
        let hidden = count.saturating_sub(shown.len());
        html! {
            details open[is_open] {
                summary { span.kind { (kind) } " " span.quiet { (words::count(count as u64)) } }
                ul {
                    @for entry in &shown { (entry) }
                    @if hidden > 0 {
                        li.quiet { (words::count(hidden as u64)) " more are not shown" }
                    }
                }
            }
        }
    }

    fn object(&self, object: &Object<'_>, depth: usize) -> Markup {
        html! {
            details open[depth < OPEN_DEPTH] {
                summary {
                    span.kind { "instance" } " "
                    code.class { (self.counted(name_of(object))) }
                }
                ul {
                    @if let Some(arguments) = shown_arguments(object) {
                        li { span.key { "arguments" } ": " (self.value(arguments, depth + 1)) }
                    }
                    @if !object.items.is_empty() {
                        li { span.key { "items" } ": "
                            (self.items("items", &object.items, depth + 1)) }
                    }
                    @if !object.entries.is_empty() {
                        li { span.key { "entries" } ": "
                            (self.entries("entries", &object.entries, depth + 1)) }
                    }
                    @if let Some(state) = &object.state {
                        li { span.key { "state" } ": " (self.value(state, depth + 1)) }
                    }
                }
            }
        }
    }

    fn reference(&self, id: &Value<'_>, depth: usize) -> Markup {
        let Some(target) = Target::of(id) else {
            return html! { span.kind { "reference of an unknown form" } " " (self.value(id, depth))
            };
        };
        let class = self.counted(target.class.unwrap_or_else(|| "object".to_owned()));
        let oid = words::oid(target.oid);
        match &target.reach {
            Reach::Strong => {
                html! { a.reference href=(self.view.object(target.oid)) { (class) " " (oid) } }
            }
            Reach::Weak => html! {
                a.reference href=(self.view.object(target.oid)) { (class) " " (oid) }
                " " span.tag { "weak" }
            },
            Reach::Elsewhere(database) => html! {
                span.reference { (class) " " (oid) }
                " " span.tag { "in database " (words::name(database)) }
            },
        }
    }

    fn btree(&self, node: &Node<'_, '_>, next: Option<&Value<'_>>) -> Markup {
        html! {
            @match node {
                Node::Entries(entries) => {
                    (self.container("entries", entries.len(),
                        entries.iter().map(|(key, value)| (Some(*key), *value)), 0))
                }
                Node::Keys(keys) => {
                    (self.container("keys", keys.len(), keys.iter().map(|key| (None, *key)), 0))
                }
                Node::Children(children) => {
                    p.quiet { "A node of a tree. Each child has the keys from the one before it." }
                    (self.container("children", children.len(),
                        children.iter().map(|(key, child)| (*key, *child)), 0))
                }
            }
            @if let Some(next) = next.filter(|next| !next.is_none()) {
                p { "Next bucket: " (self.value(next, 1)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use zodium_types::Tid;

    use super::*;

    #[test]
    fn long_names_are_cut_and_count_as_several_values() {
        let name = "c".repeat(10_000);
        let names = [&b"N.](cm\n"[..], name.as_bytes(), b"\nq\x05"].concat();
        let instances = b"h\x05)\x81".repeat(5000);
        let references = b"C\x08\0\0\0\0\0\0\0\x09h\x05\x86Q".repeat(5000);
        for values in [instances, references] {
            let record = [&names[..], &values, b"e."].concat();
            let decoded = crate::state::decode(&record).unwrap();
            let shown = StateView::new(View { at: None, last: Tid(1) }, true);
            let page = shown.value(&decoded.state, 0).into_string();
            assert!(!page.contains(&name[..201]) && page.contains(&name[..190]));
            assert!(page.contains("more are not shown"));
            assert!(page.len() < 1_000_000, "{}", page.len());
        }
    }

    #[test]
    fn a_state_with_too_many_values_tells_that_some_are_missing() {
        let list = Value::list((0..150).map(Value::from));
        let state = Value::list((0..100).map(|_| list.clone()));
        let shown = StateView::new(View { at: None, last: Tid(1) }, true);
        let page = shown.value(&state, 0).into_string();
        assert!(page.contains("<li class=\"quiet\">33 more are not shown</li>"), "{page}");
    }
}
