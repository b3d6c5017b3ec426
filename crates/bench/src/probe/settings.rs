//! Settings of the machine that affect benchmarks, with advice.

use std::path::Path;

/// From this exit latency on, a sleeping processor shows in round trips.
const DEEP_SLEEP_US: u64 = 20;
/// Share of stolen time from which on a warning is printed.
const STEAL_SHARE: f64 = 0.005;

/// A sentence on each setting that can be read.
pub(super) fn advice() -> Vec<String> {
    vec![governor(), turbo(), sleep_states()]
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn governor() -> String {
    match read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").as_deref() {
        None => "Governor: not visible here, so the host's; a guest cannot set it.".to_owned(),
        Some("performance") => "Governor: performance, as it should be.".to_owned(),
        Some(other) => format!(
            "Governor: {other}; `cpupower frequency-set -g performance` keeps the clock steady."
        ),
    }
}

fn turbo() -> String {
    let no_turbo = read("/sys/devices/system/cpu/intel_pstate/no_turbo").map(|text| text == "0");
    let boost = read("/sys/devices/system/cpu/cpufreq/boost").map(|text| text == "1");
    match no_turbo.or(boost) {
        None => "Turbo: not visible here, so the host's.".to_owned(),
        Some(false) => "Turbo: off, as it should be.".to_owned(),
        Some(true) => "Turbo: on; the first seconds may run faster than the rest. Write 1 to \
                       intel_pstate/no_turbo, or 0 to cpufreq/boost."
            .to_owned(),
    }
}

fn sleep_states() -> String {
    let folder = Path::new("/sys/devices/system/cpu/cpu0/cpuidle");
    let mut states = Vec::new();
    for number in 0.. {
        let state = folder.join(format!("state{number}"));
        let read = |name: &str| read(&state.join(name).display().to_string());
        let Some(name) = read("name") else { break };
        let latency: u64 = read("latency").and_then(|text| text.parse().ok()).unwrap_or(0);
        if read("disable").as_deref() != Some("1") {
            states.push((name, latency));
        }
    }
    let deepest = states.iter().map(|(_, latency)| *latency).max();
    let named: Vec<String> =
        states.iter().map(|(name, latency)| format!("{name} {latency} us")).collect();
    match deepest {
        None => "C-states: not visible here; the host wakes a sleeping virtual processor, see the \
                 ping-pong."
            .to_owned(),
        Some(deepest) if deepest >= DEEP_SLEEP_US => format!(
            "C-states: {}; the deepest delays every round trip. `cpupower idle-set -D {}` \
             disables states with a longer latency.",
            named.join(", "),
            DEEP_SLEEP_US / 2
        ),
        Some(_) => format!("C-states: {}; all wake up fast.", named.join(", ")),
    }
}

/// Processor time in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    pub(super) fn now() -> Ticks {
        Ticks::parse(&read("/proc/stat").unwrap_or_default())
    }

    fn parse(text: &str) -> Ticks {
        let line = text.lines().next().unwrap_or_default();
        let fields: Vec<u64> =
            line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
        // Guest time is part of user time already.
        let all = fields.iter().take(8).sum();
        Ticks { all, stolen: fields.get(7).copied().unwrap_or(0) }
    }

    pub(super) fn advice(self, earlier: Ticks) -> String {
        let all = self.all.saturating_sub(earlier.all).max(1);
        let share = self.stolen.saturating_sub(earlier.stolen) as f64 / all as f64;
        let percent = share * 100.0;
        if share < STEAL_SHARE {
            format!("Steal: {percent:.1} % while this ran; fine.")
        } else {
            format!(
                "Steal: {percent:.1} % while this ran: the host ran other guests. \
                 More rounds, and medians, help."
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_told() {
        let earlier = Ticks::parse("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1");
        let later = Ticks::parse("cpu  140 0 120 830 0 0 0 10 5 0\ncpu0 1");
        assert_eq!((later.all, later.stolen), (1100, 10));
        assert!(later.advice(earlier).starts_with("Steal: 10.0 % while this ran: the host"));
        assert!(earlier.advice(earlier).starts_with("Steal: 0.0 % while this ran; fine"));
    }
}
