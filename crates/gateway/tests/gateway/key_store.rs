//! One behaviour suite for all key stores.

use std::sync::Arc;

use headworks_fleet::testing::{PgBouncer, PostgresServer};
use headworks_gateway::config::{KeySettings, TenantSettings};
use headworks_gateway::{
    Changed, Error, FileKeyStore, KeyChange, KeyFile, KeyStore, NewKey, PostgresKeyStore,
};
use jiff::Timestamp;

type Store = Arc<dyn KeyStore>;

fn named(id: &str) -> NewKey {
    let mut settings = KeySettings::default();
    (settings.id, settings.tenant) = (id.into(), "search".into());
    NewKey::generate(settings).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

async fn add(store: &Store, id: &str) -> KeySettings {
    let key = named(id).settings;
    let change = KeyChange::Add(key.clone());
    store.change(&change, "test").await.unwrap();
    key
}

async fn refused(store: &Store, change: KeyChange) -> Error {
    let before = store.load().await.unwrap();
    let audited = store.audit_log(100).await.unwrap();
    let error = store.change(&change, "test").await.unwrap_err();
    assert_eq!(store.load().await.unwrap(), before, "{error}");
    assert_eq!(store.audit_log(100).await.unwrap(), audited, "{error}");
    error
}

async fn keys_are_added_in_order_with_everything_they_have(store: Store) {
    assert_eq!(store.load().await.unwrap().keys, []);
    let mut all = Vec::new();
    for id in ["z", "a", "m"] {
        all.push(add(&store, id).await);
    }
    let mut full = named("full").settings;
    (full.class, full.max_class) = (Some(3), Some(1));
    full.models = vec!["gpt-*".into(), "with, comma \"and quotes\"".into()];
    full.expires = Some(at("2031-02-03T04:05:06Z"));
    let change = KeyChange::Add(full.clone());
    let changed = store.change(&change, "test").await.unwrap();
    assert_eq!(changed.added, ["full"]);
    all.push(full);
    assert_eq!(store.load().await.unwrap().keys, all);
}

async fn an_id_and_a_hash_belong_to_one_key(store: Store) {
    let first = add(&store, "first").await;
    let same_id = KeyChange::Add(named("first").settings);
    let mut same_hash = first;
    same_hash.id = "other".into();
    for change in [same_id, KeyChange::Add(same_hash)] {
        let error = refused(&store, change).await;
        assert!(
            matches!(&error, Error::KeyTaken(id) if id == "first"),
            "{error}"
        );
    }
}

async fn keys_that_cannot_work_are_refused(store: Store) {
    let with = |change: fn(&mut KeySettings)| {
        let mut key = named("new").settings;
        change(&mut key);
        KeyChange::Add(key)
    };
    for change in [
        with(|key| key.id = String::new()),
        with(|key| key.id = "a\nb".into()),
        with(|key| key.id = "x".repeat(201)),
        with(|key| key.tenant = String::new()),
        with(|key| key.tenant = "nul\0".into()),
        with(|key| key.class = Some(10)),
        with(|key| key.hash = Some("short".into())),
        with(|key| key.hash = None),
    ] {
        let error = refused(&store, change).await;
        assert!(matches!(error, Error::KeyInvalid(_)), "{error:?}");
    }
}

async fn a_rotated_key_has_a_successor_with_its_permissions(store: Store) {
    let mut old = named("old").settings;
    (old.class, old.models) = (Some(2), vec!["m".into()]);
    old.expires = Some(at("2031-01-01T00:00:00Z"));
    store
        .change(&KeyChange::Add(old.clone()), "test")
        .await
        .unwrap();
    let rotate = |id: &str, successor: &NewKey, keep_until| KeyChange::Rotate {
        id: id.into(),
        successor: successor.settings.clone(),
        keep_until,
    };
    let second = named("second");
    let until = at("2030-01-01T00:00:00Z");
    store
        .change(&rotate("old", &second, Some(until)), "test")
        .await
        .unwrap();
    let keys = store.load().await.unwrap().keys;
    let expected = KeySettings::clone(&old);
    assert_eq!((&*keys[0].id, keys[0].expires), ("old", Some(until)));
    assert_eq!(keys[1].hash, second.settings.hash);
    assert_eq!(
        (&keys[1].models, keys[1].class),
        (&expected.models, expected.class)
    );
    assert_eq!(
        keys[1].expires, old.expires,
        "a limited time is not extended"
    );

    // Longer than it would have worked anyway is not possible.
    let third = named("third");
    let later = at("2040-01-01T00:00:00Z");
    store
        .change(&rotate("second", &third, Some(later)), "test")
        .await
        .unwrap();
    assert_eq!(store.load().await.unwrap().keys[1].expires, old.expires);

    store
        .change(&rotate("third", &named("fourth"), None), "test")
        .await
        .unwrap();
    let keys = store.load().await.unwrap().keys;
    let ids: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
    assert_eq!(ids, ["old", "second", "fourth"]);
    let error = refused(&store, rotate("third", &named("fifth"), None)).await;
    assert!(matches!(error, Error::KeyUnknown(_)), "{error}");
    let error = refused(&store, rotate("fourth", &named("old"), None)).await;
    assert!(matches!(error, Error::KeyTaken(_)), "{error}");
}

async fn keys_expire_and_are_revoked(store: Store) {
    add(&store, "one").await;
    add(&store, "two").await;
    let expire = |id: &str, at| KeyChange::Expire { id: id.into(), at };
    let precise = at("2030-01-01T00:00:00.123456789Z");
    store
        .change(&expire("one", Some(precise)), "test")
        .await
        .unwrap();
    let keys = store.load().await.unwrap().keys;
    assert_eq!(keys[0].expires, Some(at("2030-01-01T00:00:00Z")));
    store.change(&expire("one", None), "test").await.unwrap();
    let revoke = |id: &str| KeyChange::Revoke { id: id.into() };
    store.change(&revoke("two"), "test").await.unwrap();
    let keys = store.load().await.unwrap().keys;
    assert_eq!((keys.len(), keys[0].expires), (1, None));
    for change in [revoke("two"), expire("two", None)] {
        let error = refused(&store, change).await;
        assert!(
            matches!(&error, Error::KeyUnknown(id) if id == "two"),
            "{error}"
        );
    }
}

async fn tenants_are_set_replaced_and_removed(store: Store) {
    let mut tenant = TenantSettings::default();
    tenant.name = "search".into();
    (tenant.weight, tenant.max_concurrent) = (Some(2), Some(u32::MAX));
    (tenant.max_rps, tenant.max_tokens_per_sec) = (Some(0.5), Some(1e9));
    (tenant.tokens_per_day, tenant.tokens_per_month) = (Some(5), Some(1 << 60));
    let mut other = TenantSettings::default();
    other.name = "batch".into();
    for one in [&tenant, &other] {
        store
            .change(&KeyChange::SetTenant(one.clone()), "test")
            .await
            .unwrap();
    }
    assert_eq!(
        store.load().await.unwrap().tenants,
        [tenant.clone(), other.clone()]
    );
    tenant.tokens_per_day = None;
    store
        .change(&KeyChange::SetTenant(tenant.clone()), "test")
        .await
        .unwrap();
    assert_eq!(store.load().await.unwrap().tenants, [tenant.clone(), other]);
    let remove = KeyChange::RemoveTenant {
        name: "batch".into(),
    };
    store.change(&remove, "test").await.unwrap();
    assert_eq!(store.load().await.unwrap().tenants, [tenant.clone()]);
    let error = refused(&store, remove).await;
    assert!(matches!(error, Error::TenantUnknown(_)), "{error}");
    tenant.weight = Some(0);
    let error = refused(&store, KeyChange::SetTenant(tenant)).await;
    assert!(matches!(error, Error::KeyInvalid(_)), "{error}");
}

async fn every_change_is_audited_without_secrets(store: Store) {
    let key = named("one");
    let hash = key.settings.hash.clone().unwrap();
    store
        .change(&KeyChange::Add(key.settings.clone()), "cli:alice")
        .await
        .unwrap();
    let expire = KeyChange::Expire {
        id: "one".into(),
        at: Some(at("2030-01-01T00:00:00Z")),
    };
    store.change(&expire, "admin:127.0.0.1").await.unwrap();
    let revoke = KeyChange::Revoke { id: "one".into() };
    store.change(&revoke, "forged\nline").await.unwrap();
    let log = store.audit_log(100).await.unwrap();
    let told: Vec<_> = log
        .iter()
        .map(|entry| (&*entry.actor, &*entry.action, &*entry.subject))
        .collect();
    let expected = [
        ("cli:alice", "add key", "one"),
        ("admin:127.0.0.1", "expire key", "one"),
        ("forged\u{fffd}line", "revoke key", "one"),
    ];
    assert_eq!(told, expected);
    assert_eq!(log[1].detail["expires"], "2030-01-01T00:00:00Z");
    let text = serde_json::to_string(&log).unwrap();
    assert!(
        !text.contains(key.reveal()) && !text.contains(&hash),
        "{text}"
    );
    assert_eq!(store.audit_log(1).await.unwrap(), log[2..]);
    assert_eq!(store.audit_log(0).await.unwrap(), []);
}

async fn an_import_adds_what_is_new_and_restores_nothing(store: Store) {
    let known = add(&store, "known").await;
    let revoked = add(&store, "revoked").await;
    let revoke = KeyChange::Revoke {
        id: "revoked".into(),
    };
    store.change(&revoke, "test").await.unwrap();
    let mut upper = named("new").settings;
    upper.hash = upper.hash.map(|hash| hash.to_uppercase());
    let mut tenant = TenantSettings::default();
    tenant.name = "search".into();
    let import = KeyChange::Import {
        keys: vec![known.clone(), revoked, upper],
        tenants: vec![tenant.clone()],
    };
    let changed = store.change(&import, "test").await.unwrap();
    let mut expected = Changed::default();
    (expected.added, expected.revoked) = (vec!["new".into()], vec!["revoked".into()]);
    assert_eq!(changed, expected);
    let table = store.load().await.unwrap();
    assert_eq!((table.keys.len(), table.tenants), (2, vec![tenant]));
    let again = store.change(&import, "test").await.unwrap();
    assert_eq!((again.added.len(), again.revoked.len()), (0, 1));

    let mut conflicting = named("known").settings;
    conflicting.class = Some(1);
    let mut prefix = KeySettings::default();
    (prefix.id, prefix.tenant) = ("prefix".into(), "t".into());
    prefix.prefix = Some("sk-".into());
    for key in [conflicting, prefix] {
        let import = KeyChange::Import {
            keys: vec![named("fine").settings, key],
            tenants: Vec::new(),
        };
        refused(&store, import).await;
    }
}

async fn concurrent_changes_lose_nothing(store: Store) {
    for number in 0..8 {
        add(&store, &format!("old {number}")).await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..8 {
        let adding = store.clone();
        tasks.spawn(async move {
            add(&adding, &format!("new {number}")).await;
        });
        let revoking = store.clone();
        tasks.spawn(async move {
            let id = format!("old {number}");
            let revoke = KeyChange::Revoke { id };
            revoking.change(&revoke, "test").await.unwrap();
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let keys = store.load().await.unwrap().keys;
    assert_eq!(keys.len(), 8);
    assert!(keys.iter().all(|key| key.id.starts_with("new")));
    assert_eq!(store.audit_log(100).await.unwrap().len(), 24);
}

/// Runs every behaviour on an empty store of its own.
async fn suite(empty: impl Fn() -> Store) {
    keys_are_added_in_order_with_everything_they_have(empty()).await;
    an_id_and_a_hash_belong_to_one_key(empty()).await;
    keys_that_cannot_work_are_refused(empty()).await;
    a_rotated_key_has_a_successor_with_its_permissions(empty()).await;
    keys_expire_and_are_revoked(empty()).await;
    tenants_are_set_replaced_and_removed(empty()).await;
    every_change_is_audited_without_secrets(empty()).await;
    an_import_adds_what_is_new_and_restores_nothing(empty()).await;
    concurrent_changes_lose_nothing(empty()).await;
}

#[tokio::test]
async fn the_key_file_passes_the_suite() {
    let folder = tempfile::tempdir().unwrap();
    let next = std::cell::Cell::new(0);
    suite(|| {
        next.set(next.get() + 1);
        let path = folder.path().join(format!("{}.toml", next.get()));
        Arc::new(FileKeyStore::new(&path, 10))
    })
    .await;
}

/// An empty store in the database of `server`, through the server at `port`.
fn empty_database(server: &PostgresServer, port: u16) -> Store {
    server.psql(
        "fleet",
        "DO $$ BEGIN IF to_regclass('headworks.gateway_key') IS NOT NULL THEN TRUNCATE \
         headworks.gateway_key, headworks.gateway_tenant, headworks.gateway_key_version, \
         headworks.gateway_audit; END IF; END $$",
    );
    let client = PostgresServer::client_of(&server.url_at(port));
    Arc::new(PostgresKeyStore::new(&client, 10))
}

// A connection of an earlier store ends on another thread, while this one waits for psql.
#[tokio::test(flavor = "multi_thread")]
async fn postgresql_passes_the_suite() {
    let server = PostgresServer::start();
    suite(|| empty_database(&server, server.port())).await;
    let pooler = PgBouncer::start(&server);
    suite(|| empty_database(&server, pooler.port())).await;
}

#[tokio::test]
async fn the_database_has_no_key_only_its_hash() {
    let server = PostgresServer::start();
    let store = empty_database(&server, server.port());
    let key = named("one");
    store
        .change(&KeyChange::Add(key.settings.clone()), "test")
        .await
        .unwrap();
    let stored = server.psql(
        "fleet",
        "SELECT encode(hash, 'hex') FROM headworks.gateway_key",
    );
    assert_eq!(Some(stored), key.settings.hash);
    let tables = ["gateway_key", "gateway_audit", "gateway_key_version"];
    for table in tables {
        let text = server.psql("fleet", &format!("SELECT t::text FROM headworks.{table} t"));
        assert!(!text.contains(key.reveal()), "{text}");
    }
}

#[tokio::test]
async fn a_key_file_of_an_older_program_is_read_and_keeps_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    let hash = "ab".repeat(32);
    let text = format!("[[key]]\nid = \"first\"\nhash = \"{hash}\"\ntenant = \"t\"\nclass = 3\n");
    std::fs::write(&path, &text).unwrap();
    let store: Store = Arc::new(FileKeyStore::new(&path, 10));
    add(&store, "second").await;
    let keys = KeyFile::read(&path, 10).unwrap().key;
    assert_eq!((&*keys[0].id, keys[0].class), ("first", Some(3)));
    assert_eq!((keys[0].hash.as_ref(), keys.len()), (Some(&hash), 2));
}

#[tokio::test]
async fn a_change_that_cannot_be_written_is_not_in_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.toml");
    let store: Store = Arc::new(FileKeyStore::new(&path, 10));
    add(&store, "first").await;
    // The store writes `keys.toml.new` and renames it; a folder of that name makes the write fail.
    std::fs::create_dir(folder.path().join("keys.toml.new")).unwrap();
    refused(&store, KeyChange::Revoke { id: "first".into() }).await;
}
