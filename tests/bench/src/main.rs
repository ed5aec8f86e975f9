//! What Transom costs, as ratios to floors measured in the same run. Never asserts a time: it only tells.

mod args;
mod calls;
mod cluster;
mod directory;
mod floor;
mod native;
mod process;
mod rounds;
mod scene;
mod table;
mod watch;
mod way;

fn main() -> anyhow::Result<()> {
    args::parse().run()
}
