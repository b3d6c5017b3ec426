//! `zodium-bench report`: shows result files as one self-contained page, or as tables in Markdown.
//!
//! Charts are inline SVG, with colours from the page's style sheet. So the same page fits light and
//! dark mode and paper, which images drawn by a plotting library do not.

mod bars;
mod chart;
mod curve;
mod latencies;
mod text;

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use self::text::escaped;
use crate::options::ReportOptions;
use crate::result::{Chart, Document, FORMAT, Measurement};

const STYLE: &str = include_str!("style.css");

/// Reads the files and writes the page; the name of the page says in which format.
pub(crate) fn run(options: &ReportOptions) -> Result<()> {
    let documents = options.files.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    let is_markdown = options.output.extension().is_some_and(|extension| extension == "md");
    let page = if is_markdown { markdown(&documents) } else { page(&documents) };
    let cannot = || format!("cannot write {}", options.output.display());
    std::fs::write(&options.output, page).with_context(cannot)?;
    println!("{}", options.output.display());
    Ok(())
}

fn read(path: &Path) -> Result<Document> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let document: Document = serde_json::from_str(&text)
        .with_context(|| format!("{name} is no file that `zodium-bench ... --json` wrote"))?;
    let format = document.format;
    ensure!(format == FORMAT, "{name} is of format {format}, not {FORMAT}: measure again");
    Ok(document)
}

/// The tables without the charts.
fn markdown(documents: &[Document]) -> String {
    let mut text = "# All results of one run\n".to_owned();
    let mut machine = String::new();
    for document in documents {
        let described = document.machine.system();
        if described != machine {
            let _ = writeln!(text, "\nOn {described}:");
            machine = described;
        }
        for measured in &document.measurements {
            text += &measured.markdown("## ");
        }
    }
    text
}

fn page(documents: &[Document]) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>Zodium beside its peers</title>\n<style>\n{STYLE}</style></head><body>\n\
         <h1>Zodium beside its peers</h1>\n\
         <p>Medians of the rounds, with minimum and maximum. Ratios are taken within each round: \
         what disturbed the machine for a while disturbed both sides.</p>\n"
    );
    put_contents(&mut page, documents);
    let mut number = 0;
    for document in documents {
        put_document(&mut page, document, &mut number);
    }
    page += "</body></html>\n";
    page
}

/// Links to all sections.
fn put_contents(page: &mut String, documents: &[Document]) {
    page.push_str("<nav><ol>\n");
    let measured = documents.iter().flat_map(|document| &document.measurements);
    for (number, measured) in (1..).zip(measured) {
        let title = escaped(&measured.title);
        let _ = writeln!(page, "<li><a href=\"#m{number}\">{title}</a></li>");
    }
    page.push_str("</ol></nav>\n");
}

/// `number` is the number of the last section.
fn put_document(page: &mut String, document: &Document, number: &mut usize) {
    for measured in &document.measurements {
        *number += 1;
        let title = escaped(&measured.title);
        let _ = writeln!(page, "<section><h2 id=\"m{number}\">{title}</h2>");
        put_table(page, measured);
        for note in &measured.notes {
            let _ = writeln!(page, "<p>{}</p>", escaped(note));
        }
        page.push_str("<div class=\"charts\">\n");
        for chart in &measured.charts {
            page.push_str(&match chart {
                Chart::Curve { axis, column } => curve::charts(measured, axis, column),
                Chart::Bars { column } => bars::charts(measured, column),
                Chart::Latencies => latencies::charts(measured),
            });
        }
        page.push_str("</div></section>\n");
    }
    let _ = writeln!(
        page,
        "<details><summary>{}</summary><p>{}, taken at {}</p><p><code>{}</code></p>\
         </details>",
        escaped(&document.machine.description()),
        escaped(&document.program),
        jiff::Timestamp::from_second(document.started.cast_signed()).unwrap_or_default(),
        escaped(&document.command_line.join(" ")),
    );
}

fn put_table(page: &mut String, measured: &Measurement) {
    let table = measured.table();
    let cell = |element: &str, column: usize, text: &str| {
        let class = if column < table.words { "" } else { " class=\"figure\"" };
        format!("<{element}{class}>{}</{element}>", escaped(text))
    };
    let row = |element: &str, cells: &[String]| -> String {
        cells.iter().enumerate().map(|(column, text)| cell(element, column, text)).collect()
    };
    let _ = writeln!(
        page,
        "<div class=\"wide\"><table><thead><tr>{}</tr></thead><tbody>",
        row("th", &table.headings)
    );
    for cells in &table.rows {
        let _ = writeln!(page, "<tr>{}</tr>", row("td", cells));
    }
    page.push_str("</tbody></table></div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::result::tests::{measurement, sample};
    use crate::result::{Latencies, Sample};

    fn document() -> Document {
        let mut latencies = Latencies::new().unwrap();
        (1..2000).for_each(|n| latencies.record(std::time::Duration::from_micros(n)));
        let with = |server: &str, clients: u32, round| {
            let sample = sample(server, round, f64::from(clients)).case("clients", clients);
            Sample::distribution(sample, &latencies)
        };
        let samples = [1, 4, 16].into_iter().flat_map(|clients| {
            ["zodium", "<zeo> & co"].into_iter().map(move |server| (server, clients))
        });
        let samples = samples.map(|(server, clients)| with(server, clients, 0)).collect();
        let measured = measurement(samples)
            .curve("clients", "requests_per_second")
            .bars("server_cpu_us")
            .latencies();
        let mut document = Document::begin(Machine::here());
        document.measurements.push(measured);
        document
    }

    #[test]
    fn the_page_has_every_chart_and_needs_nothing_else() {
        let page = page(&[document()]);
        assert!(page.contains("href=\"#m1\"") && page.contains("<h2 id=\"m1\""), "{page}");
        // One curve, and bars and latencies for each of three cases.
        assert_eq!(page.matches("<svg").count(), 7, "{page}");
        assert!(page.contains("&lt;zeo&gt; &amp; co") && !page.contains("<zeo>"));
        for outside in ["http://", "https://", "<script", "<link", "<img", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }

    #[test]
    fn markdown_has_the_table_of_each_measurement() {
        let text = markdown(&[document(), document()]);
        assert_eq!(text.matches("\n## ").count(), 2, "{text}");
        assert_eq!(text.matches("\nOn ").count(), 1, "{text}");
        assert!(text.contains("| zodium "), "{text}");
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("load.json");
        let written = document();
        std::fs::write(&path, serde_json::to_string(&written).unwrap()).unwrap();
        let read = read(&path).unwrap();
        assert_eq!(read.measurements[0].samples, written.measurements[0].samples);
        assert_eq!(page(&[read]), page(&[written]));
        std::fs::write(&path, "{}").unwrap();
        let error = super::read(&path).unwrap_err().to_string();
        assert!(error.contains("load.json is no file"), "{error}");
    }
}
