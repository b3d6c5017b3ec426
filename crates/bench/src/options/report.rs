//! Options of `zodium-bench report`.

use std::path::PathBuf;

use clap::Args;

/// Options of `zodium-bench report`.
#[derive(Debug, Args)]
pub(crate) struct ReportOptions {
    /// Files that other benchmarks wrote with --json
    #[arg(required = true, value_name = "FILE.json")]
    pub(crate) files: Vec<PathBuf>,

    /// The page to write: in HTML, or only its tables in Markdown if the name ends with .md
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub(crate) output: PathBuf,
}
