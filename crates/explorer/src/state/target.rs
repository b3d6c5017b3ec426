//! The object that a persistent reference leads to.

use zodium_pickle::Value;
use zodium_types::Oid;

use super::class_name;

/// A reference as it stands in a pickle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) oid: Oid,
    pub(crate) reach: Reach,
    /// The class of the object, as the reference has it.
    pub(crate) class: Option<String>,
}

/// How a reference leads to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// It keeps the object.
    Strong,
    /// It does not.
    Weak,
    /// To an object of the database of that name.
    Elsewhere(String),
}

impl Target {
    /// Reads the id of a reference, in one of the forms that `ZODB/serialize.py` describes.
    pub(crate) fn of(id: &Value<'_>) -> Option<Target> {
        let strong = |oid, class| Target { oid, reach: Reach::Strong, class };
        match id {
            Value::Bytes(_) => Some(strong(id.as_oid()?, None)),
            Value::Tuple(parts) => match parts.as_slice() {
                [oid, class] => Some(strong(oid.as_oid()?, class_name(class))),
                _ => None,
            },
            Value::List(parts) => match parts.as_slice() {
                [oid] => Some(Target { oid: oid.as_oid()?, reach: Reach::Weak, class: None }),
                [kind, arguments] => Target::of_kind(kind.as_str()?, arguments.as_sequence()?),
                _ => None,
            },
            _ => None,
        }
    }

    fn of_kind(kind: &str, arguments: &[Value<'_>]) -> Option<Target> {
        let elsewhere = |name: &Value<'_>| Some(Reach::Elsewhere(name.as_str()?.to_owned()));
        let (oid, reach, class) = match (kind, arguments) {
            ("w", [oid]) => (oid, Reach::Weak, None),
            ("w", [oid, database]) => (oid, elsewhere(database)?, None),
            ("n", [database, oid]) => (oid, elsewhere(database)?, None),
            ("m", [database, oid, class]) => (oid, elsewhere(database)?, class_name(class)),
            _ => return None,
        };
        Some(Target { oid: oid.as_oid()?, reach, class })
    }
}

#[cfg(test)]
mod tests {
    use zodium_pickle::Global;

    use super::*;

    #[test]
    fn every_form_of_a_reference_is_read() {
        let oid = || Value::from(Oid(7));
        let class = || Value::Global(Global::new("m", "C").unwrap());
        let named = Some("m.C".to_owned());
        let other = || Reach::Elsewhere("db".to_owned());
        let weak =
            |arguments: Vec<Value<'static>>| Value::list(["w".into(), Value::Tuple(arguments)]);
        for (id, reach, class) in [
            (oid(), Reach::Strong, None),
            (Value::tuple([oid(), class()]), Reach::Strong, named.clone()),
            (Value::list([oid()]), Reach::Weak, None),
            (weak(vec![oid()]), Reach::Weak, None),
            (weak(vec![oid(), "db".into()]), other(), None),
            (Value::list(["n".into(), Value::tuple(["db".into(), oid()])]), other(), None),
            (
                Value::list(["m".into(), Value::tuple(["db".into(), oid(), class()])]),
                other(),
                named,
            ),
        ] {
            assert_eq!(Target::of(&id), Some(Target { oid: Oid(7), reach, class }), "{id:?}");
        }
        for id in [Value::None, Value::from("7"), Value::list([]), Value::list([1.into(), oid()])] {
            assert_eq!(Target::of(&id), None);
        }
    }
}
