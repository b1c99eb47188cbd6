//! Classes by number and by name.

use headworks_core::Class;

/// Names of the ten default classes, most urgent first.
const NAMES: [&str; 10] = [
    "critical",
    "urgent",
    "high",
    "elevated",
    "above-normal",
    "normal",
    "below-normal",
    "low",
    "bulk",
    "background",
];

/// Parses an `X-Priority` header: a number, `P3`, or a name. Returns `None` if there is no such
/// class among `levels`.
///
/// ```
/// use headworks_core::Class;
/// use headworks_gateway::wire::read_priority;
/// assert_eq!(read_priority("3", 10), Some(Class(3)));
/// assert_eq!(read_priority("Bulk", 10), Some(Class(8)));
/// assert_eq!(read_priority("bulk", 4), Some(Class(3))); // the least urgent there is
/// assert_eq!(read_priority("10", 10), None);
/// ```
#[must_use]
pub fn read_priority(text: &str, levels: u8) -> Option<Class> {
    let text = text.trim();
    let last = levels.saturating_sub(1);
    let number = text.strip_prefix(['P', 'p']).unwrap_or(text);
    if let Ok(number) = number.parse::<u8>() {
        return (number <= last).then_some(Class(number));
    }
    let named = NAMES
        .iter()
        .position(|name| name.eq_ignore_ascii_case(text));
    named.map(|index| Class(u8::try_from(index).unwrap_or(last).min(last)))
}

/// Display name of a class, if it is one of the first ten.
#[must_use]
pub fn class_name(class: Class) -> Option<&'static str> {
    NAMES.get(usize::from(class.0)).copied()
}
