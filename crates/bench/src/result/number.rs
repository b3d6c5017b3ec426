//! Formats numbers for people.

use serde::{Deserialize, Serialize};

use crate::statistics::Spread;

/// How and where a column is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Shown {
    /// The median with minimum and maximum.
    Spread,
    /// Like `Spread`, in thousands.
    SpreadThousands,
    /// The median alone.
    Median,
    /// Like `Spread`; empty if there is no value.
    SpreadIfAny,
    /// The median alone, as a whole number.
    Count,
    /// Not shown; in files only.
    Never,
}

impl Shown {
    pub(crate) fn write(self, spread: Option<Spread>) -> String {
        if self == Shown::SpreadIfAny && spread.is_none() {
            return String::new();
        }
        let Some(spread) = spread.filter(|spread| spread.median.is_finite()) else {
            return "unknown".to_owned();
        };
        match self {
            Shown::Spread | Shown::SpreadIfAny => with_range(spread, digits),
            Shown::SpreadThousands => with_range(spread, thousands),
            Shown::Median => digits(spread.median),
            Shown::Count | Shown::Never => format!("{:.0}", spread.median),
        }
    }
}

pub(super) fn with_range(spread: Spread, format: fn(f64) -> String) -> String {
    let Spread { median, min, max } = spread;
    if min == max {
        return format(median);
    }
    format!("{} ({}-{})", format(median), format(min), format(max))
}

/// Formats with at least three digits.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        0.1.. => format!("{value:.2}"),
        _ if value == 0.0 => "0".to_owned(),
        _ => format!("{value:.4}"),
    }
}

fn thousands(value: f64) -> String {
    match value {
        1e6.. => format!("{}M", digits(value / 1e6)),
        1e3.. => format!("{}k", digits(value / 1e3)),
        _ => digits(value),
    }
}
