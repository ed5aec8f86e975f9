//! A cluster to play with, until Ctrl-C. Never more than the library can do.

mod play;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    play::run(clap::Parser::parse()).await
}
