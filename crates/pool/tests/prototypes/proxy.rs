//! A permit proxy: clients speak to it over a stream, it speaks to one of two upstreams when the pool gives leave.
//!
//! The permit lives as long as the answer. Whoever goes away gives back a place or a slot by doing so, because the
//! future that holds it is dropped.

use headworks_core::{
    Booking, Bound, Class, Config, Cost, Flow, Job, Limits, Policy, Rate, TargetConfig, TargetId,
    TargetSet,
};
use headworks_pool::{Denied, How, Permits, Report};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{Instant, sleep};

#[derive(Clone, Copy)]
struct Request {
    class: Class,
    tenant: Flow,
    estimate: u64,
    booking: Option<Booking>,
}

/// What a client reads: a status, and with 429 the milliseconds to wait and the booking to bring.
type Answer = (u64, u64, u64);

struct Proxy {
    pool: Permits,
    group: TargetSet,
    /// The first upstream takes no connection before this.
    heals: Instant,
    /// Every call: which upstream, when, what it really cost.
    calls: Mutex<Vec<(TargetId, Instant, u64)>>,
    turned_away: AtomicU64,
}

impl Proxy {
    fn new(config: Config) -> Arc<Proxy> {
        let pool = Permits::new(config).expect("a good configuration");
        let both = [TargetId::new(0), TargetId::new(1)];
        Arc::new(Proxy {
            group: pool.targets(&both).expect("both exist"),
            pool,
            heals: Instant::now() + Duration::from_secs(2),
            calls: Mutex::default(),
            turned_away: AtomicU64::new(0),
        })
    }

    /// Serves one request of a client, who may leave at any moment.
    async fn serve(&self, mut client: DuplexStream, request: Request) {
        let (mut reader, mut writer) = tokio::io::split(&mut client);
        let mut nothing = [0];
        let answer = tokio::select! {
            answer = self.forward(request) => answer,
            // The client said all it had to say: whatever comes now is its end.
            _ = reader.read(&mut nothing) => return,
        };
        for word in [answer.0, answer.1, answer.2] {
            let _ = writer.write_u64(word).await;
        }
    }

    async fn forward(&self, request: Request) -> Answer {
        let job = Job::new(())
            .class(request.class)
            .flow(request.tenant)
            .cost(Cost(request.estimate))
            .targets(self.group)
            .booking(request.booking);
        let mut acquire = self.pool.acquire(job);
        loop {
            let permit = match acquire.await {
                Ok(permit) => permit,
                // Turned away at the door, or from a place that another tenant had more right to: come back later.
                Err(
                    Denied::Refused {
                        retry_after: Some(wait),
                        booking,
                        ..
                    }
                    | Denied::Ended(How::Shed {
                        retry_after: Some(wait),
                        booking,
                    }),
                ) => {
                    let booking = booking.map_or(u64::MAX, |booking| booking.0);
                    return (429, wait.as_millis() as u64, booking);
                }
                Err(_) => return (503, 0, 0),
            };
            match self.call(permit.target(), request.estimate).await {
                Some(actual) => {
                    permit.finish(Report::done_at(Cost(actual)));
                    return (200, 0, 0);
                }
                None => {
                    self.turned_away.fetch_add(1, Ordering::Relaxed);
                    acquire = permit.again(Report::elsewhere());
                }
            }
        }
    }

    /// An upstream: takes a tenth of a second, and half of the tokens it was feared to. `None` if it takes no connection.
    async fn call(&self, upstream: TargetId, estimate: u64) -> Option<u64> {
        if upstream.index() == 0 && Instant::now() < self.heals {
            return None;
        }
        sleep(Duration::from_millis(100)).await;
        let call = (upstream, Instant::now(), estimate / 2);
        self.calls.lock().unwrap().push(call);
        Some(estimate / 2)
    }
}

fn config() -> Config {
    let upstream = TargetConfig {
        limits: Limits {
            concurrent: Some(2),
            cost: Some(Rate::per_second(2000.0)),
            ..Limits::default()
        },
        fault_threshold: 3,
        suspend_for: Duration::from_secs(1),
        ..TargetConfig::default()
    };
    Config {
        policy: Policy::Hybrid,
        bound: Bound::PerClass(4),
        targets: vec![upstream; 2],
        ..Config::default()
    }
}

/// A client that comes back when told to, with its booking. Says how often it came with one, and how often in vain.
async fn client(proxy: Arc<Proxy>, mut request: Request) -> (u32, u32) {
    let (mut booked, mut in_vain) = (0, 0);
    loop {
        let (mut mine, theirs) = duplex(64);
        let server = proxy.clone();
        tokio::spawn(async move { server.serve(theirs, request).await });
        let mut answer = [0; 3];
        for word in &mut answer {
            *word = mine.read_u64().await.expect("the proxy answers");
        }
        match answer {
            [200, ..] => return (booked, in_vain),
            [429, wait, booking] => {
                in_vain += u32::from(request.booking.is_some());
                request.booking = (booking != u64::MAX).then_some(Booking(booking));
                booked += u32::from(request.booking.is_some());
                // A millisecond more, for the one that was cut off.
                sleep(Duration::from_millis(wait + 1)).await;
            }
            other => panic!("an answer that makes no sense: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn twenty_clients_are_served_by_what_is_left() {
    let proxy = Proxy::new(config());
    let start = Instant::now();
    let clients = (0..20u64).map(|n| {
        let proxy = proxy.clone();
        let request = Request {
            class: Class(n as u8 % 2 * 5),
            tenant: Flow(n % 4),
            estimate: 100 + 20 * n,
            booking: None,
        };
        tokio::spawn(async move {
            // Bookings need a queue that has moved before.
            sleep(Duration::from_millis(30 * n)).await;
            let mut sum = (0, 0);
            for _ in 0..3 {
                let (booked, in_vain) = client(proxy.clone(), request).await;
                sum = (sum.0 + booked, sum.1 + in_vain);
            }
            sum
        })
    });
    let (mut booked, mut in_vain) = (0, 0);
    for client in clients.collect::<Vec<_>>() {
        let (with_booking, despite) = client.await.expect("every client is served");
        booked += with_booking;
        in_vain += despite;
    }
    // Not every booking is good the first time: the upstream frees its slots in pairs, the forecast expects them one
    // by one.
    assert!(booked > in_vain, "{in_vain} of {booked} in vain");
    let calls = proxy.calls.lock().unwrap().clone();
    assert_eq!(calls.len(), 60, "each was served once");
    let away = proxy.turned_away.load(Ordering::Relaxed);
    assert!(
        (3..=10).contains(&away),
        "three faults suspend it, then probes: {away}"
    );
    let healed =
        |(upstream, at, _): &(TargetId, Instant, u64)| upstream.index() == 1 || *at >= proxy.heals;
    assert!(calls.iter().all(healed));
    // Charged as estimated, corrected when done: what was drawn keeps to the rate, what was feared would not have.
    let drawn: u64 = calls.iter().map(|call| call.2).sum();
    let most = (2.0 * 2000.0 * (1.0 + start.elapsed().as_secs_f64())) as u64;
    assert!(drawn <= most && most < 2 * drawn, "{drawn} of {most}");
    let view = proxy.pool.inspect();
    assert_eq!((view.running, view.waiting, view.delayed), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_gives_back_its_slot_or_its_place() {
    let mut config = config();
    config.limits.concurrent = Some(1);
    let proxy = Proxy::new(config);
    let request = Request {
        class: Class(3),
        tenant: Flow(0),
        estimate: 10,
        booking: None,
    };
    let (served, theirs) = duplex(64);
    let first = tokio::spawn({
        let proxy = proxy.clone();
        async move { proxy.serve(theirs, request).await }
    });
    let (waits, theirs) = duplex(64);
    let second = tokio::spawn({
        let proxy = proxy.clone();
        async move { proxy.serve(theirs, request).await }
    });
    sleep(Duration::from_millis(10)).await;
    let view = proxy.pool.inspect();
    assert_eq!((view.running, view.waiting), (1, 1));
    drop(waits);
    second.await.expect("it ends");
    assert_eq!(proxy.pool.inspect().waiting, 0);
    drop(served);
    first.await.expect("it ends");
    assert_eq!(proxy.pool.inspect().running, 0);
    assert_eq!(client(proxy.clone(), request).await, (0, 0));
    assert_eq!(
        proxy.calls.lock().unwrap().len(),
        1,
        "the others never got so far"
    );
}
