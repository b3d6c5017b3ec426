//! What the space of a part of a log is used for: the report of `zodb analyze` on a `.deltafs` of
//! repozo. What was current before is not known, so records are counted, and not objects.

use std::fmt::Write;

use serde_json::json;
use zodium_storage::LogItem;
use zodium_types::Tid;

use crate::TidRange;
use crate::analyze::{NAME_CHARACTERS, mean, percent, shortened, write_head};
use crate::classes::Classes;

const HEADINGS: [&str; 5] = ["Class Name", "T.Count", "T.Bytes", "Pct", "AvgSize"];
const WIDTHS: [usize; 5] = [NAME_CHARACTERS, 7, 9, 5, 7];

/// Counts of records and bytes, in all and by class.
#[derive(Debug, Default)]
pub struct DeltaAnalysis {
    range: TidRange,
    /// Whether the transaction whose records come now counts.
    is_in_range: bool,
    tids: Option<(Tid, Tid)>,
    transactions: u64,
    records: u64,
    bytes: u64,
    classes: Classes,
    /// By the numbers of the classes: records and bytes.
    by_class: Vec<(u64, u64)>,
}

impl DeltaAnalysis {
    /// Counts the transactions of a range.
    pub fn new(range: TidRange) -> DeltaAnalysis {
        DeltaAnalysis { range, ..DeltaAnalysis::default() }
    }

    /// Takes the next item of the log. A record has its own class, and not that of its object.
    pub fn take(&mut self, item: &LogItem<'_>) {
        match item {
            LogItem::Transaction { tid, .. } => {
                let TidRange { min, max } = self.range;
                self.is_in_range =
                    min.is_none_or(|min| min <= *tid) && max.is_none_or(|max| *tid <= max);
                if self.is_in_range {
                    self.transactions += 1;
                    self.tids = Some((self.tids.map_or(*tid, |(first, _)| first), *tid));
                }
            }
            LogItem::Record { data, .. } if self.is_in_range => {
                self.records += 1;
                let Some(data) = data else { return };
                let class = self.classes.number(data) as usize;
                if class >= self.by_class.len() {
                    self.by_class.resize(class + 1, (0, 0));
                }
                let (records, bytes) = &mut self.by_class[class];
                *records += 1;
                *bytes += data.len() as u64;
                self.bytes += data.len() as u64;
            }
            LogItem::Record { .. } | LogItem::Skipped => {}
        }
    }

    /// Names of classes, records and bytes; the fewest bytes first, and of equal ones the class
    /// that was seen first.
    fn by_bytes(&self) -> Vec<(&str, u64, u64)> {
        let all = (0..).zip(&self.by_class);
        let named = all.map(|(number, (records, bytes))| {
            let name = self.classes.name(number);
            (name, *records, *bytes)
        });
        let mut all: Vec<_> = named.collect();
        all.sort_by_key(|(_, _, bytes)| *bytes);
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
        let DeltaAnalysis { transactions, records, bytes, .. } = *self;
        let (by_record, by_transaction) = (mean(bytes, records), mean(bytes, transactions));
        write_head(text, tids, (transactions, records, bytes))?;
        let line = |text: &mut String, [name, count, bytes, percent, mean]: [&str; 5]| {
            writeln!(text, "{name:<46} {count:>7} {bytes:>9} {percent:>6} {mean:>7}")
        };
        let rule = |character: &str| WIDTHS.map(|width| character.repeat(width));
        line(text, HEADINGS)?;
        line(text, rule("-").each_ref().map(String::as_str))?;
        let mut percents = 0.0;
        for (name, count, size) in self.by_bytes() {
            let (name, share, mean) = (shortened(name), percent(size, bytes), mean(size, count));
            percents += share;
            writeln!(text, "{name:<46} {count:7} {size:9} {share:5.1}% {mean:7.2}")?;
        }
        line(text, rule("=").each_ref().map(String::as_str))?;
        let (label, blank) = ("Total Transactions", " ");
        writeln!(text, "{label:>46} {transactions:7} {blank:>9} {blank:>6} {by_transaction:6.2}")?;
        let label = "Total Records";
        // zodbtools prints bytes here, with a k behind them.
        writeln!(text, "{label:>46} {records:7} {bytes:8}k {percents:5.1}% {by_record:7.2}")
    }

    /// The report as comma-separated values, with a line of headings.
    pub fn csv(&self) -> String {
        let mut text = HEADINGS.join(",") + "\n";
        for (name, records, bytes) in self.by_bytes() {
            let (share, mean) = (percent(bytes, self.bytes), mean(bytes, records));
            let _ = writeln!(text, "{name},{records},{bytes},{share:.6}%,{mean:.6}");
        }
        text
    }

    /// The report as JSON.
    pub fn json(&self) -> serde_json::Value {
        let class =
            |(name, records, bytes)| json!({ "class": name, "records": records, "bytes": bytes });
        json!({
            "first": self.tids.map(|(first, _)| first.to_string()),
            "last": self.tids.map(|(_, last)| last.to_string()),
            "transactions": self.transactions,
            "records": self.records,
            "total": { "bytes": self.bytes },
            "classes": self.by_bytes().into_iter().map(class).collect::<Vec<_>>(),
        })
    }
}
