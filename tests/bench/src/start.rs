//! The start of an agent with many policies whose compiled code an earlier start kept: from its process to its
//! readiness.

use crate::directory::{many_policies, shown};
use crate::process::Programs;
use crate::rounds::median;
use crate::table::{Figure, Row, Table};
use anyhow::{Context as _, Result, bail};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use transom_e2e::agent::{ADMIN, Agent};
use transom_e2e::http;

/// Policies.
const POLICIES: u32 = 100;
/// Starts that count; the one before them compiles.
const STARTS: usize = 15;
/// The deadline of a start.
const DEADLINE: Duration = Duration::from_secs(60);

/// Measures it.
pub(crate) fn measure(programs: &Programs, work: &Path, table: &mut Table) -> Result<()> {
    let (fleet, policies, cache) = (work.join("unset"), work.join("started"), work.join("cache"));
    fs::create_dir_all(&fleet)?;
    many_policies(&policies, POLICIES)?;
    let mut times = Vec::with_capacity(STARTS);
    for turn in 0..=STARTS {
        let address = free()?;
        let (dir, from) = (shown(&fleet), shown(&policies));
        let admin = address.to_string();
        let words = ["run", "--dir", &dir, "--policies", &from, ADMIN, &admin];
        let mut transom = programs.transom(&words);
        transom.env("XDG_CACHE_HOME", &cache);
        let start = Instant::now();
        let mut agent = Agent::start(&mut transom, work.join("start.log"))?;
        ready(&mut agent, address)?;
        if turn > 0 {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        agent.kill()?;
    }
    table.add(Row {
        what: format!("start with {POLICIES} policies whose code is kept, until ready"),
        figure: Figure::Millis(median(&times)),
        against: "100 ms".to_owned(),
        floor: Figure::Millis(100.0),
        fastest: None,
        target: Some(1.0),
    })
}

/// An address that nothing listens on.
fn free() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("failed to find a free port")?;
    Ok(listener.local_addr()?)
}

/// Looks every half of a millisecond.
fn ready(agent: &mut Agent, address: SocketAddr) -> Result<()> {
    let start = Instant::now();
    while !http::get(address, "/readyz").is_ok_and(|page| page.status == 200) {
        if let Some(status) = agent.ended()? {
            bail!(
                "the agent ended with {status} before it was ready: {}",
                agent.tail()
            );
        }
        if start.elapsed() > DEADLINE {
            bail!("the agent is not ready: {}", agent.tail());
        }
        thread::sleep(Duration::from_micros(500));
    }
    Ok(())
}
