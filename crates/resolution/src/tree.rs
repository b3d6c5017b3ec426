//! Resolves a tree with a single bucket, which is stored in the tree's own state, as that bucket.

use zodium_pickle::Value;

use crate::Reason;
use crate::bucket::{self, Leaf};

pub(crate) fn resolve<'a>(
    leaf: Leaf,
    old: Value<'a>,
    committed: Value<'a>,
    new: Value<'a>,
) -> Result<Value<'a>, Reason> {
    let merged =
        bucket::resolve(leaf, only_bucket(old)?, only_bucket(committed)?, only_bucket(new)?)?;
    Ok(Value::tuple([Value::tuple([merged])]))
}

/// The state of a tree's only bucket; `None` for an empty tree, as in the tree's own state.
fn only_bucket(state: Value<'_>) -> Result<Value<'_>, Reason> {
    let malformed = Reason::Malformed("no state of a tree");
    let parts = match state {
        Value::None => return Ok(Value::None),
        Value::Tuple(parts) => parts,
        _ => return Err(malformed),
    };
    if parts.len() == 2 {
        return Err(Reason::Contradiction("a tree of several buckets was changed"));
    }
    let [Value::Tuple(children)] =
        <[Value<'_>; 1]>::try_from(parts).map_err(|_| malformed.clone())?
    else {
        return Err(malformed);
    };
    let [bucket] = <[Value<'_>; 1]>::try_from(children).map_err(|_| malformed.clone())?;
    match bucket {
        Value::Tuple(_) => Ok(bucket),
        _ => Err(malformed),
    }
}
