//! All that a log says of some objects: the report of ZODB's fsoids.

use std::collections::BTreeMap;
use std::fmt::Write;

use rustc_hash::FxHashMap;
use zodium_pickle::is_compressed;
use zodium_storage::LogItem;
use zodium_types::{Oid, Tid};

use crate::classes::Classes;
use crate::places::Place;
use crate::references::collect;
use crate::text::{bytes_repr, id_repr, time_of};

/// Longest user or description that is printed whole, in bytes.
const TEXT_BYTES: usize = 50;
/// What is kept of the start of a longer one.
const TEXT_START_BYTES: usize = 22;

/// Follows some objects through a log: their revisions, what they refer to, and what refers to
/// them.
pub struct Trace {
    objects: BTreeMap<Oid, Traced>,
    classes: Classes,
    /// Classes of objects as far as they are known by now.
    names: FxHashMap<Oid, u32>,
    transaction: Option<Heading>,
    /// The classes of the records with data of this transaction.
    records: Vec<(Oid, u32)>,
    /// Records of this transaction that concern one of the objects.
    concerned: Vec<Concerned>,
    /// Transactions of which something is told.
    headings: BTreeMap<Tid, Heading>,
    /// What is told of an object's part in a transaction, in the order of the report.
    messages: Vec<(Oid, Tid, String)>,
    references: Vec<Oid>,
    /// Records that zc.zlibstorage has compressed.
    compressed: u64,
    /// Other records that could not be read.
    unreadable: u64,
}

#[derive(Default)]
struct Traced {
    revisions: u64,
    class: Option<u32>,
}

struct Heading {
    tid: Tid,
    user: Vec<u8>,
    description: Vec<u8>,
    place: Option<Place>,
    is_told: bool,
}

struct Concerned {
    oid: Oid,
    class: u32,
    place: Option<Place>,
    references: Vec<Oid>,
}

impl Trace {
    /// Follows these objects.
    pub fn new(oids: impl IntoIterator<Item = Oid>) -> Trace {
        Trace {
            objects: oids.into_iter().map(|oid| (oid, Traced::default())).collect(),
            classes: Classes::default(),
            names: FxHashMap::default(),
            transaction: None,
            records: Vec::new(),
            concerned: Vec::new(),
            headings: BTreeMap::new(),
            messages: Vec::new(),
            references: Vec::new(),
            compressed: 0,
            unreadable: 0,
        }
    }

    /// Takes the next item of the log.
    pub fn take(&mut self, item: LogItem<'_>, place: Option<Place>) {
        match item {
            LogItem::Transaction { tid, user, description, .. } => {
                self.end_transaction();
                let (user, description) = (user.to_vec(), description.to_vec());
                let heading = Heading { tid, user, description, place, is_told: false };
                self.transaction = Some(heading);
            }
            LogItem::Record { oid, data: Some(data), .. } => self.take_record(oid, data, place),
            LogItem::Record { oid, data: None, .. } if self.objects.contains_key(&oid) => {
                self.tell(oid, format!("creation undo{}", at(place)));
            }
            LogItem::Record { .. } | LogItem::Skipped => {}
        }
    }

    fn take_record(&mut self, oid: Oid, data: &[u8], place: Option<Place>) {
        let class = self.classes.number(data);
        self.records.push((oid, class));
        let mut references = std::mem::take(&mut self.references);
        let is_read = collect(data, &mut references);
        match is_compressed(data) {
            true => self.compressed += 1,
            false => self.unreadable += u64::from(!is_read),
        }
        let traced = self.objects.get_mut(&oid);
        let is_traced = traced.is_some();
        if let Some(traced) = traced {
            traced.revisions += 1;
            traced.class = Some(class);
            self.names.insert(oid, class);
            let name = self.classes.name(class);
            self.tell(oid, format!("new revision {name}{}", at(place)));
        }
        let counts = |to: &Oid| is_traced || self.objects.contains_key(to);
        if references.iter().any(counts) {
            let references = references.iter().copied().filter(counts).collect();
            self.concerned.push(Concerned { oid, class, place, references });
        }
        self.references = references;
    }

    /// References are told when all records of the transaction are known, since they tell the
    /// classes of new objects.
    fn end_transaction(&mut self) {
        let concerned = std::mem::take(&mut self.concerned);
        // Made where it is needed only: most transactions concern none of the objects. Of several
        // records of an object the last one counts.
        let records: FxHashMap<Oid, u32> = match concerned.is_empty() {
            true => FxHashMap::default(),
            false => self.records.iter().copied().collect(),
        };
        for Concerned { oid, class, place, references } in concerned {
            let is_traced = self.objects.contains_key(&oid);
            for to in references {
                if self.objects.contains_key(&to) {
                    let class = *self.names.entry(oid).or_insert(class);
                    let (from, name) = (id_repr(oid.0), self.classes.name(class));
                    self.tell(to, format!("referenced by {from} {name}{}", at(place)));
                }
                if is_traced {
                    let known = self.names.get(&to).or_else(|| records.get(&to)).copied();
                    let name = known.map_or("<unknown>", |class| self.classes.name(class));
                    let told = format!("references {} {name}{}", id_repr(to.0), at(place));
                    self.tell(oid, told);
                    if let Some(class) = known {
                        self.names.insert(to, class);
                    }
                }
            }
        }
        self.records.clear();
        if let Some(heading) = self.transaction.take().filter(|heading| heading.is_told) {
            self.headings.insert(heading.tid, heading);
        }
    }

    fn tell(&mut self, oid: Oid, what: String) {
        if let Some(heading) = &mut self.transaction {
            heading.is_told = true;
            self.messages.push((oid, heading.tid, what));
        }
    }

    /// Records whose references only clients with zc.zlibstorage can read.
    pub fn compressed(&self) -> u64 {
        self.compressed
    }

    /// Other records whose references could not be read.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// The report: by object, and of each by transaction.
    pub fn report(&mut self) -> String {
        self.end_transaction();
        self.messages.sort();
        let mut text = String::new();
        let mut messages = self.messages.iter().peekable();
        for (oid, Traced { revisions, class }) in &self.objects {
            let name = class.map_or("<unknown>", |class| self.classes.name(class));
            let plural = if *revisions == 1 { "" } else { "s" };
            // Writing to a string does not fail.
            let _ = writeln!(text, "oid {} {name} {revisions} revision{plural}", id_repr(oid.0));
            if class.is_none() {
                text += "    this oid was not defined (no data record for it found)\n";
            }
            let mut last = None;
            while let Some((_, tid, what)) = messages.next_if(|(of, ..)| of == oid) {
                if last.replace(*tid) != Some(*tid) {
                    text += &self.headings.get(tid).map_or(String::new(), Heading::text);
                }
                let _ = writeln!(text, "        {what}");
            }
        }
        text
    }

    /// The report as one JSON object for each message.
    pub fn json(&mut self) -> Vec<serde_json::Value> {
        self.end_transaction();
        self.messages.sort();
        let message = |(oid, tid, what): &(Oid, Tid, String)| {
            let (oid, tid) = (oid.to_string(), tid.to_string());
            serde_json::json!({ "oid": oid, "tid": tid, "what": what })
        };
        self.messages.iter().map(message).collect()
    }
}

impl Heading {
    fn text(&self) -> String {
        let offset = self.place.map_or(String::new(), |at| format!(" offset={}", at.position));
        format!(
            "    tid {}{offset} {}\n        tid user={}\n        tid description={}\n",
            id_repr(self.tid.0),
            time_of(self.tid),
            bytes_repr(&shortened(&self.user)),
            bytes_repr(&shortened(&self.description)),
        )
    }
}

fn at(place: Option<Place>) -> String {
    place.map_or(String::new(), |place| format!(" at {}", place.position))
}

/// A text without its middle, if it is long.
fn shortened(text: &[u8]) -> Vec<u8> {
    if text.len() <= TEXT_BYTES {
        return text.to_vec();
    }
    let end = text.len() - (TEXT_BYTES - TEXT_START_BYTES);
    [&text[..TEXT_START_BYTES], b" ... ", &text[end..]].concat()
}
