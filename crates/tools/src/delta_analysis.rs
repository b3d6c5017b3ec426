//! What the space of a part of a log is used for: the report of `zodb analyze` on a `.deltafs` of
//! repozo. What was current before is not known, so records are counted, and not objects.

use std::fmt::Write;

use serde_json::json;
use zodium_storage::LogItem;

use crate::TidRange;
use crate::analyze::{Analysis, Counts, NAME_CHARACTERS, mean, percent, shortened, write_head};

const HEADINGS: [&str; 5] = ["Class Name", "T.Count", "T.Bytes", "Pct", "AvgSize"];
const WIDTHS: [usize; 5] = [NAME_CHARACTERS, 7, 9, 5, 7];

/// Counts of records and bytes, in all and by class.
#[derive(Debug, Default)]
pub struct DeltaAnalysis {
    range: TidRange,
    /// Whether the transaction whose records come now counts.
    is_in_range: bool,
    /// Its counts of objects say nothing.
    counted: Analysis,
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
                    self.counted.begin(*tid);
                }
            }
            LogItem::Record { data, .. } if self.is_in_range => {
                self.counted.records += 1;
                let Some(data) = data else { return };
                let class = self.counted.classes.number(data);
                self.counted.add(class, data.len() as u64, None);
            }
            LogItem::Record { .. } | LogItem::Skipped => {}
        }
    }

    /// The report as a table.
    pub fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write_table(&mut text);
        text
    }

    fn write_table(&self, text: &mut String) -> std::fmt::Result {
        let Some(tids) = self.counted.tids else {
            return writeln!(text, "# \u{f8}\nNo transactions processed");
        };
        let Analysis { transactions, records, total: Counts { bytes, .. }, .. } = self.counted;
        let (by_record, by_transaction) = (mean(bytes, records), mean(bytes, transactions));
        write_head(text, tids, (transactions, records, bytes))?;
        let line = |text: &mut String, [name, count, bytes, percent, mean]: [&str; 5]| {
            writeln!(text, "{name:<46} {count:>7} {bytes:>9} {percent:>6} {mean:>7}")
        };
        let rule = |character: &str| WIDTHS.map(|width| character.repeat(width));
        line(text, HEADINGS)?;
        line(text, rule("-").each_ref().map(String::as_str))?;
        let mut percents = 0.0;
        for (name, Counts { records, bytes: size, .. }) in self.counted.by_bytes() {
            let (name, share, mean) = (shortened(name), percent(size, bytes), mean(size, records));
            percents += share;
            writeln!(text, "{name:<46} {records:7} {size:9} {share:5.1}% {mean:7.2}")?;
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
        for (name, Counts { records, bytes, .. }) in self.counted.by_bytes() {
            let (share, mean) = (percent(bytes, self.counted.total.bytes), mean(bytes, records));
            let _ = writeln!(text, "{name},{records},{bytes},{share:.6}%,{mean:.6}");
        }
        text
    }

    /// The report as JSON.
    pub fn json(&self) -> serde_json::Value {
        let Analysis { tids, transactions, records, total, .. } = &self.counted;
        let class = |(name, counts): (&str, Counts)| {
            let Counts { records, bytes, .. } = counts;
            json!({ "class": name, "records": records, "bytes": bytes })
        };
        json!({
            "first": tids.map(|(first, _)| first.to_string()),
            "last": tids.map(|(_, last)| last.to_string()),
            "transactions": transactions,
            "records": records,
            "total": { "bytes": total.bytes },
            "classes": self.counted.by_bytes().into_iter().map(class).collect::<Vec<_>>(),
        })
    }
}
