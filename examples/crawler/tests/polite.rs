//! The crawler is polite, judged by what the hosts observed.
//!
//! The test uses real sockets and real time, so every assertion is one that no delay between the
//! crawler and a host can break.

use headworks_example_crawler::site::{Behaviour, HOSTS, PAGES, Request, Site};
use headworks_example_crawler::{Rules, crawl};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

const RULES: Rules = Rules {
    concurrent: 2,
    delay: Duration::from_millis(25),
    retry_pause: Duration::from_millis(40),
    attempts: 4,
    max_wait: Duration::from_secs(60),
    pages_per_host: 20,
    depth: 9,
};

fn of(log: &[Request], host: usize) -> Vec<&Request> {
    log.iter().filter(|request| request.host == host).collect()
}

fn index_of(temper: Behaviour) -> usize {
    let place = HOSTS.iter().position(|host| *host == temper);
    place.expect("every temper has a host")
}

#[tokio::test]
async fn every_host_is_treated_as_agreed() {
    let site = Site::start().await.expect("ports are free");
    let start = Instant::now();
    let crawled = crawl(vec![site.home(0)], RULES).await.expect("good rules");
    let log = site.log();
    every_page_was_fetched_once(&log);
    no_host_had_more_at_once_than_agreed(&log);
    no_host_was_asked_faster_than_agreed(&log, start);
    the_strict_host_was_left_alone_during_its_pause(&log);
    dead_links_were_tried_once_and_failures_again(&log);
    let good = log.iter().filter(|request| request.status == 200).count();
    assert_eq!(crawled.fetched, good);
    let mut why: Vec<_> = crawled
        .given_up
        .iter()
        .map(|(_, why)| why.as_str())
        .collect();
    why.dedup();
    assert_eq!(why, ["failed: status 404"], "only dead links are given up");
}

fn every_page_was_fetched_once(log: &[Request]) {
    for (host, temper) in HOSTS.iter().enumerate() {
        let mut fetched = BTreeMap::new();
        for request in of(log, host).iter().filter(|request| request.status == 200) {
            *fetched.entry(&request.path).or_insert(0) += 1;
        }
        let expected = match temper {
            // The dead link uses up one of its pages.
            Behaviour::Endless => RULES.pages_per_host - 1,
            _ => PAGES as usize,
        };
        assert_eq!(fetched.len(), expected, "{temper:?}: {fetched:?}");
        assert!(
            fetched.values().all(|times| *times == 1),
            "{temper:?}: {fetched:?}"
        );
    }
}

fn no_host_had_more_at_once_than_agreed(log: &[Request]) {
    let most = |host| of(log, host).iter().map(|request| request.concurrent).max();
    assert!((0..HOSTS.len()).all(|host| most(host) <= Some(RULES.concurrent)));
    // The slow host shows that the crawler uses the permitted concurrency.
    assert_eq!(most(index_of(Behaviour::Slow)), Some(RULES.concurrent));
}

/// Requests to a host start a delay apart, the first not before a page that links to it was
/// answered. In transit a request can only lose time, so the n-th cannot arrive sooner than n
/// delays after that response.
fn no_host_was_asked_faster_than_agreed(log: &[Request], start: Instant) {
    for (host, temper) in HOSTS.iter().enumerate() {
        let links_here = |request: &&Request| {
            let home = request.path == "/0" && request.status == 200;
            home && [1, 2]
                .iter()
                .any(|step| (request.host + step) % HOSTS.len() == host)
        };
        let linked = log
            .iter()
            .filter(links_here)
            .map(|request| request.answered);
        // The first host is the seed.
        let known = if host == 0 { Some(start) } else { linked.min() };
        let known = known.expect("it was linked to");
        for (n, request) in of(log, host).iter().enumerate() {
            let after = request.arrived - known;
            assert!(
                after >= RULES.delay * n as u32,
                "request {n} to {temper:?} after {after:?}"
            );
        }
    }
}

fn the_strict_host_was_left_alone_during_its_pause(log: &[Request]) {
    let seen = of(log, index_of(Behaviour::Strict));
    assert_eq!(seen[0].status, 429);
    let peace = seen[1].arrived - seen[0].answered;
    assert!(peace >= Duration::from_secs(1), "{peace:?}");
    assert_eq!(
        seen.iter().filter(|request| request.status == 429).count(),
        1
    );
}

fn dead_links_were_tried_once_and_failures_again(log: &[Request]) {
    let mut tries: HashMap<(usize, &str), Vec<u16>> = HashMap::new();
    for request in log {
        let answers = tries.entry((request.host, &request.path)).or_default();
        answers.push(request.status);
    }
    let gone = |host: usize| tries[&(host, "/gone")].as_slice() == [404];
    assert!((0..HOSTS.len()).all(gone), "{tries:?}");
    let again = tries
        .values()
        .filter(|answers| answers.as_slice() == [503, 200])
        .count();
    assert_eq!(again, 4, "of eleven pages, four fail at first: {tries:?}");
    assert_eq!(
        tries.values().filter(|answers| answers.len() > 1).count(),
        5,
        "and one was put off"
    );
}
