//! The classes that are resolved here, and their names in records.

use zodium_pickle::Value;

use crate::bucket::Leaf;
use crate::column::Column;

/// A class whose conflicts are resolved here. Subclasses in applications are never resolved here:
/// they have another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// `BTrees.Length.Length`
    Length,
    /// A class of a BTrees module.
    Node(Family, Shape),
}

/// The types of keys and values that a BTrees module is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    keys: Column,
    values: Column,
}

/// The four persistent classes of each module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Bucket,
    Set,
    Tree,
    TreeSet,
}

/// Prefixes of the modules of BTrees 6 and before it.
const PREFIXES: [&str; 22] = [
    "IF", "II", "IO", "IU", "LF", "LL", "LO", "LQ", "OI", "OL", "OO", "OQ", "OU", "QF", "QL", "QO",
    "QQ", "UF", "UI", "UO", "UU", "fs",
];

const SHAPES: [(&str, Shape); 4] = [
    ("Bucket", Shape::Bucket),
    ("Set", Shape::Set),
    ("BTree", Shape::Tree),
    ("TreeSet", Shape::TreeSet),
];

impl Class {
    /// Finds the class by name. A class such as `BTrees.OOBTree.OOBucket` has several names:
    /// `_OOBTree` is the same module in C, `Bucket` is an alias, and `OOBucketPy` is its Python
    /// version.
    pub(crate) fn from_name(module: &str, name: &str) -> Option<Class> {
        let module = module.strip_prefix("BTrees.")?;
        if module == "Length" {
            return (name == "Length").then_some(Class::Length);
        }
        let (module, in_c) = match module.strip_prefix('_') {
            Some(module) => (module, true),
            None => (module, false),
        };
        let prefix = module.strip_suffix("BTree")?;
        let prefix = PREFIXES.iter().find(|known| **known == prefix)?;
        let name = if in_c { name } else { name.strip_suffix("Py").unwrap_or(name) };
        let name = name.strip_prefix(prefix).unwrap_or(name);
        let (_, shape) = SHAPES.iter().find(|(known, _)| *known == name)?;
        Some(Class::Node(Family::from_prefix(prefix)?, *shape))
    }

    /// The class in a record's metadata: alone, or in a tuple with arguments, of which ours have
    /// none.
    pub(crate) fn from_metadata(metadata: &Value<'_>) -> Option<Class> {
        let class = match metadata {
            Value::Tuple(parts) => match &parts[..] {
                [class, Value::None] => class,
                [class, Value::Tuple(arguments)] if arguments.is_empty() => class,
                _ => return None,
            },
            class => class,
        };
        match class {
            Value::Global(global) => Class::from_name(global.module(), global.name()),
            Value::Tuple(parts) => match &parts[..] {
                [Value::Str(module), Value::Str(name)] => Class::from_name(module, name),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Family {
    fn from_prefix(prefix: &str) -> Option<Family> {
        if prefix == "fs" {
            return Some(Family { keys: Column::Bytes(2), values: Column::Bytes(6) });
        }
        let mut letters = prefix.bytes();
        let keys = Column::from_letter(letters.next()?)?;
        let values = Column::from_letter(letters.next()?)?;
        Some(Family { keys, values })
    }

    /// The types in the leaves of a class of this family.
    pub(crate) fn leaf(self, shape: Shape) -> Leaf {
        let values = match shape {
            Shape::Bucket | Shape::Tree => Some(self.values),
            Shape::Set | Shape::TreeSet => None,
        };
        Leaf { keys: self.keys, values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_all_names_that_records_call_it_by() {
        let bucket = Class::from_name("BTrees.OOBTree", "OOBucket");
        assert!(matches!(bucket, Some(Class::Node(_, Shape::Bucket))));
        for (module, name) in [
            ("BTrees.OOBTree", "Bucket"),
            ("BTrees._OOBTree", "OOBucket"),
            ("BTrees.OOBTree", "OOBucketPy"),
        ] {
            assert_eq!(Class::from_name(module, name), bucket, "{module}.{name}");
        }
        assert_eq!(Class::from_name("BTrees.Length", "Length"), Some(Class::Length));
    }

    #[test]
    fn other_classes_are_not_ours() {
        for (module, name) in [
            ("app.BTrees", "OOBTree"),
            ("BTrees.OOBTree", "MyBucket"),
            ("BTrees.OOBTree", "IIBucket"),
            ("BTrees.OOBTree", "OOTreeItems"),
            ("BTrees.XXBTree", "XXBTree"),
            ("BTrees._OOBTree", "OOBucketPy"),
            ("BTrees.Length", "LengthPy"),
            ("persistent.mapping", "PersistentMapping"),
            ("BTrees.BTree", "BTree"),
        ] {
            assert_eq!(Class::from_name(module, name), None, "{module}.{name}");
        }
    }

    #[test]
    fn arguments_and_names_as_text_are_told_apart() {
        let names = Value::tuple(["BTrees.Length".into(), "Length".into()]);
        for arguments in [Value::None, Value::tuple([])] {
            let metadata = Value::tuple([names.clone(), arguments]);
            assert_eq!(Class::from_metadata(&metadata), Some(Class::Length));
        }
        let metadata = Value::tuple([names, Value::tuple([1.into()])]);
        assert_eq!(Class::from_metadata(&metadata), None);
    }
}
