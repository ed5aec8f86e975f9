//! Writes the generated files into the tree and lists them: `cargo xtask deploy` runs this.

use std::io::Write as _;
use transom_test_deploy::generated;

fn main() -> anyhow::Result<()> {
    let all = generated::all()?;
    let written = generated::write(&all)?;
    let mut out = std::io::stdout().lock();
    for path in &written {
        writeln!(out, "{path}  new")?;
    }
    writeln!(
        out,
        "{} generated files, {} of them changed",
        all.len(),
        written.len()
    )?;
    Ok(())
}
