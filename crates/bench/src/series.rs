//! A quantity over time, with a limited number of points.

use serde::{Deserialize, Serialize};

/// With more points, every second one is dropped.
const MOST: usize = 512;

/// Points of time in seconds, and value. A longer series is coarser, not larger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Minimum seconds between two points.
    every_s: f64,
    points: Vec<(f64, f64)>,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            every_s: 0.1,
            points: Vec::new(),
        }
    }
}

impl Series {
    /// Whether another point is due.
    pub fn wants(&self, at_s: f64) -> bool {
        self.points
            .last()
            // A timer of 0.1 s is not exact.
            .is_none_or(|last| at_s - last.0 >= 0.9 * self.every_s)
    }

    /// Adds a point, if it is due.
    pub fn push(&mut self, at_s: f64, value: f64) {
        if !self.wants(at_s) {
            return;
        }
        with_room(&mut self.points, MOST + 1, (f64::NAN, f64::NAN));
        self.points.push((at_s, value));
        if self.points.len() > MOST {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
            self.every_s *= 2.0;
        }
    }

    /// The points in the order of time.
    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// From the first point to the last, in seconds.
    pub fn span_s(&self) -> f64 {
        match (self.points.first(), self.points.last()) {
            (Some(first), Some(last)) => last.0 - first.0,
            _ => 0.0,
        }
    }
}

/// Reserves room once, in memory that is written to: a growing instrument would measure itself.
/// `filler` is not all zeroes, since zero pages take no memory.
pub fn with_room<T: Copy>(points: &mut Vec<T>, count: usize, filler: T) {
    if points.capacity() >= count {
        return;
    }
    let mut roomy = vec![filler; count];
    roomy.clear();
    roomy.extend_from_slice(points);
    *points = roomy;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_once() {
        let mut points = vec![(1.0, 2.0)];
        with_room(&mut points, 100, (f64::NAN, f64::NAN));
        assert_eq!(points, [(1.0, 2.0)]);
        let place = points.as_ptr();
        for _ in 1..100 {
            with_room(&mut points, 100, (f64::NAN, f64::NAN));
            points.push((3.0, 4.0));
        }
        assert_eq!((points.len(), points.as_ptr()), (100, place));
    }

    #[test]
    fn a_day_has_few_points_from_its_begin_to_its_end() {
        let mut series = Series::default();
        for tick in 0..864_000 {
            let at = f64::from(tick) / 10.0;
            series.push(at, at * 3.0);
        }
        let points = series.points();
        assert!((250..=MOST).contains(&points.len()), "{}", points.len());
        assert_eq!(points[0], (0.0, 0.0));
        assert!(series.span_s() > 86_000.0, "{}", series.span_s());
        assert!(
            points
                .iter()
                .all(|(at, value)| (value - at * 3.0).abs() < 1e-6)
        );
    }
}
