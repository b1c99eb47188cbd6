//! Crawls a small local web, and prints what its hosts observed.

use headworks_example_crawler::site::{HOSTS, Site};
use headworks_example_crawler::{Rules, crawl};
use std::collections::HashSet;
use std::error::Error;
use std::time::{Duration, Instant};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let site = Site::start().await?;
    let rules = Rules {
        concurrent: 2,
        delay: Duration::from_millis(100),
        retry_pause: Duration::from_millis(500),
        attempts: 4,
        max_wait: Duration::from_secs(60),
        pages_per_host: 30,
        depth: 9,
    };
    let start = Instant::now();
    let crawled = crawl(vec![site.home(0)], rules).await?;
    println!("{} pages in {:.1?}", crawled.fetched, start.elapsed());
    for (url, why) in &crawled.given_up {
        println!("given up: {url} ({why})");
    }
    println!(
        "\nrequests as seen by the hosts (rules: {} ms between requests, {} concurrent)\n",
        rules.delay.as_millis(),
        rules.concurrent
    );
    println!(
        "{:<9}{:>6}{:>9}{:>12}{:>9}",
        "host", "pages", "retries", "closest/ms", "at once"
    );
    let log = site.log();
    for (host, temper) in HOSTS.iter().enumerate() {
        let seen: Vec<_> = log.iter().filter(|request| request.host == host).collect();
        let pages = seen.iter().filter(|request| request.status == 200).count();
        let paths: HashSet<_> = seen.iter().map(|request| &request.path).collect();
        let gaps = seen
            .windows(2)
            .map(|pair| pair[1].arrived - pair[0].arrived);
        let closest = gaps.min().unwrap_or_default().as_millis();
        let most = seen.iter().map(|request| request.concurrent).max();
        let (retries, most) = (seen.len() - paths.len(), most.unwrap_or(0));
        println!(
            "{:<9}{pages:>6}{retries:>9}{closest:>12}{most:>9}",
            format!("{temper:?}").to_lowercase()
        );
    }
    Ok(())
}
