//! A polite crawler, to be read in five minutes. Read this file; [`mod@fetch`] and [`site`] only
//! support it.
//!
//! Fetching is not what makes a crawler hard. It must not overload any host, return when a host
//! says so, and still keep busy. The pool does all of that. This file has the rest: pages, links,
//! and which of them have been seen.
//!
//! | crawler | pool |
//! |---|---|
//! | host, with its delay and its concurrency | target, with limits |
//! | depth of a page | class: the strict policy makes the crawl breadth-first |
//! | host | flow: a host with ten thousand pages does not starve a host with ten |
//! | URL | key |

pub mod fetch;
pub mod site;

use fetch::{Url, fetch, links};
use headworks_core::{
    Backoff, Bound, Class, ClassConfig, Config, ConfigError, Cost, Flow, Job, Key, KeySeed, Limits,
    Policy, Rate, TargetConfig, TargetId,
};
use headworks_pool::{EndReason, Handler, Health, Notice, Pool, Report, Run, Workers};
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::time::Duration;
use tokio::sync::mpsc;

/// Politeness rules and limits of a crawl.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Maximum concurrent requests per host.
    pub concurrent: u32,
    /// Minimum time between the starts of two requests to a host.
    pub delay: Duration,
    /// The pause before the second attempt; it doubles after that.
    pub retry_pause: Duration,
    /// Maximum attempts per page.
    pub attempts: u32,
    /// Maximum total wait of a page. Without it, a host that always answers "retry later" would be
    /// retried for ever.
    pub max_wait: Duration,
    /// Maximum pages per host; some hosts have no last page.
    pub pages_per_host: usize,
    /// Maximum number of links from a seed to a page.
    pub depth: u8,
}

/// A page to fetch: the payload of a job. The pool never inspects it, and returns it if the page is
/// given up.
#[derive(Debug)]
struct Page {
    url: Url,
    depth: u8,
    /// The result of the last attempt, which explains a failure.
    last: String,
}

/// The end of a page. Every job ends in exactly one of these, so counting them tells when the crawl
/// is over.
enum PageEnd {
    Fetched { depth: u8, links: Vec<Url> },
    GivenUp { page: Page, reason: EndReason },
}

/// The handler that the workers run. It knows nothing of limits, delays or other pages.
struct Fetcher {
    /// Unbounded: it holds at most one message per job, and the jobs are bounded.
    ended: mpsc::UnboundedSender<PageEnd>,
}

impl Fetcher {
    fn send(&self, ended: PageEnd) {
        // The receiver is gone if the crawl was dropped; then nobody needs the message.
        let _ = self.ended.send(ended);
    }
}

impl Handler<Page> for Fetcher {
    /// One attempt. The report says what to do with the page, and what the attempt reveals about
    /// the host.
    async fn run(&self, run: &mut Run<'_, Page>) -> Report {
        let page = &mut run.payload;
        let answer = match fetch(&page.url).await {
            Ok(answer) => answer,
            Err(error) => {
                page.last = error.to_string();
                return Report::retry(); // after a pause; several faults in a row suspend the host
            }
        };
        page.last = format!("status {}", answer.status);
        match (answer.status, answer.retry_after) {
            (200, _) => {
                let (depth, links) = (page.depth, links(&page.url, &answer.body));
                self.send(PageEnd::Fetched { depth, links });
                Report::done()
            }
            // The host asks for a pause. This page waits that long, which is not a failed attempt,
            // and so do all other pages of the host.
            (429 | 503, Some(wait)) => Report::retry_in(wait).target(Health::Overloaded(wait)),
            (500.., _) => Report::retry(),
            // A dead link stays dead. The host is healthy, because it answered.
            _ => Report::failed().target(Health::Fine),
        }
    }

    fn deadline(&self, _run: &Run<'_, Page>) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }

    /// Called for every job that does not end with `Report::done`.
    fn notice(&self, notice: Notice<Page>) {
        if let Notice::Ended {
            payload, reason, ..
        } = notice
        {
            self.send(PageEnd::GivenUp {
                page: payload,
                reason,
            });
        }
    }
}

/// The result of a crawl.
#[derive(Debug, Default)]
pub struct CrawlResult {
    /// Pages fetched.
    pub fetched: usize,
    /// Pages given up, with the reason.
    pub given_up: Vec<(Url, String)>,
}

/// Crawls from the seeds, within the rules.
///
/// # Errors
/// When the rules result in invalid limits.
pub async fn crawl(seeds: Vec<Url>, rules: Rules) -> Result<CrawlResult, ConfigError> {
    let (sender, mut ended) = mpsc::unbounded_channel();
    let config = Config {
        policy: Policy::Strict,
        classes: ClassConfig::halving(usize::from(rules.depth) + 1),
        // Pages beyond this bound are refused, and reported as given up.
        bound: Bound::Shared(10_000),
        max_waiting: Some(rules.pages_per_host),
        backoff: Backoff::new(rules.retry_pause, Duration::from_secs(60)),
        attempts: rules.attempts,
        ..Config::default()
    };
    let pool = Pool::new(config, Workers::new(4, 32), Fetcher { ended: sender })?;
    let mut frontier = Frontier::new(pool, rules);
    for url in seeds {
        frontier.visit(url, 0)?;
    }
    while frontier.open > 0
        && let Some(end) = ended.recv().await
    {
        frontier.open -= 1;
        match end {
            PageEnd::Fetched { depth, links } => {
                frontier.crawled.fetched += 1;
                for url in links.into_iter().filter(|_| depth < rules.depth) {
                    frontier.visit(url, depth + 1)?;
                }
            }
            PageEnd::GivenUp { page, reason } => {
                let why = format!("{reason}: {}", page.last);
                frontier.crawled.given_up.push((page.url, why));
            }
        }
    }
    frontier.pool.shutdown(Duration::from_secs(1)).await;
    Ok(frontier.crawled)
}

/// The state of the crawl. One task owns it, so it needs no lock.
struct Frontier {
    pool: Pool<Page>,
    rules: Rules,
    /// The target of each host, and the number of its pages requested.
    hosts: HashMap<String, (TargetId, usize)>,
    seed: KeySeed,
    /// Keys already visited. The pool deduplicates only *live* jobs by key; the crawler remembers
    /// pages that were fetched long ago.
    seen: HashSet<Key>,
    /// Jobs that were admitted and have not ended.
    open: usize,
    crawled: CrawlResult,
}

impl Frontier {
    fn new(pool: Pool<Page>, rules: Rules) -> Self {
        // Randomly seeded. Otherwise a page could name two URLs with the same key and hide the
        // second.
        let chance = std::hash::RandomState::new();
        Frontier {
            pool,
            rules,
            hosts: HashMap::new(),
            seed: KeySeed::new(chance.hash_one(0), chance.hash_one(1)),
            seen: HashSet::new(),
            open: 0,
            crawled: CrawlResult::default(),
        }
    }

    /// Submits a page, if it is new and its host has pages left.
    fn visit(&mut self, url: Url, depth: u8) -> Result<(), ConfigError> {
        let host = self.host(&url)?;
        let key = self.seed.key(&(&url.host, &url.path));
        let used = &mut self.hosts.get_mut(&url.host).expect("just looked up").1;
        if *used == self.rules.pages_per_host || !self.seen.insert(key) {
            return Ok(());
        }
        *used += 1;
        let last = String::new();
        let job = Job::new(Page { url, depth, last })
            .class(Class(depth))
            .flow(Flow(host.index() as u64))
            .targets(host)
            .key(key)
            .expire_at(self.pool.now() + self.rules.max_wait);
        match self.pool.submit(job) {
            Ok(_ticket) => self.open += 1,
            Err(refused) => {
                let why = format!("refused: {}", refused.reason);
                self.crawled.given_up.push((refused.job.payload.url, why));
            }
        }
        Ok(())
    }

    /// The target of a page's host, added to the pool on first use.
    fn host(&mut self, url: &Url) -> Result<TargetId, ConfigError> {
        if let Some((host, _)) = self.hosts.get(&url.host) {
            return Ok(*host);
        }
        let per_second = 1.0 / self.rules.delay.as_secs_f64();
        let host = self.pool.add_target(TargetConfig {
            limits: Limits {
                concurrent: Some(self.rules.concurrent),
                // A burst of one: idle time does not accumulate.
                requests: Some(Rate::per_second(per_second).with_burst(Cost(1))),
                ..Limits::default()
            },
            fault_threshold: 5,
            suspend_for: Duration::from_secs(2),
            ..TargetConfig::default()
        })?;
        self.hosts.insert(url.host.clone(), (host, 0));
        Ok(host)
    }
}
