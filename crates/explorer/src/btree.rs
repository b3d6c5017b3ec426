//! The states of BTrees as what they are: keys and values, or children.
//!
//! `BTrees/_base.py` has the forms. A bucket is `((key, value, ...), next)`, a set `((key, ...),
//! next)`, both perhaps without the next one. A tree is `((child, key, child, ...), first bucket)`,
//! or with one small bucket `((its state,),)`.

use zodium_pickle::Value;

/// The content of a node of a BTree.
#[derive(Debug, PartialEq)]
pub(crate) enum Node<'v, 'a> {
    /// A bucket.
    Entries(Vec<(&'v Value<'a>, &'v Value<'a>)>),
    /// A set.
    Keys(Vec<&'v Value<'a>>),
    /// Children, each with the key from which on it is responsible; the first one has none.
    Children(Vec<(Option<&'v Value<'a>>, &'v Value<'a>)>),
}

/// The node that a state of this class describes, and the bucket that follows it; `None` for other
/// classes and other states.
pub(crate) fn node<'v, 'a>(
    class: &str,
    state: &'v Value<'a>,
) -> Option<(Node<'v, 'a>, Option<&'v Value<'a>>)> {
    let (module, name) = class.rsplit_once('.')?;
    if !module.starts_with("BTrees.") {
        return None;
    }
    let kind = name.get(2..)?;
    let kind = kind.strip_suffix("Py").unwrap_or(kind);
    match kind {
        "Bucket" | "Set" => leaf(kind == "Bucket", state),
        "BTree" | "TreeSet" => tree(kind == "BTree", state),
        _ => None,
    }
}

fn leaf<'v, 'a>(
    is_mapping: bool,
    state: &'v Value<'a>,
) -> Option<(Node<'v, 'a>, Option<&'v Value<'a>>)> {
    let Value::Tuple(parts) = state else { return None };
    let (items, next) = match parts.as_slice() {
        [Value::Tuple(items)] => (items, None),
        [Value::Tuple(items), next] => (items, Some(next)),
        _ => return None,
    };
    let node = match is_mapping {
        true if items.len().is_multiple_of(2) => {
            Node::Entries(items.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect())
        }
        true => return None,
        false => Node::Keys(items.iter().collect()),
    };
    Some((node, next))
}

fn tree<'v, 'a>(
    is_mapping: bool,
    state: &'v Value<'a>,
) -> Option<(Node<'v, 'a>, Option<&'v Value<'a>>)> {
    let parts = match state {
        Value::None => {
            let none = if is_mapping { Node::Entries(vec![]) } else { Node::Keys(vec![]) };
            return Some((none, None));
        }
        Value::Tuple(parts) => parts,
        _ => return None,
    };
    match parts.as_slice() {
        [Value::Tuple(only)] => match only.as_slice() {
            [bucket] => leaf(is_mapping, bucket),
            _ => None,
        },
        [Value::Tuple(items), _first] if items.len() % 2 == 1 => {
            let first = items.first().map(|child| (None, child));
            let others = items.get(1..)?.chunks_exact(2).map(|pair| (Some(&pair[0]), &pair[1]));
            Some((Node::Children(first.into_iter().chain(others).collect()), None))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple<const N: usize>(items: [Value<'static>; N]) -> Value<'static> {
        Value::tuple(items)
    }

    #[test]
    fn every_form_of_the_state_is_read() {
        let (one, two) = (Value::from(1), Value::from(2));
        let items = || tuple([1.into(), 2.into()]);
        let entries = Some((Node::Entries(vec![(&one, &two)]), None));
        assert_eq!(node("BTrees.OOBTree.OOBucket", &tuple([items()])), entries);
        assert_eq!(node("BTrees.OOBTree.OOBTree", &tuple([tuple([tuple([items()])])])), entries);
        let keys = Some((Node::Keys(vec![&one, &two]), Some(&Value::None)));
        assert_eq!(node("BTrees.IIBTree.IISet", &tuple([items(), Value::None])), keys);
        let children = tuple([tuple(["a".into(), 1.into(), "b".into()]), "a".into()]);
        let (a, b) = (Value::from("a"), Value::from("b"));
        let expected = Some((Node::Children(vec![(None, &a), (Some(&one), &b)]), None));
        assert_eq!(node("BTrees.OOBTree.OOBTree", &children), expected);
        let empty = Some((Node::Entries(vec![]), None));
        assert_eq!(node("BTrees.LOBTree.LOBTree", &Value::None), empty);
    }

    #[test]
    fn other_states_and_classes_are_left_alone() {
        for state in [Value::from(1), tuple([]), tuple([tuple([1.into()])]), tuple([1.into()])] {
            assert_eq!(node("BTrees.OOBTree.OOBucket", &state), None, "{state:?}");
        }
        assert_eq!(node("BTrees.Length.Length", &1.into()), None);
        assert_eq!(node("my.OOBTree", &Value::None), None);
        assert_eq!(node("BTrees.é", &Value::None), None);
    }
}
