//! `simulate`: runs a number of seeds, or seeds for a time, of a server or of a NEO cluster.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use zodium_simulation::{
    ClusterBug, ClusterMasters, ClusterOptions, ClusterReport, Events, InjectedBug, Options,
    Report, RespBug, RespOptions, Violation, lacking_of_resp, run, run_cluster, run_resp,
};

/// Runs a server, or a NEO cluster, under simulated clients, networks, disks and clocks.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// What to simulate
    #[arg(long, value_enum, default_value_t = Subject::Zeo)]
    of: Subject,
    /// The first seed; further runs have the next ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// Run seeds for this many minutes instead
    #[arg(long)]
    minutes: Option<f64>,
    /// Steps of each run
    #[arg(long, default_value_t = 20_000)]
    steps: u64,
    /// Parallel runs [default: number of processors]
    #[arg(long)]
    threads: Option<usize>,
    /// Print every event; for one seed
    #[arg(long)]
    trace: bool,
}

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// A server of ZEO over a FileStorage
    Zeo,
    /// A cluster of NEO, whose storages are real
    Neo,
    /// A cluster of NEO, whose masters are real, too
    NeoMasters,
    /// A server of Redis clients, without storages
    Resp,
}

/// State shared by all threads.
struct Progress {
    arguments: Arguments,
    end: Option<Instant>,
    next: AtomicU64,
    total: Mutex<Total>,
}

#[derive(Default)]
struct Total {
    runs: u64,
    violations: u64,
    report: Report,
    cluster: ClusterReport,
    resp: Events,
}

thread_local! {
    /// The seed that this thread runs, for the panic message.
    static SEED: Cell<u64> = const { Cell::new(0) };
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (of, steps) = (arguments.of, arguments.steps);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        tell_replay(of, SEED.get(), steps);
    }));
    let processors = || thread::available_parallelism().map_or(1, Into::into);
    let threads = arguments.threads.unwrap_or_else(processors).max(1);
    let minutes = arguments.minutes.map(|minutes| Duration::from_secs_f64(60.0 * minutes));
    let started = Instant::now();
    let progress = Progress {
        end: minutes.map(|minutes| started + minutes),
        next: AtomicU64::new(arguments.seed),
        total: Mutex::default(),
        arguments,
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| progress.run_seeds());
        }
    });
    progress.tell(started.elapsed())
}

fn tell_replay(of: Subject, seed: u64, steps: u64) {
    let of = match of {
        Subject::Zeo => "",
        Subject::Neo => " --of neo",
        Subject::NeoMasters => " --of neo-masters",
        Subject::Resp => " --of resp",
    };
    eprintln!("    cargo run -p zodium-simulation --{of} --seed {seed} --steps {steps} --trace");
}

impl Progress {
    fn run_seeds(&self) {
        let Arguments { of, steps, trace, .. } = self.arguments;
        while let Some(seed) = self.next_seed() {
            SEED.set(seed);
            let outcome = match of {
                Subject::Zeo => {
                    let outcome = run(&Options { seed, steps, trace, bug: InjectedBug::None });
                    outcome.map(|report| self.add(|total| total.report.add(&report)))
                }
                Subject::Neo => self.run_cluster(seed, ClusterMasters::Model),
                Subject::NeoMasters => self.run_cluster(seed, ClusterMasters::Real),
                Subject::Resp => {
                    let outcome = run_resp(&RespOptions { seed, steps, trace, bug: RespBug::None });
                    outcome.map(|report| self.add(|total| total.resp.add(&report)))
                }
            };
            if let Err(violation) = outcome {
                self.tell_violation(&violation);
            }
        }
    }

    fn run_cluster(&self, seed: u64, masters: ClusterMasters) -> Result<(), Violation> {
        let Arguments { steps, trace, .. } = self.arguments;
        let bug = ClusterBug::None;
        let report = run_cluster(&ClusterOptions { seed, steps, trace, masters, bug })?;
        self.add(|total| total.cluster.add(&report));
        Ok(())
    }

    fn add(&self, add: impl FnOnce(&mut Total)) {
        if let Ok(mut total) = self.total.lock() {
            total.runs += 1;
            add(&mut total);
        }
    }

    fn tell_violation(&self, violation: &Violation) {
        self.add(|total| total.violations += 1);
        eprintln!("{violation}");
        tell_replay(self.arguments.of, violation.seed, self.arguments.steps);
    }

    fn next_seed(&self) -> Option<u64> {
        let seed = self.next.fetch_add(1, Ordering::Relaxed);
        let is_wanted = match self.end {
            Some(end) => Instant::now() < end,
            None => seed < self.arguments.seed.saturating_add(self.arguments.runs),
        };
        is_wanted.then_some(seed)
    }

    fn tell(&self, took: Duration) -> ExitCode {
        let Ok(total) = self.total.lock() else { return ExitCode::FAILURE };
        let Total { runs, violations, report, cluster, resp } = &*total;
        let (seed, steps) = (self.arguments.seed, self.arguments.steps);
        println!("{runs} runs of {steps} steps from seed {seed} in {:.1} s", took.as_secs_f64());
        let (told, lacking) = match self.arguments.of {
            Subject::Zeo => (report.to_string(), report.lacking(*runs, steps)),
            Subject::Neo => {
                (cluster.to_string(), cluster.lacking(ClusterMasters::Model, (*runs, steps)))
            }
            Subject::NeoMasters => {
                (cluster.to_string(), cluster.lacking(ClusterMasters::Real, (*runs, steps)))
            }
            Subject::Resp => (resp.to_string(), lacking_of_resp(resp, *runs, steps)),
        };
        println!("{told}");
        println!("{violations} violations");
        if *violations == 0 && !lacking.is_empty() {
            println!("these runs show nothing: there was none, or too little, of {lacking:?}");
        }
        let is_good = *violations == 0 && lacking.is_empty();
        if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
