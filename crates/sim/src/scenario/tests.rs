//! Error messages for invalid scenario files.

use super::*;
use proptest::prelude::*;

fn error(text: &str) -> String {
    Scenario::from_text("x.toml", text)
        .expect_err("something is wrong with it")
        .to_string()
}

#[test]
fn shipped_scenarios_and_the_default_are_right() {
    for (name, text) in shipped::SHIPPED {
        let scenario = Scenario::from_text(name, text).unwrap_or_else(|error| panic!("{error}"));
        assert!(
            !scenario.about().is_empty() && !scenario.expects.is_empty(),
            "{name}"
        );
    }
    assert_eq!(Scenario::for_replay().classes.len(), 10);
}

#[test]
fn syntax_errors_name_their_place() {
    let told = error("duration = \"1s\"\n[scheduler\npolicy = 1");
    assert!(told.starts_with("x.toml:2:11: invalid TOML: "), "{told}");
}

#[test]
fn unknown_keys_name_the_nearest_right_one() {
    assert_eq!(
        error("duration = \"1s\"\n[scheduler]\n  polcy = \"wfq\""),
        "x.toml:3:3: unknown key `scheduler.polcy`; did you mean `policy`?"
    );
    assert_eq!(
        error("duration = \"1s\"\n[[targets]]\nname = \"a\"\nerrors = { crash = 0.1 }"),
        "x.toml:4:12: unknown key `targets[0].errors.crash`; valid: `fault`, `rejected`, `silent`, `gone`"
    );
    assert_eq!(
        error("duraton = \"1s\""),
        "x.toml:1:1: unknown key `duraton`; did you mean `duration`?"
    );
}

#[test]
fn missing_keys_and_wrong_types_name_the_key() {
    assert_eq!(
        error("seed = 1"),
        "x.toml:1:1: `duration`: is missing; add it"
    );
    assert_eq!(
        error("duration = \"1s\"\n[[targets]]\nname = \"a\"\n[[targets]]\ncount = 3"),
        "x.toml:4:1: `targets[1].name`: is missing; add it"
    );
    let told = error("duration = 60");
    assert_eq!(
        told,
        "x.toml:1:12: `duration`: invalid type: integer `60`, expected a duration in quotes, as in \"250ms\", \"30s\" or \"5m\""
    );
    let told = error("duration = \"1s\"\n[scheduler]\nclasses = \"ten\"");
    assert!(
        told.starts_with("x.toml:3:11: `scheduler.classes`: invalid type: string \"ten\""),
        "{told}"
    );
    let told = error("duration = \"1s\"\n[scheduler]\npolicy = \"stric\"");
    assert_eq!(
        told,
        "x.toml:3:10: `scheduler.policy`: unknown value `stric`; did you mean `strict`?"
    );
    let told = error("duration = \"1x\"");
    assert!(
        told.contains("`1x` is not a duration; write a number and ns, us, ms, s, m or h"),
        "{told}"
    );
}

#[test]
fn impossible_values_name_line_key_and_way_out() {
    let with = |rest: &str| error(&format!("duration = \"1s\"\n{rest}"));
    assert_eq!(
        with("[scheduler]\nlimits = { concurrent = 0 }"),
        "x.toml:3:12: `scheduler.limits.concurrent`: must be at least 1; leave it out for no limit"
    );
    assert_eq!(
        with("[[classes]]\nweight = 0"),
        "x.toml:3:1: `classes[0].weight`: must be at least 1"
    );
    assert_eq!(
        with("[[loads]]\nname = \"a\"\nclass = 12\narrivals = { kind = \"poisson\", rate = 1.0 }"),
        "x.toml:4:1: `loads[0].class`: unknown class `12`; valid: 0 to 9, named P0, P1, P2, P3, P4, P5, P6, P7, P8, P9"
    );
    let told = with("[[loads]]\nname = \"a\"\narrivals = { kind = \"poisson\", rate = -1.0 }");
    assert_eq!(
        told,
        "x.toml:4:1: `loads[0].arrivals`: rate is -1; it must be requests per second, above 0 and at most 1e9"
    );
    let told = with(
        "[[loads]]\nname = \"a\"\ntargets = \"b\"\narrivals = { kind = \"poisson\", rate = 1.0 }",
    );
    assert_eq!(
        told,
        "x.toml:4:1: `loads[0].targets`: unknown target `b`; name one of [[targets]]"
    );
    let told = with(
        "[rounds]\ntree = \"depth=2\"\nlag = 3\nmax_lead = 2\nleader = \"target\"\nfollower = \"target\"",
    );
    assert!(
        told.starts_with("x.toml:5:1: `rounds.max_lead`: max_lead 2 is less than lag 3"),
        "{told}"
    );
    let told = with("[rounds]\ntree = \"depht=2\"\nleader = \"a\"\nfollower = \"b\"");
    assert!(told.contains("did you mean `depth`?"), "{told}");
    let told = with("[[expect]]\nmetric = \"share\"\nat_least = 0.5");
    assert!(
        told.starts_with("x.toml:3:1: `expect[0].metric`: `share` does not apply to all"),
        "{told}"
    );
    let told = with("[[expect]]\nmetric = \"done\"");
    assert_eq!(
        told,
        "x.toml:3:1: `expect[0].metric`: has no limit; add at_least or at_most"
    );
}

#[test]
fn the_former_name_of_the_default_target_is_an_alias() {
    let expect = |name: &str, targets: &str| {
        let text = format!(
            "duration = \"1s\"
            {targets}
            [[loads]]
            name = \"a\"
            targets = \"{name}\"
            arrivals = {{ kind = \"constant\", rate = 10.0 }}
            [[expect]]
            metric = \"granted\"
            target = \"{name}\"
            at_least = 1"
        );
        let scenario = Scenario::from_text("x.toml", &text).unwrap();
        crate::Trial::new(&scenario, 1)
            .run()
            .unwrap()
            .is_as_expected()
    };
    assert!(expect("target", ""));
    assert!(expect("far side", ""));
    assert!(expect("far side", "[[targets]]\nname = \"far side\""));
    let other = "duration = \"1s\"\n[[targets]]\nname = \"a\"\n[[expect]]\nmetric = \"granted\"\n\
                 target = \"far side\"\nat_least = 1";
    assert!(error(other).contains("unknown target `far side`"));
}

#[test]
fn missing_scenarios_are_named() {
    let told = Scenario::open("no-such").unwrap_err().to_string();
    assert!(told.starts_with(
        "`no-such` is neither a file nor a shipped scenario; valid: `ten-classes-fifo`,"
    ));
    let told = Scenario::open("no/such.toml").unwrap_err().to_string();
    assert!(told.starts_with("cannot read no/such.toml: "), "{told}");
}

/// A shipped scenario with a part of it replaced.
fn mangled() -> impl Strategy<Value = String> {
    let texts: Vec<&'static str> = shipped::SHIPPED.iter().map(|(_, text)| *text).collect();
    let patch =
        "[0-9a-z\"={}\\[\\].,\n -]{0,12}|.{0,4}|-1|0|1e99|\"\"|99999999999999999999|nan|true";
    (
        prop::sample::select(texts),
        any::<prop::sample::Index>(),
        0..24usize,
        patch,
    )
        .prop_map(|(text, at, length, patch)| {
            let chars: Vec<char> = text.chars().collect();
            let at = at.index(chars.len());
            let end = (at + length).min(chars.len());
            chars[..at]
                .iter()
                .copied()
                .chain(patch.chars())
                .chain(chars[end..].iter().copied())
                .collect()
        })
}

#[test]
fn zero_durations_and_invalid_limits_are_rejected() {
    let with = |rest: &str| error(&format!("duration = \"1s\"\n{rest}"));
    let load = "arrivals = { kind = \"poisson\", rate = 1.0 }";
    let no_time = "must not be zero; write \"5s\", or leave it out";
    assert_eq!(
        with(&format!(
            "[[loads]]\nname = \"a\"\ntimeout = \"0s\"\n{load}"
        )),
        format!("x.toml:4:1: `loads[0].timeout`: {no_time}")
    );
    assert_eq!(
        with("[[targets]]\nname = \"a\"\ntimeout = \"0ms\""),
        format!("x.toml:4:1: `targets[0].timeout`: {no_time}")
    );
    assert_eq!(
        with("[trace]\ntimeout = \"0s\""),
        format!("x.toml:3:1: `trace.timeout`: {no_time}")
    );
    for limit in ["nan", "-inf"] {
        let limit = limit.to_owned();
        let told = with(&format!("[[expect]]\nmetric = \"done\"\nat_most = {limit}"));
        let shown = if limit == "nan" { "NaN" } else { "-inf" };
        assert_eq!(
            told,
            format!(
                "x.toml:4:1: `expect[0].at_most`: invalid limit {shown}; write a number, or leave it out"
            )
        );
    }
    assert_eq!(
        with("max_steps = 0"),
        "x.toml:2:1: `max_steps`: must be at least 1; write a larger number, or leave it out"
    );
}

#[test]
fn control_characters_in_names_are_rejected() {
    let with = |rest: &str| error(&format!("duration = \"1s\"\n{rest}"));
    let control = "contains a control character (\\u{1b}); remove it";
    let load = "arrivals = { kind = \"poisson\", rate = 1.0 }";
    for (text, place) in [
        ("about = \"\\u001b[2J\"".to_owned(), "2:1: `about`"),
        (
            "[[classes]]\nname = \"\\u001b[2J\"\nweight = 1".to_owned(),
            "3:1: `classes[0].name`",
        ),
        (
            "[[flows]]\nname = \"\\u001b[2J\"".to_owned(),
            "3:1: `flows[0].name`",
        ),
        (
            "[[targets]]\nname = \"\\u001b[2J\"".to_owned(),
            "3:1: `targets[0].name`",
        ),
        (
            format!("[[loads]]\nname = \"\\u001b[2J\"\n{load}"),
            "3:1: `loads[0].name`",
        ),
        (
            format!("[[loads]]\nname = \"a\"\nflow = \"\\u001b[2J\"\n{load}"),
            "4:1: `loads[0].flow`",
        ),
    ] {
        assert_eq!(with(&text), format!("x.toml:{place}: {control}"));
    }
    assert_eq!(
        with("[[targets]]\nname = \"\""),
        "x.toml:3:1: `targets[0].name`: is empty; write a name"
    );
}

#[test]
fn type_errors_use_plain_words() {
    for (line, words) in [
        ("seed = -1", "a whole number, 0 or more"),
        ("scheduler = 3", "a table"),
        ("loads = 4", "a list, as in [[loads]]"),
        ("about = 4", "a string in quotes"),
        ("[scheduler]\nrefuse_hopeless = 'yes'", "true or false"),
        (
            "[scheduler]\nattempts = 99999999999",
            "a whole number, 0 to 4294967295",
        ),
        (
            "[scheduler]\nbackoff = { jitter = 300 }",
            "a whole number, 0 to 255",
        ),
        (
            "[scheduler]\nlimits = { cost_per_second = 'x' }",
            "a number",
        ),
        (
            "[scheduler]\nbound = 99999999999999999999999",
            "number out of range",
        ),
        (
            "[[loads]]\nname = 'a'\narrivals = 5",
            "a table as in { kind = \"poisson\"",
        ),
    ] {
        let told = error(&format!("duration = \"1s\"\n{line}"));
        assert!(told.contains(words), "{told}");
        for source in ["u64", "u32", "u8", "f64", "struct", "enum", "File"] {
            assert!(!told.contains(source), "{told}");
        }
    }
}

#[test]
fn a_class_is_named_once() {
    let text = "duration = \"1s\"\n[[loads]]\nname = \"a\"\nclass = [1, \"P1\"]\narrivals = { kind = \"poisson\", rate = 1.0 }";
    assert_eq!(
        error(text),
        "x.toml:4:1: `loads[0].class`: `P1` is named twice"
    );
}

#[test]
fn a_shipped_name_that_is_nearly_right_is_named() {
    let told = Scenario::open("greedy-tennant")
        .expect_err("a typo")
        .to_string();
    assert!(told.ends_with("; did you mean `greedy-tenant`?"), "{told}");
    let told = Scenario::open("zebra").expect_err("none").to_string();
    assert!(told.contains("valid: `ten-classes-fifo`, "), "{told}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_file_panics(text in mangled()) {
        if let Err(error) = Scenario::from_text("x.toml", &text) {
            prop_assert!(error.to_string().starts_with("x.toml:"), "{}", error);
        }
    }
}
