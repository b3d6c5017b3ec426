//! Tables for people, which are also Markdown: docs/benchmarks.md shows this output.

use std::fmt::Write;

use super::number::{digits, with_range};
use super::{Document, Measurement, Sample, Shown};

/// Gives one of a sample's names.
type Named = fn(&Sample) -> &str;

/// A table of texts, before its layout.
#[derive(Debug)]
pub(crate) struct Table {
    /// How many columns hold words; the rest hold numbers.
    pub(crate) words: usize,
    pub(crate) headings: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Document {
    /// All tables, below a line that describes the machine.
    pub(crate) fn tables(&self) -> String {
        let mut text = format!("{}\n", self.machine.description());
        for measured in &self.measurements {
            text += &measured.markdown("");
        }
        text
    }
}

impl Measurement {
    /// Its title behind a mark, its table, and its notes.
    pub(crate) fn markdown(&self, mark: &str) -> String {
        let mut text = format!("\n{mark}{}\n\n{}", self.title, self.table().markdown());
        for note in &self.notes {
            let _ = writeln!(text, "\n{note}");
        }
        text
    }

    pub(crate) fn table(&self) -> Table {
        let groups = self.groups();
        let has = |named: Named| self.samples.iter().any(|sample| !named(sample).is_empty());
        let names: [(&str, Named); 2] =
            [(&self.compared, |sample| &sample.server), ("wire", |sample| &sample.wire)];
        let named: Vec<_> = names.into_iter().filter(|(_, named)| has(*named)).collect();
        let columns: Vec<_> = self.columns.iter().filter(|c| c.shown != Shown::Never).collect();
        let mut headings: Vec<String> = self.axes.iter().map(|axis| axis.heading.clone()).collect();
        headings.extend(named.iter().map(|(heading, _)| (*heading).to_owned()));
        let words = headings.len();
        headings.extend(columns.iter().map(|column| column.heading.clone()));
        headings.extend(self.ratios.iter().map(|ratio| ratio.heading.clone()));
        let row = |group: &Vec<&Sample>| {
            let first = group.first()?;
            let case = |key: &str| first.case.get(key).cloned().unwrap_or_default();
            let mut row: Vec<String> = self.axes.iter().map(|axis| case(&axis.key)).collect();
            row.extend(named.iter().map(|(_, named)| named(first).to_owned()));
            row.extend(
                columns
                    .iter()
                    .map(|column| column.shown.write(Measurement::spread(group, &column.key))),
            );
            row.extend(self.ratios.iter().map(|ratio| {
                let ratio = self.ratio_of(ratio, group);
                ratio.map_or(String::new(), |ratio| with_range(ratio, digits))
            }));
            Some(row)
        };
        Table { words, headings, rows: groups.iter().filter_map(row).collect() }
    }
}

impl Table {
    /// Markdown, padded to be readable as text: words left, numbers right.
    pub(crate) fn markdown(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.chain(self.headings.get(column)).map(|cell| cell.chars().count()).max()
        };
        let widths: Vec<usize> = (0..self.headings.len()).filter_map(width).collect();
        let mut text = String::new();
        for (index, row) in std::iter::once(&self.headings).chain(&self.rows).enumerate() {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                text += &if column < self.words {
                    format!("| {cell:<width$} ")
                } else {
                    format!("| {cell:>width$} ")
                };
            }
            text += "|\n";
            if index == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let end = if column < self.words { '-' } else { ':' };
                    let _ = write!(text, "|{}{end}", "-".repeat(width + 1));
                }
                text += "|\n";
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{measurement, sample};

    #[test]
    fn the_table_is_markdown_with_columns_in_line() {
        let samples = vec![sample("zodium", 0, 7.0), sample("another-server", 0, 170.0)];
        let table = measurement(samples).table().markdown();
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{table}");
        assert!(lines[1].starts_with("|---") && lines[1].contains("--:|"));
        assert!(lines[2].contains("| zodium ") && lines[2].contains(" 42.0k |"), "{table}");
    }

    #[test]
    fn numbers_stand_with_their_range() {
        let samples = [6.0, 8.0, 7.0].into_iter().enumerate();
        let samples = samples.map(|(round, us)| sample("zodium", round, us)).collect();
        let table = measurement(samples).table().markdown();
        assert!(table.contains(" 7.00 (6.00-8.00) |"), "{table}");
    }
}
