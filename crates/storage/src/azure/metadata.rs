//! Names of metadata. Azure's must be identifiers: letters, digits and `_`, not starting with a
//! digit. Other names are stored as azcopy stores them: the value under `rename_` and a valid name,
//! and the original name under `rename_key_`.

use crate::backend::Extended;
use std::collections::BTreeSet;

const META: &[u8] = b"meta-";
const VALUE: &[u8] = b"meta-rename_";
const NAME: &[u8] = b"meta-rename_key_";

/// Encodes metadata for the service. Fails with a message if that is impossible.
pub(super) fn encode(extended: &Extended) -> Result<Extended, String> {
    let mut sent = Extended::new();
    let mut taken = BTreeSet::new();
    for (name, value) in extended {
        if !value.iter().all(|byte| (b' '..=b'~').contains(byte)) {
            let name = name.escape_ascii();
            return Err(format!(
                "the value of `{name}` is not ASCII, as metadata must be"
            ));
        }
        let Some(bare) = name.strip_prefix(META) else {
            sent.push((name.clone(), value.clone()));
            continue;
        };
        let valid_name = valid_name(bare);
        if !taken.insert(valid_name.to_ascii_lowercase()) {
            let bare = bare.escape_ascii();
            return Err(format!(
                "the metadata `{bare}` collides with another name after conversion"
            ));
        }
        if valid_name == bare {
            sent.push((name.clone(), value.clone()));
        } else {
            sent.push(([VALUE, valid_name.as_slice()].concat(), value.clone()));
            sent.push(([NAME, valid_name.as_slice()].concat(), bare.to_vec()));
        }
    }
    Ok(sent)
}

/// Replaces invalid characters of a name with `_`.
fn valid_name(name: &[u8]) -> Vec<u8> {
    let mut valid_name: Vec<u8> = name
        .iter()
        .map(|byte| {
            if byte.is_ascii_alphanumeric() {
                *byte
            } else {
                b'_'
            }
        })
        .collect();
    if valid_name.first().is_none_or(u8::is_ascii_digit) {
        valid_name.insert(0, b'_');
    }
    valid_name
}

/// Decodes metadata from the service.
pub(super) fn decode(sent: &Extended) -> Extended {
    let value_of = |name: &[u8]| {
        let bare = name.strip_prefix(NAME)?;
        let under = [VALUE, bare].concat();
        sent.iter().find(|(name, _)| *name == under)
    };
    let mut extended = Extended::new();
    let mut used: BTreeSet<&[u8]> = BTreeSet::new();
    for (name, was) in sent {
        if let Some((under, value)) = value_of(name) {
            used.extend([name.as_slice(), under]);
            extended.push(([META, was].concat(), value.clone()));
        }
    }
    let rest = sent
        .iter()
        .filter(|(name, _)| !used.contains(name.as_slice()));
    extended.extend(rest.cloned());
    extended
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
        (name.into(), value.into())
    }

    #[test]
    fn names_that_are_not_identifiers_survive() {
        let extended = vec![
            pair("content-type", "text/plain"),
            pair("meta-colour", "red"),
            pair("meta-x-y.z", "1"),
            pair("meta-9", "nine"),
        ];
        let sent = encode(&extended).unwrap();
        assert!(sent.contains(&pair("meta-rename_x_y_z", "1")), "{sent:?}");
        assert!(
            sent.contains(&pair("meta-rename_key_x_y_z", "x-y.z")),
            "{sent:?}"
        );
        let mut back = decode(&sent);
        back.sort();
        let mut was = extended;
        was.sort();
        assert_eq!(back, was);
    }

    #[test]
    fn metadata_that_cannot_be_kept_is_an_error() {
        let two = vec![pair("meta-a-b", "1"), pair("meta-a.b", "2")];
        assert!(encode(&two).unwrap_err().contains("collides"));
        let odd = vec![pair("meta-a", "caf\u{e9}")];
        assert!(encode(&odd).unwrap_err().contains("ASCII"));
    }
}
