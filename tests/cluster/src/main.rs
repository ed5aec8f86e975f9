//! A cluster for experiments, until Ctrl-C.

mod play;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    play::run(clap::Parser::parse()).await
}
