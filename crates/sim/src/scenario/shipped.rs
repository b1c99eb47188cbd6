//! The scenarios that are shipped with the program.

pub(super) const SHIPPED: [(&str, &str); 10] = [
    (
        "ten-classes-fifo",
        include_str!("../../../../scenarios/ten-classes-fifo.toml"),
    ),
    (
        "ten-classes-strict",
        include_str!("../../../../scenarios/ten-classes-strict.toml"),
    ),
    (
        "ten-classes-wfq",
        include_str!("../../../../scenarios/ten-classes-wfq.toml"),
    ),
    (
        "ten-classes-hybrid",
        include_str!("../../../../scenarios/ten-classes-hybrid.toml"),
    ),
    (
        "greedy-tenant",
        include_str!("../../../../scenarios/greedy-tenant.toml"),
    ),
    (
        "forwarders",
        include_str!("../../../../scenarios/forwarders.toml"),
    ),
    ("tokens", include_str!("../../../../scenarios/tokens.toml")),
    (
        "refused-clients",
        include_str!("../../../../scenarios/refused-clients.toml"),
    ),
    ("fleet", include_str!("../../../../scenarios/fleet.toml")),
    ("rounds", include_str!("../../../../scenarios/rounds.toml")),
];
