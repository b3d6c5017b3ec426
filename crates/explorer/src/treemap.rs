//! Rectangles whose areas are as given numbers: the squarified treemap of Bruls, Huizing and van
//! Wijk. Each row of rectangles grows as long as that makes its worst one more square.

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// One rectangle for each size, within a whole. The sizes must descend, and be positive.
pub(crate) fn layout(sizes: &[u64], whole: Area) -> Vec<Area> {
    let total: f64 = sizes.iter().map(|size| *size as f64).sum();
    let scale = if total > 0.0 { whole.width * whole.height / total } else { 0.0 };
    let areas: Vec<f64> = sizes.iter().map(|size| *size as f64 * scale).collect();
    let (mut rest, mut placed, mut begin) = (whole, Vec::with_capacity(sizes.len()), 0);
    while begin < areas.len() {
        let side = rest.width.min(rest.height);
        let mut end = begin + 1;
        while end < areas.len()
            && worst(&areas[begin..=end], side) <= worst(&areas[begin..end], side)
        {
            end += 1;
        }
        rest = place_row(&areas[begin..end], rest, &mut placed);
        begin = end;
    }
    placed
}

/// The largest ratio of sides in a row along a side.
fn worst(row: &[f64], side: f64) -> f64 {
    let sum: f64 = row.iter().sum();
    let ratio = |area: &f64| {
        let (long, short) = (side * side * area, sum * sum);
        (long / short).max(short / long)
    };
    row.iter().map(ratio).fold(0.0, f64::max)
}

/// Places a row along the shorter side, and gives what is left.
fn place_row(row: &[f64], rest: Area, placed: &mut Vec<Area>) -> Area {
    let sum: f64 = row.iter().sum();
    let is_column = rest.width >= rest.height;
    let side = if is_column { rest.height } else { rest.width };
    let thickness = if side > 0.0 { sum / side } else { 0.0 };
    let mut along = 0.0;
    for area in row {
        let length = if thickness > 0.0 { area / thickness } else { 0.0 };
        placed.push(match is_column {
            true => Area { x: rest.x, y: rest.y + along, width: thickness, height: length },
            false => Area { x: rest.x + along, y: rest.y, width: length, height: thickness },
        });
        along += length;
    }
    match is_column {
        true => Area { x: rest.x + thickness, width: rest.width - thickness, ..rest },
        false => Area { y: rest.y + thickness, height: rest.height - thickness, ..rest },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Area = Area { x: 0.0, y: 0.0, width: 600.0, height: 400.0 };

    #[test]
    fn areas_are_in_proportion_and_fill_the_whole() {
        let sizes = [600, 600, 400, 300, 200, 200, 100];
        let areas = layout(&sizes, WHOLE);
        for (size, area) in sizes.iter().zip(&areas) {
            let expected = *size as f64 * 100.0;
            assert!((area.width * area.height - expected).abs() < 1e-6);
            assert!(area.x >= 0.0 && area.x + area.width <= 600.0 + 1e-6);
            assert!(area.y >= 0.0 && area.y + area.height <= 400.0 + 1e-6);
            let ratio = area.width / area.height;
            assert!((0.25..4.0).contains(&ratio), "{area:?}");
        }
        for (place, one) in areas.iter().enumerate() {
            for two in &areas[place + 1..] {
                let width = (one.x + one.width).min(two.x + two.width) - one.x.max(two.x);
                let height = (one.y + one.height).min(two.y + two.height) - one.y.max(two.y);
                assert!(width < 1e-6 || height < 1e-6, "{one:?} covers {two:?}");
            }
        }
    }

    #[test]
    fn extreme_sizes_have_a_layout_too() {
        assert_eq!(layout(&[], WHOLE), []);
        // A power of two, for exact numbers.
        let square = Area { x: 0.0, y: 0.0, width: 512.0, height: 512.0 };
        assert_eq!(layout(&[8], square), [square]);
        let areas = layout(&[u64::MAX, 1, 1], WHOLE);
        assert!(areas.iter().all(|area| area.width.is_finite() && area.height.is_finite()));
    }
}
