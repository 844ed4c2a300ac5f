//! What of several runs is shown: the median, and the worst one behind it where it is another.

/// A figure over several runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The one in the middle.
    pub median: f64,
    /// The largest or the smallest, whichever is worse.
    pub worst: f64,
}

impl Spread {
    /// Of `all`; zero if there is none.
    pub fn of(all: impl IntoIterator<Item = f64>, more_is_worse: bool) -> Self {
        let mut all: Vec<f64> = all.into_iter().collect();
        all.sort_by(f64::total_cmp);
        let worst = if more_is_worse { all.last() } else { all.first() };
        let (median, worst) = (all.get(all.len() / 2).copied(), worst.copied());
        Self { median: median.unwrap_or_default(), worst: worst.unwrap_or_default() }
    }

    /// For a table.
    pub fn shown(self, digits: usize) -> String {
        let one = |value: f64| match value {
            _ if value.is_nan() => "-".to_owned(),
            f64::INFINITY => "never".to_owned(),
            _ => format!("{value:.digits$}"),
        };
        let (median, worst) = (one(self.median), one(self.worst));
        if median == worst { median } else { format!("{median} ({worst})") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_stands_behind_the_median() {
        assert_eq!(Spread { median: 0.951, worst: 0.913 }.shown(2), "0.95 (0.91)");
        assert_eq!(Spread { median: 0.0, worst: f64::INFINITY }.shown(0), "0 (never)");
        assert_eq!(Spread { median: 1.0, worst: 1.0 }.shown(1), "1.0");
        assert_eq!(Spread::of([3.0, 1.0, 2.0], true), Spread { median: 2.0, worst: 3.0 });
        assert_eq!(Spread::of([3.0, 1.0, 2.0], false), Spread { median: 2.0, worst: 1.0 });
    }
}
