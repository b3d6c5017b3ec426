//! Checks each tree from its top: depth, bounds of keys, and the chain of leaves.

use std::cmp::Ordering;

use rustc_hash::FxHashSet;
use zodium_pickle::Value;
use zodium_resolution::compare_keys;
use zodium_types::Oid;

use super::damage::BTreeDamage;
use super::nodes::{Kept, Nodes};
use crate::ToolError;
use crate::references::CurrentObjects;

/// What was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BTreesChecked {
    /// Nodes that are trees, inner ones included.
    pub trees: u64,
    /// Buckets and sets with records of their own.
    pub leaves: u64,
    /// Keys.
    pub keys: u64,
    /// Pairs of keys whose order only Python knows.
    pub uncertain: u64,
    /// Nodes that were not checked, as only Python can read them.
    pub unread: u64,
    /// Damaged places.
    pub damages: u64,
}

/// Checks all BTrees among the current objects, and tells `report` of each damage.
///
/// # Errors
/// Those of the storage, and of `report`.
pub fn check_btrees(
    objects: &CurrentObjects<'_>,
    report: &mut dyn FnMut(BTreeDamage) -> Result<(), ToolError>,
) -> Result<BTreesChecked, ToolError> {
    let mut damages = 0;
    let mut counted = |damage| {
        damages += 1;
        report(damage)
    };
    let nodes = Nodes::of(objects, &mut counted)?;
    let mut checker = Checker::new(&nodes, objects);
    let tops = nodes.tops();
    for oid in &tops {
        checker.check_tree(*oid);
        checker.found.drain(..).try_for_each(&mut counted)?;
    }
    checker.check_ends(&tops)?;
    checker.found.drain(..).try_for_each(&mut counted)?;
    let uncertain = nodes.uncertain + checker.uncertain;
    let Nodes { trees, leaves, keys, unread, .. } = nodes;
    Ok(BTreesChecked { trees, leaves, keys, uncertain, unread, damages })
}

impl Nodes {
    /// The trees that no other tree has as a child, in the order of oids.
    fn tops(&self) -> Vec<Oid> {
        let mut below = FxHashSet::default();
        for node in self.all.values() {
            if let Kept::Inner { children, .. } = node {
                below.extend(children.iter().copied());
            }
        }
        let is_top = |(oid, node): &(&Oid, &Kept)| {
            matches!(node, Kept::Inner { .. }) && !below.contains(oid)
        };
        let mut tops: Vec<Oid> = self.all.iter().filter(is_top).map(|(oid, _)| *oid).collect();
        tops.sort_unstable();
        tops
    }
}

/// A node that is to be checked, with what its tree says of it.
struct Visit<'n> {
    oid: Oid,
    depth: usize,
    /// The smallest key that it may have.
    low: Option<&'n Value<'static>>,
    /// The smallest key that it may not have.
    high: Option<&'n Value<'static>>,
}

/// The last leaf of a tree, which leads on to another one.
struct End {
    top: Oid,
    leaf: Oid,
    next: Oid,
}

struct Checker<'n, 's> {
    nodes: &'n Nodes,
    objects: &'n CurrentObjects<'s>,
    /// Nodes that are in a tree.
    seen: FxHashSet<Oid>,
    ends: Vec<End>,
    found: Vec<BTreeDamage>,
    uncertain: u64,
}

impl<'n, 's> Checker<'n, 's> {
    fn new(nodes: &'n Nodes, objects: &'n CurrentObjects<'s>) -> Checker<'n, 's> {
        let (seen, ends, found) = (FxHashSet::default(), Vec::new(), Vec::new());
        Checker { nodes, objects, seen, ends, found, uncertain: 0 }
    }

    fn check_tree(&mut self, top: Oid) {
        let mut waiting = vec![Visit { oid: top, depth: 0, low: None, high: None }];
        // Leaves from left to right, with their depths; and nodes with the place among the leaves
        // where theirs begin.
        let (mut leaves, mut firsts) = (Vec::new(), Vec::new());
        let mut is_known = true;
        while let Some(visit) = waiting.pop() {
            let Visit { oid, depth, low, high } = visit;
            if !self.seen.insert(oid) {
                self.damage(oid, "it is in a tree twice, or in two trees");
                continue;
            }
            match self.nodes.all.get(&oid) {
                None => self.report_other(oid),
                Some(Kept::Leaf { bounds, .. }) => {
                    self.check_bounds(oid, bounds.as_ref(), low, high);
                    leaves.push((oid, depth));
                }
                Some(Kept::Unread { is_leaf: true }) => leaves.push((oid, depth)),
                Some(Kept::Unread { is_leaf: false }) => is_known = false,
                Some(Kept::Inner { children, keys, first }) => {
                    firsts.push((oid, *first, leaves.len()));
                    // From right to left, so that the leftmost comes next.
                    for place in (0..children.len()).rev() {
                        let before = place.checked_sub(1);
                        let low = before.and_then(|before| keys.get(before)).or(low);
                        let high = keys.get(place).or(high);
                        waiting.push(Visit { oid: children[place], depth: depth + 1, low, high });
                    }
                }
            }
        }
        if is_known {
            self.check_leaves(top, &leaves, &firsts);
        }
    }

    /// A child that is no node.
    fn report_other(&mut self, oid: Oid) {
        match self.objects.missing(oid) {
            Some(missing) => self.damage(oid, &format!("it is in a tree: {}", missing.in_words())),
            None => self.damage(oid, "it is in a tree, and is no node of a tree that can be read"),
        }
    }

    /// The keys of a leaf are within the bounds that its tree has for them.
    fn check_bounds(
        &mut self,
        oid: Oid,
        bounds: Option<&(Value<'static>, Value<'static>)>,
        low: Option<&Value<'static>>,
        high: Option<&Value<'static>>,
    ) {
        let Some((first, last)) = bounds else {
            return self.damage(oid, "it is in a tree, and is empty");
        };
        if let Some(low) = low {
            match compare_keys(first, low) {
                Some(Ordering::Less) => {
                    self.damage(oid, "its first key is smaller than its tree says");
                }
                Some(_) => {}
                None => self.uncertain += 1,
            }
        }
        if let Some(high) = high {
            match compare_keys(last, high) {
                Some(Ordering::Less) => {}
                Some(_) => self.damage(oid, "its last key is larger than its tree says"),
                None => self.uncertain += 1,
            }
        }
    }

    /// All leaves are equally deep, each leads to the next one, and each inner node to its first.
    fn check_leaves(&mut self, top: Oid, leaves: &[(Oid, usize)], firsts: &[(Oid, Oid, usize)]) {
        for (place, (oid, depth)) in leaves.iter().enumerate() {
            if *depth != leaves[0].1 {
                self.damage(*oid, "it is not as deep in its tree as the first bucket");
            }
            let following = leaves.get(place + 1).map(|(oid, _)| *oid);
            let Some(Kept::Leaf { next, .. }) = self.nodes.all.get(oid) else { continue };
            match (*next, following) {
                // A tree that was not read may go on behind its part that seems to be one.
                (Some(_), None) if self.nodes.has_unread_tree => {}
                (Some(next), None) => self.ends.push(End { top, leaf: *oid, next }),
                _ if *next != following => self.report_next(*oid, *next, following),
                _ => {}
            }
        }
        for (oid, first, place) in firsts {
            match leaves.get(*place) {
                Some((leaf, _)) if leaf == first => {}
                Some((leaf, _)) => {
                    let what = format!("its first bucket is {leaf}, and it says {first}");
                    self.damage(*oid, &what);
                }
                None => self.damage(*oid, "it has no buckets"),
            }
        }
    }

    /// The last leaf of a tree leads to none. But what `clear` has removed from a tree seems to be
    /// trees, each of which leads on to the next one, until a pack drops them.
    fn check_ends(&mut self, tops: &[Oid]) -> Result<(), ToolError> {
        if self.ends.is_empty() {
            return Ok(());
        }
        let mut removed: FxHashSet<Oid> = tops.iter().copied().collect();
        self.objects.each(&mut |object| {
            for to in object.references {
                removed.remove(to);
            }
            Ok(())
        })?;
        let first_of = |top: &Oid| match self.nodes.all.get(top) {
            Some(Kept::Inner { first, .. }) => Some(*first),
            _ => None,
        };
        let firsts: FxHashSet<Oid> = removed.iter().filter_map(first_of).collect();
        for End { top, leaf, next } in std::mem::take(&mut self.ends) {
            if !removed.contains(&top) || !firsts.contains(&next) {
                self.report_next(leaf, Some(next), None);
            }
        }
        Ok(())
    }

    fn report_next(&mut self, leaf: Oid, next: Option<Oid>, following: Option<Oid>) {
        let name = |oid: Option<Oid>| oid.map_or("none".to_owned(), |oid| oid.to_string());
        let what = format!(
            "the next bucket is {}, and the one that follows in its tree is {}",
            name(next),
            name(following)
        );
        self.damage(leaf, &what);
    }

    fn damage(&mut self, oid: Oid, what: &str) {
        self.found.push(BTreeDamage { oid, class: None, what: what.to_owned() });
    }
}
