//! A cluster to play with, until Ctrl-C. Never more than the library can do.

mod play;
mod show;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    play::run(clap::Parser::parse()).await
}
