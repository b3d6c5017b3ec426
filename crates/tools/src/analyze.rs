//! What the space of a database is used for, by class: the report of `zodb analyze`.

use std::fmt::Write;

use serde_json::json;
use zodium_storage::{LogItem, Read};
use zodium_types::Tid;

use crate::classes::Classes;
use crate::oid_map::OidMap;
use crate::walk::walk;
use crate::{TidRange, ToolError};

/// Longest name of a class in a table, in characters.
pub(crate) const NAME_CHARACTERS: usize = 46;
/// An object's number in the map is its class and the size of its last record.
const SIZE_BITS: u32 = 40;
const SIZE_MAX: u64 = (1 << SIZE_BITS) - 1;

/// Counts of records and bytes, in all and by class.
#[derive(Debug, Default)]
pub struct Analysis {
    /// The first and the last transaction.
    pub(crate) tids: Option<(Tid, Tid)>,
    pub(crate) transactions: u64,
    /// Records, those without data included.
    pub(crate) records: u64,
    /// Counts of all classes together.
    pub(crate) total: Counts,
    pub(crate) classes: Classes,
    /// By the numbers of the classes.
    by_class: Vec<Counts>,
}

/// Records with data, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Objects, so the newest records.
    current_records: u64,
    /// Bytes of the newest records.
    current_bytes: u64,
}

impl Counts {
    fn add(&mut self, size: u64, old_size: Option<u64>) {
        self.records += 1;
        self.bytes += size;
        self.current_bytes = self.current_bytes + size - old_size.unwrap_or(0);
        self.current_records += u64::from(old_size.is_none());
    }

    fn old_records(&self) -> u64 {
        self.records - self.current_records
    }

    fn old_bytes(&self) -> u64 {
        self.bytes - self.current_bytes
    }
}

impl Analysis {
    /// Reads the transactions of a range. An object has the class of its first record.
    pub fn of(storage: &dyn Read, range: TidRange) -> Result<Analysis, ToolError> {
        let mut analysis = Analysis::default();
        let mut objects = OidMap::default();
        walk(storage, range, &mut |item| {
            match item {
                LogItem::Transaction { tid, .. } => analysis.begin(tid),
                LogItem::Record { oid, data, .. } => {
                    analysis.records += 1;
                    let Some(data) = data else { return Ok(()) };
                    let size = (data.len() as u64).min(SIZE_MAX);
                    let known = objects.find(oid);
                    let class = match known {
                        Some(known) => (known >> SIZE_BITS) as u32,
                        None => analysis.classes.number(data),
                    };
                    objects.insert(oid, u64::from(class) << SIZE_BITS | size);
                    analysis.add(class, size, known.map(|known| known & SIZE_MAX));
                }
                LogItem::Skipped => {}
            }
            Ok(())
        })?;
        Ok(analysis)
    }

    /// Counts a transaction.
    pub(crate) fn begin(&mut self, tid: Tid) {
        self.transactions += 1;
        self.tids = Some((self.tids.map_or(tid, |(first, _)| first), tid));
    }

    /// Counts a record; `old_size` is that of the one before it of the same object.
    pub(crate) fn add(&mut self, class: u32, size: u64, old_size: Option<u64>) {
        let class = class as usize;
        if class >= self.by_class.len() {
            self.by_class.resize(class + 1, Counts::default());
        }
        self.by_class[class].add(size, old_size);
        self.total.add(size, old_size);
    }

    /// The classes by the bytes of their records, the smallest first; those of equal bytes in the
    /// order in which they were seen.
    pub(crate) fn by_bytes(&self) -> Vec<(&str, Counts)> {
        let mut all: Vec<_> =
            (0..).zip(&self.by_class).map(|(n, counts)| (self.classes.name(n), *counts)).collect();
        all.sort_by_key(|(_, counts)| counts.bytes);
        all
    }

    /// The report as a table.
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write_table(&mut text);
        text
    }

    fn write_table(&self, text: &mut String) -> std::fmt::Result {
        let Some(tids) = self.tids else {
            return writeln!(text, "# \u{f8}\nNo transactions processed");
        };
        let total = &self.total;
        let by_transaction = mean(total.bytes, self.transactions);
        write_head(text, tids, (self.transactions, self.records, total.bytes))?;
        let line = |text: &mut String, of: [&str; 9]| {
            let [name, count, bytes, percent, mean, current, current_bytes, old, old_bytes] = of;
            writeln!(
                text,
                "{name:<46} {count:>7} {bytes:>9} {percent:>6} {mean:>7} {current:>7} \
                 {current_bytes:>9} {old:>7} {old_bytes:>9}"
            )
        };
        line(text, HEADINGS)?;
        let rule = |character: &str| WIDTHS.map(|width| character.repeat(width));
        line(text, rule("-").each_ref().map(String::as_str))?;
        let mut percents = 0.0;
        for (name, counts) in self.by_bytes() {
            let percent = percent(counts.bytes, total.bytes);
            percents += percent;
            writeln!(
                text,
                "{:<46} {:7} {:9} {percent:5.1}% {:7.2} {:7} {:9} {:7} {:9}",
                shortened(name),
                counts.records,
                counts.bytes,
                mean(counts.bytes, counts.records),
                counts.current_records,
                counts.current_bytes,
                counts.old_records(),
                counts.old_bytes(),
            )?;
        }
        line(text, rule("=").each_ref().map(String::as_str))?;
        let kilobytes = by_transaction / 1024.0;
        let (label, blank) = ("Total Transactions", " ");
        writeln!(
            text,
            "{label:>46} {:7} {blank:>9} {blank:>6} {kilobytes:6.2}k",
            self.transactions
        )?;
        let mut sum = |label: &str, count: u64, bytes: u64, percent: f64| {
            let mean = mean(bytes, count);
            writeln!(text, "{label:>46} {count:7} {:8}k {percent:5.1}% {mean:7.2}", bytes / 1024)
        };
        sum("Total Records", self.records, total.bytes, percents)?;
        let share = |bytes| percent(bytes, total.bytes);
        let current = total.current_bytes;
        sum("Current Objects", total.current_records, current, share(current))?;
        if total.old_records() > 0 {
            sum("Old Objects", total.old_records(), total.old_bytes(), share(total.old_bytes()))?;
        }
        Ok(())
    }

    /// The report as comma-separated values, with a line of headings.
    pub fn csv(&self) -> String {
        let mut text = HEADINGS.join(",") + "\n";
        for (name, counts) in self.by_bytes() {
            let percent = percent(counts.bytes, self.total.bytes);
            let _ = writeln!(
                text,
                "{name},{},{},{percent:.6}%,{:.6},{},{},{},{}",
                counts.records,
                counts.bytes,
                mean(counts.bytes, counts.records),
                counts.current_records,
                counts.current_bytes,
                counts.old_records(),
                counts.old_bytes(),
            );
        }
        text
    }

    /// The report as JSON.
    pub fn json(&self) -> serde_json::Value {
        let counts = |counts: &Counts| {
            json!({
                "records": counts.records,
                "bytes": counts.bytes,
                "current_records": counts.current_records,
                "current_bytes": counts.current_bytes,
            })
        };
        let classes = self.by_bytes().into_iter().map(|(name, of_class)| {
            let mut fields = counts(&of_class);
            fields["class"] = name.into();
            fields
        });
        json!({
            "first": self.tids.map(|(first, _)| first.to_string()),
            "last": self.tids.map(|(_, last)| last.to_string()),
            "transactions": self.transactions,
            "records": self.records,
            "total": counts(&self.total),
            "classes": classes.collect::<Vec<_>>(),
        })
    }
}

const HEADINGS: [&str; 9] = [
    "Class Name",
    "T.Count",
    "T.Bytes",
    "Pct",
    "AvgSize",
    "C.Count",
    "C.Bytes",
    "O.Count",
    "O.Bytes",
];
const WIDTHS: [usize; 9] = [NAME_CHARACTERS, 7, 9, 5, 7, 7, 9, 7, 9];

/// Writes the lines above the table of classes: the range, numbers of transactions and records, and
/// means of their bytes.
pub(crate) fn write_head(
    text: &mut String,
    (first, last): (Tid, Tid),
    (transactions, records, bytes): (u64, u64, u64),
) -> std::fmt::Result {
    let (by_record, by_transaction) = (mean(bytes, records), mean(bytes, transactions));
    writeln!(text, "# {first}..{last}")?;
    writeln!(text, "Processed {records} records in {transactions} transactions")?;
    writeln!(text, "Average record size is {by_record:7.2} bytes")?;
    writeln!(text, "Average transaction size is {by_transaction:7.2} bytes")?;
    writeln!(text, "Types used:")
}

pub(crate) fn mean(bytes: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { bytes as f64 / count as f64 }
}

pub(crate) fn percent(bytes: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { bytes as f64 * 100.0 / of as f64 }
}

/// A name without its first parts, if it is too long for the table.
pub(crate) fn shortened(name: &str) -> String {
    let length = |text: &str| text.chars().count();
    if length(name) <= NAME_CHARACTERS {
        return name.to_owned();
    }
    let mut rest = name;
    while length(rest) + 3 > NAME_CHARACTERS {
        match rest.split_once('.') {
            Some((_, behind)) => rest = behind,
            None => {
                return rest.chars().skip(length(rest).saturating_sub(NAME_CHARACTERS)).collect();
            }
        }
    }
    format!("...{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_lose_their_first_parts() {
        assert_eq!(shortened(&"a".repeat(46)), "a".repeat(46));
        assert_eq!(shortened(&"ab".repeat(24)), "ab".repeat(23));
        let long = format!("one.two.three.{}", "x".repeat(36));
        assert_eq!(shortened(&long), format!("...three.{}", "x".repeat(36)));
        let last = format!("one.{}", "é".repeat(44));
        assert_eq!(shortened(&last), "é".repeat(44));
    }
}
