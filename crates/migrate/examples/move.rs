//! Runs a migration through the library:
//! `cargo run -p headworks-migrate --example move -- SRC DST STATE [plan
//! copy
//! run]`.

use headworks_migrate::{CopyOptions, Filters, Job, Settings};
use std::path::PathBuf;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [source, destination, state, what @ ..] = args.as_slice() else {
        return Err("move SRC DST STATE [plan | copy | run]".into());
    };
    let what = what.first().and_then(|what| what.to_str()).unwrap_or("run");
    let between = Some((source.as_os_str(), destination.as_os_str()));
    let job = Job::open(state, between, &Filters::default(), Settings::default())?;
    if what != "copy" {
        println!("{:?}", job.plan().await?.statuses);
    }
    if what != "plan" {
        println!("{:?}", job.copy(&CopyOptions::default()).await?.classes);
    }
    job.close()?;
    Ok(())
}
