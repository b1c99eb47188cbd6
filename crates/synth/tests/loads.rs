//! Loads: determinism, order, rates and means.

use headworks_synth::{Arrival, Arrivals, Distribution, Rng, Weighted};
use proptest::prelude::*;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn open_loads() -> Vec<Arrivals> {
    vec![
        Arrivals::Constant { rate: 30.0 },
        Arrivals::Poisson { rate: 50.0 },
        Arrivals::Bursts {
            size: 100,
            every: SECOND * 3,
        },
        Arrivals::OnOff {
            rate: 90.0,
            on: SECOND * 2,
            off: SECOND,
        },
    ]
}

fn distributions() -> Vec<Distribution> {
    let part = |weight, draw| Weighted { weight, draw };
    vec![
        Distribution::Constant { value: 12 },
        Distribution::Uniform { low: 1, high: 4000 },
        Distribution::LogNormal {
            mean: 800.0,
            sigma: 1.0,
        },
        Distribution::Pareto {
            min: 10,
            max: 100_000,
            shape: 1.5,
        },
        Distribution::Pareto {
            min: 10,
            max: 1000,
            shape: 1.0,
        },
        Distribution::Mix {
            of: vec![
                part(3.0, Distribution::Constant { value: 100 }),
                part(
                    1.0,
                    Distribution::Uniform {
                        low: 1000,
                        high: 3000,
                    },
                ),
            ],
        },
    ]
}

#[test]
fn rates_are_met() {
    for load in open_loads() {
        load.check().unwrap();
        let last = load.stream(11).take(60_000).last().unwrap();
        let (rate, expected) = (60_000.0 / last.at.as_secs_f64(), load.mean_rate().unwrap());
        assert!((rate / expected - 1.0).abs() < 0.02, "{load:?}: {rate}");
    }
}

#[test]
fn means_are_met() {
    for costs in distributions() {
        costs.check().unwrap();
        let (mut rng, n) = (Rng::new(5), 400_000);
        let sum: f64 = (0..n).map(|_| costs.sample(&mut rng) as f64).sum();
        let (mean, expected) = (sum / f64::from(n), costs.mean());
        assert!(
            (mean / expected - 1.0).abs() < 0.03,
            "{costs:?}: {mean}, not {expected}"
        );
    }
}

#[test]
fn an_on_off_load_is_off_when_off() {
    let load = Arrivals::OnOff {
        rate: 50.0,
        on: SECOND * 2,
        off: SECOND,
    };
    for arrival in load.stream(3).take(5000) {
        assert!(arrival.at.as_secs_f64() % 3.0 < 2.0);
    }
}

#[test]
fn a_closed_load_has_as_many_requests_out_as_clients() {
    let load = Arrivals::Closed {
        clients: 3,
        think: SECOND,
    };
    let mut stream = load.stream(1);
    let first: Vec<Arrival> = stream.by_ref().collect();
    assert_eq!(first.len(), 3);
    assert_eq!(stream.peek(), None);
    stream.answered(first[1].number, SECOND * 20);
    let next = stream.peek().unwrap();
    assert!(next.at >= SECOND * 20 && next.number == 3);
    assert_eq!(stream.next(), Some(next));
    assert_eq!(stream.next(), None);
}

#[test]
fn thoughts_belong_to_requests_and_not_to_the_order_of_answers() {
    let load = Arrivals::Closed {
        clients: 4,
        think: SECOND,
    };
    let run = |order: [u64; 4]| -> Vec<Duration> {
        let mut stream = load.stream(9);
        assert_eq!(stream.by_ref().count(), 4);
        for number in order {
            stream.answered(number, SECOND * 100);
        }
        stream.map(|arrival| arrival.at).collect()
    };
    assert_eq!(run([0, 1, 2, 3]), run([3, 1, 0, 2]));
}

#[test]
fn think_times_have_the_given_mean() {
    let mut stream = Arrivals::Closed {
        clients: 20,
        think: SECOND,
    }
    .stream(2);
    let mut last = Duration::ZERO;
    for _ in 0..40_000 {
        let arrival = stream.next().unwrap();
        assert!(arrival.at >= last);
        last = arrival.at;
        stream.answered(arrival.number, arrival.at);
    }
    let rate = 40_000.0 / last.as_secs_f64();
    assert!((rate - 20.0).abs() < 0.5, "{rate}");
}

#[test]
fn invalid_parameters_are_named() {
    let error = Arrivals::Poisson { rate: -1.0 }.check().unwrap_err();
    assert_eq!(
        error.to_string(),
        "rate is -1; it must be requests per second, above 0 and at most 1e9"
    );
    let error = Distribution::Uniform { low: 5, high: 2 }
        .check()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "high is 2; it must be at least as much as low"
    );
    assert!(
        Arrivals::Bursts {
            size: 0,
            every: SECOND
        }
        .stream(0)
        .next()
        .is_none()
    );
    assert!(
        Arrivals::Constant { rate: f64::NAN }
            .stream(0)
            .next()
            .is_none()
    );
}

#[test]
fn scenario_files_can_hold_them() {
    let text = r#"{"kind":"on-off","rate":5.0,"on":"2s","off":"250ms"}"#;
    let load: Arrivals = serde_json::from_str(text).unwrap();
    assert_eq!(
        load,
        Arrivals::OnOff {
            rate: 5.0,
            on: SECOND * 2,
            off: SECOND / 4
        }
    );
    assert_eq!(serde_json::to_string(&load).unwrap(), text);
    let typo = serde_json::from_str::<Arrivals>(r#"{"kind":"poisson","rat":5.0}"#).unwrap_err();
    assert!(typo.to_string().contains("unknown field `rat`"), "{typo}");
    for costs in distributions() {
        let text = serde_json::to_string(&costs).unwrap();
        assert_eq!(serde_json::from_str::<Distribution>(&text).unwrap(), costs);
    }
}

/// A load identified by its parameters must stay the same load.
#[test]
fn loads_are_pinned() {
    let times: Vec<u128> = open_loads()
        .iter()
        .map(|l| l.stream(7).nth(150).unwrap().at.as_nanos())
        .collect();
    assert_eq!(
        times,
        [5_000_000_000, 2_979_214_864, 3_000_000_000, 1_655_119_369]
    );
    let mut rng = Rng::new(7);
    let costs: Vec<u64> = distributions().iter().map(|d| d.sample(&mut rng)).collect();
    assert_eq!(costs, [12, 222, 215, 14, 217, 100]);
}

proptest! {
    #[test]
    fn a_stream_is_ordered_and_repeatable(seed in any::<u64>(), which in 0..4usize) {
        let load = open_loads().swap_remove(which);
        let mut other = load.stream(seed);
        let mut last = Duration::ZERO;
        for (n, arrival) in load.stream(seed).take(500).enumerate() {
            prop_assert!(arrival.at >= last && arrival.number == n as u64);
            prop_assert_eq!(other.peek(), Some(arrival));
            prop_assert_eq!(other.next(), Some(arrival));
            last = arrival.at;
        }
    }

    #[test]
    fn samples_stay_within(seed in any::<u64>(), a in any::<u64>(), b in any::<u64>(), shape in 0.01..20.0f64) {
        let (low, high) = (a.min(b).max(1), a.max(b).max(1));
        let mut rng = Rng::new(seed);
        for costs in [Distribution::Uniform { low, high }, Distribution::Pareto { min: low, max: high, shape }] {
            let cost = costs.sample(&mut rng);
            prop_assert!(low <= cost && cost <= high);
        }
    }

    #[test]
    fn no_numbers_panic(seed in any::<u64>(), x in any::<f64>(), y in any::<f64>(), a in any::<u64>(), b in any::<u64>(), nanos in any::<u64>()) {
        let mut rng = Rng::new(seed);
        let draw = Distribution::Pareto { min: a, max: b, shape: x };
        let parts = vec![Weighted { weight: y, draw: draw.clone() }, Weighted { weight: x, draw: Distribution::Uniform { low: a, high: b } }];
        for costs in [draw, Distribution::LogNormal { mean: x, sigma: y }, Distribution::Mix { of: parts }, Distribution::Mix { of: vec![] }] {
            prop_assert!(costs.sample(&mut rng) >= 1);
            let _ = (costs.mean(), costs.check());
        }
        let (on, off) = (Duration::from_nanos(nanos), Duration::MAX);
        for load in [Arrivals::Poisson { rate: x }, Arrivals::Constant { rate: y }, Arrivals::OnOff { rate: x, on, off }, Arrivals::Bursts { size: 1, every: off }] {
            for arrival in load.stream(seed).take(5) {
                prop_assert!(arrival.number < 5);
            }
        }
    }
}
