//! Median and range of a few samples.

use serde::Serialize;

/// Median, minimum and maximum of samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` without samples.
    pub(crate) fn of(samples: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        let median = match middle.checked_sub(1).and_then(|lower| sorted.get(lower)) {
            Some(lower) if sorted.len().is_multiple_of(2) => (lower + upper) / 2.0,
            _ => upper,
        };
        Some(Spread { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_whatever_the_order() {
        let spread = |samples: &[f64]| Spread::of(samples.iter().copied());
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[3.0]), Some(Spread { median: 3.0, min: 3.0, max: 3.0 }));
        assert_eq!(spread(&[9.0, 1.0]), Some(Spread { median: 5.0, min: 1.0, max: 9.0 }));
        let odd = Some(Spread { median: 3.0, min: 1.0, max: 50.0 });
        assert_eq!(spread(&[50.0, 2.0, 3.0, 1.0, 4.0]), odd);
        let even = Some(Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(spread(&[4.0, 1.0, 3.0, 2.0]), even);
    }
}
