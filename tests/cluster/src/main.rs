//! A cluster for experiments, until Ctrl-C.

mod play;
mod show;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    play::run(clap::Parser::parse()).await
}
