//! A polite crawler, to be read in five minutes. Read this file; [`mod@fetch`] and [`site`] are
//! only its surroundings.
//!
//! What makes a crawler hard is not fetching: it is to leave every host alone enough, to come back
//! when a host says so, and still to keep busy. All of that is the pool's. What is left here is
//! what a crawler knows and a pool does not: pages, links, and which of them it has seen.
//!
//! | the crawler's | is the pool's |
//! |---|---|
//! | host, with its delay and its most at once | target, with limits |
//! | depth of a page | class: strict order of classes is breadth first |
//! | host again | flow, so that a host of ten thousand pages does not keep the workers from a host of ten |
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

/// How to treat a host, and how far to go.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Requests to a host at once.
    pub concurrent: u32,
    /// Time between the starts of two requests to a host.
    pub delay: Duration,
    /// The wait before a page is tried for the second time; it doubles from there.
    pub pause: Duration,
    /// Attempts at a page.
    pub attempts: u32,
    /// How long a page may wait in all. A host that always asks for patience would else be waited
    /// for without end.
    pub patience: Duration,
    /// Pages of one host. Some hosts have no last page.
    pub pages_per_host: usize,
    /// Links followed from a seed, one after the other.
    pub depth: u8,
}

/// A page to fetch: the payload of a job. The pool never looks at it, and hands it back when the
/// page is given up.
#[derive(Debug)]
struct Page {
    url: Url,
    depth: u8,
    /// What the last attempt came to. Whoever hears that a job failed finds here why.
    last: String,
}

/// How a page ended. Every job ends in exactly one of these, so counting them tells when the crawl
/// is over.
enum Ended {
    Fetched { depth: u8, links: Vec<Url> },
    GivenUp { page: Page, reason: EndReason },
}

/// What the workers do. It knows nothing of limits, delays or other pages.
struct Fetcher {
    /// Unbounded, for it holds at most one word for each job, and the jobs are bounded.
    ended: mpsc::UnboundedSender<Ended>,
}

impl Fetcher {
    fn tell(&self, ended: Ended) {
        // Nobody listens any more once the crawl was dropped; then nobody needs to know.
        let _ = self.ended.send(ended);
    }
}

impl Handler<Page> for Fetcher {
    /// One attempt. The report says two things: what becomes of the page, and what this tells of
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
                self.tell(Ended::Fetched { depth, links });
                Report::done()
            }
            // The host asks to be left alone: this page waits as long, which is no failed attempt,
            // and so do all others of the host.
            (429 | 503, Some(wait)) => Report::retry_in(wait).target(Health::Overloaded(wait)),
            (500.., _) => Report::retry(),
            // A dead link stays dead. The host did well to say so.
            _ => Report::failed().target(Health::Fine),
        }
    }

    fn deadline(&self, _run: &Run<'_, Page>) -> Option<Duration> {
        Some(Duration::from_secs(10))
    }

    /// Told of every job that ends otherwise than by `Report::done`.
    fn notice(&self, notice: Notice<Page>) {
        if let Notice::Ended {
            payload, reason, ..
        } = notice
        {
            self.tell(Ended::GivenUp {
                page: payload,
                reason,
            });
        }
    }
}

/// What a crawl came to.
#[derive(Debug, Default)]
pub struct Crawled {
    /// Pages fetched.
    pub fetched: usize,
    /// Pages given up, and why.
    pub given_up: Vec<(Url, String)>,
}

/// Fetches the seeds and whatever they lead to, as far as the rules go.
///
/// # Errors
/// If the rules make limits that cannot work.
pub async fn crawl(seeds: Vec<Url>, rules: Rules) -> Result<Crawled, ConfigError> {
    let (sender, mut ended) = mpsc::unbounded_channel();
    let config = Config {
        policy: Policy::Strict,
        classes: ClassConfig::halving(usize::from(rules.depth) + 1),
        // More pages wait than this: further ones are refused, and reported as given up.
        bound: Bound::Shared(10_000),
        max_waiting: Some(rules.pages_per_host),
        backoff: Backoff::new(rules.pause, Duration::from_secs(60)),
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
            Ended::Fetched { depth, links } => {
                frontier.crawled.fetched += 1;
                for url in links.into_iter().filter(|_| depth < rules.depth) {
                    frontier.visit(url, depth + 1)?;
                }
            }
            Ended::GivenUp { page, reason } => {
                let why = format!("{reason}: {}", page.last);
                frontier.crawled.given_up.push((page.url, why));
            }
        }
    }
    frontier.pool.shutdown(Duration::from_secs(1)).await;
    Ok(frontier.crawled)
}

/// Who knows where the crawl has been. One task owns it, so it needs no lock.
struct Frontier {
    pool: Pool<Page>,
    rules: Rules,
    /// The target that stands for a host, and how many of its pages were asked for.
    hosts: HashMap<String, (TargetId, usize)>,
    seed: KeySeed,
    /// A key keeps two *live* jobs from being the same page; that a page was fetched long ago, the
    /// crawler remembers.
    seen: HashSet<Key>,
    /// Jobs that were admitted and have not ended.
    open: usize,
    crawled: Crawled,
}

impl Frontier {
    fn new(pool: Pool<Page>, rules: Rules) -> Self {
        // Seeded by chance: else a page could name two URLs of one key, and have us overlook the
        // second.
        let chance = std::hash::RandomState::new();
        Frontier {
            pool,
            rules,
            hosts: HashMap::new(),
            seed: KeySeed::new(chance.hash_one(0), chance.hash_one(1)),
            seen: HashSet::new(),
            open: 0,
            crawled: Crawled::default(),
        }
    }

    /// Has a page fetched, if it is new and its host's share is not used up.
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
            .expire_at(self.pool.now() + self.rules.patience);
        match self.pool.submit(job) {
            Ok(_ticket) => self.open += 1,
            Err(refused) => {
                let why = format!("refused: {}", refused.reason);
                self.crawled.given_up.push((refused.job.payload.url, why));
            }
        }
        Ok(())
    }

    /// The target for a page's host, which joins the pool when it is first met.
    fn host(&mut self, url: &Url) -> Result<TargetId, ConfigError> {
        if let Some((host, _)) = self.hosts.get(&url.host) {
            return Ok(*host);
        }
        let per_second = 1.0 / self.rules.delay.as_secs_f64();
        let host = self.pool.add_target(TargetConfig {
            limits: Limits {
                concurrent: Some(self.rules.concurrent),
                // A burst of one: a host that was not asked for a while is not made up for.
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
