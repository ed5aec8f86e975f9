//! What Transom costs, as ratios to baselines measured in the same run. Asserts no times.

mod args;
mod calls;
mod cluster;
mod directory;
mod floor;
mod load;
mod plan;
mod process;
mod rounds;
mod scene;
mod start;
mod swap;
mod table;
mod watch;
mod way;

fn main() -> anyhow::Result<()> {
    args::parse().run()
}
