//! A strict parser of the text format, to test the encoder with.

#[derive(Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
}

/// Returns all samples if every line is valid and every sample follows the HELP and TYPE of its
/// family.
pub(crate) fn parse(text: &str) -> Result<Vec<Sample>, String> {
    let (mut samples, mut seen) = (Vec::new(), Vec::<String>::new());
    let mut family: Option<(String, String)> = None;
    let body = text.strip_suffix('\n').ok_or("no newline at the end")?;
    for line in body.split('\n') {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let name = help.split(' ').next().unwrap_or_default().to_owned();
            if seen.contains(&name) {
                return Err(format!("{name} appears twice"));
            }
            seen.push(name.clone());
            family = Some((name, String::new()));
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, word) = kind.split_once(' ').ok_or("TYPE without a kind")?;
            let current = family.as_mut().ok_or("TYPE before HELP")?;
            if current.0 != name || !["counter", "gauge", "histogram"].contains(&word) {
                return Err(format!("wrong TYPE: {line}"));
            }
            word.clone_into(&mut current.1);
        } else {
            let sample = sample(line)?;
            let (name, kind) = family.as_ref().ok_or("a sample before HELP")?;
            let suffixes: &[&str] = match kind.as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            if !suffixes
                .iter()
                .any(|suffix| sample.name == format!("{name}{suffix}"))
            {
                return Err(format!("{} does not stand under its family", sample.name));
            }
            samples.push(sample);
        }
    }
    Ok(samples)
}

fn sample(line: &str) -> Result<Sample, String> {
    let wrong = |what: &str| format!("{what}: {line}");
    let end = line.find(['{', ' ']).ok_or_else(|| wrong("no value"))?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").ok_or_else(|| wrong("bad label"))?;
            let (value, after) = quoted(after).ok_or_else(|| wrong("bad label value"))?;
            labels.push((label.to_owned(), value));
            match after.strip_prefix(',') {
                Some(more) => rest = more,
                None => {
                    rest = after
                        .strip_prefix('}')
                        .ok_or_else(|| wrong("labels do not end"))?;
                    break;
                }
            }
        }
    }
    let value = match rest.strip_prefix(' ').ok_or_else(|| wrong("no space"))? {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        number => number.parse().map_err(|_| wrong("not a number"))?,
    };
    Ok(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('"' | '\\') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
    None
}
