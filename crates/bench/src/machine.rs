//! What the figures were taken on.

use serde::Serialize;

/// A machine, as far as it matters to a reader of figures.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// Runnable threads, averaged over the minute before; with anything else running, figures
    /// say little.
    pub(crate) load_average: f64,
}

impl Machine {
    pub(crate) fn here() -> Machine {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let load_average = read("/proc/loadavg");
        let load_average = load_average.split(' ').next().and_then(|field| field.parse().ok());
        Machine {
            cpu: cpu.map_or("unknown", |(_, model)| model).to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            load_average: load_average.unwrap_or(f64::NAN),
        }
    }
}
