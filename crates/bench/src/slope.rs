//! The growth of a quantity: a line through its points, and its uncertainty.

use serde::{Deserialize, Serialize};

/// The slope of a least-squares line, per hour.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slope {
    /// Growth.
    pub per_hour: f64,
    /// Half of the interval that contains the true slope with 95 %.
    pub uncertainty: f64,
    /// Whether the interval contains 0.
    pub zero: bool,
}

/// Shorter series do not permit a statement about an hour.
pub const SHORTEST_S: f64 = 60.0;

/// The first tenth is excluded: buffers, connections and caches grow once.
const SETTLING: f64 = 0.1;

const POINTS: usize = 10;

impl Slope {
    /// A line through points of seconds and value, without the first tenth; `None` below a minute or ten points.
    /// Neighbouring points are correlated, so the uncertainty uses the effective number of points (Santer et al.,
    /// "Statistical significance of trends", J. Geophys. Res. 105, 2000, section 4).
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        let (first, last) = (points.first()?.0, points.last()?.0);
        if last - first < SHORTEST_S {
            return None;
        }
        let settled = first + SETTLING * (last - first);
        let from = points.partition_point(|point| point.0 < settled);
        Self::through(&points[from..])
    }

    fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        if points.len() < POINTS {
            return None;
        }
        let mean = |part: fn(&(f64, f64)) -> f64| points.iter().map(part).sum::<f64>() / count;
        let (at, value) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            points.iter().map(|(t, v)| of(t - at, v - value)).sum()
        };
        let spread = sum(&|t, _| t * t);
        let slope = sum(&|t, v| t * v) / spread;
        let residuals: Vec<f64> = points
            .iter()
            .map(|(t, v)| v - value - slope * (t - at))
            .collect();
        let squares: f64 = residuals.iter().map(|residual| residual * residual).sum();
        let neighbours: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
        let correlation = if squares > 0.0 {
            (neighbours / squares).clamp(0.0, 1.0)
        } else {
            0.0
        };
        let independent = (count * (1.0 - correlation) / (1.0 + correlation)).max(3.0);
        let freedom = independent - 2.0;
        let uncertainty = student(freedom) * (squares / freedom / spread).sqrt();
        Some(Self {
            per_hour: slope * 3600.0,
            uncertainty: uncertainty * 3600.0,
            zero: slope.abs() <= uncertainty,
        })
    }
}

/// Student's t for 95 %, two-sided, by degrees of freedom.
fn student(freedom: f64) -> f64 {
    const SMALL: [f64; 10] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    ];
    let mut small = SMALL.iter().zip(1_u8..);
    let at_most = small.find(|(_, degrees)| freedom < f64::from(*degrees) + 1.0);
    at_most.map_or(1.96 + 2.4 / freedom, |(t, _)| *t)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points of an hour, one every 10 s.
    fn hour(value: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        let at = |tick: u32| f64::from(tick) * 10.0;
        (0..360).map(at).map(|at| (at, value(at))).collect()
    }

    /// Deterministic noise: the digits of a product.
    fn noise(at: f64) -> f64 {
        (at * 0.618_034).fract() - 0.5
    }

    #[test]
    fn what_stays_has_no_slope() {
        let constant = Slope::of(&hour(|_| 5e6)).unwrap();
        assert_eq!((constant.per_hour, constant.zero), (0.0, true));
        let noisy = Slope::of(&hour(|at| 5e6 + 1e5 * noise(at))).unwrap();
        assert!(noisy.zero && noisy.uncertainty > 100.0, "{noisy:?}");
    }

    #[test]
    fn what_grows_has_its_slope() {
        let leak = Slope::of(&hour(|at| 5e6 + 1e6 * at / 3600.0 + 1e5 * noise(at))).unwrap();
        assert!(!leak.zero);
        assert!((leak.per_hour - 1e6).abs() < leak.uncertainty, "{leak:?}");
        let stairs = Slope::of(&hour(|at| (at / 100.0).floor() * 4096.0)).unwrap();
        assert!(!stairs.zero && stairs.per_hour > 100_000.0, "{stairs:?}");
    }

    /// A cache that fills once is no leak, though the textbook's uncertainty would call it one.
    #[test]
    fn one_step_is_no_slope() {
        for step in [500.0, 1000.0, 1800.0, 3000.0] {
            let step = Slope::of(&hour(|at| if at < step { 5e6 } else { 5.1e6 })).unwrap();
            assert!(step.zero, "{step:?}");
        }
        let settling = Slope::of(&hour(|at| if at < 300.0 { at * 1e5 } else { 3e7 })).unwrap();
        assert_eq!((settling.per_hour, settling.zero), (0.0, true));
    }

    #[test]
    fn what_is_short_is_not_judged() {
        assert_eq!(Slope::of(&[]), None);
        assert_eq!(Slope::of(&hour(|_| 1.0)[..6]), None);
        assert_eq!(Slope::of(&[(0.0, 1.0), (3600.0, 2.0)]), None);
    }
}
