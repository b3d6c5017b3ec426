//! The format of Go's benchmarks, for benchstat: a line per sample, the servers as variants.
//!
//! See <https://go.googlesource.com/proposal/+/master/design/14313-benchmark-format.md>.

use std::fmt::Write;

use super::{Document, Measurement, Sample};

/// Names of the iteration count in Go's format: the first one that a sample has.
const COUNTS: [&str; 3] = ["requests", "transactions", "samples"];

impl Document {
    pub(crate) fn go_header(&self) -> String {
        let machine = &self.machine;
        format!(
            "goos: {}\ngoarch: {}\npkg: zodium\ncpu: {}\nkernel: {}\n",
            std::env::consts::OS,
            std::env::consts::ARCH,
            machine.cpu,
            machine.kernel,
        )
    }
}

impl Measurement {
    pub(crate) fn go_line(&self, sample: &Sample) -> String {
        let mut line = self.go_name("", sample);
        let count = COUNTS.iter().find_map(|key| sample.values.get(*key)).copied().unwrap_or(1.0);
        let _ = write!(line, "\t{count:.0}");
        for column in &self.columns {
            if let (Some((unit, factor)), Some(value)) =
                (&column.go, sample.values.get(&column.key))
            {
                let value = value * factor;
                let _ = match value {
                    1000.0.. => write!(line, "\t{value:.0} {unit}"),
                    _ => write!(line, "\t{value:.3} {unit}"),
                };
            }
        }
        line
    }

    /// A line for each sample with ratios, which are known after the last sample.
    pub(super) fn go_ratio_lines(&self) -> Vec<String> {
        let line = |sample: &Sample| {
            let ratios = self.ratios.iter().filter_map(|ratio| {
                let value = sample.values.get(&ratio.key())?;
                Some(format!("\t{value:.3} {}", ratio.key()))
            });
            let ratios: String = ratios.collect();
            (!ratios.is_empty()).then(|| self.go_name("Ratio", sample) + "\t1" + &ratios)
        };
        self.samples.iter().filter_map(line).collect()
    }

    /// The name of the benchmark, with the properties that tell its samples apart.
    fn go_name(&self, suffix: &str, sample: &Sample) -> String {
        let mut name = format!("Benchmark{}{suffix}", self.benchmark);
        let word = |text: &str| text.replace(|c: char| c.is_whitespace() || c == '/', "_");
        let named = [(self.compared.as_str(), &sample.server), ("wire", &sample.wire)];
        let axes = self
            .axes
            .iter()
            .filter_map(|axis| Some((axis.key.as_str(), sample.case.get(&axis.key)?)));
        for (key, value) in named.into_iter().chain(axes).filter(|(_, value)| !value.is_empty()) {
            let _ = write!(name, "/{key}={}", word(value));
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{measurement, sample};

    #[test]
    fn a_line_is_a_name_a_count_and_values_with_units() {
        let measured = measurement(Vec::new());
        assert_eq!(
            measured.go_line(&sample("zodium", 0, 7.25)),
            "BenchmarkLoad/server=zodium/wire=M5/clients=16/in_flight=1\t84000\t7250 cpu-ns/op\t\
             42000 req/s"
        );
    }

    #[test]
    fn ratios_have_lines_of_their_own() {
        let mut measured = measurement(vec![sample("zodium", 0, 6.0), sample("zeo", 0, 12.0)]);
        measured.note_ratios();
        let expected = "BenchmarkLoadRatio/server=zeo/wire=M5/clients=16/in_flight=1\t1\t0.500 \
             server_cpu_us_ratio";
        assert_eq!(measured.go_ratio_lines(), [expected]);
    }
}
