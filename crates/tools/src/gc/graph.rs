//! Objects of several databases and the references between them, as numbers.

use zodium_types::{Oid, Tid};

use crate::OidMap;

/// A current revision with data is there.
const ALIVE: u8 = 1;
/// Something that counts leads to it.
const MARKED: u8 = 2;
/// This collection has deleted it.
const SWEPT: u8 = 4;

/// All objects that the logs name, and the references of those that may be garbage.
#[derive(Default)]
pub(super) struct Graph {
    /// By database: from oids to numbers.
    numbers: Vec<OidMap>,
    /// By number.
    places: Vec<Place>,
    /// Pairs of numbers, from and to. In order of the first once [`Graph::connect`] was called.
    edges: Vec<(u32, u32)>,
    /// By number: where its references begin among `edges`.
    starts: Vec<u32>,
    /// Objects whose references are to be marked.
    waiting: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Place {
    oid: Oid,
    serial: Tid,
    database: u16,
    flags: u8,
}

impl Graph {
    pub(super) fn new(databases: usize) -> Graph {
        let numbers = (0..databases).map(|_| OidMap::default()).collect();
        Graph { numbers, ..Graph::default() }
    }

    /// The number of an object; a new one for one that was not named before.
    pub(super) fn number(&mut self, database: usize, oid: Oid) -> u32 {
        if let Some(number) = self.numbers[database].find(oid) {
            return number as u32;
        }
        let number = self.places.len() as u32;
        self.numbers[database].insert(oid, u64::from(number));
        let database = database as u16;
        self.places.push(Place { oid, serial: Tid::ZERO, database, flags: 0 });
        number
    }

    /// Notes the newest revision of an object.
    pub(super) fn revise(&mut self, number: u32, serial: Tid, is_alive: bool) {
        let place = &mut self.places[number as usize];
        place.serial = serial;
        place.flags = if is_alive { place.flags | ALIVE } else { place.flags & !ALIVE };
    }

    /// Adds a reference.
    pub(super) fn refer(&mut self, from: u32, to: u32) {
        self.edges.push((from, to));
    }

    /// Makes all references that were added findable.
    pub(super) fn connect(&mut self) {
        self.edges.sort_unstable();
        self.edges.dedup();
        self.starts = vec![0; self.places.len() + 1];
        for (from, _) in &self.edges {
            self.starts[*from as usize + 1] += 1;
        }
        let mut sum = 0;
        for start in &mut self.starts {
            sum += *start;
            *start = sum;
        }
    }

    /// Marks an object; [`Graph::spread`] marks what it leads to.
    pub(super) fn mark(&mut self, number: u32) {
        let place = &mut self.places[number as usize];
        if place.flags & MARKED == 0 {
            place.flags |= MARKED;
            self.waiting.push(number);
        }
    }

    /// Marks all that the marked objects lead to. Gives those that were deleted by this collection.
    pub(super) fn spread(&mut self) -> Vec<u32> {
        let mut swept = Vec::new();
        while let Some(number) = self.waiting.pop() {
            if self.places[number as usize].flags & SWEPT != 0 {
                swept.push(number);
            }
            // One that was named later has no references here: it was marked with what it leads to.
            let bounds = self.starts.get(number as usize..number as usize + 2);
            let Some(&[start, end]) = bounds else { continue };
            for edge in start..end {
                let (_, to) = self.edges[edge as usize];
                self.mark(to);
            }
        }
        swept
    }

    /// Notes that this collection has deleted an object, or has brought it back.
    pub(super) fn sweep(&mut self, number: u32, is_swept: bool) {
        let place = &mut self.places[number as usize];
        place.flags = if is_swept { place.flags | SWEPT } else { place.flags & !SWEPT };
    }

    /// The database and the oid of an object, and the tid of its newest revision.
    pub(super) fn place(&self, number: u32) -> (usize, Oid, Tid) {
        let Place { oid, serial, database, .. } = self.places[number as usize];
        (usize::from(database), oid, serial)
    }

    pub(super) fn is_marked(&self, number: u32) -> bool {
        self.places[number as usize].flags & MARKED != 0
    }

    pub(super) fn is_alive(&self, number: u32) -> bool {
        self.places[number as usize].flags & ALIVE != 0
    }

    /// Whether no revision of it was ever seen, or all were deletions.
    pub(super) fn is_absent(&self, number: u32) -> bool {
        let place = &self.places[number as usize];
        place.flags & (ALIVE | SWEPT) == 0
    }

    /// The numbers of the objects of a database, in the order of their oids.
    pub(super) fn of_database(&self, database: usize) -> Vec<u32> {
        let mut numbers = Vec::new();
        self.numbers[database].each(|_, number| numbers.push(number as u32));
        numbers
    }
}
