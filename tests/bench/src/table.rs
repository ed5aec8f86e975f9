//! The table of figures, for people and as JSON. Only ratio and target decide the verdict.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// A figure with its unit.
#[derive(Clone, Copy)]
pub(crate) enum Figure {
    /// Microseconds.
    Micros(f64),
    /// Milliseconds.
    Millis(f64),
    /// Mebibytes.
    Mebibytes(f64),
    /// A count.
    Count(f64),
}

impl Figure {
    fn amount(self) -> f64 {
        match self {
            Self::Micros(amount)
            | Self::Millis(amount)
            | Self::Mebibytes(amount)
            | Self::Count(amount) => amount,
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Micros(_) => "us",
            Self::Millis(_) => "ms",
            Self::Mebibytes(_) => "MiB",
            Self::Count(_) => "",
        }
    }

    fn shown(self) -> String {
        if let Self::Count(amount) = self {
            return format!("{amount:.0}");
        }
        let digits = if self.amount() < 100.0 { 2 } else { 0 };
        format!("{:.digits$} {}", self.amount(), self.unit())
    }

    fn json(self) -> Value {
        json!({"amount": self.amount(), "unit": self.unit()})
    }
}

/// One line of the table.
pub(crate) struct Row {
    /// What was measured.
    pub(crate) what: String,
    /// The baseline.
    pub(crate) against: String,
    /// Its cost.
    pub(crate) figure: Figure,
    /// The cost of the baseline.
    pub(crate) floor: Figure,
    /// The ratio of the fastest runs, if `figure` and `floor` are medians of very many runs.
    pub(crate) fastest: Option<f64>,
    /// The target ratio; none if the row is informational.
    pub(crate) target: Option<f64>,
}

impl Row {
    fn ratio(&self) -> f64 {
        // If the baseline is zero, zero is the best result.
        if self.figure.amount() == 0.0 {
            0.0
        } else {
            self.figure.amount() / self.floor.amount()
        }
    }

    fn reached(&self) -> Option<bool> {
        self.target.map(|target| self.ratio() <= target)
    }

    fn cells(&self) -> [String; 7] {
        [
            self.what.clone(),
            self.figure.shown(),
            self.against.clone(),
            self.floor.shown(),
            format!("{:.2}", self.ratio()),
            self.target
                .map_or("-".to_owned(), |target| format!("{target:.2}")),
            self.reached()
                .map_or("-", |reached| if reached { "yes" } else { "no" })
                .to_owned(),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "what": self.what, "figure": self.figure.json(), "against": self.against, "floor": self.floor.json(),
            "ratio": self.ratio(), "fastest": self.fastest, "target": self.target, "reached": self.reached(),
        })
    }
}

/// All rows so far.
#[derive(Default)]
pub(crate) struct Table(Vec<Row>);

impl Table {
    /// Adds a row, and prints it at once, because the whole run takes minutes.
    pub(crate) fn add(&mut self, row: Row) -> Result<()> {
        writeln!(io::stderr(), "    {}", row.cells().join("  "))?;
        self.0.push(row);
        Ok(())
    }

    /// Prints the table and writes it as JSON.
    pub(crate) fn finish(&self, out: &Path) -> Result<()> {
        let mut stdout = io::stdout().lock();
        writeln!(
            stdout,
            "| what | figure | floor |  | ratio | target | reached |"
        )?;
        writeln!(stdout, "|---|---|---|---|---|---|---|")?;
        for row in &self.0 {
            writeln!(stdout, "| {} |", row.cells().join(" | "))?;
        }
        let rows: Vec<Value> = self.0.iter().map(Row::json).collect();
        if let Some(folder) = out.parent() {
            fs::create_dir_all(folder)
                .with_context(|| format!("failed to create the folder `{}`", folder.display()))?;
        }
        let text = serde_json::to_string_pretty(&json!({ "rows": rows }))? + "\n";
        fs::write(out, text).with_context(|| format!("failed to write `{}`", out.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(figure: f64, target: Option<f64>) -> Row {
        let (figure, floor) = (Figure::Micros(figure), Figure::Micros(2.0));
        Row {
            what: "w".to_owned(),
            against: "a".to_owned(),
            figure,
            floor,
            fastest: None,
            target,
        }
    }

    #[test]
    fn ratio_and_target_decide_the_verdict_of_a_row() {
        assert_eq!(row(6.0, Some(3.0)).reached(), Some(true));
        assert_eq!(row(6.1, Some(3.0)).reached(), Some(false));
        assert_eq!(row(6.0, None).reached(), None);
        assert_eq!(
            row(250.0, Some(3.0)).cells().join("|"),
            "w|250 us|a|2.00 us|125.00|3.00|no"
        );
    }
}
