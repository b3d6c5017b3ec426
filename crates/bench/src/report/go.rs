//! The format of Go's benchmarks, for benchstat: a line per sample, the servers as variants.
//!
//! See <https://go.googlesource.com/proposal/+/master/design/14313-benchmark-format.md>.

use super::{Report, Sample};

impl Report {
    pub(crate) fn go_header(&self) -> String {
        let (machine, dataset) = (&self.machine, &self.dataset);
        format!(
            "goos: {}\ngoarch: {}\npkg: zodium\ncpu: {}\nkernel: {}\n\
             dataset: {} objects, median {} bytes, seed {}\n",
            std::env::consts::OS,
            std::env::consts::ARCH,
            machine.cpu,
            machine.kernel,
            dataset.objects,
            dataset.median_bytes,
            dataset.seed,
        )
    }
}

impl Sample {
    pub(crate) fn go_line(&self) -> String {
        let figures = &self.figures;
        format!(
            "BenchmarkLoad/server={}/clients={}/inflight={}\t{}\t{:.1} ns/op\t{:.1} cpu-ns/op\t\
             {:.1} client-cpu-ns/op\t{:.0} req/s\t{:.0} p50-ns\t{:.0} p99-ns",
            self.server,
            self.clients,
            self.in_flight,
            figures.requests,
            1e9 / figures.requests_per_second(),
            figures.server_cpu_us * 1e3,
            figures.client_cpu_us * 1e3,
            figures.requests_per_second(),
            figures.p50_us * 1e3,
            figures.p99_us * 1e3,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::Figures;
    use super::*;

    #[test]
    fn a_line_is_a_name_a_count_and_values_with_units() {
        let figures = Figures {
            requests: 50_000,
            seconds: 2.0,
            server_cpu_us: 7.25,
            client_cpu_us: 5.5,
            p50_us: 80.0,
            p99_us: 120.0,
        };
        let sample = Sample {
            server: "zodium".to_owned(),
            wire: "M5",
            clients: 16,
            in_flight: 1,
            round: 0,
            figures,
        };
        assert_eq!(
            sample.go_line(),
            "BenchmarkLoad/server=zodium/clients=16/inflight=1\t50000\t40000.0 ns/op\t\
             7250.0 cpu-ns/op\t5500.0 client-cpu-ns/op\t25000 req/s\t80000 p50-ns\t120000 p99-ns"
        );
    }
}
