//! `simulate`: runs a number of seeds, or seeds for a time.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use zodium_simulation::{InjectedBug, Options, Report, run};

/// Runs the server under simulated clients, networks, disks and clocks.
#[derive(Clone, Debug, Parser)]
struct Arguments {
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
}

thread_local! {
    /// The seed that this thread runs, for the panic message.
    static SEED: Cell<u64> = const { Cell::new(0) };
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let steps = arguments.steps;
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        tell_replay(SEED.get(), steps);
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

fn tell_replay(seed: u64, steps: u64) {
    eprintln!("    cargo run -p zodium-simulation -- --seed {seed} --steps {steps} --trace");
}

impl Progress {
    fn run_seeds(&self) {
        let Arguments { steps, trace, .. } = self.arguments;
        while let Some(seed) = self.next_seed() {
            SEED.set(seed);
            let outcome = run(&Options { seed, steps, trace, bug: InjectedBug::None });
            let Ok(mut total) = self.total.lock() else { return };
            total.runs += 1;
            match outcome {
                Ok(report) => total.report.add(&report),
                Err(violation) => {
                    total.violations += 1;
                    eprintln!("{violation}");
                    tell_replay(seed, steps);
                }
            }
        }
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
        let Total { runs, violations, report } = &*total;
        let (seed, steps) = (self.arguments.seed, self.arguments.steps);
        println!("{runs} runs of {steps} steps from seed {seed} in {:.1} s", took.as_secs_f64());
        println!("{report}");
        println!("{violations} violations");
        if *violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
