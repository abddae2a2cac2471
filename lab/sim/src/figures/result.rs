//! What a figure consists of: plots, tables, text, and our numbers beside the paper's.

use serde::Serialize;

/// A table of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Heads of the columns; the first column names the row.
    pub columns: Vec<String>,
    /// Cells, as many per row as there are columns.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new<T: ToString>(title: &str, columns: &[T]) -> Table {
        Table {
            title: title.to_owned(),
            columns: columns.iter().map(ToString::to_string).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; it has as many cells as there are columns.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "every column has a cell in '{}'", self.title);
        self.rows.push(cells);
    }

    /// As text with aligned columns, for terminals.
    #[must_use]
    pub fn to_text(&self) -> String {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|at| {
                let cells = self.rows.iter().map(|row| row[at].chars().count());
                cells.chain([self.columns[at].chars().count()]).max().unwrap_or(0)
            })
            .collect();
        let mut text = format!("{}\n", self.title);
        for row in std::iter::once(&self.columns).chain(&self.rows) {
            let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| {
                if at == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// How a plot shows its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PlotKind {
    /// A line per series over the categories.
    Lines,
    /// Bars side by side, one per series in each category.
    Bars,
    /// One bar per category, the series on top of each other.
    Stacked,
}

/// One set of values, one per category.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Values in the order of the categories; `None` where there is nothing.
    pub values: Vec<Option<f64>>,
}

/// A plot over categories.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plot {
    /// What it shows.
    pub title: String,
    /// What the categories are.
    pub x_label: String,
    /// What the values are, with their unit.
    pub y_label: String,
    /// How.
    pub kind: PlotKind,
    /// The values are drawn by their logarithm.
    pub logarithmic: bool,
    /// Names along the x axis; a line break is kept.
    pub categories: Vec<String>,
    /// The values.
    pub series: Vec<Series>,
}

/// One of the paper's numbers, with ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The claim's name in [`super::paper::CLAIMS`].
    pub claim: &'static str,
    /// Our value, in the claim's unit.
    pub ours: f64,
    /// Its runs make one of so many of the writes; 0: as the figure says.
    pub part: u64,
}

/// A figure, finished.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its name on the command line: `18`, `table3`, `scale`.
    pub name: &'static str,
    /// Its title.
    pub title: String,
    /// Its runs make one of so many of the writes.
    pub part: u64,
    /// What was run, and what is seen: one paragraph each.
    pub text: Vec<String>,
    /// Plots.
    pub plots: Vec<Plot>,
    /// Tables.
    pub tables: Vec<Table>,
    /// The paper's numbers.
    pub measured: Vec<Measured>,
}

/// A number with as many digits as are read.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 || value.fract() == 0.0 {
        grouped(value)
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 0.1 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}

/// A whole number with its thousands apart.
fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// A number of bytes in the unit it is a whole number of.
#[must_use]
pub fn bytes(value: u64) -> String {
    match value {
        0 => "0".to_owned(),
        v if v.is_multiple_of(1 << 30) => format!("{} GiB", v >> 30),
        v if v.is_multiple_of(1 << 20) => format!("{} MiB", v >> 20),
        v if v.is_multiple_of(1 << 10) => format!("{} KiB", v >> 10),
        v => format!("{} B", grouped(v as f64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_are_read() {
        let texts = [0.0, 0.05, 0.5, 12.34, 123.4, 1_234_567.0, -1234.0].map(number);
        assert_eq!(texts, ["0", "0.0500", "0.50", "12.3", "123", "1,234,567", "-1,234"]);
        assert_eq!([47_008, 65_536, 1 << 20].map(bytes), ["47,008 B", "64 KiB", "1 MiB"]);
    }

    #[test]
    fn tables_are_aligned() {
        let mut table = Table::new("speeds", &["policy", "GB/s"]);
        table.row(vec!["seqdlm".into(), "33.2".into()]);
        table.row(vec!["basic".into(), "1.8".into()]);
        assert_eq!(table.to_text(), "speeds\npolicy  GB/s\nseqdlm  33.2\nbasic    1.8\n");
    }
}
