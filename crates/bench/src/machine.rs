//! The machine that a benchmark ran on.

use serde::{Deserialize, Serialize};

/// From this load average on a warning is printed.
const LOAD_AVERAGE_MAX: f64 = 0.5;

/// A machine, as far as it matters to a reader of results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// Average number of runnable threads in the minute before. If other programs run, the results
    /// say little.
    pub(crate) load_average: f64,
    /// Whether it is a virtual machine, whose host may take its processors away.
    pub(crate) is_virtual: bool,
    /// The compared programs with their versions.
    pub(crate) versions: Vec<String>,
}

impl Machine {
    pub(crate) fn here() -> Machine {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let cpu = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let load_average = read("/proc/loadavg");
        let load_average = load_average.split(' ').next().and_then(|field| field.parse().ok());
        Machine {
            cpu: cpu.map_or("unknown", |(_, model)| model).to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            load_average: load_average.unwrap_or(0.0),
            is_virtual: info.split_whitespace().any(|flag| flag == "hypervisor"),
            versions: Vec::new(),
        }
    }

    /// Warns the user if other programs disturb the results.
    pub(crate) fn warn(&self) {
        if self.load_average > LOAD_AVERAGE_MAX {
            eprintln!(
                "warning: the load average is {}: other programs run, and results will be off",
                self.load_average
            );
        }
    }

    /// One line for people.
    pub(crate) fn description(&self) -> String {
        let mut text = format!("{}, load average {} before", self.system(), self.load_average);
        for version in &self.versions {
            text += &format!("; {version}");
        }
        text
    }

    /// Its processors and its kernel.
    pub(crate) fn system(&self) -> String {
        let kind = if self.is_virtual { " (virtual)" } else { "" };
        format!("{} x {}{kind}, {}", self.cores, self.cpu, self.kernel)
    }
}
