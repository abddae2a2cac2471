//! Bandwidths of one contender over all rounds: medians and spread of PIO and total, as tables, figures and files give them.

use super::plot::Bar;
use super::result::median;
use super::table::mib;
use serde::Serialize;

/// Bytes in the unit of tables and figures.
const MIB: f64 = 1_048_576.0;

/// What one round reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Speed {
    pub(crate) pio_bytes_per_second: f64,
    pub(crate) flush_seconds: f64,
    pub(crate) total_bytes_per_second: f64,
}

/// What all rounds reached. The names are those of the JSON file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Speeds {
    pub(crate) pio_bytes_per_second_median: f64,
    pub(crate) pio_bytes_per_second_min: f64,
    pub(crate) pio_bytes_per_second_max: f64,
    pub(crate) flush_seconds_median: f64,
    pub(crate) total_bytes_per_second_median: f64,
    pub(crate) total_bytes_per_second_min: f64,
    pub(crate) total_bytes_per_second_max: f64,
}

impl Speeds {
    /// Of the rounds' speeds; at least one.
    pub(crate) fn of(rounds: &[Speed]) -> Speeds {
        let all = |value: fn(&Speed) -> f64| rounds.iter().map(value).collect::<Vec<f64>>();
        let least = |value| all(value).into_iter().fold(f64::INFINITY, f64::min);
        let most = |value| all(value).into_iter().fold(0.0, f64::max);
        let pio: fn(&Speed) -> f64 = |speed| speed.pio_bytes_per_second;
        let total: fn(&Speed) -> f64 = |speed| speed.total_bytes_per_second;
        Speeds {
            pio_bytes_per_second_median: median(all(pio)),
            pio_bytes_per_second_min: least(pio),
            pio_bytes_per_second_max: most(pio),
            flush_seconds_median: median(all(|speed| speed.flush_seconds)),
            total_bytes_per_second_median: median(all(total)),
            total_bytes_per_second_min: least(total),
            total_bytes_per_second_max: most(total),
        }
    }

    /// PIO as a bar, MiB/s.
    pub(crate) fn pio(&self) -> Bar {
        Bar {
            middle: self.pio_bytes_per_second_median / MIB,
            least: self.pio_bytes_per_second_min / MIB,
            most: self.pio_bytes_per_second_max / MIB,
        }
    }

    /// The total as a bar, MiB/s.
    pub(crate) fn total(&self) -> Bar {
        Bar {
            middle: self.total_bytes_per_second_median / MIB,
            least: self.total_bytes_per_second_min / MIB,
            most: self.total_bytes_per_second_max / MIB,
        }
    }

    /// The cells of a table: PIO and its spread, flush, total and its spread.
    pub(crate) fn cells(&self) -> [String; 5] {
        let spread = |least, most| format!("{}..{}", mib(least), mib(most));
        [
            mib(self.pio_bytes_per_second_median),
            spread(self.pio_bytes_per_second_min, self.pio_bytes_per_second_max),
            format!("{:.3}", self.flush_seconds_median),
            mib(self.total_bytes_per_second_median),
            spread(self.total_bytes_per_second_min, self.total_bytes_per_second_max),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spread_are_those_of_the_rounds() {
        let round = |pio: f64| Speed {
            pio_bytes_per_second: pio * MIB,
            flush_seconds: 2.0,
            total_bytes_per_second: pio * MIB / 4.0,
        };
        let speeds = Speeds::of(&[round(800.0), round(1000.0), round(900.0)]);
        assert_eq!(speeds.pio(), Bar { middle: 900.0, least: 800.0, most: 1000.0 });
        assert_eq!(speeds.total(), Bar { middle: 225.0, least: 200.0, most: 250.0 });
        assert_eq!(speeds.cells().join(" "), "900 800..1000 2.000 225 200..250");
    }
}
