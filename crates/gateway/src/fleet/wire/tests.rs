use super::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn name() -> impl Strategy<Value = Arc<str>> {
    prop_oneof![
        Just(Arc::from("search")),
        Just(Arc::from("")),
        any::<String>().prop_map(Arc::from),
    ]
}

/// Values that a 32-bit fraction holds exactly.
fn fraction() -> impl Strategy<Value = f64> {
    (0.0_f32..1e12).prop_map(f64::from)
}

fn load() -> impl Strategy<Value = Load> {
    (fraction(), fraction()).prop_map(|(requests, cost)| Load { requests, cost })
}

fn stamp() -> impl Strategy<Value = Stamp> {
    (0..MAX_STAMP, 0..MAX_STAMP).prop_map(|(epoch, number)| Stamp { epoch, number })
}

fn rate() -> impl Strategy<Value = RateShare> {
    (0..=MAX_AMOUNT, 0..=MAX_AMOUNT).prop_map(|(rate, burst)| RateShare { rate, burst })
}

fn gate() -> impl Strategy<Value = (Gate, GateShare)> {
    let gate = prop_oneof![
        Just(Gate::All),
        name().prop_map(Gate::Tenant),
        name().prop_map(Gate::Pool),
    ];
    let share = (
        option::of(rate()),
        option::of(rate()),
        option::of(any::<u32>()),
    );
    let share = share.prop_map(|(requests, cost, concurrent)| GateShare {
        requests,
        cost,
        concurrent,
    });
    (gate, share)
}

fn share() -> impl Strategy<Value = NamedShare> {
    (vec(gate(), 0..8), any::<u64>()).prop_map(|(gates, other_tenants)| NamedShare {
        gates,
        other_tenants,
    })
}

fn demand() -> impl Strategy<Value = NamedDemand> {
    let whose = (
        any::<u8>(),
        option::of(name()),
        vec(name(), 0..4),
        any::<u32>(),
    );
    (whose, load(), load(), fraction()).prop_map(
        |((class, tenant, pools, tenants), waiting, granted, running)| NamedDemand {
            class,
            tenant,
            pools,
            tenants,
            waiting,
            granted,
            running,
        },
    )
}

fn hint() -> impl Strategy<Value = PoolHint> {
    let stated = (option::of(fraction()), option::of(fraction()));
    (name(), any::<bool>(), stated).prop_map(|(pool, overloaded, (rps, tokens_per_sec))| PoolHint {
        pool,
        overloaded,
        rps,
        tokens_per_sec,
    })
}

fn report() -> impl Strategy<Value = NodeMessage> {
    let state = (any::<u64>(), stamp(), share(), vec(demand(), 0..8));
    let flags = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        option::of(any::<u128>()),
    );
    let on_loss = prop_oneof![
        Just(OnLoss::Keep),
        option::of(0..1_000_000_u64).prop_map(|millis| OnLoss::Closed {
            request_timeout: millis.map(Duration::from_millis),
        }),
    ];
    let more = (
        any::<u64>(),
        name(),
        vec(hint(), 0..4),
        any::<u64>(),
        on_loss,
    );
    (state, flags, more).prop_map(
        |(
            (number, echo, in_force, demand),
            (complete, leaves, ready, succeeds),
            (fingerprint, program, hints, hints_since, on_loss),
        )| NodeMessage {
            number,
            echo,
            in_force,
            demand,
            complete,
            succeeds,
            leaves,
            fingerprint,
            ready,
            program,
            hints,
            hints_since,
            on_loss,
        },
    )
}

fn allocation() -> impl Strategy<Value = ShareMessage> {
    let weights = (
        vec((any::<u8>(), fraction()), 0..8),
        vec((name(), fraction()), 0..8),
    );
    (stamp(), any::<u64>(), share(), weights).prop_map(
        |(stamp, seen, share, (class_weights, tenant_weights))| ShareMessage {
            stamp,
            seen,
            share,
            class_weights,
            tenant_weights,
        },
    )
}

proptest! {
    #[test]
    fn a_report_survives_the_way(report in report(), added in vec(any::<u8>(), 0..4)) {
        let mut bytes = report.encode();
        prop_assert_eq!(NodeMessage::decode(&bytes), Ok(report.clone()));
        bytes.extend(added); // fields of a later program
        prop_assert_eq!(NodeMessage::decode(&bytes), Ok(report));
    }

    #[test]
    fn an_allocation_survives_the_way(allocation in allocation()) {
        prop_assert_eq!(ShareMessage::decode(&allocation.encode()), Ok(allocation));
    }

    #[test]
    fn garbage_is_an_error_and_not_a_panic(
        report in report(),
        garbage in vec(any::<u8>(), 0..200),
        cut in any::<prop::sample::Index>(),
        flipped in any::<prop::sample::Index>(),
    ) {
        let _ = (NodeMessage::decode(&garbage), ShareMessage::decode(&garbage));
        let mut bytes = report.encode();
        bytes.truncate(cut.index(bytes.len()));
        prop_assert!(NodeMessage::decode(&bytes).is_err());
        let mut bytes = report.encode();
        let flipped = flipped.index(bytes.len());
        bytes[flipped] ^= 0x55;
        let _ = NodeMessage::decode(&bytes);
    }
}

#[test]
fn another_version_is_named() {
    let mut bytes = NodeMessage::default().encode();
    bytes[0] = 7;
    assert_eq!(NodeMessage::decode(&bytes), Err(WireError::Version(7)));
    assert_eq!(NodeMessage::decode(&[]), Err(WireError::Malformed));
}

#[test]
fn amounts_that_would_overflow_a_sum_are_refused() {
    let rate = RateShare {
        rate: MAX_AMOUNT + 1,
        burst: 0,
    };
    let share = GateShare {
        requests: Some(rate),
        ..GateShare::default()
    };
    let in_force = NamedShare {
        gates: vec![(Gate::All, share)],
        other_tenants: 0,
    };
    let report = NodeMessage {
        in_force,
        ..NodeMessage::default()
    };
    assert_eq!(
        NodeMessage::decode(&report.encode()),
        Err(WireError::Malformed)
    );
}

#[test]
fn a_report_of_256_tenants_is_small() {
    let demand = |tenant: u32| NamedDemand {
        class: 5,
        tenant: Some(format!("tenant-{tenant:05}").into()),
        pools: vec!["openai".into(), "azure".into()],
        tenants: 1,
        waiting: Load {
            requests: 3.0,
            cost: 900.0,
        },
        granted: Load::default(),
        running: 2.0,
    };
    let report = NodeMessage {
        demand: (0..256).map(demand).collect(),
        ..NodeMessage::default()
    };
    let size = report.encode().len();
    assert!(size < 12_000, "{size} bytes");
}
